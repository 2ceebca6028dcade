"""Rows of an epoch for the ledger, open or over."""

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
from gpumon.storage.ledger.epoch import Epoch, Moment, Peak, PhaseTotals
from gpumon.storage.ledger.schema import OUTSIDE_EPOCHS, STEP_ROWS, WHOLE_EPOCH
from gpumon.storage.ledger.steps import joined
from gpumon.storage.ledger.timeline import OUTSIDE, EpochTimeline, same
from gpumon.storage.ledger.usage import SHORTEST_ENERGY, UsageSums, merged
from gpumon.storage.ledger.writer import LedgerRow


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
        "wait": column_of(wait_between(epoch.begin.wait, until.wait)),
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


def outside_rows(
    key: str, timeline: EpochTimeline, shares: Mapping[str, DeviceUsage], until: Moment
) -> Iterator[LedgerRow]:  # fmt: skip
    """Rows of what a rank did outside its epochs until a moment: by phase and all together, and each device's usage.

    None where boundaries were lost: what lies outside is unknown then.
    """
    found = timeline.outside_at(until)
    if found is None:
        if timeline.lost:
            yield LedgerRow("outside", {"rank": key, "phase": WHOLE_EPOCH, "seconds": None, "times": 0, "steps": 0})
        return
    phases = {name: part for name, part in found.items() if name != PAUSED}
    waits = [part for part in phases.values() if is_known(part.wait)]
    together = PhaseTotals(
        sum(part.seconds for part in phases.values()),
        1,
        sum(part.steps for part in phases.values()),
        sum(part.wait for part in waits) if waits else NAN,
    )
    peaks = _peaks(timeline)
    for place, (name, part) in enumerate([(WHOLE_EPOCH, together), *phases.items()]):
        yield LedgerRow("outside", {
            "rank": key, "phase": name, "place": max(0, place - 1), "seconds": part.seconds, "times": part.times,
            "steps": part.steps, "wait": column_of(part.wait),
            "wait_of": None if name else sum(part.seconds for part in waits) or None,
            "spans": json.dumps(part.spans) if name else None, **peak_columns(peaks, name),
        })  # fmt: skip
    for share in shares.values():
        parts = {name: share.outside[name] for name in share.outside if name != PAUSED}
        sums = merged(parts)
        # It completes the epochs: of what is in doubt at the boundaries there is as much in them.
        yield row_of_usage(key, OUTSIDE_EPOCHS, WHOLE_EPOCH, share, sums=sums, seconds=together.seconds, least=0.0)
        for name, part in phases.items():
            own = parts.get(name) or UsageSums()
            yield row_of_usage(key, OUTSIDE_EPOCHS, name, share, sums=own, seconds=part.seconds)


def rows_of_steps(
    key: str, timeline: EpochTimeline, shares: Mapping[str, DeviceUsage], until: Moment
) -> Iterator[LedgerRow]:  # fmt: skip
    """Rows of steps until a moment, of a rank without epochs that marks its steps; without marks there are none."""
    rows = timeline.rows
    for share in shares.values():
        share.join_rows(rows)
    if len(rows.rows) < 2:
        return
    groups = rows.shown(max(until.step, timeline.last.step))
    place = 0
    for group in groups:
        columns = joined(group).columns(until)
        if not columns["steps"]:
            continue  # behind the last step, or all in evaluation: the phases have it
        metrics = {name: value for row in group for name, value in row.metrics.items()}
        yield LedgerRow("step_row", {"rank": key, "ordinal": place, **columns, "metrics": numbers_json(metrics)})
        for share in shares.values():
            sums = merged({row.number: share.rows[row.number] for row in group if row.number in share.rows})
            yield row_of_usage(key, STEP_ROWS - place, WHOLE_EPOCH, share, sums=sums, seconds=columns["seconds"])
        place += 1


def _peaks(timeline: EpochTimeline) -> dict[str, Peak]:
    """The framework's peaks; not where its counter has not been read since."""
    pending = {phase for ordinal, phase in timeline.peak.since if ordinal == OUTSIDE}
    return {
        phase: peak
        for phase, peak in timeline.outside_peaks.items()
        if phase not in pending and not (pending and not phase)
    }
