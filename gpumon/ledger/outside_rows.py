"""Rows of a rank outside its epochs, for the ledger: evaluation, checkpoints and all else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from gpumon.common.numbers import NAN, is_known
from gpumon.ledger.device import DeviceUsage
from gpumon.ledger.epoch import Moment, PhaseTotals
from gpumon.ledger.epoch_rows import column_of, numbers_json, peak_columns, row_of_usage
from gpumon.ledger.framework_peak import Peak
from gpumon.ledger.schema import OUTSIDE_EPOCHS, STEP_ROWS, WHOLE_EPOCH
from gpumon.ledger.step_rows import joined
from gpumon.ledger.timeline import OUTSIDE, EpochTimeline
from gpumon.ledger.usage import UsageSums, merged
from gpumon.ledger.write import LedgerRow
from gpumon.model.run import PAUSED


def outside_rows(
    key: str, timeline: EpochTimeline, shares: Mapping[str, DeviceUsage], until: Moment
) -> Iterator[LedgerRow]:  # fmt: skip
    """Rows of what a rank did outside its epochs until a moment: by phase and all together, and each device's usage.

    None where boundaries were lost, or an older version kept the run's begin: what lies outside is unknown then.
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
