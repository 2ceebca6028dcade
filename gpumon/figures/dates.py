"""Times of a figure as text: a file that is handed on shows them as the machine that made it has them."""

from __future__ import annotations

from collections.abc import Sequence
from time import localtime, strftime
from typing import Any

from gpumon.figures.run import Figure


def dated(figure: Figure) -> Figure:
    """`figure` with its times, milliseconds since 1970, as dates in this machine's time zone."""
    layout = figure["layout"]
    axis = layout["xaxis"]
    return {
        **figure,
        "data": [_with_days(line, ("x0",), ("x",)) for line in figure["data"]],
        "layout": {
            **layout,
            "xaxis": _with_days(axis, (), ("range",)),
            "shapes": [_with_days(shape, ("x0", "x1")) for shape in layout["shapes"]],
            "annotations": [_with_days(note, ("x",) if note["xref"] == "x" else ()) for note in layout["annotations"]],
        },
    }


def _with_days(of: dict[str, Any], single: Sequence[str], many: Sequence[str] = ()) -> dict[str, Any]:
    found = {**of, **{name: _day(of[name]) for name in single if of.get(name) is not None}}
    return {**found, **{name: [_day(time) for time in of[name]] for name in many if of.get(name) is not None}}


def _day(milliseconds: float) -> str:
    try:
        text = strftime("%Y-%m-%d %H:%M:%S", localtime(milliseconds / 1000))
    except (OverflowError, OSError, ValueError):
        return "1970-01-01"
    return f"{text}.{int(milliseconds % 1000):03}"
