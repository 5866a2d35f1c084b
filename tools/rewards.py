"""Renew the generated parts of docs/rewards.md, and draw the trade-offs between rewards. Part of ``make docs``.

For each of several reward weightings, the cross-entropy method searches for a small policy. Then all policies treat the same new
patients. This takes a few minutes on one core. The same seed and cards give the same result.
"""

import functools
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from onco_gym.agents import load_agent, rollout
from onco_gym.cards import load_card
from onco_gym.cards.scenarios import ITEMS, footprint
from onco_gym.foundation.units import WEEKS_PER_MONTH, WEEKS_PER_YEAR
from onco_gym.interfaces.engine import Engine, make_engine
from onco_gym.interfaces.origins import Seat
from onco_gym.interfaces.single import OncologyEnv
from onco_gym.rewards import TERMS, card_weights, hear
from onco_gym.simulator.observation import allowed
from onco_gym.simulator.state import Journey
from pages import DOCS, IMAGES, NOTE, parser, renew, table

PAGE, PICTURE = DOCS / "rewards.md", IMAGES / "pareto_nsclc.png"
SEED, CANDIDATES, ELITE, PATIENTS, ROUNDS = 0, 48, 10, 128, 15
JUDGED = 2048  # new patients, not used in any search

SWEEP: dict[str, dict[str, float]] = {
    "as on the card": {},
    "guideline x 0": {"guideline": 0.0},
    "guideline x 4": {"guideline": 0.02},
    "carbon x 30": {"carbon": 0.3},
    "carbon x 80": {"carbon": 0.8},
    "carbon x 100": {"carbon": 1.0},
    "carbon x 120": {"carbon": 1.2},
    "carbon x 150": {"carbon": 1.5},
    "carbon x 200": {"carbon": 2.0},
    "carbon x 400": {"carbon": 4.0},
}
"""Changes to the card's weights, in quality-adjusted life years per guideline point and per tonne."""
REFERENCES = ("guideline", "random", "best_supportive_care")

START = np.array([2.0, 1.0, 1.0, 0, 0, 0, 0, 0, 0])
"""The weights of the features in :func:`scores` with which each search starts."""


class Result(NamedTuple):
    """Means over patients, and half-widths of their 95% intervals."""

    mean: dict[str, float]
    half: dict[str, float]


def scores(engine: Engine, theta: jax.Array, journey: Journey) -> jax.Array:
    """(R, n) scores of every regimen by the policies ``theta`` (features, n), from what the clinic knows."""
    scenario, state = engine.scenario, journey.state
    hearing = hear(engine.panel, scenario, engine.params, journey)
    index = jnp.arange(len(scenario.regimens))[:, None]
    per_km = engine.params.items_kg[ITEMS.index("km")]
    travel = engine.params.visits[:, None] * journey.patient.travel * per_km
    burden = (engine.params.drug_kg + engine.params.clinic_kg)[:, None] + travel
    toxic = np.array([1 - np.prod([1 - share for share in r.toxicity.values()]) for r in engine.card.regimens])
    ecog = jnp.floor(state.performance + 0.5)
    supportive, holiday = index == scenario.supportive, index == scenario.holiday
    smaller = state.diameter <= 0.7 * state.baseline
    rows = [
        engine.panel.shares(jnp, hearing),
        index == hearing.first,
        (index == state.treatment) & (state.progressed < 0.5),  # the current line, without progression
        burden / 25,  # kg CO2e of a cycle
        jnp.broadcast_to(toxic[:, None], burden.shape),  # share with a grade 3+ event over a course
        jnp.broadcast_to(supportive, burden.shape),
        supportive * ecog,
        jnp.broadcast_to(holiday, burden.shape),
        holiday & smaller,
    ]
    return sum(weight * row.astype(jnp.float32) for weight, row in zip(theta, rows, strict=True))


@functools.partial(jax.jit, static_argnums=0)
def treat(engine: Engine, theta: jax.Array, seat: Seat) -> tuple[jax.Array, jax.Array]:
    """((terms, n) totals, (n,) cycles lived) of patients at ``seat`` under the policies ``theta`` (features, n)."""

    def cycle(carry: Any, _: None) -> tuple[Any, None]:
        journey, tally, terms, lived = carry
        can = allowed(engine.params, journey.state) > 0.5
        choice = jnp.argmax(jnp.where(can, scores(engine, theta, journey), -jnp.inf), 0).astype(jnp.int32)
        journey, tally, outcome = engine.cycle(journey, tally, choice)
        return (journey, tally, terms + outcome.terms, lived + outcome.lived), None

    journey = engine.begin(engine.draw(seat)).journey
    n = len(seat.episode)
    start = journey, engine.tally(), jnp.zeros((len(TERMS), n)), jnp.zeros(n)
    (_, _, terms, lived), _ = jax.lax.scan(cycle, start, length=engine.horizon)
    return terms, lived


def patients(first: int, n: int, copies: int = 1) -> Seat:
    """``n`` patients from number ``first`` on, ``copies`` times."""
    return Seat.first(np.tile(np.arange(first, first + n, dtype=np.uint64), copies))


def search(engine: Engine, weights: Mapping[str, float]) -> np.ndarray:
    """(features,) a policy for these weights: the mean of the elite after :data:`ROUNDS` rounds."""
    rng = np.random.default_rng(SEED)
    mean, spread = START.copy(), np.ones(len(START))
    price = np.array([weights[name] if name != "fairness" else 0.0 for name in TERMS])  # candidates share one tally
    for turn in range(ROUNDS):
        tried = rng.normal(mean, spread, (CANDIDATES, len(mean)))
        tried[0] = mean
        # All candidates treat the same patients, so that luck does not decide between them.
        terms, _ = treat(engine, np.repeat(tried, PATIENTS, 0).T, patients(turn * PATIENTS, PATIENTS, CANDIDATES))
        value = (price @ np.asarray(terms)).reshape(CANDIDATES, PATIENTS).mean(1)
        elite = tried[np.argsort(-value)[:ELITE]]
        mean, spread = elite.mean(0), elite.std(0) + 0.3 * 0.8**turn
    return mean


def summary(terms: Mapping[str, np.ndarray], cycles: np.ndarray) -> Result:
    """Means of the figures that are drawn and tabulated."""
    values = {name: terms[name] for name in ("outcome", "guideline")}
    values |= {"carbon_kg": -1000 * terms["carbon"], "cycles": cycles}
    half = {name: float(1.96 * value.std() / np.sqrt(len(value))) for name, value in values.items()}
    return Result({name: float(value.mean()) for name, value in values.items()}, half)


def sweep(engine: Engine) -> dict[str, Result]:
    """All policies and reference agents on the same new patients."""
    found = {}
    for name, changes in track(SWEEP.items(), "searching"):
        theta = search(engine, card_weights(engine.card, changes))
        terms, lived = treat(engine, np.repeat(theta[:, None], JUDGED, 1), patients(10**6, JUDGED))
        found[name] = summary(dict(zip(TERMS, np.asarray(terms), strict=True)), np.asarray(lived))
    for name in REFERENCES:
        run = rollout(engine, load_agent(engine, name), JUDGED, seed=10**6)
        found[name] = summary(run.terms, run.weeks / engine.card.cycle_weeks)
    return found


def front(found: Mapping[str, Result], axis: str, sign: float) -> list[str]:
    """Those not dominated if more outcome and more of ``sign`` times ``axis`` are better, in the order of the axis."""

    def better(one: Result, two: Result) -> bool:
        gains = (one.mean["outcome"] - two.mean["outcome"], sign * (one.mean[axis] - two.mean[axis]))
        return min(gains) >= 0 and max(gains) > 0

    best = [name for name, one in found.items() if not any(better(two, one) for two in found.values())]
    return sorted(best, key=lambda name: found[name].mean[axis])


def draw(found: Mapping[str, Result]) -> None:
    """Outcome against carbon, and against guideline points."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(11, 5), dpi=100, layout="constrained")
    labels = ("kg CO2e per patient (less is better)", "guideline points per patient (more is better)")
    places = drawing.subplots(1, 2, sharey=True)
    for place, axis, sign, label in zip(places, ("carbon_kg", "guideline"), (-1, 1), labels, strict=True):
        joined = front(found, axis, sign)
        line = [(found[name].mean[axis], found[name].mean["outcome"]) for name in joined]
        place.plot(*zip(*line, strict=True), color="C0", lw=1)
        for name, one in found.items():
            look = {"color": "C0", "zorder": 3} if name in joined else {"color": "0.6", "zorder": 2}
            point = one.mean[axis], one.mean["outcome"], one.half["outcome"], one.half[axis]
            place.errorbar(*point, fmt="o" if name in SWEEP else "s", ms=5, lw=0.7, **look)
        for numbers, where in _labels(found, axis):
            place.annotate(numbers, where, xytext=(6, -12), textcoords="offset points", fontsize=8)
        place.set(xlabel=label)
        place.margins(x=0.12)
    drawing.axes[0].set_ylabel("quality-adjusted life years per patient")
    title = f"NSCLC: policies for different weights (dots) and agents (squares), {JUDGED} new patients; blue: not dominated"
    drawing.suptitle(f"{title}. {NOTE}", fontsize=9)
    drawing.savefig(PICTURE)


def _labels(found: Mapping[str, Result], axis: str) -> list[tuple[str, tuple[float, float]]]:
    """The numbers of the table, to put beside the points. Points that lie close together share a label."""
    width = max(one.mean[axis] for one in found.values()) / 25
    groups: list[tuple[list[int], tuple[float, float]]] = []
    for number, one in enumerate(found.values(), 1):
        x, y = one.mean[axis], one.mean["outcome"]
        near = next((g for g in groups if abs(g[1][0] - x) < width and abs(g[1][1] - y) < 0.06), None)
        if near:
            near[0].append(number)
        else:
            groups.append(([number], (x, y)))
    return [(", ".join(map(str, numbers)), where) for numbers, where in groups]


def front_table(found: Mapping[str, Result]) -> str:
    """The table under the picture."""
    fronts = {"carbon": front(found, "carbon_kg", -1), "guideline": front(found, "guideline", 1)}
    rows = []
    for number, (name, (mean, half)) in enumerate(found.items(), 1):
        title = name.replace("_", " ") + ("" if name in SWEEP else " (agent)")
        means = f"{mean['outcome']:.2f} ± {half['outcome']:.2f}", f"{mean['carbon_kg']:.0f}", f"{mean['guideline']:.1f}"
        per_cycle, months = mean["guideline"] / mean["cycles"], mean["cycles"] * 3 / WEEKS_PER_MONTH
        on = [axis for axis, names in fronts.items() if name in names]
        rows.append((number, title, *means, f"{per_cycle:.2f}", f"{months:.1f}", on))
    figures = ["QALY", "kg CO2e", "guideline points", "points per cycle", "months lived"]
    return table(["", "weights", *figures, "on the front of outcome and"], rows)


def example() -> str:
    """A real step, term by term."""
    card = load_card("nsclc")
    env, weights = OncologyEnv("nsclc"), card_weights(card)
    action = env.action_names.index("osimertinib")
    for seed in range(10_000):  # the first patient with a known EGFR mutation who completes two cycles of osimertinib, both full
        _, start = env.reset(seed=seed)
        if "osimertinib" in start["guideline"]["best"] and env.patient["egfr_sensitising"]:
            env.step(action)
            if env.ended:
                continue
            grades = env.journey.state.toxicity.sum()
            _, reward, terminated, _, info = env.step(action)
            state = env.journey.state
            if info["given"] == "osimertinib" and not terminated and not state.hospital[0] and grades < 2:
                break
    patient, said = env.patient, info["guideline"]
    terms = {name: value + 0.0 for name, value in info["reward_terms"].items()}  # no negative zeros
    per_year = card.cycle_weeks / WEEKS_PER_YEAR
    regimen = card.regimens[action]
    visits, km = regimen.visits_per_cycle, env.journey.patient.travel[0]
    parts = {
        "tablets": regimen.drug_kgco2e_per_cycle,
        f"{visits:g} visits with blood panels": visits * (footprint(card, "visit") + footprint(card, "blood_panel")),
        f"{visits:g} x {km:g} km by car": visits * km * footprint(card, "km"),
        "a CT": footprint(card, "ct") * (state.since_scan[0] == 0),
        "one inference": footprint(card, "inference"),
    }
    parts = {name: kg for name, kg in parts.items() if kg > 0}
    assert abs(sum(parts.values()) - info["carbon_kg"]) < 1e-3, (parts, info["carbon_kg"])
    shown = {
        "given": info["given"],
        "reward_terms": {name: float(f"{value:.4g}") for name, value in terms.items()},
        "carbon_kg": round(info["carbon_kg"], 2),
        "guideline": said,
    }
    worked = {
        "outcome": f"3 weeks of {WEEKS_PER_YEAR:.2f} lived at utility {terms['outcome'] / per_year:.3f}",
        "guideline": f"{said['verdict']}, level A, accepted by {said['share']:.0%} of the experts",
        "fairness": "the line continues: nothing was decided" if terms["fairness"] == 0 else "surprise of the decision",
        "carbon": " + ".join(f"{kg:.2g} ({name})" for name, kg in parts.items()) + " kg",
    }
    rows = [
        (name, worked[name], f"{terms[name]:.4g}", f"{weights[name]:g}", f"{weights[name] * terms[name]:.5f}") for name in TERMS
    ]
    who = (
        f"Seed {seed}: {'a woman' if patient['sex'] == 'female' else 'a man'} of {patient['age']:.0f} with {patient['driver']}, "
        f"living {'in the country' if patient['rural'] else 'in town'} ({km:g} km to the clinic and back), "
        "in the second cycle of osimertinib."
    )
    sums = table(["term", "calculation", "value", "weight", "QALY"], [*rows, ("reward", "", "", "", f"**{reward:.5f}**")])
    return "\n\n".join([who, f"```json\n{json.dumps(shown, indent=2)}\n```", sums])


def footprints() -> str:
    """The footprint of each item where it was measured and at the card's clinic."""
    card = load_card("nsclc")
    rows = []
    for one in card.footprints:
        share = f"{one.grid_share:.0%}" + (f", {one.measured_in}" if one.measured_in else "")
        rows.append((one.item.replace("_", " "), f"{one.kgco2e:g}", share, f"{footprint(card, one.item):.3g}", one.source))
    here = f"in {card.grid_zone} at {card.clinic_hour}:00"
    return table(["item", "kg CO2e as measured", "share of electricity, measured in", here, "source"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for policies, draw the picture, write the page."""
    parser(__file__, __doc__).parse_args(arguments)
    found = sweep(make_engine("nsclc"))
    draw(found)
    renew(PAGE, __file__, {"example": example(), "footprints": footprints(), "front": front_table(found)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
