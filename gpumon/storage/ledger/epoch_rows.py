"""Builds the ledger rows of a rank, for epochs, time outside epochs, rows of steps, and the usage of devices in each of
these."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpumon.common import numbers
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import EVALUATION, TRAINING, Run, wait_between
from gpumon.model.run import PAUSED
from gpumon.storage.ledger.device import DeviceUsage
from gpumon.storage.ledger.epoch import Epoch, Moment, PhaseTotals
from gpumon.storage.ledger.records import LivePeak
from gpumon.storage.ledger.row_keys import OUTSIDE_EPOCHS, STEP_ROWS, WHOLE_EPOCH
from gpumon.storage.ledger.steps import join_rows
from gpumon.storage.ledger.timeline import EpochTimeline, is_same_value
from gpumon.storage.ledger.usage import MIN_ENERGY_SECONDS, UsageSums, merge_sums
from gpumon.storage.ledger.writer import LedgerRow


def epoch_rows(
    run: Run, timeline: EpochTimeline, device_usage: Mapping[str, DeviceUsage], epoch: Epoch, until: Moment, *,
    sums: Mapping[str, Mapping[str, UsageSums]],
) -> Iterator[LedgerRow]:  # fmt: skip
    """Yield the rows of an epoch up to `until`.

    These are the epoch, its phases, and the usage of each device in the epoch and in each phase.

    `sums`: usage in this epoch by device UUID, then by phase.
    """
    key = run.key
    seconds = (until.monotonic_ns - epoch.begin.monotonic_ns) / SECOND
    metrics = dict(epoch.metrics)
    if epoch is timeline.open:
        # The board may still show values of the previous epoch.
        logged = timeline.logged
        metrics |= {name: v for name, v in run.metrics.items() if not is_same_value(logged.get(name), v)}
    phases = timeline.phases_at(epoch, until)
    peaks = timeline.peaks_at(epoch, run.memory.peak)
    trained = phases.get(TRAINING)
    # If the training phase has no steps, the training may use another name for it.
    evaluation_steps = sum(part.steps for name, part in phases.items() if name in EVALUATION)
    steps = max(0, until.step - epoch.begin.step - evaluation_steps)
    yield LedgerRow("epoch", {
        "rank": key, "ordinal": epoch.ordinal, "epoch": epoch.epoch,
        "begun": epoch.begun_ns, "ended": epoch.ended_ns, "seconds": seconds,
        "steps": trained.steps if trained and trained.steps else steps,
        "trained": trained.seconds if trained and trained.steps else None,
        "wait": nullable(wait_between(epoch.begin.wait, until.wait)),
        "wait_of": sum(part.seconds for part in phases.values() if is_known(part.wait)) or None,
        **peak_columns(peaks, ""),
        "metrics": numbers_json(metrics),
    })  # fmt: skip
    for position, (name, part) in enumerate(phases.items()):
        if name:
            yield LedgerRow("phase", {
                "rank": key, "ordinal": epoch.ordinal, "phase": name, "place": position, "seconds": part.seconds,
                "times": part.times, "steps": part.steps, "wait": nullable(part.wait), **peak_columns(peaks, name),
                "spans": None if name == TRAINING else json.dumps(part.spans),
            })  # fmt: skip
    for uuid, parts in sums.items():
        usage = device_usage[uuid]
        yield usage_row(key, epoch.ordinal, WHOLE_EPOCH, usage, sums=merge_sums(parts), seconds=seconds)
        for name, part in phases.items():
            if name:
                phase_sums = parts.get(name) or UsageSums()
                yield usage_row(key, epoch.ordinal, name, usage, sums=phase_sums, seconds=part.seconds)


def usage_row(
    key: str, ordinal: int, phase: str, usage: DeviceUsage, *, sums: UsageSums, seconds: float,
    min_energy_seconds: float = MIN_ENERGY_SECONDS,
) -> LedgerRow:  # fmt: skip
    """Return a row of the table `usage` for one device in one phase.

    `key`: key of the rank. `ordinal`: ordinal of the epoch. `seconds`: length of the phase. `min_energy_seconds`:
    shortest time for which energy is reported.
    """
    columns = sums.columns(seconds, whole_board=usage.whole_board, min_energy_seconds=min_energy_seconds)
    return LedgerRow(
        "usage", {"rank": key, "ordinal": ordinal, "phase": phase, "uuid": usage.uuid, **columns}
    )  # fmt: skip


def numbers_json(metrics: Mapping[str, float]) -> str:
    """Return metrics by name as a JSON object. NaN and infinities are written as strings."""
    known = {name: float(v) if math.isfinite(v) else numbers.logged(v) for name, v in metrics.items()}
    return json.dumps(known)


def nullable(value: float) -> float | None:
    """Return the number, or None (NULL in SQL) if it is NaN."""
    return value if is_known(value) else None


def peak_columns(peaks: Mapping[str, LivePeak], phase: str) -> dict[str, Any]:
    """Return the columns for the peak of framework memory in a phase. Phase '' stands for all phases together."""
    peak = peaks.get(phase, LivePeak())
    return {"peak": nullable(peak.value), "peak_reached": int(peak.reached) if is_known(peak.value) else None}


def outside_rows(
    key: str, timeline: EpochTimeline, device_usage: Mapping[str, DeviceUsage], until: Moment
) -> Iterator[LedgerRow]:  # fmt: skip
    """Yield the rows for the time outside a rank's epochs up to `until`.

    There is a row for each phase, a row for all phases together, and the usage of each device. If boundaries were lost,
    the time cannot be determined, and only one row without seconds is yielded.
    """
    totals = timeline.outside_at(until)
    if totals is None:
        if timeline.lost:
            yield LedgerRow("outside", {"rank": key, "phase": WHOLE_EPOCH, "seconds": None, "times": 0, "steps": 0})
        return
    phases = {name: part for name, part in totals.items() if name != PAUSED}
    waits = [part for part in phases.values() if is_known(part.wait)]
    together = PhaseTotals(
        sum(part.seconds for part in phases.values()),
        1,
        sum(part.steps for part in phases.values()),
        sum(part.wait for part in waits) if waits else NAN,
    )
    peaks = timeline.outside_peaks_at()
    for position, (name, part) in enumerate([(WHOLE_EPOCH, together), *phases.items()]):
        yield LedgerRow("outside", {
            "rank": key, "phase": name, "place": max(0, position - 1), "seconds": part.seconds, "times": part.times,
            "steps": part.steps, "wait": nullable(part.wait),
            "wait_of": None if name else sum(part.seconds for part in waits) or None,
            "spans": json.dumps(part.spans) if name else None, **peak_columns(peaks, name),
        })  # fmt: skip
    for usage in device_usage.values():
        parts = {name: usage.outside[name] for name in usage.outside if name != PAUSED}
        sums = merge_sums(parts)
        # Energy is reported even for a very short time, so that this row and the epochs add up to the run's energy.
        yield usage_row(
            key, OUTSIDE_EPOCHS, WHOLE_EPOCH, usage, sums=sums, seconds=together.seconds, min_energy_seconds=0.0
        )
        for name, part in phases.items():
            own = parts.get(name) or UsageSums()
            yield usage_row(key, OUTSIDE_EPOCHS, name, usage, sums=own, seconds=part.seconds)


def step_rows(
    key: str, timeline: EpochTimeline, device_usage: Mapping[str, DeviceUsage], until: Moment
) -> Iterator[LedgerRow]:  # fmt: skip
    """Yield the rows of steps up to `until`, each with its device usage, for a rank that has no epochs."""
    rows = timeline.step_rows
    for usage in device_usage.values():
        usage.merge_step_rows(rows)
    if len(rows.rows) < 2:
        return
    groups = rows.groups(max(until.step, timeline.last.step))
    position = 0
    for group in groups:
        columns = join_rows(group).columns(until)
        if not columns["steps"]:
            continue  # this is time after the last step, or only evaluation, which the phases show
        metrics = {name: value for row in group for name, value in row.metrics.items()}
        yield LedgerRow("step_row", {"rank": key, "ordinal": position, **columns, "metrics": numbers_json(metrics)})
        for usage in device_usage.values():
            numbers = [row.number for row in group if row.number in usage.step_rows]
            sums = merge_sums({number: usage.step_rows[number] for number in numbers})
            yield usage_row(key, STEP_ROWS - position, WHOLE_EPOCH, usage, sums=sums, seconds=columns["seconds"])
        position += 1
