"""Epochs of the selected run and recent events in the overview, from ledgers and frames."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.analysis.progress import steps_per_second_in
from gpumon.analysis.ranks import Ranks
from gpumon.analysis.run_epochs import EpochSpan
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.frame import Frame, Run, RunState
from gpumon.model.origin import Capability
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import Query
from gpumon_tui import theme
from gpumon_tui.background_queries import ACTIVE_VALID_FOR
from gpumon_tui.cache import Cache
from gpumon_tui.data.run_ledger import FRESH
from gpumon_tui.render import overview_rows
from gpumon_tui.render.event_rows import EventRow
from gpumon_tui.render.overview_rows import EpochLine, loss_name
from gpumon_tui.render.run_detail import tick_note
from gpumon_tui.render.table import Cell, PlacedColumn, Row, TableColumn, fit_columns, placed_cells
from gpumon_tui.render.text_width import Line, fit, safe
from gpumon_tui.state import View
from gpumon_tui.widgets.event_table import EventSource
from gpumon_tui.widgets.live_table import Section

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunRow
    from gpumon_tui.data.run_rows import OpenRun


_SAME_BEGIN = 1.0
"""Tolerance in seconds between the start times of a run in frames and in its ledger."""


def are_recorded(view: View) -> bool:
    """Whether a ledger stores the runs on screen; for a recording, only if this process plays it."""
    return Capability.NOW in view.origin.capabilities or view.player is not None


def is_on_screen(row: RunRow, run: Run, view: View) -> bool:
    """Whether a run of a ledger is the given run; the id alone may be ambiguous."""
    is_played = Capability.NOW not in view.origin.capabilities
    return (is_played or row.label == view.origin.label) and abs(row.started - run.started) <= _SAME_BEGIN


READ_EVERY = 5.0
"""Seconds between updates of an active epoch."""
MAX_AWAITED = 16
"""Number of newest epochs checked for an end that the ledger does not contain yet."""
NAME_CELLS = 28
"""Maximum width of the run name."""
METRICS = ("gpu.utilization", "gpu.power")
_LEDGER_COLUMNS = ("wait_share", "idle_share")
"""Columns of an active epoch for which the ledger has better values than the frames."""
EVENT_COLUMNS = (
    TableColumn("", 1, keep=8), TableColumn("when", 8, keep=9), TableColumn("what", 19, keep=10),
    TableColumn("GPU", 8, keep=7), TableColumn("", 0, keep=6, minimum=10), TableColumn("took", 15, right=True, keep=5),
)  # fmt: skip


class _EpochRow(NamedTuple):
    """An epoch from frames or ledger.

    Its logged values are not formatted yet, because decimals depend on the surrounding rows.
    """

    line: EpochLine
    metrics: Mapping[str, float]


class EpochSection(Section):
    """Epochs of the selected run, newest first: from the ledger if possible, otherwise from frames."""

    section_name = "Epochs"
    opens = ("4", "table")

    def __init__(self, view: View, *, names_run: bool = True) -> None:
        super().__init__(view, id="epochs")
        self.names_run = names_run
        """Whether to show the run's name because nothing nearby does; the selected GPU may belong to another run, or
        none.
        """
        self._ranks: Ranks | None = None
        self._live_count = 0
        """Number of newest epochs taken from frames; the others are rows of the ledger."""
        self._ledger_count = 0
        """Number of ledger rows below them."""
        self._epoch_lines: dict[int, EpochLine] = {}
        """Rows built so far: the visible ones, and as many above and below for common units and decimals."""
        self._name = ""
        self._metrics: Sequence[str] = ()
        self._columns: tuple[TableColumn, ...] = ()
        self._largest: Mapping[str, float] = {}
        self._inputs: tuple[Frame | None, str, bool] = None, "", True
        self._opened: OpenRun | None = None
        self._awaited: tuple[str, int] = "", -1
        """Run and epoch that has ended according to frames, but not yet in the ledger."""
        self._live_lines: Cache[EpochLine] = Cache()

    def many(self) -> int:
        """Return the number of epochs."""
        return len(self.keys_of_rows())

    def keys_of_rows(self) -> Sequence[Hashable]:
        view = self.view
        ranks = next((candidate for candidate in view.ranks if candidate.first.id == view.selected_run), None)
        opened = self._ledger_run(ranks) if ranks is not None and not view.is_loading else None
        inputs = view.frame, view.selected_run, view.is_loading
        if self._inputs != inputs or view.is_loading or opened is not self._opened:
            self._inputs, self._opened = inputs, opened
            self._count(ranks, opened)
        return range(self._live_count + self._ledger_count)

    def _count(self, ranks: Ranks | None, opened: OpenRun | None) -> None:
        """Determine the available epochs without building rows."""
        self._ranks, self._ledger_count, self._epoch_lines = ranks, 0, {}
        self._name = ranks.first.name if ranks is not None else ""
        if ranks is None or self.view.is_loading:  # with half of the frames loaded, an old epoch would look active
            self._live_count = 0
            return
        key, epochs = ranks.first.key, self.view.epochs
        if opened is None:
            loss = loss_name(ranks.metrics)
            self._metrics = (loss,) if loss else ()
            self._live_count = epochs.epoch_count(key)
            return
        last_row = opened.rows[-1]
        self._metrics = opened.metrics
        self._live_count = epochs.count_above(key, last_row.summary.epoch - last_row.goes_on)
        is_in_both = self._live_count > 0 and self._span(self._live_count - 1)[1].epoch == last_row.summary.epoch
        self._ledger_count = len(opened.rows) - is_in_both
        self._await_end(ranks)

    def draw(self, cells: int, height: int) -> list[Line]:
        if height > 0:
            top = max(0, min(self.top, self.many() - 1))
            self._build_rows(range(max(0, top - height), min(self.many(), top + 2 * height)))
        return super().draw(cells, height)

    def _build_rows(self, indexes: range) -> None:
        """Build rows, and choose columns by their content."""
        if len(self._epoch_lines) != len(indexes) or any(index not in self._epoch_lines for index in indexes):
            lines = _format_logged([self._epoch_row(index) for index in indexes], self._metrics)
            self._epoch_lines = dict(zip(indexes, lines, strict=True))
            self._live_lines.keep({line.title for line in lines})
        self._columns = overview_rows.columns(list(self._epoch_lines.values()), self._metrics)
        self._largest = overview_rows.largest(self._epoch_lines.values())

    def row(self, index: int) -> Row:
        if index not in self._epoch_lines:  # scrolled beyond the rows built so far
            self._epoch_lines[index] = _format_logged([self._epoch_row(index)], self._metrics)[0]
        return placed_cells(overview_rows.texts(self._epoch_lines[index], self._columns, self._largest), self.placed)

    def detail(self) -> Line:
        if not self.keys:
            return []
        text = tick_note(self._opened) if self._opened is not None else ""
        text = "newest first" + (f"  ·  {text}" if text else "")
        if self.names_run:
            text = f"of {fit(safe(self._name), NAME_CELLS).rstrip()}  ·  {text}"
        return [Segment(text, theme.DIM)]

    def empty_text(self) -> str:
        if self.view.is_loading:
            return "loading epochs …"
        return "no epoch has started" if self.view.ranks else self.view.no_runs_text

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        return fit_columns(self._columns, self.left + 1, cells - self.left)

    def _ledger_run(self, ranks: Ranks) -> OpenRun | None:
        view, run_id = self.view, ranks.first.id
        if not are_recorded(view):
            return None
        valid_for = FRESH if run_id == self._awaited[0] else ACTIVE_VALID_FOR
        is_over = ranks.state is not RunState.RUNNING
        opened = view.ledger_runs.opened(run_id, is_over=is_over, valid_for=valid_for).result
        if opened is None or opened.is_by_steps or not opened.rows:
            return None
        return opened if is_on_screen(opened.record.run, ranks.first, view) else None

    def _epoch_row(self, index: int) -> _EpochRow:
        """Return the epoch at an index, newest first: epochs from frames, then epochs of the ledger.

        The ledger lags some seconds behind. An ended epoch is read from frames until the ledger has it, with the
        driver's own samples.
        """
        opened = self._opened
        if opened is not None and index >= self._live_count:
            row = opened.rows[self._ledger_count - 1 - (index - self._live_count)]
            return _EpochRow(overview_rows.from_stretch(row), row.summary.metrics)
        epoch_row = self._live(index)
        if opened is None:
            return epoch_row
        line = (
            epoch_row.line
            if epoch_row.line.goes_on
            else epoch_row.line._replace(signs={"utilization_mean": units.ABOUT})
        )
        if line.goes_on and line.title == opened.rows[-1].title:
            # The ledger has the best values of waiting and idle time, and the opened run shows the same.
            ledger = overview_rows.from_stretch(opened.rows[-1]).values
            ledger_values = {
                key: ledger[key] for key in _LEDGER_COLUMNS if is_known(ledger[key]) or key not in line.values
            }
            line = line._replace(values={**line.values, **ledger_values})
        return epoch_row._replace(line=line)

    def _await_end(self, ranks: Ranks) -> None:
        """Refresh the ledger for an ended epoch, because only the ledger has its final values."""
        newest = self.view.epochs.epoch_spans(
            ranks.first.key, self.view.now, slice(-min(self._live_count, MAX_AWAITED), None)
        ) if self._live_count else []  # fmt: skip
        ended = [span for span in newest if span.finished and span.end - span.begin >= ACTIVE_VALID_FOR]
        awaited = (ranks.first.id, ended[-1].epoch) if ended else ("", -1)
        if ended and awaited != self._awaited:
            self.view.ledger_runs.expire(ranks.first.id)
        self._awaited = awaited

    def _live(self, index: int) -> _EpochRow:
        """Return an epoch from frames; index 0 is the newest."""
        view, ranks = self.view, self._ranks
        assert ranks is not None
        previous, span = self._span(index)
        version = span.end if span.finished else view.now // READ_EVERY
        inputs = ranks.first.key, version, view.is_loading, ranks.gpus
        line = self._live_lines.get(f"e{span.epoch}", inputs, partial(self._line, ranks, span, previous))
        seconds = line.values["seconds"] if span.finished else span.end - span.begin
        line = line._replace(values={**line.values, "seconds": seconds})
        return _EpochRow(line, view.logged.values(ranks.first.id, span.epoch))

    def _span(self, index: int) -> tuple[EpochSpan | None, EpochSpan]:
        """Return an epoch from frames and the previous one, or None; index 0 is the newest."""
        assert self._ranks is not None
        epochs, key = self.view.epochs, self._ranks.first.key
        position = epochs.epoch_count(key) - 1 - index
        *previous, span = epochs.epoch_spans(key, self.view.now, slice(max(0, position - 1), position + 1))
        return (previous[0] if previous else None), span

    def _line(self, ranks: Ranks, span: EpochSpan, previous: EpochSpan | None) -> EpochLine:
        """Return a row without logged values."""
        view, seconds = self.view, span.end - span.begin
        is_running = ranks.state is RunState.RUNNING
        change = NAN
        if previous is not None and previous.finished and span.finished and previous.end > previous.begin:
            change = seconds / (previous.end - previous.begin) - 1
        utilization = power = NAN
        if span.begin >= view.history.begin - view.interval and seconds >= view.interval:
            grid = Grid(0, seconds, 1, phase=span.begin)
            results = [view.history.query(Query(uuid, METRICS, span.begin, span.end, grid=grid)) for uuid in ranks.gpus]
            shares, watts = ([result[name].mean[0] for result in results] for name in METRICS)
            utilization = sum(shares) / len(shares) if shares else NAN
            power = sum(watts) if watts else NAN
        pace = steps_per_second_in(view.epochs, ranks.first.key, span.begin, span.end, is_open=not span.finished)
        is_active = not span.finished and is_running
        wait = view.epochs.data_wait_in_epoch([run.key for run in ranks.all], span.end).share if is_active else NAN
        values = {
            "seconds": seconds, "steps_per_second": pace, "wait_share": wait, "utilization_mean": utilization,
            "energy": power * seconds,
        }  # fmt: skip
        return EpochLine(f"e{span.epoch}", values, change, goes_on=is_active)


def _format_logged(rows: Sequence[_EpochRow], names: Sequence[str]) -> list[EpochLine]:
    """Format the logged metrics `names` with common decimals."""
    columns = []
    for name in names:
        texts = iter(units.logged_column([row.metrics[name] for row in rows if name in row.metrics]))
        columns.append([next(texts) if name in row.metrics else "" for row in rows])
    return [row.line._replace(logged=[column[index] for column in columns]) for index, row in enumerate(rows)]


class EventSection(Section):
    """Section with the newest events first, from the event log and from frames received since the view started."""

    section_name = "Events"
    opens = ("5", "all")

    def __init__(self, view: View) -> None:
        super().__init__(view, id="events")
        self._source = EventSource(view)
        self._event_rows: Sequence[EventRow] = ()

    def keys_of_rows(self) -> Sequence[Hashable]:
        view, events = self.view, self.view.events
        is_live = Capability.LIVE in view.origin.capabilities
        logged = (events.logged(view.history_path).result if is_live else None) or ()
        self._event_rows = self._source.get(logged, tuple(events.recorded)).rows
        return range(len(self._event_rows))

    def row(self, index: int) -> Row:
        event_row = self._event_rows[index]
        glyph, role = event_row.mark
        ink = theme.ink(role, bold=role in ("crit", "warn"))
        row = (
            Cell(glyph, ink), Cell(units.clock(event_row.time), theme.DIM), Cell(safe(event_row.event.kind.label), ink),
            Cell(event_row.gpu, theme.STRONG), Cell(event_row.text), Cell(event_row.duration, theme.DIM),
        )  # fmt: skip
        return placed_cells(row, self.placed)

    def detail(self) -> Line:
        return [Segment(str(len(self._event_rows)), theme.DIM)] if self._event_rows else []

    def empty_text(self) -> str:
        return "loading events …" if self.view.is_loading else "nothing has happened since this view began"

    @property
    def has_heading(self) -> bool:
        return False

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        return fit_columns(EVENT_COLUMNS, self.left, cells - self.left)
