"""Epochs that are too short for a board are folded, without losing steps, waits or last values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.model.frame import Boundary, Mark
from gpumon.tracking.active_run import ActiveRun
from gpumon.tracking.board import EVENTS_AT_ONCE, Board
from gpumon.tracking.description import Description
from gpumon.tracking.tag_reader import TagReader
from gpumon.tracking.wire_format import EVENT_COUNT
from tests.fakes import FakeClock

MS = SECOND // 1000
STEPS = 3


class Clock(FakeClock):
    """Time that passes only where a test says so: of the reader, and as a call of the run."""

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(tmp_path: Path, clock: Clock) -> Iterator[ActiveRun]:
    (tmp_path / "tags").mkdir()
    board = Board(lambda: str(tmp_path / "tags"), Description("net", "id"), clock, lambda: clock.now + 5000 * SECOND)
    made = ActiveRun(board)
    yield made
    made.finish()


@pytest.fixture
def reader(tmp_path: Path, clock: Clock) -> Iterator[TagReader]:
    found = TagReader(Places(explicit=str(tmp_path), uid=os.getuid()), clock=clock)
    yield found
    found.close()


class Rows:
    """The epochs that a reader sees if it polls once a second."""

    def __init__(self, reader: TagReader) -> None:
        self._reader = reader
        self.boundaries: list[Boundary] = []
        self.lost = self.folded = 0

    def poll(self) -> None:
        poll = self._reader.poll()
        self.boundaries += poll.boundaries
        self.lost, self.folded = poll.runs[0].lost_events, int(poll.runs[0].facts.folded)

    @property
    def rows(self) -> list[tuple[Boundary, Boundary]]:
        marked = [b for b in self.boundaries if b.mark in (Mark.EPOCH_BEGIN, Mark.EPOCH_END)]
        assert [b.mark for b in marked] == [Mark.EPOCH_BEGIN, Mark.EPOCH_END] * (len(marked) // 2)
        return list(zip(marked[::2], marked[1::2], strict=True))


def train(run: ActiveRun, clock: Clock, rows: Rows, lengths: list[int]) -> None:
    """Run an epoch of each of these lengths in ns, with a poll each second."""
    polled = clock.now
    for epoch in range(len(lengths)):
        run.begin_epoch(epoch)
        run.step(STEPS)
        run.log(loss=float(epoch))
        clock.now += lengths[epoch]
        run.end_epoch()
        if clock.now - polled >= SECOND:
            polled = clock.now
            rows.poll()


@pytest.mark.parametrize("length", [0, MS, 7 * MS])
def test_no_epoch_is_lost_and_no_step_and_no_last_value(
    run: ActiveRun, clock: Clock, reader: TagReader, length: int
) -> None:
    rows = Rows(reader)
    train(run, clock, rows, [length] * 5000)
    run.finish()
    rows.poll()
    assert rows.lost == 0
    assert len(rows.rows) + rows.folded == 5000
    assert sum(end.step - begin.step for begin, end in rows.rows) == 5000 * STEPS
    (first, _), (_, last) = rows.rows[0], rows.rows[-1]
    assert (first.epoch, last.epoch, last.metrics) == (0, 4999, {"loss": 4999.0})
    times = [b.monotonic_ns for pair in rows.rows for b in pair]
    assert times == sorted(times)
    assert len(rows.rows) < 5000
    for (_, end), (following, _) in pairwise(rows.rows):
        assert end.metrics == {"loss": following.epoch - 1.0}, "the last value of its own epochs"


def test_a_row_has_no_value_of_epochs_before_or_after_it(run: ActiveRun, clock: Clock, reader: TagReader) -> None:
    rows = Rows(reader)
    for epoch in range(5000):
        run.begin_epoch(epoch)
        if epoch % 7 == 0:
            run.log(loss=float(epoch))
        clock.now += MS
        run.end_epoch()
        if epoch % 7 == 3:
            run.log(accuracy=float(epoch))
        if epoch % 1000 == 999:
            rows.poll()
    run.finish()
    rows.poll()
    ends = [following.epoch for following, _ in rows.rows[1:]] + [5000]
    for (begin, end), stop in zip(rows.rows, ends, strict=True):
        own = {
            name: max(epochs)
            for name, rest in (("loss", 0), ("accuracy", 3))
            if (epochs := [epoch for epoch in range(begin.epoch, stop) if epoch % 7 == rest])
        }
        logged = {**end.metrics, **_after(rows.boundaries, end)}
        assert logged == own


def _after(boundaries: list[Boundary], end: Boundary) -> Mapping[str, float]:
    """Values that were logged after the end of an epoch, before the next one."""
    following = boundaries[boundaries.index(end) + 1 :]
    mark = following[0] if following else None
    return mark.metrics if mark is not None and mark.mark is Mark.LOG else {}


def test_epochs_of_milliseconds_have_rows(run: ActiveRun, clock: Clock, reader: TagReader) -> None:
    rows = Rows(reader)
    train(run, clock, rows, [10 * MS] * 1000)
    run.finish()
    rows.poll()
    assert (len(rows.rows), rows.folded, rows.lost) == (1000, 0, 0)


def test_few_epochs_have_a_row_each_however_short(run: ActiveRun, clock: Clock, reader: TagReader) -> None:
    rows = Rows(reader)
    train(run, clock, rows, [0] * (EVENTS_AT_ONCE // 2 - 2))
    run.finish()
    rows.poll()
    assert (len(rows.rows), rows.folded) == (EVENTS_AT_ONCE // 2 - 2, 0)


def test_a_long_epoch_after_short_ones_is_a_row_of_its_own(run: ActiveRun, clock: Clock, reader: TagReader) -> None:
    rows = Rows(reader)
    train(run, clock, rows, [0] * 1000)
    run.begin_epoch(1000)
    began = clock.now
    clock.now += SECOND
    run._due = 0
    run.step()
    clock.now += SECOND
    run.end_epoch()
    rows.poll()
    begin, end = rows.rows[-1]
    assert (begin.epoch, end.monotonic_ns - begin.monotonic_ns) == (1000, 2 * SECOND)
    assert begin.monotonic_ns == began


def test_an_exception_in_a_folded_epoch_leaves_that_epoch(run: ActiveRun, clock: Clock, reader: TagReader) -> None:
    def train() -> None:
        with run:
            for epoch in run.epochs(1000):
                if epoch == 900:
                    raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        train()
    rows = Rows(reader)
    rows.poll()
    left = [b for b in rows.boundaries if b.mark is Mark.EPOCH_ABORTED]
    assert [b.epoch for b in left] == [900]


def test_a_phase_between_short_epochs_never_costs_an_epoch(run: ActiveRun, clock: Clock, reader: TagReader) -> None:
    rows = Rows(reader)
    for epoch in range(3000):
        run.begin_epoch(epoch)
        with run.phase("validate"):
            clock.now += MS
        run.end_epoch()
        if epoch % 500 == 499:
            rows.poll()
    run.finish()
    rows.poll()
    assert rows.lost == 0
    assert len(rows.rows) + rows.folded == 3000
    assert rows.boundaries[-1].number < 3000 * 4
    assert EVENT_COUNT > EVENTS_AT_ONCE
