"""The list of runs from the ledgers and the ring, with its filters. Runs in the worker process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.privacy import SHOWN, current_policy
from gpumon.model.frame import RunState
from gpumon.reports import run_json
from gpumon.reports.run_list import epoch_cell
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import RunRow, RunSummary

HOUR = 3600.0
TIMES = {"24h": 24 * HOUR, "7d": 168 * HOUR, "31d": 744 * HOUR, "1y": 8760 * HOUR}
"""Choices for how long ago a run began at most (s), by their names in an address."""


class RunFilter(NamedTuple):
    """Filter for runs; an empty field matches all."""

    state: str = ""
    user: str = ""
    framework: str = ""
    since: str = ""
    """A name of `TIMES`."""
    where: str = ""
    """Comma-separated parameters and their values, `NAME=VALUE`."""
    q: str = ""
    """Search text: part of a name, a user, an id or a tag."""

    @property
    def is_any(self) -> bool:
        """Whether the filter matches every run."""
        return not any(self)

    def begun_after(self, now: float) -> float:
        """The earliest begin (s since 1970); NaN without a limit."""
        return now - TIMES[self.since] if self.since in TIMES else NAN

    def parameters(self) -> list[tuple[str, str]]:
        """Return the names and values in `where`. Raises UsageError if it is malformed."""
        parts = [part.strip() for part in self.where.split(",") if part.strip()]
        invalid = next((part for part in parts if not all(part.partition("=")[:2])), "")
        if invalid:
            raise UsageError(f"config takes NAME=VALUE, such as lr=0.1, not '{invalid[:80]}'")
        if parts and current_policy().way != SHOWN:  # a parameter may contain a user name, which a search would reveal
            raise UsageError("config is not searched while names are not shown")
        return [(name, value) for name, _, value in (part.partition("=") for part in parts)]

    @property
    def query(self) -> str:
        """`q` normalized for searching."""
        return self.q.strip().lower()

    def matches(self, run: Mapping[str, Any], now: float) -> bool:
        """Whether a run, given as a row of the list, matches all fields but `where`."""
        after = self.begun_after(now)
        return (
            self.state in ("", run["state"])
            and self.user in ("", run["user"] or "")
            and self.framework in ("", run["framework"] or "")
            and (not is_known(after) or (run["started"] or 0.0) >= after)
            and (not self.q or self.query in search_text(run))
        )


def search_text(run: Mapping[str, Any]) -> str:
    """Return the text of a run that `q` is searched in, in lower case."""
    return " ".join((run["name"], run["user"] or "", run["id"], *(run.get("tags") or ()))).lower()


class RunSelection(NamedTuple):
    """The newest matching runs, the ids of all of them, and all users and frameworks to filter by."""

    runs: Sequence[RunSummary]
    ids: Collection[str]
    users: Sequence[str]
    frameworks: Sequence[str]


def select_runs(ledgers: Ledgers, choice: RunFilter, now: float, limit: int) -> RunSelection:
    """Return the newest `limit` matching runs.

    Raises UsageError if the filter is invalid, GpumonError if the ledgers cannot be read.
    """
    names = ledgers.names()
    users = sorted({run.user for run in names} - {""})
    frameworks = sorted({run.framework for run in names} - {""})
    if choice.is_any:
        newest = ledgers.candidates(limit=limit)[:limit]
        return RunSelection(_summaries(newest, now), [run.id for run in names], users, frameworks)
    rows = ledgers.candidates()
    tags = ledgers.listed_tags() if choice.q else {}
    matches = [(ledger, row) for ledger, row in rows if choice.matches(_filter_values(row, tags.get(row.id, ())), now)]
    if where := choice.parameters():
        ids = {row.id for _, row in matches}
        with_config = ledgers.runs(where=where, since=choice.begun_after(now))
        runs = [summary for summary in with_config if summary.run.id in ids]
        return RunSelection(runs[:limit], [summary.run.id for summary in runs], users, frameworks)
    return RunSelection(_summaries(matches[:limit], now), [row.id for _, row in matches], users, frameworks)


_SETTLED: OrderedDict[str, RunSummary] = OrderedDict()
"""Cached summaries of runs that no longer change, by row, as the list is rebuilt while other runs are running."""
_MAX_SETTLED = 2000


def _summaries(rows: Sequence[tuple[Ledger, RunRow]], now: float) -> list[RunSummary]:
    summaries = []
    for ledger, row in rows:
        key = repr((ledger.path, row, current_policy().way))  # as text, because NaN != NaN
        summary = ledger.summary(row, _SETTLED.pop(key, None))
        if row.is_settled(now):
            _SETTLED[key] = summary
        summaries.append(summary)
    while len(_SETTLED) > _MAX_SETTLED:
        _SETTLED.popitem(last=False)
    return summaries


def _filter_values(row: RunRow, tags: Sequence[str]) -> dict[str, Any]:
    return {
        "state": row.state.name.lower(), "user": row.user, "framework": row.framework, "started": row.started,
        "name": row.name, "id": row.id, "tags": tags,
    }  # fmt: skip


def options(values: Iterable[str]) -> list[tuple[str, str]]:
    """Return choices of a list whose labels are the values themselves."""
    return [(value, value) for value in values]


MAX_LISTED = 500
"""Most runs on the list."""

ALL_RUNS = RunFilter()
Live = Mapping[str, Any]
"""A row of `fleet.run_row`: a run in the ring."""


def run_list_document(
    paths: Sequence[str], live: Mapping[str, Live], now: float, known_version: Any, choice: RunFilter = ALL_RUNS
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the list of the matching runs and its version; None as list if version `known_version` is current."""
    version = None if live else repr(_file_versions(paths))
    if version is not None and version == known_version:
        return None, version
    selection = RunSelection((), (), (), ())
    problem, is_unread = "", False
    try:
        with Ledgers(paths) as ledgers:
            selection = select_runs(ledgers, choice, now, MAX_LISTED)
    except GpumonError as error:
        problem, is_unread = str(error), not isinstance(error, UsageError)
    listed = zip(selection.runs, run_json.listing(selection.runs, now)["runs"], strict=True)
    rows: dict[str, dict[str, Any]] = {row["id"]: {**row, "epoch": epoch_cell(summary)} for summary, row in listed}
    stored, ids = [*rows], {*selection.ids}
    for run, row in live.items():
        if not choice.matches(row, now) or (choice.where and run not in rows):
            rows.pop(run, None)
            ids.discard(run)
            continue
        ids.add(run)
        rows[run] = {**rows.get(run, {}), "live": row, "id": run, "name": row["name"], "user": row["user"],
                     "state": row["state"], "started": row["started"], "framework": row["framework"],
                     "label": row["label"]}  # fmt: skip
    if problem or choice.since or any(summary.run.state is RunState.RUNNING for summary in selection.runs):
        version = None  # these rows depend on the time, and a locked file looks unchanged
    newest_first = sorted(rows.values(), key=lambda row: -(row["started"] or 0.0))
    document = {
        "runs": newest_first, "total": len(ids), "kept": stored, "problem": problem, "is_unread": is_unread,
        "choice": choice,
        "users": sorted({*selection.users, *(row["user"] for row in live.values() if row["user"])}),
        "frameworks": sorted({*selection.frameworks, *(row["framework"] for row in live.values() if row["framework"])}),
    }  # fmt: skip
    return document, version


def _file_versions(paths: Sequence[str]) -> list[Any]:
    """Return a value that changes with any ledger or its write-ahead log."""
    versions = []
    for path in (file for ledger in paths for file in (ledger, f"{ledger}-wal")):
        try:
            status = os.stat(path)
        except OSError:
            continue
        versions.append((path, status.st_ino, status.st_mtime_ns, status.st_size))
    return versions
