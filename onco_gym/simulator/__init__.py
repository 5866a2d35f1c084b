"""The simulator: patients move one treatment cycle at a time, in pure JAX, batch last."""
