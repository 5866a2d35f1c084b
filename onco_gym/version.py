"""The version, read by the build and by ``onco_gym.__version__``."""

__version__ = "0.7.0"
