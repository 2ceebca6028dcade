"""The list of runs, made from the ledger and what the ring tells of those that run. In the process of `worker`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.errors import GpumonError
from gpumon.frame import RunState
from gpumon.ledger.reader import Ledgers
from gpumon.ledger.records import RunSummary
from gpumon.reports import run_json
from gpumon_web.answers import UNCHANGED, Packed
from gpumon_web.packing import packed

LISTED = 500
"""Runs on the list."""

Live = Mapping[str, Any]
"""A row of what the ring tells of a run."""


def listed(paths: Sequence[str], live: Mapping[str, Live], now: float, known: Any) -> Packed | str:
    """Every run, the newest first, and why those of the past are missing if they are."""
    document, version = list_of_runs(paths, live, now, known)
    return UNCHANGED if document is None else packed(document, version)


def list_of_runs(
    paths: Sequence[str], live: Mapping[str, Live], now: float, known: Any
) -> tuple[dict[str, Any] | None, str | None]:
    """The list of runs and its version; no list where it is still the one of version `known`."""
    version = None if live else repr(_stamps(paths))
    if version is not None and version == known:
        return None, version
    past: list[RunSummary] = []
    problem = ""
    try:
        with Ledgers(paths) as ledgers:
            past = ledgers.runs(limit=LISTED)
    except GpumonError as error:
        problem = str(error)
    rows: dict[str, dict[str, Any]] = {row["id"]: row for row in run_json.listing(past, now)["runs"]}
    for run, row in live.items():
        rows[run] = {**rows.get(run, {}), "live": row, "id": run, "name": row["name"], "user": row["user"],
                     "state": row["state"], "started": row["started"], "framework": row["framework"]}  # fmt: skip
    if any(one.run.state is RunState.RUNNING for one in past):
        version = None  # what is said of these depends on the time
    newest_first = sorted(rows.values(), key=lambda row: -(row["started"] or 0.0))
    return {"runs": newest_first, "problem": problem}, version


def _stamps(paths: Sequence[str]) -> list[Any]:
    """Changes when a ledger does: it grows by a log beside it."""
    found = []
    for path in (part for each in paths for part in (each, f"{each}-wal")):
        try:
            there = os.stat(path)
        except OSError:
            continue
        found.append((path, there.st_ino, there.st_mtime_ns, there.st_size))
    return found
