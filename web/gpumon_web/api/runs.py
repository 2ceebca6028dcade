"""The routes `runs`, `run` and `epochs`, as in `gpumon runs list --json` and `gpumon runs show --json`.

The functions that read ledgers run in the worker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from gpumon.common.errors import GpumonError
from gpumon.diagnosis.past_findings import verdict
from gpumon.model.frame import RunState
from gpumon.reports import run_json
from gpumon.reports.history import NO_HISTORY
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import RunRow
from gpumon_web.api.now import ApiData
from gpumon_web.api.parameters import COMMAS, OneOf, Parameters, Text, Time
from gpumon_web.jobs import NOTHING, Packed, packed
from gpumon_web.stored.run_page import ledger_answer

USUAL, MOST = 50, 500
"""Default and largest number of rows per page."""
_LAST = 1_000_000
STATES = tuple(state.name.lower() for state in RunState)


class PageParameters(Parameters):
    """Parameters of a list that is answered in pages."""

    limit: int = Field(USUAL, ge=1, le=MOST, description="rows of this page at most")
    offset: int = Field(0, ge=0, le=_LAST, description="rows before this page: `next_offset` of the page before")


class RunsParameters(PageParameters):
    """Parameters of the route `runs`."""

    user: Text | SkipJsonSchema[None] = Field(None, description="only runs of this user")
    name: Text = Field("", description="only runs whose name begins like this")
    state: Annotated[tuple[Annotated[str, OneOf(STATES)], ...], Field(min_length=1, max_length=len(STATES)), COMMAS] = (
        Field((), description="only runs in one of these states")
    )
    framework: Text | SkipJsonSchema[None] = Field(None, description="only runs with this framework")
    begin: Time | SkipJsonSchema[None] = Field(
        None, alias="from", description="only runs that began at this time or later, seconds since 1970"
    )
    end: Time | SkipJsonSchema[None] = Field(
        None, alias="to", description="only runs that began before this time, seconds since 1970"
    )


class RunParameters(Parameters):
    """Parameters of the route `run`."""

    id: Text = Field(description="the id of a run")


class EpochsParameters(PageParameters):
    """Parameters of the route `epochs`."""

    run: Text = Field(description="the id of a run")


class RunFilter(NamedTuple):
    """Filter for runs; a field that is None or empty matches all."""

    user: str | None
    name: str
    states: tuple[str, ...]
    framework: str | None
    begin: float | None
    end: float | None

    def matches(self, run: RunRow) -> bool:
        """Whether a run matches."""
        return (
            self.user in (None, run.user)
            and run.name.startswith(self.name)
            and (not self.states or run.state.name.lower() in self.states)
            and self.framework in (None, run.framework)
            # A run that began at an unknown time (NaN) is in no window.
            and (self.begin is None or run.started >= self.begin)
            and (self.end is None or run.started < self.end)
        )


def start_list(data: ApiData, query: RunsParameters) -> Future[Packed]:
    """Start the job for a page of the list."""
    run_filter = RunFilter(query.user, query.name, query.state, query.framework, query.begin, query.end)
    arguments = (run_filter, query.limit, query.offset, _missing_reason(data))
    return data.runs.ask(("api-runs", *arguments), run_list, *arguments)


def start_run(data: ApiData, query: RunParameters) -> Future[Packed]:
    """Start the job for one run."""
    arguments = (query.id, _missing_reason(data))
    return data.runs.ask(("api-run", *arguments), single_run, *arguments)


def start_epochs(data: ApiData, query: EpochsParameters) -> Future[Packed]:
    """Start the job for a page of a run's epochs."""
    arguments = (query.run, query.limit, query.offset, _missing_reason(data))
    return data.runs.ask(("api-epochs", *arguments), epochs, *arguments)


def _missing_reason(data: ApiData) -> str:
    """Return why present runs are not stored; empty if they are."""
    return NO_HISTORY if data.runs.missing_reason() else ""


def run_list(
    paths: Sequence[str], now: float, version: Any, run_filter: RunFilter, limit: int, offset: int, reason: str
) -> Packed | str:
    """Return the matching runs, the newest first; `reason`: why present runs are not stored."""
    summaries, has_more, problem = list[Any](), False, reason or None
    try:
        with Ledgers(paths) as ledgers:
            rows = [(ledger, run) for ledger, run in ledgers.candidates() if run_filter.matches(run)]
            summaries = [ledger.summary(run) for ledger, run in rows[offset : offset + limit]]
            has_more = len(rows) > offset + limit
    except GpumonError as error:
        problem = str(error)
    return packed(
        {**run_json.listing(summaries, now), "next_offset": offset + limit if has_more else None, "problem": problem}
    )


def single_run(paths: Sequence[str], now: float, version: Any, run: str, reason: str) -> Packed | str:
    """Return one run without its epochs."""

    def read_run(ledger: Ledger, row: RunRow) -> Packed:
        document = run_json.run_document(ledger.record(row.id), now)
        count = len(document.pop("epochs"))
        return packed({**document, "epochs_total": count})

    # No version is passed, because the duration and the state depend on the time.
    return _with_reason(reason, ledger_answer(paths, run, None, read_run))


def epochs(
    paths: Sequence[str], now: float, version: Any, run: str, limit: int, offset: int, reason: str
) -> Packed | str:
    """Return a page of a run's epochs, the oldest first."""

    def read_run(ledger: Ledger, row: RunRow) -> Packed:
        total = ledger.epoch_count(row.id)
        record = ledger.record(row.id, ordinals=range(offset, offset + limit))
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

    return _with_reason(reason, ledger_answer(paths, run, version, read_run))


def _with_reason(reason: str, answer: Packed | str) -> Packed | str:
    """Return the answer; if the run does not exist, an answer with the reason."""
    return Packed(b"", missing=reason) if answer == NOTHING else answer
