"""Whole runs and what lies between epochs: from ticks through the ledger to every output."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import Boundary, Mark, Run, RunState
from gpumon.reports import compare, html, run_export, run_json, run_text
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import between_epochs, outside_phases
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.recorder import LedgerRecorder
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.schema import LEDGER_FILE
from gpumon.storage.ledger.writer import OpenRank, StoredRuns, write_batch
from gpumon.storage.sqlite.write import open_to_write
from tests.builders import TIME, run
from tests.unit.test_ledger_recorder import GPU, KEY, Course, Memory, keep, on, spread

NOW = TIME / SECOND + 100
WATTS = 300.0


def kept(ledger: Memory, directory: Path) -> Record:
    """The run as a reader gets it."""
    path = str(directory / "state" / "ledger.sqlite")
    connection = open_to_write(path, LEDGER_FILE, shared=False, uid=os.getuid(), log=pytest.fail)
    for batch in ledger.batches:
        assert not write_batch(connection, batch), "no row is refused"
    connection.close()
    with Ledger(path) as found:
        (listed,) = found.runs()
        return found.record(listed.run.id)


def ticks(seconds: int, boundaries: Sequence[Boundary], of: Run | None = None, **values: float) -> list[Any]:
    measured = {"power": WATTS, "utilization": 0.5, "memory_used": 2.0**30} | values
    return spread([on(n, of=of, energy=WATTS * n, **measured) for n in range(seconds)], boundaries)


def trained(evaluated: str = "evaluate") -> list[Boundary]:
    """Two epochs, each with an evaluation behind it that reaches no epoch, and a checkpoint in it."""
    make = Course()
    return [
        make(Mark.RUN_BEGIN, 1.0, -1, ""),
        make(Mark.EPOCH_BEGIN, 2.5, 0),
        make(Mark.EPOCH_END, 6.25, 0, "", step=20),
        make(Mark.PHASE, 6.5, 0, evaluated, step=20),
        make(Mark.PHASE, 9.75, 0, "", step=20),
        make(Mark.EPOCH_BEGIN, 10.0, 1, step=20),
        make(Mark.EPOCH_END, 14.5, 1, "", step=40),
        make(Mark.PHASE, 14.5, 1, evaluated, step=40),
        make(Mark.CHECKPOINT, 16.0, 1, "checkpoint", step=40),
        make(Mark.PHASE, 18.0, 1, "", step=40),
        make(Mark.RUN_END, 19.5, 1, "", step=40),
    ]


def test_epochs_and_what_lies_between_them_add_up_to_the_whole_in_time_and_energy(tmp_path: Path) -> None:
    ledger = Memory()
    keep(ledger, ticks(24, trained()))
    record = kept(ledger, tmp_path)
    epochs = aggregate.epoch_summaries(record)
    total, rest = aggregate.run_total(record, epochs), between_epochs(record, epochs)
    assert rest is not None
    assert sum(epoch.seconds for epoch in epochs) + rest.seconds == pytest.approx(total.seconds) == 18.5
    energies = [epoch.value("energy") for epoch in (*epochs, rest)]
    assert sum(energies) == pytest.approx(total.value("energy"), rel=1e-9)
    assert rest.value("energy") == pytest.approx(WATTS * 10.25)
    parts = outside_phases(record, rest)
    assert [(part.phase, part.times, part.seconds) for part in parts] == [
        ("other", 4, 3.5), ("evaluate", 2, 4.75), ("checkpoint", 1, 2.0),
    ]  # fmt: skip
    assert sum(part.value("energy") for part in parts) == pytest.approx(rest.value("energy"))


@pytest.mark.parametrize(("late", "rest"), [(0.0, 3.0), (2.0, 3.0)], ids=["together", "apart"])
def test_time_that_two_epochs_share_because_ranks_are_apart_is_not_taken_from_the_rest_twice(
    tmp_path: Path, late: float, rest: float
) -> None:
    ledger, marks, ranks = Memory(), [], []
    for rank, behind in enumerate((0.0, late)):
        make = Course(KEY if not rank else "tag.1000.4712.abcd")
        at = 1.0 + behind
        marks += [
            make(Mark.RUN_BEGIN, 1.0, -1, ""),
            *(make(mark, at + 5 * epoch + (5 if over else 0), epoch, "" if over else "train")
              for epoch in range(3) for over, mark in enumerate((Mark.EPOCH_BEGIN, Mark.EPOCH_END))),
            make(Mark.PHASE, at + 15, 2, "evaluate"),
            make(Mark.RUN_END, at + 18, 2, ""),
        ]  # fmt: skip
        ranks.append(run(key=make.key, rank=rank, world_size=2, started=(TIME + SECOND) / SECOND, step=0))
    marks.sort(key=lambda mark: mark.monotonic_ns)
    keep(ledger, [one._replace(runs=ranks) for one in ticks(26, marks)])
    record = kept(ledger, tmp_path)
    epochs = aggregate.epoch_summaries(record)
    assert [epoch.seconds for epoch in epochs] == [5 + late] * 3
    found = between_epochs(record, epochs)
    assert found is not None
    assert found.seconds == pytest.approx(rest)
    assert found.seconds >= max(part.seconds for part in outside_phases(record, None) if part.phase == "evaluate")


def test_the_row_between_epochs_is_in_every_output(tmp_path: Path) -> None:
    ledger = Memory()
    keep(ledger, ticks(24, trained()))
    record = kept(ledger, tmp_path)
    (row,) = (line for line in run_text.lines(record, NOW, 0) if line.startswith("between"))
    assert row.split()[1:3] == ["10", "s"]
    named = [line.split()[0] for line in run_text.lines(record, NOW, 0, phases=True) if line.startswith("  ")]
    assert named == ["train", "train", "other", "evaluate", "checkpoint"]
    told = run_json.run_document(record, NOW)
    assert (told["between"]["seconds"], told["total"]["phases"]) == (10.25, [])
    assert [part["phase"] for part in told["between"]["phases"]] == ["other", "evaluate", "checkpoint"]
    json.dumps(told, allow_nan=False)
    rows = list(csv.DictReader(io.StringIO("".join(run_export.lines(record)))))
    whole = {row["part"]: row for row in rows if not row["phase"]}
    assert (whole["between"]["epoch"], whole["between"]["device"]) == ("", GPU)
    assert float(whole["between"]["energy_joules"]) == pytest.approx(WATTS * 10.25)
    assert float(whole["run"]["energy_joules"]) == pytest.approx(WATTS * 18.5)
    assert {row["phase"] for row in rows if row["part"] == "between"} == {"", "other", "evaluate", "checkpoint"}
    assert ">between<" in html.page(record, [], NOW)
    compared = compare.compare([record, record])
    found = {line.measure.name: line.medians for line in compared.whole}
    assert found["between_seconds"] == [10.25, 10.25]
    assert any(line.startswith("Between epochs, energy") for line in compare.lines(compared, 0))


def test_epochs_that_follow_each_other_have_no_row_between_them(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    marks = [make(Mark.RUN_BEGIN, 1.0, -1, "")]
    for number in range(3):
        marks += [make(Mark.EPOCH_BEGIN, 1.0 + 3 * number, number), make(Mark.EPOCH_END, 4.0 + 3 * number, number, "")]
    keep(ledger, ticks(14, [*marks, make(Mark.RUN_END, 10.0, 2, "")]))
    record = kept(ledger, tmp_path)
    rest = between_epochs(record, aggregate.epoch_summaries(record))
    assert rest is not None
    assert rest.seconds == 0.0
    assert not any(line.startswith("between") for line in run_text.lines(record, NOW, 0, phases=True))


def evaluated_alone() -> tuple[list[Boundary], Run]:
    make = Course()
    marks = [
        make(Mark.RUN_BEGIN, 1.0, -1, "", metrics={}),
        make(Mark.PHASE, 2.0, -1, "test"),
        make(Mark.PHASE, 7.0, -1, "", step=0),
        make(Mark.RUN_END, 8.0, -1, "", metrics={"test_loss": 0.5}),
    ]
    return marks, run(
        gpus=(GPU,), started=(TIME + SECOND) / SECOND, epoch=-1, epochs=0, step=0, wait=math.nan,
        metrics={"test_loss": 0.5},
    )  # fmt: skip


def test_an_evaluation_alone_has_its_row_its_phase_and_its_metrics(tmp_path: Path) -> None:
    ledger = Memory()
    marks, mine = evaluated_alone()
    keep(ledger, ticks(12, marks, mine))
    record = kept(ledger, tmp_path)
    lines = list(run_text.lines(record, NOW, 0))
    assert "No epoch has started." not in lines
    heading = next(line for line in lines if line.startswith("PHASE")).split()
    assert "test_loss" in heading
    assert "STEPS" not in heading, "nobody counted any"
    assert "WAIT" not in heading, "nobody measured one"
    assert [line.split()[0] for line in lines if line.startswith(("  ", "all"))] == ["other", "test", "all"]
    assert next(line for line in lines if line.startswith("all")).split()[-1] == "0.5"
    told = run_json.run_document(record, NOW)
    assert (told["total"]["metrics"], told["total"]["wait"], told["total"]["steps"]) == ({"test_loss": 0.5}, None, None)
    assert (told["between"], [part["phase"] for part in told["total"]["phases"]]) == (None, ["other", "test"])
    rows = list(csv.DictReader(io.StringIO("".join(run_export.lines(record)))))
    assert [(row["part"], row["phase"], row["epoch"]) for row in rows] == [
        ("run", "", ""), ("run", "other", ""), ("run", "test", ""),
    ]  # fmt: skip
    assert [float(row["energy_joules"]) for row in rows] == pytest.approx([WATTS * 7, WATTS * 2, WATTS * 5])
    assert rows[0]["logged.test_loss"] == "0.5"
    page = html.page(record, [], NOW)
    assert "Whole run" in page
    assert ">Wait for data<" not in page, "nothing is known of it"
    assert ">Energy<" in page


def test_steps_outside_epochs_are_those_of_the_whole_but_for_evaluation(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    marks = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""),
        make(Mark.PHASE, 4.0, -1, "evaluate", step=60, wait=1.0),
        make(Mark.PHASE, 6.0, -1, "", step=70, wait=1.0),
        make(Mark.RUN_END, 9.0, -1, "", step=130, wait=2.0),
    ]
    mine = run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, epoch=-1, epochs=0, step=130, wait=2.0)
    keep(ledger, ticks(12, marks, mine))
    record = kept(ledger, tmp_path)
    total = aggregate.run_total(record, [])
    assert (total.steps, total.trained, total.steps_per_second) == (120, 6.0, 20.0)
    assert (total.wait, total.wait_share) == (2.0, pytest.approx(2 / 6)), "of the time in which it was measured"


def mixed() -> list[Boundary]:
    """Steps before, in and behind two epochs, and in an evaluation: 10 + 20 + 20 + 5, and 7."""
    make = Course()
    return [
        make(Mark.RUN_BEGIN, 1.0, -1, ""),
        make(Mark.EPOCH_BEGIN, 3.0, 0, step=10), make(Mark.EPOCH_END, 5.0, 0, "", step=30),
        make(Mark.PHASE, 5.0, 0, "evaluate", step=30), make(Mark.PHASE, 6.0, 0, "", step=37),
        make(Mark.EPOCH_BEGIN, 6.0, 1, step=37), make(Mark.EPOCH_END, 8.0, 1, "", step=57),
        make(Mark.RUN_END, 9.0, 1, "", step=62),
    ]  # fmt: skip


@pytest.mark.parametrize(("framework", "behind", "whole"), [("", 15, 55), ("torch", 15, 55), ("keras/torch", None, 40)])
def test_the_steps_of_a_whole_run_are_those_of_its_rows(
    tmp_path: Path, framework: str, behind: int | None, whole: int
) -> None:
    """But where a callback counts, which tells of steps outside epochs only as those of an earlier run."""
    ledger = Memory()
    mine = run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, epoch=1, epochs=2, step=62, framework=framework)
    keep(ledger, ticks(13, mixed(), mine))
    record = kept(ledger, tmp_path)
    epochs = aggregate.epoch_summaries(record)
    rest, total = between_epochs(record, epochs), aggregate.run_total(record, epochs)
    assert rest is not None
    assert ([epoch.steps for epoch in epochs], rest.steps, total.steps) == ([20, 20], behind, whole)
    told = run_json.run_document(record, NOW)
    assert (told["total"]["steps"], told["between"]["steps"]) == (whole, behind)
    row = next(line.split() for line in run_text.lines(record, NOW, 0) if line.startswith("all"))
    assert row[3] == str(whole)
    assert total.steps_per_second == pytest.approx(55 / 7 if behind else 40 / 4), "of the time in which they were made"


def test_steps_outside_epochs_that_count_none_are_those_of_the_whole(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    marks = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 3.0, 0, step=10),
        make(Mark.EPOCH_END, 6.0, 0, "", step=10), make(Mark.RUN_END, 9.0, 0, "", step=10),
    ]  # fmt: skip
    keep(ledger, ticks(13, marks, run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, epoch=0, epochs=1, step=10)))
    record = kept(ledger, tmp_path)
    epochs = aggregate.epoch_summaries(record)
    assert (epochs[0].steps, aggregate.run_total(record, epochs).steps) == (None, 10)


def test_a_command_has_one_row_and_no_tile_of_which_nothing_is_known(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    marks = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.RUN_END, 6.0, -1, "")]
    keep(ledger, ticks(9, marks, run(gpus=(), started=(TIME + SECOND) / SECOND, epoch=-1, epochs=0, step=0)))
    record = kept(ledger, tmp_path)
    assert next(line.split() for line in run_text.lines(record, NOW, 0) if line.startswith("RUN"))[:2] == [
        "RUN",
        "TIME",
    ]
    assert html.page(record, [], NOW).count('<div class="sum">') == 1, "that of its time"


def test_two_runs_without_epochs_are_compared_as_wholes(tmp_path: Path) -> None:
    records = []
    for place, seconds in (("a", 19.0), ("b", 10.0)):
        make, ledger = Course(), Memory()
        marks = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.RUN_END, 1.0 + seconds, -1, "")]
        mine = run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, epoch=-1, epochs=0, step=0, wait=math.nan)
        keep(ledger, ticks(24, marks, mine))
        records.append(kept(ledger, tmp_path / place))
    compared = compare.compare(records)
    lines = list(compare.lines(compared, 0))
    assert "Whole runs: each run has a single value, so differences have no confidence interval." in lines
    (time,) = (line.split("  ") for line in lines if line.startswith("Time"))
    assert [cell.strip() for cell in time if cell] == ["Time", "19 s", "10 s", "−47 %"]
    assert any(line.startswith("Energy") for line in lines)
    assert not any("no epoch" in line for line in lines)
    assert compare.document(compared)["measures"] == []
    assert compare.document(compared)["whole"][0]["medians"] == [19.0, 10.0]


def test_no_phase_between_epochs_takes_longer_than_all_of_that_time(tmp_path: Path) -> None:
    """One rank ends early, and is in a phase outside its epochs while the other is in an epoch."""
    ledger, marks, ranks = Memory(), [], []
    for rank, epochs in enumerate((3, 1)):
        make = Course(KEY if not rank else "tag.1000.4712.abcd")
        marks += [
            make(Mark.RUN_BEGIN, 1.0, -1, ""),
            *(make(mark, 1.0 + 5 * epoch + (5 if over else 0), epoch, "" if over else "train")
              for epoch in range(epochs) for over, mark in enumerate((Mark.EPOCH_BEGIN, Mark.EPOCH_END))),
            make(Mark.PHASE, 1.0 + 5 * epochs, epochs - 1, "evaluate"),
            make(Mark.PHASE, 17.0 if not rank else 13.0, epochs - 1, ""),
            make(Mark.RUN_END, 18.0 if not rank else 14.0, epochs - 1, ""),
        ]  # fmt: skip
        ranks.append(run(key=make.key, rank=rank, world_size=2, started=(TIME + SECOND) / SECOND, step=0))
    marks.sort(key=lambda mark: mark.monotonic_ns)
    keep(ledger, [one._replace(runs=ranks) for one in ticks(26, marks)])
    record = kept(ledger, tmp_path)
    rest = between_epochs(record, aggregate.epoch_summaries(record))
    assert rest is not None
    parts = {part.phase: part.seconds for part in outside_phases(record, rest)}
    assert rest.seconds == pytest.approx(2.0)
    assert parts == {"evaluate": pytest.approx(2.0)}, "nothing is left for other"


def test_what_a_run_did_while_it_was_paused_is_not_of_it(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    marks = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""),
        make(Mark.EPOCH_BEGIN, 1.0, 0),
        make(Mark.EPOCH_END, 5.0, 0, ""),
        make(Mark.PHASE, 5.0, 0, "paused"),
        make(Mark.PHASE, 11.0, 0, "validate"),
        make(Mark.PHASE, 14.0, 0, "paused"),
        make(Mark.RUN_END, 14.0, 0, ""),
    ]
    keep(ledger, ticks(24, marks))
    record = kept(ledger, tmp_path)
    epochs = aggregate.epoch_summaries(record)
    total, rest = aggregate.run_total(record, epochs), between_epochs(record, epochs)
    assert rest is not None
    assert (total.seconds, rest.seconds, [part.phase for part in outside_phases(record, rest)]) == (
        7.0,
        3.0,
        ["validate"],
    )
    assert total.value("energy") == pytest.approx(WATTS * 7)


def test_a_run_whose_process_went_away_while_it_was_paused_had_finished(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    marks = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 1.0, 0), make(Mark.EPOCH_END, 5.0, 0, ""),
        make(Mark.PHASE, 5.0, 0, "paused"),
    ]  # fmt: skip
    shown = ticks(8, marks)
    mine = shown[0].runs[0]._replace(state=RunState.DIED)
    recorder = keep(ledger, shown, close=False)
    keep(ledger, [on(n, of=mine, energy=WATTS * n) for n in range(8, 12)], recorder)
    record = kept(ledger, tmp_path)
    assert (record.run.state, record.run.seconds) == (RunState.FINISHED, 4.0)


def test_what_lies_between_epochs_goes_on_over_a_restart_of_the_daemon(tmp_path: Path) -> None:
    shown, first, second = ticks(24, trained()), Memory(), Memory()
    keep(first, shown[:9])
    progress = json.loads(first.row("progress", KEY)["state"])
    left = OpenRank(first.all("run")[0]["id"], 1, "node1", TIME, progress, [])
    second.stored = StoredRuns({KEY: left}, set(), {})
    keep(second, shown[9:], LedgerRecorder(second))
    second.batches = [*first.batches, *second.batches]
    record = kept(second, tmp_path)
    epochs = aggregate.epoch_summaries(record)
    rest = between_epochs(record, epochs)
    assert rest is not None
    assert rest.seconds == 10.25
    assert rest.value("energy") == pytest.approx(WATTS * 10.25)


def test_where_boundaries_were_lost_nothing_is_told_of_what_lies_between_epochs(tmp_path: Path) -> None:
    marks = [mark for mark in trained() if mark.number != 6]
    ledger = Memory()
    keep(ledger, ticks(24, marks))
    record = kept(ledger, tmp_path)
    assert (list(record.outside), between_epochs(record, aggregate.epoch_summaries(record))) == ([], None)


def test_phases_outside_epochs_with_ever_new_names_are_bounded(tmp_path: Path) -> None:
    make, ledger = Course(), Memory()
    marks = [make(Mark.RUN_BEGIN, 1.0, -1, "")]
    marks += [make(Mark.PHASE, 1.0 + 0.01 * n, -1, f"phase {n}") for n in range(1, 500)]
    keep(ledger, ticks(12, [*marks, make(Mark.RUN_END, 9.0, -1, "")]))
    parts = outside_phases(kept(ledger, tmp_path), None)
    assert len(parts) <= 34
    assert sum(part.seconds for part in parts) == pytest.approx(8.0)
