"""Tables of events, from the log and from the frames since the view started; shared by all parts of the view."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon_tui.freshness import is_of_daemon
from gpumon_tui.render.event_rows import EventRow, group_counts, merged_rows
from gpumon_tui.state import View

if TYPE_CHECKING:
    from gpumon.model.events import Event
    from gpumon.storage.events.query import LoggedEvent


AT_ONCE = 500
"""Maximum number of events whose rows are built immediately; larger tables are built in the background thread."""


class EventTable(NamedTuple):
    """Rows of all events, newest first, and the number of rows in each group."""

    rows: Sequence[EventRow] = ()
    counts: Mapping[str, int] = {}


class ToldEvents(NamedTuple):
    """Input of the event rows."""

    logged: Sequence[LoggedEvent]
    seen: Sequence[Event]
    labels: Mapping[str, str]
    is_of_now: bool
    now: float
    dated: int
    runs: Mapping[str, Sequence[str]]
    """UUIDs of the GPUs of each run, by run id."""

    @property
    def shows(self) -> Hashable:
        """Key for caching; equal for equal rows."""
        seen = self.seen
        labels, runs = tuple(self.labels.items()), tuple((run, tuple(uuids)) for run, uuids in self.runs.items())
        return id(self.logged), len(seen), seen[-1:], self.dated, labels, runs, self.is_of_now, self.now // 60

    def rows(self) -> list[EventRow]:
        """Return the rows, newest first."""
        return merged_rows(
            self.logged, self.seen, self.labels, is_of_now=self.is_of_now, now=self.now, runs=self.runs
        )  # fmt: skip

    def table(self) -> EventTable:
        """Return the rows with the counts of the groups."""
        rows = self.rows()
        return EventTable(rows, group_counts(rows))


class EventTables:
    """The table of the view's events. A table of thousands of rows appears with a short delay."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._table = EventTable()
        self._of: tuple[Hashable, object] = None, None
        self._number = 0
        self._asked: tuple[Hashable, tuple[Hashable, object]] | None = None
        """The pending query and the input it is for."""

    def get(self, logged: Sequence[LoggedEvent], seen: Sequence[Event]) -> EventTable:
        """Return the table; the same object while nothing has changed."""
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
    """Return the events known to the view.

    GPUs keep their numbers when frames no longer contain them, for example after the driver has gone. Events open in
    the log count as open only while frames come from the daemon that writes the log.
    """
    happened = view.happened
    is_of_now = is_of_daemon(view.state) and not view.age > 0
    runs = {ranks.first.id: ranks.gpus for ranks in view.ranks}
    return ToldEvents(logged, seen, happened.labels, is_of_now, view.now, happened.dated, runs)
