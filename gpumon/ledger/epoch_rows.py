"""Rows of an epoch for the ledger, open or over."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpumon.common import numbers
from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.ledger.device import DeviceUsage
from gpumon.ledger.epoch import Epoch, Moment
from gpumon.ledger.framework_peak import Peak
from gpumon.ledger.schema import WHOLE_EPOCH
from gpumon.ledger.timeline import EpochTimeline, same
from gpumon.ledger.usage import SHORTEST_ENERGY, UsageSums, merged
from gpumon.ledger.write import LedgerRow
from gpumon.model.frame import EVALUATION, TRAINING, Run, waited_between


def epoch_rows(
    run: Run, timeline: EpochTimeline, shares: Mapping[str, DeviceUsage], epoch: Epoch, until: Moment, *,
    sums: Mapping[str, Mapping[str, UsageSums]],
) -> Iterator[LedgerRow]:  # fmt: skip
    """Rows of an epoch until a moment: itself, its phases, and each device's usage in both.

    `sums`: of the epoch, by device and phase.
    """
    key = run.key
    seconds = (until.monotonic_ns - epoch.begin.monotonic_ns) / SECOND
    metrics = dict(epoch.metrics)
    if epoch is timeline.open:
        # What the board shows may still be of the epoch before.
        logged = timeline.logged
        metrics |= {name: v for name, v in run.metrics.items() if not same(logged.get(name), v)}
    phases = timeline.phases_at(epoch, until)
    peaks = timeline.peaks_at(epoch, run.memory.peak)
    trained = phases.get(TRAINING)
    # Where training itself counts none, it may have a phase of another name.
    evaluated = sum(spent.steps for name, spent in phases.items() if name in EVALUATION)
    steps = max(0, until.step - epoch.begin.step - evaluated)
    yield LedgerRow("epoch", {
        "rank": key, "ordinal": epoch.ordinal, "epoch": epoch.epoch,
        "begun": epoch.begun_ns, "ended": epoch.ended_ns, "seconds": seconds,
        "steps": trained.steps if trained and trained.steps else steps,
        "trained": trained.seconds if trained and trained.steps else None,
        "wait": column_of(waited_between(epoch.begin.wait, until.wait)),
        "wait_of": sum(spent.seconds for spent in phases.values() if is_known(spent.wait)) or None,
        **peak_columns(peaks, ""),
        "metrics": numbers_json(metrics),
    })  # fmt: skip
    for place, (name, spent) in enumerate(phases.items()):
        if name:
            yield LedgerRow("phase", {
                "rank": key, "ordinal": epoch.ordinal, "phase": name, "place": place, "seconds": spent.seconds,
                "times": spent.times, "steps": spent.steps, "wait": column_of(spent.wait), **peak_columns(peaks, name),
                "spans": None if name == TRAINING else json.dumps(spent.spans),
            })  # fmt: skip
    for uuid, parts in sums.items():
        share = shares[uuid]
        yield row_of_usage(key, epoch.ordinal, WHOLE_EPOCH, share, sums=merged(parts), seconds=seconds)
        for name, spent in phases.items():
            if name:
                part = parts.get(name) or UsageSums()
                yield row_of_usage(key, epoch.ordinal, name, share, sums=part, seconds=spent.seconds)


def row_of_usage(
    key: str, ordinal: int, phase: str, share: DeviceUsage, *, sums: UsageSums, seconds: float,
    least: float = SHORTEST_ENERGY,
) -> LedgerRow:  # fmt: skip
    """The usage of a device in a phase of an epoch, which took so many seconds; `least`: for its energy to be known."""
    columns = sums.columns(seconds, whole_board=share.whole_board, least=least)
    return LedgerRow(
        "usage", {"rank": key, "ordinal": ordinal, "phase": phase, "uuid": share.uuid, **columns}
    )  # fmt: skip


def numbers_json(metrics: Mapping[str, float]) -> str:
    """Numbers by name as JSON; NaN and the infinities are words."""
    known = {name: float(v) if math.isfinite(v) else numbers.logged(v) for name, v in metrics.items()}
    return json.dumps(known)


def column_of(value: float) -> float | None:
    """A number as a column has it: None where it is not known."""
    return value if is_known(value) else None


def peak_columns(peaks: Mapping[str, Peak], phase: str) -> dict[str, Any]:
    """The framework's peak in a phase ('': of all together), as columns of its row."""
    peak = peaks.get(phase, Peak())
    return {"peak": column_of(peak.value), "peak_reached": int(peak.reached) if is_known(peak.value) else None}
