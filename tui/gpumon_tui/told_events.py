"""Events as all parts of the view tell them: of the log, and of the frames since the view began."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon_tui.freshness import is_of_daemon
from gpumon_tui.renderables.event_rows import EventRow, all_rows
from gpumon_tui.view import View

if TYPE_CHECKING:
    from gpumon.events.event import Occurrence
    from gpumon.events.query import LoggedEvent


class ToldEvents(NamedTuple):
    """The content of the rows of events."""

    logged: Sequence[LoggedEvent]
    seen: Sequence[Occurrence]
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


def told_events(view: View, logged: Sequence[LoggedEvent], seen: Sequence[Occurrence]) -> ToldEvents:
    """Return the events that the view knows.

    GPUs keep the numbers that they had where no frame tells of them any more, as when the driver is gone. What goes on
    by the log does so now only while frames come from the daemon that writes it.
    """
    happened = view.happened
    is_of_now = is_of_daemon(view.state) and not view.age > 0
    runs = {ranks.first.id: ranks.gpus for ranks in view.ranks}
    return ToldEvents(logged, seen, happened.labels, is_of_now, view.now, happened.dated, runs)
