"""Names of nodes in narrow columns: what tells one from the others stays, whatever else of it has no room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from gpumon.common.text import cut, text_width
from gpumon.model import units
from gpumon.reports.text_table import end_of

_NAMES = 4
"""Nodes that a cell names."""
_LONGEST = 32
"""Cells of the name of one of several nodes."""
_LEAST = 4
"""Cells that a name has beside the number of others."""


class NodeNames:
    """Makes cells of the nodes of a cluster, and shortens them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(set(names))
        self._marks = _marks(self._names)
        self._wider: dict[int, Mapping[str, tuple[int, int]]] = {}
        self._cells: dict[str, Sequence[str]] = {}

    def cell(self, names: Sequence[str]) -> str:
        """Return the text of a cell that names some nodes, of many the first."""
        text = self._first(names, min(len(names), _NAMES))
        self._cells[text] = names
        return text

    def shorten(self, text: str, width: int) -> str:
        """Return a cell in at most so many cells of the terminal: with fewer names, rather than a part of one."""
        names = self._cells.get(text, ())
        if text_width(text) <= width or not names:
            return cut(text, width)
        for count in range(min(len(names), _NAMES) - 1, 0, -1):
            fewer = self._first(names, count)
            if text_width(fewer) <= width:
                return fewer
        others = f" +{units.count(len(names) - 1)}" if len(names) > 1 else ""
        room = width - len(others)
        return self.short(names[0], room) + others if room >= _LEAST else cut(text, width)

    def short(self, name: str, width: int) -> str:
        """Return a name in at most so many cells, with … for what was left out.

        >>> NodeNames(["gpu-node-17:9400", "gpu-node-18:9400"]).short("gpu-node-17:9400", 8)
        'gpu-…17…'
        """
        if text_width(name) <= width:
            return name
        if width not in self._wider:
            self._wider[width] = _wider(self._names, self._marks, width)
        mark = self._wider[width].get(name) or self._marks.get(name, (0, len(name)))
        return _around(name, mark, width)

    def _first(self, names: Sequence[str], count: int) -> str:
        more = len(names) - count
        shown = ", ".join(self.short(name, _LONGEST) for name in names[:count])
        return shown + (f" and {units.count(more)} more" if more else "")


def _around(name: str, place: tuple[int, int], width: int) -> str:
    """Return a name in fewer cells than it has, around what tells it from others."""
    begin, end = place
    before, mark, after = name[:begin], name[begin:end], name[end:]
    room = width - text_width(mark) - bool(after)
    if not mark or room < bool(before):
        shown = mark or name
        if 0 <= width - text_width(shown) < 2:
            return "…" * (width - text_width(shown)) + shown
        tail = end_of(shown, (width - 1) // 2)
        return cut(shown, width - text_width(tail)) + tail
    before = cut(before, room)
    return before + mark + cut(after, width - text_width(before + mark))


def _wider(names: Sequence[str], marks: Mapping[str, tuple[int, int]], width: int) -> Mapping[str, tuple[int, int]]:
    """Where that is in names which are alike without more of them, as those of the same place in two racks are."""
    alike: dict[str, list[str]] = {}
    for name in names:
        if text_width(name) > width:
            alike.setdefault(_around(name, marks[name], width), []).append(name)
    found = {}
    for group in alike.values():
        if len(group) > 1:
            backwards = sorted(name[::-1] for name in group)
            before, after = _alike(group[0], group[-1]), _alike(backwards[0], backwards[-1])
            for name in group:
                begin, end = _whole_numbers(name, before, max(before, len(name) - after))
                found[name] = min(begin, marks[name][0]), max(end, marks[name][1])
    return found


def _marks(ordered: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Where in each name that is which tells it from the one most like it; no number is parted."""
    found = {}
    for at, name in enumerate(ordered):
        near = [*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2]]
        other = max(near, key=lambda one: _alike(name, one), default="")
        begin, _ = _whole_numbers(name, _alike(name, other), len(name))
        found[name] = _whole_numbers(name, begin, len(name) - _alike(name[begin:][::-1], other[begin:][::-1]))
    return found


def _whole_numbers(name: str, begin: int, end: int) -> tuple[int, int]:
    """A part of a name with all of the numbers at its ends."""
    while begin and name[begin - 1].isdecimal():
        begin -= 1
    while end < len(name) and name[end].isdecimal():
        end += 1
    return begin, end


def _alike(one: str, other: str) -> int:
    """Letters at the begin of two names that are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
