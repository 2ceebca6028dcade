"""The list of runs, made from the ledger and what the ring tells of those that run. In the process of `worker`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.common.errors import GpumonError, UsageError
from gpumon.model.frame import RunState
from gpumon.reports import run_json
from gpumon.storage.ledger.reader import Ledgers
from gpumon_web.answers import UNCHANGED, Packed
from gpumon_web.packing import packed
from gpumon_web.run_choice import ChosenRuns, RunChoice, chosen_runs

LISTED = 500
"""Runs on the list."""

EVERY = RunChoice()
Live = Mapping[str, Any]
"""A row of what the ring tells of a run."""


def listed(paths: Sequence[str], live: Mapping[str, Live], now: float, known: Any) -> Packed | str:
    """The newest runs, how many there are in all, and why those of the past are missing if they are."""
    document, version = list_of_runs(paths, live, now, known)
    if document is None:
        return UNCHANGED
    return packed({name: document[name] for name in ("runs", "total", "problem")}, version)


def list_of_runs(
    paths: Sequence[str], live: Mapping[str, Live], now: float, known: Any, choice: RunChoice = EVERY
) -> tuple[dict[str, Any] | None, str | None]:
    """The list of the runs of a choice and its version; no list where it is still the one of version `known`."""
    version = None if live else repr(_stamps(paths))
    if version is not None and version == known:
        return None, version
    found = ChosenRuns((), (), (), ())
    problem, is_unread = "", False
    try:
        with Ledgers(paths) as ledgers:
            found = chosen_runs(ledgers, choice, now, LISTED)
    except GpumonError as error:
        problem, is_unread = str(error), not isinstance(error, UsageError)
    rows: dict[str, dict[str, Any]] = {row["id"]: row for row in run_json.listing(found.runs, now)["runs"]}
    kept, every = [*rows], {*found.ids}
    for run, row in live.items():
        if not choice.has(row, now) or (choice.where and run not in rows):
            rows.pop(run, None)
            every.discard(run)
            continue
        every.add(run)
        rows[run] = {**rows.get(run, {}), "live": row, "id": run, "name": row["name"], "user": row["user"],
                     "state": row["state"], "started": row["started"], "framework": row["framework"],
                     "label": row["label"]}  # fmt: skip
    if problem or choice.since or any(one.run.state is RunState.RUNNING for one in found.runs):
        version = None  # what is said of these depends on the time, and a file that was locked is not changed
    newest_first = sorted(rows.values(), key=lambda row: -(row["started"] or 0.0))
    document = {
        "runs": newest_first, "total": len(every), "kept": kept, "problem": problem, "is_unread": is_unread,
        "choice": choice,
        "users": sorted({*found.users, *(row["user"] for row in live.values() if row["user"])}),
        "frameworks": sorted({*found.frameworks, *(row["framework"] for row in live.values() if row["framework"])}),
    }  # fmt: skip
    return document, version


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
