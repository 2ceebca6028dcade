"""Times of a figure as text: a file that is handed on shows them as the machine that made it has them."""

from __future__ import annotations

from collections.abc import Sequence
from time import gmtime, localtime, strftime
from typing import Any

from gpumon.figures.run import Figure


def dated(figure: Figure) -> Figure:
    """`figure` with its times, milliseconds since 1970, as dates in this machine's time zone.

    Where the clocks are changed within it, all times are by those at its end, which the axis says: else an hour would
    lie over another one, or be missing.
    """
    layout = figure["layout"]
    axis = layout["xaxis"]
    # A damaged ledger may not know when its run was.
    known = axis.get("range") or [time for line in figure["data"] for time in line.get("x", ())] or [0.0]
    begin, end = known[0], known[-1]
    ahead = _ahead(end)
    title = {} if _ahead(begin) == ahead else {"title": {"text": _zone(ahead), "font": {"size": 11}}}
    return {
        **figure,
        "data": [_with_days(line, ahead, ("x0",), ("x",)) for line in figure["data"]],
        "layout": {
            **layout,
            "xaxis": {**_with_days(axis, ahead, (), ("range",)), **title},
            "shapes": [_with_days(shape, ahead, ("x0", "x1")) for shape in layout["shapes"]],
            "annotations": [
                _with_days(note, ahead, ("x",) if note["xref"] == "x" else ()) for note in layout["annotations"]
            ],
        },
    }


def _with_days(of: dict[str, Any], ahead: int, single: Sequence[str], many: Sequence[str] = ()) -> dict[str, Any]:
    found = {**of, **{name: _day(of[name], ahead) for name in single if of.get(name) is not None}}
    return {**found, **{name: [_day(time, ahead) for time in of[name]] for name in many if of.get(name) is not None}}


def _day(milliseconds: float, ahead: int) -> str:
    try:
        text = strftime("%Y-%m-%d %H:%M:%S", gmtime(milliseconds // 1000 + ahead))
    except (OverflowError, OSError, ValueError):
        return "1970-01-01"
    return f"{text}.{int(milliseconds % 1000):03}"


def _ahead(milliseconds: float) -> int:
    """Seconds by which this machine's time of day is ahead of UTC then."""
    try:
        return localtime(milliseconds / 1000).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        return 0


def _zone(ahead: int) -> str:
    hours, minutes = divmod(abs(ahead) // 60, 60)
    size = f"{hours}:{minutes:02}" if minutes else f"{hours}"
    return f"times in UTC{'+' if ahead >= 0 else '−'}{size}: the clocks were changed"
