"""Words for a list of processes that is empty, and keys of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from gpumon.analysis.gpu_state import is_held
from gpumon.model import units
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon_tui.renderables.gpu_numbers import numbers

Key = tuple[int, str]
"""A process has a row for each device it is on."""
_TOLD = (Availability.STALE, Availability.ASLEEP)
"""States of a GPU that does not answer now, and of which it is known who is on it: those of before, and nobody."""


def no_process(samples: Sequence[Sample], problem: str, until: str = "") -> str:
    """Return the text of a table without rows: that there is no process only if every GPU proves it.

    `until`: the time of the last samples, where no newer ones come; of after them nothing is known.
    """
    if not samples:
        return "no GPU can be read"
    silent = [sample for sample in samples if sample.state is not Availability.OK]
    if len(silent) == len(samples):
        return f"unknown: {silent[0].state.reason}"  # what to do about that stands below the header
    if silent:
        return f"unknown: {problem or silent[0].state.reason}"
    if until:
        return f"unknown since {until}"
    samples = [sample for sample in samples if not sample.device.is_divided]  # its instances tell
    for sample in samples:
        if PROCESSES in sample.device.missing:
            return f"unknown on GPU {sample.device.label}: {sample.device.missing[PROCESSES].reason}"
    held = [is_held(sample, (), False) for sample in samples]
    if True in held:
        return "no process listed, but memory is in use (perhaps by another container)"
    if None in held:
        return "no process listed; memory use unknown"
    return "no process holds GPU memory"


def are_told(samples: Sequence[Sample]) -> bool:
    """Whether it is known of each GPU which processes are on it."""
    told = [
        sample.state is Availability.OK and PROCESSES not in sample.device.missing
        for sample in samples
        if not sample.device.is_divided
    ]
    return bool(told) and all(told)


def doubts(samples: Sequence[Sample], age: float = 0.0) -> str:
    """Say of which GPUs the processes are not known, or are those of before; empty where they are all of now.

    `age` of the frame in seconds, where no newer one comes.
    """
    labels = {sample.device.uuid: sample.device.label for sample in samples}
    stale = [sample for sample in samples if sample.state is Availability.STALE]
    unknown = [
        sample.device.uuid for sample in samples
        if not sample.device.is_divided  # its instances tell
        and (PROCESSES in sample.device.missing or sample.state not in (Availability.OK, *_TOLD))
    ]  # fmt: skip
    parts = [f"of GPU {numbers(unknown, labels)} unknown"] if unknown else []
    if stale:
        told = numbers([sample.device.uuid for sample in stale], labels)
        ages = [sample.age + age for sample in stale if isfinite(sample.age + age)]
        parts.append(f"of GPU {told} stale" + (f" {units.duration(max(ages))}" if ages else ""))
    return f"those {', '.join(parts)}" if parts else ""


def key(process: Process) -> Key:
    """Return the key of a row, which stays the same when the table is sorted again."""
    return process.pid, process.uuid
