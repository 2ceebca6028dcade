"""Runs for the pages: what the ledger keeps of them, and what the ring tells of those that go on.

The course of a run that goes on, and what it logged, reach up to now: the ledger's trace is written once a minute, what
is newer comes from the ring.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.epochs import Stretch
from gpumon.errors import GpumonError
from gpumon.frame import TRAINING, RunState
from gpumon.json_value import logged
from gpumon.ranks import ranks_of
from gpumon.runs import document, joined
from gpumon.runs.export_epochs import lines
from gpumon.runs.ledger import Ledgers
from gpumon.runs.report_figures import figure
from gpumon.runs.report_timeline import Timeline, timeline
from gpumon.runs.rows import Listed, Record, Trace
from gpumon_web.course import extended, recent_course, with_newest
from gpumon_web.feed import Feed, shown
from gpumon_web.fleet import run_row
from gpumon_web.series import MOST

LISTED = 500
"""Runs on the list."""
EPOCH = (
    "seconds", "wait", "utilization_mean", "idle_share", "energy", "run_allocated_peak", "memory_used_peak",
    "throttled_share",
)  # fmt: skip
"""What the table of epochs shows."""


class Recent(NamedTuple):
    """A run up to now."""

    course: Timeline
    logged: Timeline
    diverged: Mapping[str, Sequence[tuple[float, float]]] | None = None
    epochs: Sequence[Stretch] = ()
    """Those that the ring knows."""


class Runs:
    """What is known of runs. `ledgers` names the files that may be read; they may come and go."""

    def __init__(self, feed: Feed, ledgers: Callable[[], Sequence[str]], now: Callable[[], float] = time.time) -> None:
        self._feed = feed
        self._ledgers = ledgers
        self._now = now

    def all(self) -> dict[str, Any]:
        """Every run, the newest first, and why those of the past are missing if they are."""
        live = self._live()
        kept: list[Listed] = []
        problem = ""
        try:
            with Ledgers(self._ledgers()) as ledgers:
                kept = ledgers.runs(limit=LISTED)
        except GpumonError as error:
            problem = str(error)
        rows: dict[str, dict[str, Any]] = {row["id"]: row for row in document.listing(kept, self._now())["runs"]}
        for run, row in live.items():
            rows[run] = {**rows.get(run, {}), "live": row, "id": run, "name": row["name"], "user": row["user"],
                         "state": row["state"], "started": row["started"], "framework": row["framework"]}  # fmt: skip
        return {"runs": sorted(rows.values(), key=lambda row: -(row["started"] or 0.0)), "problem": problem}

    def one(self, run: str, device: str, points: int = MOST) -> dict[str, Any] | None:
        """One run whole, its figure that of `device` (a UUID; else its first); None for an unknown run."""
        live = self._live().get(run)
        found = self._record(run)
        if found is None:
            return {"run": live, "live": live, "epochs": [], "ranks": [], "marks": [], "devices": []} if live else None
        record, traces = found
        devices = record.devices
        chosen = next((one for one in devices if one.uuid == device), devices[0] if devices else None)
        uuid = chosen.uuid if chosen else ""
        kept = timeline(record, traces, uuid or "-"), timeline(record, traces, "")
        recent = self._recent(record, uuid, points, *kept) if live else Recent(*kept)
        whole = document.whole(record, self._now())
        return {
            **whole,
            "epochs": [epoch_row(epoch) for epoch in whole["epochs"]],
            "live": live,
            "device": uuid or None,
            "devices": [document.device_of(one) for one in devices],
            "phases": self._phases(record),
            "figure": figure(
                recent.course,
                recent.logged,
                chosen,
                with_newest(joined.epochs(record), recent.epochs),
                record.marks,
                diverged=recent.diverged,
            ),
        }

    def table(self, run: str) -> str | None:
        """Its table of epochs as CSV; None for an unknown run."""
        found = self._record(run)
        return "".join(lines(found[0])) if found else None

    def _live(self) -> dict[str, dict[str, Any]]:
        """What the ring tells of runs, by id, with the newest of what they logged."""
        with self._feed.lock:
            self._feed.refresh()
            frame = self._feed.frame
            if frame is None:
                return {}
            return {
                ranks.first.id: {
                    **run_row(ranks, frame, self._feed.epochs),
                    "metrics": {name: said(value) for name, value in ranks.first.metrics.items()},
                    "step": ranks.slowest.step,
                    "wait": document.known(ranks.slowest.wait),
                }
                for ranks in ranks_of(frame.runs)
            }

    def _record(self, run: str) -> tuple[Record, list[Trace]] | None:
        try:
            with Ledgers(self._ledgers()) as ledgers:
                for ledger, row in ledgers.candidates(run):
                    if row.id == run:
                        return ledger.record(run), ledger.traces(run)
        except GpumonError:
            return None  # the list of runs says why
        return None

    def _phases(self, record: Record) -> list[list[Any]]:
        """Phases of the first rank that are no training: [begin, end or None, name], the ledger's, then the ring's."""
        with self._feed.lock:
            newer = self._feed.epochs.drawn([rank.key for rank in record.ranks[:1]]).spans
        since = newer[0].begin if newer else math.inf
        found = [*(span for span in joined.spans(record) if span.end <= since), *newer]
        return [[span.begin, document.known(span.end), span.phase] for span in found]

    def _recent(self, record: Record, uuid: str, points: int, course: Timeline, logged: Timeline) -> Recent:
        """Up to now: the ring's of a run that it has from its begin, else what is kept and then the ring's."""
        if record.run.state is not RunState.RUNNING:
            return Recent(course, logged)
        keys = [rank.key for rank in record.ranks]
        feed = self._feed
        with feed.lock:
            history = feed.history
            whole = recent_course(history, uuid, record.run.started, points)
            return Recent(
                whole or extended(course, history, uuid),
                feed.logged.timeline(keys, whole.begun, whole.step, history.sampled())
                if whole
                else feed.logged.extended(logged, keys, history.sampled()),
                feed.logged.diverged(keys),
                feed.epochs.stretches(keys[0], history.times[-1]) if keys else (),
            )


def said(value: float) -> float | str | None:
    """A logged number as JSON has it: in words where it is NaN or infinite, which is a fact and not missing."""
    return shown(value) if math.isfinite(value) else logged(value)


def epoch_row(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """An epoch as the page's table has it: a tenth of all that is known, as there may be thousands of them."""
    beside = [phase["seconds"] for phase in epoch["phases"] if phase["phase"] != TRAINING]
    return {
        **{name: epoch[name] for name in ("ordinal", "epoch", "metrics")},
        **{name: None if epoch[name] is None else round(epoch[name], 3) for name in ("begun", "ended")},
        **{name: None if epoch[name] is None else shown(epoch[name]) for name in EPOCH},
        "beside": shown(sum(beside)) if beside and None not in beside else None,
    }
