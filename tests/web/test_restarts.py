"""A restart of the daemon is one event on the page of events, and loses none that happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.analysis.throttling import CAUSES
from gpumon.common.clock import SECOND
from gpumon.model.frame import Tick
from gpumon.reports.events import LONGEST
from gpumon.storage.events.query import read_events
from tests.activity import keep
from tests.builders import TIME, sample, tick
from tests.web.served import Served

BEGAN = TIME // SECOND
GPUS = 8
CAUSE = CAUSES[0].name


def ticks(seconds: range, throttled: int) -> Iterator[Tick]:
    """The first `throttled` GPUs are throttled all the time."""
    for second in seconds:
        counted = [float(second) if gpu < throttled else 0.0 for gpu in range(GPUS)]
        yield tick(
            1, [sample(gpu, utilization=0.8, **{CAUSE.removeprefix("gpu."): counted[gpu]}) for gpu in range(GPUS)],
            time_ns=(BEGAN + second) * SECOND, monotonic_ns=(50 + second) * SECOND, interval_ns=SECOND,
        )  # fmt: skip


def stopped() -> int:
    return (BEGAN + 130) * SECOND


def told(path: Path, now: float) -> list[dict[str, Any]]:
    served = Served([tick(1)], histories=[str(path)])
    served.now = now
    return [*served.json("/api/kept?page=events")["tables"]["events"]["cells"].values()]


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_restart_is_one_event_that_names_what_went_on(tmp_path: Path, kill: bool) -> None:
    path = tmp_path / "history.sqlite"
    keep(path, ticks(range(130), GPUS), stopped=stopped, kill=kill)
    before = [row["kind"] for row in told(path, BEGAN + 131.0)]
    keep(path, ticks(range(160, 200), GPUS), kill=True)
    rows = told(path, BEGAN + 200.0)
    kinds = [row["kind"] for row in rows]
    assert kinds.count("throttling began") == before.count("throttling began") == GPUS
    assert [kind for kind in kinds if kind != "throttling began"] == ["daemon restarted", "daemon started"]
    (restart,) = [row for row in rows if row["kind"] == "daemon restarted"]
    assert restart["words"].endswith("continued across the restart: throttling on GPU 0–7")
    assert ("killed" in restart["words"]) is kill
    assert restart["time"] == BEGAN + 160, "when the next one began"
    seconds = 30 if not kill else restart["seconds"]
    assert restart["took"] == {"text": f"not sampled for {seconds:.0f} s, from", "time": BEGAN + 160 - seconds}
    assert all(
        row["took"]["time"] == row["time"] and row["took"]["old"]["time"] > BEGAN + 160
        for row in rows
        if row["kind"] == "throttling began"
    )


def test_what_ended_or_began_over_a_restart_keeps_its_row(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    keep(path, ticks(range(130), 4), stopped=stopped)
    keep(path, ticks(range(160, 200), 2), kill=True)
    kinds = [row["kind"] for row in told(path, BEGAN + 200.0)]
    assert kinds.count("end not seen") == 2, "of the GPUs that are no longer throttled"
    keep(path, ticks(range(260, 300), GPUS), kill=True)
    rows = told(path, BEGAN + 300.0)
    assert [row["kind"] for row in rows].count("throttling began") == 4 + 6
    assert len(read_events(str(path))) > len(rows), "the log has each of them"


def test_a_long_time_without_a_daemon_is_no_restart(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    keep(path, ticks(range(130), 1), stopped=stopped)
    later = 131 + int(LONGEST)
    keep(path, ticks(range(later, later + 40), 1), kill=True)
    kinds = [row["kind"] for row in told(path, BEGAN + later + 40.0)]
    assert {"daemon stopped", "daemon started", "end not seen"} <= {*kinds}
    assert kinds.count("throttling began") == 2
