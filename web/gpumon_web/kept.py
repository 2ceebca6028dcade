"""The part of a page that comes from the ledger: made where the ledger is read, packed to be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.ledger.records import Record
from gpumon.reports import run_json
from gpumon_web.answers import UNCHANGED, Packed
from gpumon_web.listed_runs import Live, list_of_runs
from gpumon_web.packing import packed
from gpumon_web.page import Cells, KeptValues, Rows
from gpumon_web.pages import PAGES
from gpumon_web.run_page import Ring, all_rows, of_record, run_document


def of_list(
    paths: Sequence[str], live: Mapping[str, Live], now: float, known: Any, page: str, missing: str
) -> Packed | str:
    """Values of the page `page`, from the list of runs; `missing` says why past ones are not, or is empty."""
    document, version = list_of_runs(paths, live, now, known)
    if document is None:
        return UNCHANGED
    found = {**document, "missing": missing}
    return packed(_body(page, found, found["runs"]), version)


def of_run(
    paths: Sequence[str], run: str, device: str, live: Live | None, ring: Ring | None, now: float, known: Any,
    page: str, missing: str,
) -> Packed | str:  # fmt: skip
    """Values of the page `page`, from one run; such a page says itself that there is none, and `missing` why."""
    document, version = run_document(paths, run, device, live, ring, now, known)
    if document is None:
        return UNCHANGED
    found = {"run": None, **document, "id": run, "now": now, "missing": missing}
    return packed(_body(page, found, [found["run"]] if found["run"] else []), version)


def rest_of_run(paths: Sequence[str], run: str, known: Any, page: str) -> Packed | str:
    """All rows of the tables of which these values have the newest."""

    def made(record: Record) -> Packed:
        document = {"run": run_json.run_of(record.run, record.run.updated), **all_rows(record)}
        rest = PAGES[page].rest
        assert rest is not None
        return packed(_sent(rest(document), []))

    return of_record(paths, run, known, made)


def _body(page: str, document: Cells, runs: Sequence[Cells]) -> Cells:
    kept = PAGES[page].kept
    assert kept is not None
    return _sent(kept(document), runs)


def _sent(found: KeptValues, runs: Sequence[Cells]) -> Cells:
    tables = {name: rows for name, rows in found.values.items() if isinstance(rows, Rows)}
    return {
        "values": {name: value for name, value in found.values.items() if name not in tables},
        "tables": {
            name: {
                "order": [row["key"] for row in rows],
                "cells": {row["key"]: row for row in rows},
                "total": max(found.totals.get(name, 0), len(rows)),
            }
            for name, rows in tables.items()
        },
        "figures": dict(found.figures),
        "users": sorted({run["user"] or "" for run in runs} - {""}),
        "again": found.again,
    }
