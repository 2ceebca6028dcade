"""Runs as people and programs see them: joined over ranks, as tables, compared, exported."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.text import cut, text_width
from gpumon.diagnosis.past_findings import past_run
from gpumon.model import units
from gpumon.model.columns import USAGE
from gpumon.model.frame import RunState
from gpumon.reports import (
    compare,
    compare_measures,
    epoch_export,
    run_export,
    run_json,
    run_list,
    run_notes,
    run_tables,
    run_text,
)
from gpumon.reports.csv import BYTE_ORDER_MARK
from gpumon.reports.run_export import FORMATS
from gpumon.reports.text_table import TextColumn, draw
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record, RunSummary
from gpumon.storage.ledger.row_keys import WHOLE_RUN
from tests.runs import BEGAN, GIB, HOSTILE, Book, measured, training, uuid_of

NOW = BEGAN + 86400.0 * 2
DOCS = Path(__file__).parents[2] / "docs" / "read" / "runs.md"


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "state")


def record_of(book: Book, run_id: str = "resnet50-1a2b") -> Record:
    with Ledger(str(book.path)) as ledger:
        return ledger.record(run_id)


def listed_runs(book: Book) -> list[RunSummary]:
    with Ledger(str(book.path)) as ledger:
        return ledger.runs()


def shown(book: Book) -> str:
    return "\n".join(run_text.lines(record_of(book), NOW, 0))


def two_ranks(book: Book, same_device: bool = False) -> Record:
    """Two ranks whose epoch 0 begins and ends one second apart."""
    book.run(world_size=2)
    for rank in range(2):
        key = book.rank("resnet50-1a2b", rank)
        uuid = book.device(key, 0 if same_device else rank)
        book.epoch(key, 0, begun=(BEGAN + rank) * 10**9, ended=(BEGAN + 10 + rank) * 10**9, steps=100 + rank,
                   wait=1.0 + rank, metrics=json.dumps({"loss": 0.5 + rank, f"only {rank}": rank}))  # fmt: skip
        book.usage(key, 0, uuid, **measured(utilization=0.6 + 0.2 * rank, memory_used_peak=(40 + rank) * GIB,
                                            utilization_p5=0.1 * rank, sampled=10.0 - rank))  # fmt: skip
    return record_of(book)


def test_an_epoch_of_several_ranks_begins_with_the_first_and_ends_with_the_last(book: Book) -> None:
    (epoch,) = aggregate.epoch_summaries(two_ranks(book))
    assert (epoch.begun, epoch.ended, epoch.seconds) == (BEGAN, BEGAN + 11, 11.0)
    assert (epoch.steps, epoch.wait, epoch.ranks) == (101, 1.5, 2)
    assert epoch.metrics == {"loss": 0.5, "only 0": 0, "only 1": 1}, "rank 0 is believed"


def test_a_wait_that_nobody_measured_is_no_share_of_the_time(book: Book) -> None:
    key = book.rank(book.run())
    book.epoch(key, 0, wait=None)
    book.epoch(key, 1, wait=0.5)
    shares = [epoch.wait_share for epoch in aggregate.epoch_summaries(record_of(book))]
    assert math.isnan(shares[0])
    assert shares[1] == 0.05


def test_an_epoch_that_has_not_ended_is_as_long_as_its_ranks_are_known_to_be_in_it(book: Book) -> None:
    book.run(world_size=2)
    for number in range(2):
        key = book.rank("resnet50-1a2b", number)
        book.epoch(key, 0, begun=(BEGAN + number) * 10**9, ended=None, seconds=4.0 + number)
    (epoch,) = aggregate.epoch_summaries(record_of(book))
    assert (epoch.begun, epoch.seconds) == (BEGAN, 6.0)
    assert math.isnan(epoch.ended)


def test_devices_are_joined_by_what_each_number_means(book: Book) -> None:
    (epoch,) = aggregate.epoch_summaries(two_ranks(book))
    assert epoch.value("energy") == 10_000
    assert epoch.value("power_mean") == 1000
    assert epoch.value("utilization_mean") == pytest.approx(0.7)
    assert epoch.value("utilization_p5") == 0
    assert epoch.value("memory_used_peak") == 41 * GIB
    assert epoch.value("sampled") == 9.0
    assert epoch.value("temperature_mean") == 62.0
    assert epoch.energy_per_step == 10_000 / 101


def test_a_device_that_two_ranks_share_counts_once(book: Book) -> None:
    (epoch,) = aggregate.epoch_summaries(two_ranks(book, same_device=True))
    assert epoch.value("energy") == 5000
    assert epoch.value("utilization_mean") == pytest.approx(0.7)


def test_part_of_a_sum_is_not_the_sum(book: Book) -> None:
    book.run(world_size=2)
    for rank in range(2):
        key = book.rank("resnet50-1a2b", rank)
        uuid = book.device(key, rank)
        book.epoch(key, 0)
        book.usage(key, 0, uuid, **measured(energy=None if rank else 100.0))
    (epoch,) = aggregate.epoch_summaries(record_of(book))
    assert math.isnan(epoch.value("energy"))


@pytest.mark.parametrize("name", ["utilization_mean", "utilization_p5", "utilization_p95", "idle_share"])
def test_utilization_is_unknown_where_one_device_did_not_answer(book: Book, name: str) -> None:
    key = book.rank(book.run())
    book.epoch(key, 0)
    for index in range(2):
        book.usage(key, 0, book.device(key, index), **measured(**({name: None} if index else {})))
    (epoch,) = aggregate.epoch_summaries(record_of(book))
    assert math.isnan(epoch.value(name))


def test_ranks_that_share_a_device_and_begin_apart_used_what_its_counter_passed_in_any_of_them(book: Book) -> None:
    book.run(world_size=2)
    for rank, (begun, ended) in enumerate(((1000.0, 6000.0), (1500.0, 6800.0))):
        key = book.rank("resnet50-1a2b", rank)
        uuid = book.device(key, 0)
        book.epoch(key, 0)
        for ordinal in (0, WHOLE_RUN):
            own = measured(energy=ended - begun, energy_least=ended - begun)
            book.usage(key, ordinal, uuid, **own, energy_from=begun, energy_to=ended)
    record = record_of(book)
    (epoch,) = aggregate.epoch_summaries(record)
    whole = aggregate.run_total(record, [epoch])
    assert [one.value("energy") for one in (epoch, whole)] == [5800.0, 5800.0]


def test_an_epoch_that_one_rank_has_not_ended_goes_on(book: Book) -> None:
    book.run(world_size=2)
    for rank in range(2):
        book.epoch(book.rank("resnet50-1a2b", rank), 0, **({"ended": None} if rank else {}))
    (epoch,) = aggregate.epoch_summaries(record_of(book))
    assert math.isnan(epoch.ended)


def test_the_epoch_table_has_a_row_for_each_epoch_and_phase(book: Book) -> None:
    training(book, epochs=3)
    text = list(run_text.lines(record_of(book), NOW, 0, phases=True))
    assert text[0].startswith("resnet50  ·  run resnet50-1a2b")
    assert "alice on node1" in text[1]
    assert text[2] == "GPU 0: NVIDIA H100 80GB HBM3 (80.0 GiB, 700 W)"
    assert "3 of 3 epochs" in text[3]
    first = next(i for i, line in enumerate(text) if line.startswith("EPOCH"))
    assert [line.split()[0] for line in text[first : first + 11]] == [
        "EPOCH", "0", "train", "validate", "1", "train", "validate", "2", "train", "validate", "all",
    ]  # fmt: skip
    assert all(word in text[first] for word in ("UTIL", "P5–P95", "ENERGY", "MEM MAX", "ALLOC MAX", "loss", "accuracy"))
    assert "UTIL comes from the driver's own samples" in text[-1]


def test_samples_have_columns_where_every_rank_tells_how_many_a_step_has(book: Book) -> None:
    training(book, epochs=2)
    text = shown(book)
    assert "STEPS/S" in text
    assert "SAMPLE" not in text
    book.db.execute("UPDATE rank SET batch = 32")
    book.db.commit()
    epochs = aggregate.epoch_summaries(record_of(book))
    total = aggregate.run_total(record_of(book), epochs)
    columns, rows = run_tables.epoch_table(epochs, {}, total)
    found = dict(zip([column.heading for column in columns], rows[-1], strict=True))
    assert float(found["SAMPLES/S"]) == pytest.approx(32 * total.steps_per_second, rel=0.01)
    assert float(found["ENERGY/SAMPLE"].removesuffix(" J")) == pytest.approx(total.energy_per_step / 32, rel=0.01)


def test_what_was_not_sampled_or_did_not_end_is_said(book: Book) -> None:
    book.run(state=RunState.DIED, epochs=None)
    key = book.rank("resnet50-1a2b", state=RunState.DIED, lost_events=7)
    uuid = book.device(key)
    book.epoch(key, 0)
    book.epoch(key, 1, ended=None, seconds=4.0)
    book.usage(key, 0, uuid, utilization_from="ticks", **measured(sampled=2.5))
    book.usage(key, 1, uuid, utilization_from="")
    book.out_of_memory(key)
    text = shown(book)
    assert "1 …" in text
    assert "one sample per tick" in text
    assert "epoch 0 (25% sampled)" in text
    assert "7 epoch boundaries were overwritten" in text
    assert "Out of memory: epoch 1, step 150" in text
    assert "requested 2.0 GiB, free 1.0 GiB" in text


def test_a_running_run_that_nobody_watches_is_not_said_to_run(book: Book) -> None:
    training(book, epochs=2, state=RunState.RUNNING)
    (listed,) = listed_runs(book)
    assert run_list.state(listed.run, listed.run.updated + 5) == "running"
    assert run_list.state(listed.run, listed.run.updated + 3600) == "unseen"
    assert listed.run.duration == pytest.approx(listed.run.updated - listed.run.started)
    lengths = [run_json.run_document(record_of(book), listed.run.updated + late) for late in (0, 5, 3600)]
    assert len({document["total"]["seconds"] for document in lengths}) == 1, "energy and steps do not grow either"
    assert "not seen by a daemon since" in "\n".join(run_text.lines(record_of(book), NOW, 80))


@pytest.mark.parametrize("dead", [0, 1])
def test_a_run_of_which_a_rank_died_has_the_last_values_of_the_other(book: Book, dead: int) -> None:
    book.run(state=RunState.DIED, world_size=2, epochs=4, ended=(BEGAN + 40) * SECOND)
    for rank, (epochs, state, loss) in enumerate(
        [(2, RunState.DIED, 0.5), (4, RunState.FINISHED, 0.25)][:: -1 if dead else 1]
    ):
        ended = (BEGAN + 10 * epochs) * SECOND
        key = book.rank("resnet50-1a2b", rank, state=state, ended=ended, metrics=json.dumps({"loss": loss}))
        for ordinal in range(epochs):
            book.epoch(key, ordinal)
    record = record_of(book)
    total = aggregate.run_total(record, aggregate.epoch_summaries(record))
    assert total.metrics == {"loss": 0.25}
    assert past_run(record, total, NOW).epoch == units.epoch(1, 4, 0)


def test_a_resumed_run_counts_the_epochs_before_it(book: Book) -> None:
    book.run(first_epoch=40, epochs=90, resumes="resnet50-0000", base=0)
    key = book.rank("resnet50-1a2b")
    book.epoch(key, 0, epoch=40)
    (listed,) = listed_runs(book)
    assert run_list.epoch_cell(listed) == "41/90"
    assert listed.done == 1, "the others ended in the run that it resumes"
    text = shown(book)
    assert "41 of 90 epochs done (1 in this run)" in text
    assert "resumes resnet50-0000" in text


def test_epochs_that_ended_before_the_first_recorded_one_are_done(book: Book) -> None:
    book.run(epochs=40, base=0)
    book.epoch(book.rank("resnet50-1a2b"), 0, epoch=7)
    record = record_of(book)
    assert "8 of 40 epochs done" in "\n".join(run_text.lines(record, NOW, 0))
    assert run_json.listing(listed_runs(book), NOW)["runs"][0]["epochs_done"] == 8


def test_epochs_that_are_in_the_row_of_another_are_done(book: Book) -> None:
    book.run(epochs=40, base=0)
    book.epoch(book.rank("resnet50-1a2b", folded_epochs=6), 0, epoch=0)
    assert "7 of 40 epochs done" in shown(book)
    assert run_json.listing(listed_runs(book), NOW)["runs"][0]["epochs_done"] == 7


def test_a_row_of_merged_epochs_names_them_all(book: Book) -> None:
    book.run(epochs=8, base=0)
    key = book.rank("resnet50-1a2b", folded_epochs=4)
    for ordinal, (epoch, count) in enumerate(((0, 1), (1, 3), (4, 1), (5, 2), (7, 1))):
        book.epoch(
            key, ordinal, epoch=epoch, seconds=2.0 * count, metrics='{"loss": "NaN"}' if epoch in (1, 5) else "{}"
        )
    record = record_of(book)
    epochs = aggregate.epoch_summaries(record)
    assert [epoch.label for epoch in epochs] == ["0", "1–3", "4", "5–6", "7"]
    assert [epoch["merged"] for epoch in run_json.run_document(record, NOW)["epochs"]] == [1, 3, 1, 2, 1]
    (seconds,) = (measure for measure in compare_measures.MEASURES if measure.column.key == "seconds")
    assert [seconds.value_of(epoch) for epoch in epochs] == [2.0] * 5
    (diverged,) = run_notes.diverged(epochs)
    assert "1–3" in diverged
    assert "2 later" in diverged


@pytest.mark.parametrize(("steps", "told"), [(0, "0 of 40 epochs done"), (2016, "– of 40 epochs done")])
def test_how_many_epochs_are_done_is_unknown_where_steps_came_before_the_first_one_seen(
    book: Book, steps: int, told: str
) -> None:
    """As in a recording of some seconds in the middle of an epoch."""
    book.run(epochs=40, base=0)
    book.rank("resnet50-1a2b", steps=steps)
    assert told in shown(book)
    (listed,) = run_json.listing(listed_runs(book), NOW)["runs"]
    assert listed["epochs_done"] == (None if steps else 0)
    book.epoch("tag.1000.4711.resnet50-1a2b", 0, epoch=7, ended=None)
    (listed,) = run_json.listing(listed_runs(book), NOW)["runs"]
    assert listed["epochs_done"] == 7, "as the training counts: it is in the eighth"


def test_a_run_that_died_within_an_epoch_is_listed_with_that_epoch(book: Book) -> None:
    training(book, epochs=3)
    book.db.execute("UPDATE run SET epochs = 4")
    book.db.execute("UPDATE epoch SET ended = NULL WHERE ordinal = 2")
    (listed,) = listed_runs(book)
    assert (run_list.epoch_cell(listed), listed.done) == ("3/4", 2)
    book.db.execute("UPDATE run SET state = ?", (RunState.RUNNING,))
    (listed,) = listed_runs(book)
    assert run_list.epoch_cell(listed) == "3/4", "as a frame has it: the place of its newest epoch"
    assert "2 of 4 epochs done" in shown(book)


def test_ranks_have_rows_and_one_that_died_is_shown_unasked(book: Book) -> None:
    training(book, epochs=2, gpus=2)
    assert "RANK" not in shown(book)
    assert "RANK" in "\n".join(run_text.lines(record_of(book), NOW, 0, ranks=True))
    book.db.execute("UPDATE rank SET state = ? WHERE rank = 1", (RunState.DIED,))
    text = shown(book)
    assert "RANK" in text
    assert "died" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_fit_the_width_and_lose_the_least_important_first(book: Book, width: int) -> None:
    training(book, epochs=3)
    training(book, HOSTILE, 1, user=HOSTILE, began=BEGAN + 1)
    listing = list(run_list.lines(listed_runs(book), NOW, width))
    assert max(map(text_width, listing)) <= width
    assert "RUN" in listing[0]
    assert "EPOCH" in listing[0]
    text = list(run_text.lines(record_of(book), NOW, width))
    table = text[text.index("") + 1 :]
    assert max(map(text_width, table[: table.index("")])) <= width
    assert "UTIL" in table[0]


@pytest.mark.parametrize("width", [30, 80])
def test_sentences_fit_the_width_and_keep_their_words(book: Book, width: int) -> None:
    for run_id in ("a-1", "b-2"):
        key = book.rank(book.run(run_id), lost_events=7)
        uuid = book.device(key)
        for epoch in range(4):
            book.epoch(key, epoch)
            book.usage(key, epoch, uuid, **measured(sampled=2.5))
        book.out_of_memory(key)
    record, comparison = record_of(book, "a-1"), compared(book, "a-1", "b-2")
    for view in (
        lambda width: run_text.lines(record, NOW, width),
        lambda width: compare.lines(comparison, width),
    ):
        lines, unlimited = list(view(width)), list(view(0))
        assert [line for line in lines if text_width(line) > width and " " in line] == []
        notes, whole = ("\n".join(text).rpartition("\n\n")[2].split() for text in (lines, unlimited))
        assert notes == whole
        assert any(text_width(line) > 80 for line in unlimited)


def test_the_energies_of_a_list_of_runs_have_one_unit(book: Book) -> None:
    for name, seconds in (("large-1", 9000.0), ("small-2", 1.0), ("least-3", 0.001)):
        training(book, name, 5, seconds=seconds)
    listing = list(run_list.lines(listed_runs(book), NOW, 0))
    at = listing[0].index("ENERGY") + len("ENERGY")
    energies = {line.split()[0]: line[:at].split("  ")[-1].strip() for line in listing[1:]}
    assert {text.split()[1] for text in energies.values()} == {"kWh"}
    assert energies["least-3"] == "<0.001 kWh", "what took energy did not take none"


@pytest.mark.parametrize("energy", [None, 5900.0])
def test_the_energy_of_a_listed_run_is_at_least_what_is_known_of_it(book: Book, energy: float | None) -> None:
    key = book.rank(book.run("gap-1a2b"))
    book.usage(key, WHOLE_RUN, book.device(key), **measured(60.0, energy=energy, energy_least=5900.0))
    (listed,) = run_json.listing(listed_runs(book), NOW)["runs"]
    assert (listed["energy"], listed["energy_least"]) == (energy, 5900.0)


def test_a_run_on_a_gpu_without_utilization_was_sampled_all_the_same(book: Book) -> None:
    key = book.rank(book.run("on-mig"))
    uuid = book.device(key)
    book.epoch(key, 0)
    book.usage(key, 0, uuid, utilization_from="", seconds=10.0, sampled=10.0, memory_used_peak=2.0**30)
    with Ledger(str(book.path)) as ledger:
        (listed,) = ledger.runs()
        text = "\n".join(run_text.lines(ledger.record(listed.run.id), NOW, 0))
    assert "No GPU of this run was sampled" not in text
    assert "The driver reported no utilization for this run's GPUs" in text


def test_everything_null_and_everything_hostile_can_be_shown(book: Book) -> None:
    book.run(HOSTILE, name=HOSTILE, user=HOSTILE, hostname=HOSTILE, framework=HOSTILE, driver=HOSTILE, epochs=None)
    key = book.rank(HOSTILE, wait=None)
    uuid = book.device(key, name=HOSTILE, memory_total=None, power_limit=None)
    book.epoch(key, 0, ended=None, seconds=None, wait=None, metrics=json.dumps({HOSTILE: None, "x": 1.0}))
    book.phase(key, 0, HOSTILE, 1.0, wait=None)
    book.usage(key, 0, uuid, utilization_from="")
    book.usage(key, 0, uuid, HOSTILE, utilization_from="")
    with Ledger(str(book.path)) as ledger:
        (listed,) = ledger.runs()
        record = ledger.record(listed.run.id)
        text = [*run_text.lines(record, NOW, 0, phases=True, ranks=True), *run_list.lines([listed], NOW, 0)]
    text += compare.lines(compare.compare([record, record]), 0)
    assert all(line.isprintable() for line in text)
    assert "No GPU of this run was sampled yet." in text
    for made in (
        run_json.run_document(record, NOW),
        run_json.listing([listed], NOW),
        run_export.document(record, [], NOW),
    ):
        assert "\\u001b" not in json.dumps(made, allow_nan=False)
    assert "".join(run_export.lines(record))


def test_five_thousand_epochs_are_all_there(book: Book) -> None:
    training(book, epochs=5000, seconds=2.0, course=False, phases=False)
    record = record_of(book)
    text = list(run_text.lines(record, NOW, 80))
    rows = [line for line in text if line[:1].isdigit()]
    assert [int(row.split()[0]) for row in rows] == list(range(5000))
    assert len("".join(run_export.lines(record)).splitlines()) == 1 + 5000 + 1
    found = compare.compare([record, record])
    assert found.epochs == [4999, 4999]


def test_steps_that_nobody_counted_are_not_known_and_not_none(book: Book) -> None:
    key = book.rank(book.run(), steps=20)
    for ordinal in range(2):
        book.epoch(key, ordinal, steps=10)
        book.phase(key, ordinal, "train", 8.0, steps=10)
        book.phase(key, ordinal, "validate", 2.0, steps=0)  # a callback counts no batches of validation
    record = record_of(book)
    train, validate = aggregate.phase_summaries(record)[0]
    assert (train.steps, validate.steps) == (10, None)
    assert aggregate.run_total(record, aggregate.epoch_summaries(record)).steps == 20
    rows = [row for row in run_text.lines(record, NOW, 0, phases=True) if row.startswith("  validate")]
    assert all(row.split()[3] == units.MISSING for row in rows)
    assert len(rows) == 2
    told = list(csv.DictReader(io.StringIO("".join(run_export.lines(record)))))
    assert [row["steps"] for row in told if row["epoch"]] == ["10", "10", ""] * 2


def test_a_training_that_counts_no_steps_has_no_number_of_them(book: Book) -> None:
    key = book.rank(book.run())
    book.epoch(key, 0, steps=0)
    record = record_of(book)
    (epoch,) = aggregate.epoch_summaries(record)
    assert (epoch.steps, aggregate.run_total(record, [epoch]).steps) == (None, None)
    said = run_json.run_document(record, NOW)
    assert (said["total"]["steps"], said["epochs"][0]["steps"], said["ranks"][0]["steps"]) == (None, None, None)


def test_an_epoch_without_a_step_has_none_where_others_have_some(book: Book) -> None:
    key = book.rank(book.run(), steps=10)
    book.epoch(key, 0, steps=10)
    book.epoch(key, 1, steps=0)  # its loader was empty
    assert [epoch.steps for epoch in aggregate.epoch_summaries(record_of(book))] == [10, 0]


def test_an_epoch_of_which_only_the_begin_was_seen_lasted_no_known_time(book: Book) -> None:
    key = book.rank(book.run(), steps=10, lost_events=7)
    book.epoch(key, 0, steps=10)
    book.epoch(key, 1, steps=0, ended=None, seconds=0.0, wait=0.0)
    record = record_of(book)
    epochs = aggregate.epoch_summaries(record)
    assert epochs[1].steps is None
    assert all(map(math.isnan, (epochs[1].seconds, epochs[1].wait)))
    assert aggregate.run_total(record, epochs).steps == 10, "by the own count of the training"
    assert "… epoch that has not ended, or whose end was lost." in list(run_text.lines(record, NOW, 0))


def test_a_run_without_epochs_shows_what_was_measured_of_it(book: Book) -> None:
    key = book.rank(book.run(ended=(BEGAN + 10) * 10**9, state=RunState.FINISHED), steps=10)
    assert "no GPU recorded" in shown(book), "a CPU, or a GPU that nobody could tell: neither is claimed"
    book.usage(key, WHOLE_RUN, book.device(key), **measured(utilization=0.9))
    lines = list(run_text.lines(record_of(book), NOW, 0))
    (row,) = (line.split() for line in lines if line.startswith("all"))
    assert "No epoch has started." in lines
    assert "90%" in row


def test_an_out_of_memory_error_tells_what_is_known_of_it(book: Book) -> None:
    key = book.rank(book.run())
    book.out_of_memory(key, asked=GIB, free=None)
    (note,) = (line for line in run_text.lines(record_of(book), NOW, 0) if line.startswith("Out of memory"))
    assert note.endswith(": requested 1.0 GiB.")


def test_a_table_counts_cells_not_letters() -> None:
    lines = list(draw((TextColumn("NAME", 1, right=False), TextColumn("X", 2)), [("日本語", "1"), ("abc", "22")]))
    assert lines == ["NAME     X", "日本語   1", "abc     22"]
    assert cut("日本語", 5) == "日本…"
    assert text_width("e\u0301") == 1


# --- comparison ---


def compared(book: Book, *ids: str) -> compare.Comparison:
    return compare.compare([record_of(book, run_id) for run_id in ids])


def line(comparison: compare.Comparison, name: str) -> compare.MeasureComparison:
    return next(line for line in comparison.lines if line.measure.name == name)


def test_a_real_difference_is_told_with_its_spread_and_noise_is_not(book: Book) -> None:
    training(book, "a-1", 20, seconds=10, seed=1)
    training(book, "b-2", 20, seconds=10, seed=2)
    training(book, "c-3", 20, seconds=13, seed=3)
    found = compared(book, "a-1", "b-2", "c-3")
    same, slower = line(found, "seconds").differences
    assert not same.is_clear
    assert slower.is_clear
    assert slower.low < slower.value < slower.high
    assert slower.share == pytest.approx(0.3, abs=0.03)
    assert list(found.epochs) == [19, 19, 19]
    text = "\n".join(compare.lines(found, 0))
    assert "no clear difference" in text
    assert "without the first (warm-up)" in text
    assert "+30 % (" in text or "+29 % (" in text or "+31 % (" in text
    assert found.doubts == []


def test_no_interval_says_that_less_than_nothing_is_left() -> None:
    noisy, little = [10.0, 12.0, 40.0, 90.0], [0.5, 1.0, 2.0]
    measure = next(one for one in compare.MEASURES if one.name == "seconds")
    found = compare.difference(noisy, little)
    assert found.low < -compare.median(noisy), "epochs of the first run are longer than their median"
    assert -1 < found.share_low < found.share < found.share_high < 0
    low, high = compare.ends(found, measure)
    told = f"{units.change(found.share)} ({units.change(low)[:-2]} … {units.change(high)[:-2]})"
    assert compare.verdict(found, measure) == told
    gone = compare.difference(noisy, [0.0, 0.0, 0.0])
    assert compare.verdict(gone, measure) == "−100 % (−100 … −100)"
    assert compare.verdict(compare.difference([0.0, 0.0, 0.0], little), measure) == "–", "nothing is a share of nothing"


@given(*[st.lists(st.integers(0, 10**6), min_size=3, max_size=9).map(sorted)] * 2)
def test_a_share_is_clear_where_its_difference_is(first: list[int], other: list[int]) -> None:
    found = compare.difference(first, other)
    assert found.share_low >= -1
    assert found.is_clear == (found.share_low > 0 or found.share_high < 0)


def test_comparing_the_same_twice_gives_the_same_answer(book: Book) -> None:
    training(book, "a-1", 9, seed=1)
    training(book, "b-2", 9, seed=2)
    assert compared(book, "a-1", "b-2") == compared(book, "a-1", "b-2")


def test_two_epochs_are_too_few_to_tell(book: Book) -> None:
    training(book, "a-1", 2, seconds=10)
    training(book, "b-2", 2, seconds=20)
    found = compared(book, "a-1", "b-2")
    assert found.left_out == [0, 0]
    text = "\n".join(compare.lines(found, 0))
    assert ", too few epochs\n" in text
    assert compare.NO_INTERVAL in text
    assert compare.briefly("+9.7 %, too few epochs") == ("+9.7 %, too few",), "without that it were clear"
    assert compare.briefly("+12 % (+10 … +14)")[-1] == "+12 %"
    assert compare.briefly(compare.SAME) == (compare.SAME,)
    training(book, "c-3", 9, seconds=10)
    training(book, "d-4", 9, seconds=20)
    assert compare.NO_INTERVAL not in compare.lines(compared(book, "c-3", "d-4"), 0)


def test_ratios_differ_by_points(book: Book) -> None:
    training(book, "a-1", 9, utilization=0.4)
    training(book, "b-2", 9, utilization=0.8)
    text = next(text for text in compare.lines(compared(book, "a-1", "b-2"), 0) if text.startswith("Utilization"))
    assert "points" in text


@pytest.mark.parametrize(
    ("other", "doubt"),
    [
        ({"device": {"name": "NVIDIA A100"}}, "different GPUs: A NVIDIA H100 80GB HBM3, B NVIDIA A100"),
        ({"device": {"power_limit": 400.0}}, "different power limits: A 700 W, B 400 W"),
        ({"gpus": 2}, "different numbers of GPUs: A 1, B 2"),
        ({"usage": {"temperature_start": 35.0}}, "GPU start temperatures differ by more than 10"),
        ({"epochs": 1000}, "different numbers of planned epochs: A 6, B 1,000"),
        (
            {"usage": {"run_used_peak": 20 * GIB, "run_reserved_peak": 18 * GIB}},
            "up to 22.0 GiB on a GPU of B belonged to other processes",
        ),
        ({"usage": {"sampled": 1.0}}, "B: 5 of 5 epochs are incompletely sampled"),
        ({"label": "SIMULATED"}, "A live, B SIMULATED"),
        ({"driver": "999.1"}, "different drivers"),
    ],
)
def test_what_makes_runs_not_alike_is_said(book: Book, other: dict[str, Any], doubt: str) -> None:
    training(book, "a-1", 6)
    training(book, "b-2", **{"epochs": 6, **other})
    found = compared(book, "a-1", "b-2")
    assert any(doubt in one for one in found.doubts), found.doubts


def test_memory_of_a_run_that_grew_after_the_drivers_list_is_not_that_of_others(book: Book) -> None:
    training(book, "a-1", 6)
    training(book, "b-2", 6, usage={"run_used_peak": 20 * GIB, "run_reserved_peak": 41.5 * GIB})
    assert not [one for one in compared(book, "a-1", "b-2").doubts if "belonged to other processes" in one]


@pytest.mark.parametrize(("mean", "is_told"), [(20.5, False), (23.0, True)])
def test_a_peak_between_two_lists_of_the_driver_may_be_the_runs_own(book: Book, mean: float, is_told: bool) -> None:
    """No framework tells of it: what others held is then what was there on average, of 60 s in all."""
    training(book, "a-1", 6)
    unknown = {"run_used_peak": 20 * GIB, "run_reserved_peak": None, "memory_used_mean": mean * GIB}
    training(book, "b-2", 6, usage=unknown)
    doubts = compared(book, "a-1", "b-2").doubts
    assert bool([one for one in doubts if "belonged to other processes" in one]) == is_told


def test_other_steps_in_an_epoch_are_said(book: Book) -> None:
    training(book, "a-1", 6)
    training(book, "b-2", 6)
    book.db.execute("UPDATE epoch SET steps = 50 WHERE rank LIKE '%b-2'")
    assert "different numbers of steps per epoch: A 100, B 50" in compared(book, "a-1", "b-2").doubts


@given(st.integers(3, 40), st.integers(0, 1000))
def test_the_places_of_a_drawn_median_lie_among_those_of_the_values(size: int, seed: int) -> None:
    below, above = compare._draw_median(size, Random(seed))
    assert 0 <= below <= above < size


@pytest.mark.parametrize("size", [7, 8])
def test_medians_are_drawn_as_the_bootstrap_draws_them(size: int) -> None:
    """Against the plain way: draw `size` values, sort, take the middle."""
    values = [float(value**2) for value in range(size)]
    random = Random(5)
    places = [compare._draw_median(size, random) for _ in range(20_000)]
    fast = [(values[below] + values[above]) / 2 for below, above in places]
    plain = [compare.median(sorted(random.choices(values, k=size))) for _ in range(20_000)]
    assert sum(fast) / len(fast) == pytest.approx(sum(plain) / len(plain), rel=0.03)
    for share in (0.05, 0.5, 0.95):
        place = int(share * 20_000)
        assert sorted(fast)[place] == pytest.approx(sorted(plain)[place], abs=values[-1] * 0.08)


def test_the_comparison_as_json_has_null_for_what_is_not_known(book: Book) -> None:
    training(book, "a-1", 2, usage={"energy": None})
    training(book, "b-2", 2)
    made = compare.document(compared(book, "a-1", "b-2"))
    text = json.dumps(made, allow_nan=False)
    energy = next(one for one in made["measures"] if one["name"] == "energy")
    assert energy["medians"][0] is None
    assert '"doubts"' in text


# --- programs ---


def test_the_csv_has_a_row_for_each_epoch_phase_and_device(book: Book) -> None:
    training(book, epochs=2, gpus=2)
    rows = list(csv.DictReader(io.StringIO("".join(run_export.lines(record_of(book))))))
    whole_runs = [row for row in rows if row["part"] == "run"]
    assert len(rows) == 2 * 2 * 3 + len(whole_runs)
    assert {(row["rank"], row["epoch"], row["ordinal"], row["phase"]) for row in whole_runs} == {
        ("0", "", "", ""), ("1", "", "", ""),
    }  # fmt: skip
    assert {row["phase"] for row in rows} == {"", "train", "validate"}
    whole = next(row for row in rows if row["rank"] == "1" and row["epoch"] == "1" and not row["phase"])
    assert whole["device"] == uuid_of(1)
    assert float(whole["energy_joules"]) == pytest.approx(500 * float(whole["seconds"]))
    assert whole["logged.loss"] == "", "rank 1 logged nothing"


def test_the_csv_for_people_has_a_row_for_each_epoch_and_dates_that_a_spreadsheet_knows(book: Book) -> None:
    training(book, epochs=3, gpus=2, seconds=100.0)
    made = epoch_export.lines(record_of(book))
    heading = next(made)
    assert heading.startswith(BYTE_ORDER_MARK + "epoch,begun_utc,"), "Excel takes it for UTF-8 by this"
    rows = list(csv.DictReader([heading[1:], *made]))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert rows[0]["begun_utc"] == "2026-09-21 14:13:20", "in UTC, wherever it is made"
    assert float(rows[0]["begun_seconds"]) == BEGAN
    assert float(rows[0]["energy_joules"]) == pytest.approx(2 * 500 * float(rows[0]["seconds"]))
    assert float(rows[2]["logged.loss"]) < float(rows[1]["logged.loss"])


def test_what_was_not_measured_has_a_row_with_empty_cells(book: Book) -> None:
    book.run()
    book.epoch(book.rank("resnet50-1a2b"), 0, ended=None)
    row, whole = csv.DictReader(io.StringIO("".join(run_export.lines(record_of(book)))))
    assert (whole["part"], whole["epoch"], whole["energy_joules"], whole["wait_seconds"]) == ("run", "", "", "")
    assert (row["device"], row["energy_joules"], row["ended_seconds"], row["steps"]) == ("", "", "", "100")


def test_no_cell_of_a_stranger_is_a_formula(book: Book) -> None:
    training(book, epochs=1, name="=cmd|' /C calc'!A0", user="@SUM(1)")
    (row, *_) = csv.DictReader(io.StringIO("".join(run_export.lines(record_of(book)))))
    assert row["name"].startswith("'=")
    assert row["user"].startswith("'@")


def test_every_column_of_the_export_has_help() -> None:
    assert all(field.help for field in run_export.FIELDS)


def test_the_json_has_everything_under_the_names_of_the_schema(book: Book) -> None:
    training(book, epochs=2)
    with Ledger(str(book.path)) as ledger:
        record, traces = ledger.record("resnet50-1a2b"), ledger.traces("resnet50-1a2b")
    made = json.loads(json.dumps(run_export.document(record, traces, NOW), allow_nan=False))
    assert {column.key for column in USAGE} <= made["epochs"][0].keys()
    assert {column.key for column in USAGE} <= made["total"].keys()
    assert [phase["phase"] for phase in made["epochs"][0]["phases"]] == ["train", "validate"]
    assert len(made["usage"]) == 2 * 3 + 1
    assert len(made["traces"][1]["columns"]["gpu.power"]["mean"]) == 1500
    assert made["run"]["state"] == "finished"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_export_makes_a_file_of_a_run(book: Book, name: str) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    training(book)
    assert FORMATS[name].content
    assert b"resnet50-1a2b" in FORMATS[name].make(record_of(book), [], NOW)


def test_the_page_on_runs_names_every_format_of_export() -> None:
    assert f"--format {'|'.join(FORMATS)} " in DOCS.read_text(encoding="utf-8")


def test_parquet_without_pyarrow_says_how_to_get_it(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    training(book, epochs=1)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GpumonError, match="pip install pyarrow"):
        run_export.parquet(record_of(book))


def test_parquet_holds_the_same_table(book: Book, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    training(book, epochs=2)
    record = record_of(book)
    (tmp_path / "x.parquet").write_bytes(run_export.parquet(record))
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.column_names[: len(run_export.FIELDS)] == [field.name for field in run_export.FIELDS]
    assert table.num_rows == len("".join(run_export.lines(record)).splitlines()) - 1


def test_energy_of_a_sample_is_compared_where_the_runs_tell_how_many_a_step_has(book: Book) -> None:
    for run_id, ranks in (("one-0001", 1), ("two-0002", 2)):
        training(book, run_id, epochs=4, gpus=ranks)
    both = ("one-0001", "two-0002")
    assert "energy_per_sample" not in {line.measure.name for line in compared(book, *both).lines}
    book.db.execute("UPDATE rank SET batch = 32")
    book.db.commit()
    found = {line.measure.name: line.medians for line in compared(book, *both).lines}
    steps, energy = found["steps_per_second"], found["energy_per_step"]
    assert found["samples_per_second"] == pytest.approx([32 * steps[0], 64 * steps[1]])
    assert found["energy_per_sample"] == pytest.approx([energy[0] / 32, energy[1] / 64])
