"""What is said of the package outside it: its version, what it needs, and under which names."""

import re
import tomllib

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onco_gym.version import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_the_citation_is_of_this_version():
    assert re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [__version__]
    assert f"## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_every_package_that_is_asked_for_has_a_tested_version():
    asked = [Requirement(text) for group in (PROJECT["dependencies"], *EXTRAS.values()) for text in group]
    names = {canonicalize_name(one.name) for one in asked} - {"onco-gym"}
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    tested = {canonicalize_name(one.name): one for one in map(Requirement, lines)}
    assert names <= tested.keys()
    for one in asked:
        if one.name != "onco_gym":
            (version,) = tested[canonicalize_name(one.name)].specifier
            assert one.specifier.contains(version.version), f"{one} and {version}"


def test_extras_name_extras_that_are_there():
    asked = [Requirement(text) for group in EXTRAS.values() for text in group]
    assert {extra for one in asked if one.name == "onco_gym" for extra in one.extras} <= EXTRAS.keys()


@pytest.mark.parametrize("folder", ["onco_gym", "docs", "baselines", "benchmarks", "tools", "README.md", "CONTRIBUTING.md"])
def test_advice_on_what_to_install_names_extras_that_are_there(folder):
    files = [ROOT / folder] if "." in folder else [path for kind in ("py", "md") for path in (ROOT / folder).rglob(f"*.{kind}")]
    assert files
    for path in files:
        for names in re.findall(r"onco_gym\[([a-z0-9, ]+)\]", path.read_text()):
            assert {name.strip() for name in names.split(",")} <= EXTRAS.keys(), path
