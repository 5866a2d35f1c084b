"""Commands on trials: trial, calibrate, design."""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import onco_gym
from onco_gym.cli.common import UsageError, console, make_table, resolve

if TYPE_CHECKING:
    from onco_gym.cards import Card
    from onco_gym.trials.design import Effect, Score
    from onco_gym.trials.ensemble import Ensemble
    from onco_gym.trials.published import Reproduction
    from onco_gym.trials.statistics import Interval
    from onco_gym.trials.trial import TrialResult


@contextmanager
def _bar(text: str, total: int | None) -> Iterator[tuple[Callable[[], None], Callable[[str], None]]]:
    """A progress bar on standard error: a function that moves it by one, and one that changes its text."""
    errors = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(text, total=total)
        yield lambda: bar.advance(task), lambda text: bar.update(task, description=text)


def _write_json(path: Path, content: Any) -> None:
    from onco_gym.foundation.files import replacing

    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    print(f"wrote {path}")


def _ensemble(name: str, card: "Card") -> "Ensemble | None":
    """The card's ensemble; a warning where it has none that fits."""
    from onco_gym.trials.ensemble import StaleError, ensemble_file, load_ensemble

    try:
        found = load_ensemble(card, ensemble_file(name))
    except StaleError as error:
        console(stderr=True).print(f"note: {error}", markup=False)
        return None
    if found is None:
        text = f"note: {card.id} has no ensemble: intervals leave out what we do not know (onco-gym calibrate draws one)"
        console(stderr=True).print(text, markup=False)
    return found


def _months(estimate: "Interval", wider: tuple[float, float] | None) -> str:
    def number(value: float) -> str:
        return f"{value:.1f}" if value < 1e6 else "not reached"

    low, high = wider or (estimate.low, estimate.high)
    return f"{number(estimate.value)} ({number(low)} to {number(high)})"


def _share(estimate: "Interval", wider: tuple[float, float] | None) -> str:
    low, high = wider or (estimate.low, estimate.high)
    return f"{estimate.value:.0%} ({low:.0%} to {high:.0%})"


def _ratio(estimate: "Interval") -> str:
    if math.isnan(estimate.value):
        return "cannot be told"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


# ------------------------------------------------------------------------------------------------ trial


def trial_command(arguments: argparse.Namespace) -> None:
    """Simulate a trial."""
    name = resolve(arguments.id)[1]
    card = onco_gym.load_card(name)
    from onco_gym.trials import Setting, as_json, run_trial

    ensemble = None if arguments.no_ensemble else _ensemble(name, card)
    members = ensemble.members(card) if ensemble else []
    setting = Setting(arguments.population, arguments.prior, arguments.scan_weeks)
    with _bar("compiling", len(arguments.arm) * (2 + len(members) if members else 1)) as (move, say):

        def on_arm() -> None:
            say(f"{arguments.n} patients an arm")
            move()

        result = run_trial(
            card,
            setting,
            arguments.arm,
            n=arguments.n,
            seed=arguments.seed,
            months=arguments.months,
            independent=arguments.independent,
            ensemble=members,
            on_arm=on_arm,
        )
    _print_trial(card, result)
    if arguments.json:
        _write_json(arguments.json, {"version": onco_gym.__version__, **as_json(result)})
    if arguments.plot:
        from onco_gym.trials.plots import kaplan_meier, save

        before = f", after {setting.prior}" if setting.prior else ""
        save(kaplan_meier(result, f"{card.title}: {setting.population or 'everybody'}{before}"), arguments.plot)
        print(f"wrote {arguments.plot}")


def _print_trial(card: "Card", result: "TrialResult") -> None:
    columns = ("arm", "PFS, months", "OS, months", "response", "disease control", "grade 3+", "stopped for toxicity", "QALY")
    rows = []
    for arm, wider in zip(result.arms, result.uncertainty, strict=True):
        low, high = wider.get("qalys", (arm.qalys.low, arm.qalys.high))
        rows.append(
            (
                arm.name,
                _months(arm.progression_free.median(), wider.get("pfs_months")),
                _months(arm.overall.median(), wider.get("os_months")),
                *(_share(getattr(arm, n), wider.get(n)) for n in ("response", "disease_control", "grade3", "discontinuation")),
                f"{arm.qalys.value:.2f} ({low:.2f} to {high:.2f})",
            )
        )
    before = f", after {result.setting.prior}" if result.setting.prior else ""
    title = (
        f"{card.title}: {result.setting.population or 'everybody'}{before}; {result.n} patients an arm, {result.months:g} months"
    )
    screen = console()
    screen.print(make_table(title, columns, rows))
    if len(result.arms) > 1:
        pairs = zip(result.arms, result.hazard_ratios("pfs"), result.hazard_ratios("os"), strict=False)
        ratios = [(arm.name, _ratio(pfs), _ratio(overall)) for arm, pfs, overall in pairs]
        screen.print(
            make_table(f"Hazard ratios against {result.arms[-1].name}", ("arm", "progression or death", "death"), ratios)
        )
    screen.print(f"95% intervals include {result.included}. Simulated patients: research software, not for treating patients.")


# ------------------------------------------------------------------------------------------------ calibrate


def calibrate_command(arguments: argparse.Namespace) -> None:
    """Fit a card to its published arms, or show how well it reproduces them."""
    name = resolve(arguments.id)[1]
    if arguments.check:
        if arguments.output or arguments.ensemble:
            raise UsageError("--check fits and draws nothing: --output and --ensemble have no meaning with it")
        _check(name, arguments)
        return
    if arguments.json or arguments.plot:
        raise UsageError("--json and --plot need --check")
    if arguments.ensemble:
        _draw(name, arguments)
        return
    from onco_gym.cards.folder import card_files
    from onco_gym.trials.calibration import Fit, calibrate, moved

    output = arguments.output or card_files().get(name, Path(name))
    if output.suffix != ".toml":
        raise UsageError(f"--output {output}: expected a file that ends in .toml, as cards do")
    state = output.with_name(f"{output.stem}.calibration.json")
    with _bar("compiling", None) as (move, say):

        def on_round(fit: "Fit") -> None:
            loss = f", loss {fit.position.loss:.1f}" if fit.position.round else ""
            say(f"round {fit.position.round + 1} of at most {arguments.rounds}{loss}: {fit.steps} steps a round, steps done")

        where = arguments.engine, arguments.address
        fit = calibrate(name, output, state, arguments.n, arguments.seed, arguments.rounds, on_round, move, *where)
    rows = [
        (one.name, f"{one.start[0]:.4g}", f"{one.values(x)[0]:.4g}", ", ".join(map(_dotted, one.paths[:3])))
        for one, x in moved(fit)
        if abs(x) >= 0.05
    ]
    screen = console()
    screen.print(make_table("Figures that moved", ("parameter", "from", "to", "on the card"), rows))
    screen.print(f"{fit.position.round} rounds, loss {fit.position.loss:.1f}; wrote {output}", markup=False)
    _draw(output, arguments)


def _draw(name: str | Path, arguments: argparse.Namespace) -> None:
    """Draw and write a card's ensemble."""
    card = onco_gym.load_card(name)
    from onco_gym.trials.ensemble import MEMBERS, draw_ensemble, ensemble_file
    from onco_gym.trials.parameters import parameters

    with _bar("drawing the ensemble", len(parameters(card)) + MEMBERS) as (move, _):
        where = {"engine": arguments.engine, "address": arguments.address}
        drawn = draw_ensemble(card, max(100, arguments.n // 2), arguments.seed, on_step=move, **where)
    drawn.write(ensemble_file(name))
    text = f"{len(drawn.offsets)} sets of figures that fit as well: wrote {ensemble_file(name)}"
    console().print(text, markup=False)


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(map(str, path))


def _check(name: str, arguments: argparse.Namespace) -> None:
    card = onco_gym.load_card(name)
    if not card.arms:
        raise UsageError(f"{card.id} has no published arms to compare with")
    from onco_gym.trials.published import accuracy, as_rows, reproduce

    with _bar("compiling", len(card.arms)) as (move, say):

        def on_arm() -> None:
            say(f"{arguments.n} patients an arm")
            move()

        where = {"engine": arguments.engine, "address": arguments.address}
        rows = reproduce(card, arguments.n, arguments.seed, on_arm=on_arm, **where)
    screen = console()
    columns = ("trial", "arm", "response", "PFS", "OS", "grade 3+", "PFS HR", "landmarks")
    for use, title in (("fit", "Fitted arms"), ("check", "Check arms, never fitted")):
        chosen = [row for row in rows if row.arm.use == use]
        screen.print(make_table(f"{title}: simulated / published", columns, [_line(row) for row in chosen]))
    for use, title in (("fit", "Fitted arms"), ("check", "Check arms, never fitted")):
        figures = [
            (
                one.title,
                f"{one.value:.1%}",
                f"{'at most' if one.at_most else 'at least'} {one.target:.0%}",
                one.count,
                "yes" if one.reached else "NO",
            )
            for one in accuracy(rows, use)
            if one.count
        ]
        screen.print(make_table(title, ("figure", "found", "wanted", "over", "reached"), figures, ("found", "over")))
    if arguments.json:
        _write_json(arguments.json, {"version": onco_gym.__version__, "card": card.id, "arms": as_rows(rows)})
    if arguments.plot:
        from onco_gym.trials.plots import against_published, save

        save(against_published(rows, card.title), arguments.plot)
        print(f"wrote {arguments.plot}")


def _line(row: "Reproduction") -> tuple[str, ...]:
    arm, result = row.arm, row.result

    def pair(simulated: float, published: float | None, kind: str) -> str:
        if published is None:
            return ""
        return f"{format(simulated, kind) if simulated < 1e6 else 'not reached'} / {format(published, kind)}"

    marks = ", ".join(f"{name} {pair(simulated, published, '.0%')}" for name, published, simulated in row.landmarks())
    ratio = pair(row.pfs_hazard_ratio.value, arm.pfs_hazard_ratio, ".2f") if row.pfs_hazard_ratio else ""
    return (
        arm.trial,
        arm.protocol.split(">")[0].strip() + (f", after {arm.prior}" if arm.prior else ""),
        pair(result.response.value, arm.response, ".0%"),
        pair(result.progression_free.median().value, arm.pfs_months, ".1f"),
        pair(result.overall.median().value, arm.os_months, ".1f"),
        pair(result.grade3.value, arm.grade3, ".0%"),
        ratio,
        marks,
    )


# ------------------------------------------------------------------------------------------------ design


def design_command(arguments: argparse.Namespace) -> None:
    """Choose among protocols, find the sample size, and say what the answer hangs on."""
    if len(arguments.arm) < 2:
        raise UsageError("a design needs two --arm at least: candidates, and last the control")
    name = resolve(arguments.id)[1]
    card = onco_gym.load_card(name)
    from onco_gym.trials import Setting
    from onco_gym.trials.design import Candidate, PowerStudy, Sensitivity, optimise, schoenfeld_events

    *protocols, control = arguments.arm
    settings = [Setting(population, arguments.prior) for population in arguments.population or [""]]
    candidates = [Candidate(setting, protocol) for setting in settings for protocol in protocols]
    screen = console()
    with _bar("scoring candidates", None) as (move, _):
        ranked = optimise(card, candidates, control, arguments.n, arguments.seed, on_score=move)
    columns = ("population", "protocol", "QALY gained", "without grade 3+", "diversity", "least served", "patients", "dominated")
    table = [
        (
            one.candidate.setting.population or "everybody",
            one.candidate.protocol,
            f"{one.efficacy.value:+.2f} ({one.efficacy.low:+.2f} to {one.efficacy.high:+.2f})",
            f"{one.safety.value:.0%}",
            f"{one.diversity:.2f}",
            one.least_served,
            one.n,
            "yes" if one.dominated else "",
        )
        for one in ranked
    ]
    screen.print(make_table(f"Candidates against {control}, the best first", columns, table, ("patients",)))
    best = ranked[0].candidate
    content: dict[str, Any] = {"card": card.id, "control": control, "candidates": [_plain(one) for one in ranked]}
    with _bar("repeating trials", None) as (move, _):
        study = PowerStudy(
            card,
            best.setting,
            best.protocol,
            control,
            arguments.endpoint,
            arguments.accrual,
            arguments.follow_up,
            seed=arguments.seed,
        )
        found = study.sample_size(arguments.power, arguments.repeats, on_trial=move)
    screen.print(
        f"{best.protocol} against {control} in {best.setting.population or 'everybody'}: {found.n} patients per arm reach a "
        f"power of {found.power.value:.0%} ({found.power.low:.0%} to {found.power.high:.0%}) on {found.endpoint.upper()}, "
        f"{found.events:.0f} events, entry over {arguments.accrual:g} months and {arguments.follow_up:g} months more.",
        markup=False,
    )
    ratio = study.hazard_ratio
    formula = schoenfeld_events(ratio.value, arguments.power)
    if math.isfinite(formula):
        screen.print(
            f"Events for a power of {arguments.power:.0%}: {found.events:.0f} simulated, {formula:.0f} by Schoenfeld's formula "
            f"with a hazard ratio of {_ratio(ratio)}. This is the ratio within the trial's own follow-up; where hazards are not "
            "proportional, a longer trial has another.",
            markup=False,
        )
    content["sample_size"] = {
        "per_arm": found.n,
        "power": found.power.value,
        "endpoint": found.endpoint,
        "events": found.events,
        "schoenfeld_events": formula if math.isfinite(formula) else None,
        "hazard_ratio": {name: value if math.isfinite(value) else None for name, value in vars(ratio).items()},
    }
    if arguments.sensitivity:
        ensemble = _ensemble(name, card)
        if ensemble is None:
            raise UsageError(f"{card.id} has no ensemble that fits: run onco-gym calibrate {name} first")
        with _bar("varying figures", None) as (move, _):
            study_of = Sensitivity(card, best.setting, best.protocol, ensemble, arguments.sensitivity, seed=arguments.seed)
            effects = study_of.everything_at_once(arguments.samples, on_run=move)
        screen.print(_effects_table(arguments.sensitivity, study_of.base, effects))
        content["sensitivity"] = [
            {name: value if isinstance(value, str) or math.isfinite(value) else None for name, value in vars(effect).items()}
            for effect in effects
        ]
    if arguments.json:
        _write_json(arguments.json, content)


def _plain(one: "Score") -> dict[str, Any]:
    """A score in plain numbers."""
    return {
        "population": one.candidate.setting.population,
        "protocol": one.candidate.protocol,
        "patients": one.n,
        "qaly_gained": one.efficacy._asdict(),
        "without_grade3": one.safety._asdict(),
        "diversity": one.diversity,
        "least_served": one.least_served,
        "total": one.total,
        "dominated": one.dominated,
    }


def _effects_table(outcome: str, base: float, effects: "Sequence[Effect]") -> Any:
    rows = [(one.name, f"{one.low:.3g} to {one.high:.3g}", f"{one.first:.2f}", f"{one.total:.2f}") for one in effects]
    title = f"What {outcome} hangs on ({base:.3g} with the card's own figures)"
    return make_table(title, ("parameter", "moved by itself", "explains alone", "with interactions"), rows)
