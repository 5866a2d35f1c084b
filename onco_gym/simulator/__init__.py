"""The simulator: a patient's life cycle by cycle, in pure JAX, batch last."""
