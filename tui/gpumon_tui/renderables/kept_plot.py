"""Pictures of curves that go on: of one that was drawn before, only the columns with news are drawn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from gpumon_tui.renderables.cells import Row, painted
from gpumon_tui.renderables.plot import PlotCurve, plot
from gpumon_tui.renderables.text_width import Line
from gpumon_tui.renderables.value_axis import ValueAxis


class _KeptPicture(NamedTuple):
    curve: PlotCurve
    shape: object
    picture: list[Row]
    lines: list[Line]


class KeptPlots:
    """The last picture of each place."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _KeptPicture] = {}

    def forget(self) -> None:
        """Draw everything anew."""
        self._kept.clear()

    def lines(self, place: Hashable, curve: PlotCurve, axis: ValueAxis, rows: int, role: str) -> list[Line]:
        """Return the lines of `plot`; one that is as before is the same object."""
        kept = self._kept.get(place)
        shape = axis, rows, role, len(curve.mean)
        if kept is None or kept.shape != shape:
            picture = plot(curve, axis, rows, role)
            lines = [painted(row) for row in picture]
        else:
            same = min(_same(*both) for both in zip(kept.curve, curve, strict=True)) // 2
            if 2 * same >= len(curve.mean):
                return kept.lines
            # A line comes from the column before: that is drawn too, and left out again.
            begin = max(0, same - 1)
            end = PlotCurve(*(line[2 * begin :] for line in curve))
            picture = [
                old[:same] + new[same - begin :]
                for old, new in zip(kept.picture, plot(end, axis, rows, role), strict=True)
            ]
            lines = [
                before if new == old else painted(new)
                for before, old, new in zip(kept.lines, kept.picture, picture, strict=True)
            ]
        self._kept[place] = _KeptPicture(curve, shape, picture, lines)
        return lines


def _same(old: Sequence[float], new: Sequence[float]) -> int:
    """Return how many values at the begin are the same; a gap is the same as a gap."""
    for place, (before, after) in enumerate(zip(old, new, strict=True)):
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        if before != after and (before == before or after == after):
            return place
    return len(new)
