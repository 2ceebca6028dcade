"""Particulars of a run as text, for JSON and HTML: its tags, notes, parameters, and the program that it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpumon.common.numbers import is_known
from gpumon.common.text import cut
from gpumon.model import units
from gpumon.model.run import Parameter
from gpumon.reports.text_table import TextColumn
from gpumon.storage.ledger.records import NoteRow, Particulars

COMMIT_LETTERS = 10
"""Of a commit's id, as people see it."""
_SHOWN = 12
"""Parameters in the head of a run; `--json` and the report have all."""
_WIDE = 40
_UNKNOWN = " (whether files were changed since is unknown)"


def about_lines(about: Particulars) -> Iterator[str]:
    """Yield the particulars in a few lines: tags, program, parameters, notes."""
    if about.tags:
        yield f"tags: {', '.join(about.tags)}"
    if about.program:
        yield "  ·  ".join(program_words(about.program))
    if about.config:
        shown = [f"{name} {cut(written(value), _WIDE)}" for name, value in [*about.config.items()][:_SHOWN]]
        more = len(about.config) - len(shown)
        yield "config: " + "  ·  ".join([*shown, *([f"and {more} more (--json)"] if more else [])])
    if about.omitted:
        yield f"{units.count(about.omitted)} of the parameters and notes had no room and were not kept"
    for note in about.notes:
        yield f"note: {note.text}{_by(note)}"


def program_words(program: Mapping[str, Parameter]) -> Iterator[str]:
    """Yield script, commit and versions as people read them."""
    for name, value in program.items():
        if name == "commit":
            dirty = program.get("dirty")
            state = ", with uncommitted changes" if dirty is True else "" if dirty is False else _UNKNOWN
            yield f"commit {written(value)[:COMMIT_LETTERS]}{state}"
        elif name == "script":
            yield written(value)
        elif name != "dirty":
            yield f"{name} {written(value)}"


def written(value: Parameter) -> str:
    """A value as people read it."""
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "none"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def about_json(about: Particulars) -> dict[str, Any]:
    """The particulars for programs."""
    notes = [
        {"time": note.time if is_known(note.time) else None, "text": note.text, "author": note.author or None}
        for note in about.notes
    ]
    return {
        "config": dict(about.config), "program": dict(about.program), "tags": list(about.tags), "notes": notes,
        "omitted": about.omitted,
    }  # fmt: skip


def config_table(about: Particulars) -> tuple[Sequence[TextColumn], list[tuple[str, str]]]:
    """The parameters as a table: its columns and rows."""
    columns = (TextColumn("NAME", 100, right=False), TextColumn("VALUE", 90, right=False))
    return columns, [(name, written(value)) for name, value in about.config.items()]


def _by(note: NoteRow) -> str:
    return f" ({note.author}, {units.moment(note.time)})" if note.author else ""
