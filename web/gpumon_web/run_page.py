"""The runs of the pages, made from the ledger and packed to be sent.

These functions run in the process of `worker`: they read files, and a run of thousands of epochs keeps them busy for a
second. What they get and give is small and can be pickled.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.analysis.epochs import Span
from gpumon.analysis.epochs import Stretch as Seen
from gpumon.diagnosis.past import verdict
from gpumon.errors import GpumonError
from gpumon.figures.run import figure
from gpumon.figures.run_finer import refined
from gpumon.figures.run_series import RunSeries, diverged_points, run_series
from gpumon.frame import TRAINING, RunState
from gpumon.history.open import open_history
from gpumon.history.recent import RecentHistory
from gpumon.json_value import shown
from gpumon.ledger import aggregate, phase_summary
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.reader import Ledger, Ledgers
from gpumon.ledger.records import Record, RunRow, RunSummary
from gpumon.missing import is_known
from gpumon.paths import history_beside
from gpumon.reports import run_json
from gpumon.reports.export_epochs import lines
from gpumon_web.answers import NOTHING, UNCHANGED, Packed
from gpumon_web.course import Logged, extended, recent_course, with_newest
from gpumon_web.levels import OF_SEVERITY

LISTED = 500
"""Runs on the list."""
ROWS = 100
"""Epochs that come with a run; a page asks for the rest when somebody wants to see them."""
PHASES = 200
"""Phases that come with a run, the newest: a page shades no more."""
EPOCH = (
    "seconds", "wait_share", "utilization_mean", "idle_share", "energy", "framework_peak", "run_allocated_peak",
    "memory_used_peak",
)  # fmt: skip
"""Columns of the table of epochs."""

Points = Mapping[str, Sequence[tuple[float, float]]]
"""Times and values by metric."""
Live = Mapping[str, Any]
"""A row of what the ring tells of a run."""


class Ring(NamedTuple):
    """The data of a run in the ring."""

    uuid: str
    """The device that `history` is of."""
    history: RecentHistory
    logged: Logged
    epochs: Mapping[str, Sequence[Seen]]
    """By the key of a rank: the lowest one that is here."""
    spans: Mapping[str, Sequence[Span]]
    """Phases that are no training, by the same."""


class Recent(NamedTuple):
    """A run up to now."""

    course: RunSeries
    logged: RunSeries
    diverged: Points | None = None
    epochs: Sequence[Seen] = ()
    """Those that the ring knows."""


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


def one(
    paths: Sequence[str], run: str, device: str, live: Live | None, ring: Ring | None, now: float, known: Any
) -> Packed | str:
    """One run: its newest epochs, its ranks, and its figure on `device` (a UUID; else its first)."""
    document, version = run_document(paths, run, device, live, ring, now, known)
    if document is None:
        return UNCHANGED
    return packed(document, version) if document else NOTHING


def run_document(
    paths: Sequence[str], run: str, device: str, live: Live | None, ring: Ring | None, now: float, known: Any
) -> tuple[dict[str, Any] | None, str | None]:
    """All that is known of one run, and its version: empty of a run that is not, none where it is still `known`."""
    try:
        with Ledgers(paths) as ledgers:
            found = _find(ledgers, run)
            if found is not None:
                ledger, row = found
                version = None if live or row.state is RunState.RUNNING else _version(ledger, row)
                if version is not None and version == known:
                    return None, version
                return _page(ledger=ledger, run=run, device=device, live=live, ring=ring, now=now), version
    except GpumonError:
        pass  # the list of runs says why; what the ring tells is still shown
    if live is None:
        return {}, None
    return {"run": live, "live": live, "epochs": [], "ranks": [], "marks": [], "devices": []}, None


def epochs(paths: Sequence[str], run: str, known: Any) -> Packed | str:
    """Every epoch of a run, as rows of the page's table."""

    return of_record(paths, run, known, lambda record: packed({"epochs": all_epochs(record)}))


def all_epochs(record: Record) -> list[dict[str, Any]]:
    """Its epochs as rows."""
    return _rows(record, aggregate.epochs(record))


def table(paths: Sequence[str], run: str, known: Any) -> Packed | str:
    """Its table of epochs as CSV."""
    return of_record(paths, run, known, lambda record: Packed(_compressed(line.encode() for line in lines(record))))


def _page(ledger: Ledger, run: str, device: str, live: Live | None, ring: Ring | None, now: float) -> dict[str, Any]:
    record, traces = ledger.record(run, phases=False, times=True), ledger.traces(run)
    devices = record.devices
    chosen = next((one for one in devices if one.uuid == device), devices[0] if devices else None)
    uuid = chosen.uuid if chosen else ""
    found = aggregate.epochs(record)
    kept = _course(ledger.path, record, run_series(record, traces, uuid or "-"), uuid), run_series(record, traces, "")
    recent = _recent(record, uuid, ring, *kept) if ring else Recent(*kept)
    return {
        "schema": run_json.SCHEMA,
        "run": run_json.run_of(record.run, now),
        "total": run_json.total_of(aggregate.whole(record, found, now)),
        "epochs": _rows(record, found[-ROWS:]),
        "epochs_total": len(found),
        "summary": _summary(found),
        "ranks": [run_json.rank_of(rank) for rank in record.ranks],
        "marks": [run_json.mark_of(mark, record.ranks) for mark in record.marks],
        "live": live,
        "device": uuid or None,
        "devices": [run_json.device_of(one) for one in devices],
        "phases": _phases(record, ring)[-PHASES:],
        "figure": figure(
            recent.course, recent.logged, chosen, with_newest(found, recent.epochs), record.marks,
            diverged=recent.diverged,
        ),
    }  # fmt: skip


def _course(ledger: str, record: Record, series: RunSeries, uuid: str) -> RunSeries:
    """The lines of a device; of a run that is over, as fine as history still has them, for whoever zooms in."""
    if record.run.state is RunState.RUNNING or not uuid:
        return series
    history = open_history()
    history.look_in(history_beside(ledger))
    found = refined(series, history, uuid)
    history.close()
    return found


def _recent(record: Record, uuid: str, ring: Ring, course: RunSeries, logged: RunSeries) -> Recent:
    """Up to now: the ring's of a run that it has from its begin, else what is kept and then the ring's."""
    if record.run.state is not RunState.RUNNING:
        return Recent(course, logged)
    keys = [rank.key for rank in record.ranks]
    history = ring.history
    whole = recent_course(history, uuid, record.run.started)
    times = history.sampled()
    diverged: Points = ring.logged.diverged(keys)
    if whole and ring.logged.since <= whole.begun + whole.step:
        up_to_now = ring.logged.timeline(keys, whole.begun, whole.step, times)
    else:
        up_to_now = ring.logged.extended(logged, keys, times)
        diverged = _before(diverged_points(logged), ring.logged.since, diverged)
    return Recent(
        whole or extended(course, history, uuid),
        up_to_now,
        diverged,
        ring.epochs.get(keys[0], ()) if keys else (),
    )


def _before(kept: Points, since: float, newer: Points) -> Points:
    """Join what the ledger keeps of the time before `since` (s since 1970) and what the ring has since."""
    older = {name: [point for point in points if point[0] < since] for name, points in kept.items()}
    return {name: [*older.get(name, ()), *newer.get(name, ())] for name in {**older, **newer}}


def _rows(record: Record, found: Sequence[EpochSummary]) -> list[dict[str, Any]]:
    ordinals = {epoch.ordinal for epoch in found}
    # Only how long its phases took is shown, and that takes no usage.
    of_them = record._replace(phases=[row for row in record.phases if row.ordinal in ordinals], usage=[])
    phases = phase_summary.phases(of_them)
    running = record.run.state is RunState.RUNNING
    return [epoch_row(epoch, phases.get(epoch.ordinal, ()), running) for epoch in found]


def epoch_row(epoch: EpochSummary, phases: Iterable[EpochSummary], running: bool) -> dict[str, Any]:
    """An epoch as the page's table has it: a tenth of all that is known, as there may be thousands of them."""
    found = run_json.epoch_of(epoch, ())
    judged = verdict(epoch, running)
    beside = [phase.seconds for phase in phases if phase.phase != TRAINING]
    return {
        **{name: found[name] for name in ("ordinal", "epoch", "metrics")},
        **{name: None if found[name] is None else round(found[name], 3) for name in ("begun", "ended")},
        **{name: None if found[name] is None else shown(found[name]) for name in EPOCH},
        "framework_peak_reached": found["framework_peak_reached"],
        "beside": shown(sum(beside)) if beside else None,
        "verdict": {"kind": judged.kind, "text": judged.text, "level": OF_SEVERITY[judged.severity]},
    }


def _summary(found: Sequence[EpochSummary]) -> dict[str, Any]:
    """Totals of all epochs, including those without a row on the page."""
    ended = [epoch for epoch in found if is_known(epoch.ended)]
    lengths = [epoch.seconds for epoch in ended if math.isfinite(epoch.seconds)]
    energies = [energy for epoch in found if math.isfinite(energy := epoch.value("energy"))]
    return {
        "done": len(ended),
        "mean": shown(sum(lengths) / len(lengths)) if lengths else None,
        "least": shown(min(lengths)) if lengths else None,
        "most": shown(max(lengths)) if lengths else None,
        "most_energy": shown(max(energies)) if energies else None,
    }


def _phases(record: Record, ring: Ring | None) -> list[list[Any]]:
    """Phases of the first rank that are no training: [begin, end or None, name], the ledger's, then the ring's."""
    newer = ring.spans.get(record.ranks[0].key, ()) if ring and record.ranks else ()
    since = newer[0].begin if newer else math.inf
    found = [*(span for span in phase_summary.spans(record) if span.end <= since), *newer]
    return [[span.begin, run_json.known(span.end), span.phase] for span in found]


def of_record(paths: Sequence[str], run: str, known: Any, made: Callable[[Record], Packed]) -> Packed | str:
    """The answer that `made` gives of a run's record, unchanged until another word of the run is written."""
    try:
        with Ledgers(paths) as ledgers:
            found = _find(ledgers, run)
            if found is None:
                return NOTHING
            ledger, row = found
            version = _version(ledger, row)
            if version == known:
                return UNCHANGED
            return made(ledger.record(run, phases=False, times=True))._replace(version=version)
    except GpumonError:
        return NOTHING  # the list of runs says why


def _find(ledgers: Ledgers, run: str) -> tuple[Ledger, RunRow] | None:
    return next(((ledger, row) for ledger, row in ledgers.candidates(run) if row.id == run), None)


def _version(ledger: Ledger, row: RunRow) -> str:
    """Changes with each word of the run that is written: text, because a NaN equals nothing."""
    return repr((ledger.path, row))


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


def packed(value: Any, version: Any = None) -> Packed:
    """`value` as JSON, compressed."""
    return Packed(
        gzip.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), 5, mtime=0), version
    )


def _compressed(parts: Iterable[bytes]) -> bytes:
    """All parts together compressed, without ever having them all in memory as they are."""
    from zlib import compressobj

    packer = compressobj(5, wbits=31)
    return b"".join((*(packer.compress(part) for part in parts), packer.flush()))
