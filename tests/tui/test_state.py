"""What is kept of frames, and how the screen is shared out; no terminal."""

from __future__ import annotations

from math import nan

import pytest

from gpumon.frame import Boundary, Frame, Mark, Run, RunState
from gpumon_tui.epochs import Epochs
from gpumon_tui.flow import PATIENCE, Flow
from gpumon_tui.history import HOST, SLACK, History
from gpumon_tui.layout import Tables, plan
from gpumon_tui.renderables import runs
from gpumon_tui.renderables.bar import bar_text
from gpumon_tui.standing import standing
from tests.tui.fakes import START, FakeFeed, FakeParts


def filled(feed: FakeFeed) -> History:
    history = History()
    for frame in feed.frames:
        history.add(frame)
    return history


def test_counters_are_kept_as_rates() -> None:
    history = filled(FakeFeed(gpus=1, seconds=10))
    sent = history.values("GPU-0000", "gpu.pcie_sent")
    assert sent[0] != sent[0]
    assert list(sent[1:]) == pytest.approx([4e8] * 9)
    assert history.last(HOST, "host.disk_read") == pytest.approx(2e8)


def test_a_pause_or_a_counter_that_fell_is_a_gap() -> None:
    feed = FakeFeed(gpus=1, seconds=0)
    history = History()
    for second in (0, 1, 30, 31):
        history.add(feed.frame(second))
    sent = history.values("GPU-0000", "gpu.pcie_sent")
    assert [value == value for value in sent] == [False, True, False, True]


def test_the_history_is_bounded_and_its_columns_are_of_one_length() -> None:
    history = History(keep=50)
    for frame in FakeFeed(gpus=2, seconds=400).frames:
        history.add(frame)
    assert len(history.times) < 50 + SLACK
    assert len(history.values("GPU-0001", "gpu.power")) == len(history.times)


def test_a_gpu_that_comes_and_goes_leaves_gaps() -> None:
    one, two = FakeFeed(gpus=1, seconds=9), FakeFeed(gpus=2, seconds=9)
    history = History()
    for frame in (*one.frames[:3], *two.frames[3:6], *one.frames[6:]):
        history.add(frame)
    assert [v == v for v in history.values("GPU-0001", "gpu.power")] == [False] * 3 + [True] * 3 + [False] * 3


def test_time_that_jumps_far_back_starts_afresh() -> None:
    feed = FakeFeed(gpus=1, seconds=200)
    history = filled(feed)
    history.add(feed.frames[198])
    assert len(history.times) == 200
    history.add(feed.frames[0])
    assert len(history.times) == 1


def boundary(number: int, epoch: int, second: float, mark: Mark = Mark.EPOCH_BEGIN, run: str = "r") -> Boundary:
    return Boundary(run, number, mark, epoch, 0, "train", 0, int((START + second) * 1e9))


def frame_with(boundaries: tuple[Boundary, ...], found: tuple[Run, ...] = ()) -> Frame:
    return Frame(1, 0, START * 10**9, 1.0, 0.0, 0, 0, FakeParts(_runs=found, _boundaries=boundaries))


RUN = Run("r", "id", "name", 1, "alice", epochs=10, epoch=2, epoch_started=START + 20.0)


def test_boundaries_that_come_late_and_twice_count_once() -> None:
    epochs = Epochs()
    epochs.add(frame_with((boundary(3, 2, 20), boundary(1, 0, 0)), (RUN,)))
    epochs.add(frame_with((boundary(3, 2, 20), boundary(2, 1, 10))))
    assert [(mark.epoch, mark.time - START) for mark in epochs.marks(["r"])] == [(0, 0), (1, 10), (2, 20)]
    assert epochs.duration("r") == 10


def test_a_lost_boundary_is_made_good_by_the_board() -> None:
    epochs = Epochs()
    epochs.add(frame_with((), (RUN,)))
    assert [mark.epoch for mark in epochs.marks(["r"])] == [2]


def test_ranks_of_a_run_give_one_line_for_each_epoch() -> None:
    epochs = Epochs()
    ranks = tuple(RUN._replace(key=key, rank=rank, epoch=-1) for rank, key in enumerate("ab"))
    epochs.add(frame_with((boundary(1, 0, 0.1, run="a"), boundary(1, 0, 0, run="b")), ranks))
    assert [mark.time - START for mark in epochs.marks("ab")] == [0]


def test_ranks_are_one_row() -> None:
    ranks = [RUN._replace(key=key, rank=rank, epoch=rank + 2, world_size=2) for rank, key in enumerate("ab")]
    epochs = Epochs()
    begins = tuple(boundary(epoch + 1, epoch, 10.0 * epoch, run="a") for epoch in range(3))
    epochs.add(frame_with(begins, tuple(ranks)))
    (group,) = runs.by_id(ranks).values()
    cells = [cell.text for cell in runs.row(group, epochs, START + 25.0)]
    assert "2..3/10" in cells
    assert "1:15" in cells, "7 epochs of 10 s and half of one"
    assert "running" in cells


def test_a_run_beyond_its_plan_has_no_negative_time_left() -> None:
    assert runs.remaining(RUN._replace(epoch=30), 10.0, START + 500.0) == 0


def test_one_dead_rank_is_a_dead_run() -> None:
    assert runs.worst([RUN, RUN._replace(state=RunState.DIED)]) is RunState.DIED


def test_progress_of_a_finished_run_is_full() -> None:
    assert bar_text(runs.progress(RUN._replace(state=RunState.FINISHED, epoch=9)), 4) == "▄▄▄▄"


@pytest.mark.parametrize(
    ("index", "word"), [(0, "busy"), (5, "idle but held"), (7, "free"), (1, "lost"), (3, "stale 12 s")]
)
def test_a_word_for_each_gpu(index: int, word: str) -> None:
    feed = FakeFeed(seconds=60, lost=(1,), stale=(3,))
    assert standing(feed.frames[-1].samples[index], filled(feed), held=index != 7).word == word


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (100, 30), (120, 40), (160, 50), (200, 50), (300, 80)])
@pytest.mark.parametrize("gpus", [0, 1, 2, 8, 16])
def test_the_parts_fill_the_screen(size: tuple[int, int], gpus: int) -> None:
    made = plan(*size, gpus, 5, 40, 2)
    assert made.gpu_rows + made.chart_rows + made.table_rows == size[1] - 2
    assert made.table_rows >= 3
    if size[1] >= 24:
        assert made.chart_rows >= 5


def test_room_decides_how_things_stand() -> None:
    assert plan(200, 50, 8, 5, 64, 2).card_rows > 1
    assert plan(80, 24, 8, 5, 64, 2).card_rows == 1
    assert plan(160, 50, 1, 5, 64, 2).charts == 2
    assert plan(159, 50, 1, 5, 64, 2).charts == 1
    assert plan(80, 24, 1, 5, 64, 2).tables is Tables.ONE
    assert plan(120, 40, 1, 5, 64, 2).tables is Tables.BESIDE


class App:
    """Stands for the part of Textual's App that flow control needs."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self._driver = self

    def write(self, text: str) -> None:
        self.written.append(text)


def test_flow_waits_only_for_a_terminal_that_answers() -> None:
    flow, app = Flow(), App()
    flow.ask(app, 0.0)  # type: ignore[arg-type]
    assert app.written == []
    assert flow.ready(0.1)
    flow.answered()
    flow.ask(app, 1.0)  # type: ignore[arg-type]
    assert app.written == ["\x1b[?2026$p"]
    assert not flow.ready(2.0)
    assert flow.skipped == 1
    assert flow.ready(1.0 + PATIENCE + 1)
    flow.answered()
    assert flow.ready(3.0)


def test_missing_numbers_are_no_level() -> None:
    history = filled(FakeFeed(gpus=1, seconds=5, gap=(0, 5)))
    assert not history.has("GPU-0000", "gpu.power")
    assert history.last("GPU-0000", "gpu.power") != history.last("GPU-0000", "gpu.power")
    assert nan != history.peak("GPU-0000", "gpu.power", 3)
