"""Property: a ledger in which anything is missing, or is what it should not be, breaks no view and claims nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpumon.reports import compare, epoch_export, html, run_export, run_json, run_list, run_tables, run_text
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record
from tests.fuzzing import examples
from tests.runs import BEGAN, GIB, Book, measured

NOW = BEGAN + 3600.0
RUN = "resnet50-1a2b"
HEADINGS = {
    "SAMPLES/S": ("batch",), "WAIT": ("wait",), "UTIL": ("utilization_mean",), "IDLE": ("idle_share",),
    "RESERVED MAX": ("run_reserved_peak",), "RUN MAX": ("run_used_peak",), "MEM MAX": ("memory_used_peak",),
    "ENERGY": ("energy",), "ENERGY/STEP": ("energy",), "THROTTLE": ("throttled_share",),
    "ALLOC MAX": ("run_allocated_peak", "peak"), "loss": ("metrics",),
}  # fmt: skip
"""What each column of the epoch table is made of: where all of it is unknown, nothing may stand there."""
NO_NUMBER = {"", "–"}
ODD = st.sampled_from(
    [
        None,
        9e999,
        -9e999,
        1e308,
        -1e308,
        -1.0,
        0.0,
        2**63 - 1,
        -(2**63),
        "NaN",
        "text",
        "",
        b"\xff",
        '{"loss": "NaN"}',
        "[[",
    ]
)
CELLS = st.tuples(
    st.sampled_from(["run", "rank", "device", "epoch", "phase", "usage", "mark"]), st.integers(0, 63), ODD
)


@cache
def columns(table: str) -> list[str]:
    """Its columns but for the keys, which hold rows together."""
    with TemporaryDirectory() as directory, Book(Path(directory)) as book:
        names = [row[1] for row in book.db.execute(f"PRAGMA table_info({table})")]
    return [name for name in names if name not in ("id", "key", "run", "rank", "uuid", "ordinal", "phase", "number")]


def filled(directory: Path) -> Book:
    """Three epochs of two ranks with everything known, and an out-of-memory error."""
    book = Book(directory)
    book.run(world_size=2, ended=None)
    for rank in range(2):
        key = book.rank(RUN, rank, peak=5 * GIB, wait=3.0, batch=32)
        uuid = book.device(key, rank)
        for ordinal in range(3):
            book.epoch(key, ordinal, trained=8.0, wait_of=8.0, peak=5 * GIB, peak_reached=1,
                       metrics=json.dumps({"loss": 0.5}))  # fmt: skip
            book.usage(key, ordinal, uuid, **measured())
            for place, phase in enumerate(("train", "validate")):
                book.phase(key, ordinal, phase, 5.0, place=place, wait=1.0, spans="[[5, 5]]", peak=5 * GIB)
                book.usage(key, ordinal, uuid, phase, **measured(5.0))
        book.usage(key, -1, uuid, **measured(30.0))
    book.out_of_memory(f"tag.1000.4711.{RUN}")
    return book


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    with TemporaryDirectory() as directory:
        book = filled(Path(directory))
        book.db.execute("PRAGMA journal_mode = DELETE")
        book.db.close()
        yield book.path


def views(record: Record) -> None:
    """Every view of a run."""
    json.dumps(run_json.run_document(record, NOW), allow_nan=False)
    json.dumps(run_export.document(record, [], NOW), allow_nan=False)
    assert list(run_export.lines(record))
    assert list(epoch_export.lines(record))
    for width in (0, 80):
        assert list(run_text.lines(record, NOW, width, phases=True, ranks=True))
    compared = compare.compare([record, record])
    assert list(compare.lines(compared, 120))
    json.dumps(compare.document(compared), allow_nan=False)
    assert html.page(record, [], NOW)


def changed(template: Path, changes: Iterable[tuple[str, str, Any]]) -> Record:
    """The run of a copy in which columns of tables have one value in all rows."""
    with TemporaryDirectory() as directory:
        copy = Path(directory) / template.name
        shutil.copy(template, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")
            for table, name, value in changes:
                with suppress(sqlite3.IntegrityError):  # what the schema itself refuses
                    db.execute(f"UPDATE {table} SET {name} = ?", (value,))
        with Ledger(str(copy)) as ledger:
            assert "\x1b" not in "\n".join(run_list.lines(ledger.runs(), NOW, 0))
            return ledger.record(RUN)


@settings(max_examples=examples(50))
@given(st.lists(CELLS, max_size=12))
@example([("epoch", 1, "NaN")])
def test_no_cell_of_a_ledger_breaks_a_view(template: Path, cells: list[tuple[str, int, Any]]) -> None:
    views(changed(template, [(table, columns(table)[n % len(columns(table))], value) for table, n, value in cells]))


def test_sums_that_leave_the_range_of_numbers_break_no_view(template: Path) -> None:
    for table, name in (
        ("rank", "batch"),
        ("rank", "wait"),
        ("epoch", "wait"),
        ("epoch", "seconds"),
        ("usage", "energy"),
    ):
        views(changed(template, [(table, name, 1e308)]))


@settings(max_examples=examples(40))
@given(st.sets(st.sampled_from(sorted({name for parts in HEADINGS.values() for name in parts}))))
def test_where_a_value_is_unknown_no_number_stands(template: Path, unknown: set[str]) -> None:
    record = changed(template, [
        (table, name, "{}" if name == "metrics" else None)
        for table in ("rank", "epoch", "phase", "usage") for name in unknown & set(columns(table))
    ])  # fmt: skip
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    found, rows = run_tables.epoch_table(epochs, aggregate.phase_summaries(record), total)
    by_heading = {column.heading: [row[i] for row in rows] for i, column in enumerate(found)}
    for heading, parts in HEADINGS.items():
        cells = set(by_heading.get(heading, [""]))
        if set(parts) <= unknown:
            assert cells <= NO_NUMBER, heading
        elif not set(parts) & unknown:
            assert cells - NO_NUMBER, heading
    views(record)
