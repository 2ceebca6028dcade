"""Memory of the run in force on a device, as its framework reports and as the driver counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from gpumon.common.numbers import NAN
from gpumon.model.frame import Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX, PROCESSES
from gpumon.model.process import Process
from gpumon.tags.wire import NOT_KNOWN, Memory, device_mark

_PLACES = {field: GPU_INDEX[f"gpu.run_{field}"] for field in ("allocated", "reserved", "inactive_split")}
_USED = GPU_INDEX["gpu.run_used"]
_mark = lru_cache(maxsize=256)(device_mark)


def with_holdings(
    samples: Sequence[Sample], runs: Sequence[Run], told: Mapping[str, Sequence[Memory]], processes: Sequence[Process]
) -> list[Sample]:
    """`samples`, those with a run with what all its processes here hold; `told` is framework memory by key of the run.

    A sum of which one part is not known is not known.
    """
    if not runs:
        return list(samples)
    in_force = {run.key: run for run in runs}
    return [
        _filled(sample, runs, in_force[sample.run], told, processes) if sample.run in in_force else sample
        for sample in samples
    ]


def _filled(
    sample: Sample, runs: Sequence[Run], of: Run, told: Mapping[str, Sequence[Memory]], processes: Sequence[Process]
) -> Sample:
    uuid = sample.device.uuid
    # A user may give a run the id of another user's. A process that reports the run twice holds its memory once.
    here = {
        run.pid or run.key: run
        for run in runs
        if run.id == of.id and run.user == of.user and run.state is RunState.RUNNING and uuid in run.gpus
    }
    held = {pid: entry_for(uuid, run.gpus, told.get(run.key, ())) for pid, run in here.items()}
    values = list(sample.values)
    for field, place in _PLACES.items():
        values[place] = _sum(NAN if entry is None else _bytes(getattr(entry, field)) for entry in held.values())
    listed = {process.pid: process.memory_used for process in processes if process.uuid == uuid and process.pid in here}
    # The driver's list is seconds old at times, may fail, and does not show the processes of every container.
    # A process that grows holds more by now than the list says.
    hidden = PROCESSES in sample.device.missing or any(
        entry is not None and _holds(entry) and (pid not in listed or _bytes(entry.reserved) > listed[pid])
        for pid, entry in held.items()
    )
    values[_USED] = NAN if hidden else _sum(listed.values())
    return sample._replace(values=values)


def entry_for(uuid: str, devices: Sequence[str], told: Sequence[Memory]) -> Memory | None:
    """Return the report of a process on the device `uuid`, one of its `devices`; None if there is none.

    A framework that does not know UUIDs numbers its devices in the order in which the process sees them.
    """
    mark = _mark(uuid)
    for entry in told:
        if entry.device == mark:
            return entry
    unnamed = sorted(entry for entry in told if not entry.device)
    if len(unnamed) == len(told) == len(devices) and uuid in devices:
        return unnamed[list(devices).index(uuid)]
    return None


def _holds(entry: Memory) -> bool:
    return any(amount not in (0, NOT_KNOWN) for amount in (entry.allocated, entry.reserved))


def _bytes(count: int) -> float:
    return NAN if count == NOT_KNOWN else float(count)


def _sum(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) if found else NAN
