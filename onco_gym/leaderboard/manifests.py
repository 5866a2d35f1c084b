"""Manifests: what the authors of a policy say about it."""

import os
import tomllib
import unicodedata
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from onco_gym.foundation.results import first_problem

MOST = 64 * 2**10
"""Bytes of a manifest file; larger ones are refused."""


class ManifestError(ValueError):
    """A manifest that cannot be used. The message names the key and what was expected."""


def _plain(text: str) -> str:
    """Text in one line, without control or direction characters."""
    text = " ".join(unicodedata.normalize("NFC", text).split())
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn") for letter in text):
        raise ValueError("it holds characters that cannot be shown")
    return text


def _link(text: str) -> str:
    if text and (urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname):
        raise ValueError("expected a web address that begins with https:// or http://")
    return text


def _of(least: int, most: int) -> AfterValidator:
    def check(text: str) -> str:
        if not least <= len(text) <= most:
            raise ValueError(f"it has {len(text)} characters, expected {least} to {most}")
        return text

    return AfterValidator(check)


Line = Annotated[str, AfterValidator(_plain), _of(1, 80)]
Text = Annotated[str, AfterValidator(_plain), _of(0, 600)]


class Manifest(BaseModel):
    """What the authors say about a policy. Nothing of it is checked, and pages say so.

    Attributes:
        name: of the policy.
        authors: who made it.
        link: a web address, or nothing.
        about: how it was made.
        training_data: what it was trained on.
        training_energy_kwh: energy that the training took; None if it is not known.
        licence: of the policy.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Line
    authors: Annotated[list[Line], Field(min_length=1, max_length=20)]
    link: Annotated[str, AfterValidator(_plain), _of(0, 200), AfterValidator(_link)] = ""
    about: Text = ""
    training_data: Text = ""
    training_energy_kwh: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    licence: Annotated[str, AfterValidator(_plain), _of(0, 80)] = ""


def make_manifest(content: Any) -> Manifest:
    """A manifest from plain values.

    Raises:
        ManifestError: if something is missing, unknown or of the wrong type.
    """
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise ManifestError(f"the manifest: {first_problem(error)}") from None


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """A manifest from a TOML file.

    Raises:
        ManifestError: if the file cannot be read or is not a manifest.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST + 1)
        if len(content) > MOST:
            raise ManifestError(f"{path} has more than {MOST} bytes, expected a manifest")
        return make_manifest(tomllib.loads(content.decode("utf-8")))
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from None
    except ManifestError as error:
        raise ManifestError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:  # of TOML and of UTF-8
        raise ManifestError(f"{path} is not TOML: {error}") from None
