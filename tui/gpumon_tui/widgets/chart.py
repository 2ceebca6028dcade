"""A history chart of what is selected."""

from __future__ import annotations

from gpumon.missing import is_known
from gpumon_tui.memo import Memo
from gpumon_tui.renderables import chart
from gpumon_tui.renderables.text_width import Line
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines


class Chart(Lines):
    """The first shows the selected metric, the next ones the metrics after it.

    The picture is drawn anew when now has come to its next column; in between only the value in the
    title changes.
    """

    def __init__(self, view: View, place: int) -> None:
        super().__init__(view, id=f"chart{place}")
        self.place = place
        self._memo: Memo[list[Line]] = Memo()
        self._crowded = False
        """Whether epochs had ticks alone when this was last drawn."""

    def lines(self) -> list[Line]:
        view, (cells, height) = self.view, self.size
        if not chart.fits(cells, height):
            return []
        curve = view.curve(self.place)
        room = chart.room(curve, cells, height)
        shows = (
            cells, height, room.grid, _moves_with(curve, room), curve.begin, view.filling and view.history.end,
            curve.metric.name, view.subject, curve.interval, curve.top, str(curve.limit), curve.missing,
            curve.marks, curve.spans, curve.faults, curve.edge,
        )  # fmt: skip
        return [chart.title(curve, cells, room.grid), *self._memo.get(0, shows, lambda: self._picture(curve, room))]

    def _picture(self, curve: chart.ChartCurve, room: chart.Room) -> list[Line]:
        row = chart.epochs_of(curve, room, self._crowded)
        self._crowded = row.crowded
        return chart.picture(curve, room, row)


def _moves_with(curve: chart.ChartCurve, room: chart.Room) -> int | None:
    """The column of now; none where the window stands still."""
    return None if is_known(curve.end) else room.grid.at(curve.now)
