"""Lines of `gpumon status` in the width of a terminal: which GPU is free stays readable down to 40 cells.

Of GPUs whole columns go, the same ones on every line; sentences are wrapped, rows of facts lose the last ones. A run
keeps its epoch, what is left and its loss, on a second line where they need one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.common.text import cut, text_width
from gpumon.reports.status_text import BELOW, DOT, MEMORY_UNIT, GpuRow, MemoryLine, RunLine

_GAP = "  "
_ORDER = ("label", "model", "bar", "utilization", "memory", "degrees", "power", "word", "who")
_ALWAYS = ("label", "utilization", "word")
_KEEP = ("memory", "who", "model", "bar", "degrees", "power")
"""Columns that may go, the last one first."""
_RIGHT = ("label", "utilization", "memory", "degrees", "power")
_MOST = {"who": 24, "word": 28}
"""Cells that a column claims at most; who has what is left, too."""
_MORE, _NARROW_DOT = " …", " · "
_FIRST_AND_LAST = 3
"""Parts of the title that stay: machine, label, sampler."""
_LEAST = 20
"""Cells below which nothing sensible fits: lines are cut there only by the terminal."""


def fitted(told: Sequence[str | GpuRow | MemoryLine | RunLine], width: int) -> Iterator[str]:
    """Return the lines, at most `width` cells wide; the first is the title."""
    width = max(width, _LEAST)
    widths = _widths([line for line in told if isinstance(line, GpuRow)], width)
    for number, line in enumerate(told):
        if isinstance(line, GpuRow):
            yield _row(line, widths, width)
        elif text_width(str(line)) <= width:
            yield str(line)
        elif isinstance(line, RunLine):
            yield from _of_run(line, width)
        elif isinstance(line, MemoryLine):
            yield _first_parts(str(line), width, MEMORY_UNIT)
        elif number == 0:
            yield from _title(line, width)
        elif DOT in line:
            yield _first_parts(line, width)
        else:
            yield from _wrapped(line, width)


def _title(line: str, width: int) -> Iterator[str]:
    """Machine and label, and who samples, which may be that nobody does; time and what is between as there is room."""
    parts = line.split(DOT)
    while len(parts) > _FIRST_AND_LAST and text_width(DOT.join(parts)) > width:
        del parts[-2 if len(parts) == _FIRST_AND_LAST + 1 else -3]
    yield from _wrapped(DOT.join(parts), width)


def _widths(rows: Sequence[GpuRow], width: int) -> dict[str, int]:
    """Cells of the columns that are shown."""
    wanted = {}
    for name in _ORDER:  # of a GPU that cannot be read, most are empty
        widest = max((text_width(getattr(row, name).strip()) for row in rows), default=0)
        if widest:
            wanted[name] = min(widest, _MOST.get(name, widest))
    wanted["label"] = max(wanted.get("label", 0), 3)
    shown = {name: wanted[name] for name in _ALWAYS if name in wanted}
    for name in _KEEP:
        if name in wanted and sum(shown.values()) + wanted[name] + len(_GAP) * len(shown) <= width:
            shown[name] = wanted[name]
    return shown


def _row(row: GpuRow, widths: dict[str, int], width: int) -> str:
    if row.reason:
        model = f"{row.model:<{widths['model']}}{_GAP}" if "model" in widths else ""
        full = f"{row.label:>3}{_GAP}{model}{row.reason}"
        return full if text_width(full) <= width else cut(f"{row.label:>3}{_GAP}{row.reason}", width)
    cells = []
    for name in _ORDER:
        if name in widths:
            text = getattr(row, name).strip()
            if name == "who":
                cells.append(text)
                continue
            text = cut(text, widths[name])
            room = " " * (widths[name] - text_width(text))
            cells.append(room + text if name in _RIGHT else text + room)
    line = _GAP.join(cells)
    if "who" not in widths and row.who:
        line = f"{line.rstrip()}{_GAP}{row.who}" if text_width(line.rstrip()) + 8 <= width else line
    return cut(line.rstrip(), width)


def _first_parts(line: str, width: int, end: str = "") -> str:
    """The facts that fit, from the first on; at least that one. `end` is their unit."""
    parts = line.split(DOT)
    end = _MORE + end
    while len(parts) > 1 and text_width(DOT.join(parts)) + len(end) > width:
        parts.pop()
    return cut(DOT.join(parts) + end, width)


def _of_run(line: RunLine, width: int) -> Iterator[str]:
    """Kept facts on as many lines as they need; the other facts, from the first on, where all fit on one."""
    shown = list(line.kept)
    for part in line.parts:
        more = [one for one in line.parts if one in shown or one == part]
        if text_width(line.head + DOT.join(more)) + len(_MORE) <= width:
            shown = more
    now = line.head + shown[0]
    for part in shown[1:]:
        is_last = part == shown[-1] and len(shown) < len(line.parts)
        dot = DOT if len(shown) > len(line.kept) else _NARROW_DOT
        if text_width(now + dot + part) + len(_MORE) * is_last > width:
            yield cut(now, width)
            now = BELOW + part
        else:
            now += dot + part
    yield cut(now + _MORE * (len(shown) < len(line.parts)), width)


def _wrapped(line: str, width: int) -> Iterator[str]:
    """A sentence on as many lines as it needs; what goes on is indented."""
    words = line.split()
    now = line[: len(line) - len(line.lstrip())] + words[0]
    for word in words[1:]:
        gap = _GAP if f"{now.strip()}{_GAP}{word}" in line else " "
        if text_width(now) + len(gap) + text_width(word) > width:
            yield cut(now, width)
            now = BELOW + word
        else:
            now += gap + word
    yield cut(now, width)
