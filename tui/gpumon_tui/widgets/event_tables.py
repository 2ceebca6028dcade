"""Events as all parts of the view tell them: of the log, and of the frames since the view began."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon_tui.freshness import is_of_daemon
from gpumon_tui.render.event_rows import EventRow, all_rows, group_counts
from gpumon_tui.state import View

if TYPE_CHECKING:
    from gpumon.model.events import Event
    from gpumon.storage.events.query import LoggedEvent


AT_ONCE = 500
"""Events whose rows are made at once; those of more are made in the background thread."""


class EventTable(NamedTuple):
    """Rows of all events, the newest first, and how many of them each group has."""

    rows: Sequence[EventRow] = ()
    counts: Mapping[str, int] = {}


class ToldEvents(NamedTuple):
    """The content of the rows of events."""

    logged: Sequence[LoggedEvent]
    seen: Sequence[Event]
    labels: Mapping[str, str]
    is_of_now: bool
    now: float
    dated: int
    runs: Mapping[str, Sequence[str]]
    """GPUs of runs by id."""

    @property
    def shows(self) -> Hashable:
        """The same for the same rows."""
        seen = self.seen
        labels, runs = tuple(self.labels.items()), tuple((run, tuple(uuids)) for run, uuids in self.runs.items())
        return id(self.logged), len(seen), seen[-1:], self.dated, labels, runs, self.is_of_now, self.now // 60

    def rows(self) -> list[EventRow]:
        """Return them, the newest first."""
        return all_rows(
            self.logged, self.seen, self.labels, is_of_now=self.is_of_now, now=self.now, runs=self.runs
        )  # fmt: skip

    def table(self) -> EventTable:
        """Return the rows with their counts."""
        rows = self.rows()
        return EventTable(rows, group_counts(rows))


class EventTables:
    """The table of the events that the view knows. One of thousands of rows is a moment late."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._table = EventTable()
        self._of: tuple[Hashable, object] = None, None
        self._number = 0
        self._asked: tuple[Hashable, tuple[Hashable, object]] | None = None
        """The question that is not answered yet, and what it is about."""

    def get(self, logged: Sequence[LoggedEvent], seen: Sequence[Event]) -> EventTable:
        """Return the table; the same object while it shows the same."""
        told, asked = told_events(self._view, logged, seen), self._view.kept.asked
        of = told.shows, logged
        if self._asked is not None and (table := asked.known(self._asked[0]).found) is not None:
            self._table, self._of = table, self._asked[1]
            asked.drop(self._asked[0])
            self._asked = None
        if of[0] == self._of[0] and logged is self._of[1]:
            return self._table
        if len(logged) + len(seen) <= AT_ONCE:
            self._table, self._of, self._asked = told.table(), of, None
        elif self._asked is None or not asked.is_pending(self._asked[0]):
            self._number += 1
            question = "event rows", id(self), self._number
            self._asked = question, of
            asked.ask(question, told._replace(labels=dict(told.labels)).table, float("inf"))
        return self._table


def told_events(view: View, logged: Sequence[LoggedEvent], seen: Sequence[Event]) -> ToldEvents:
    """Return the events that the view knows.

    GPUs keep the numbers that they had where no frame tells of them any more, as when the driver is gone. What goes on
    by the log does so now only while frames come from the daemon that writes it.
    """
    happened = view.happened
    is_of_now = is_of_daemon(view.state) and not view.age > 0
    runs = {ranks.first.id: ranks.gpus for ranks in view.ranks}
    return ToldEvents(logged, seen, happened.labels, is_of_now, view.now, happened.dated, runs)
