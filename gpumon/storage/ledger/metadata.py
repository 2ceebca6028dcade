"""Reads and searches the metadata of runs: parameters, facts about the program, notes and tags."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum

from gpumon.model.run import NAME_LENGTH, NOTE_LENGTH, TAG_LENGTH, Parameter, bounded_text, bounded_value
from gpumon.storage.ledger.decode import Cells
from gpumon.storage.ledger.records import NoteRow, RunMetadata
from gpumon.storage.sqlite.cells import parse_json


class ParameterKind(IntEnum):
    """Values of the column `kind` in the table `parameter`."""

    CONFIG = 0
    PROGRAM = 1
    OMITTED = 2


def metadata_from_rows(parameters: Iterable[Cells], notes: Iterable[Cells], tags: Iterable[Cells]) -> RunMetadata:
    """Return the metadata of a run. The rows must be sorted: parameters by position, notes by time."""
    by_kind: dict[int, dict[str, Parameter]] = {kind: {} for kind in ParameterKind}
    for row in parameters:
        parameters_of_kind = by_kind.get(row.whole("kind"))
        if parameters_of_kind is not None:
            parameters_of_kind[bounded_text(row.text("name"), NAME_LENGTH)] = _value(row)
    omitted = by_kind[ParameterKind.OMITTED].get("", 0)
    return RunMetadata(
        config=by_kind[ParameterKind.CONFIG],
        program=by_kind[ParameterKind.PROGRAM],
        notes=tuple(
            NoteRow(row.time("time"), bounded_text(row.text("text"), NOTE_LENGTH), row.text("author")) for row in notes
        ),
        tags=tag_names(tags),
        omitted=omitted if isinstance(omitted, int) else 0,
    )


def tag_names(tags: Iterable[Cells]) -> Sequence[str]:
    """Return the names in rows of the table `tag`."""
    return tuple(name for row in tags if not row.whole("removed") and (name := row.text("tag")[:TAG_LENGTH]))


def metadata_conditions(
    tags: Iterable[str], where: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """Yield an SQL condition for each tag and each parameter that a run must have.

    `where` has pairs of the name and the value of a parameter. Each result consists of a table name, a condition on the
    rows of this table, and the values for the placeholders in the condition.
    """
    for tag in tags:
        yield "tag", "tag = ? AND NOT removed", (tag,)
    for name, value in where:
        forms = _stored_forms(value)
        yield "parameter", f"kind < 2 AND name = ? AND value IN ({', '.join('?' * len(forms))})", (name, *forms)


def _stored_forms(value: str) -> tuple[str, ...]:
    """Return the JSON texts that may be stored for a value that a user typed.

    It may be stored as a string, number or literal.
    """
    forms = [json.dumps(value)]
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        forms.append(json.dumps(number))
        if number.is_integer():
            forms.append(json.dumps(int(number)))
    word = {"true": "true", "false": "false", "none": "null", "null": "null"}.get(value.lower())
    return (*forms, word) if word else tuple(forms)


def _value(row: Cells) -> Parameter:
    value = parse_json(row.get("value"))
    return bounded_value(value) if isinstance(value, str | int | float) else None
