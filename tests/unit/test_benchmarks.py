"""The pure parts of the benchmarks: tables, budgets, the README, what is read off a terminal. No times."""

from __future__ import annotations

import math
import os
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import (
    callbacks,
    core,
    ledger,
    month_values,
    report,
    ring,
    tags,
    terminal,
    tui,
    usage,
)
from benchmarks.history_peer import Peer, Question
from benchmarks.history_tables import PARQUET, ROWS
from benchmarks.month import fill
from benchmarks.report import Budget, Result
from benchmarks.trainings import TRAININGS, case, measure
from benchmarks.year import keep_year
from gpumon.model.events import BY_NAME
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, Kind
from gpumon.storage.history.overview import overview
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.sqlite.write import open_to_write
from tests.conftest import ROOT


def test_a_budget_is_kept_up_to_its_limit() -> None:
    assert Budget("calls", 6.0, 6).cells() == ("calls", "6", "6", "≤ 6", "ok")
    assert Budget("CPU", 0.123, 0.1, "×").cells() == ("CPU", "0.123×", "0.123×", "≤ 0.1×", "**over**")


def test_times_are_judged_for_the_core_that_budgets_are_meant_for() -> None:
    slow = core.scale(0.018, 0.022)
    assert slow == pytest.approx(0.5)
    assert Budget("frame", 30, 20, " µs").cells(slow) == ("frame", "30 µs", "15 µs", "≤ 20 µs", "ok")
    assert not Budget("frame", 12, 20, " µs").is_kept(core.scale(0.005, 0.005)), "a fast core must do it in less"
    assert Budget("viewers", 12, 10, " %", of_a_core=True).is_kept(slow)
    for unit in ("×", "", " MB", " %"):
        assert not Budget("a ratio, a count, bytes", 7, 6, unit).is_kept(slow)


def test_a_result_names_what_is_over_its_budget_on_the_reference_core() -> None:
    result = Result("Ring", (), budgets=[Budget("newest", 30, 20, " µs"), Budget("calls", 7, 6)])
    assert result.over == ["newest", "calls"]
    result.scale = 0.5
    assert result.over == ["calls"]
    assert "on the reference core" in result.text()


def test_a_core_is_timed_by_the_cpu_of_an_empty_python() -> None:
    assert 0 < core.pass_cpu(1) < 10


def test_a_table_has_columns_of_one_width() -> None:
    text = report.table(("program", "s"), [("gpumon", "1.25"), ("a longer name", "3")])
    assert text.splitlines() == [
        "| program       | s    |",
        "| ------------- | ---- |",
        "| gpumon        | 1.25 |",
        "| a longer name | 3    |",
    ]


def test_only_what_stands_between_the_markers_is_written(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    result = Result("Ring", ("what", "µs"), [("newest", "10")], [Budget("newest", 10, 20, " µs")], ["A note."])
    report.write([result], report.machine("2030-01-02"), readme)
    text = readme.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    assert all(part in text for part in ("2030-01-02", "### Ring", "| newest | 10 |", "A note."))


def test_a_program_measured_anew_replaces_its_own_section_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{report.BEGIN}\n{report.END}\n")
    ring, web, later = (
        Result(title, ("what",), [(cell,)]) for title, cell in (("Ring", "1"), ("Web", "2"), ("Ring", "3"))
    )
    report.write([ring, web], "Measured first.", readme)
    report.write([later], "Measured later.", readme)
    _, first, second = " ".join(readme.read_text().split()).split("### ")
    assert first == "Ring | what | | ---- | | 3 | Measured later. "
    assert second == f"Web | what | | ---- | | 2 | Measured first. {report.END}"


def test_a_readme_without_markers_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing here\n")
    with pytest.raises(ValueError, match="has no"):
        report.write([], "measured", readme)
    assert readme.read_text() == "nothing here\n"


def test_the_readme_of_the_benchmarks_has_its_markers_and_every_program() -> None:
    text = report.README.read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1
    for name in command.PROGRAMS:
        assert f"`{name}`" in text
        assert (ROOT / "benchmarks" / f"{name}.py").exists()


def test_a_ledger_to_measure_is_one_of_so_many_runs(tmp_path: Path) -> None:
    ledger.fill(tmp_path / "ledger.sqlite", 3, 2)
    with Ledger(str(tmp_path / "ledger.sqlite")) as filled:
        assert [(listed.done, listed.gpus) for listed in filled.runs(where=[("batch", "32")])] == [(2, 1)] * 3
        record = filled.record(filled.runs(tags=["swept"])[0].run.id)
    assert (len(record.epochs), len(record.phases), len(record.usage)) == (2, 4, 7)


def test_figures() -> None:
    figures = usage.Figures([3.0, 1.0, 2.0, 10.0])
    assert (figures.median, figures.least, figures.quantile(0.99), figures.quantile(0)) == (2.5, 1.0, 10.0, 1.0)


def test_the_cpu_clock_of_a_process_runs_forward() -> None:
    before = usage.cpu_seconds(os.getpid())
    sum(range(100_000))
    assert usage.cpu_seconds(os.getpid()) > before > 0


def test_escape_sequences_are_no_text() -> None:
    stream = b"\x1b[?1049h\x1b[1;31mGPU\x1b[0m\x1b]0;title\x07 7\x1b[?2026$p\x1b(B"
    assert terminal.plain(stream).split() == ["GPU", "7"]


def test_a_first_frame_is_whole_with_every_gpu_and_a_screenful_of_processes() -> None:
    pids = range(4000, 4040)
    rows = " ".join(map(str, pids[:8]))
    for name, gpu in ((tui.OURS, "97 % 68.4 "), (tui.NVITOP, "4096MiB / 80.00GiB ")):
        complete = tui.whole(pids, tui.A_GPU[name])
        assert complete(gpu * 8 + rows)
        assert not complete(gpu * 7 + rows)
        assert not complete(gpu * 8 + " ".join(map(str, pids[:7])))


def test_the_ticks_of_the_ring_have_every_metric() -> None:
    first, second, *_, fourth = ring.ticks(4)
    assert len(first.samples) == 8
    assert len(first.processes) == 40
    assert all(value == value for value in first.samples[0].values)
    assert first.processes is second.processes
    assert first.processes is not fourth.processes


def test_the_slowdown_of_nothing_is_within_its_interval() -> None:
    _, middle, low, high, pairs, *_ = tags.slowdown(lambda: None, lambda: None, 50)
    assert pairs == 50
    assert low <= middle <= high


def test_a_loader_times_steps_within_epochs_and_turns_between_them() -> None:
    loader = case.Loader([])
    loader.epochs = [[(0, 0), (9000, 9000)], [(20_000, 0), (22_000, 5000)], [(30_000, 0), (33_000, 6000)]]
    assert loader.steps(0) == [2, 3]
    assert loader.steps(1) == [5, 6]
    assert loader.turns(0) == [8]


def test_a_loader_notes_each_fetch_after_its_work_is_done() -> None:
    done: list[int] = []
    loader = case.Loader(["a", "b"], lambda: done.append(1))
    assert [list(loader), list(loader)] == [["a", "b"], ["a", "b"]]
    assert [len(epoch) for epoch in loader.epochs] == [2, 2]
    assert len(done) == 4
    assert len(loader.away) == 3


def test_a_median_of_differences_lies_within_its_interval() -> None:
    value, low, high = callbacks.middle([float(i) for i in range(101)])
    assert value == 50
    assert 35 < low < value < high < 65
    assert callbacks.middle([2.0] * 6) == (2, 2, 2)


def test_too_few_differences_have_no_interval() -> None:
    value, low, high = callbacks.middle([2.0, 4.0, 3.0, 1.0, 5.0])
    assert value == 3
    assert math.isnan(low)
    assert math.isnan(high)
    assert callbacks.between((value, low, high)) == "–"
    once = {name: {what: [1.0] for what in ("cpu", "mean", "wall", "epoch")} for name in ("", "gpumon")}
    result = Result("", ())
    callbacks._add(result, "plain loop", {"found": once, "long": {}, "failed": {}})
    assert (result.budgets, len(result.notes)) == ([], 1), "so nothing is judged"


def test_every_training_to_time_has_its_file() -> None:
    for training in TRAININGS.values():
        assert (ROOT / "benchmarks" / "trainings" / f"{training.module}.py").exists()


def test_what_a_callback_adds_is_its_difference_from_the_block_beside_it() -> None:
    blocks = range(7)
    found = {
        "": {"cpu": [10.0 * i for i in blocks], "mean": [1.0] * 7, "wall": [1.0] * 7, "epoch": [100.0] * 7},
        "gpumon": {"cpu": [10.0 * i + 2 for i in blocks], "mean": [4.0] * 7, "wall": [1.5] * 7, "epoch": [150.0] * 7},
    }
    long = {"": [100.0 * i for i in blocks], "gpumon": [100.0 * i + 30 for i in blocks]}
    told = {"found": found, "long": long, "failed": {"zeus": "No GPU\nsecond line"}}
    result = Result("", ())
    callbacks._add(result, "plain loop", told)
    assert result.rows[1] == (
        "plain loop", "gpumon", "7, 7", "32", "2", "2 to 2", "3", "0.5", "30", "30 to 30", "50", "50 to 50",
    )  # fmt: skip
    assert [budget.measured for budget in result.budgets] == [2]
    assert result.notes == ["zeus, in the plain loop, is not measured: No GPU"]
    callbacks._add(result, "XGBoost", told)
    assert result.rows[-1][-2:] == ("–", "–"), "it has no epochs"


def test_a_training_is_timed_in_whole_rounds_until_its_time_is_over() -> None:
    assert sorted(measure._in_turn(["a", "b"], 0)) == ["a", "b"]
    names = list(measure._in_turn(["a", "b"], 0.01))
    assert len(names) > 2
    assert names.count("a") == names.count("b")


def test_any_part_of_the_month_is_the_same_by_itself() -> None:
    _, hour = month_values.hours(3 * 3600, 5 * 3600)
    (part,) = month_values.hours(4 * 3600 + 100, 4 * 3600 + 200)
    assert part.first == hour.first + 100
    assert np.array_equal(part.gpus, hour.gpus[100:200], equal_nan=True)
    assert np.array_equal(part.host, hour.host[100:200])


def test_counters_of_the_month_grow_from_hour_to_hour() -> None:
    counters = [place for place, metric in enumerate(GPU_METRICS) if metric.kind is Kind.COUNTER]
    for before, after in pairwise(month_values.hours(5 * 3600, 8 * 3600)):
        both = np.concatenate((before.gpus, after.gpus))[:, :, counters]
        known = ~np.isnan(both).all(axis=(0, 1))
        assert known.sum() > 5
        assert np.diff(both[:, :, known], axis=0).min() >= 0


def test_the_first_gpu_of_the_month_stands_still_for_one_second() -> None:
    begin = month_values.STALL // 3600 * 3600
    used = np.concatenate(
        [hour.gpus[:, 0, GPU_INDEX["gpu.utilization"]] for hour in month_values.hours(begin, begin + 7200)]
    )
    assert list(np.flatnonzero(used == 0)) == [month_values.STALL - begin]


def test_a_month_is_kept_tick_by_tick_with_accounts_behind_it(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    tmp_path.chmod(0o700)
    fill(path, 1e9, 7200, 7920)
    assert next(tier.end - tier.begin for tier in overview(path).tiers) == 720
    with closing(open_to_write(path, HISTORY_FILE, shared=False, uid=os.getuid(), log=print)) as connection:
        keep_year(connection, 1e9, hours=5)
        assert connection.execute("SELECT count(*) FROM device_hour").fetchone() == (5 * 8,)
        assert connection.execute("SELECT count(*) FROM account").fetchone()[0] >= 5 * 8
        kinds = {kind for (kind,) in connection.execute("SELECT kind FROM event")}
        assert {"run_began", "run_ended", "throttling_began"} <= kinds <= set(BY_NAME)


@pytest.mark.parametrize("peer", [ROWS, PARQUET], ids=lambda peer: peer.name)
def test_a_peer_answers_a_line_of_what_it_was_given(peer: Peer, tmp_path: Path) -> None:
    if missing := peer.missing():
        pytest.skip(f"{peer.name}: {missing}")
    peer.keep(tmp_path, 1_000_000_000, month_values.hours(7200, 7200 + 300))
    with peer.opened(tmp_path) as ask:
        assert [ask(Question(1_000_007_200, 1_000_007_200 + 200, step)).points for step in (1, 20)] == [200, 10]
