import json
import os
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # some tests import onnxruntime before onco_gym does
# Most of the suite's time is compiling: what one process has compiled, the others and later runs need not.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")

import jax
import numpy as np
import pytest
import tomlkit
from hypothesis import strategies as st

import onco_gym

# Two workers share two cores: compiling one function on several threads only costs time.
os.environ["XLA_FLAGS"] += " --xla_cpu_parallel_codegen_split_count=1"

from onco_gym.cards import card_files, load_card
from onco_gym.cli import main
from onco_gym.interfaces.engine import make_engine

ROOT = Path(__file__).parents[1]
IDS = onco_gym.registered_ids()
# Every disease in its plain form and every kind of one disease; the others take long to compile.
EVERY = [pytest.param(env_id, marks=() if "NSCLC" in env_id or env_id.count("-") == 1 else pytest.mark.slow) for env_id in IDS]
CARDS = ("nsclc", *(name for name in card_files() if name != "nsclc"))
OTHERS_SLOW = [CARDS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in CARDS[1:])]
"""For what takes long on every card."""


LONGEST = ["verification", "conformance", "trials", "simulator", "rewards", "dosing", "workflow", "scripts", "calibration"]
"""Files that take long begin first, so that both workers end at the same time."""


def pytest_collection_modifyitems(items):
    rank = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def open_keys(n):
    """(2, n) keys of chance, each another one."""
    return np.stack([np.arange(n, dtype=np.uint32), np.zeros(n, np.uint32)])


MAPPINGS = Path("/proc/self/maps")


@pytest.fixture(autouse=True, scope="module")
def few_mappings():
    """Every compiled function takes memory mappings, of which Linux gives a process 65,530; beyond that XLA crashes."""
    yield
    if MAPPINGS.exists() and len(MAPPINGS.read_bytes().splitlines()) > 40_000:
        jax.clear_caches()


@pytest.fixture(params=CARDS)
def card(request):
    return load_card(request.param)


@pytest.fixture(params=CARDS)
def engine(request):
    return make_engine(request.param)


@pytest.fixture
def nsclc():
    return load_card("nsclc")


def refuses(error, said, call, /, *arguments, **options):
    """The call raises this error, with these words in it."""
    with pytest.raises(error, match=said):
        call(*arguments, **options)


def interval(values):
    """The 95% interval of their mean."""
    half = 1.96 * values.std() / np.sqrt(len(values))
    return values.mean() - half, values.mean() + half


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs a command as a user would. How long compiling takes does not change what is printed."""
    monkeypatch.setattr("onco_gym.cli.screen.FIRST_LINE", 3600.0)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def printed(command):
    """Runs a command that must succeed, with nothing to note; what it prints."""

    def run(*arguments):
        code, out, err = command(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def refused(command, monkeypatch, tmp_path):
    """Runs a command that must be refused with one line that holds ``named``, and must write nothing."""

    def run(named, *arguments):
        empty = tmp_path / "empty"
        empty.mkdir(exist_ok=True)
        monkeypatch.chdir(empty)
        code, _, err = command(*arguments)
        assert code == 2
        assert err.startswith("onco-gym: ")
        assert err.count("\n") == 1
        assert named in err
        assert not list(empty.iterdir())

    return run


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def edited_anywhere(draw, text):
    """What a file of JSON holds, with anything anywhere in it."""
    content = json.loads(text)
    place, key = content, draw(st.sampled_from(sorted(content)))
    while isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
        place = place[key]
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = draw(ANYTHING)
    return content


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of datasets, which are made in chunks that take little time."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setattr("onco_gym.evaluation.dataset.CHUNK", 32)
    return tmp_path


def with_trials(path, uses):
    """The path of the colorectal card with these trials only, each for a ``use``."""
    document = tomlkit.parse(card_files()["colorectal"].read_text())
    keep = [arm for arm in document["arms"] if arm["trial"] in uses]
    document["arms"] = tomlkit.aot()
    for arm in keep:
        arm["use"] = uses[arm["trial"]]
        document["arms"].append(arm)
    path.write_text(tomlkit.dumps(document))
    load_card(path)
    return path


@pytest.fixture
def few_trials(tmp_path):
    """A card with few trials, so that fitting it is quick: colorectal's MSI-high trials to fit, one to check."""
    return with_trials(tmp_path / "small.toml", {"KEYNOTE-177": "fit", "RECOURSE": "check"})


@pytest.fixture
def two_trials(tmp_path):
    """The same with two trials to fit, which share drugs."""
    return with_trials(tmp_path / "two.toml", {"RAISE": "fit", "VELOUR": "fit"})
