"""Rows of steps of a run without epochs, joined over ranks and devices."""

from __future__ import annotations

from gpumon.common.numbers import NAN, is_known
from gpumon.ledger.combine import by_stretch, highest, lowest, mean, over_devices_each, seen_by, seen_share
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.records import Record, StepRow
from gpumon.ledger.schema import STEP_ROWS, WHOLE_EPOCH


def step_summaries(record: Record) -> list[EpochSummary]:
    """The rows in their order; `epoch` of each is the number of steps that were made before."""
    groups: dict[int, list[StepRow]] = {}
    for row in record.step_rows:
        groups.setdefault(row.first_step, []).append(row)
    usage = by_stretch(record.outside_usage)
    told = len(record.ranks) >= record.run.world_size
    batch = sum(rank.facts.batch or NAN for rank in record.ranks) if told else NAN
    used = [
        [one for row in rows for one in usage.get((STEP_ROWS - row.ordinal, WHOLE_EPOCH), ()) if one.rank == row.rank]
        for rows in groups.values()
    ]
    found: list[EpochSummary] = []
    for (first, rows), held, values in zip(groups.items(), used, over_devices_each(used), strict=True):
        named: dict[str, float] = {}
        for row in rows:
            named = {**row.metrics, **named}  # the lowest rank's word holds
        ends = [row.ended for row in rows]
        found.append(
            EpochSummary(
                ordinal=STEP_ROWS - len(found),
                epoch=first,
                phase=WHOLE_EPOCH,
                begun=lowest([row.begun for row in rows]),
                ended=max(ends) if all(map(is_known, ends)) else NAN,
                seconds=highest([row.seconds for row in rows]),
                times=1,
                steps=max(row.steps for row in rows),
                wait=mean([row.wait for row in rows]),
                metrics=named,
                ranks=len(rows),
                utilization_from=seen_by(held),
                values=values,
                batch=batch,
                trained=highest([row.trained for row in rows]),
                wait_of=mean([row.wait_of for row in rows]),
                sampled_share=seen_share(held),
                is_open=not all(map(is_known, ends)),
            )
        )
    return sorted(found, key=lambda one: one.epoch)


def steps_text(row: EpochSummary) -> str:
    """The steps of a row for people: `11–20`."""
    last = row.epoch + (row.steps or 0)
    return f"{row.epoch + 1}–{last}" if last > row.epoch + 1 else str(last)
