"""How arrays are computed, where XLA would choose a slow way or one that depends on the number of patients.

And how NumPy's are filled without fresh memory.
"""

import functools
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

IN_PLACE = ("xla_cpu_copy_insertion_use_region_analysis", True)
"""Compiler option: arrays that are given up are changed in place, not copied first."""
LESS_COMPILING = ("xla_backend_optimization_level", 1)
"""Compiler option: compile faster; for one patient, the code is not slower."""


def total(rows: Iterable[Any]) -> Any:
    """The sum over the first axis, added up row by row.

    XLA's own sum depends on the batch size: one patient and four thousand would differ in the last bit, and the same seed
    would not give the same episode everywhere.
    """
    return functools.reduce(operator.add, rows)


def either(rows: Iterable[Any]) -> Any:
    """Whether any row of the first axis holds. It goes row by row, because XLA's own reduction is many times slower."""
    return functools.reduce(operator.or_, rows)


def settled(turns: Any, arrays: Any) -> Any:
    """The same JAX arrays, computed only once.

    XLA would otherwise compute them again for every row that reads them, at many times the cost, and it ignores optimisation
    barriers on CPUs. It keeps a loop that changes nothing if it cannot know the number of ``turns``. The loop touches one
    number of each array, so it costs next to nothing.

    Args:
        turns: () int32, a 1 that is known only at run time; see :func:`one_turn`. With None, the arrays are left as they are.
        arrays: a tree of arrays.
    """
    if turns is None:
        return arrays
    import jax
    import jax.numpy as jnp

    def same(turn: Any, array: Any) -> Any:
        first, start = array[(slice(1),) * array.ndim], (0,) * array.ndim
        return jax.lax.dynamic_update_slice(array, jnp.where(turn < 0, jnp.zeros_like(first), first), start)

    return jax.lax.fori_loop(0, turns, lambda turn, now: jax.tree.map(functools.partial(same, turn), now), arrays)


def one_turn(truth: Any) -> Any:
    """() int32, a 1 that nobody can know before run time, from an array of bools that are all true."""
    return truth.ravel()[0].astype("int32")


def compiler_options(*wanted: tuple[str, Any]) -> dict[str, Any]:
    """Those of the ``wanted`` options that this version of XLA knows, for ``jax.jit``."""
    return dict(option for option in wanted if _is_known(*option))


@functools.cache
def _is_known(name: str, value: Any) -> bool:
    import jax

    try:
        jax.jit(lambda x: x, compiler_options={name: value})(0.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


class Spare:
    """NumPy arrays of one shape. An array is handed out again once nobody holds it or a view of it.

    To fill fresh memory takes several times as long as to fill an array that was there before.

    Args:
        shape: the shape.
        dtype: the type of its numbers.
        order: ``"C"`` or ``"F"``, as in ``numpy.empty``.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"] = "C") -> None:
        self._shape, self._dtype, self._order = shape, dtype, order
        self._arrays: list[NDArray[Any]] = []

    def take(self) -> NDArray[Any]:
        """An array with any numbers in it."""
        for place, holders in enumerate(_holders(self._arrays)):
            if holders == _NOBODY:
                return self._arrays[place]
        array = np.empty(self._shape, self._dtype, self._order)
        if len(self._arrays) < _KEPT:
            self._arrays.append(array)
        return array


_KEPT = 3
"""Arrays that are kept: the last, the one before, which callers often still hold, and one to fill."""


def _holders(arrays: Sequence[NDArray[Any]]) -> list[int]:
    return [sys.getrefcount(array) for array in arrays]


_NOBODY = _holders([np.empty(0)])[0]
