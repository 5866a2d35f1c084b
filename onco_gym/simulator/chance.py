"""Chance as a pure function of (key, cycle, channel), and its two readings.

*Sampled*: a counter hash gives the uniform number of a key, a cycle and a channel. Nothing is carried or split. Two
journeys with the same key share their chance, which makes counterfactuals exact.
*Expected*: events become their probabilities and errors vanish, so a journey is smooth in its decisions.

Keys have one of two widths. An *open* key has 64 bits and is hashed fast. Whoever sees a few observations can find it, and
then foresee every later cycle. A *sealed* key has 256 bits and goes through ChaCha20 (RFC 8439). Nobody can foresee its chance
without the key, whatever they have seen.
"""

from enum import IntEnum, auto
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onco_gym.foundation.arrays import total

OPEN, SEALED = 2, 8
"""Words of 32 bits in an open and in a sealed key."""
_SIGMA = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


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


def derived(key: Any, salt: Any) -> Any:
    """Other keys of the same width, one for each of ``key`` (words, n) and ``salt`` (n,) or () uint32. No two keys become one."""
    words = list(key)
    for place, word in enumerate(words):
        words[place] = mix(word ^ mix(words[place - 1] + salt)) if place else mix(word ^ mix(salt))
    return (jnp if isinstance(key, jax.Array) else np).stack(words)


def numbered(numbers: jax.Array, salt: Any = 0) -> jax.Array:
    """(OPEN, n) keys of whole ``numbers`` (n,) uint32, for journeys that are only imagined."""
    return derived(jnp.stack([numbers, jnp.zeros_like(numbers)]), jnp.uint32(salt))


def chacha(key: Any, counter: jax.Array, nonce: tuple[Any, Any, Any]) -> tuple[jax.Array, ...]:
    """The 16 words of a ChaCha20 block (RFC 8439), each (n,) uint32.

    Args:
        key: 8 words, each (n,) or () uint32.
        counter: (n,) uint32.
        nonce: 3 words, each (n,) or () uint32.
    """
    words = [jnp.uint32(word) for word in _SIGMA] + [jnp.asarray(word, jnp.uint32) for word in (*key, counter, *nonce)]
    start = tuple(jnp.broadcast_to(word, counter.shape) for word in words)

    def double_round(_: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        now = list(state)
        for a, b, c, d in (*_COLUMNS, *_DIAGONALS):
            for first, second, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                now[first] = now[first] + now[second]
                turned = now[third] ^ now[first]
                now[third] = (turned << by) | (turned >> (32 - by))
        return tuple(now)

    return tuple(one + two for one, two in zip(jax.lax.fori_loop(0, 10, double_round, start), start, strict=True))


def _competing(hazards: jax.Array) -> jax.Array:
    """(O, n) probability that each of the competing hazards (O, n) comes first within a cycle."""
    every = jnp.maximum(total(hazards), 1e-12)
    return hazards * (-jnp.expm1(-every) / every)


class Sampled:
    """Draws for one cycle of each journey.

    Args:
        key: (words, n) uint32; :data:`OPEN` or :data:`SEALED` words.
        cycle: (n,) int32.
    """

    def __init__(self, key: jax.Array, cycle: jax.Array) -> None:
        counter = cycle.astype(jnp.uint32)
        if len(key) == SEALED:
            zero = jnp.uint32(0)
            self._block = chacha(tuple(key), counter, (zero, zero, zero))
            return
        self._block = ()
        self._seed = mix(mix(key[0] + counter * jnp.uint32(0x85EBCA6B)) ^ key[1])

    def _bits(self, channel: Channel) -> jax.Array:
        if self._block:
            return self._block[channel]
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
        events, worse, below = [], jnp.zeros(draw.shape, bool), jnp.zeros_like(draw)
        for probability in _competing(hazards):
            events.append((draw >= below) & (draw < below + probability))
            worse |= (draw >= below) & (draw < below + probability * further)
            below = below + probability
        return jnp.stack(events).astype(jnp.float32), worse.astype(jnp.float32)

    def either(self, one: jax.Array, other: jax.Array) -> jax.Array:
        """(n,) 1 where at least one of two events happened."""
        return jnp.maximum(one, other)

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
        return events, total(events) * further

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
