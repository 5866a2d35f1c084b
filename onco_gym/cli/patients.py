"""Commands about patients: cohort."""

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import onco_gym
from onco_gym.cli.parser import Commands, UsageError
from onco_gym.cli.screen import progress_bar
from onco_gym.interfaces.registry import find_environment

if TYPE_CHECKING:
    from onco_gym.cards import Card


def register(commands: Commands) -> None:
    """Add the commands."""
    example = "cohort NSCLC -n 500 --where 'EGFR_L858R and age > 70' --do insurance=medicaid --out cohort.parquet"
    parser = commands.add(cohort_command, "Write a cohort of patients to a Parquet file.", example)
    parser.add_environment()
    parser.add_patients(1000, high=1_000_000)
    parser.add_seed("the same cohort")
    parser.add_argument("--where", metavar="EXPR", help="keep only patients for whom this holds")
    text = "set variables; what depends on them follows"
    parser.add_argument("--do", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=text)
    parser.add_out("FILE.parquet", "where to write the cohort")
    parser.add_quiet()


def cohort_command(arguments: argparse.Namespace) -> None:
    """Write a cohort."""
    card = onco_gym.load_card(find_environment(arguments.id).card)
    with progress_bar("drawing patients", arguments.quiet):
        generator = onco_gym.CausalGenerator(card)
        cohort = generator.sample(arguments.n, arguments.seed, arguments.where, _interventions(card, arguments.do))
        onco_gym.write_cohort(arguments.out, cohort, card)
    print(f"wrote {len(cohort)} patients of {card.id} to {arguments.out}; {cohort.drawn} were drawn to find them")


def _interventions(card: "Card", texts: list[str]) -> dict[str, Any]:
    """Values by variable: names of levels, true or false, or numbers."""
    from onco_gym.cards.checks import patient_vocabulary

    levels, do = patient_vocabulary(card), dict[str, Any]()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--do {text!r}: expected NAME=VALUE")
        do[name] = value
        if levels.get(name) is None:  # true, false or a number
            with suppress(ValueError):
                do[name] = value.lower() == "true" if value.lower() in ("true", "false") else float(value)
    return do
