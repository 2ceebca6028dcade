"""Trainings without epochs: rows of their steps, from the training to the table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import gpumon
from gpumon.common.clock import SECOND
from gpumon.model.frame import Boundary, Mark, Run, RunState
from gpumon.model.steps import MAX_ROWS, mark_size, row_size
from gpumon.reports import epoch_export, html, run_export, run_json, run_text
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import outside_phases, step_summaries, steps_text
from gpumon.storage.ledger.api import PastLedger
from gpumon.storage.ledger.timeline import EpochTimeline
from gpumon.tracking.logged_values import RowEnd, StepMarker
from gpumon.tracking.memory import NEVER
from gpumon.tracking.tag_reader import Poll
from gpumon.tracking.wire_format import NOT_KNOWN
from tests.builders import TIME, run
from tests.unit.test_ledger_recorder import GPU, Course, Memory, keep, on, spread
from tests.unit.test_tags_values import Gpu, on_its_way
from tests.unit.test_whole_runs import NOW, WATTS, kept, ticks

MS = 1_000_000


def marks(steps: int, every: int, each: int = MS) -> list[RowEnd]:
    """Return the ends of rows of a training with `steps` steps, published every `every` steps."""
    rows = StepMarker()
    found = [rows.advance(RowEnd(step, step * each, 0)) for step in range(1, steps + 1) if (step - 1) % every == 0]
    return [end for ends in found for end in ends]


@pytest.mark.parametrize("steps", [20, 50, 51, 99, 100, 101, 250, 251, 999, 12345, 10**6])
def test_a_long_training_has_20_to_50_rows(steps: int) -> None:
    assert 20 <= math.ceil(steps / row_size(steps)) <= MAX_ROWS
    assert row_size(steps) % mark_size(steps) == 0
    assert str(row_size(steps)).strip("0") in ("1", "2", "5")


def test_row_ends_are_interpolated_between_publications() -> None:
    ends = marks(3000, every=47)
    assert ends[-1].step == 2900
    assert {end.step for end in ends} >= set(range(100, 3000, 100)), "of each size that rows may come to have"
    assert all(end.monotonic_ns == end.step * MS for end in ends)


def test_the_number_of_rows_is_logarithmic() -> None:
    each = [len(marks(10**power, every=1)) for power in (3, 4, 5)]
    assert all(0 < longer - shorter < 150 for shorter, longer in pairwise(each))
    assert len(marks(10**5, every=50)) < each[-1] < 500
    marker = StepMarker()
    assert marker.advance(RowEnd(5003, MS, 0)) == [RowEnd(5000, MS, 0)], "a loop that is resumed"
    assert len(marker.advance(RowEnd(10**9, 9 * MS, 0))) <= 100


def test_rows_and_phases_are_published_in_order() -> None:
    rows = StepMarker()
    assert rows.advance(RowEnd(1, 10 * MS, 0)) == [RowEnd(1, 10 * MS, 0)]
    rows.restart(RowEnd(1, 900 * MS, 0))  # an evaluation has just ended
    assert rows.advance(RowEnd(3, 1000 * MS, 0)) == [RowEnd(2, 950 * MS, 0), RowEnd(3, 1000 * MS, 0)]


def test_a_wait_that_became_unknown_is_not_interpolated() -> None:
    rows = StepMarker()
    rows.advance(RowEnd(99, 10 * MS, 5))
    assert rows.advance(RowEnd(102, 20 * MS, NOT_KNOWN)) == [RowEnd(100, 20 * MS, NOT_KNOWN)]


def test_only_a_loop_without_epochs_has_rows(look: Callable[[], Poll]) -> None:
    with gpumon.run("net", steps=3) as tags:
        for step in range(1, 4):
            tags._due = 0
            tags.step()
            tags.log({"loss": 1 / step})
    told = look().boundaries
    assert [(one.step, dict(one.metrics)) for one in told if one.mark is Mark.STEPS] == [(1, {}), (2, {}), (3, {})]
    assert logged_in_rows(told) == {1: {"loss": 1.0}, 2: {"loss": 0.5}, 3: {"loss": 1 / 3}}
    with gpumon.run("epochs", epochs=1) as tags:
        for _ in tags.epochs():
            tags._due = 0
            tags.step()
    assert not [one for one in look().boundaries if one.mark is Mark.STEPS]


def test_steps_of_logs_count_if_nothing_else_counts_steps(look: Callable[[], Poll]) -> None:
    with gpumon.run("net") as tags:
        tags.log({"loss": 1.0}, step=40)
        tags.log({"loss": 0.5}, 80)
        tags.log({"loss": 0.5}, step=70)
        assert look().runs[0].step == 80
        tags.log({"loss": 0.25}, step="many")
        assert look().runs[0].step == 80
    with gpumon.run("counted") as tags:
        tags.step()
        tags.log({"loss": 1.0}, step=40)
        tags.log({"loss": 1.0})
        assert look().runs[-1].step == 1


def logged_in_rows(boundaries: list[Boundary]) -> dict[int, dict[str, float]]:
    """Return the values logged in each row by the last step of the row, as the daemon stores them."""
    timeline = EpochTimeline()
    for boundary in boundaries:
        timeline.add(boundary)
    rows = timeline.step_rows.rows
    ends = [row.end.step if row.end else timeline.last.step for row in rows]
    return {end: row.metrics for end, row in zip(ends, rows, strict=True) if row.metrics}


def test_values_logged_after_a_step_belong_to_the_row_that_ends_with_it(look: Callable[[], Poll]) -> None:
    with gpumon.run("net", steps=100) as tags:
        for step in range(1, 101):
            tags._due = 0
            tags.step()
            tags.log(loss=step)
            if step % 50 == 0:
                with tags.phase("evaluate"):
                    tags.log(accuracy=step)
                tags.log({"f1": step / 100})
    found = logged_in_rows(look().boundaries)
    assert [found[end]["loss"] for end in (10, 50, 90, 100)] == [10, 50, 90, 100]
    evaluated = {end: (row["accuracy"], row["f1"]) for end, row in found.items() if "accuracy" in row}
    assert evaluated == {50: (50, 0.5), 100: (100, 1.0)}, "the last one, too"


def test_fast_steps_have_their_own_values(look: Callable[[], Poll]) -> None:
    with gpumon.run("net") as tags:
        for step in range(1, 201):
            tags.step()
            tags._due = NEVER if step % 47 else 0
            tags.log(loss=step)
    found = logged_in_rows(look().boundaries)
    assert len(found) >= 20
    assert all(end - 5 < row["loss"] <= end for end, row in found.items())


def test_the_step_of_a_log_says_in_which_row_it_is_kept(look: Callable[[], Poll]) -> None:
    with gpumon.run("net") as tags:
        for _ in range(40):
            tags._due = 0
            tags.step()
        tags.log({"early": 1.0}, step=7)
        tags.log({"first": 1.0}, step=0)
        tags.log({"ahead": 1.0}, step=1000)
    found = logged_in_rows(look().boundaries)
    assert found == {7: {"early": 1.0}, 1: {"first": 1.0}, 40: {"ahead": 1.0}}, "no step is invented"


def test_steps_counted_by_logs_have_rows(look: Callable[[], Poll]) -> None:
    with gpumon.run("net") as tags:
        for step in range(1, 41):
            tags._due = 0
            tags.log({"loss": step}, step=step)
    assert {end: row["loss"] for end, row in logged_in_rows(look().boundaries).items()} == {n: n for n in range(1, 41)}


def test_steps_in_another_unit_do_not_flood_the_board(look: Callable[[], Poll]) -> None:
    with gpumon.run("net") as tags:
        for step in range(1, 4001):
            tags._due = NEVER if step % 100 else 0
            tags.step()
            tags.log({"loss": step}, step=step // 8)
        assert tags._board.events < 1500
    assert sum(one.of_step > 0 for one in look().boundaries) > 0


def test_a_value_from_a_gpu_belongs_to_the_row_in_which_it_was_logged(look: Callable[[], Poll]) -> None:
    gpu = Gpu()
    with gpumon.run("net") as tags:
        for step in range(1, 11):
            tags._due = 0
            tags.step()
            if step == 5:
                tags._pending.add("loss", on_its_way(gpu, 0.5), -1, tags._rows.end_of(step))
        gpu.done = True
    assert logged_in_rows(look().boundaries) == {5: {"loss": 0.5}}


def test_late_values_of_a_row_are_in_every_output(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    found = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.STEPS, 2.0, -1, "", 1), make(Mark.STEPS, 3.0, -1, "", 2),
        make(Mark.LOG, 3.5, -1, "", 2, metrics={"accuracy": 0.75})._replace(of_step=2),
        make(Mark.STEPS, 4.0, -1, "", 3), make(Mark.RUN_END, 4.0, -1, "", 3),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(8)], found))
    record = kept(ledger, tmp_path)
    logged = [{}, {"accuracy": 0.75}, {}]
    assert [dict(row.metrics) for row in step_summaries(record)] == logged
    assert [row["metrics"] for row in run_json.run_document(record, NOW)["steps"]] == logged
    table = list(csv.DictReader(io.StringIO("".join(epoch_export.lines(record)))))
    assert [row[f"{epoch_export.LOGGED}accuracy"] for row in table][:3] == ["", "0.75", ""]
    shown = [line for line in run_text.lines(record, NOW, 0) if line[:1].isdigit()]
    assert [" 0.75" in line for line in shown] == [False, True, False]


def stepped(steps: int, each: float, evaluate: int = 0) -> tuple[list[Boundary], float]:
    """The boundaries of a training by steps; behind every `evaluate` of them half a second of evaluation."""
    make, rows, at = Course(), StepMarker(), 1.0
    found = [make(Mark.RUN_BEGIN, at, -1, "")]
    for step in range(1, steps + 1):
        at += each
        wait = step * 0.25 * each
        for end in rows.advance(RowEnd(step, round(at * SECOND), round(wait * SECOND))):
            found.append(make(Mark.STEPS, at, -1, "", end.step, wait, metrics={"loss": 1 / step}))
        if evaluate and step % evaluate == 0:
            found.append(make(Mark.PHASE, at, -1, "evaluate", step, wait))
            at += 0.5
            found.append(make(Mark.PHASE, at, -1, "", step, wait))
    return [*found, make(Mark.RUN_END, at, -1, "", steps, steps * 0.25 * each, metrics={"loss": 1 / steps})], at


def of_steps(steps: int, each: float) -> Run:
    return run(
        gpus=(GPU,), started=(TIME + SECOND) / SECOND, epoch=-1, epochs=0, step=steps, wait=steps * 0.25 * each,
        metrics={"loss": 1 / steps},
    )  # fmt: skip


def test_three_hundred_steps_with_six_evaluations_have_thirty_rows_in_every_output(tmp_path: Path) -> None:
    ledger = Memory()
    boundaries, end = stepped(300, 0.2, evaluate=50)
    keep(ledger, ticks(math.ceil(end) + 3, boundaries, of_steps(300, 0.2)))
    record = kept(ledger, tmp_path)
    rows = step_summaries(record)
    assert [steps_text(row) for row in rows] == [f"{first}–{first + 9}" for first in range(1, 300, 10)]
    assert {row.steps for row in rows} == {10}
    total = aggregate.run_total(record, [])
    assert (total.steps, total.seconds) == (300, pytest.approx(63.0))
    assert sum(row.seconds for row in rows) == pytest.approx(63.0 - 0.5), "the last evaluation is behind them"
    assert sum(row.value("energy") for row in rows) == pytest.approx(WATTS * 62.5, rel=1e-6)
    assert all(row.steps_per_second == pytest.approx(5.0) for row in rows), "without evaluation"
    assert all(row.wait_share == pytest.approx(0.25) for row in rows)
    assert [part.times for part in outside_phases(record, None) if part.phase == "evaluate"] == [6]
    lines = list(run_text.lines(record, NOW, 0))
    (heading,) = (line for line in lines if line.startswith("STEP "))
    assert heading.split()[-1] == "loss"
    assert sum("–" in line.split()[0] for line in lines if line[:1].isdigit()) == 30
    assert [line.split()[0] for line in lines if line.startswith(("  ", "all"))] == ["evaluate", "all"]
    last = list(run_text.lines(record, NOW, 0, tail=2))
    assert [line.split()[0] for line in last if line[:1].isdigit()] == ["281–290", "291–300"]
    assert "the last 2 of 30 rows of steps" in last
    told = run_json.run_document(record, NOW)
    assert [row["first_step"] for row in told["steps"]] == list(range(0, 300, 10))
    assert told["steps"][0]["metrics"] == {"loss": 0.1}
    table = list(csv.DictReader(io.StringIO("".join(run_export.lines(record)))))
    assert [row["first_step"] for row in table if row["part"] == "steps"] == [str(one) for one in range(0, 300, 10)]
    heading, *_ = made = list(epoch_export.lines(record))
    assert len(made) == 1 + 30 + 1
    page = html.page(record, [], NOW)
    assert "291–300" in page
    assert "<h2>Steps</h2>" in page
    assert '<div class="what">Steps</div><div class="value">300</div><div class="more">5.00 per second</div>' in page
    assert ">Epochs<" not in page, "it has none, and not 0 of them"


def test_rows_of_a_running_training_are_merged_in_the_ledger(tmp_path: Path) -> None:
    ledger = Memory()
    boundaries, end = stepped(120, 0.5)
    keep(ledger, ticks(math.ceil(end) + 3, boundaries, of_steps(120, 0.5)))
    record = kept(ledger, tmp_path)
    assert [row.steps for row in record.step_rows] == [5] * 24
    assert sum(row.ordinal <= -1000 for row in record.outside_usage) == 24
    assert step_summaries(record)[3].value("energy") == pytest.approx(WATTS * 2.5, rel=1e-6)


def test_the_open_row_has_the_values_so_far(tmp_path: Path) -> None:
    ledger = Memory()
    boundaries, _ = stepped(30, 0.5)
    keep(ledger, ticks(12, boundaries[:20], of_steps(22, 0.5)))
    record = kept(ledger, tmp_path)
    assert record.run.state is RunState.RUNNING
    assert [math.isnan(row.ended) for row in record.step_rows][-2:] == [False, True]
    assert " …" in next(line for line in run_text.lines(record, NOW, 0) if line.startswith("20"))


def test_a_training_that_comes_to_epochs_has_no_rows_of_steps(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    found = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.STEPS, 2.0, -1, "", 1), make(Mark.STEPS, 3.0, -1, "", 2),
        make(Mark.EPOCH_BEGIN, 13.0, 0, "train", 3), make(Mark.EPOCH_END, 18.0, 0, "", 9),
        make(Mark.RUN_END, 18.0, 0, "", 9),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(22)], found))
    record = kept(ledger, tmp_path)
    assert (record.step_rows, step_summaries(record)) == ([], [])
    assert len(record.epochs) == 1


def test_a_command_has_no_rows_of_steps(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    keep(ledger, ticks(9, [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.RUN_END, 6.0, -1, "")]))
    assert kept(ledger, tmp_path).step_rows == []


def test_rows_of_a_hostile_board_are_limited(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    found = [make(Mark.RUN_BEGIN, 1.0, -1, "")]
    found += [make(Mark.STEPS, 1 + 0.001 * n, -1, "", 7) for n in range(1, 3000)]
    found += [make(Mark.STEPS, 4 + 0.001 * n, -1, "", 7 + n) for n in range(1, 9000)]
    recorder = keep(ledger, ticks(15, found, of_steps(9000, 0.1)), close=False)
    (rank,) = recorder._ranks.values()
    assert len(rank.timeline.step_rows.rows) <= 101
    assert len(rank.timeline.step_rows.absorbed) <= 4096
    assert all(len(usage.step_rows) <= 101 for usage in rank.device_usage.values())
    recorder.close()
    assert 20 <= len(kept(ledger, tmp_path).step_rows) <= MAX_ROWS
    assert row_size(1 << 62) > 0


def test_a_row_ends_when_its_last_step_is_done(look: Callable[[], Poll]) -> None:
    with gpumon.run("net", steps=3) as tags:
        for batch in tags.steps(range(1, 4)):
            tags.log({"loss": 1 / batch})
            tags._due = 0
    found = [(one.step, dict(one.metrics)) for one in look().boundaries if one.mark is Mark.STEPS]
    assert found == [(1, {"loss": 1.0}), (2, {"loss": 0.5})], "the last one ends with the run"


def test_values_logged_after_the_last_step_are_in_its_row(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    found = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.STEPS, 2.0, -1, "", 1), make(Mark.STEPS, 3.0, -1, "", 2),
        make(Mark.RUN_END, 4.0, -1, "", 2, metrics={"loss": 0.5}),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(8)], found))
    assert [dict(row.metrics) for row in step_summaries(kept(ledger, tmp_path))] == [{}, {"loss": 0.5}]


def test_rows_of_steps_are_there_in_python(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    found = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.STEPS, 2.0, -1, "", 1), make(Mark.STEPS, 4.0, -1, "", 2),
        make(Mark.RUN_END, 4.0, -1, "", 2),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(8)], found))
    kept(ledger, tmp_path)
    with PastLedger([str(tmp_path / "state" / "ledger.sqlite")]) as opened:
        past = opened.run()
        assert [(row.first_step, row.steps, row.seconds) for row in past.steps] == [(0, 1, 1.0), (1, 1, 2.0)]
        assert (past.between, len(past.epochs), past.steps.to_polars().height) == (None, 0, 2)
