"""The text of `gpumon doctor`: a line for each check, and below it what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.cli.streams import of_words
from gpumon.common.checkup import CheckSection
from gpumon.common.text import clean

_NAME = 14
"""Columns for the name of a check."""
_REMEDY = "→ "
_LEAST = 30
"""Columns that a text has beside its head; in less, it stands below."""
_INDENT = 4
_LONGEST = 1024


def lines(sections: Sequence[CheckSection], first: str, width: int) -> Iterator[str]:
    """Yield `first`, then each section; `width` in cells, 0 for as wide as it gets."""
    yield from _told("", first, width)
    for section in sections:
        yield ""
        yield section.title
        for check in section.checks:
            head = f"  {check.condition.word:<8} {check.name:<{_NAME}} "
            if width and width - len(head) < _LEAST:
                yield head.rstrip()
                head = " " * _INDENT
            yield from _told(head, check.text, width)
            if check.remedy:
                yield from _told(" " * len(head) + _REMEDY, check.remedy, width)


def _told(head: str, text: str, width: int) -> Iterator[str]:
    """A text behind its head, in lines of whole words below each other."""
    told = clean(text, _LONGEST)
    if width:
        told = of_words(told, width - len(head))
    first, *others = told.split("\n")
    yield head + first
    yield from (" " * len(head) + line for line in others)
