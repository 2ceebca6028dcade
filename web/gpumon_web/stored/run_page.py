"""The document of one run, from the ledger and the ring (`run_list` has the list of runs).

The functions run in the worker process, as a run of thousands of epochs takes a second. Their arguments and results are
small and can be pickled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.analysis.rank_epochs import Span
from gpumon.analysis.run_epochs import EpochSpan
from gpumon.common.config import Prices
from gpumon.common.errors import GpumonError
from gpumon.common.paths import history_beside
from gpumon.common.privacy import SHOWN, current_policy
from gpumon.cost import price_run, price_summary
from gpumon.diagnosis.finding import finding_json
from gpumon.diagnosis.past_findings import Verdicts, findings, verdicts_of
from gpumon.model.frame import RunState
from gpumon.reports import run_json
from gpumon.reports.charges import sentence
from gpumon.reports.epoch_export import lines
from gpumon.reports.figures.run_chart import RunDrawing, run_chart
from gpumon.reports.figures.run_gpus import EACH, MEAN, DeviceCourse
from gpumon.reports.figures.run_series import RunSeries, diverged_points, refine, run_series
from gpumon.reports.run_tables import about_json
from gpumon.storage.history.open import open_history
from gpumon.storage.history.recent import RecentHistory
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.long_run import LongRun
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import DeviceRow, Record, RunRow
from gpumon.storage.ledger.summary import EpochSummary, EpochSums
from gpumon_web.jobs import NOTHING, UNCHANGED, Packed, compressed
from gpumon_web.stored.epoch_rows import (
    NO_LENGTHS,
    fold_epochs,
    odd_epochs,
    run_parts,
    seconds_outside_training,
    summary,
    unfolded_epochs,
)
from gpumon_web.stored.run_course import LoggedValues, extend_course, recent_course, update_epochs
from gpumon_web.stored.run_list import Live

ROWS = 100
"""Unfolded epochs sent with a run; the page requests the rest on demand."""
PHASES = 200
"""Newest phases sent with a run; a chart does not shade more."""
LONG = 2000
"""Number of epochs above which a run is long: then only sums, and the selections below, are read."""
NEWEST = 300
"""Long run: newest epochs, which have rows in the table."""
SAMPLE = 300
"""Long run: evenly spaced epochs, for charts of logged metrics."""
SUSPECTS = 200
"""Long run: newest epochs that may need attention."""
Points = Mapping[str, Sequence[tuple[float, float]]]
"""Times and values by metric."""


class Ring(NamedTuple):
    """Data of a run from the ring."""

    history: RecentHistory
    """Values of its devices."""
    logged: LoggedValues
    epochs: Mapping[str, Sequence[EpochSpan]]
    """Epochs by key of a rank; only the lowest rank that is present."""
    spans: Mapping[str, Sequence[Span]]
    """Phases other than training, by the same key."""


class Recent(NamedTuple):
    """Data of a run up to now, from the ledger and the ring."""

    course: RunSeries
    logged: RunSeries
    diverged: Points | None = None
    epochs: Sequence[EpochSpan] = ()
    """Epochs in the ring."""


def run_document(
    paths: Sequence[str], run: str, device: str, live: Live | None, ring: Ring | None, now: float, known_version: Any,
    prices: Prices | None = None,
) -> tuple[dict[str, Any] | None, str | None]:  # fmt: skip
    """Return the document of a run, with its costs if there are `prices`, and its version.

    The document is empty for an unknown run, and None if version `known_version` is still current. Its `unread`
    explains why the ledgers cannot be read now.
    """
    unread = ""
    try:
        with Ledgers(paths) as ledgers:
            match = find_run(ledgers, run)
            if match is not None:
                ledger, row = match
                version = None if live or row.state is RunState.RUNNING else _version(ledger, row)
                if version is not None and version == known_version:
                    return None, version
                page = _page(ledger=ledger, run=run, device=device, live=live, ring=ring, now=now, prices=prices)
                return page, version
    except GpumonError as error:
        unread = str(error)  # the data in the ring is still shown
    if live is None:
        return ({"run": None, "unread": unread} if unread else {}), None
    document = {"run": live, "live": live, "epochs": [], "ranks": [], "marks": [], "devices": [], "unread": unread}
    return document, None


def all_rows(record: Record, prices: Prices | None = None, long: LongRun | None = None) -> dict[str, Any]:
    """Return all rows of a run: epochs, parts outside epochs and, with `prices`, costs.

    `long`: sums of a long run, whose `record` only has some epochs.
    """
    run_epochs = RunEpochs(record, aggregate.epoch_summaries(record), long)
    total = aggregate.run_total(record, run_epochs.sums)
    verdicts = verdicts_of(run_epochs.judged, running=record.run.state is RunState.RUNNING)
    epochs = [
        *_early_problems(run_epochs, verdicts),
        *(epoch for epoch in run_epochs.epochs if epoch.ordinal >= run_epochs.since),
    ]
    return {
        "epochs": epochs, "parts": run_parts(record, run_epochs.sums, total),
        "outside": seconds_outside_training(record), **_charges(record, epochs, prices),
    }  # fmt: skip


def _charges(record: Record, epochs: Sequence[EpochSummary], prices: Prices | None) -> dict[str, Any]:
    """Return the prices and the cost of each epoch by ordinal; empty without prices."""
    if prices is None:
        return {}
    charges = {epoch.ordinal: price_summary(epoch, record.devices, prices) for epoch in epochs}
    return {"prices": prices, "charges": charges}


def csv_answer(paths: Sequence[str], now: float, known_version: Any, run: str) -> Packed | str:
    """Return the epochs of a run as CSV."""
    del now  # they are those of the newest write
    return record_answer(
        paths, run, known_version, lambda record: Packed(compressed(line.encode() for line in lines(record)))
    )


class RunEpochs(NamedTuple):
    """The epochs read of a run: all, or a selection for a long run."""

    record: Record
    epochs: Sequence[EpochSummary]
    long: LongRun | None = None
    """Sums of all epochs and their times; only set if `epochs` is a selection."""

    @property
    def sums(self) -> Sequence[EpochSummary] | EpochSums:
        """All epochs, or their sums for a long run."""
        return self.long.sums if self.long else self.epochs

    @property
    def begun(self) -> int:
        """Number of epochs begun."""
        return self.long.begun if self.long else len(self.epochs)

    @property
    def since(self) -> int:
        """First ordinal from which each epoch has a row."""
        return max(0, self.long.begun - NEWEST) if self.long else 0

    @property
    def judged(self) -> Sequence[EpochSummary]:
        """Epochs to judge; for a long run without the sample."""
        if self.long is None:
            return self.epochs
        suspects = {*self.long.suspects[-SUSPECTS:], self.long.first_nonfinite}
        return [epoch for epoch in self.epochs if epoch.ordinal >= self.since or epoch.ordinal in suspects]

    @property
    def is_judged(self) -> bool:
        """Whether all epochs that may need attention were read."""
        return self.long is None or len(self.long.suspects) <= SUSPECTS


def read_epochs(ledger: Ledger, run: str, *, reads_all: bool = False) -> RunEpochs:
    """Read a run; `reads_all`: read all epochs even of a long run."""
    with ledger.snapshot():
        long = None if reads_all else ledger.long_run(run, LONG, PHASES)
        record = ledger.record(run, phases=False, times=True, ordinals=_ordinals_to_read(long) if long else None)
    return RunEpochs(record, aggregate.epoch_summaries(record), long)


def _ordinals_to_read(long: LongRun) -> list[int]:
    """Return the ordinals of the epochs to read of a long run."""
    sample = range(0, long.begun, -(-long.begun // SAMPLE))
    odd = () if long.first_nonfinite is None else (long.first_nonfinite,)
    newest = range(long.begun - NEWEST, long.begun)
    return sorted({*sample, *newest, *long.suspects[-SUSPECTS:], *odd, *long.with_phases})


def _page(
    ledger: Ledger, run: str, device: str, live: Live | None, ring: Ring | None, now: float, prices: Prices | None
) -> dict[str, Any]:  # fmt: skip
    # Costs depend on the tariff at the time of each epoch, so they cannot be computed from sums.
    run_epochs, traces = read_epochs(ledger, run, reads_all=prices is not None), ledger.traces(run)
    record, stored_epochs = run_epochs.record, run_epochs.epochs
    devices = record.devices
    selection, gpus = select_devices(devices, device)
    total = aggregate.run_total(record, run_epochs.sums)
    logged = run_series(record, traces, "")
    recent = [
        _recent_data(
            record, gpu, ring, _course(ledger.path, record, run_series(record, traces, gpu.uuid), gpu.uuid), logged
        )
        for gpu in gpus
    ] or [_recent_data(record, None, ring, run_series(record, traces, "-"), logged)]
    epochs = update_epochs(stored_epochs, recent[0].epochs)  # a new epoch reaches the ledger some seconds late
    verdicts = verdicts_of(epochs, running=record.run.state is RunState.RUNNING)
    row_epochs = [epoch for epoch in epochs if epoch.ordinal >= run_epochs.since]
    folds = fold_epochs(row_epochs, verdicts)
    early = _early_problems(run_epochs, verdicts)
    newest = [*early, *unfolded_epochs(row_epochs, folds)][-ROWS:]
    epochs_total = run_epochs.begun + len(epochs) - len(stored_epochs)
    drawing = run_drawing(run_epochs, gpus, recent, epochs, ring, is_each=selection == EACH)
    return {
        "schema": run_json.SCHEMA,
        "run": {**run_json.run_to_json(record.run, now), "epochs_done": record.done},
        "total": run_json.total_to_json(total),
        "parts": run_parts(record, run_epochs.sums, total),
        "epochs": newest,
        "folds": folds,
        "outside": seconds_outside_training(record),
        "epochs_total": epochs_total,
        "omitted": epochs_total - len(early) - len(row_epochs),
        "odd": odd_epochs(run_epochs.judged, verdicts, is_all=run_epochs.long is None),
        "is_judged": run_epochs.is_judged,
        "findings": [finding_json(finding) for finding in findings(record, total, now, stored_epochs)],
        "summary": summary(
            epochs[len(stored_epochs) - 1 :] if run_epochs.long else epochs,
            run_epochs.long.lengths if run_epochs.long else NO_LENGTHS,
        ),
        "ranks": run_json.ranks_to_json(record),
        "marks": [run_json.mark_to_json(mark, record.ranks) for mark in record.marks],
        "about": about_json(record.about),
        "live": live,
        "device": selection or None,
        "devices": [run_json.device_to_json(gpu) for gpu in devices],
        "chart": run_chart(
            drawing._replace(verdicts=verdicts, total=total if len(gpus) == len(devices) else None),
            len(devices),
        ),
        "cost": sentence(price_run(total, stored_epochs, devices, prices), prices) if prices else "",
        **_charges(record, newest, prices),
    }  # fmt: skip


def _early_problems(run_epochs: RunEpochs, verdicts: Verdicts) -> list[EpochSummary]:
    """Return the epochs of a long run that need attention, among those before the newest ones."""
    early = [epoch for epoch in run_epochs.judged if epoch.ordinal < run_epochs.since]
    return [epoch for epoch in early if (verdict := verdicts[epoch.ordinal]) and verdict.needs_a_look]


def select_devices(devices: Sequence[DeviceRow], selection: str) -> tuple[str, Sequence[DeviceRow]]:
    """Return the valid selection (a UUID, `EACH` or `MEAN`) for one in an address, and its GPUs; default: the mean."""
    device = next((device for device in devices if device.uuid == selection), None)
    if device is not None:
        return device.uuid, [device]
    if len(devices) < 2:
        return (devices[0].uuid if devices else ""), devices
    return (EACH if selection == EACH else MEAN), devices


def run_drawing(
    run_epochs: RunEpochs, devices: Sequence[DeviceRow], recent: Sequence[Recent], epochs: Sequence[EpochSummary],
    ring: Ring | None, *, is_each: bool,
) -> RunDrawing:  # fmt: skip
    """Collect the data for the chart of a run."""
    record, long = run_epochs.record, run_epochs.long
    courses = zip(devices, (data.course for data in recent), strict=False)
    gpus = [DeviceCourse(device, course) for device, course in courses if course.points]
    first = recent[0]
    phases = phase_spans(record, ring)
    return RunDrawing(
        record.run, gpus, first.logged, epochs, record.marks, phases[-PHASES:], first.diverged, is_each,
        max(len(phases), long.phases if long else 0), long=long, is_judged=run_epochs.is_judged,
    )  # fmt: skip


def _recent_data(
    record: Record, device: DeviceRow | None, ring: Ring | None, course: RunSeries, logged: RunSeries
) -> Recent:
    return merge_recent(record, device.uuid if device else "", ring, course, logged) if ring else Recent(course, logged)


def _course(ledger: str, record: Record, series: RunSeries, uuid: str) -> RunSeries:
    """Return the series of a device; for a run that is over, at the history's resolution, so that zooming works."""
    if record.run.state is RunState.RUNNING or not uuid:
        return series
    history = open_history()
    history.set_path(history_beside(ledger))
    refined = refine(series, history, uuid)
    history.close()
    return refined


def merge_recent(record: Record, uuid: str, ring: Ring, course: RunSeries, logged: RunSeries) -> Recent:
    """Return the data up to now: from the ring alone if it has the whole run, else the ledger's extended by it."""
    if record.run.state is not RunState.RUNNING:
        return Recent(course, logged)
    keys = [rank.key for rank in record.ranks]
    history = ring.history
    ring_course = recent_course(history, uuid, record.run.started)
    times = history.sampled()
    diverged: Points = ring.logged.diverged(keys)
    if ring_course and ring.logged.since <= ring_course.begun + ring_course.step:
        up_to_now = ring.logged.timeline(keys, ring_course.begun, ring_course.step, times)
    else:
        up_to_now = ring.logged.extend(logged, keys, times)
        diverged = _join_points(diverged_points(logged), ring.logged.since, diverged)
    return Recent(
        ring_course or extend_course(course, history, uuid),
        up_to_now,
        diverged,
        ring.epochs.get(keys[0], ()) if keys else (),
    )


def _join_points(stored: Points, since: float, newer: Points) -> Points:
    """Join stored points from before `since` (s since 1970) with newer points."""
    older = {name: [point for point in points if point[0] < since] for name, points in stored.items()}
    return {name: [*older.get(name, ()), *newer.get(name, ())] for name in {**older, **newer}}


def phase_spans(record: Record, ring: Ring | None) -> list[list[Any]]:
    """Return the first rank's phases other than training, oldest first: [begin, end or None, name]."""
    newer = ring.spans.get(record.ranks[0].key, ()) if ring and record.ranks else ()
    since = newer[0].begin if newer else math.inf
    spans = [*(span for span in aggregate.phase_spans(record) if span.end <= since), *newer]
    return [[span.begin, run_json.nullable(span.end), span.phase] for span in spans]


def record_answer(paths: Sequence[str], run: str, known_version: Any, make: Callable[[Record], Packed]) -> Packed | str:
    """Return the answer that `make` creates from a run's record; UNCHANGED if nothing new was written."""
    return ledger_answer(
        paths, run, known_version, lambda ledger, row: make(ledger.record(row.id, phases=False, times=True))
    )


def ledger_answer(
    paths: Sequence[str], run: str, known_version: Any, make: Callable[[Ledger, RunRow], Packed]
) -> Packed | str:
    """Return the answer that `make` creates from a run's ledger and row; UNCHANGED if nothing new was written."""
    try:
        with Ledgers(paths) as ledgers:
            match = find_run(ledgers, run)
            if match is None:
                return NOTHING
            version = _version(*match)
            if version == known_version:
                return UNCHANGED
            return make(*match)._replace(version=version)
    except GpumonError as error:
        return Packed(b"", unread=str(error))


def find_run(ledgers: Ledgers, run: str) -> tuple[Ledger, RunRow] | None:
    """Return the ledger that has the run, and the run's row; None if there is none."""
    beginning = run if current_policy().way == SHOWN else ""  # an id that contains a name differs in the file
    return next(((ledger, row) for ledger, row in ledgers.candidates(beginning) if row.id == run), None)


def _version(ledger: Ledger, row: RunRow) -> str:
    """Return a value that changes with anything written about the run, as text, because NaN != NaN."""
    return repr((ledger.path, row, ledger.metadata(row.id)))
