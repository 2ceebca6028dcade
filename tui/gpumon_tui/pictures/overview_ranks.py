"""The utilization of the selected run by rank over time, on a screen with room for it: a straggler stands out."""

from __future__ import annotations

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model.frame import Run, RunState
from gpumon_tui import theme
from gpumon_tui.freshness import window_texts
from gpumon_tui.memo import Memo
from gpumon_tui.pictures.columns import Columns
from gpumon_tui.pictures.picture import Picture
from gpumon_tui.renderables.gpu_charts import UTILIZATION
from gpumon_tui.renderables.heat import heat
from gpumon_tui.renderables.lean_section import section_head
from gpumon_tui.renderables.text_width import Line, safe
from gpumon_tui.renderables.time_columns import known_halves, live_columns, window_words
from gpumon_tui.renderables.time_marks import epochs_above, times_below
from gpumon_tui.view import View

BEFORE = 12
"""Cells before the strips."""
AROUND = 3
"""Rows beside those of the ranks: name, epochs, times."""


class RanksPicture(Picture):
    """A heat strip for each GPU of the selected run, on one time grid with its epochs."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._columns = Columns()
        self._memo: Memo[list[Line]] = Memo()

    def forget(self) -> None:
        """Ask for everything anew."""
        self._columns.forget()

    def lines(self) -> list[Line]:
        view = self.view
        if view.filling:
            self.forget()
        shows = view.frame, view.selected_run, view.glance, self.size, view.filling, view.freshness.edge
        return self._memo.get(0, shows, self._draw)

    def _draw(self) -> list[Line]:
        view, (cells, rows) = self.view, self.size
        ranks = next((one for one in view.ranks if one.first.id == view.selected_run), None)
        if ranks is None or rows <= AROUND:
            return []
        grid = live_columns(view.glance, cells - BEFORE - 2, view.now)
        span, edge = window_words(view.glance), view.freshness.edge
        detail = f"utilization by rank, {window_texts(span, edge)[0]}"
        more = [Segment("2", theme.TITLE), Segment(" chart", theme.DIM)]
        head = section_head(safe(ranks.first.name), [Segment(detail, theme.DIM)], more, cells, 2)
        drawn = view.epochs.chart_marks([run.key for run in ranks.all])
        margin: Line = [Segment(" " * BEFORE)]
        lines: list[Line] = [head, margin + epochs_above(drawn.marks, grid, drawn.faults)]
        placed = [(run, uuid) for run in ranks.all for uuid in run.gpus]
        for run, uuid in placed[: rows - AROUND]:
            known = known_halves(grid, _first(run, view.history.begin), _last(run, view.now))
            curve = self._columns.get(view.history, uuid, (UTILIZATION,), grid, until=view.now, interval=view.interval)[
                UTILIZATION
            ]
            before = Segment(" " * (known.start // 2))
            name = f"rank {run.rank}"
            told = Segment(f"   {name:<{BEFORE - 3}}", theme.DIM)
            lines.append([told, before, *heat(curve.mean[known], is_read=view.has_read)])
        return [*lines, margin + times_below(grid, view.now, view.freshness.edge)]


def _first(run: Run, oldest: float) -> float:
    """When a strip of a rank begins (s since 1970): what its GPU did before is none of the run."""
    return max((one for one in (run.started, oldest) if is_known(one)), default=oldest)


def _last(run: Run, now: float) -> float:
    """When it ends: with the last that was heard of a run that has ended."""
    return min(now, run.updated) if run.state is not RunState.RUNNING and is_known(run.updated) else now
