"""Commands about trials: trial, calibrate, design."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onco_gym
from onco_gym.cli.arguments import number, weeks, whole
from onco_gym.cli.parser import Commands, Parser, UsageError, workers_of
from onco_gym.cli.screen import console, make_table, note, progress_bar, write_figures, wrote
from onco_gym.interfaces.registry import find_environment

if TYPE_CHECKING:
    from onco_gym.cards import Card
    from onco_gym.cards.schema import Arm
    from onco_gym.trials.design import Candidate, Score
    from onco_gym.trials.ensemble import Ensemble
    from onco_gym.trials.published import Reproduction
    from onco_gym.trials.statistics import Interval
    from onco_gym.trials.trial import TrialResult

OUTCOMES = ("pfs_months", "os_months", "response", "grade3", "qalys")
"""Outcomes for which a design can show the sensitivity."""
MONTHS = number(1, 600)


def register(commands: Commands) -> None:
    """Add the commands."""
    _register_trial(commands)
    _register_calibrate(commands)
    _register_design(commands)


def _register_trial(commands: Commands) -> None:
    example = "trial NSCLC --population 'EGFR_L858R and ecog <= 1' --arm osimertinib --arm gefitinib_erlotinib --plot km.png"
    parser = commands.add(trial_command, "Simulate a trial.", example)
    parser.add_environment()
    text = "who is in the trial, such as 'EGFR_L858R and ecog <= 1'; by default everybody"
    parser.add_argument("--population", default="", metavar="EXPR", help=text)
    text = "regimens in order, such as 'gefitinib_erlotinib > osimertinib(31%%)'; the other arms are compared with the last"
    _add_regimens(parser, text)
    parser.add_patients(1000, low=2, about="patients per arm")
    parser.add_seed("the same trial")
    parser.add_argument("--months", type=MONTHS, default=60.0, help="follow-up; by default 60")
    text = "weeks between scans, the last repeated: 9, or 6,6,9; by default as on the card"
    parser.add_argument("--scan-weeks", type=weeks, default=(), metavar="WEEKS", help=text)
    text = "give every arm patients of its own; by default arms share patients and chance"
    parser.add_argument("--independent", action="store_true", help=text)
    text = "let the intervals include chance only, not the uncertain figures of the card"
    parser.add_argument("--no-ensemble", action="store_true", help=text)
    parser.add_json("also write all figures and curves to this file")
    parser.add_plot("also draw Kaplan-Meier curves")
    parser.add_quiet()


def _register_calibrate(commands: Commands) -> None:
    about = "Fit the figures of a card to its published arms and write them back, or compare them with --check."
    parser = commands.add(calibrate_command, about, "calibrate NSCLC --check")
    parser.add_environment()
    text = "fit nothing: simulate every published arm and show it beside what was published"
    parser.add_argument("--check", action="store_true", help=text)
    text = "fit nothing: draw the ensemble of a fitted card again"
    parser.add_argument("--ensemble", action="store_true", help=text)
    text = "write no card: leave out one fitted trial after the other, and foretell it from the others"
    parser.add_argument("--crossval", action="store_true", help=text)
    parser.add_patients(1000, low=50, about="patients per arm, or patients screened for an arm in a fit")
    parser.add_seed("the same result for the same card", default=1, high=2**32 - 1)
    text = "most rounds of a fit; by default 12. A fit that was interrupted goes on where it stopped"
    parser.add_argument("--rounds", type=whole(1, 1000), default=12, metavar="N", help=text)
    parser.add_out("FILE.toml", "where to write the fitted card; by default over the card itself", ".toml", required=False)
    parser.add_json("with --check or --crossval: also write all figures to this file")
    parser.add_plot("with --check: also draw what was simulated against what was published")
    parser.add_workers()
    parser.add_quiet()


def _register_design(commands: Commands) -> None:
    example = "design NSCLC --population 'EGFR_L858R and ecog <= 1' --arm osimertinib --arm gefitinib_erlotinib --power 0.9"
    about = "Choose among protocols, find the sample size, and show which figures the answer depends on."
    parser = commands.add(design_command, about, example)
    parser.add_environment()
    text = "who could be in the trial; each of several populations is tried; by default everybody"
    parser.add_argument("--population", action="append", metavar="EXPR", help=text)
    _add_regimens(parser, "a candidate, such as 'gefitinib_erlotinib > osimertinib'; the last arm is the control")
    parser.add_patients(1600, low=100, about="patients in the last round")
    parser.add_seed("the same answer")
    parser.add_argument("--endpoint", choices=("pfs", "os"), default="pfs", help="what the trial tests; by default pfs")
    parser.add_argument("--power", type=number(0.05, 0.99), default=0.8, help="the power wanted; by default 0.8")
    text = "months over which patients enter; by default 18"
    parser.add_argument("--accrual", type=MONTHS, default=18.0, metavar="MONTHS", help=text)
    text = "months after the last patient has entered; by default 12"
    parser.add_argument("--follow-up", type=MONTHS, default=12.0, metavar="MONTHS", help=text)
    text = "trials simulated for each size; by default 300"
    parser.add_argument("--repeats", type=whole(50, 10_000), default=300, metavar="N", help=text)
    text = f"show which uncertain figures this depends on: {', '.join(OUTCOMES)}"
    parser.add_argument("--sensitivity", choices=OUTCOMES, metavar="OUTCOME", help=text)
    text = "with --sensitivity: base samples; by default 32"
    parser.add_argument("--samples", type=int, choices=(8, 16, 32, 64, 128, 256), default=32, metavar="N", help=text)
    parser.add_json()
    parser.add_quiet()


def _add_regimens(parser: Parser, arms: str) -> None:
    """Add the options that name regimens."""
    text = "regimens that failed before, such as 'platinum_pemetrexed > docetaxel'"
    parser.add_argument("--prior", default="", metavar="REGIMENS", help=text)
    parser.add_argument("--arm", action="append", required=True, metavar="REGIMENS", help=arms)


def _ensemble(name: str, card: "Card") -> "Ensemble | None":
    """The ensemble of the card, or None with a note if it has none that fits."""
    from onco_gym.trials.ensemble import StaleError, ensemble_file, load_ensemble

    try:
        found = load_ensemble(card, ensemble_file(name))
    except StaleError as error:
        note(str(error))
        return None
    if found is None:
        note(f"{card.id} has no ensemble: intervals leave out the uncertainty of its figures (onco-gym calibrate draws one)")
    return found


def _shown(estimate: "Interval", bounds: tuple[float, float], form: str) -> str:
    texts = [format(value, form) if value < 1e6 else "not reached" for value in (estimate.value, *bounds)]
    return "{} ({} to {})".format(*texts)


# ------------------------------------------------------------------------------------------------ trial


def trial_command(arguments: argparse.Namespace) -> None:
    """Simulate a trial."""
    name = find_environment(arguments.id).card
    card = onco_gym.load_card(name)
    from onco_gym.trials import as_json

    ensemble = None if arguments.no_ensemble else _ensemble(name, card)
    members = ensemble.members(card) if ensemble else []
    setting = onco_gym.Setting(arguments.population, arguments.prior, arguments.scan_weeks)
    asked = {name: getattr(arguments, name) for name in ("n", "seed", "months", "independent")}
    with progress_bar(quiet=arguments.quiet) as progress:
        result = onco_gym.run_trial(card, setting, arguments.arm, **asked, ensemble=members, progress=progress)
    before = f", after {setting.prior}" if setting.prior else ""
    title = f"{card.title}: {setting.population or 'everybody'}{before}"
    _print_trial(title, result)
    write_figures(arguments.json, {"version": onco_gym.__version__, **as_json(result)})
    if arguments.plot:
        from onco_gym.trials.plots import kaplan_meier, save

        save(kaplan_meier(result, title), arguments.plot)
        wrote(arguments.plot)


def _print_trial(title: str, result: "TrialResult") -> None:
    columns = ("PFS, months", "OS, months", "response", "disease control", "grade 3+", "stopped for toxicity", "QALY")
    forms = (".1f", ".1f", ".0%", ".0%", ".0%", ".0%", ".2f")
    rows = []
    for arm, wider in zip(result.arms, result.uncertainty, strict=True):
        found = zip(arm.estimates().items(), forms, strict=True)
        rows.append((arm.name, *(_shown(one, wider.get(name, one[1:]), form) for (name, one), form in found)))
    screen = console()
    about = f"{title}; {result.n} patients per arm, {result.months:g} months"
    screen.print(make_table(about, ("arm", *columns), rows))
    if len(result.arms) > 1:
        pairs = zip(result.arms, result.hazard_ratios("pfs"), result.hazard_ratios("os"), strict=False)
        ratios = [(arm.name, f"{pfs:.2f}", f"{overall:.2f}") for arm, pfs, overall in pairs]
        about = f"Hazard ratios against {result.arms[-1].name}"
        screen.print(make_table(about, ("arm", "progression or death", "death"), ratios))
    screen.print(f"95% intervals include {result.included}. Simulated patients: research software, not for treating patients.")


# ------------------------------------------------------------------------------------------------ calibrate


def calibrate_command(arguments: argparse.Namespace) -> None:
    """Fit a card to its published arms, or show how well it reproduces them."""
    name, where = find_environment(arguments.id).card, workers_of(arguments)
    if arguments.check + arguments.ensemble + arguments.crossval > 1:
        raise UsageError("--check, --ensemble and --crossval cannot be combined")
    if arguments.out and (arguments.check or arguments.crossval):
        raise UsageError("--out cannot be combined with --check or --crossval, which write no card")
    if arguments.json and not (arguments.check or arguments.crossval):
        raise UsageError("--json needs --check or --crossval")
    if arguments.plot and not arguments.check:
        raise UsageError("--plot needs --check")
    if arguments.check:
        _check(name, arguments)
        return
    if arguments.crossval:
        _cross_validate(name, arguments)
        return
    if arguments.ensemble:
        _draw(name, arguments)
        return
    from onco_gym.cards.folder import card_files
    from onco_gym.trials.calibration import calibrate, moved

    output = arguments.out or card_files().get(name, Path(name))
    state = output.with_name(f"{output.stem}.calibration.json")
    with progress_bar(quiet=arguments.quiet) as progress:
        fit = calibrate(name, output, state, arguments.n, arguments.seed, arguments.rounds, progress=progress, **where)
    rows = []
    for one, x in moved(fit):
        if abs(x) >= 0.05:
            places = ", ".join(".".join(map(str, path)) for path in one.paths[:3])
            rows.append((one.name, f"{one.start[0]:.4g}", f"{one.values(x)[0]:.4g}", places))
    console().print(make_table("Figures that moved", ("parameter", "from", "to", "on the card"), rows))
    effects = [(trial, f"{growth:.2f}", f"{hazard:.2f}") for trial, (growth, hazard) in fit.effects().items()]
    about = "What differs between trials, as factors; the card has none of it"
    console().print(make_table(about, ("trial", "growth", "hazard of death"), effects))
    print(f"{fit.position.round} rounds, loss {fit.position.loss:.1f}; wrote {output}")
    _draw(output, arguments)


def _draw(name: str | Path, arguments: argparse.Namespace) -> None:
    """Draw and write a card's ensemble."""
    card = onco_gym.load_card(name)
    from onco_gym.trials.ensemble import draw_ensemble, ensemble_file

    with progress_bar(quiet=arguments.quiet) as progress:
        patients = max(100, arguments.n // 2)
        drawn = draw_ensemble(card, patients, arguments.seed, progress=progress, **workers_of(arguments))
    drawn.write(ensemble_file(name))
    print(f"{len(drawn.offsets)} sets of figures fit as well: wrote {ensemble_file(name)}")


def _check(name: str, arguments: argparse.Namespace) -> None:
    card = onco_gym.load_card(name)
    if not card.arms:
        raise UsageError(f"{card.id} has no published arms to compare with")
    from onco_gym.trials.published import as_rows, reproduce

    with progress_bar(quiet=arguments.quiet) as progress:
        rows = reproduce(card, arguments.n, arguments.seed, progress=progress, **workers_of(arguments))
    _print_check(rows)
    write_figures(arguments.json, {"version": onco_gym.__version__, "card": card.id, "arms": as_rows(rows)})
    if arguments.plot:
        from onco_gym.trials.plots import against_published, save

        save(against_published(rows, card.title), arguments.plot)
        wrote(arguments.plot)


def _cross_validate(name: str, arguments: argparse.Namespace) -> None:
    """Foretell every fitted trial of a card from the others."""
    card = onco_gym.load_card(name)
    from onco_gym.cards.folder import card_files
    from onco_gym.trials.crossval import cross_validate
    from onco_gym.trials.published import as_rows

    path = card_files().get(name, Path(name))
    state = path.with_name(f"{path.stem}.crossval.json")
    with progress_bar(quiet=arguments.quiet) as progress:
        asked = {"patients": arguments.n, "seed": arguments.seed, "progress": progress}
        found = cross_validate(card, state, **asked, **workers_of(arguments))
    rows = [row for one in found for row in one.rows]
    inside = [hit for one in found for hit in one.medians]
    _print_arms(rows, "Trials foretold from the others")
    _print_accuracy(rows, "foretold", "Trials foretold from the others")
    if inside:
        share = sum(inside) / len(inside)
        print(f"90% predictions contain {share:.0%} of {len(inside)} published medians.")
    unknown = sum(one.unknown for one in found)
    if unknown:
        print(f"{unknown} other arms cannot be foretold: no other fitted trial has their drugs.")
    content = {"version": onco_gym.__version__, "card": card.id, "arms": as_rows(rows), "medians_inside": inside}
    write_figures(arguments.json, content)


def _print_check(rows: "Sequence[Reproduction]") -> None:
    titles = {"fit": "Fitted arms", "check": "Check arms, never fitted"}
    for use, title in titles.items():
        _print_arms([row for row in rows if row.arm.use == use], title)
    for use, title in titles.items():
        _print_accuracy(rows, use, title)


def _print_arms(rows: "Sequence[Reproduction]", title: str) -> None:
    columns = ("trial", "arm", "response", "PFS", "OS", "grade 3+", "PFS HR", "landmarks")
    lines = [(row.arm.trial, _short(row.arm), *row.texts()) for row in rows]
    console().print(make_table(f"{title}: simulated / published", columns, lines))


def _print_accuracy(rows: "Sequence[Reproduction]", use: str, title: str) -> None:
    from onco_gym.trials.published import accuracy

    found = [one for one in accuracy(rows, use) if one.count]
    figures = [(one.title, f"{one.value:.1%}", one.wanted, one.count, "yes" if one.reached else "NO") for one in found]
    console().print(make_table(title, ("figure", "found", "wanted", "over", "reached"), figures, ("found", "over")))


def _short(arm: "Arm") -> str:
    """An arm's first regimen, and what was given before the trial."""
    return arm.protocol.split(">")[0].strip() + (f", after {arm.prior}" if arm.prior else "")


# ------------------------------------------------------------------------------------------------ design


def design_command(arguments: argparse.Namespace) -> None:
    """Choose among protocols, find the sample size, and show which figures the answer depends on."""
    if len(arguments.arm) < 2:
        raise UsageError("a design needs at least two --arm: candidates, and the control as the last")
    name = find_environment(arguments.id).card
    card = onco_gym.load_card(name)
    from onco_gym.trials.design import Candidate, optimise

    *protocols, control = arguments.arm
    settings = [onco_gym.Setting(population, arguments.prior) for population in arguments.population or [""]]
    candidates = [Candidate(setting, protocol) for setting in settings for protocol in protocols]
    with progress_bar(quiet=arguments.quiet) as progress:
        ranked = optimise(card, candidates, control, arguments.n, arguments.seed, progress=progress)
    console().print(_candidates_table(control, ranked))
    best = ranked[0].candidate
    content: dict[str, Any] = {"card": card.id, "control": control, "candidates": [_plain(one) for one in ranked]}
    content["sample_size"] = _sample_size(card, best, control, arguments)
    if arguments.sensitivity:
        ensemble = _ensemble(name, card)
        if ensemble is None:
            raise UsageError(f"{card.id} has no ensemble that fits: run onco-gym calibrate {arguments.id} first")
        content["sensitivity"] = _sensitivity(card, best, ensemble, arguments)
    write_figures(arguments.json, content)


def _candidates_table(control: str, ranked: "Sequence[Score]") -> Any:
    columns = ("population", "protocol", "QALY gained", "without grade 3+", "diversity", "least served", "patients", "dominated")
    table = [
        (
            one.candidate.setting.population or "everybody",
            one.candidate.protocol,
            f"{one.efficacy:+.2f}",
            f"{one.safety.value:.0%}",
            f"{one.diversity:.2f}",
            one.least_served,
            one.n,
            "yes" if one.dominated else "",
        )
        for one in ranked
    ]
    return make_table(f"Candidates against {control}, the best first", columns, table, ("patients",))


def _sample_size(card: "Card", best: "Candidate", control: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Find and print the sample size. Returns it in plain numbers."""
    from onco_gym.trials.design import PowerStudy, schoenfeld_events

    asked = {name: getattr(arguments, name) for name in ("endpoint", "accrual", "follow_up", "seed")}
    with progress_bar("simulating arms", arguments.quiet) as progress:
        study = PowerStudy(card, best.setting, best.protocol, control, **asked)
        found = study.sample_size(arguments.power, arguments.repeats, progress=progress)
    console().print(
        f"{best.protocol} against {control} in {best.setting.population or 'everybody'}: {found.n} patients per arm reach a "
        f"power of {found.power:.0%} on {found.endpoint.upper()} with {found.events:.0f} events, {arguments.accrual:g} months "
        f"of accrual and {arguments.follow_up:g} of follow-up.",
        markup=False,
    )
    ratio = study.hazard_ratio
    formula = schoenfeld_events(ratio.value, arguments.power)
    if math.isfinite(formula):
        console().print(
            f"Events for a power of {arguments.power:.0%}: {found.events:.0f} simulated, {formula:.0f} by Schoenfeld's formula "
            f"with a hazard ratio of {ratio:.2f}. This is the ratio within the trial's own follow-up. If hazards are not "
            "proportional, a longer trial has another ratio.",
            markup=False,
        )
    return {
        "per_arm": found.n,
        "power": found.power.value,
        "endpoint": found.endpoint,
        "events": found.events,
        "schoenfeld_events": formula if math.isfinite(formula) else None,
        "hazard_ratio": ratio.to_json(),
    }


def _sensitivity(card: "Card", best: "Candidate", ensemble: "Ensemble", arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Find and print which uncertain figures the result depends on. Returns them in plain values."""
    from onco_gym.trials.design import Sensitivity

    with progress_bar("simulating the arm", arguments.quiet) as progress:
        study = Sensitivity(card, best.setting, best.protocol, ensemble, arguments.sensitivity, seed=arguments.seed)
        effects = study.everything_at_once(arguments.samples, progress=progress)
    rows = [(one.name, f"{one.low:.3g} to {one.high:.3g}", f"{one.first:.2f}", f"{one.total:.2f}") for one in effects]
    title = f"What {arguments.sensitivity} depends on ({study.base:.3g} with the figures of the card)"
    console().print(make_table(title, ("parameter", "moved by itself", "explains alone", "with interactions"), rows))
    return [
        {name: value if isinstance(value, str) or math.isfinite(value) else None for name, value in vars(effect).items()}
        for effect in effects
    ]


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
