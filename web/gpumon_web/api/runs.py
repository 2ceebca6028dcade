"""The routes `runs`, `run` and `epochs`, as in `gpumon runs list --json` and `gpumon runs show --json`.

The functions that read ledgers run in the worker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.diagnosis.past_findings import verdict
from gpumon.model.frame import RunState
from gpumon.reports import run_json
from gpumon.reports.missing_history import NO_HISTORY
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import RunRow
from gpumon_web.api.parameters import Asked, QueryParameter, number, one_of, text, whole
from gpumon_web.api.route import ApiData
from gpumon_web.jobs import NOTHING, Packed, packed
from gpumon_web.stored.run_page import ledger_answer

USUAL, MOST = 50, 500
"""Default and largest number of rows per page."""
FURTHEST = 1e11
_LAST = 1_000_000
STATES = tuple(state.name.lower() for state in RunState)

PAGING: Sequence[QueryParameter] = (
    whole("limit", "rows of this page at most", 1, MOST, default=USUAL),
    whole("offset", "rows before this page: `next_offset` of the page before", 0, _LAST, default=0),
)
LIST: Sequence[QueryParameter] = (
    text("user", "only runs of this user"),
    text("name", "only runs whose name begins like this"),
    one_of("state", "only runs in one of these states", STATES, is_list=True, most=len(STATES)),
    text("framework", "only runs with this framework"),
    number("from", "only runs that began at this time or later, seconds since 1970", 0, FURTHEST),
    number("to", "only runs that began before this time, seconds since 1970", 0, FURTHEST),
    *PAGING,
)
ID = text("id", "the id of a run", is_required=True)
ONE: Sequence[QueryParameter] = (ID,)
EPOCHS: Sequence[QueryParameter] = (text("run", "the id of a run", is_required=True), *PAGING)


class RunFilter(NamedTuple):
    """Filter for runs; a field that is None matches all."""

    user: str | None
    name: str | None
    states: tuple[str, ...] | None
    framework: str | None
    begin: float | None
    end: float | None

    def takes(self, run: RunRow) -> bool:
        """Whether a run matches."""
        return (
            self.user in (None, run.user)
            and run.name.startswith(self.name or "")
            and (self.states is None or run.state.name.lower() in self.states)
            and self.framework in (None, run.framework)
            # A run with an unknown begin (NaN) is in no window.
            and (self.begin is None or run.started >= self.begin)
            and (self.end is None or run.started < self.end)
        )


def start_list(data: ApiData, asked: Asked) -> Future[Packed]:
    """Start the job for a page of the list."""
    states = tuple(asked["state"]) if asked["state"] else None
    wanted = RunFilter(asked["user"], asked["name"], states, asked["framework"], asked["from"], asked["to"])
    limit, offset = asked["limit"], asked["offset"]
    why = _why(data)
    return data.runs.ask(("api-runs", *wanted, limit, offset, why), listed, wanted, limit, offset, why)


def start_one(data: ApiData, asked: Asked) -> Future[Packed]:
    """Start the job for one run."""
    why = _why(data)
    return data.runs.ask(("api-run", asked["id"], why), one, asked["id"], why)


def start_epochs(data: ApiData, asked: Asked) -> Future[Packed]:
    """Start the job for a page of a run's epochs."""
    run, limit, offset = asked["run"], asked["limit"], asked["offset"]
    why = _why(data)
    return data.runs.ask(("api-epochs", run, limit, offset, why), epochs, run, limit, offset, why)


def _why(data: ApiData) -> str:
    """Return why present runs are not stored; empty if they are."""
    return NO_HISTORY if data.runs.why() else ""


def listed(
    paths: Sequence[str], now: float, known: Any, wanted: RunFilter, limit: int, offset: int, why: str
) -> Packed | str:
    """Return the matching runs, the newest first; `why`: why present runs are not stored."""
    found, more, problem = list[Any](), False, why or None
    try:
        with Ledgers(paths) as ledgers:
            rows = [(ledger, run) for ledger, run in ledgers.candidates() if wanted.takes(run)]
            found = [ledger.summary(run) for ledger, run in rows[offset : offset + limit]]
            more = len(rows) > offset + limit
    except GpumonError as error:
        problem = str(error)
    return packed({**run_json.listing(found, now), "next_offset": offset + limit if more else None, "problem": problem})


def one(paths: Sequence[str], now: float, known: Any, run: str, why: str) -> Packed | str:
    """Return one run without its epochs."""

    def made(ledger: Ledger, row: RunRow) -> Packed:
        document = run_json.run_document(ledger.record(row.id), now)
        count = len(document.pop("epochs"))
        return packed({**document, "epochs_total": count})

    return _or(
        why, ledger_answer(paths, run, None, made)
    )  # no version is passed, because the duration and the state depend on the time


def epochs(paths: Sequence[str], now: float, known: Any, run: str, limit: int, offset: int, why: str) -> Packed | str:
    """Return a page of a run's epochs, the oldest first."""

    def made(ledger: Ledger, row: RunRow) -> Packed:
        total = ledger.epoch_count(row.id)
        record = ledger.record(row.id, ordinals=(offset, offset + limit))
        phases = aggregate.phase_summaries(record)
        running = row.state is RunState.RUNNING
        rows = [
            {**run_json.epoch_to_json(epoch, phases.get(epoch.ordinal, ())), "verdict": judged.kind if judged else None}
            for epoch, judged in ((epoch, verdict(epoch, running)) for epoch in aggregate.epoch_summaries(record))
        ]
        following = offset + limit if offset + limit < total else None
        return packed(
            {
                "schema": run_json.SCHEMA, "run": row.id, "epochs_total": total, "epochs": rows,
                "next_offset": following,
            }
        )  # fmt: skip

    return _or(why, ledger_answer(paths, run, known, made))


def _or(why: str, answer: Packed | str) -> Packed | str:
    """Return the answer; if the run does not exist, with the reason."""
    return Packed(b"", missing=why) if answer == NOTHING else answer
