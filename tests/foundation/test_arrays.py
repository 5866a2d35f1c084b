"""How arrays are computed."""

import jax
import numpy as np

from onco_gym.foundation.arrays import IN_PLACE, LESS_COMPILING, Spare, compiler_options, either, one_turn, settled, total


def test_rows_are_added_in_order():
    rows = np.float32([[1e8], [1.0], [-1e8], [1.0]])
    assert total(rows) == np.float32(1.0), "(((1e8 + 1) - 1e8) + 1) in 32 bits"
    np.testing.assert_array_equal(either(np.array([[True, False], [False, False]])), [True, False])


def test_what_is_settled_is_unchanged():
    def work(x):
        return settled(one_turn(x >= 0), {"double": 2 * x, "large": x > 1})

    x = np.float32([0.5, 1.5, np.nan])
    for found in (jax.jit(work)(x), work(x), settled(None, {"double": 2 * x, "large": x > 1})):
        np.testing.assert_array_equal(found["double"], 2 * x)
        np.testing.assert_array_equal(found["large"], [False, True, False])


def test_options_that_the_compiler_does_not_know_are_left_out():
    assert compiler_options(("xla_no_such_option", True)) == {}
    known = compiler_options(IN_PLACE, ("xla_no_such_option", 3), LESS_COMPILING)
    assert set(known) <= {IN_PLACE[0], LESS_COMPILING[0]}
    assert jax.jit(lambda x: x + 1, compiler_options=known)(1) == 2


def test_a_spare_array_is_used_again_only_when_nobody_holds_it():
    spare = Spare((4, 3), np.float32, "F")
    first = spare.take()
    assert (first.shape, first.dtype, first.flags.f_contiguous) == ((4, 3), np.float32, True)
    where = first.ctypes.data
    row = first[1]
    del first
    second = spare.take()
    assert second.ctypes.data != where, "a view of the first is still held"
    del row
    assert spare.take().ctypes.data == where
    held = [spare.take() for _ in range(6)]
    assert len({array.ctypes.data for array in held}) == 6, "more than are kept"
