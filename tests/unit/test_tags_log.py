"""Logged values are stored with the epoch to which they belong, whenever they arrive."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.model.frame import Boundary, Mark
from gpumon.tracking.board import Board
from gpumon.tracking.description import Description
from gpumon.tracking.tag_reader import TagReader


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    (tmp_path / "tags").mkdir()
    made = Board(lambda: str(tmp_path / "tags"), Description("net", "id"))
    yield made
    made.close()


def logged(boundaries: list[Boundary]) -> list[tuple[Mark, int, dict[str, float]]]:
    """Mark, epoch and values of the boundaries with values."""
    return [(found.mark, found.epoch, dict(found.metrics)) for found in boundaries if found.metrics]


def test_values_of_an_open_epoch_are_stored_with_its_end(board: Board, reader: TagReader) -> None:
    board.begin_epoch(3)
    board.log({"loss": 1.0})
    board.log({"loss": 0.5, "accuracy": 0.25})
    poll = reader.poll()
    assert logged(poll.boundaries) == [], "the epoch goes on"
    assert poll.runs[0].metrics == {"loss": 0.5, "accuracy": 0.25}
    board.end_epoch()
    assert logged(reader.poll().boundaries) == [(Mark.EPOCH_END, 3, {"loss": 0.5, "accuracy": 0.25})]


def test_an_epoch_ends_with_its_own_numbers_only(board: Board, reader: TagReader) -> None:
    for epoch, numbers in enumerate(({"loss": 1.0, "accuracy": 0.5}, {"loss": 0.75}, {})):
        board.begin_epoch(epoch)
        board.log(numbers)
        board.end_epoch()
    poll = reader.poll()
    assert logged(poll.boundaries) == [
        (Mark.EPOCH_END, 0, {"loss": 1.0, "accuracy": 0.5}),
        (Mark.EPOCH_END, 1, {"loss": 0.75}),
    ]
    assert poll.runs[0].metrics == {"loss": 0.75, "accuracy": 0.5}, "what was logged last is still shown"


def test_values_after_the_end_of_an_epoch_are_a_log_event_of_it(board: Board, reader: TagReader) -> None:
    board.begin_epoch(3)
    board.log({"loss": 0.5})
    board.end_epoch()
    board.log({"val_loss": 0.75})
    assert logged(reader.poll().boundaries) == [
        (Mark.EPOCH_END, 3, {"loss": 0.5}),
        (Mark.LOG, 3, {"loss": 0.5, "val_loss": 0.75}),
    ]


def test_late_values_do_not_mix_with_the_open_epoch(board: Board, reader: TagReader) -> None:
    board.begin_epoch(3)
    board.end_epoch()
    board.begin_epoch(4)
    board.log({"accuracy": 0.25})
    board.log({"loss": 0.5}, epoch=3)
    board.end_epoch()
    poll = reader.poll()
    assert logged(poll.boundaries) == [(Mark.LOG, 3, {"loss": 0.5}), (Mark.EPOCH_END, 4, {"accuracy": 0.25})]
    assert poll.runs[0].metrics == {"accuracy": 0.25, "loss": 0.5}


def test_values_for_the_number_of_the_open_epoch_belong_to_it(board: Board, reader: TagReader) -> None:
    board.begin_epoch(4)
    board.log({"loss": 0.5}, epoch=4)
    board.end_epoch()
    assert logged(reader.poll().boundaries) == [(Mark.EPOCH_END, 4, {"loss": 0.5})]


def test_values_before_the_first_epoch_belong_to_no_epoch(board: Board, reader: TagReader) -> None:
    board.log({"loss": 0.5})
    poll = reader.poll()
    assert [found.mark for found in poll.boundaries] == [Mark.RUN_BEGIN]
    assert poll.runs[0].metrics == {"loss": 0.5}


def test_a_failed_allocation_has_requested_and_free_bytes(board: Board, reader: TagReader) -> None:
    board.begin_epoch(2)
    board.out_of_memory(5 * 2**30, 2**20, "GPU-1")
    board.out_of_memory(2**64 - 1, 2**64 - 1)
    told, untold = (found for found in reader.poll().boundaries if found.mark is Mark.OUT_OF_MEMORY)
    assert (told.epoch, told.phase, told.asked, told.free) == (2, "train", 5 * 2**30, 2**20)
    assert untold.asked != untold.asked
    assert untold.free != untold.free


@pytest.mark.parametrize("diverged", [math.nan, math.inf, -math.inf])
def test_a_diverged_loss_differs_from_no_loss(board: Board, reader: TagReader, diverged: float) -> None:
    board.begin_epoch(0)
    board.log({"loss": diverged, "accuracy": 0.5})
    run = reader.poll().runs[0]
    assert list(run.metrics) == ["loss", "accuracy"]
    assert repr(run.metrics["loss"]) == repr(diverged)
    board.end_epoch()
    board.begin_epoch(1)
    board.log({"accuracy": 0.25})
    board.end_epoch()
    first, second = [dict(found.metrics) for found in reader.poll().boundaries if found.mark is Mark.EPOCH_END]
    assert repr(first) == repr({"loss": diverged, "accuracy": 0.5})
    assert second == {"accuracy": 0.25}, "no loss was logged in the second epoch"
