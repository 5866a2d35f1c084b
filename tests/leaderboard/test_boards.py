"""Boards, seasons, manifests and entries as files: what is accepted, and what is said of the rest."""

import dataclasses
import datetime
import json
import shutil

import numpy as np
import pytest
from conftest import refuses
from made import entry

from onco_gym.cli import main
from onco_gym.leaderboard.boards import Board, BoardError, board_folders, read_board, write_season
from onco_gym.leaderboard.entries import Entry, EntryError, digest_of, read_entries, read_policies, without_patients, write_entry
from onco_gym.leaderboard.exchange import import_folder
from onco_gym.leaderboard.judgements import Judgement, JudgementError
from onco_gym.leaderboard.manifests import ManifestError, make_manifest, read_manifest
from onco_gym.leaderboard.pages.sources import FolderSource
from onco_gym.leaderboard.replaying import replay_season
from onco_gym.leaderboard.seasons import commitment, derived_secret, find_secret, keep_secret, new_secret
from onco_gym.leaderboard.store import Store

NAME = "nsclc-2026"


@pytest.fixture
def folder(tmp_path):
    """A board of one's own, without entries."""
    made = tmp_path / "mine"
    made.mkdir()
    shutil.copy(board_folders()[NAME] / "board.toml", made)
    return made


def change(folder, old, new):
    path = folder / "board.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return folder


def test_every_shipped_board_is_readable_and_its_ended_season_has_the_committed_secret():
    for name in board_folders():
        board = read_board(name)
        assert board.season.ended
        assert commitment(board.name, board.season.name, find_secret(board, None)) == board.season.commitment


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("patients = 2000", "patients = 3", "patients: Input should be greater than or equal to 16"),
        ("patients = 2000", 'patients = "many"', "patients: Input should be a valid integer"),
        ('"score", ', '"scoer", ', "'scoer' is not a metric .did you mean 'score'"),
        ("onco_gym/NSCLC-v0", "onco_gym/NSCLC-Dose-v0", "expected ids of regimen environments"),
        ('track = "single"', 'track = "dose"', "expected ids of dose environments"),
        ("per_day = 5", "per_day = 0", "caps.per_day: Input should be greater than or equal to 1"),
        ("per_day = 5", "per_year = 5", "caps.per_year: Extra inputs are not permitted"),
        ("commitment = ", "commitment_ = ", "season.commitment: Field required"),
        ("title = ", "title = = ", "is not a board"),
    ],
)
def test_a_wrong_board_gives_one_clear_error(folder, old, new, said):
    change(folder, old, new)
    refuses(BoardError, said, read_board, folder)


def test_an_unknown_board_is_met_with_a_suggestion(tmp_path):
    refuses(BoardError, "there is no board 'nsclc-2025' .did you mean 'nsclc-2026'", read_board, "nsclc-2025")
    refuses(BoardError, "there is no board", read_board, tmp_path)


def test_a_season_is_opened_and_closed_on_the_command_line(folder, tmp_path, capsys):
    secrets = tmp_path / "secrets"
    assert main(["leaderboard", "open", str(folder), "--season", "2027", "--secrets", str(secrets)]) == 0
    opened = read_board(folder)
    assert (opened.season.name, opened.season.ended) == ("2027", False)
    kept = next(secrets.iterdir())
    assert kept.stat().st_mode & 0o077 == 0
    assert kept.read_text().strip() not in (folder / "board.toml").read_text()
    assert commitment("mine", "2027", bytes.fromhex(kept.read_text())) == opened.season.commitment
    assert main(["leaderboard", "open", str(folder), "--season", "2028", "--secrets", str(secrets)]) == 2
    assert main(["leaderboard", "replay", str(folder)]) == 2
    assert "has not ended" in capsys.readouterr().err
    assert main(["leaderboard", "close", str(folder), "--secrets", str(secrets)]) == 0
    ended = read_board(folder)
    assert find_secret(ended, None).hex() == kept.read_text().strip()
    assert abs(datetime.datetime.now(datetime.UTC) - ended.season.revealed) < datetime.timedelta(seconds=60)
    assert main(["leaderboard", "close", str(folder), "--secrets", str(secrets)]) == 2


def test_seasons_that_have_ended_are_kept_with_their_secrets(folder, tmp_path, command, refused):
    first, secrets = read_board(folder).season, tmp_path / "secrets"
    for name in ("2027", "2028"):
        assert command("leaderboard", "open", folder, "--season", name, "--secrets", secrets).code == 0
        assert command("leaderboard", "close", folder, "--secrets", secrets).code == 0
    board = read_board(folder)
    assert [one.name for one in (*board.past, board.season)] == [first.name, "2027", "2028"]
    assert board.past[0] == first
    assert Board.model_validate_json(board.model_dump_json()) == board
    for name in ("2027", "2028"):
        found = find_secret(board.during(name), None)
        assert found.hex() == (secrets / f"mine.{name}.secret").read_text().strip()
    for name in ("2027", "2028"):
        said = f"mine has had a season '{name}': expected another name"
        refused(said, "leaderboard", "open", folder, "--season", name, "--secrets", tmp_path / "others")
    refused("has no season '2026'", "leaderboard", "replay", folder, "--season", "2026")
    assert read_board(folder) == board
    change(folder, 'name = "2027"', 'name = "2028"')
    refuses(BoardError, "seasons are sample, 2028, 2028, expected each once", read_board, folder)


def test_a_past_season_without_its_secret_is_refused(folder):
    write_season(folder, read_board(folder).season.model_copy(update={"secret": None}))
    write_season(folder, read_board(folder).season.model_copy(update={"name": "2027"}))
    refuses(BoardError, "a past season has no secret", read_board, folder)


def test_another_secret_than_the_committed_one_is_refused(folder, tmp_path):
    board = read_board(folder)
    open_board = board.model_copy(update={"season": board.season.model_copy(update={"secret": None})})
    keep_secret(tmp_path, board.name, board.season.name, new_secret())
    refuses(BoardError, "this is not the secret of season", find_secret, open_board, tmp_path)
    refuses(FileExistsError, "secret", keep_secret, tmp_path, board.name, board.season.name, new_secret())
    assert find_secret(open_board, None) is None


def test_secrets_for_different_purposes_have_nothing_in_common():
    made = {derived_secret(bytes(32), purpose) for purpose in ("patients", "chance", "chance\0a", "")}
    assert len(made) == 4
    assert commitment("a", "b", bytes(32)) != commitment("b", "a", bytes(32))


MANIFEST = {"name": "Mine", "authors": ["Me"]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "name: it has 0 characters, expected 1 to 80"),
        ({"name": "x" * 81}, "name: it has 81 characters"),
        ({"name": "a\u202eb"}, "characters that cannot be shown"),
        ({"authors": []}, "authors: List should have at least 1 item"),
        ({"link": "javascript:alert(1)"}, "expected a web address"),
        ({"link": "https://"}, "expected a web address"),
        ({"training_energy_kwh": -1}, "training_energy_kwh: Input should be greater than or equal to 0"),
        ({"training_energy_kwh": float("nan")}, "training_energy_kwh: Input should be a finite number"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_manifest_gives_one_clear_error(changes, said):
    refuses(ManifestError, said, make_manifest, MANIFEST | changes)


def test_a_manifest_is_read_from_toml(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('name = "  My\\n policy "\nauthors = ["A", "B"]\nlink = "https://example.org/x"\n')
    assert read_manifest(path).name == "My policy"
    path.write_bytes(b"name = \xff")
    refuses(ManifestError, "is not TOML", read_manifest, path)
    path.write_bytes(b"#" * 70_000)
    refuses(ManifestError, "expected a manifest", read_manifest, path)
    refuses(ManifestError, "cannot be read", read_manifest, tmp_path / "missing.toml")


def test_an_entry_survives_its_file_to_the_digit(tmp_path):
    returns = np.random.default_rng(0).normal(1, 1, 50).astype(np.float32)
    made = entry(1, returns, policies={"onco_gym/NSCLC-v0": digest_of(b"policy")})
    write_entry(tmp_path, made, {"onco_gym/NSCLC-v0": b"policy"})
    (again,) = read_entries(tmp_path, NAME)
    assert again.to_json() == made.to_json()
    assert (again.judgements[0].returns == returns).all()
    assert read_policies(tmp_path, again) == {"onco_gym/NSCLC-v0": b"policy"}
    assert not len(without_patients(again).judgements[0].returns)
    next((tmp_path / "entries" / "policies").iterdir()).write_bytes(b"another")
    refuses(EntryError, "not the policy that was submitted", read_policies, tmp_path, again)
    refuses(EntryError, "is not the one that entry", write_entry, tmp_path, made, {"onco_gym/NSCLC-v0": b"forged"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("returns", "no numbers"), ("returns", 5), ("returns", ""), ("stamp", {}), ("figures", {"score": 1}), ("terms", None)],
)
def test_a_damaged_entry_gives_one_clear_error(tmp_path, name, value):
    plain = entry(1, np.ones(20)).to_json()
    plain["judgements"][0][name] = value
    refuses((EntryError, JudgementError), "this is not", Entry.from_json, plain)
    (tmp_path / "entries").mkdir()
    (tmp_path / "entries" / "x.json").write_text(json.dumps(plain))
    refuses(EntryError, "x.json", read_entries, tmp_path, NAME)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": "../../../../escaped"}, "id: String should match pattern"),
        ({"id": "0" * 12 + "\n"}, "id: String should match pattern"),
        ({"id": "f" * 12}, "is entry f{12} of nsclc-2026, expected 0{11}1 of nsclc-2026"),
        ({"board": "breast-2026"}, "is entry 0{11}1 of breast-2026, expected"),
        ({"policies": {"onco_gym/NSCLC-v0": "../../secret"}}, "policies.onco_gym/NSCLC-v0: String should match pattern"),
        ({"agent": "made:up"}, "is verified and names the agent 'made:up': expected no agent"),
        ({"agent": "guideline"}, "is verified and names the agent 'guideline'"),
        ({"agent": "made:up", "kind": "reference"}, "names the agent 'made:up': .* one of random, guideline"),
        ({"agent": "model.zip", "kind": "reference"}, "names the agent 'model.zip'"),
        ({"agent": "policy.onnx", "kind": "reference"}, "names the agent 'policy.onnx'"),
        ({"agent": "made:up", "kind": "self-reported"}, "is self-reported and names the agent"),
        ({"state": "waiting"}, "is waiting, expected a submission that has ended"),
        ({"state": "refused"}, "is refused, .* done if published"),
    ],
)
def test_nothing_in_the_file_of_an_entry_is_trusted(folder, tmp_path, changes, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made.py").write_text("open('ran', 'w')")
    made = folder.rename(tmp_path / NAME)
    write_entry(made, entry(1, np.ones(20), policies={}), {})
    path = made / "entries" / f"{1:012x}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    for use in (replay_season, FolderSource):
        refuses(EntryError, said, use, made)
    store = Store(str(tmp_path / "store.sqlite"))
    refuses(EntryError, said, import_folder, store, made, read_board(made))
    assert not (tmp_path / "ran").exists()


def test_a_few_bytes_cannot_fill_the_memory():
    """A judgement of more patients than a board can have is refused before it is unpacked."""
    plain = entry(1, np.zeros(100_001)).judgements[0].to_json()
    assert len(plain["returns"]) < 2000
    refuses(JudgementError, "at most 100000 finite numbers", Judgement.from_json, plain)


def test_dates_are_dates(folder):
    assert isinstance(read_board(folder).season.opened, datetime.date)
    assert Board.model_validate(read_board(folder).model_dump()) == read_board(folder)
    assert dataclasses.is_dataclass(entry(1, np.ones(4)))
