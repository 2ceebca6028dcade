"""The rows of a table of a run that are of no epoch: rows of steps, what lies between its epochs, and the whole."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.common.numbers import NAN
from gpumon.storage.ledger.records import EpochRow, LivePeak, PhaseRow, RankRow, Record
from gpumon.storage.ledger.schema import OUTSIDE_EPOCHS, STEP_ROWS, WHOLE_EPOCH, WHOLE_RUN

EPOCH, BETWEEN, STEPS, RUN = "epoch", "between", "steps", "run"
"""Parts of a run that have rows."""

Part = tuple[EpochRow, str, tuple[PhaseRow, ...]]
"""A part of a rank as if it were an epoch, its name, and its phases."""


def whole_parts(record: Record) -> Iterator[Part]:
    """Yield for each rank its rows of steps, the stretch outside its epochs, where that is known, and the whole.

    Without epochs the phases are those of the whole.
    """
    trained = {epoch.rank for epoch in record.epochs}
    outside: dict[str, list[PhaseRow]] = {}
    for row in record.outside:
        outside.setdefault(row.rank, []).append(row)
    for step in record.step_rows:
        yield (
            EpochRow(
                rank=step.rank,
                ordinal=STEP_ROWS - step.ordinal,
                epoch=step.first_step,
                begun=step.begun,
                ended=step.ended,
                seconds=step.seconds,
                steps=step.steps,
                wait=step.wait,
                metrics=step.metrics,
            ),
            STEPS,
            (),
        )
    for rank in record.ranks:
        rows = outside.get(rank.key, [])
        phases = tuple(row for row in rows if row.phase != WHOLE_EPOCH)
        for row in rows:
            if row.phase == WHOLE_EPOCH and rank.key in trained:
                yield _as_epoch(rank, OUTSIDE_EPOCHS)._replace(
                    begun=NAN, ended=NAN, seconds=row.seconds, steps=row.steps, wait=row.wait, metrics={}, peak=row.peak
                ), BETWEEN, phases  # fmt: skip
        yield _as_epoch(rank, WHOLE_RUN), RUN, () if rank.key in trained else phases


def _as_epoch(rank: RankRow, ordinal: int) -> EpochRow:
    return EpochRow(
        rank=rank.key,
        ordinal=ordinal,
        epoch=ordinal,
        begun=rank.started,
        ended=rank.ended,
        seconds=rank.seconds,
        steps=rank.steps,
        wait=rank.wait,
        metrics=rank.metrics,
        peak=LivePeak(rank.peak, reached=True),
    )
