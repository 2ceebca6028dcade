"""Rows of the ledger for the particulars of a run: parameters, notes and tags; written, and read again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from gpumon.model.run import NAME_LENGTH, NOTE_LENGTH, TAG_LENGTH, About, Parameter, bounded_text, bounded_value
from gpumon.storage.ledger.decode import Cells
from gpumon.storage.ledger.records import NoteRow, Particulars
from gpumon.storage.sqlite.cells import parse_json

if TYPE_CHECKING:
    from gpumon.storage.ledger.writer import LedgerRow


class ParameterKind(IntEnum):
    """Numbers in `parameter.kind`."""

    CONFIG = 0
    PROGRAM = 1
    OMITTED = 2


def about_rows(run: str, rank: int, about: About) -> Iterator[LedgerRow]:
    """Yield the rows of what a rank of `run` publishes."""
    from gpumon.storage.ledger.writer import LedgerRow  # readers need none of what writes

    omitted = {"": about.omitted} if about.omitted else {}
    for kind, values in (
        (ParameterKind.CONFIG, about.config),
        (ParameterKind.PROGRAM, about.program),
        (ParameterKind.OMITTED, omitted),
    ):
        for place, (name, value) in enumerate(values.items()):
            yield LedgerRow("parameter", {
                "run": run, "kind": int(kind), "name": name, "place": place, "value": json.dumps(value), "rank": rank,
            })  # fmt: skip
    for note in about.notes:
        yield LedgerRow("note", {"run": run, "time": note.time_ns, "text": note.text, "author": ""})
    for tag in about.tags:
        yield LedgerRow("tag", {"run": run, "tag": tag, "removed": 0})


def particulars(parameters: Iterable[Cells], notes: Iterable[Cells], tags: Iterable[Cells]) -> Particulars:
    """Return the particulars of a run from its rows, each by its place or time."""
    by_kind: dict[int, dict[str, Parameter]] = {kind: {} for kind in ParameterKind}
    for row in parameters:
        held = by_kind.get(row.whole("kind"))
        if held is not None:
            held[bounded_text(row.text("name"), NAME_LENGTH)] = _value(row)
    omitted = by_kind[ParameterKind.OMITTED].get("", 0)
    return Particulars(
        config=by_kind[ParameterKind.CONFIG],
        program=by_kind[ParameterKind.PROGRAM],
        notes=tuple(
            NoteRow(row.time("time"), bounded_text(row.text("text"), NOTE_LENGTH), row.text("author")) for row in notes
        ),
        tags=tag_names(tags),
        omitted=omitted if isinstance(omitted, int) else 0,
    )


def tag_names(tags: Iterable[Cells]) -> Sequence[str]:
    """Return the tags of a run from its rows."""
    return tuple(name for row in tags if not row.whole("removed") and (name := row.text("tag")[:TAG_LENGTH]))


def about_conditions(
    tags: Iterable[str], where: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """Yield a table, a condition in SQL and its values for each tag and each parameter that a run must have."""
    for tag in tags:
        yield "tag", "tag = ? AND NOT removed", (tag,)
    for name, value in where:
        written = _written(value)
        yield "parameter", f"kind < 2 AND name = ? AND value IN ({', '.join('?' * len(written))})", (name, *written)


def _written(value: str) -> tuple[str, ...]:
    """`value`, as people type it, in the forms in which it may be kept: a text, a number or a word of JSON."""
    found = [json.dumps(value)]
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        found.append(json.dumps(number))
        if number.is_integer():
            found.append(json.dumps(int(number)))
    word = {"true": "true", "false": "false", "none": "null", "null": "null"}.get(value.lower())
    return (*found, word) if word else tuple(found)


def _value(row: Cells) -> Parameter:
    found = parse_json(row.get("value"))
    return bounded_value(found) if isinstance(found, str | int | float) else None
