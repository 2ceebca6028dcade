"""What is kept of frames, and how the screen is shared out; no terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, isnan, nan

import pytest
from rich.style import Style

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.progress import progress, share_done, time_left
from gpumon.analysis.ranks import Ranks, ranks_of, run_memory
from gpumon.analysis.run_epochs import Epochs
from gpumon.common.clock import SECOND
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.runs import notes
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Mark, Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX
from gpumon.model.process import Process
from gpumon.model.run import RunFacts
from gpumon.recording.content import DecodedParts
from gpumon.storage.history.query import HOST, Query, Series
from gpumon.storage.history.recent import SLACK, RecentHistory
from gpumon_tui import theme
from gpumon_tui.render import overview_rows, run_list
from gpumon_tui.render.bars import bar_text
from gpumon_tui.render.gpu_columns import arrange_gpus, numbers
from gpumon_tui.render.gpu_status import HEAT_THROTTLED, gpu_status
from gpumon_tui.render.overview_layout import overview_plan
from gpumon_tui.render.overview_rows import RUN_COLUMNS, empty_run_columns, run_row
from gpumon_tui.render.run_list import from_frame
from gpumon_tui.render.table import fit_columns
from gpumon_tui.screens.findings import attention_lines
from gpumon_tui.screens.overview import OverviewPage
from gpumon_tui.state import View
from gpumon_tui.terminal_app import ANSWER_TIMEOUT, FlowControl
from gpumon_tui.widgets.overview import OverviewCharts
from gpumon_tui.widgets.overview_sections import AttentionSection
from tests.builders import frame_of, judged, sample, tick
from tests.tui.fakes import GIB, START, FakeFeed
from tests.tui.golden_scenes import machine


def filled(feed: FakeFeed) -> RecentHistory:
    history = RecentHistory()
    for frame in feed.frames:
        history.add(frame)
    return history


def line(history: RecentHistory, subject: str, metric: str) -> Series:
    """Every row that is kept of a metric."""
    return history.query(Query(subject, (metric,), 0.0, inf, 10_000))[metric]


def test_counters_are_kept_as_rates() -> None:
    history = filled(FakeFeed(gpus=1, seconds=10))
    sent = line(history, "GPU-0000", "gpu.pcie_sent").mean
    assert sent[0] != sent[0]
    assert list(sent[1:]) == pytest.approx([4e8] * 9)
    assert history.last(HOST, "host.disk_read") == pytest.approx(2e8)


def test_a_pause_or_a_counter_that_fell_is_a_gap() -> None:
    feed = FakeFeed(gpus=1, seconds=0)
    history = RecentHistory()
    for second in (0, 1, 30, 31):
        history.add(feed.frame(second))
    sent = line(history, "GPU-0000", "gpu.pcie_sent").mean
    assert line(history, HOST, "host.disk_read").times == [START + second for second in (0, 1, 15.5, 30, 31)]
    assert [value == value for value in sent] == [False, True, False, False, True]
    assert [value == value for value in line(history, "GPU-0000", "gpu.power").mean] == [True, True, False, True, True]


def test_the_history_is_bounded_and_its_columns_are_of_one_length() -> None:
    history = RecentHistory(keep=50)
    for frame in FakeFeed(gpus=2, seconds=400).frames:
        history.add(frame)
    assert len(history._times) < 50 + SLACK
    assert {len(column) for columns in history._columns.values() for column in columns.values()} == {
        len(history._times)
    }


def test_a_gpu_that_comes_and_goes_leaves_gaps() -> None:
    one, two = FakeFeed(gpus=1, seconds=9), FakeFeed(gpus=2, seconds=9)
    history = RecentHistory()
    for frame in (*one.frames[:3], *two.frames[3:6], *one.frames[6:]):
        history.add(frame)
    assert [v == v for v in line(history, "GPU-0001", "gpu.power").mean] == [False] * 3 + [True] * 3 + [False] * 3


def test_time_that_jumps_far_back_starts_afresh() -> None:
    feed = FakeFeed(gpus=1, seconds=200)
    history = filled(feed)
    history.add(feed.frames[198])
    assert len(history.sampled()) == 200
    history.add(feed.frames[0])
    assert len(history.sampled()) == 1


def boundary(number: int, epoch: int, second: float, mark: Mark = Mark.EPOCH_BEGIN, run: str = "r") -> Boundary:
    return Boundary(run, number, mark, epoch, 0, "train", 0, int((START + second) * 1e9))


def frame_with(boundaries: tuple[Boundary, ...], found: tuple[Run, ...] = ()) -> Frame:
    return Frame(1, 0, START * 10**9, 1.0, 0.0, 0, 0, DecodedParts((), (), (), found, boundaries))


RUN = Run("r", "id", "name", 1, "alice", epochs=10, epoch=2, epoch_started=START + 20.0)


def test_boundaries_that_come_late_and_twice_count_once() -> None:
    epochs = Epochs()
    epochs.add(frame_with((boundary(3, 2, 20), boundary(1, 0, 0)), (RUN,)))
    epochs.add(frame_with((boundary(3, 2, 20), boundary(2, 1, 10))))
    assert [(mark.epoch, mark.time - START) for mark in epochs.marks(["r"])] == [(0, 0), (1, 10), (2, 20)]
    assert epochs.duration("r") == 10


@pytest.mark.parametrize(
    ("lengths", "usual"),
    [
        ((100.0,), 100.0),
        ((100.0, 10.0), 10.0),
        ((10.0, 10.0, 3600.0, 10.0), 10.0),
        ((10.0, 10.0, 10.0, 22.0), 14.0),
        ((10.0, *[4.0] * 10, *[2.0] * 10), 2.0),
        ((1.0, *[0.02, 0.04] * 200, *[0.02] * 10), 0.03),
    ],
    ids=[
        "the first alone",
        "a slow first",
        "one while the machine slept",
        "one that validates",
        "long ago",
        "very short",
    ],
)
def test_the_usual_length_of_an_epoch_is_that_of_those_to_come(lengths: Sequence[float], usual: float) -> None:
    epochs, begins = Epochs(), [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    told = tuple(boundary(number + 1, number, begin) for number, begin in enumerate(begins))
    epochs.add(frame_with(told, (RUN._replace(epoch=len(lengths), epoch_started=START + begins[-1]),)))
    assert epochs.duration("r") == pytest.approx(usual, rel=0.02)


@pytest.mark.parametrize("told_before", [False, True])
def test_an_epoch_that_was_left_is_over_and_says_nothing_of_how_long_epochs_take(told_before: bool) -> None:
    epochs = Epochs()
    ends = (boundary(4, 1, 13, Mark.EPOCH_END),) if told_before else ()
    left = boundary(5, 1, 13, Mark.EPOCH_ABORTED)
    epochs.add(frame_with((boundary(1, 0, 0), boundary(2, 0, 10, Mark.EPOCH_END), boundary(3, 1, 10), *ends, left)))
    found = [(s.epoch, s.begin - START, s.end - START, s.finished) for s in epochs.epoch_spans("r", START + 99)]
    assert found == [(0, 0, 10, True), (1, 10, 13, False)]
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


def run_told(joined: Ranks, labels: Mapping[str, str] | None = None) -> dict[str, tuple[str, Style]]:
    """The texts of a run on the overview, by the titles of their columns."""
    row = run_row(
        joined, progress(joined, Epochs(), START), numbers(joined.gpus, labels or {}), now=START, bar_cells=8, pace="",
        change=nan,
    )  # fmt: skip
    return {
        column.title: (cell.text, cell.style) for column, cell in zip(RUN_COLUMNS, row, strict=True) if not cell.parts
    }


def test_ranks_are_one_row() -> None:
    ranks = [RUN._replace(key=key, rank=rank, epoch=rank + 2, world_size=2) for rank, key in enumerate("ab")]
    epochs = Epochs()
    begins = tuple(boundary(epoch + 1, epoch, 10.0 * epoch, run="a") for epoch in range(3))
    epochs.add(frame_with(begins, tuple(ranks)))
    (group,) = ranks_of(ranks[::-1])
    now = START + 25.0
    cells = [
        cell.text for cell in run_list.row(from_frame(group, None, epochs, now), None, now, is_open=False, cells=160)
    ]
    assert "3/10" in cells, "as far as the slowest"
    assert "1:15" in cells, "7 epochs of 10 s and half of one"
    assert "running" in cells


@pytest.mark.parametrize("planned", [{"epochs": 10, "epoch": 4}, {"epochs": 0, "epoch": -1}])
def test_a_run_whose_steps_no_longer_come_has_no_time_left(planned: dict[str, int]) -> None:
    """Its process is stopped, or hangs: at ten steps a second that is plain long before a minute is over."""
    updated = START + 100.0
    facts = RUN.facts._replace(planned_steps=3000.0)
    run = RUN._replace(step=1000, phase="train", started=START, updated=updated, facts=facts, **planned)
    run = run._replace(epoch_started=updated - 2.0)
    assert time_left(run, 20.0, updated + 29.0) > 0
    assert isnan(time_left(run, 20.0, updated + 31.0))
    slow = run._replace(step=10)
    assert time_left(slow, 100.0, updated + 49.0) > 0, "its steps take ten seconds each"
    assert isnan(time_left(slow, 100.0, updated + 51.0))
    assert time_left(run._replace(phase="validate"), 20.0, updated + 31.0) > 0, "which makes none"
    silent = run._replace(step=0, phase="", epochs=10, epoch=4)
    assert time_left(silent, 20.0, updated + 31.0) > 0, "it tells no steps"


@pytest.mark.parametrize("hours", [-1, 0, 24 * 365])
@pytest.mark.parametrize("planned", [{"epochs": 10, "epoch": 4}, {"epochs": 0, "epoch": -1}])
def test_a_clock_that_was_set_changes_no_time_left(hours: int, planned: dict[str, int]) -> None:
    now, begun = START + 100.0 + hours * 3600, 5000.0
    facts = RUN.facts._replace(planned_steps=1000.0, begun=begun)
    run = RUN._replace(step=400, started=START, updated=now, epoch_started=now - 20.0, facts=facts, **planned)
    (group,) = ranks_of([run])
    far = progress(group, Epochs(), now, round((begun + 100.0) * SECOND))
    assert far.left == pytest.approx(100.0 if planned["epochs"] else 150.0)


def test_a_run_beyond_its_plan_has_no_time_left_that_is_known() -> None:
    assert time_left(RUN._replace(epoch=9), 10.0, RUN.epoch_started + 50.0) == 0, "its last one takes longer"
    assert isnan(time_left(RUN._replace(epoch=10), 10.0, RUN.epoch_started + 5.0))
    steps = RUN._replace(epochs=0, epoch=-1, facts=RunFacts(planned_steps=900.0), started=START, updated=START + 90.0)
    assert [time_left(steps._replace(step=step), nan, START + 90.0) for step in (450, 900)] == [90.0, 0.0]
    assert isnan(time_left(steps._replace(step=901), nan, START + 90.0))


def test_an_epoch_that_takes_far_longer_than_the_others_leaves_no_end_that_moves_on_with_the_clock() -> None:
    """As of a training that was stopped: nobody knows when it goes on."""
    run = RUN._replace(epoch=3)
    assert time_left(run, 10.0, run.epoch_started + 59.0) > 0
    assert isnan(time_left(run, 10.0, run.epoch_started + 61.0))
    assert time_left(run, 100.0, run.epoch_started + 299.0) > 0
    assert isnan(time_left(run, 100.0, run.epoch_started + 301.0))


def test_progress_of_a_finished_run_is_full() -> None:
    assert bar_text(share_done(RUN._replace(state=RunState.FINISHED, epoch=9), nan, START), 4) == "▄▄▄▄"


@pytest.mark.parametrize(
    ("first", "second", "done"),
    [
        ((RunState.DIED, 2), (RunState.FINISHED, 3), 3 / 4),
        ((RunState.DIED, 2), (RunState.RUNNING, 3), 2 / 4),
        ((RunState.DIED, 2), (RunState.RUNNING, 2), 2 / 4),
        ((RunState.FINISHED, 2), (RunState.FINISHED, 3), 4 / 4),
        ((RunState.STOPPED, 3), (RunState.FINISHED, 3), 3 / 4),
        ((RunState.DIED, -1), (RunState.FINISHED, 3), 4 / 4),
    ],
)
def test_an_epoch_that_a_dead_rank_left_unended_is_not_done(
    first: tuple[RunState, int], second: tuple[RunState, int], done: float
) -> None:
    ranks = Ranks(
        tuple(
            RUN._replace(rank=rank, state=state, epoch=epoch, epochs=4, epoch_started=START, updated=START)
            for rank, (state, epoch) in enumerate((first, second))
        )
    )
    assert progress(ranks, Epochs(), START).done == done


@pytest.mark.parametrize(
    ("run", "text", "done", "left"),
    [
        (RUN._replace(epoch=0), "0 (1/10)", 0.05, 95.0),
        (RUN._replace(epoch=9), "9 (10/10)", 0.95, 5.0),
        (RUN._replace(epoch=1, base=1), "1/10", 0.05, 95.0),
        (RUN._replace(epoch=10, base=1), "10/10", 0.95, 5.0),
        (RUN._replace(epoch=8, first_epoch=8), "8 (9/10)", 0.85, 15.0),
        (RUN._replace(epoch=12), "12", 1.0, nan),
        (RUN._replace(epoch=4, epochs=0), "4", nan, nan),
        (RUN._replace(epoch=-1), "–", 0.0, nan),
    ],
)
def test_epochs_count_from_where_the_framework_begins(run: Run, text: str, done: float, left: float) -> None:
    assert run.epoch_text == text
    assert share_done(run, 10.0, START + 25.0) == pytest.approx(done, nan_ok=True)
    assert time_left(run, 10.0, START + 25.0) == pytest.approx(left, nan_ok=True)


def test_a_row_shows_the_slowest_rank_all_gpus_and_the_memory_of_all() -> None:
    held = FrameworkMemory(reserved=3 * GIB)
    ranks = [
        RUN._replace(key=f"r{rank}", rank=rank, world_size=4, step=90 - rank, gpus=(f"GPU-{rank}",), memory=held)
        for rank in range(3)
    ]
    (joined,) = ranks_of(ranks)
    labels = {f"GPU-{index}": str(index) for index in range(4)}
    told = run_told(joined, labels)
    assert told["GPUs"][0] == "0–2"
    assert from_frame(joined, None, Epochs(), START).gpus == 3
    kept = from_frame(joined, None, Epochs(), START)
    (over,) = ranks_of([RUN._replace(state=RunState.DIED, gpus=())])
    assert from_frame(over, kept, Epochs(), START).gpus == 3, "it holds none any more, and its ledger knows how many"
    assert (joined.present, joined.slowest.step) == ("3/4", 88), "one has not been seen yet"
    assert run_memory(joined.all, ()) == 9 * GIB
    used = tuple(Process(1, "GPU-0", "compute", "python", "alice", memory_used=4 * GIB, run=f"r{n}") for n in range(2))
    assert run_memory(joined.all, used) == 8 * GIB, "the driver knows of contexts too"
    assert run_memory((RUN,), ()) != run_memory((RUN,), ()), "unknown is not 0"


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ((RunState.RUNNING, RunState.DIED), RunState.DIED),
        ((RunState.FINISHED, RunState.RUNNING), RunState.RUNNING),
        ((RunState.FINISHED, RunState.FAILED), RunState.FAILED),
        ((RunState.FINISHED, RunState.FINISHED), RunState.FINISHED),
    ],
)
def test_a_run_stands_as_the_worst_of_its_ranks(states: tuple[RunState, ...], state: RunState) -> None:
    (joined,) = ranks_of([RUN._replace(key=str(n), rank=n, state=state) for n, state in enumerate(states)])
    assert joined.state is state


def test_runs_that_go_on_come_first_then_the_newest() -> None:
    made = [
        RUN._replace(key="a", id="a", started=9.0, state=RunState.FINISHED),
        RUN._replace(key="b", id="b", started=1.0),
        RUN._replace(key="c", id="c", started=2.0),
        RUN._replace(key="d", id="d"),
    ]
    assert [ranks.first.id for ranks in ranks_of(made)] == ["c", "b", "d", "a"]


def test_runs_that_began_together_are_in_the_order_of_their_names() -> None:
    began = {"vit": 1000.004, "bert": 1000.002, "gpt": 1000.009, "later": 1100.0}
    made = [RUN._replace(key=name, id=name, name=name, started=at) for name, at in began.items()]
    assert [ranks.first.name for ranks in ranks_of(made)] == ["later", "bert", "gpt", "vit"]


def test_what_befell_a_run_is_told() -> None:
    fault = boundary(5, 2, 20, Mark.OUT_OF_MEMORY)._replace(asked=2 * GIB, free=1.1 * GIB)
    (resumed,) = ranks_of([RUN._replace(first_epoch=2)])
    oom, resume = notes(resumed, [fault])
    assert oom.summary.startswith("out of memory: requested 2.0 GiB, 1.1 GiB free, at ")
    assert resume.summary == "resumed at epoch 2"
    assert (oom.severity, resume.severity) == (Severity.CRITICAL, Severity.INFO)
    (plain,) = ranks_of([RUN])
    assert notes(plain, []) == []
    (often,) = ranks_of([RUN._replace(memory=FrameworkMemory(ooms=2.0))])
    (counted,) = notes(often, [])
    assert counted.summary == "out of memory 2 times", "counted, though nobody saw it"
    assert "requested –, – free" in notes(plain, [fault._replace(asked=nan, free=nan)])[0].summary
    assert "(2 times)" in notes(plain, [fault, fault])[0].summary


def test_a_loss_that_is_no_number_stands_first_and_alarms() -> None:
    for value, said in ((nan, "nan"), (inf, "∞"), (-inf, "−∞")):
        (joined,) = ranks_of([RUN._replace(metrics={"acc": 0.5, "loss": value})])
        assert run_told(joined)["loss"] == (said, theme.CRITICAL)
        assert from_frame(joined, None, Epochs(), START).metric == f"loss {said}"
        (other,) = ranks_of([RUN._replace(metrics={"loss": 0.5, "acc": value})])
        assert run_told(other)["loss"] == (said, theme.CRITICAL), "whatever it is the value of"


def test_a_run_shows_the_loss_of_the_ranks_that_go_on() -> None:
    dead = RUN._replace(epoch=1, world_size=2, metrics={"loss": 9.0}, state=RunState.DIED)
    alive = RUN._replace(key="b", rank=1, epoch=4, world_size=2, metrics={"loss": 0.5})
    (joined,) = ranks_of([dead, alive])
    assert run_told(joined)["loss"] == ("0.5000", theme.PLAIN)
    assert from_frame(joined, None, Epochs(), START).metric == "loss 0.5000"
    (unlogged,) = ranks_of([dead._replace(metrics={}), alive])
    assert "loss" not in empty_run_columns([unlogged])


def test_metrics_with_long_names_have_room() -> None:
    logged = {"validation/top_5_accuracy_of_all_classes": 0.5, "loss": 2.0} | {f"m{n}": float(n) for n in range(12)}
    (joined,) = ranks_of([RUN._replace(metrics=logged)])
    assert run_told(joined)["loss"][0] == "2.000", "behind whatever it stands"
    columns = overview_rows.columns((), tuple(logged))
    named = {cells: fit_columns(columns, 1, cells - 1)[-2].column.cells for cells in (46, 90)}
    assert named == {46: 8, 90: 20}, "in columns that are free"
    short = overview_rows.columns((), ("learning_rate",))
    assert fit_columns(short, 1, 89)[-1].column.cells == len("learning_rate")


@pytest.mark.parametrize(
    ("indexes", "text"), [((), ""), ((3,), "3"), ((2, 0, 1), "0–2"), ((0, 2, 3), "0,2–3"), ((5, 1), "1,5")]
)
def test_gpus_are_named_by_their_spans(indexes: tuple[int, ...], text: str) -> None:
    known = {f"GPU-{index}": str(index) for index in range(8)}
    assert numbers([f"GPU-{index}" for index in indexes], known) == text


@pytest.mark.parametrize(
    ("index", "word"), [(0, "busy"), (5, "allocated, idle"), (7, "free"), (1, "lost"), (3, "stale 12 s")]
)
def test_a_word_for_each_gpu(index: int, word: str) -> None:
    feed = FakeFeed(seconds=100, lost=(1,), stale=(3,))
    view = View()
    view.frame = feed.frames[-1]
    for frame in feed.frames:
        view.activity.add(frame)
    assert gpu_status(view.statuses[index], filled(feed)).word == word


@pytest.mark.parametrize("size", [(40, 10), (40, 20), (80, 24), (120, 40), (200, 50), (320, 90)])
@pytest.mark.parametrize("gpus", [0, 1, 2, 8, 16, 32, 64])
@pytest.mark.parametrize("more", [(0, 0, 0), (3, 2, 40), (9, 30, 200)])
def test_parts_of_the_overview_do_not_overlap_and_gpus_come_first(
    size: tuple[int, int], gpus: int, more: tuple[int, int, int]
) -> None:
    findings, runs, processes = more
    made = overview_plan(*size, gpus, problem_rows=5, findings=findings, runs=runs, processes=processes)
    shown = sorted((part for part in made if part.rows), key=lambda part: (part.x, part.y))
    for one, other in pairwise(shown):
        assert one.x != other.x or one.y + one.rows <= other.y
    assert all(part.y + part.rows <= size[1] and part.x + part.cells <= size[0] for part in shown)
    across = (size[0] + 2) // 41 if size[0] >= 80 else 1
    gpu_rows = made.charts.rows if gpus == 1 and made.charts.rows else made.gpus.rows
    assert gpu_rows >= min(size[1], -(-gpus // across))
    assert not (gpus == 1 and made.charts.rows and made.gpus.rows), "one GPU is drawn once"
    if 0 < gpus <= size[1] and made.processes.rows:
        assert max(made.gpus.rows, made.charts.rows) > gpus, "headings stand before any process"
    if findings and made.runs.rows:
        assert 1 + min(findings, 3) <= made.attention.rows <= 1 + findings


def test_blank_rows_go_first_then_headings_and_never_a_gpu() -> None:
    def rows(height: int) -> tuple[int, ...]:
        made = overview_plan(80, height, 8, problem_rows=5, findings=3, runs=2, processes=40)
        return tuple(part.rows for part in (made.gpus, made.attention, made.runs, made.processes))

    assert rows(38)[:3] == (10, 4, 4)
    assert rows(22) == (10, 4, 4, 4)
    assert rows(15) == (9, 4, 1, 0)
    assert rows(13)[:2] == (9, 4)
    assert rows(8) == (8, 0, 0, 0)
    assert rows(6) == (4, 2, 0, 0), "side by side"


def test_room_that_processes_leave_has_epochs_and_events() -> None:
    def rows(processes: int, runs: int = 2, epochs: int = 9, **events: int) -> tuple[int, int]:
        made = overview_plan(
            160, 48, 8, problem_rows=5, findings=3, runs=runs, processes=processes, epochs=epochs, **events
        )  # fmt: skip
        assert not made.events.rows or made.events.y + made.events.rows == 48
        return made.epochs.rows, made.events.rows

    assert rows(7) == (9, 6)
    assert rows(7, epochs=2) == (4, 11), "epochs take what they need"
    assert rows(7, runs=0) == (0, 19)
    assert rows(14) == (0, 9)
    assert rows(40) == (0, 0)
    assert rows(11, epochs=7) == (6, 5)
    assert rows(11, epochs=7, events=1) == (9, 2), "few events leave the rest to epochs"


@pytest.mark.parametrize(
    ("size", "processes", "rows"),
    [
        ((80, 22), 7, 4),
        ((120, 38), 40, 4),
        ((120, 58), 7, 8),
        ((200, 48), 7, 8),
        ((200, 48), 28, 5),
        ((200, 48), 90, 4),
    ],
)
def test_findings_beyond_three_have_the_rows_that_nothing_else_needs(
    size: tuple[int, int], processes: int, rows: int
) -> None:
    made = overview_plan(*size, 8, problem_rows=0, findings=7, runs=2, processes=processes, epochs=7)
    assert made.attention.rows == rows
    if rows < 8 and size[0] == 200:
        assert made.processes.rows in (2 + processes, 48 - made.processes.y), "processes have all that they need"


def test_the_selected_of_many_gpus_has_charts_in_rows_that_processes_leave_on_a_wide_screen() -> None:
    def charts(processes: int, findings: int = 2, gpus: int = 8) -> int:
        made = overview_plan(200, 48, gpus, problem_rows=0, findings=findings, runs=2, processes=processes, epochs=7)
        return made.charts.rows

    assert charts(7) > charts(12) >= 11
    assert charts(7, findings=7) == charts(7) - 5, "findings come first"
    assert charts(20) == 0
    assert charts(7, gpus=24) == 0


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("findings", [0, 1, 2, 3])
def test_one_or_two_gpus_leave_no_room_empty_on_a_small_screen(gpus: int, findings: int) -> None:
    for runs, processes in ((0, 0), (1, 0), (0, 2), (1, 1), (1, 2), (2, 3), (3, 2), (1, 5), (1, 12)):
        made = overview_plan(80, 22, gpus, problem_rows=0, findings=findings, runs=runs, processes=processes)
        empty = 22 - sum(part.rows for part in made)
        assert empty <= 1, (runs, processes)
        assert made.processes.rows >= 2 + min(processes, 1)
        assert made.charts.rows or not made.events.rows or made.events.rows >= 2
        assert made.charts.rows >= 9 or not made.charts.rows


def test_more_gpus_than_rows_stand_side_by_side_where_there_are_cells_for_it() -> None:
    def rooms(cells: int, rows: int, gpus: int) -> tuple[int, int]:
        found = arrange_gpus(cells, rows, gpus)
        return found.columns, found.rows

    assert rooms(80, 17, 16) == (1, 16)
    assert rooms(80, 17, 32) == (2, 16)
    assert rooms(80, 17, 64) == (2, 16), "and a row says how many are not there"
    assert rooms(40, 12, 32) == (1, 11)
    assert rooms(200, 12, 48) == (4, 12)
    assert arrange_gpus(200, 12, 8).cells == 200


def test_flow_waits_only_for_a_terminal_that_answers() -> None:
    written: list[str] = []

    def write(text: str) -> bool:
        written.append(text)
        return True

    flow = FlowControl()
    flow.request_reply(write, 0.0)
    assert written == []
    assert flow.is_ready(0.1)
    flow.on_reply()
    flow.request_reply(write, 1.0)
    assert written == ["\x1b[?2026$p"]
    assert not flow.is_ready(2.0)
    assert flow.skipped == 1
    assert flow.is_ready(1.0 + ANSWER_TIMEOUT + 1)
    flow.on_reply()
    assert flow.is_ready(3.0)


def test_missing_numbers_are_no_level() -> None:
    history = filled(FakeFeed(gpus=1, seconds=5, gap=(0, 5)))
    assert not history.has("GPU-0000", "gpu.power")
    assert history.last("GPU-0000", "gpu.power") != history.last("GPU-0000", "gpu.power")
    assert nan != history.peak("GPU-0000", "gpu.power", 0.0, inf)


def test_a_gpu_that_heat_slows_and_that_does_nothing_for_its_holder_keeps_the_word_that_its_time_belongs_to() -> None:
    history = RecentHistory()
    for second in range(1, 4):
        history.add(frame_of(tick(second, [sample(0, utilization=0.0, throttled_hw_thermal=float(second))])))
    (one,) = frame_of(tick(3, [sample(0, utilization=0.0)])).samples
    label = gpu_status(judged(one, GpuState.HELD), history)
    assert (label.word, label.is_hot) == ("allocated, idle", True)
    assert label.style == gpu_status(judged(one, GpuState.BUSY), history).style, (
        "and the color says that something is wrong"
    )
    assert gpu_status(judged(one, GpuState.BUSY), history).word == "heat-throttled"


class TestWhileFramesOfThePastAreRead:
    """The newest frame is shown at once; those before it are read a few at a time."""

    @staticmethod
    def view(feed: FakeFeed, read: int) -> View:
        view = View()
        for frame in feed.frames[:read]:
            view.add(frame)
        view.frame = feed.frames[-1]
        view.is_loading = True
        view.recent_activity.add(feed.frames)
        return view

    def test_run_shows_the_epoch_of_the_newest_frame(self) -> None:
        feed = FakeFeed()
        view = self.view(feed, 1)
        newest = {run.key: run.epoch for run in feed.frames[-1].runs}
        shown = {sample.run: run.epoch for sample in view.samples if (run := view.run_on(sample))}
        assert shown
        assert all(newest[key] == epoch for key, epoch in shown.items())

    def test_no_epoch_and_no_gap_is_claimed(self) -> None:
        overview = OverviewPage(self.view(machine(8), 5))
        lines = []
        for part, place in zip(overview.line_widgets, overview.plan(200, 48), strict=True):
            if place.rows <= 0:
                continue
            drawn = part.draw(place.cells, place.rows)
            lines += ["".join(segment.text for segment in line) for line in drawn]
        shown = "\n".join(lines)
        assert "loading" in shown
        assert "reading history" in shown
        assert "···" not in shown, "that time was not watched is not known yet"
        assert not re.search(r"e\d+ ▸", shown), "an epoch of long ago does not go on"

    def test_gpus_are_judged_by_the_last_minutes(self) -> None:
        feed = FakeFeed(seconds=400)
        whole, view = View(), self.view(feed, 5)
        for frame in feed.frames:
            whole.add(frame)
        whole.frame = feed.frames[-1]
        states = [status.state for status in view.statuses]
        assert GpuState.HELD in states
        assert states == [status.state for status in whole.statuses]
        feed.advance()
        view.frame = feed.frames[-1]
        view.recent_activity.add(feed.frames[-1:])
        assert [status.state for status in view.statuses] == states, "frames that come meanwhile count too"
        view.is_loading = False
        for frame in feed.frames[5:]:
            view.add(frame)
        assert [status.state for status in view.statuses] == states

    def test_no_value_and_no_state_is_of_an_old_frame(self) -> None:
        class Cooled(FakeFeed):
            """Hot for the first ten seconds."""

            def sample(self, device: Device, second: int) -> Sample:
                made = super().sample(device, second)
                made.values[GPU_INDEX["gpu.throttled_hw_thermal"]] = float(min(second, 10))
                return made

        view = self.view(Cooled(), 5)
        assert all(view.label(status).word != HEAT_THROTTLED for status in view.statuses)
        assert not [one for one in view.findings.all() if "heat" in one.kind or "therm" in one.kind]
        assert isnan(view.rate(view.samples[0].device.uuid, "gpu.pcie_received"))

    def test_charts_of_a_single_gpu_claim_no_old_epoch_and_no_missing_samples(self) -> None:
        charts = OverviewCharts(self.view(FakeFeed(gpus=1), 5))
        shown = "\n".join("".join(segment.text for segment in line) for line in charts.draw(120, 20))
        assert "reading history" in shown
        assert "no samples" not in shown
        assert re.search(r"resnet50 +7 \(8/90\)", shown), "where the run is now"

    def test_nothing_is_called_fine(self) -> None:
        view = self.view(FakeFeed(gpus=1, first=600, processes_count=0), 1)
        section = AttentionSection(view)
        section.draw(120, 4)
        assert not view.findings.groups()
        assert "reading" in section.detail()[0].text
        assert "Nothing" not in str(attention_lines([], (), 80, is_read=False))
