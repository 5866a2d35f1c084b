"""dataset."""

import json

import pytest

from onco_gym.cards import card_files

minari = pytest.importorskip("minari")


def test_a_dataset_is_written_and_overwritten_only_when_told(command, printed, home, monkeypatch):
    monkeypatch.chdir(home)
    asked = ("dataset", "guideline", "--env", "NSCLC", "-n", 3, "--root", "other")
    out = printed(*asked)
    assert "minari.load_dataset('oncology/nsclc/guideline-v0')" in out
    code, _, err = command(*asked)
    assert code == 2
    assert "the dataset oncology/nsclc/guideline-v0 already exists" in err
    assert command(*asked, "--overwrite", "--seed", 4).code == 0
    stored = json.loads((home / "other/oncology/nsclc/guideline-v0/data/metadata.json").read_text())
    assert (stored["seed"], stored["total_episodes"]) == (4, 3)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(home / "other"))
    assert list(minari.list_local_datasets()) == ["oncology/nsclc/guideline-v0"]
    assert not [path for path in (home / "other").iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_dataset_of_a_card_of_ones_own(command, home):
    path = home / "mine.toml"
    path.write_text(card_files()["melanoma"].read_text().replace('id = "Melanoma"', 'id = "Mine"', 1))
    assert command("dataset", "guideline", "--env", path, "-n", 3, "--name", "mine-v0").code == 0
    env = minari.load_dataset("mine-v0").recover_environment()
    assert env.unwrapped.engine.card.id == "Mine"
