"""What the clinic knows about patients, under the names in guideline rules; for use in compiled functions."""

from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp

from onco_gym.cards.scenarios import Scenario
from onco_gym.simulator.state import Journey


class Facts(Mapping[str, jax.Array]):
    """Columns (n,), computed on first use.

    Unknown facts read as false, and unknown levels as -1.
    """

    def __init__(self, scenario: Scenario, journey: Journey) -> None:
        self._scenario, self._journey = scenario, journey
        self._columns = {name: row for row, name in enumerate((*scenario.traits, *scenario.biomarkers))}
        self._levels = dict(scenario.levels)
        self._fields = {field.name: field for field in scenario.fields}
        self._made: dict[str, jax.Array] = {}

    def __getitem__(self, name: str) -> jax.Array:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._columns, *self._levels])

    def __len__(self) -> int:
        return len(self._columns) + len(self._levels)

    def _make(self, name: str) -> jax.Array:
        scenario, state = self._scenario, self._journey.state
        match name.split("_", 1):
            case ["line"]:
                return state.line
            case ["ecog"]:
                return jnp.floor(state.performance + 0.5)
            case ["progressed"]:
                return state.progressed > 0.5
            case ["known", test] if test in scenario.tests:
                return state.result_cycle[scenario.tests.index(test)] <= state.cycle
            case ["prior", regimen] if regimen in scenario.regimens:
                return state.exposure[scenario.regimens.index(regimen)] > 0.5
            case ["marker", clone] if clone in scenario.clones:
                return state.marker[scenario.clones.index(clone) - 1] > 0.5
            case ["toxicity", organ] if organ in scenario.organs:
                return state.toxicity[scenario.organs.index(organ)]
        if name in self._levels:
            code = jnp.full(state.line.shape, -1)
            for number, column in enumerate(self._levels[name]):
                code = jnp.where(self[column] > 0.5, number, code)
            return code
        return self._shown(name)

    def _shown(self, name: str) -> jax.Array:
        scenario, field, row = self._scenario, self._fields[name], self._columns[name]
        raw = field.low + (field.high - field.low) * self._journey.patient.shown[row]
        biomarker = row - len(scenario.traits)
        if biomarker < 0:
            return raw
        state = self._journey.state
        known = state.result_cycle[scenario.biomarker_test[biomarker]] <= state.cycle
        return jnp.where(known, raw, 0.0)
