"""Types of arguments, and options that several commands share."""

import argparse

import pytest
from conftest import refuses

from onco_gym.cli.arguments import number, output_file, weeks, whole


@pytest.mark.parametrize("text", ["-1", "0", "11", "1.0", "ten", "", "9" * 30, "٣"])
def test_whole_numbers_lie_between_their_bounds(text):
    assert whole(1, 10)("10") == 10
    if text == "٣":  # a decimal digit too
        assert whole(1, 10)(text) == 3
        return
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from 1 to 10"):
        whole(1, 10)(text)


@pytest.mark.parametrize("text", ["0.4", "nan", "inf", "x", ""])
def test_numbers_lie_between_their_bounds(text):
    assert number(0.5, 1)("0.75") == 0.75
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a number from 0\.5 to 1"):
        number(0.5, 1)(text)


def test_weeks_are_separated_by_commas():
    assert weeks("6,6,9") == (6, 6, 9)
    with pytest.raises(argparse.ArgumentTypeError, match="'x'"):
        weeks("6,x")


def test_output_files_can_be_written(tmp_path):
    assert output_file()(str(tmp_path / "x")) == tmp_path / "x"
    assert output_file(".png", ".pdf")(str(tmp_path / "x.pdf")) == tmp_path / "x.pdf"
    assert output_file()("/dev/null").name == "null"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "none" / "x")
    for text in (str(link), str(tmp_path), str(tmp_path / "none" / "x")):
        refuses(argparse.ArgumentTypeError, "is not a file in a folder that exists", output_file(), text)
    refuses(argparse.ArgumentTypeError, r"does not end in \.png or \.pdf", output_file(".png", ".pdf"), str(tmp_path / "x.txt"))
