"""Cohorts as Parquet files."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card, digest
from onco_gym.cards.scenarios import effect_names
from onco_gym.cards.schema import Bernoulli, Categorical, Derived, Lognormal, Normal, Ordinal, Variable
from onco_gym.foundation.files import replacing
from onco_gym.patients.causal import CausalGenerator
from onco_gym.patients.cohort import Cohort, CohortError

_FORMAT = 1


def write_cohort(path: str | os.PathLike[str], cohort: Cohort, card: Card) -> Path:
    """Write a cohort to Parquet, atomically. Categorical variables are written as text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {}
    for variable in card.variables:
        values = cohort.columns[variable.name]
        arrays[variable.name] = np.asarray(variable.levels)[values] if isinstance(variable, Categorical) else values
    arrays.update({f"noise:{name}": values for name, values in cohort.noise.items()})
    arrays.update({f"effect:{name}": values for name, values in cohort.effects.items()})
    stamp = json.dumps({"format": _FORMAT, "card": cohort.card_id, "digest": cohort.card_digest})
    table = pa.table(arrays).replace_schema_metadata({"onco_gym": stamp})
    with replacing(path) as temporary:
        pq.write_table(table, temporary)
    return Path(path)


def read_cohort(path: str | os.PathLike[str], card: Card) -> Cohort:
    """Read a Parquet file written by :func:`write_cohort`, or any Parquet table with the card's variables as columns.

    Missing noise is abducted, and missing random effects are drawn.

    Raises:
        CohortError: if the file is damaged, belongs to another card, or has a missing or invalid column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise CohortError(f"{path}: is not a complete Parquet file: {str(error).splitlines()[0]}") from None
    made_for = _card_of(path, (table.schema.metadata or {}).get(b"onco_gym"), card.id)
    if made_for != card.id:
        raise CohortError(f"{path}: holds patients of {made_for!r}, expected {card.id!r}")
    if table.num_rows == 0:
        raise CohortError(f"{path}: has no patients, expected at least one")
    columns = {variable.name: _column(path, table, variable) for variable in card.variables}
    noise = _numbers(path, table, "noise", [variable.name for variable in card.variables], 0.0, 1.0)
    effects = _numbers(path, table, "effect", effect_names(card), -40.0, 40.0)
    if noise is None or effects is None:
        completed = CausalGenerator(card).complete(columns)
        noise, effects = noise or completed.noise, effects or completed.effects
    return Cohort(card.id, digest(card), columns, noise, effects)


def _card_of(path: Any, stamp: bytes | None, default: str) -> Any:
    """The card that a file says it belongs to, or ``default`` if the file was not written by onco_gym."""
    if stamp is None:
        return default
    try:
        return json.loads(stamp)["card"]
    except (ValueError, KeyError, TypeError):
        raise CohortError(f"{path}: the onco_gym metadata is damaged") from None


def _column(path: Any, table: Any, variable: Variable) -> NDArray[Any]:
    if variable.name not in table.column_names:
        raise CohortError(f"{path}: has no column {variable.name!r}")
    values = table[variable.name].to_numpy(zero_copy_only=False)
    match variable:
        case Categorical():
            codes = {level: code for code, level in enumerate(variable.levels)}
            wrong = [value for value in values if value not in codes]
            if wrong:
                raise CohortError(f"{path}: column {variable.name!r} holds {wrong[0]!r}, expected one of {list(variable.levels)}")
            return np.array([codes[value] for value in values], np.int8)
        case Bernoulli() | Derived():
            if values.dtype != bool:
                raise CohortError(f"{path}: column {variable.name!r} is {values.dtype}, expected true or false")
            return values
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise CohortError(f"{path}: column {variable.name!r} must hold finite numbers")
    values = values.astype(float)
    if isinstance(variable, Ordinal):
        allowed = np.isin(values, variable.values)
        expected = f"one of {list(variable.values)}"
    else:
        low, high = (variable.low, variable.high) if isinstance(variable, Normal) else (0.0, _high(variable))
        allowed = (values >= low) & (values <= high)
        expected = f"{low:g}..{high:g}"
    if not allowed.all():
        raise CohortError(f"{path}: column {variable.name!r} holds {values[~allowed][0]:g}, expected {expected}")
    return values


def _high(variable: Variable) -> float:
    return variable.high if isinstance(variable, Lognormal) else np.inf


def _numbers(
    path: Any, table: Any, prefix: str, names: Sequence[str], low: float, high: float
) -> dict[str, NDArray[np.float64]] | None:
    if not any(name.startswith(f"{prefix}:") for name in table.column_names):
        return None
    result = {}
    for name in names:
        if f"{prefix}:{name}" not in table.column_names:
            raise CohortError(f"{path}: has no column '{prefix}:{name}'")
        values = table[f"{prefix}:{name}"].to_numpy(zero_copy_only=False)
        if values.dtype.kind != "f":
            raise CohortError(f"{path}: column '{prefix}:{name}' is {values.dtype}, expected numbers")
        if not ((values >= low) & (values <= high)).all():
            raise CohortError(f"{path}: column '{prefix}:{name}' must lie in {low:g}..{high:g}")
        result[name] = values
    return result
