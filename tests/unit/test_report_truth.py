"""What a ledger does not know is missing in every view of a run, and what a training came to is shown as it is."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.diagnosis.past_findings import PARTLY_SAMPLED, verdict
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports import (
    compare,
    epoch_export,
    epoch_text,
    html,
    run_export,
    run_json,
    run_list,
    run_notes,
    run_tables,
    run_text,
)
from gpumon.reports.text_table import distinct
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record
from tests.runs import BEGAN, GIB, Book, measured, training

NOW = BEGAN + 3600.0
NAN, INFINITY = math.nan, math.inf


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    with Book(tmp_path / "state") as one:
        yield one


def record_of(book: Book, run_id: str = "resnet50-1a2b") -> Record:
    with Ledger(str(book.path)) as ledger:
        return ledger.record(run_id)


def cells_of(record: Record, *, phases: bool = False) -> list[dict[str, str]]:
    """The table of `runs show`, by heading."""
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    columns, rows = run_tables.epoch_table(epochs, aggregate.phase_summaries(record) if phases else {}, total)
    return [dict(zip([column.heading for column in columns], row, strict=True)) for row in rows]


# --- waits ---


def unmeasured_wait(book: Book, run_id: str = "resnet50-1a2b", written: float | None = 0.0) -> str:
    """A run in which nobody measured a wait; `written`: gpumon before version 3 of the ledger wrote 0."""
    training(book, run_id, 3)
    book.db.execute("UPDATE rank SET wait = ? WHERE run = ?", (written, run_id))
    for table in ("epoch", "phase"):
        ranks = "(SELECT key FROM rank WHERE run = ?)"
        book.db.execute(f"UPDATE {table} SET wait = ? WHERE rank IN {ranks}", (written, run_id))
    return run_id


@pytest.mark.parametrize("written", [None, 0.0])
def test_a_wait_that_nobody_measured_is_missing_in_every_view(book: Book, written: float | None) -> None:
    unmeasured_wait(book, written=written)
    record = record_of(book)
    assert {row["WAIT"] for row in cells_of(record, phases=True)} == {""}, "a column of which nothing is known is empty"
    made = run_json.run_document(record, NOW)
    assert made["total"]["wait"] is None
    assert {one["wait"] for epoch in made["epochs"] for one in (epoch, *epoch["phases"])} == {None}
    assert {row["wait_seconds"] for row in csv.DictReader(run_export.lines(record))} == {""}
    assert {row["wait_seconds"] for row in csv.DictReader(epoch_export.lines(record))} == {""}
    page = html.page(record, [], NOW)
    tile = page.partition("Waited for data</div>")[2].partition("</div></div>")[0]
    assert "0" not in tile.replace("class", "")


def test_a_wait_of_a_loader_is_not_compared_with_one_that_nobody_measured(book: Book) -> None:
    unmeasured_wait(book, "by-step")
    training(book, "by-loader", 3)
    found = {
        line.measure.name: line
        for line in compare.compare([record_of(book, "by-step"), record_of(book, "by-loader")]).lines
    }
    assert math.isnan(found["wait_share"].medians[0])
    assert compare.verdict(found["wait_share"].differences[0], found["wait_share"].measure) == "–"


def test_a_phase_in_which_nobody_measured_leaves_the_wait_of_the_others_as_it_is(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b", wait=3.0)
    book.epoch(key, 0, wait=3.0, wait_of=4.0)
    book.phase(key, 0, "train", 4.0, wait=3.0)
    book.phase(key, 0, "validate", 6.0, wait=None)
    epoch, train, validate, _ = cells_of(record_of(book), phases=True)
    assert (epoch["WAIT"], train["WAIT"], validate["WAIT"]) == ("75%", "75%", "–"), "not 30 % of an epoch that waited"


# --- framework memory ---


def peaks(book: Book, *found: tuple[float | None, int | None]) -> list[dict[str, str]]:
    book.run()
    key = book.rank("resnet50-1a2b", peak=5 * GIB)
    uuid = book.device(key)
    for ordinal, (peak, reached) in enumerate(found):
        book.epoch(key, ordinal, peak=peak, peak_reached=reached)
        book.usage(key, ordinal, uuid, **measured(run_allocated_peak=GIB))
    return cells_of(record_of(book))


def test_the_peak_is_the_framework_own_and_not_that_of_readings_between_steps(book: Book) -> None:
    rows = peaks(book, (5 * GIB, 1), (5 * GIB, 0), (None, None))
    assert [row["ALLOC MAX"] for row in rows] == ["5.0 GiB", "≤5.0 GiB", "≥1.0 GiB", "≥5.0 GiB"], "the run goes on"
    record = record_of(book)
    epochs = aggregate.epoch_summaries(record)
    said = " ".join(run_notes.notes(record, epochs, aggregate.run_total(record, epochs)))
    assert "≤ upper bound: the framework's peak counter had already reached this value" in said
    assert "≥ lower bound: read between steps" in said
    _, ranks = run_tables.rank_table(record)
    assert "≥5.0 GiB" in ranks[0]
    first, second, third = run_json.run_document(record, NOW)["epochs"]
    assert [(one["framework_peak"], one["framework_peak_reached"]) for one in (first, second, third)] == [
        (5 * GIB, True), (5 * GIB, False), (None, None),
    ]  # fmt: skip


def test_a_reading_as_high_as_the_bound_is_the_peak(book: Book) -> None:
    assert [row["ALLOC MAX"] for row in peaks(book, (GIB, 0))] == ["1.0 GiB", "≥5.0 GiB"]


def test_the_counter_of_a_rank_on_two_devices_bounds_the_fuller_one(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b", peak=5 * GIB)
    book.epoch(key, 0, peak=5 * GIB, peak_reached=1)
    for number in range(2):
        book.usage(key, 0, book.device(key, number), **measured(run_allocated_peak=GIB))
    assert [row["ALLOC MAX"] for row in cells_of(record_of(book))] == ["≤5.0 GiB", "≤5.0 GiB"]


def test_activation_checkpointing_makes_a_difference_in_a_comparison(book: Book) -> None:
    for run_id, most in (("plain-1", 30), ("checkpointed-2", 10)):
        training(book, run_id, 5, usage={"run_allocated_peak": 4 * GIB})
        book.db.execute("UPDATE epoch SET peak = ?, peak_reached = 1 WHERE rank LIKE ?", (most * GIB, f"%{run_id}"))
    found = compare.compare([record_of(book, "plain-1"), record_of(book, "checkpointed-2")])
    (line,) = [line for line in found.lines if line.measure.name == "run_allocated_peak"]
    assert line.medians == [30 * GIB, 10 * GIB]


def test_a_peak_is_not_like_what_was_read_between_steps(book: Book) -> None:
    training(book, "a-1", 3)
    training(book, "b-2", 3)
    book.db.execute("UPDATE epoch SET peak = NULL WHERE rank LIKE '%b-2'")
    doubts = compare.compare([record_of(book, "a-1"), record_of(book, "b-2")]).doubts
    assert any("peak tensor memory" in doubt and "B read between steps" in doubt for doubt in doubts)


# --- losses that are no number ---


def diverged(book: Book) -> Record:
    book.run()
    key = book.rank("resnet50-1a2b")
    uuid = book.device(key)
    logged = ({"loss": 0.9711, "lr": 0.1}, {"loss": "NaN", "lr": 0.1}, {"loss": "Infinity", "lr": 0.1, "late": 1.5})
    for ordinal, metrics in enumerate(logged):
        book.epoch(key, ordinal, metrics=json.dumps(metrics))
    points = [(1.0, 1.0, 1.0)] * 10 + [(-INFINITY, NAN, INFINITY)] + [(NAN, NAN, NAN)] * 5 + [(2.0, 2.0, INFINITY)]
    book.trace(key, "", {"loss": points})
    book.trace(key, uuid, {"gpu.power": [(1.0, 1.0, 1.0)] * 30})
    return record_of(book)


def test_a_loss_that_is_no_number_is_shown_and_not_the_same_as_none(book: Book) -> None:
    record = diverged(book)
    rows = cells_of(record)
    assert [row["loss"] for row in rows] == ["0.9711", "nan", "∞", ""]
    assert [row["late"] for row in rows] == ["", "", "1.5", ""]
    document = run_json.run_document(record, NOW)
    assert [epoch["metrics"].get("loss") for epoch in document["epochs"]] == [0.9711, "NaN", "Infinity"]
    json.dumps(document, allow_nan=False)
    table = list(csv.DictReader(run_export.lines(record)))
    assert [(row["logged.loss"], row["logged.late"]) for row in table if row["epoch"]] == [
        ("0.9711", ""),
        ("nan", ""),
        ("inf", "1.5"),
    ]
    assert "Diverged: loss is nan in epoch 1 and in 1 later epoch." in run_notes.notes(
        record, aggregate.epoch_summaries(record), aggregate.run_total(record, aggregate.epoch_summaries(record))
    )


def test_the_report_marks_where_a_loss_was_no_number(book: Book) -> None:
    record = diverged(book)
    with Ledger(str(book.path)) as ledger:
        traces = ledger.traces("resnet50-1a2b")
    page = html.page(record, traces, NOW)
    assert '<td class="bad">nan</td>' in page
    assert "<li class=bad>Diverged: loss is nan" in page
    chart = html.chart_of(record, traces, [], record.devices[0])
    assert chart is not None
    (marks,) = [line for line in html.figure_of(chart)["data"] if line["mode"] == "markers" and "text" in line]
    assert marks["text"] == ["loss is NaN", "loss is infinite"]


# --- steps, ranks, phases, time ---


def test_steps_and_their_rate_are_those_of_training(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b")
    book.epoch(key, 0, seconds=10.0, steps=100, trained=5.0)
    book.usage(key, 0, book.device(key), **measured(energy=500.0))
    epoch, whole = cells_of(record_of(book))
    assert (epoch["STEPS"], epoch["STEPS/S"], epoch["ENERGY/STEP"]) == ("100", "20.00", "5.00 J")
    assert (whole["STEPS"], whole["STEPS/S"]) == ("100", "20.00"), "not diluted by what was no training"


def test_the_rate_of_a_run_counts_the_time_of_epochs_that_tell_no_training_apart(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b")
    book.epoch(key, 0, seconds=10.0, steps=100)  # of an older ledger, or without a phase of training
    book.epoch(key, 1, seconds=20.0, steps=100, trained=10.0)
    book.epoch(key, 2, seconds=50.0, steps=0)  # a validation of its own
    *rates, whole = [row["STEPS/S"] for row in cells_of(record_of(book))]
    assert (rates[:2], whole) == (["10.00", "10.00"], "10.00")


def test_ranks_of_unequal_length_are_no_gap_in_the_samples(book: Book) -> None:
    book.run(world_size=2)
    for rank, seconds in enumerate((2.4, 3.2)):
        key = book.rank("resnet50-1a2b", rank)
        begun = BEGAN * SECOND
        book.epoch(key, 0, begun=begun, ended=begun + round(seconds * SECOND), seconds=seconds)
        book.usage(key, 0, book.device(key, rank), **measured(seconds))
    record = record_of(book)
    (epoch,) = aggregate.epoch_summaries(record)
    assert (epoch.seconds, epoch.sampled_share) == (pytest.approx(3.2), 1.0)
    said = " ".join(run_notes.notes(record, [epoch], aggregate.run_total(record, [epoch])))
    assert "Incompletely sampled" not in said
    assert not any("sampled" in doubt for doubt in compare.compare([record, record]).doubts)


def test_a_rank_that_was_not_sampled_is_named_though_the_others_were(book: Book) -> None:
    book.run(world_size=2)
    for rank, sampled in enumerate((10.0, 4.0)):
        key = book.rank("resnet50-1a2b", rank)
        book.epoch(key, 0)
        book.usage(key, 0, book.device(key, rank), **measured(10.0, sampled=sampled))
    (epoch,) = aggregate.epoch_summaries(record_of(book))
    assert epoch.sampled_share == pytest.approx(0.4)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.996, 0.99999, 1.0])
def test_no_epoch_that_is_named_as_incompletely_sampled_is_said_to_be_sampled_as_a_whole(
    book: Book, share: float
) -> None:
    training(book, epochs=2)
    book.db.execute(
        "UPDATE usage SET sampled = ? * seconds, energy = NULL, energy_least = 1.0 WHERE ordinal = 1", (share,)
    )
    record = record_of(book)
    epochs = aggregate.epoch_summaries(record)
    judged = verdict(epochs[1], running=False)
    assert judged is not None
    assert judged.kind == PARTLY_SAMPLED
    said = " ".join(run_notes.notes(record, epochs, aggregate.run_total(record, epochs)))
    assert judged.text in said, "one text in all views"
    assert units.share(1.0) not in judged.text


def test_phases_keep_the_order_of_the_first_epoch(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b")
    for ordinal, (train, validate) in enumerate(((5.0, 5.5), (9.0, 1.0), (1.0, 9.0))):
        book.epoch(key, ordinal)
        parts = (("train", train, None), ("validate", validate, f"[[{train}, {validate}]]"))
        for phase, seconds, spans in parts:
            book.phase(key, ordinal, phase, seconds, spans=spans)
    found = aggregate.phase_summaries(record_of(book))
    assert [[phase.phase for phase in phases] for phases in found.values()] == [["train", "validate"]] * 3


def test_training_that_goes_on_after_a_validation_is_not_entered_twice(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b")
    book.epoch(key, 0)
    book.phase(key, 0, "train", 9.0, times=3)
    book.phase(key, 0, "validate", 1.0, times=2)
    text = "\n".join(run_text.lines(record_of(book), NOW, 0, phases=True))
    assert "validate ×2" in text
    assert "train ×" not in text


def test_the_time_of_a_run_is_not_that_of_a_wall_clock_that_was_set(book: Book) -> None:
    began = BEGAN * SECOND
    book.run(started=began, ended=began + 3612 * SECOND, state=RunState.FINISHED, seconds=12.0)
    book.run("back-2", started=began, ended=began - 5 * SECOND, state=RunState.FINISHED, seconds=12.0)
    book.run("old-3", started=began, ended=began + 7 * SECOND, state=RunState.FINISHED)
    with Ledger(str(book.path)) as ledger:
        runs = {listed.run.id: listed for listed in ledger.runs()}
    assert [runs[id].run.duration for id in ("resnet50-1a2b", "back-2", "old-3")] == [12.0, 12.0, 7.0]
    text = "\n".join(run_list.lines([runs["resnet50-1a2b"]], NOW, 0))
    assert " 12 s " in text


def test_a_run_shorter_than_half_a_second_took_some_time(book: Book) -> None:
    began = BEGAN * SECOND
    book.run(started=began, ended=began + 62_000_000, state=RunState.FINISHED, seconds=0.062)
    with Ledger(str(book.path)) as ledger:
        text = "\n".join(run_list.lines(ledger.runs(), NOW, 0))
    assert " 62 ms " in text
    assert "62 ms" in "\n".join(run_text.lines(record_of(book), NOW, 0))


# --- tables ---


def test_names_that_begin_alike_are_cut_so_that_they_differ() -> None:
    names = ["val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1", "val_loss", "a_metric_with_a_long_name"]
    made = distinct(names, 16)
    assert len(set(made)) == 4
    assert all(len(name) <= 16 for name in made)
    assert made[0].endswith("_0")
    assert made[2:] == ["val_loss", "a_metric_with_a…"]


def test_logged_numbers_stand_below_each_other_and_many_steps_are_set_apart(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b")
    for ordinal, loss in enumerate((0.9711, 0.3)):
        book.epoch(key, ordinal, steps=1_000_000, metrics=json.dumps({"loss": loss}))
    rows = cells_of(record_of(book))
    assert [row["loss"] for row in rows] == ["0.9711", "0.3000", ""]
    assert [row["STEPS"] for row in rows] == ["1,000,000", "1,000,000", "2,000,000"]


def test_a_long_run_shows_its_last_epochs_when_asked(book: Book) -> None:
    training(book, epochs=500, course=False)
    text = list(run_text.lines(record_of(book), NOW, 0, tail=3))
    table = text[text.index("") + 1 :]
    assert [line.split()[0] for line in table[1:5]] == ["497", "498", "499", "all"]
    assert "the last 3 of 500 epochs" in text


def test_a_part_of_a_run_can_be_read_by_itself(book: Book) -> None:
    training(book, epochs=50, gpus=2, course=False)
    with Ledger(str(book.path)) as ledger:
        assert ledger.epoch_count("resnet50-1a2b") == 50
        some = ledger.record("resnet50-1a2b", ordinals=range(10, 13))
        times = ledger.record("resnet50-1a2b", phases=False, times=True)
        with pytest.raises(GpumonError):
            ledger.record("none", ordinals=range(1))
    assert [epoch.ordinal for epoch in aggregate.epoch_summaries(some)] == [10, 11, 12]
    assert sorted(aggregate.phase_summaries(some)) == [10, 11, 12]
    assert aggregate.run_total(some, []).value("energy") > 0, "the totals are those of the whole run"
    assert len(times.phases) == 100, "those other than training"
    assert {row.phase for row in times.usage} == {""}


def test_a_peak_of_what_goes_on_is_a_lower_bound_and_the_notes_say_so(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b", peak=5 * GIB)
    uuid = book.device(key)
    book.epoch(key, 0, peak=5 * GIB, peak_reached=1)
    book.epoch(key, 1, peak=5 * GIB, peak_reached=1, ended=None)
    for ordinal in range(2):
        book.usage(key, ordinal, uuid, **measured(run_allocated_peak=GIB, memory_used_peak=42 * GIB))
    record = record_of(book)
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    for key, peak in (("framework_peak", "5.0 GiB"), ("memory_used_peak", "42.0 GiB")):
        assert [epoch_text.peak(key, one) for one in (*epochs, total)] == [peak, f"≥{peak}", f"≥{peak}"]
    said = " ".join(run_notes.notes(record, epochs, total))
    assert "≥ lower bound: an epoch that has not ended may still reach more." in said
    assert "read between steps" not in said
    book.db.execute("UPDATE run SET state = ?", (RunState.DIED,))
    assert "may still reach more" not in " ".join(run_notes.notes(record_of(book), epochs, total)), "it cannot"


def test_energy_that_is_missing_in_sampled_epochs_is_not_blamed_on_the_daemon(book: Book) -> None:
    training(book, epochs=4)
    book.db.execute("UPDATE usage SET energy = NULL, energy_least = 1.0 WHERE ordinal IN (1, 2)")
    book.db.execute("UPDATE usage SET sampled = 0.5 * seconds WHERE ordinal = 3")
    record = record_of(book)
    epochs = aggregate.epoch_summaries(record)
    notes = [*run_notes.notes(record, epochs, aggregate.run_total(record, epochs))]
    (energy,) = [note for note in notes if note.startswith("Incompletely measured")]
    (sampled,) = [note for note in notes if note.startswith("Incompletely sampled")]
    assert ("epoch 1" in energy, "epoch 2" in energy, "daemon" in energy) == (True, True, False)
    assert ("epoch 3" in sampled, "epoch 1" in sampled) == (True, False)


def test_an_epoch_that_was_hardly_sampled_is_not_called_fine_nor_its_peak_whole(book: Book) -> None:
    training(book, epochs=4)
    book.db.execute("UPDATE usage SET sampled = 0.03 * seconds WHERE ordinal = 1")
    book.db.execute("UPDATE usage SET sampled = 0, energy = NULL, memory_used_peak = NULL WHERE ordinal = 2")
    book.db.execute("UPDATE usage SET idle_share = 0.9, sampled = 0.1 * seconds WHERE ordinal = 3")
    record = record_of(book)
    epochs = aggregate.epoch_summaries(record)
    judged = [verdict(one, running=False) for one in epochs]
    assert [one and one.text for one in judged] == ["fine", "3% sampled", "not sampled", "10% sampled"]
    peaks = [epoch_text.peak("memory_used_peak", one) for one in epochs]
    assert peaks == ["42.0 GiB", "≥42.0 GiB", units.MISSING, "≥42.0 GiB"]
    for shown, has_bound in ((epochs, True), (epochs[:1], False)):
        notes = " ".join(run_notes.notes(record, shown, shown[0]))
        assert ("≥" in notes) == has_bound, "the sign is explained where it stands, and nowhere else"
        assert "has not ended" not in notes
    for key in ("utilization_mean", "idle_share"):
        signs = [epoch_text.sign(key, one) for one in epochs]
        assert signs == ["", units.ABOUT, units.ABOUT, units.ABOUT], "a mean of what was sampled"
    book.db.execute("UPDATE epoch SET wait = 0.6 * seconds WHERE ordinal = 1")
    told = verdict(aggregate.epoch_summaries(record_of(book))[1], running=False)
    assert told is not None
    assert told.kind == "input_bound", "the training itself measured its waits"


def test_an_epoch_that_never_ended_does_not_claim_to_have_made_no_step(book: Book) -> None:
    book.run(state=RunState.DIED)
    key = book.rank("resnet50-1a2b")
    book.epoch(key, 0, steps=16)
    book.epoch(key, 1, steps=0, seconds=2.0, ended=None)
    whole, open_one, _ = cells_of(record_of(book))
    assert (whole["STEPS"], open_one["STEPS"]) == ("16", units.MISSING)
