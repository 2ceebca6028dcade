"""A training with a daemon: its data in the ring, in `gpumon status` and in `gpumon runs`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import Frame, Mark, Run, RunState
from gpumon.model.run import PAUSED
from tests.programs import PATIENCE, environment, gpumon, status, until
from tests.trainings import Told, train

TRAINING = 600.0
"""Seconds that a training of all cases may take on a busy machine."""


def watch(command: Sequence[object], live_dir: Path) -> tuple[dict[str, Any], str]:
    """Run a training; gives its first run as `gpumon status` had it after an epoch began, and what it printed."""
    live = follow(Places(explicit=str(live_dir)))
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train, command, live_dir)

        def begun() -> bool:
            over = training.done()
            frame = live.latest()
            if over:
                training.result()  # raises what it raised
            return frame is not None and any(run.epoch >= 0 for run in frame.runs)

        until(begun, timeout=120)
        rows = status(environment(live_dir))["runs"]
        return next(row for row in rows if row["epoch"] is not None), training.result()


def finished(live_dir: Path, ranks: int = 1) -> tuple[list[Run], list[Frame]]:
    """The ended runs by rank and begin, and all frames, once the daemon knows of the end of each rank."""
    return _ended(live_dir, ranks)


def _ended(live_dir: Path, count: int, training: Future[str] | None = None) -> tuple[list[Run], list[Frame]]:
    """The same, while `training` goes on: a run that has ended leaves the frames after a minute."""
    live = follow(Places(explicit=str(live_dir)))
    frames: list[Frame] = []
    seen: dict[str, Run] = {}

    def ended() -> list[Run] | None:
        is_over = training is None or training.done()
        for frame in live.since(frames[-1].number if frames else 0):
            frames.append(frame)
            seen.update({run.key: run for run in frame.runs})
        found = [run for run in seen.values() if run.state is not RunState.RUNNING]
        if is_over and training is not None:
            training.result()  # raises what it raised
        return found if is_over and len(found) == count else None

    runs = until(ended, timeout=PATIENCE if training is None else TRAINING)
    return sorted(runs, key=lambda run: (run.rank, run.started)), frames


def tagged(live_dir: Path, runs: int, training: Future[str] | None = None) -> list[Told]:
    """All `runs` runs that have ended beside a daemon, by rank and begin, with what its ring had of them.

    `training`: in which they run, while it goes on.
    """
    ended, frames = _ended(live_dir, runs, training)
    boundaries = [boundary for frame in frames for boundary in frame.boundaries]
    return [Told(run, [b for b in boundaries if b.run == run.key]) for run in ended]


class TaggedCases:
    """Cases of a training process that has ended: what the daemon saw of them, and what the frameworks' hooks saw."""

    def __init__(self, module: str, live_dir: Path, count: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            training = pool.submit(train, ["-m", module], live_dir)
            self._told = {one.run.name: one for one in tagged(live_dir, count, training)}
        self.seen: dict[str, Any] = json.loads(training.result().splitlines()[-1])
        self.live_dir = live_dir

    def __getitem__(self, case: str) -> Told:
        return self._told[case]


def told(frames: list[Frame], mark: Mark) -> list[tuple[int, int, str]]:
    """Epoch, step and phase of each boundary of `mark`, without pauses."""
    found = [b for frame in frames for b in frame.boundaries if b.mark is mark and b.phase != PAUSED]
    return [(b.epoch, b.step, b.phase) for b in found]


def shown(live_dir: Path, run: Run) -> dict[str, Any]:
    """What `gpumon runs show` prints of an ended run, once the ledger knows of its end."""

    def ended() -> dict[str, Any] | None:
        done = gpumon("runs", "show", run.id, "--json", env=environment(live_dir))
        if done.returncode:
            return None
        found: dict[str, Any] = json.loads(done.stdout)
        return found if found["run"]["ended"] else None

    return until(ended)


def epochs_of(ledger: dict[str, Any]) -> list[tuple[int, int, list[str]]]:
    """Number, steps and phases of each epoch that `shown` gave."""
    return [
        (epoch["epoch"], epoch["steps"], [phase["phase"] for phase in epoch["phases"]]) for epoch in ledger["epochs"]
    ]


def assert_same_times(ledger: dict[str, Any], frames: list[Frame], run: Run) -> None:
    """The epochs of `ledger` begin and end where the ring has the boundaries of `run`'s ranks, to 1 ms."""
    keys = {other.key for frame in frames for other in frame.runs if other.id == run.id}
    times: dict[Mark, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for boundary in (boundary for frame in frames for boundary in frame.boundaries if boundary.run in keys):
        times[boundary.mark][boundary.epoch].append(boundary.time_ns / 1e9)
    begins, ends = times[Mark.EPOCH_BEGIN], times[Mark.EPOCH_END]
    assert [epoch["epoch"] for epoch in ledger["epochs"]] == sorted(begins) == sorted(ends)
    for epoch in ledger["epochs"]:
        assert epoch["begun"] == pytest.approx(min(begins[epoch["epoch"]]), rel=0, abs=0.001)
        assert epoch["ended"] == pytest.approx(max(ends[epoch["epoch"]]), rel=0, abs=0.001)
