"""What the simulator works on: a patient (fixed), a state (changes every cycle), and the two together as a journey."""

from typing import NamedTuple

import jax


class Patient(NamedTuple):
    """A patient ready to be simulated; batch last."""

    growth: jax.Array  # (n,) share of the log distance to capacity grown in a cycle
    sensitivity: jax.Array  # (M, n)
    clones: jax.Array  # (K, n) log cm3 at the start
    lesions: jax.Array  # (n,) measured lesions
    frailty: jax.Array  # (n,) factor on toxicity
    hazard: jax.Array  # (n,) factor on death
    shedding: jax.Array  # (n,) log10 ctDNA molecules per ml and cm3
    ecog: jax.Array  # (n,) at the start
    adherence: jax.Array  # (n,) share of tablets taken
    delay: jax.Array  # (n,) cycles by which treatment starts late
    result_cycle: jax.Array  # (T, n) cycle from which a test's result is known
    wait: jax.Array  # (T, n) cycles that a test takes for this patient
    shown: jax.Array  # (traits + biomarkers, n) scaled to 0..1
    travel: jax.Array  # (n,) km to the clinic and back
    groups: jax.Array  # (A, n) group of each protected attribute, as a number from 0


class State(NamedTuple):
    """The state of a patient at the start of a cycle; batch last."""

    cycle: jax.Array  # (n,) int32
    alive: jax.Array  # (n,) 1 or 0; in the expected reading the probability of being alive
    clones: jax.Array  # (K, n) log cm3
    volume: jax.Array  # (n,) log cm3 of all clones together
    response: jax.Array  # (I, n) immune kill per cycle, by immune mechanism
    toxicity: jax.Array  # (O, n) grades
    performance: jax.Array  # (n,) ECOG, continuous
    held: jax.Array  # (n,) share of the next dose withheld
    hospital: jax.Array  # (n,) days in the last cycle
    barred: jax.Array  # (R, n) stopped permanently for toxicity
    exposure: jax.Array  # (R, n) cycles received; held and delayed ones do not count
    adapted: jax.Array  # (M, n) cycles received of each mechanism, under any regimen
    last: jax.Array  # (n,) int32 regimen of the last cycle, -1 before the first
    treatment: jax.Array  # (n,) int32 regimen of the current line, -1 before the first; expected reading: (R, n) shares
    line: jax.Array  # (n,) lines started
    progressed: jax.Array  # (n,) on the current line
    uncontrolled: jax.Array  # (n,) from progression until a scan in a later line shows that the tumour no longer grows
    failed: jax.Array  # (n,) progressions so far, under any treatment
    diameter: jax.Array  # (n,) mm, measured sum at the last scan
    baseline: jax.Array  # (n,) mm, at the start of the line
    nadir: jax.Array  # (n,) mm, smallest of the line, or since the last progression
    scanned: jax.Array  # (n,) visible log volume at the last scan
    since_scan: jax.Array  # (n,) cycles
    marker: jax.Array  # (K - 1, n) resistant clones detected
    result_cycle: jax.Array  # (T, n) cycle from which a test's result is known


class Journey(NamedTuple):
    """A patient and their state. ``key`` is the source of all chance: key, patient and decisions determine the journey."""

    patient: Patient
    state: State
    key: jax.Array  # (words, n) uint32; see onco_gym.simulator.chance
