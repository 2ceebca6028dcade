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
from gpumon_tui import palette, theme
from gpumon_tui.background import OFTEN
from gpumon_tui.data.run_ledger import FRESH
from gpumon_tui.memo import Memo
from gpumon_tui.render import overview_rows
from gpumon_tui.render.event_rows import EventRow
from gpumon_tui.render.overview_rows import EpochLine, loss_name
from gpumon_tui.render.overview_section import FittedColumn, add_row, fit_columns, headings
from gpumon_tui.render.run_detail import tick_note
from gpumon_tui.render.table import TableColumn
from gpumon_tui.render.text_width import Line, LineBuilder, fit, safe
from gpumon_tui.state import View
from gpumon_tui.widgets.event_tables import EventTables
from gpumon_tui.widgets.section import SectionPicture

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunRow
    from gpumon_tui.data.run_rows import OpenRun


_SAME_BEGIN = 1.0
"""Tolerance in seconds between the start times of a run in frames and in its ledger."""


def are_kept(view: View) -> bool:
    """Whether the runs on screen are stored in a ledger; for recordings, only this process's player does so."""
    return Capability.NOW in view.origin.capabilities or view.player is not None


def is_on_screen(kept: RunRow, run: Run, view: View) -> bool:
    """Whether a run of a ledger is the given run; the id alone may be ambiguous."""
    is_played = Capability.NOW not in view.origin.capabilities
    return (is_played or kept.label == view.origin.label) and abs(kept.started - run.started) <= _SAME_BEGIN


READ_EVERY = 5.0
"""Seconds between updates of an active epoch."""
AWAITED = 16
"""Number of newest epochs checked for an end that the ledger does not contain yet."""
NAME_CELLS = 28
"""Maximum width of the run name."""
METRICS = ("gpu.utilization", "gpu.power")
_OF_LEDGER = ("wait_share", "idle_share")
"""Columns of an active epoch for which the ledger has better values than the frames."""
EVENT_COLUMNS = (
    TableColumn("", 1, keep=8), TableColumn("when", 8, keep=9), TableColumn("what", 19, keep=10),
    TableColumn("GPU", 8, keep=7), TableColumn("", 0, keep=6, least=10), TableColumn("took", 15, right=True, keep=5),
)  # fmt: skip


class _ToldEpoch(NamedTuple):
    """An epoch from frames or ledger.

    Its logged values are not formatted yet, because decimals depend on the surrounding rows.
    """

    line: EpochLine
    metrics: Mapping[str, float]


class EpochPicture(SectionPicture):
    """Epochs of the selected run, newest first: from the ledger if possible, otherwise from frames."""

    name_shown = "Epochs"
    opens = ("4", "table")

    def __init__(self, view: View, *, names_run: bool = True) -> None:
        super().__init__(view)
        self.names_run = names_run
        """Whether to show the run's name because nothing nearby does; the selected GPU may belong to another run, or
        none.
        """
        self._ranks: Ranks | None = None
        self._live_count = 0
        """Number of newest epochs taken from frames; the others are rows of the ledger."""
        self._kept_count = 0
        """Number of ledger rows below them."""
        self._lines: dict[int, EpochLine] = {}
        """Rows built so far: the visible ones, and as many above and below for common units and decimals."""
        self._name = ""
        self._metrics: Sequence[str] = ()
        self._columns: tuple[TableColumn, ...] = ()
        self._largest: Mapping[str, float] = {}
        self._shown: tuple[Frame | None, str, bool] = None, "", True
        self._kept_shown: OpenRun | None = None
        self._awaited: tuple[str, int] = "", -1
        """Run and epoch that has ended according to frames, but not yet in the ledger."""
        self._read: Memo[EpochLine] = Memo()

    def many(self) -> int:
        """Return the number of epochs."""
        return len(self.rows())

    def rows(self) -> Sequence[Hashable]:
        view = self.view
        ranks = next((one for one in view.ranks if one.first.id == view.selected_run), None)
        kept = self._kept(ranks) if ranks is not None and not view.filling else None
        shown = view.frame, view.selected_run, view.filling
        if self._shown != shown or view.filling or kept is not self._kept_shown:
            self._shown, self._kept_shown = shown, kept
            self._count(ranks, kept)
        return range(self._live_count + self._kept_count)

    def _count(self, ranks: Ranks | None, kept: OpenRun | None) -> None:
        """Determine the available epochs without building rows."""
        self._ranks, self._kept_count, self._lines = ranks, 0, {}
        self._name = ranks.first.name if ranks is not None else ""
        if ranks is None or self.view.filling:  # with half of the frames loaded, an old epoch would look active
            self._live_count = 0
            return
        key, epochs = ranks.first.key, self.view.epochs
        if kept is None:
            loss = loss_name(ranks.first)
            self._metrics = (loss,) if loss else ()
            self._live_count = epochs.epoch_count(key)
            return
        last = kept.rows[-1]
        self._metrics = kept.metrics
        self._live_count = epochs.count_above(key, last.summary.epoch - last.goes_on)
        is_told = self._live_count > 0 and self._stretch(self._live_count - 1)[1].epoch == last.summary.epoch
        self._kept_count = len(kept.rows) - is_told
        self._await_end(ranks)

    def lines(self) -> list[Line]:
        height = self.size.height
        if height > 0:
            top = max(0, min(self.top, self.many() - 1))
            self._make(range(max(0, top - height), min(self.many(), top + 2 * height)))
        return super().lines()

    def _make(self, places: range) -> None:
        """Build rows, and choose columns by their content."""
        if len(self._lines) != len(places) or any(place not in self._lines for place in places):
            lines = _in_columns([self._told(place) for place in places], self._metrics)
            self._lines = dict(zip(places, lines, strict=True))
            self._read.keep({line.title for line in lines})
        self._columns = overview_rows.columns(list(self._lines.values()), self._metrics)
        self._largest = overview_rows.largest(self._lines.values())

    def row(self, place: int) -> LineBuilder:
        if place not in self._lines:  # scrolled beyond the rows built so far
            self._lines[place] = _in_columns([self._told(place)], self._metrics)[0]
        row = LineBuilder()
        add_row(row, self._places, overview_rows.texts(self._lines[place], self._columns, self._largest))
        return row

    def heading(self) -> LineBuilder | None:
        return headings(self._places)

    def detail(self) -> Line:
        if not self.keys:
            return []
        told = tick_note(self._kept_shown) if self._kept_shown is not None else ""
        told = "newest first" + (f"  ·  {told}" if told else "")
        if self.names_run:
            told = f"of {fit(safe(self._name), NAME_CELLS).rstrip()}  ·  {told}"
        return [Segment(told, theme.DIM)]

    def empty(self) -> str:
        if self.view.filling:
            return "reading the last frames …"
        return "no epoch has started" if self.view.ranks else self.view.no_runs

    @property
    def _places(self) -> tuple[FittedColumn, ...]:
        return fit_columns(self._columns, self.left + 1, self.size.width - self.left)

    def _kept(self, ranks: Ranks) -> OpenRun | None:
        view, run_id = self.view, ranks.first.id
        if not are_kept(view):
            return None
        good_for = FRESH if run_id == self._awaited[0] else OFTEN
        found = view.kept.opened(run_id, is_over=ranks.state is not RunState.RUNNING, good_for=good_for).found
        if found is None or found.is_by_steps or not found.rows:
            return None
        return found if is_on_screen(found.record.run, ranks.first, view) else None

    def _told(self, place: int) -> _ToldEpoch:
        """Return the epoch at an index, newest first: epochs from frames, then those of the ledger.

        The ledger lags some seconds behind. An ended epoch is read from frames until the ledger has it, with the
        driver's own samples.
        """
        kept = self._kept_shown
        if kept is not None and place >= self._live_count:
            row = kept.rows[self._kept_count - 1 - (place - self._live_count)]
            return _ToldEpoch(overview_rows.from_stretch(row), row.summary.metrics)
        told = self._live(place)
        if kept is None:
            return told
        line = told.line if told.line.goes_on else told.line._replace(signs={"utilization_mean": units.ABOUT})
        if line.goes_on and line.title == kept.rows[-1].title:
            # The ledger has the best values of waiting and idle time, and the opened run shows the same.
            ledger = overview_rows.from_stretch(kept.rows[-1]).values
            best = {key: ledger[key] for key in _OF_LEDGER if is_known(ledger[key]) or key not in line.values}
            line = line._replace(values={**line.values, **best})
        return told._replace(line=line)

    def _await_end(self, ranks: Ranks) -> None:
        """Refresh the ledger for an ended epoch, because only the ledger has its final values."""
        newest = self.view.epochs.epoch_spans(
            ranks.first.key, self.view.now, slice(-min(self._live_count, AWAITED), None)
        ) if self._live_count else []  # fmt: skip
        ended = [one for one in newest if one.finished and one.end - one.begin >= OFTEN]
        awaited = (ranks.first.id, ended[-1].epoch) if ended else ("", -1)
        if ended and awaited != self._awaited:
            self.view.kept.renew(ranks.first.id)
        self._awaited = awaited

    def _live(self, place: int) -> _ToldEpoch:
        """Return an epoch from frames; index 0 is the newest."""
        view, ranks = self.view, self._ranks
        assert ranks is not None
        before, one = self._stretch(place)
        when = one.end if one.finished else view.now // READ_EVERY
        shows = ranks.first.key, when, view.filling, ranks.gpus
        line = self._read.get(f"e{one.epoch}", shows, partial(self._line, ranks, one, before))
        seconds = line.values["seconds"] if one.finished else one.end - one.begin
        line = line._replace(values={**line.values, "seconds": seconds})
        return _ToldEpoch(line, view.logged.values(ranks.first.id, one.epoch))

    def _stretch(self, place: int) -> tuple[EpochSpan | None, EpochSpan]:
        """Return an epoch from frames and the previous one, if known; index 0 is the newest."""
        assert self._ranks is not None
        epochs, key = self.view.epochs, self._ranks.first.key
        at = epochs.epoch_count(key) - 1 - place
        *before, one = epochs.epoch_spans(key, self.view.now, slice(max(0, at - 1), at + 1))
        return (before[0] if before else None), one

    def _line(self, ranks: Ranks, one: EpochSpan, before: EpochSpan | None) -> EpochLine:
        """Return a row without logged values."""
        view, seconds = self.view, one.end - one.begin
        is_on = ranks.state is RunState.RUNNING
        change = NAN
        if before is not None and before.finished and one.finished and before.end > before.begin:
            change = seconds / (before.end - before.begin) - 1
        utilization = power = NAN
        if one.begin >= view.history.begin - view.interval and seconds >= view.interval:
            whole = Grid(0, seconds, 1, phase=one.begin)
            of = [view.history.query(Query(uuid, METRICS, one.begin, one.end, grid=whole)) for uuid in ranks.gpus]
            shares, watts = ([found[name].mean[0] for found in of] for name in METRICS)
            utilization = sum(shares) / len(shares) if shares else NAN
            power = sum(watts) if watts else NAN
        pace = steps_per_second_in(view.epochs, ranks.first.key, one.begin, one.end, is_open=not one.finished)
        goes_on = not one.finished and is_on
        wait = view.epochs.data_wait_in_epoch([run.key for run in ranks.all], one.end).share if goes_on else NAN
        values = {
            "seconds": seconds, "steps_per_second": pace, "wait_share": wait, "utilization_mean": utilization,
            "energy": power * seconds,
        }  # fmt: skip
        return EpochLine(f"e{one.epoch}", values, change, goes_on=goes_on)


def _in_columns(told: Sequence[_ToldEpoch], names: Sequence[str]) -> list[EpochLine]:
    """Format the logged metrics `names` with common decimals."""
    columns = []
    for name in names:
        texts = iter(units.logged_column([one.metrics[name] for one in told if name in one.metrics]))
        columns.append([next(texts) if name in one.metrics else "" for one in told])
    return [one.line._replace(logged=[column[place] for column in columns]) for place, one in enumerate(told)]


class EventPicture(SectionPicture):
    """Events of the log and of the frames since the view started, newest first."""

    name_shown = "Events"
    opens = ("5", "all")

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._tables = EventTables(view)
        self._found: Sequence[EventRow] = ()

    def rows(self) -> Sequence[Hashable]:
        view, happened = self.view, self.view.happened
        is_here = Capability.LIVE in view.origin.capabilities
        logged = (happened.logged(view.history_path).found if is_here else None) or ()
        self._found = self._tables.get(logged, tuple(happened.seen)).rows
        return range(len(self._found))

    def row(self, place: int) -> LineBuilder:
        one = self._found[place]
        glyph, role = one.mark
        row = LineBuilder()
        ink = palette.ink(role, bold=role in ("crit", "warn"))
        add_row(row, self._columns, (
            (glyph, ink), (units.clock(one.time), theme.DIM), (safe(one.event.kind.label), ink),
            (one.gpu, theme.STRONG), (fit(one.words, 200).rstrip(), theme.PLAIN), (one.took, theme.DIM),
        ))  # fmt: skip
        return row

    def detail(self) -> Line:
        return [Segment(str(len(self._found)), theme.DIM)] if self._found else []

    def empty(self) -> str:
        return "reading the last frames …" if self.view.filling else "nothing has happened since this view began"

    @property
    def _columns(self) -> tuple[FittedColumn, ...]:
        return fit_columns(EVENT_COLUMNS, self.left, self.size.width - self.left)
