"""Runs for the pages: what the ledger keeps of them, and what the ring tells of those that go on.

A run that is younger than the ring has its course and what it logged from there, up to now; an older one from the
ledger's trace, which is written once a minute.
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
from gpumon_web.course import recent_course, with_newest
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
    """What the ring has of a run that goes on."""

    course: Timeline
    logged: Timeline
    diverged: dict[str, list[tuple[float, float]]]
    epochs: list[Stretch]


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
        recent = self._recent(record, uuid, points) if live and chosen else None
        whole = document.whole(record, self._now())
        return {
            **whole,
            "epochs": [epoch_row(epoch) for epoch in whole["epochs"]],
            "live": live,
            "device": uuid or None,
            "devices": [document.device_of(one) for one in devices],
            "phases": self._phases(record),
            "figure": figure(
                recent.course if recent else timeline(record, traces, uuid or "-"),
                recent.logged if recent else timeline(record, traces, ""),
                chosen,
                with_newest(joined.epochs(record), recent.epochs if recent else ()),
                record.marks,
                diverged=recent.diverged if recent else None,
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

    def _recent(self, record: Record, uuid: str, points: int) -> Recent | None:
        """What the ring has, up to now, of a run that it still has from its begin; else None."""
        if record.run.state is not RunState.RUNNING:
            return None
        keys = [rank.key for rank in record.ranks]
        feed = self._feed
        with feed.lock:
            course = recent_course(feed.history, uuid, record.run.started, points)
            if course is None:
                return None
            return Recent(
                course,
                feed.logged.timeline(keys, course.begun, course.step, course.points),
                feed.logged.diverged(keys),
                feed.epochs.stretches(keys[0], feed.history.times[-1]) if keys else [],
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
