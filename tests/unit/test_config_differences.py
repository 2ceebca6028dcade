"""Parameters in which runs that are compared differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumon.reports import compare
from gpumon.reports.compare_measures import config_differences, config_lines
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record, RunMetadata
from tests.runs import BEGAN, HOSTILE, Book, training


def records(tmp_path: Path, *told: RunMetadata) -> list[Record]:
    with Book(tmp_path) as book:
        for i in range(len(told)):
            training(book, f"net-{i}", 6, began=BEGAN + 1000 * i)
        with Ledger(str(book.path)) as ledger:
            return [replace(ledger.record(f"net-{i}"), about=about) for i, about in enumerate(told)]


def text(found: list[Record]) -> str:
    return "\n".join(compare.lines(compare.compare(found), 0))


def test_a_comparison_begins_with_the_parameters_that_differ(tmp_path: Path) -> None:
    one = RunMetadata({"lr": 0.1, "batch": 32, "amp": True, "own": 1}, {"commit": "a" * 40, "torch": "2.9"})
    two = RunMetadata({"lr": 0.01, "batch": 32.0, "amp": 1}, {"commit": "b" * 40, "torch": "2.9"})
    found = records(tmp_path, one, two)
    said = text(found)
    table = said[said.index("CONFIG") : said.index("\nTime")].splitlines()
    assert [line.split() for line in table[1:5]] == [
        ["lr", "0.1", "0.01"], ["amp", "true", "1"], ["own", "1", "–"], ["commit", "a" * 10, "b" * 10],
    ]  # fmt: skip
    assert "1 parameter is the same." in said
    document = compare.document(compare.compare(found))["config"]
    assert document["differences"][0] == {"name": "lr", "kind": "config", "values": [0.1, 0.01], "known": [True, True]}
    assert document["differences"][2] == {"name": "own", "kind": "config", "values": [1, None], "known": [True, False]}
    assert document["same"] == 1
    json.dumps(document, allow_nan=False)


def test_a_run_that_told_nothing_differs_in_nothing(tmp_path: Path) -> None:
    told = RunMetadata({"lr": 0.1}, {"commit": "a" * 40})
    found = config_differences(records(tmp_path, told, RunMetadata(), RunMetadata({"lr": 0.1})))
    assert (list(found.differences), found.same, list(found.without)) == ([], 1, [1])
    assert "No parameters are recorded for B: record them with run.config(…)." in list(config_lines(found, "ABC", 0))


def test_where_no_run_told_anything_nothing_is_said(tmp_path: Path) -> None:
    found = records(tmp_path, RunMetadata(), RunMetadata())
    assert list(config_lines(config_differences(found), "AB", 0)) == []


def test_runs_of_one_commit_with_uncommitted_changes_may_differ(tmp_path: Path) -> None:
    def of(dirty: Any) -> RunMetadata:
        return RunMetadata({}, {"commit": "a" * 40, **({} if dirty is None else {"dirty": dirty})})

    assert "uncommitted changes" in text(records(tmp_path / "a", of(True), of(False)))
    assert "uncommitted changes" not in text(records(tmp_path / "b", of(False), of(None)))


def test_hostile_names_and_values_are_shown_as_text(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for i in range(2):
            training(book, f"net-{i}", 3)
            value = json.dumps(f"{HOSTILE}{i}")
            book.add("parameter", run=f"net-{i}", kind=0, name=HOSTILE, place=0, value=value, rank=0)
        with Ledger(str(book.path)) as ledger:
            said = text([ledger.record(f"net-{i}") for i in range(2)])
    assert "\x1b" not in said
    assert "CONFIG" in said
