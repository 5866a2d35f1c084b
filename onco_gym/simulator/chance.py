"""Chance as a pure function of (key, cycle, channel), and its two readings.

*Sampled*: a counter hash gives the uniform number of a key, a cycle and a channel. Nothing is carried or split. Two
journeys with the same key share their chance, which makes counterfactuals exact.
*Expected*: events become their probabilities and errors vanish, so a journey is smooth in its decisions.
"""

from enum import IntEnum, auto
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.simulator.state import total


class Channel(IntEnum):
    """What a uniform number is used for; one number per key, cycle and channel."""

    DEATH = auto()
    SEVERE = auto()
    SCAN = auto()
    NEW_LESION = auto()
    CTDNA = auto()
    LDH = auto()
    ALBUMIN = auto()
    NEUTROPHILS = auto()
    SYMPTOMS = auto()


def mix(x: Any) -> Any:
    """A bijective hash of uint32 arrays, in NumPy or JAX (Ettinger's "lowbias32" finaliser)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def _competing(hazards: jax.Array) -> jax.Array:
    """(O, n) probability that each of the competing hazards (O, n) comes first within a cycle."""
    every = jnp.maximum(total(hazards), 1e-12)
    return hazards * (-jnp.expm1(-every) / every)


class Sampled:
    """Draws for one cycle of each journey.

    Args:
        key: (n,) uint32.
        cycle: (n,) int32.
    """

    def __init__(self, key: jax.Array, cycle: jax.Array) -> None:
        self._seed = mix(key + cycle.astype(jnp.uint32) * jnp.uint32(0x85EBCA6B))

    def _bits(self, channel: Channel) -> jax.Array:
        return mix(self._seed ^ jnp.uint32((channel * 0x9E3779B9) & 0xFFFFFFFF))

    def uniform(self, channel: Channel) -> jax.Array:
        """(n,) numbers strictly between 0 and 1."""
        return ((self._bits(channel) >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)

    def event(self, probability: jax.Array, channel: Channel) -> jax.Array:
        """(n,) 1 where it happens, else 0."""
        return (self.uniform(channel) < probability).astype(jnp.float32)

    def normal(self, channel: Channel) -> jax.Array:
        """(n,) standard normal numbers, as sums of four uniform bytes: they stay within 3.5 sd and need no logarithm."""
        bits = self._bits(channel)
        total = sum(((bits >> shift) & jnp.uint32(0xFF)).astype(jnp.float32) for shift in (0, 8, 16, 24))
        return (total - 510.0) * jnp.float32(1 / 147.80)

    def one_of(self, hazards: jax.Array, further: jax.Array, channel: Channel) -> tuple[jax.Array, jax.Array]:
        """((O, n) competing events, at most one of which happens; (n,) whether it goes ``further``, a probability)."""
        draw = self.uniform(channel)
        events, worse, below = [], [], jnp.zeros_like(draw)
        for probability in _competing(hazards):
            events.append((draw >= below) & (draw < below + probability))
            worse.append((draw >= below) & (draw < below + probability * further))
            below = below + probability
        return jnp.stack(events).astype(jnp.float32), jnp.max(jnp.stack(worse).astype(jnp.float32), 0)

    def either(self, one: jax.Array, other: jax.Array) -> jax.Array:
        """(n,) 1 where at least one of two events happened."""
        return jnp.max(jnp.stack([one, other]), 0)

    def lived(self, hazard: jax.Array, channel: Channel) -> tuple[jax.Array, jax.Array]:
        """((n,) share of the cycle lived, (n,) died) under a constant hazard per cycle."""
        share = -jnp.log1p(-self.uniform(channel)) / jnp.maximum(hazard, 1e-12)
        return jnp.minimum(share, 1.0), (share < 1.0).astype(jnp.float32)

    def above(self, margin: jax.Array, error: jax.Array) -> jax.Array:
        """(n,) 1 where a measured margin is not negative. The measurement already contains the error."""
        del error
        return (margin >= 0).astype(jnp.float32)


class Expected:
    """The mean of :class:`Sampled`, smooth in all its arguments."""

    def event(self, probability: jax.Array, channel: Channel) -> jax.Array:
        """(n,) the probability itself."""
        del channel
        return jnp.clip(probability, 0.0, 1.0)

    def normal(self, channel: Channel) -> jax.Array:
        """The mean error."""
        del channel
        return jnp.zeros(())

    def one_of(self, hazards: jax.Array, further: jax.Array, channel: Channel) -> tuple[jax.Array, jax.Array]:
        """((O, n) probability of each competing event; (n,) probability that one happens and goes ``further``)."""
        del channel
        events = _competing(hazards)
        return events, jnp.sum(events, 0) * further

    def either(self, one: jax.Array, other: jax.Array) -> jax.Array:
        """(n,) probability of at least one of two independent events."""
        return 1 - (1 - one) * (1 - other)

    def lived(self, hazard: jax.Array, channel: Channel) -> tuple[jax.Array, jax.Array]:
        """((n,) mean share of the cycle lived, (n,) probability of death)."""
        del channel
        died = -jnp.expm1(-hazard)
        return died / jnp.maximum(hazard, 1e-12), died

    def above(self, margin: jax.Array, error: jax.Array) -> jax.Array:
        """(n,) probability that the measured margin is not negative (logistic approximation of the normal)."""
        return jax.nn.sigmoid(1.702 * margin / error)


class Weighed(Sampled):
    """Samples everything except death. Journeys continue, weighted by the probability of being alive.

    This makes means over few journeys much less uncertain.
    """

    def lived(self, hazard: jax.Array, channel: Channel) -> tuple[jax.Array, jax.Array]:
        """The same as :meth:`Expected.lived`."""
        return Expected().lived(hazard, channel)


Chance = Sampled | Expected
