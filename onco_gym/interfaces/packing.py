"""Pack a journey and its output into one flat array, for the single environment.

Each array passed to or from a compiled function costs more time than the cycle itself. So a journey of one patient is kept as
one float32 vector. Whole numbers are stored as their bits.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Tree = TypeVar("Tree")


class Layout(Generic[Tree]):
    """The position of each array of a tree in a flat vector.

    Args:
        tree: arrays, or their shapes.
    """

    def __init__(self, tree: Tree) -> None:
        leaves, self._tree = jax.tree.flatten(tree)
        self._shapes = [leaf.shape for leaf in leaves]
        self._types = [np.dtype(leaf.dtype) for leaf in leaves]
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes]).tolist()
        self.size: int = self._ends[-1]

    def pack(self, tree: Tree) -> jax.Array:
        """(size,) float32, the arrays of ``tree`` in a row."""
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        floats = [leaf if leaf.dtype == jnp.float32 else jax.lax.bitcast_convert_type(leaf, jnp.float32) for leaf in leaves]
        return jnp.concatenate([leaf.reshape(-1) for leaf in floats])

    def unpack(self, flat: jax.Array) -> Tree:
        """The tree in ``flat``, inside a compiled function."""
        return self._rebuild(flat, jax.lax.bitcast_convert_type)

    def read(self, flat: NDArray[np.float32]) -> Tree:
        """The tree in ``flat``, as NumPy arrays."""
        return self._rebuild(flat, lambda part, kind: part.view(kind))

    def _rebuild(self, flat: Any, cast: Callable[[Any, Any], Any]) -> Tree:
        parts = []
        start = 0
        for end, shape, kind in zip(self._ends, self._shapes, self._types, strict=True):
            part = flat[start:end]
            parts.append((part if kind == np.float32 else cast(part, kind)).reshape(shape))
            start = end
        tree: Tree = jax.tree.unflatten(self._tree, parts)
        return tree
