"""The command line, ``onco-gym``. What is slow to import (JAX, pydantic) is imported by the commands that need it."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from onco_gym.cli import agents, dataset, environments, evaluation, trials, verification
from onco_gym.cli.common import UsageError, number, picture, target, weeks, whole
from onco_gym.cli.environments import SECTIONS
from onco_gym.foundation.workers import ENGINES
from onco_gym.interfaces.registry import NAMESPACE
from onco_gym.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 nobody reads the output, 2 the user's error, 130 interrupted.

    A command that is terminated cleans up as one that is interrupted, and exits with 143.
    """
    with _terminable():
        return _main(argv)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM, which would end the process on the spot, raise SystemExit."""
    plain = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    if plain:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        if plain:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _main(argv: Sequence[str] | None) -> int:
    try:
        try:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a sign shows "?" for it
            arguments = _parser().parse_args(argv)
            arguments.run(arguments)
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.split(".")[0] not in (NAMESPACE, "gymnasium"):
            raise  # neither the file system's, nor a CardError, CohortError, AgentError, UsageError, ...: a fault of ours
        message = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"onco-gym: {' '.join(message.split())}", file=sys.stderr)
        return 2
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser that shows an example, and whose errors main prints."""

    def __init__(self, example: str, **options: Any) -> None:
        epilog = f"example: onco-gym {example}\n\nResearch software, not for treating patients."
        super().__init__(epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("play NSCLC", prog="onco-gym", description="Simulated patients with cancer, treated by you or by an agent.")
    parser.add_argument("--version", action="version", version=f"onco-gym {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(run: Callable[[Any], None], about: str, example: str, subject: str = "") -> Callable[..., Any]:
        made = commands.add_parser(example.split()[0], help=about, description=about, example=example)
        made.set_defaults(run=run)
        if subject:
            made.add_argument("id", metavar=subject, help=f"{NAMESPACE}/NSCLC-v0, or NSCLC, or the path of a card (.toml)")
        return made.add_argument

    named = "random, guideline, clinician, a regimen's name (given every cycle), a file (.onnx, .zip) or module:object"
    count, seed = partial(whole, 1, 1_000_000), partial(whole, 0, 2**64 - 1)
    command(environments.list_command, "List the environments.", "list")
    add = command(environments.show_command, "Show what a card says of its disease.", "show nsclc --section guideline", "CARD")
    add("--section", choices=SECTIONS, help="show this table only")
    add("--citation", action="store_true", help="print the card's sources as BibTeX instead")
    add = command(
        environments.play_command,
        "Treat a patient yourself, or watch an agent do it.",
        "play NSCLC --seed 7 --picture journey.png",
        "ID",
    )
    add("--seed", type=seed, help="same seed, same patient; by default any")
    add("--agent", metavar="NAME", help=f"{named}; without it you choose")
    add("--quiet", action="store_true", help="with --agent: print the final chart only")
    add("--picture", type=target, metavar="FILE.png", help="write a picture of the journey")
    example = "rollout NSCLC --agent guideline -n 1000 --json figures.json"
    add = command(environments.rollout_command, "Run an agent on many patients and say how they fared.", example, "ID")
    add("--agent", metavar="NAME", default="guideline", help=f"{named}; by default guideline")
    add("-n", type=count, default=1000, metavar="N", help="patients; by default 1000")
    add("--seed", type=seed, default=0, help="same seed, same patients, same chance; by default 0")
    add("--json", type=target, metavar="FILE", help="also write all figures there")
    add("--cohort", metavar="FILE", help="draw the patients from this Parquet file")
    example = "evaluate clinician --env NSCLC --episodes 2000 --html report.html"
    about = "Evaluate an agent beside the random and the guideline agent, with intervals."
    add = command(evaluation.evaluate_command, about, example)
    add("agent", metavar="AGENT", help="random, guideline, clinician, a regimen's name, or an agent's file")
    add("--env", required=True, metavar="ID", help=f"{NAMESPACE}/NSCLC-v0, or NSCLC, or the path of a card (.toml)")
    add("--episodes", type=count, default=1000, metavar="N", help="patients; by default 1000")
    add("--seed", type=seed, default=0, help="same seed, same patients, same chance; by default 0")
    add("--compare", nargs="+", action="extend", default=[], metavar="AGENT", help="evaluate these too, on the same patients")
    add("--no-fairness", action="store_true", help="do not ask about patients' twins, which takes longer than all the rest")
    add("--json", type=target, metavar="FILE", help="also write all figures there")
    add("--html", type=target, metavar="FILE.html", help="also write a page with pictures there")
    _where(add)
    about = "Measure the planner, which is 100 of the score, and keep the result beside the card. Takes minutes."
    add = command(evaluation.yardstick_command, about, "yardstick nsclc", "CARD")
    add("--episodes", type=count, default=1536, metavar="N", help="patients; by default 1536")
    add("--seed", type=seed, default=10_000_000, help="of the first patient; by default 10000000")
    add("--network", action="store_true", help="instead, train the network that tells verification which regimens to try")
    example = "record clinician --env NSCLC --episodes 200 --out episodes.json"
    add = command(verification.record_command, "Write down what an agent decides and what is seen, episode by episode.", example)
    add("agent", metavar="AGENT", help="as for evaluate")
    add("--env", required=True, metavar="ID", help=f"{NAMESPACE}/NSCLC-v0, or NSCLC, or the path of a card (.toml)")
    add("--episodes", type=count, default=200, metavar="N", help="patients; by default 200")
    add("--seed", type=seed, default=0, help="same seed, same patients, same chance; by default 0")
    add("--out", type=target, required=True, metavar="FILE.json", help="where to write them")
    about = "Score episodes against the decisions that would have been best, and say why."
    add = command(verification.verify_command, about, "verify episodes.json --html report.html")
    add("episodes", metavar="EPISODES", help="a file that onco-gym record wrote")
    add("--agent", metavar="AGENT", help="let this agent treat the patients once more, and count what it decides again")
    add("--card", metavar="CARD", help="the card they belong to, where it is a file of your own; by default the one they name")
    add("--seed", type=partial(whole, 0, 2**31 - 1), default=0, help="of the draws of chance; by default 0")
    add("--json", type=target, metavar="FILE", help="also write everything there")
    add("--html", type=target, metavar="FILE.html", help="also write a page with pictures there")
    example = "cohort nsclc -n 500 --where 'EGFR_L858R and age > 70' --do insurance=medicaid --out cohort.parquet"
    add = command(environments.cohort_command, "Write a cohort of patients to a Parquet file.", example, "CARD")
    add("-n", type=count, default=1000, metavar="N", help="patients; by default 1000")
    add("--where", metavar="EXPR", help="only patients for whom this holds")
    add("--do", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="set variables; what depends on them follows")
    add("--seed", type=seed, default=0, help="same seed, same cohort; by default 0")
    add("--out", type=target, required=True, metavar="FILE.parquet", help="where to write it")
    example = "dataset NSCLC --agent clinician --episodes 5000 --name oncology/nsclc/clinician-v0"
    add = command(dataset.dataset_command, "Write an agent's episodes as a Minari dataset, for offline learning.", example, "ID")
    add("--agent", metavar="NAME", default="clinician", help="as for rollout; by default clinician")
    add("--episodes", type=count, default=5000, metavar="N", help="by default 5000")
    add("--seed", type=seed, default=0, help="same seed, same dataset; by default 0")
    add("--name", metavar="NAME", help="of the dataset; by default oncology/ENVIRONMENT/AGENT-v0")
    add("--root", metavar="DIR", help="folder of datasets; by default MINARI_DATASETS_PATH or ~/.minari/datasets")
    add("--overwrite", action="store_true", help="replace a dataset of that name")
    _where(add)
    named = "regimens in order, as in 'gefitinib_erlotinib > osimertinib(31%%)'; the last arm is the one to compare with"
    months = partial(number, 1, 600)
    example = "trial nsclc --population 'EGFR_L858R and ecog <= 1' --arm osimertinib --arm gefitinib_erlotinib --plot km.png"
    add = command(trials.trial_command, "Simulate a trial.", example, "CARD")
    add("--population", default="", metavar="EXPR", help="who is in it, as in 'EGFR_L858R and ecog <= 1'; by default everybody")
    add("--prior", default="", metavar="REGIMENS", help="what failed before, as in 'platinum_pemetrexed > docetaxel'")
    add("--arm", action="append", required=True, metavar="REGIMENS", help=named)
    add("-n", type=partial(whole, 2, 100_000), default=1000, metavar="N", help="patients per arm; by default 1000")
    add("--seed", type=seed, default=0, help="same seed, same trial; by default 0")
    add("--months", type=months, default=60.0, help="follow-up; by default 60")
    add(
        "--scan-weeks",
        type=weeks,
        default=(),
        metavar="WEEKS",
        help="between scans, the last repeated: 9, or 6,6,9; by default the card's",
    )
    add("--independent", action="store_true", help="patients of its own for every arm; by default arms share patients and chance")
    add("--no-ensemble", action="store_true", help="intervals for chance only, not for uncertain figures of the card")
    add("--json", type=target, metavar="FILE", help="also write all figures and curves there")
    add("--plot", type=picture, metavar="FILE.png", help="also draw Kaplan-Meier curves")
    about = "Fit a card's figures to its published arms and write them back; with --check only compare."
    add = command(trials.calibrate_command, about, "calibrate nsclc --check", "CARD")
    add("--check", action="store_true", help="fit nothing: simulate every published arm and show it beside what was published")
    add(
        "-n",
        type=partial(whole, 50, 100_000),
        default=1000,
        metavar="N",
        help="patients per arm (fit: screened); by default 1000",
    )
    add("--seed", type=partial(whole, 0, 2**32 - 1), default=1, help="same card, same seed, same result; by default 1")
    add("--ensemble", action="store_true", help="fit nothing: draw the ensemble of a fitted card anew")
    add("--rounds", type=partial(whole, 1, 1000), default=12, help="at most so many; by default 12. An interrupted fit goes on")
    add("--output", type=target, metavar="FILE.toml", help="where the fitted card goes; by default the card itself")
    add("--json", type=target, metavar="FILE", help="with --check: also write all figures there")
    add("--plot", type=picture, metavar="FILE.png", help="with --check: also draw simulated against published")
    _where(add)
    example = "design nsclc --population 'EGFR_L858R and ecog <= 1' --arm osimertinib --arm gefitinib_erlotinib --power 0.9"
    add = command(
        trials.design_command, "Choose among protocols, find the sample size, say what the answer hangs on.", example, "CARD"
    )
    add("--population", action="append", metavar="EXPR", help="who could be in it; several are tried each; by default everybody")
    add("--prior", default="", metavar="REGIMENS", help="what failed before")
    add("--arm", action="append", required=True, metavar="REGIMENS", help="candidates, and last the control")
    add("-n", type=partial(whole, 100, 100_000), default=1600, metavar="N", help="patients for the last round; by default 1600")
    add("--seed", type=seed, default=0, help="same seed, same answer; by default 0")
    add("--endpoint", choices=("pfs", "os"), default="pfs", help="what the trial tests; by default pfs")
    add("--power", type=partial(number, 0.05, 0.99), default=0.8, help="wanted; by default 0.8")
    add("--accrual", type=months, default=18.0, metavar="MONTHS", help="over which patients enter; by default 18")
    add("--follow-up", type=months, default=12.0, metavar="MONTHS", help="after the last entered; by default 12")
    add("--repeats", type=partial(whole, 50, 10_000), default=300, help="trials simulated for each size; by default 300")
    outcomes = ("pfs_months", "os_months", "response", "grade3", "qalys")
    add("--sensitivity", choices=outcomes, metavar="OUTCOME", help=f"on which figures this hangs: {', '.join(outcomes)}")
    add("--samples", type=int, choices=(8, 16, 32, 64, 128, 256), default=32, help="base samples for it; by default 32")
    add("--json", type=target, metavar="FILE", help="also write all figures there")
    add = command(agents.train_command, "Train a policy by PPO, in JAX.", "train NSCLC --out policy.onnx", "ID")
    add("--steps", type=partial(whole, 1, 10**12), default=10_000_000, help="environment steps; by default 10000000")
    add("--seed", type=partial(whole, 0, 2**31 - 1), default=0, help="same seed, same policy; by default 0")
    add("--imitate", metavar="AGENT", help="learn to decide as this agent first, and go on from there; such as guideline")
    add("--out", type=target, required=True, metavar="POLICY.onnx", help="where to write the policy")
    about = "Write a model of Stable-Baselines3 as an ONNX policy file; the model is unpickled, so use one you trust."
    add = command(agents.export_command, about, "export model.zip policy.onnx --env NSCLC")
    add("model", metavar="MODEL.zip", help="the model, as its save() wrote it")
    add("out", type=target, metavar="POLICY.onnx", help="where to write the policy")
    add("--env", required=True, metavar="ID", help=f"the environment that it is for: {NAMESPACE}/NSCLC-v0, or NSCLC")
    add("--vecnormalize", metavar="FILE", help="statistics of VecNormalize; by default vecnormalize.pkl beside the model")
    return parser


def _where(add: Callable[..., Any]) -> None:
    """The options of commands whose work can be spread over processes."""
    add("--engine", choices=ENGINES, default="local", help="where the work is done: here, or by Ray on all cores or a cluster")
    add("--address", metavar="HOST:PORT", help="with --engine ray: a cluster that runs already; by default one is started")
