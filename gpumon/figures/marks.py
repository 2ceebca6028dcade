"""Texts in a figure, and the line at a moment when memory ran out."""

from __future__ import annotations

from typing import Any

from gpumon.figures.axes import instant


def note(text: str, x: float | str, y: float, color: str = "@mut", **place: Any) -> dict[str, Any]:
    """Return a text of the figure's own at a place of the paper; `place` says otherwise."""
    return {
        "text": text, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False,
        "font": {"color": color, "size": 11}, **place,
    }  # fmt: skip


def out_of_memory_line(at: float) -> dict[str, Any]:
    """Return a line through all panels at a time (s since 1970)."""
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": instant(at), "x1": instant(at), "y0": 0, "y1": 1,
        "line": {"color": "@bad", "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def out_of_memory_caption(at: float) -> dict[str, Any]:
    """Return what the line says."""
    return note(
        "out of memory", instant(at), 0, color="@bad", xref="x", yanchor="bottom", xanchor="left", xshift=3
    )  # fmt: skip
