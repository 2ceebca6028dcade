"""The particulars of a run on its page: tags, program, parameters and notes."""

from __future__ import annotations

from gpumon.model import units
from gpumon.reports.run_tables import program_texts, written
from gpumon_web.page import Cells
from gpumon_web.tokens import line, tag, text


def about(particulars: Cells) -> list[Cells]:
    """The lines of its card: tags, program, parameters; empty where nothing was told."""
    tags = [tag(name) for name in particulars["tags"]]
    program = [text(words, "fact") for words in program_texts(particulars["program"])]
    # A text may be empty, and is a value all the same.
    config = [
        {"fact": name, "text": written(value) or '""', "time": None} for name, value in particulars["config"].items()
    ]
    omitted = particulars["omitted"]
    left_out = f"{units.count(omitted)} parameters and notes were not kept: they exceed the limit" if omitted else ""
    return [
        line(*pieces, css="facts")
        for pieces in (tags, program, config, [text(left_out, "fact")] if left_out else [])
        if pieces
    ]


def notes(particulars: Cells) -> list[Cells]:
    """Its notes, oldest first, each with who wrote it later, and when."""
    return [
        {
            "text": f"{note['text']} ({note['author']})" if note["author"] else note["text"],
            **({} if note["time"] is None else {"time": note["time"]}),
        }
        for note in particulars["notes"]
    ]
