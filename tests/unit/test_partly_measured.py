"""Values of a time that was sampled only in part are marked in every view, and unknown values count as unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.columns import EPOCHS
from gpumon.model.frame import RunState
from gpumon.model.units import ABOUT, AT_LEAST, AT_MOST
from gpumon.reports import compare, epoch_text, html, run_json, run_list
from gpumon.reports.run_tables import rank_table
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.combine import over_devices
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import USAGE_INDEX, Record, RunSummary
from gpumon.storage.ledger.row_keys import WHOLE_RUN
from gpumon_tui.data.run_reader import ListedRuns
from tests.runs import BEGAN, GIB, Book, measured
from tests.web.served import Served

PARTLY, WHOLE = "net-partly", "net-whole"
NOW = BEGAN + 1000


def two_ranks(book: Book, name: str, *, sampled: float, energy: float | None, gpus: int = 1, **values: Any) -> None:
    """A run of two ranks and seven epochs; of rank 1 only the share `sampled` of the time was sampled."""
    end = (BEGAN + 70) * SECOND
    book.run(name, world_size=2, epochs=7, state=RunState.FINISHED, ended=end, updated=end, seconds=70.0)
    for rank in range(2):
        key = book.rank(name, rank, state=RunState.FINISHED, ended=end, seconds=70.0, steps=700, peak=31 * GIB)
        share, joules = (sampled, energy) if rank else (1.0, 5000.0)
        for gpu in range(gpus):
            uuid = book.device(key, rank * gpus + gpu)
            for ordinal, seconds in ((WHOLE_RUN, 70.0), *((ordinal, 10.0) for ordinal in range(7))):
                if ordinal >= 0 and not gpu:
                    book.epoch(key, ordinal)
                usage = measured(seconds, sampled=share * seconds, energy=joules, energy_least=4000.0, **values)
                book.usage(key, ordinal, uuid, **usage)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    book = Book(tmp_path)
    two_ranks(book, PARTLY, sampled=0.5, energy=None)
    two_ranks(book, WHOLE, sampled=1.0, energy=5000.0)
    return book


def read(book: Book, name: str) -> tuple[Record, RunSummary]:
    with Ledger(str(book.path)) as ledger:
        return ledger.record(name), next(listed for listed in ledger.runs() if listed.run.id == name)


@pytest.mark.parametrize(("name", "about", "least"), [(PARTLY, ABOUT, AT_LEAST), (WHOLE, "", "")])
class TestMarks:
    def test_of_each_column(self, book: Book, name: str, about: str, least: str) -> None:
        record, _ = read(book, name)
        for stretch in (*aggregate.epoch_summaries(record), aggregate.run_total(record, ())):
            assert {epoch_text.sign(column.key, stretch) for column in EPOCHS if column.needs_samples} == {about}
            assert {epoch_text.sign(column.key, stretch) for column in EPOCHS if column.is_peak} == {least}

    def test_of_throttling_and_percentiles(self, book: Book, name: str, about: str, least: str) -> None:
        epochs = aggregate.epoch_summaries(read(book, name)[0])
        columns = [column for column in EPOCHS if column.key in ("throttled_share", "utilization_range", "idle_share")]
        assert [epoch_text.cell(column, epochs[0], {})[:1] == ABOUT for column in columns] == [bool(about)] * 3

    def test_of_ranks(self, book: Book, name: str, about: str, least: str) -> None:
        columns, rows = rank_table(read(book, name)[0])
        headings = [column.heading for column in columns]
        first, second = (dict(zip(headings, row, strict=True)) for row in rows)
        assert [first[heading] for heading in ("UTIL", "MEM MAX")] == ["90%", "42.0 GiB"]
        assert [second[heading] for heading in ("UTIL", "MEM MAX")] == [f"{about}90%", f"{least}42.0 GiB"]
        assert second["ENERGY"].startswith(least)

    def test_of_lists(self, book: Book, name: str, about: str, least: str) -> None:
        _, listed = read(book, name)
        (line,) = [*run_list.lines([listed], NOW, 0)][1:]
        assert (f"{about}90%" in line, ABOUT in line, AT_LEAST in line) == (True, bool(about), bool(least))
        with Ledgers([str(book.path)]) as ledgers:
            row = next(row for row in ListedRuns().read(ledgers, NOW) if row.id == name)
        assert (row.is_about, row.is_least) == (bool(about), bool(least))

    def test_in_json(self, book: Book, name: str, about: str, least: str) -> None:
        record, listed = read(book, name)
        document = run_json.run_document(record, NOW)
        parts = (document["total"], *document["epochs"], run_json.listing([listed], NOW)["runs"][0])
        assert {part["sampled_share"] for part in parts} == {0.5 if about else 1.0}

    def test_in_the_browser(self, book: Book, name: str, about: str, least: str) -> None:
        served = Served((), [str(book.path)])
        values = served.json(f"/api/kept?page=run&id={name}")["values"]
        row = served.json("/api/kept?page=runs")["tables"]["runs"]["cells"][name]
        assert (values["utilization"], row["utilization"]) == (f"{about}90 %", f"{about}90 %")
        assert values["idle"] == f"idle {about}5 % of the time"

    def test_in_the_report(self, book: Book, name: str, about: str, least: str) -> None:
        pytest.importorskip("plotly")
        assert (f"{ABOUT}90 %" in html.page(read(book, name)[0], (), NOW)) is bool(about)

    def test_in_comparisons(self, book: Book, name: str, about: str, least: str) -> None:
        comparison = compare.compare([read(book, WHOLE)[0], read(book, name)[0]])
        for lines in (comparison.lines, comparison.whole):
            signs = {line.measure.name: line.signs for line in lines}
            assert signs["utilization_mean"] == ["", about]
            assert signs["memory_used_peak"] == ["", least]
        texts = {line.measure.name: line.texts for line in comparison.lines}
        assert texts["utilization_mean"] == ["90 %", f"{about}90 %"]


def test_peak_of_several_gpus_is_an_upper_bound(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        two_ranks(book, WHOLE, sampled=1.0, energy=5000.0, gpus=2, run_allocated_peak=None)
        record, _ = read(book, WHOLE)
        columns, rows = rank_table(record)
        served = Served((), [str(book.path)])
        cells = served.json(f"/api/kept?page=run&id={WHOLE}")["tables"]["ranks"]["cells"]
    peak = [column.heading for column in columns].index("ALLOC MAX")
    assert [row[peak] for row in rows] == [f"{AT_MOST}31.0 GiB"] * 2
    assert {row["peak"] for row in cells.values()} == {f"{AT_MOST} 31.0 GiB"}
    assert [rank["peak_reached"] for rank in run_json.run_document(record, NOW)["ranks"]] == [False, False]


def test_throttling_of_a_gpu_that_did_not_answer_is_unknown(book: Book) -> None:
    with Ledger(str(book.path)) as ledger:
        rows = [row for row in ledger.record(WHOLE).usage if row.ordinal == WHOLE_RUN]
    index = USAGE_INDEX["throttled_share"]
    lost = rows[1]._replace(values=[float("nan") if i == index else value for i, value in enumerate(rows[1].values)])
    assert over_devices(rows)[index] == 0.0
    assert str(over_devices([rows[0], lost])[index]) == "nan"


def test_unmeasured_epochs_do_not_count_as_not_throttled(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        two_ranks(book, WHOLE, sampled=1.0, energy=5000.0, throttled_share=0.5)
        book.db.execute("UPDATE usage SET throttled_share = NULL WHERE ordinal > 3")
        served = Served((), [str(book.path)])
        texts = [note["text"] for note in served.json(f"/api/kept?page=run&id={WHOLE}")["values"]["noted"]]
    assert [text for text in texts if text.startswith("Epochs")] == [
        "Epochs 0–3 were throttled: 4 of the 4 that were measured."
    ]
