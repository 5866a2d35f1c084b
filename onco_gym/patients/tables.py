"""Cohorts as Parquet files."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onco_gym.cards import Card, digest
from onco_gym.cards.scenarios import effect_names
from onco_gym.cards.schema import Categorical
from onco_gym.foundation.files import replacing
from onco_gym.patients.causal import CausalGenerator
from onco_gym.patients.cohort import Cohort, CohortError, coded

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
    stamp = (table.schema.metadata or {}).get(b"onco_gym")
    try:
        made_for = json.loads(stamp)["card"] if stamp is not None else card.id  # without a stamp it is somebody else's table
    except (ValueError, KeyError, TypeError):
        raise CohortError(f"{path}: the onco_gym metadata is damaged") from None
    if made_for != card.id:
        raise CohortError(f"{path}: holds patients of {made_for!r}, expected {card.id!r}")
    if table.num_rows == 0:
        raise CohortError(f"{path}: has no patients, expected at least one")

    def column(name: str) -> NDArray[Any]:
        if name not in table.column_names:
            raise CohortError(f"{path}: has no column {name!r}")
        return table[name].to_numpy(zero_copy_only=False)

    def numbers(prefix: str, names: Iterable[str], low: float, high: float) -> dict[str, NDArray[np.float64]]:
        if not any(name.startswith(f"{prefix}:") for name in table.column_names):
            return {}
        found = {name: column(f"{prefix}:{name}") for name in names}
        for name, values in found.items():
            if values.dtype.kind != "f" or not ((values >= low) & (values <= high)).all():
                raise CohortError(f"{path}: column '{prefix}:{name}' must hold numbers in {low:g}..{high:g}")
        return found

    columns = {one.name: coded(one, column(one.name), f"{path}: column {one.name!r}") for one in card.variables}
    noise = numbers("noise", columns, 0.0, 1.0)
    effects = numbers("effect", effect_names(card), -40.0, 40.0)
    if not noise or not effects:
        completed = CausalGenerator(card).complete(columns)
        noise, effects = noise or completed.noise, effects or completed.effects
    return Cohort(card.id, digest(card), columns, noise, effects)
