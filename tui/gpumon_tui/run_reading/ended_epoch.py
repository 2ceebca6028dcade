"""An epoch that has ended, as the ledger of a run that goes on tells of it: for who needs no other row of that run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import RunRow

_LAST = 3
"""Epochs that are read: the one that goes on, and the last that ended of each rank."""


class EndedEpoch(NamedTuple):
    """The last values that a run logged in an epoch."""

    run: RunRow
    metrics: Mapping[str, float]


def ended_epoch(ledger: Ledger, run_id: str, number: int) -> EndedEpoch:
    """Return one of the last epochs of a run by its number. Raises GpumonError while its end is not written."""
    count = ledger.epoch_count(run_id)
    record = ledger.record(run_id, phases=False, ordinals=(max(0, count - _LAST), count))
    for epoch in aggregate.epoch_summaries(record):
        if epoch.epoch == number and is_known(epoch.ended):
            return EndedEpoch(record.run, epoch.metrics)
    raise GpumonError(f"the ledger has no end of epoch {number} yet")
