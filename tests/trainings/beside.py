"""A training beside a daemon: what the ring, `gpumon status` and `gpumon runs` tell of it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpumon.frame import Frame, Mark, Run, RunState
from gpumon.live import follow
from gpumon.paths import Places
from gpumon.run_facts import PAUSED
from tests.programs import environment, gpumon, status, until
from tests.trainings import Told, train


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
    live = follow(Places(explicit=str(live_dir)))

    def ended() -> list[Run]:
        frame = live.latest()
        return [run for run in frame.runs if run.state is not RunState.RUNNING] if frame else []

    runs = until(lambda: found if len(found := ended()) == ranks else None)
    return sorted(runs, key=lambda run: (run.rank, run.started)), live.since(0)


def tagged(live_dir: Path, runs: int) -> list[Told]:
    """All `runs` runs that have ended beside a daemon, by rank and begin, with what its ring has of them."""
    ended, frames = finished(live_dir, runs)
    boundaries = [boundary for frame in frames for boundary in frame.boundaries]
    return [Told(run, [b for b in boundaries if b.run == run.key]) for run in ended]


class TaggedCases:
    """Cases of a training process that has ended: what the daemon saw of them, and what the frameworks' hooks saw."""

    def __init__(self, module: str, live_dir: Path, count: int) -> None:
        said = train(["-m", module], live_dir)
        self.seen: dict[str, Any] = json.loads(said.splitlines()[-1])
        self.live_dir = live_dir
        self._told = {one.run.name: one for one in tagged(live_dir, count)}

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
