"""Results as plain values, and back: dataclasses that know the types of their fields need no readers of their own."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from onco_gym.foundation.intervals import Interval

T = TypeVar("T")

Figure = Annotated[Interval, PlainValidator(Interval.from_json), PlainSerializer(Interval.to_json)]
"""An interval as a field of a result. Files hold its three numbers by name, and null for what is not finite."""
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def to_plain(result: Any) -> Any:
    """A dataclass as values that ``json.dumps`` can write, under the aliases of its fields."""
    return _adapter(type(result)).dump_python(result, mode="json", by_alias=True)


def from_plain(kind: type[T], content: Any) -> T:
    """Read what :func:`to_plain` made.

    Raises:
        ValueError: if something is missing or has the wrong type; one line that names it.
    """
    try:
        found: T = _adapter(kind).validate_python(content)
        return found
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    except (TypeError, KeyError, OverflowError) as error:  # of what reads a single field
        raise ValueError(f"{type(error).__name__}: {error}") from None


def first_problem(error: ValidationError) -> str:
    """The first problem that pydantic found, in one line: where, and what was expected."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Making one takes longer than using it, so they are kept."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def read_plain(path: str | os.PathLike[str]) -> Any:
    """The content of a file of JSON.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is damaged.
    """
    try:
        return json.loads(Path(path).read_bytes())
    except RecursionError as error:
        raise ValueError(str(error)) from None
