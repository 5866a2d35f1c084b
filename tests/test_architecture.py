"""Data flows one way: a room imports only from the rooms before it."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ["version", "foundation", "cards", "knowledge", "patients", "simulator", "rewards", "interfaces"]
ROOMS += ["agents", "journeys", "trials", "fairness", "verification", "evaluation", "leaderboard", "testing", "cli"]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def test_imports_go_one_way():
    for path in (ROOT / "onco_gym").rglob("*.py"):
        relative = path.relative_to(ROOT / "onco_gym")
        room = relative.parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in ROOMS, f"{relative} stands in no room: add it to the list, in its place"
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "onco_gym" and len(parts) > 1:
                assert ROOMS.index(parts[1]) <= ROOMS.index(room), f"{relative} imports {name}"


def test_no_module_has_the_name_of_a_function_in_it():
    """Else ``from room import name`` means one or the other, by the order of imports."""
    for path in (ROOT / "onco_gym").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            assert not (isinstance(node, ast.FunctionDef) and node.name == path.stem), path


def test_no_public_name_means_two_things():
    """A class has one name in the whole package, and no other class has it."""
    seen = {}
    for path in (ROOT / "onco_gym").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert node.name not in seen, f"{node.name} is in {seen[node.name]} and in {path}"
                seen[node.name] = path


def test_tests_mirror_the_rooms():
    """Every room has a folder of tests, and every folder of tests a room or a folder beside the package."""
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("test_*.py"))}
    rooms = set(ROOMS) - {"version", "testing"}  # the conformance checks are run by tests/interfaces
    assert rooms <= folders
    assert folders - rooms <= {path.name for path in ROOT.iterdir() if path.is_dir()}


def test_the_simulator_knows_only_jax_and_numpy():
    allowed = {"jax", "numpy", "onco_gym", "typing", "enum", "functools", "operator", "collections"}
    for path in (ROOT / "onco_gym" / "simulator").glob("*.py"):
        assert {name.split(".")[0] for name in imports(path)} <= allowed, path.name


def test_generated_pages_are_what_the_cards_say():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "environments.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_calibration_page_is_of_these_cards():
    """docs/calibration.md takes a minute to make; its stamps tell whether the cards have changed since."""
    from onco_gym.cards import card_files, load_card
    from onco_gym.cards.load import digest

    text = (ROOT / "docs" / "calibration.md").read_text()
    for name in card_files():
        assert f"digest `{digest(load_card(name))}`" in text, f"{name} has changed: run make docs"
