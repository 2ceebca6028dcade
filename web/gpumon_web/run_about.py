"""Particulars of a run on its page: its tags, its program, its parameters, and notes."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.reports.about import program_words, written
from gpumon_web.page import Cells

SHOWN = 100
"""Parameters; the report and the export have all."""


def particulars(about: Cells) -> Iterator[Cells]:
    """Yield the lines of the card; none of a run that told nothing."""
    if about.get("tags"):
        yield _line("tags", ", ".join(about["tags"]))
    if about.get("program"):
        yield _line("program", "  ·  ".join(program_words(about["program"])))
    config = [*(about.get("config") or {}).items()]
    for name, value in config[:SHOWN]:
        yield _line(name, written(value))
    if len(config) > SHOWN:
        yield _line("config", f"and {len(config) - SHOWN} more parameters")
    for note in about.get("notes") or ():
        by = f" ({note['author']})" if note["author"] else ""
        line = _line("note", f"{note['text']}{by}")
        yield line if note["time"] is None else {**line, "time": note["time"]}


def _line(about: str, text: str) -> Cells:
    return {"level": "", "about": about, "text": text}
