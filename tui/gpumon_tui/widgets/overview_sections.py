"""Sections of the overview: findings, runs, and processes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rich.segment import Segment

from gpumon.analysis.progress import OVER, RecentPace, progress, recent_pace
from gpumon.analysis.ranks import Ranks
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.finding import FindingGroup
from gpumon.diagnosis.gpu import nothing_found
from gpumon.model import units
from gpumon.model.frame import Frame, RunState
from gpumon.model.process import Process
from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.render import overview_rows, process_head
from gpumon_tui.render.gpu_columns import numbers
from gpumon_tui.render.overview_rows import NARROW_RUN_COLUMNS, PROCESS_COLUMNS, RUN_COLUMNS
from gpumon_tui.render.table import PlacedColumn, Row, fit_columns, placed_cells
from gpumon_tui.render.text_width import (
    NO_PROCESS_DATA,
    NO_RUN_DATA,
    READING_HISTORY,
    Line,
    cut,
    length,
    safe,
)
from gpumon_tui.state import View
from gpumon_tui.widgets.live_table import Section
from gpumon_tui.widgets.overview_past import are_recorded, is_on_screen

PACE_EVERY = 5.0
"""Seconds between updates of a run's pace."""
NARROW = 56
"""Width below which a run shows only its name, progress and time left."""
OPENS_CELLS = len("! opens all") + 4
"""Width of the key on the right, including a piece of the line before it."""


class AttentionSection(Section):
    """Findings, most severe first, one line each, as many as there are rows."""

    section_name = "Attention"

    def __init__(self, view: View) -> None:
        super().__init__(view, id="attention")

    def keys_of_rows(self) -> Sequence[Hashable]:
        return range(self._visible)

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        return ()

    def row_line(self, index: int, cells: int) -> Line:
        groups = self._groups()[: self._visible]
        subject = overview_rows.subject_cells(groups, index, cells)
        return overview_rows.finding_line(groups[index], cells, self.left, subject)

    def detail(self) -> Line:
        view, groups = self.view, self._groups()
        room = self.cells - 2 * self.left - len("Attention") - 5
        if view.age > 0:
            suffix = "; last seen:" if groups else ""
            long_form = f"the current state is unknown{suffix}"
            short_form = f"unknown{suffix}" if suffix else "state unknown"
            return [Segment(long_form if len(long_form) <= room else short_form, theme.WARN)]
        if not groups and view.is_loading:  # rules also need the last minutes, which are still loading
            return [Segment(READING_HISTORY, theme.DIM)]
        if not groups:
            unknown = view.unknown_values()
            text = nothing_found(unknown).rstrip(".").lower() if unknown else "nothing needs attention"
            forms = text, "nothing found in the available data", "none in available data"
            sentence = next((form for form in forms if len(form) <= room), forms[-1])
            return [Segment(sentence + self._note_count(room - len(sentence)), theme.DIM)]
        visible = self._visible
        text = f"{visible} of {len(groups)}" if 0 < visible < len(groups) else str(len(groups))
        return [Segment(text + self._note_count(room - len(text)), theme.DIM)]

    def draw(self, cells: int, height: int) -> list[Line]:
        self.height = height
        count = len(self._groups())
        opens_more = self._visible < count or bool(count and self.view.findings.notes())
        self.opens = ("!", "opens all" if opens_more else "opens") if count or self.view.findings.notes() else ("", "")
        return super().draw(cells, height)

    def _note_count(self, room: int) -> str:
        """Return the number of informational findings, if there is room."""
        count = len(self.view.findings.notes())
        text = f"  ·  {count} more to note" if count else ""
        return text if len(text) <= room - OPENS_CELLS else ""

    @property
    def _visible(self) -> int:
        return min(max(0, self.height - 1), len(self._groups()))

    def _groups(self) -> list[FindingGroup]:
        return self.view.findings.groups()


class RunSection(Section):
    """Runs of the frame on screen; in a single row, as many short descriptions as fit."""

    section_name = "Runs"
    opens = ("4", "all runs")

    def __init__(self, view: View) -> None:
        super().__init__(view, id="runs")
        self._paces: Cache[RecentPace] = Cache()
        self._empty: frozenset[str] | None = None
        """As in `ProcessSection`."""

    def forget(self) -> None:
        """Reset for frames of another source."""
        self._empty = None

    @property
    def selected(self) -> Hashable:
        return self.view.selected_run

    def select_key(self, key: Hashable) -> None:
        self.view.selected_run = str(key)

    def keys_of_rows(self) -> Sequence[Hashable]:
        return [ranks.first.id for ranks in self.view.ranks]

    def row(self, index: int) -> Row:
        view, ranks = self.view, self.view.ranks[index]
        labels = {sample.device.uuid: sample.device.label for sample in view.samples}
        bar = next((item.column.cells for item in self.placed if item.column.key == "progress"), 0)
        run_progress = progress(ranks, view.epochs, view.now, view.monotonic_ns)
        if view.age > 0:  # with outdated data it is unknown whether the run is active
            run_progress = run_progress._replace(left=NAN)
        pace = units.pace(self._pace(ranks).rate, units.pace_decimals(self._pace(item).rate for item in view.ranks))
        row = overview_rows.run_row(
            ranks, run_progress, numbers(ranks.gpus, labels), now=view.now, bar_cells=bar, pace=pace,
            change=self._change(ranks),
        )  # fmt: skip
        return placed_cells(row, self.placed)

    def _change(self, ranks: Ranks) -> float:
        """Return the change of the run's loss from the previous epoch, whose final value only the ledger has."""
        view, metrics, slowest = self.view, ranks.metrics, ranks.slowest
        name = overview_rows.loss_name(metrics)
        if not name or not self._has_column("change"):
            return NAN
        # The values belong to the epoch of the ranks that still run, not of a first rank that died earlier.
        run = ranks.first._replace(metrics=metrics, epoch=max(ranks.first.epoch, slowest.epoch))
        may_be_recorded = slowest.state is RunState.RUNNING and not view.is_loading and are_recorded(view)

        def ledger_value(epoch: int) -> float:
            ended = view.ledger_runs.ended_epoch(run.id, epoch).result if may_be_recorded else None
            is_shown = ended is not None and is_on_screen(ended.run, run, view)
            return ended.metrics.get(name, NAN) if ended is not None and is_shown else NAN

        return view.logged.change(run, name, ledger_value)

    def _pace(self, ranks: Ranks) -> RecentPace:
        """Return the speed of an active run."""
        view, slowest = self.view, ranks.slowest
        if ranks.state is not RunState.RUNNING:
            return RecentPace()
        return self._paces.get(
            slowest.key, (slowest.epoch, slowest.phase, view.now // PACE_EVERY, view.is_loading),
            lambda: recent_pace(view.epochs, slowest.key, view.now),
        )  # fmt: skip

    @property
    def has_heading(self) -> bool:
        return super().has_heading and self.cells >= NARROW

    def _has_column(self, key: str) -> bool:
        return any(placed.column.key == key for placed in self.placed)

    def detail(self) -> Line:
        view = self.view
        running = sum(ranks.state is RunState.RUNNING for ranks in view.ranks)
        ended = len(view.ranks) - running
        parts = [f"{running} {view.running_text}"] * (running > 0) + [f"{ended} over"] * (ended > 0)
        frame = view.frame
        if frame is not None and frame.dropped_runs:
            parts.append(f"and {frame.dropped_runs} more")
        has_pace = self._has_column("pace")
        durations = [pace.over for ranks in view.ranks if is_known((pace := self._pace(ranks)).rate)]
        if has_pace and durations:  # the row of an epoch is the mean of that epoch alone
            return [Segment(f"{', '.join(parts)}  ·  steps/s over ≥ {int(min(OVER, *durations))} s", theme.DIM)]
        return [Segment(", ".join(parts), theme.DIM)] if parts else []

    def empty_text(self) -> str:
        view = self.view
        if view.frame is None:
            return view.freshness.text
        if not view.has_processes:
            return NO_RUN_DATA
        return view.no_runs_text

    def draw(self, cells: int, height: int) -> list[Line]:
        if height != 1 or not self.view.ranks:
            return super().draw(cells, height)
        self.cells, self.height, self.keys, self.on_screen = cells, height, self.keys_of_rows(), range(0)
        return [self._brief()]

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        columns = RUN_COLUMNS if cells >= NARROW else NARROW_RUN_COLUMNS
        empty = overview_rows.empty_run_columns(self.view.ranks)
        self._empty = empty if self._empty is None else self._empty & empty
        return fit_columns(columns, self.left + (cells >= NARROW), cells - self.left, empty=self._empty)

    def _brief(self) -> Line:
        """Return the runs in one line, with a count of the runs that do not fit."""
        view, end = self.view, self.cells - self.left
        line: Line = [
            Segment(" " * self.left),
            Segment("Runs", theme.STRONG),
            Segment(f" {len(view.ranks)}", theme.DIM),
        ]
        for index, ranks in enumerate(view.ranks):
            brief = overview_rows.run_brief(ranks, progress(ranks, view.epochs, view.now, view.monotonic_ns))
            remaining = len(view.ranks) - index
            if length(line) + 2 + length(brief) + (4 if remaining > 1 else 0) > end:
                return cut([*line, Segment(f"  +{remaining}", theme.TITLE)], end)
            line += [Segment("  "), *brief]
        return line


class ProcessSection(Section):
    """Processes on the GPUs, largest first."""

    section_name = "Processes"
    opens = ("3", "sort, filter, end")

    def __init__(self, view: View) -> None:
        super().__init__(view, id="processes")
        self._sorted_frame: Frame | None = None
        self._ordered: list[Process] = []
        self._keys: list[Hashable] = []
        """Keys of the processes in `_ordered`."""
        self._sizes: list[float] = []
        """Known GPU memory sizes, for sorting."""
        self._empty: frozenset[str] | None = None
        """Keys of columns for which no process has or had a value; a column is not removed when its values
        disappear.
        """

    def forget(self) -> None:
        """Reset for frames of another source."""
        self._empty = None

    @property
    def selected(self) -> Hashable:
        return self.view.selected_process

    def select_key(self, key: Hashable) -> None:
        self.view.selected_process = key  # type: ignore[assignment]

    def keys_of_rows(self) -> Sequence[Hashable]:
        self._order()
        return self._keys

    def draw(self, cells: int, height: int) -> list[Line]:
        self.opens = "3", "sort, filter, end" if self.view.processes else "opens"
        return super().draw(cells, height)

    def row(self, index: int) -> Row:
        return placed_cells(overview_rows.process_row(self._ordered[index], self.view.process_facts()), self.placed)

    def detail(self) -> Line:
        view, frame = self.view, self.view.frame
        is_known = (
            frame is not None
            and view.has_processes
            and (bool(view.processes) or (process_head.are_processes_known(view.samples) and not view.age > 0))
        )
        if not is_known:
            return [Segment(units.MISSING, theme.DIM)]
        dropped = f" and {frame.dropped} more" if frame is not None and frame.dropped else ""
        notice = f"  {safe(view.origin.notice)}" if view.origin.notice and view.processes else ""
        count = f"{len(view.processes)}{dropped}" + (" by memory" if view.processes else "")
        room = self.cells - 2 * self.left - 16
        unknown = process_head.unknown_text(view.samples, view.freshness.frame_age) if view.processes else ""
        warning = [Segment(f"  {unknown}", theme.WARN)] if unknown else []
        return cut([Segment(count, theme.DIM), *warning, Segment(notice, theme.DIM)], room)

    def empty_text(self) -> str:
        view = self.view
        if view.frame is None:
            return view.freshness.text
        if not view.has_processes:
            return NO_PROCESS_DATA
        last_time = units.clock(view.now) if view.age > 0 else ""
        text = process_head.empty_text(view.samples, view.origin.problem, last_time)
        return f"{text}. {safe(view.origin.notice)}" if view.origin.notice else text

    def left_out(self) -> str:
        sizes = _sizes(self._ordered[self.on_screen.start : self.on_screen.stop])
        hidden = sum(self._sizes) - sum(sizes)
        memory = f" with {units.gibibytes(hidden)} GiB" if len(self._sizes) > len(sizes) else ""
        return f"and {len(self._ordered) - len(self.on_screen)} more{memory}"

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        return fit_columns(PROCESS_COLUMNS, self.left + 1, cells - self.left, empty=self._empty or frozenset())

    def _order(self) -> None:
        view = self.view
        if self._sorted_frame is view.frame:
            return
        self._sorted_frame = view.frame
        empty = overview_rows.empty_process_columns(view.processes)
        self._empty = empty if self._empty is None else self._empty & empty
        positions = view.process_facts().positions
        self._ordered = sorted(
            view.processes,
            key=lambda process: (
                -(process.memory_used if process.memory_used >= 0 else 0.0),
                positions.get(process.uuid, len(positions)),
                process.pid,
            ),
        )  # fmt: skip
        self._keys = [process_head.row_key(process) for process in self._ordered]
        self._sizes = _sizes(self._ordered)


def _sizes(processes: Sequence[Process]) -> list[float]:
    return [process.memory_used for process in processes if is_known(process.memory_used)]
