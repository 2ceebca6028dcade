"""How long a run lasted, and how it ended, is the same in its event and in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.common.paths import LEDGER
from gpumon.model import units
from gpumon.model.events import EventKind, EventSubject
from gpumon.model.frame import Boundary, Mark, Run, RunState, Tick
from gpumon.model.run import PAUSED
from gpumon.reports.events import LastedEvent, details
from gpumon.storage.events.query import LoggedEvent, read_events
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.recorder import LedgerRecorder
from gpumon.storage.ledger.records import RunRow
from gpumon.storage.ledger.writer import LedgerWriter
from gpumon_tui.render.event_rows import event_rows
from gpumon_web.pages.events import row
from tests.activity import keep
from tests.builders import TIME, run, tick
from tests.programs import PATIENCE

KEYS = ("tag.1000.4711.abcd", "tag.1000.4712.abcd")
STARTS = (10.25, 11.5)
"""Second at which each rank starts."""
SECONDS = 90


def both(tmp_path: Path, ticks: Sequence[Tick]) -> tuple[RunRow, LoggedEvent]:
    """The run in the ledger, and the event of its end."""
    keep(tmp_path / "history.sqlite", ticks)
    writer = LedgerWriter(str(tmp_path / LEDGER), 0, pytest.fail).start()
    assert writer.wait_until_open(PATIENCE)
    recorder = LedgerRecorder(writer, is_alive=lambda _: False)
    for one in ticks:
        recorder.add(one)
    recorder.close(PATIENCE)
    with Ledger(str(tmp_path / LEDGER)) as ledger:
        (listed,) = ledger.runs()
    (event,) = (
        one for one in read_events(str(tmp_path / "history.sqlite")) if one.kind.name in ("run_ended", "run_died")
    )
    return listed.run, event


def ticks_of(
    states: dict[int, RunState], *, updated: float = NAN, end: float = NAN, paused: Sequence[float] = (),
    seen: int = SECONDS, is_lost: bool = False, set_by: float = 0.0,
) -> Iterator[Tick]:  # fmt: skip
    """Ticks of two ranks: `states` by the second from which on rank 1 has it, `updated`: its last update,
    `end`: its reported end, `paused`: when it pauses and goes on, `seen`: when its board vanishes,
    `is_lost`: without the boundary at its start, `set_by`: seconds by which the clock is set at second 20.
    """
    for second in range(SECONDS + 70):
        offset = round(set_by * SECOND) if second >= 20 else 0
        due: list[Boundary] = []
        ranks: list[Run] = []
        for rank, (key, start) in enumerate(zip(KEYS, STARTS, strict=True)):
            marks = [(Mark.RUN_BEGIN, start, ""), (Mark.EPOCH_BEGIN, start, "train"), (Mark.EPOCH_END, 19.0, "")]
            state = RunState.RUNNING if second < 15 + 5 * (1 - rank) else RunState.FINISHED
            if rank:
                marks += [(Mark.PHASE, at, PAUSED if i % 2 == 0 else "") for i, at in enumerate(paused)]
                marks += [(Mark.RUN_END, end, "")] if end == end else []
                state = next((of for at, of in sorted(states.items(), reverse=True) if second >= at), RunState.RUNNING)
            else:
                marks += [(Mark.RUN_END, 19.75, "")]
            due += [
                Boundary(
                    key,
                    number,
                    mark,
                    0,
                    0,
                    phase,
                    round(at * SECOND),
                    TIME + round(at * SECOND) + (offset if at >= 20 else 0),
                )
                for number, (mark, at, phase) in enumerate(marks, 1)
                if second - 1 < at <= second and not (is_lost and rank and mark is Mark.RUN_BEGIN)
            ]
            if start <= second < (seen if rank else SECONDS + 70):
                at = min(second, updated) if rank and updated == updated else second - 0.25
                ranks.append(run(key, rank=rank, pid=4711 + rank, world_size=2, state=state,
                                 started=TIME / SECOND + start, updated=(TIME + offset) / SECOND + at))  # fmt: skip
        yield tick(second, runs=ranks, boundaries=due, time_ns=TIME + second * SECOND + offset)


CASES: dict[str, tuple[dict[str, Any], float, RunState]] = {
    "it reports its end": ({"states": {61: RunState.FINISHED}, "end": 60.75}, 50.5, RunState.FINISHED),
    "it dies between two ticks": ({"states": {61: RunState.DIED}, "updated": 60.75}, 50.5, RunState.DIED),
    "it dies without an update": ({"states": {61: RunState.DIED}, "updated": 30.0}, 49.75, RunState.DIED),
    "its board vanishes": ({"states": {}, "seen": 61}, 49.75, RunState.DIED),
    "it fails, and the end is lost": ({"states": {61: RunState.FAILED}, "updated": 60.5}, 50.25, RunState.FAILED),
    "its start is lost": ({"states": {61: RunState.DIED}, "updated": 60.75, "is_lost": True}, 50.5, RunState.DIED),
    "it pauses": ({"states": {61: RunState.FINISHED}, "end": 60.75, "paused": (30.5, 40.0)}, 41.0, RunState.FINISHED),
    "it dies in a pause": (
        {"states": {61: RunState.DIED}, "updated": 60.75, "paused": (30.5,)}, 20.25, RunState.FINISHED,
    ),
    "the clock is set": (
        {"states": {61: RunState.DIED}, "updated": 60.75, "set_by": 3600.0}, 50.5, RunState.DIED,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("how", "seconds", "state"), CASES.values(), ids=CASES)
def test_agree(tmp_path: Path, how: dict[str, Any], seconds: float, state: RunState) -> None:
    stored, event = both(tmp_path, [*ticks_of(**how)])
    assert (stored.state, stored.duration) == (state, pytest.approx(seconds, abs=1e-3))
    assert event.details["state"] == state.name.lower()
    assert event.lasted == pytest.approx(seconds, abs=1e-3)
    assert event.time_ns / SECOND == pytest.approx(stored.ended, abs=1e-3)


@pytest.mark.parametrize("seconds", [0.162, 3.7, 59.4, 119.0, 7199.0])
def test_lasted_as_listed(seconds: float) -> None:
    ended = EventKind("run_ended", "runs", "run ended", "info", "")
    event = LoggedEvent(0, ended, EventSubject(run="r"), "", seconds, 0, {})
    written = units.fine_duration(seconds)
    assert details(event) == f"after {written}"
    assert row(LastedEvent(event), {}, seconds)["took"] == written
    assert [one.duration for one in event_rows([event], {})] == [written]
