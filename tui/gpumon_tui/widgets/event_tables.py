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


MAX_IMMEDIATE = 500
"""Maximum number of events whose rows are built immediately; larger tables are built in the background thread."""


class EventTable(NamedTuple):
    """Rows of all events, newest first, and the number of rows in each group."""

    rows: Sequence[EventRow] = ()
    counts: Mapping[str, int] = {}


class EventInput(NamedTuple):
    """Input of the event rows."""

    logged: Sequence[LoggedEvent]
    frame_events: Sequence[Event]
    labels: Mapping[str, str]
    is_of_now: bool
    now: float
    corrected: int
    runs: Mapping[str, Sequence[str]]
    """UUIDs of the GPUs of each run, by run id."""

    @property
    def cache_key(self) -> Hashable:
        """Key for caching; equal for equal rows."""
        frame_events = self.frame_events
        labels, runs = tuple(self.labels.items()), tuple((run, tuple(uuids)) for run, uuids in self.runs.items())
        return (
            id(self.logged),
            len(frame_events),
            frame_events[-1:],
            self.corrected,
            labels,
            runs,
            self.is_of_now,
            self.now // 60,
        )

    def rows(self) -> list[EventRow]:
        """Return the rows, newest first."""
        return merged_rows(
            self.logged, self.frame_events, self.labels, is_of_now=self.is_of_now, now=self.now, runs=self.runs
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
        self._inputs: tuple[Hashable, object] = None, None
        self._number = 0
        self._pending: tuple[Hashable, tuple[Hashable, object]] | None = None
        """The pending query and the input it is for."""

    def get(self, logged: Sequence[LoggedEvent], frame_events: Sequence[Event]) -> EventTable:
        """Return the table; the same object while nothing has changed."""
        event_rows_input, queries = event_input(self._view, logged, frame_events), self._view.ledger_runs.queries
        inputs = event_rows_input.cache_key, logged
        if self._pending is not None and (table := queries.cached(self._pending[0]).result) is not None:
            self._table, self._inputs = table, self._pending[1]
            queries.drop(self._pending[0])
            self._pending = None
        if inputs[0] == self._inputs[0] and logged is self._inputs[1]:
            return self._table
        if len(logged) + len(frame_events) <= MAX_IMMEDIATE:
            self._table, self._inputs, self._pending = event_rows_input.table(), inputs, None
        elif self._pending is None or not queries.is_pending(self._pending[0]):
            self._number += 1
            query = "event rows", id(self), self._number
            self._pending = query, inputs
            queries.get(query, event_rows_input._replace(labels=dict(event_rows_input.labels)).table, float("inf"))
        return self._table


def event_input(view: View, logged: Sequence[LoggedEvent], frame_events: Sequence[Event]) -> EventInput:
    """Return the events of the log and of the frames.

    GPUs keep their numbers when frames no longer contain them, for example after the driver has gone. Events open in
    the log count as open only while frames come from the daemon that writes the log.
    """
    history = view.events
    is_of_now = is_of_daemon(view.state) and not view.age > 0
    runs = {ranks.first.id: ranks.gpus for ranks in view.ranks}
    return EventInput(logged, frame_events, history.labels, is_of_now, view.now, history.corrections, runs)
