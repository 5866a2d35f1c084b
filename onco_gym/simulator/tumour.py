"""Clones: Gompertz growth, kill by mechanism, immune response, acquired resistance."""

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from onco_gym.cards.scenarios import Params
from onco_gym.foundation.arrays import total

ONE_CELL = -20.7
"""log cm3 of a single cell (10^9 cells per cm3)."""
SMALL = 0.0
"""log cm3 (1 cm3) below which growth is exponential. Gompertz's law is unbounded for small volumes, which is not observed."""
_EXTINCT = -27.6  # log cm3; clones below one cell do not grow, and none is tracked further down


def log_volume(clones: jax.Array) -> jax.Array:
    """(n,) log cm3 of all clones (K, n) together."""
    return jax.nn.logsumexp(clones, axis=0)


def grow(params: Params, growth: jax.Array, clones: jax.Array, volume: jax.Array, kill: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One cycle of growth and kill.

    Without kill and with one clone, log volume follows Gompertz's law exactly: the distance to capacity shrinks by the same
    share in every cycle. Clones share the room, so killing one makes the others grow faster. A tumour below :data:`SMALL`
    grows no faster than one of that volume.

    Args:
        growth: (n,) or (K, n) share of the distance to capacity, in log volume, covered in a cycle.
        clones: (K, n) log cm3.
        volume: (n,) log cm3 of all clones together.
        kill: (K, n) log kill this cycle, at least 0.

    Returns:
        (K, n) and (n,) log cm3 a cycle later, of each clone and in total.
    """
    room = jnp.maximum(params.log_capacity - jnp.maximum(volume, SMALL), 0.0)
    step = growth * room
    living = jnp.clip(clones - ONE_CELL, 0.0, 1.0)
    grown = clones + params.fitness[:, None] * step * living - kill
    size = jnp.exp(jnp.maximum(grown, _EXTINCT))
    size = size + _multiply(params.flux, size)
    return jnp.log(size), jnp.log(total(size))


def brake(params: Params, effect: jax.Array, static: NDArray[np.intp]) -> jax.Array | float:
    """(K, n) share of growth that remains under the ``static`` mechanisms, which slow it: 1 / (1 + effect)."""
    if not len(static):
        return 1.0
    return 1 / (1 + _multiply(1 - params.resistance[:, static], effect[static]))


def clone_kill(
    params: Params, effect: jax.Array, response: jax.Array, immune: NDArray[np.intp], static: NDArray[np.intp]
) -> jax.Array:
    """(K, n) kill of each clone.

    Args:
        effect: (M, n) kill by mechanism, before resistance.
        response: (I, n) immune kill by immune mechanism, before escape.
        immune: (I,) indices of the immune mechanisms, which act only through ``response``.
        static: indices of the mechanisms that slow growth instead of killing.
    """
    kill = list(effect)
    for row, mechanism in enumerate(immune):
        kill[mechanism] = response[row]
    kills = np.setdiff1d(np.arange(len(kill)), static)
    return _multiply(1 - params.resistance[:, kills], [kill[mechanism] for mechanism in kills])


def immune_response(params: Params, response: jax.Array, drive: Sequence[jax.Array]) -> jax.Array:
    """(I, n) next immune response, from the ``drive`` (n,) of each immune mechanism.

    Each part rises to its drug's drive. The stronger their sum, the more slowly they wane.
    """
    if not drive:
        return response
    waning = params.immune_waning * params.immune_memory / (params.immune_memory + total(response))
    parts = zip(response, drive, strict=True)
    return jnp.stack([old + jnp.where(new > old, params.immune_onset, waning) * (new - old) for old, new in parts])


def _multiply(matrix: jax.Array, columns: Iterable[jax.Array]) -> jax.Array:
    """(K, n) matrix @ columns, summed in a fixed order as in :func:`total`."""
    return total(matrix[:, j][:, None] * column for j, column in enumerate(columns))
