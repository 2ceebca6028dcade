"""The wait for data is known only where it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.model.frame import Mark, wait_between
from gpumon.tracking.active_run import ActiveRun
from gpumon.tracking.board import Board
from gpumon.tracking.description import Description
from gpumon.tracking.tag_reader import TagReader


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ActiveRun]:
    (tmp_path / "tags").mkdir()
    made = ActiveRun(Board(lambda: str(tmp_path / "tags"), Description("net", "id")))
    yield made
    made.finish()


def test_the_wait_of_a_loop_without_a_loader_is_unknown(run: ActiveRun, reader: TagReader) -> None:
    for _ in run.epochs(1):
        run.step()
    poll = reader.poll()
    begin, end = (found for found in poll.boundaries if found.mark in (Mark.EPOCH_BEGIN, Mark.EPOCH_END))
    assert math.isnan(poll.runs[0].wait)
    assert math.isnan(wait_between(begin.wait, end.wait))


def test_the_wait_of_a_phase_with_a_loader_is_known(run: ActiveRun, reader: TagReader) -> None:
    for _ in run.epochs(1):
        assert list(run.steps([1, 2])) == [1, 2]
        with run.phase("validate"):
            pass  # by a loop of its own
        with run.phase("test"):
            assert list(run.steps([1])) == [1]
    poll = reader.poll()
    waits = {found.phase or found.mark.name: found.wait for found in reversed(poll.boundaries)}
    begin = next(found.wait for found in poll.boundaries if found.mark is Mark.EPOCH_BEGIN)
    validate, test, end = (waits[name] for name in ("validate", "test", "EPOCH_END"))
    assert wait_between(begin, validate) > 0
    assert math.isnan(wait_between(validate, test))
    assert wait_between(test, end) > 0
    assert poll.runs[0].wait == end


def test_a_wait_marked_unknown_stays_unknown(run: ActiveRun, reader: TagReader) -> None:
    run.begin_epoch(0)
    list(run.steps([1]))
    run.wait_unknown()
    run.waited(5)
    list(run.steps([1]))
    run.end_epoch()
    poll = reader.poll()
    assert math.isnan(poll.runs[0].wait)
    assert math.isnan(wait_between(0.0, poll.boundaries[-1].wait))
