"""The course of a run that goes on: up to now, with its gaps, whatever the ledger has written of it yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpumon.analysis.run_epochs import EpochSpan
from gpumon.common.clock import SECOND
from gpumon.model.frame import Frame, Mark, Run, RunState, Tick
from gpumon.recording.content import DecodedParts
from gpumon.reports.figures.run_chart import LOGGED
from gpumon.ring.takeover import FULL_FRAMES
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledgers
from gpumon_web.stored.run_course import MAX_VALUES, LoggedValues, update_epochs
from tests.builders import TIME, boundary, device, run, sample, tick
from tests.runs import BEGAN, Book, training
from tests.web.charted import lines
from tests.web.served import Served

KEY = "tag.1000.4711.abcd"


def at(second: float, loss: float | None = None, epoch: int = 0) -> Tick:
    """A tick `second` seconds after the run began; rings know the time by `TIME`, which is when it began."""
    going = run(
        KEY, id="net-1a2b", started=BEGAN, state=RunState.RUNNING, epoch=epoch, epoch_started=BEGAN + 20.0 * epoch,
        gpus=(device().uuid,), metrics={} if loss is None else {"loss": loss},
    )  # fmt: skip
    found = tick(1, [sample(0, utilization=0.5, memory_used=4e9, memory_total=8e10, run=KEY)], runs=[going])
    return found._replace(monotonic_ns=round(second * 1e9), time_ns=TIME + round(second * 1e9))


def drawn(book: Book, ticks: list[Tick]) -> dict[str, Any]:
    found: dict[str, Any] = Served(ticks, [str(book.path)]).run("net-1a2b")["chart"]
    return found


def line(chart: dict[str, Any], name: str) -> dict[str, Any]:
    return lines(chart)[name]


def end(of: dict[str, Any]) -> float:
    """When a line ends, in seconds since the run began."""
    return float(of["x"][-1] - BEGAN)


@pytest.fixture
def book(tmp_path: Path) -> Any:
    """A run of which the ledger has the first 20 seconds and one epoch."""
    with Book(tmp_path) as made:
        rank = made.rank(made.run("net-1a2b", started=BEGAN * 10**9), key=KEY)
        made.device(rank, 0, uuid=device().uuid)
        made.epoch(rank, 0, ended=(BEGAN + 20) * 10**9, seconds=20.0)
        made.trace(rank, device().uuid, {"gpu.utilization": [(0.5,) * 3] * 20, "gpu.memory_used": [(4e9,) * 3] * 20})
        made.trace(rank, "", {"loss": [(2.0,) * 3] * 20})
        yield made


def test_what_a_run_logged_reaches_as_far_as_its_utilization(book: Book) -> None:
    figure = drawn(book, [at(second, 3.0 - second / 50) for second in range(60)])
    assert end(line(figure, "gpu.utilization")) == pytest.approx(59, abs=1)
    assert end(line(figure, "logged.loss")) == pytest.approx(59, abs=1)


def test_a_run_older_than_the_ring_is_drawn_from_the_ledger_and_then_up_to_now(book: Book) -> None:
    figure = drawn(book, [at(second, 3.0) for second in range(15, 60)])
    utilization = line(figure, "gpu.utilization")
    assert utilization["x"][0] == BEGAN + 0.5
    assert utilization["mean"] == [0.5] * len(utilization["mean"])
    assert end(utilization) == pytest.approx(59, abs=1)
    assert end(line(figure, "logged.loss")) == pytest.approx(59, abs=1)


def test_what_was_logged_before_the_full_frames_is_drawn_from_the_ledger(book: Book) -> None:
    """The ring has the values of all 200 s, and what was logged in the last 128."""
    figure = drawn(book, [at(second, 3.0) for second in range(200)])
    assert line(figure, "gpu.utilization")["mean"] == [0.5] * 200
    loss = line(figure, "logged.loss")
    values = {round(x - BEGAN, 1): y for x, y in zip(loss["x"], loss["mean"], strict=True) if y is not None}
    assert {y for second, y in values.items() if second < 20} == {2.0}
    assert {y for second, y in values.items() if second >= 20} == {3.0}
    assert min(second for second in values if second >= 20) >= 200 - FULL_FRAMES, "nobody knows what was logged before"


def test_a_loss_that_was_no_number_before_the_full_frames_keeps_its_mark(tmp_path: Path) -> None:
    inf, losses = math.inf, [*([1.0] * 180), *([math.nan] * 20)]
    with Book(tmp_path) as book:
        rank = book.rank(book.run("net-1a2b", started=BEGAN * 10**9), key=KEY)
        book.device(rank, 0, uuid=device().uuid)
        book.trace(rank, device().uuid, {"gpu.utilization": [(0.5,) * 3] * 20})
        book.trace(rank, "", {"loss": [(2.0,) * 3] * 5 + [(-inf, math.nan, inf)] + [(2.0,) * 3] * 14})
        figure = drawn(book, [at(second, loss) for second, loss in enumerate(losses)])
    found = [(one["time"] - BEGAN, one["text"]) for one in figure["events"]]
    assert found == [(5.5, "loss is NaN"), (180.0, "loss is NaN")]


def test_no_turn_to_nan_is_left_out(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run("net-1a2b", started=BEGAN * 10**9), key=KEY)
        book.device(rank, 0, uuid=device().uuid)
        book.trace(rank, device().uuid, {"gpu.utilization": [(0.5,) * 3] * 20})
        figure = drawn(book, [at(second, math.nan if second % 2 else 1.0) for second in range(100)])
    turns = [one["time"] - BEGAN for one in figure["events"] if one["text"] == "loss is NaN"]
    assert len(turns) > 20
    assert max(turns) >= 98


@pytest.mark.parametrize("count", [LOGGED, LOGGED + 5])
def test_a_chart_says_how_many_logged_metrics_it_leaves_out(tmp_path: Path, count: int) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run("net-1a2b", started=BEGAN * 10**9), key=KEY)
        book.device(rank, 0, uuid=device().uuid)
        book.trace(rank, "", {f"metric_{number}": [(0.5,) * 3] * 20 for number in range(count)})
        figure = drawn(book, [at(0)])
    assert len(figure["panels"]) == len(figure["all"]) == LOGGED
    assert ("cut" in figure) == (count > LOGGED)
    assert count == LOGGED or f"{LOGGED} of {count}" in figure["cut"]


def test_the_open_epoch_has_its_band_up_to_now(book: Book) -> None:
    begun = boundary(1, 1, Mark.EPOCH_BEGIN, KEY)._replace(time_ns=TIME + 20 * 10**9)
    ticks = [at(second, epoch=int(second >= 20)) for second in range(60)]
    ticks[25] = ticks[25]._replace(boundaries=[begun])
    figure = drawn(book, ticks)
    (ribbon,) = figure["runs"]
    assert [number for _, _, number, *_ in ribbon["bands"]] == [0, 1]
    assert ribbon["bands"][-1][1] - BEGAN == pytest.approx(59, abs=1)
    assert figure["end"] - BEGAN == pytest.approx(59, abs=1)


def test_epochs_that_only_the_ring_knows_yet_have_a_row(book: Book) -> None:
    marks = [(Mark.EPOCH_BEGIN, 1, 20), (Mark.EPOCH_END, 1, 40), (Mark.EPOCH_BEGIN, 2, 40)]
    ticks = [at(second, epoch=second // 20) for second in range(50)]
    for number, (mark, epoch, second) in enumerate(marks, 1):
        made = boundary(number, epoch, mark, KEY)._replace(time_ns=TIME + second * 10**9)
        ticks[second] = ticks[second]._replace(boundaries=[*ticks[second].boundaries, made])
    served = Served(ticks, [str(book.path)])
    found = served.run("net-1a2b")
    _, ended, open_one = found["epochs"]
    assert (ended.epoch, ended.seconds) == (1, 20.0)
    assert (open_one.epoch, open_one.seconds) == (2, 9.0)
    assert (found["epochs_total"], found["summary"]["ended"]) == (3, 2)
    rows = served.json("/api/kept?page=run&id=net-1a2b")["tables"]["epochs"]["cells"]
    assert rows["2"]["seconds"]["since"] == BEGAN + 40, "it goes on with the clock of the page"
    assert [rows[key]["verdict_text"] for key in "12"] == ["settling", "running"]


def test_a_short_open_epoch_does_not_end_as_the_one_before_it(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3, seconds=0.3, state=RunState.RUNNING, course=False)
        book.db.execute("UPDATE epoch SET ended = NULL WHERE ordinal = 2")
        with Ledgers([str(book.path)]) as ledgers:
            [(ledger, _)] = ledgers.candidates("net-1a2b")
            kept = aggregate.epoch_summaries(ledger.record("net-1a2b"))
    before, opened = kept[1:]
    ring = [
        EpochSpan(before.epoch, before.begun, before.ended, finished=True),
        EpochSpan(opened.epoch, opened.begun, opened.begun + 18.0, finished=False),
    ]
    found = update_epochs(kept, ring)
    assert [one.epoch for one in found] == [0, 1, 2]
    assert found[-1].is_open
    assert found[-1].seconds == pytest.approx(18.0)
    later = [*ring[:1], ring[1]._replace(end=opened.begun + 0.3, finished=True),
             EpochSpan(3, opened.begun + 0.3, opened.begun + 0.4, finished=False)]  # fmt: skip
    assert [(one.epoch, one.is_open, one.ordinal) for one in update_epochs(kept, later)[-2:]] == [
        (2, False, 2), (3, True, 3),
    ]  # fmt: skip


def test_a_pause_keeps_its_length_and_is_a_gap(book: Book) -> None:
    figure = drawn(book, [at(second, 2.0) for second in (*range(20), *range(40, 60))])
    utilization, loss = line(figure, "gpu.utilization"), line(figure, "logged.loss")
    assert utilization["step"] == 1
    assert [value is None for value in utilization["mean"]] == [20 <= second < 40 for second in range(60)]
    times = [x - BEGAN for x, y in zip(loss["x"], loss["mean"], strict=True) if y is not None]
    assert (len(times), max(time for time in times if time < 30), min(time for time in times if time > 20)) == (
        40,
        19,
        40,
    )
    assert None in loss["mean"]


def test_a_loss_that_is_no_number_is_a_mark_in_the_figure(book: Book) -> None:
    losses = [1.0] * 10 + [math.nan] * 10 + [math.inf] * 10 + [0.5] * 10
    figure = drawn(book, [at(second, loss) for second, loss in enumerate(losses)])
    assert [(one["time"] - BEGAN, one["text"]) for one in figure["events"]] == [
        (10.0, "loss is NaN"),
        (20.0, "loss is infinite"),
    ]
    loss = line(figure, "logged.loss")
    assert None in loss["mean"], "no line over it"


def test_what_a_run_logged_is_forgotten_an_hour_after_it_is_over() -> None:
    logged = LoggedValues()
    over, going = run(key="over", metrics={"loss": 2.0}), run(key="going", metrics={"loss": 1.0})
    for number in range(1, 100):
        logged.add(frame_of(number, [over, going]))
    for number in range(100, MAX_VALUES + 100):
        logged.add(frame_of(number, [going]))
        assert "over" in logged._runs
    for number in range(MAX_VALUES + 100, MAX_VALUES + 400):
        logged.add(frame_of(number, [going]))
    assert list(logged._runs) == ["going"], "one that logs seldom keeps what holds"
    assert list(logged._last) == ["going"]


def frame_of(number: int, runs: list[Run]) -> Frame:
    """The least that is looked at of a frame."""
    parts = DecodedParts((), (), (), tuple(runs), ())
    return Frame(number, number * SECOND, TIME + number * SECOND, 1.0, 0.0, 0, 0, parts)


def test_what_was_logged_as_an_epoch_ended_is_in_the_course_though_no_sample_has_it(tmp_path: Path) -> None:
    """Three epochs of 0.6 s, and samples each second: the last loss is of the last epoch, and nothing comes after."""
    with Book(tmp_path) as made:
        ended = {"started": BEGAN * SECOND, "ended": round((BEGAN + 1.9) * SECOND), "state": RunState.FINISHED}
        rank = made.rank(made.run("net-1a2b", **ended), state=RunState.FINISHED, key=KEY)
        for ordinal in range(3):
            begun = round((BEGAN + 0.6 * ordinal) * SECOND)
            made.epoch(rank, ordinal, begun=begun, ended=begun + 600_000_000, seconds=0.6,
                       metrics=f'{{"loss": {3 - ordinal}}}')  # fmt: skip
        made.trace(rank, "", {"loss": [(3.0,) * 3, (2.0,) * 3, (2.0,) * 3]})
        served = Served((), [str(made.path)])
    found = line(served.json("/api/kept?page=run&id=net-1a2b")["figures"]["course"], "logged.loss")
    assert [round(time - BEGAN, 3) for time in found["x"]] == [0.6, 1.2, 1.8]
    assert found["mean"] == [3, 2, 1]


def logged_once(path: Path, losses: Sequence[float], trace: Sequence[tuple[float, float, float]], **run: Any) -> Any:
    """The drawn loss of epochs of 1.5 s, each of which logs it at its end; samples begin behind the first of them."""
    with Book(path) as made:
        ended = {"started": BEGAN * SECOND, "ended": round((BEGAN + 1.5 * len(losses) + 0.2) * SECOND), **run}
        rank = made.rank(made.run("net-1a2b", **ended), state=ended["state"], key=KEY)
        for ordinal, loss in enumerate(losses):
            begun = round((BEGAN + 1.5 * ordinal) * SECOND)
            is_over = ordinal < len(losses) - 1 or ended["state"] is RunState.FINISHED
            made.epoch(rank, ordinal, begun=begun, ended=begun + SECOND * 3 // 2 if is_over else None, seconds=1.5,
                       metrics=f'{{"loss": {loss}}}')  # fmt: skip
        made.trace(rank, "", {"loss": trace}, begun=(BEGAN + 2) * SECOND)
        served = Served((), [str(made.path)])
    found = line(served.json("/api/kept?page=run&id=net-1a2b")["figures"]["course"], "logged.loss")
    assert not {"low", "high"} & {*found}
    return [(round(time - BEGAN, 3), value) for time, value in zip(found["x"], found["mean"], strict=True)]


def test_what_short_epochs_logged_once_is_drawn_once_at_their_ends_and_never_mixed(tmp_path: Path) -> None:
    mixed = 0.25, 0.375, 0.5
    trace = [(1.0,) * 3, (0.5,) * 3, (0.5,) * 3, mixed, (0.25,) * 3, (0.25,) * 3]
    found = logged_once(tmp_path, [1.0, 0.5, 0.25, 0.125], trace, state=RunState.FINISHED)
    assert found == [(1.5, 1.0), (3.0, 0.5), (4.5, 0.25), (6.0, 0.125)]


def test_the_value_that_a_run_logged_just_before_it_failed_is_the_last_of_its_course(tmp_path: Path) -> None:
    trace = [(1.0,) * 3, (0.5,) * 3]
    found = logged_once(tmp_path, [1.0, 0.5, 0.25], trace, state=RunState.FAILED)
    assert found == [(1.5, 1.0), (3.0, 0.5), (4.5, 0.25)]
