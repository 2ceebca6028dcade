"""The tables of runs and of the epochs of one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import NamedTuple

from gpumon.analysis.epochs import StepSpan, Stretch
from gpumon.analysis.ranks import Ranks
from gpumon.diagnosis.finding import Finding
from gpumon.diagnosis.rank_rules import notes
from gpumon.frame import NAN, Frame, Run, RunState
from gpumon_tui.asked import OFTEN
from gpumon_tui.memo import Memo
from gpumon_tui.renderables import epochs, runs
from gpumon_tui.renderables.table import Row, TableColumn, table
from gpumon_tui.renderables.text_width import Line, safe
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.table import LazyRows, Table

WHOLE = -1
"""The number of a whole run among its rows."""


class RunKey(NamedTuple):
    """A row: a run, or one of the rows below it."""

    id: str
    rank: str = ""
    """Key of the rank's own `Run`."""
    note: int = -1


class Entry(NamedTuple):
    """A run with what is below it when it is open."""

    ranks: Ranks
    notes: list[Finding]
    below: list[RunKey]

    @property
    def id(self) -> str:
        """Of the run."""
        return self.ranks.first.id


class RunTable(Table):
    """Table of the current trainings and their progress."""

    title = "Runs"

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """The columns for the states of its runs."""
        return runs.columns(entry.ranks for entry in self._all())

    @property
    def empty(self) -> str:
        """The text in place of rows."""
        if self.view.frame is None:
            return self.view.freshness.text
        if not self.view.tells_processes:
            return "this recording has no training data"
        return "no training reports epochs: see gpumon.run"

    @property
    def left_out(self) -> int:
        """Trainings that had no room in the frame."""
        return self.view.frame.dropped_runs if self.view.frame else 0

    @property
    def count(self) -> int:
        """Runs, whatever is open below them."""
        return len(self._all())

    def __init__(self, view: View, *, id: str) -> None:
        super().__init__(view, id=id)
        self._opened: dict[str, bool] = {}
        """Runs that were opened or closed by hand; the others are open as long as all have room."""
        self._entries: list[Entry] = []
        self._entries_of: tuple[Frame | None, bool] = (None, False)

    def rows(self) -> tuple[list[Hashable], LazyRows]:
        view, entries = self.view, self._all()
        labels = {sample.device.uuid: sample.device.label for sample in view.samples}
        all_fit = sum(self.room_wanted()) + len(entries) <= self.page
        has_below = any(entry.below for entry in entries)
        keys: list[Hashable] = []
        shown: list[tuple[Entry, RunKey, bool]] = []
        for entry in entries:
            opened = self._opened.get(entry.id, all_fit) and bool(entry.below)
            for key in (RunKey(entry.id), *(entry.below if opened else ())):
                keys.append(key)
                shown.append((entry, key, opened))

        def row(place: int) -> Row:
            (ranks, notes, below), key, opened = shown[place]
            if key.rank:
                run = next(run for run in ranks.all if run.key == key.rank)
                return runs.rank_row(run, ranks.first, view.processes, labels)
            if key.note >= 0:
                return runs.note_row(notes[key.note])
            lead = runs.INDENT if not below else runs.OPEN if opened else runs.CLOSED
            told = () if opened else notes
            return runs.row(
                ranks=ranks,
                epochs=view.epochs,
                processes=view.processes,
                labels=labels,
                now=view.now,
                lead=lead if has_below else "",
                told=told,
            )

        return keys, LazyRows(len(keys), row)

    def room_wanted(self) -> tuple[int, int]:
        """Rows below those of the runs: of runs that nobody has opened or closed, and of those opened by hand."""
        free = asked = 0
        for entry in self._all():
            opened = self._opened.get(entry.id)
            free += len(entry.below) if opened is None else 0
            asked += len(entry.below) if opened else 0
        return free, asked

    def toggle(self) -> None:
        """Open or close the run under the cursor, and stay on it."""
        self.follow()  # the table may have come on screen just now
        if self.run:
            own = RunKey(self.run)
            is_open = sum(isinstance(key, RunKey) and key.id == own.id for key in self._keys) > 1
            self._opened[own.id] = not is_open
            self.cursor = self._keys.index(own)

    def follow(self) -> None:
        """Find the run under the cursor again; charts show its epochs, also where the table is not on screen."""
        self._follow(self.rows()[0])
        self.view.selected_run = self.run

    def _all(self) -> list[Entry]:
        """The runs of the frame on screen."""
        view = self.view
        if self._entries_of != (view.frame, view.filling):
            self._entries = [self._entry(ranks) for ranks in view.ranks]
            self._entries_of = (view.frame, view.filling)
        return self._entries

    def _entry(self, ranks: Ranks) -> Entry:
        told = notes(ranks, self.view.epochs.drawn([run.key for run in ranks.all]).faults)
        below = [RunKey(ranks.first.id, note=place) for place in range(len(told))]
        if ranks.is_distributed:
            below += [RunKey(ranks.first.id, rank=run.key) for run in ranks.all]
        return Entry(ranks, told, below)

    @property
    def run(self) -> str:
        """The id of the run under the cursor, or empty."""
        return self.key.id if isinstance(self.key, RunKey) else ""


class EpochTable(Lines):
    """The epochs of the selected run and the work of its GPUs in each, the newest first."""

    def __init__(self, view: View, of: RunTable) -> None:
        super().__init__(view, id="epochs")
        self.of = of
        self._known: dict[tuple[str, int, float], epochs.Summary] = {}
        self._kept: dict[tuple[str, int, float], epochs.Summary] = {}
        self._long: Memo[epochs.Summary] = Memo()

    def lines(self) -> list[Line]:
        view = self.view
        found = next((ranks for ranks in view.ranks if ranks.first.id == self.of.run), None)
        if found is None:
            return []
        run, uuids = found.first, found.gpus
        stretches = view.epochs.stretches(run.key, view.now)[::-1]
        steps = [] if stretches else view.epochs.steps(run.key, view.now)[::-1]
        has_epochs = bool(stretches or run.epochs)
        self._kept, self._known = self._known, {}
        room = max(0, self.size.height - 2)
        rows = self._beside(run, uuids)
        # A run's own rows stand first; of its epochs at least two thirds of the room are left to them.
        rows = rows[: max(1, room // 3)] if stretches or steps else rows
        left = max(0, room - len(rows))
        rows += [epochs.row(one, self._summary(one.epoch, one, uuids)) for one in stretches[:left]]
        rows += [epochs.steps_row(one, self._summary(one.first, one, uuids)) for one in steps[:left]]
        title = f"{'Epochs' if has_epochs else 'Steps' if steps else 'Whole run'} of {safe(run.name)}"
        return table(
            title=title,
            columns=epochs.columns(bool(uuids), by_steps=not has_epochs),
            rows=rows,
            cursor=-1,
            top=0,
            cells=self.size.width,
            height=self.size.height,
            active=False,
            empty="no epoch has started",
            count=len(stretches) or len(steps),
        )

    def _summary(self, number: int, stretch: Stretch | StepSpan, uuids: Sequence[str]) -> epochs.Summary:
        """Readings in a stretch; those of one that is over are kept."""
        view, key = self.view, (self.of.run, number, stretch.end)
        found = self._kept.get(key) or epochs.summary(view.history, uuids, stretch.begin, stretch.end)
        if stretch.finished and not view.filling:
            self._known[key] = found
        return found

    def _beside(self, run: Run, uuids: Sequence[str]) -> list[Row]:
        """The whole run, all between its epochs, and the phases of that: as the ledger tells of them.

        Of a run that is in no ledger, the whole alone is known, as far as history reaches.
        """
        view = self.view
        is_over = run.state is not RunState.RUNNING
        kept = view.kept.outside(run.id).found
        if kept is None or kept.run.label != view.origin.label:  # a replay of a run is not all of it
            whole = Stretch(WHOLE, run.started, run.updated if is_over else view.now, is_over)
            return [epochs.named_row(epochs.ALL, whole, self._whole(whole, uuids))]
        row = partial(epochs.ledger_row, devices=kept.devices, finished=is_over)
        lasted = kept.run.lasted(view.now)
        return [
            row(epochs.ALL, kept.total, seconds=lasted, begin=kept.run.started),
            *(row(title, part, seconds=part.seconds, begin=NAN) for title, part in kept.rows),
        ]

    def _whole(self, whole: Stretch, uuids: Sequence[str]) -> epochs.Summary:
        """Readings in a whole run; unknown where history does not reach back to its begin."""
        if not whole.begin >= self.view.history.begin - self.view.state.interval:
            return epochs.Summary(NAN, NAN, NAN)
        # Read every ten seconds: of all of a run the mean of a second more is the same.
        read_until = whole.end if whole.finished else max(whole.begin, whole.end // OFTEN * OFTEN)
        return self._long.get(
            (self.of.run, tuple(uuids)), (read_until, self.view.filling),
            lambda: epochs.summary(self.view.history, uuids, whole.begin, whole.end),
        )  # fmt: skip
