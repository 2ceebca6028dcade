"""A file of history with accounts of some days of a lab, made in a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import Sample, Tick
from gpumon.model.process import Process
from tests.activity import keep
from tests.builders import process, sample, tick

HOUR, DAY = 3600, 86400
GIB = 2.0**30
STEP = 300
GPUS = 4
DOWN = range(2 * DAY, 3 * DAY)
"""Seconds in which no daemon ran."""


def _people(second: int) -> list[tuple[str, int, float]]:
    """Return user, GPU and kernel time of those who hold one.

    alice works nine of ten times, and on every other day; dave does nothing. Of bob and carol, who share a GPU, the
    driver does not tell who uses how much. The last GPU is free but for some hours of somebody in a container.
    """
    found = [("dave", 2, 0.0), ("bob", 1, NAN), ("carol", 1, NAN)]
    if second // DAY % 2 == 0:
        found.append(("alice", 0, 0.9 if second // STEP % 10 else 0.0))
    if second % DAY < 2 * HOUR:
        found.append(("", 3, 0.5))
    return found


def _ticks(begin: float, days: int, until: int) -> Iterator[Tick]:
    for second in range(0, days * DAY + until + 1, STEP):
        if second in DOWN:
            continue
        people = _people(second)
        held = {gpu for _, gpu, _ in people}
        use = {gpu: max(0.0 if share == 0 else 0.6 for _, on, share in people if on == gpu) for gpu in held}
        yield tick(
            1,
            [_of_view(sample(gpu, utilization=use.get(gpu, 0.0), memory_used=GIB if gpu in held else 0.0,
                             memory_total=80 * GIB, power=300.0)) for gpu in range(GPUS)],
            [_on(process(10 + at, gpu, user=user, sm_utilization=share))
             for at, (user, gpu, share) in enumerate(people)],
            time_ns=round((begin + second) * SECOND), monotonic_ns=(50 + second) * SECOND, interval_ns=STEP * SECOND,
        )  # fmt: skip


def uuid(gpu: int) -> str:
    """The UUID that a GPU of the view's fake feed has."""
    return f"GPU-{gpu:04}"


def _of_view(one: Sample) -> Sample:
    of = one.device
    return one._replace(device=Device(uuid(of.index), of.index, "NVIDIA H100 80GB HBM3", {}))


def _on(one: Process) -> Process:
    return one._replace(uuid=uuid(int(one.uuid.rpartition("-")[2])))


def accounts_until(path: Path, end: float, days: int = 9) -> Path:
    """Write the accounts of some days up to `end` (s since 1970), from a midnight of UTC on; return the path."""
    begin = (end // DAY - days) * DAY
    keep(path, _ticks(begin, days, int(end - begin) - days * DAY))
    return path
