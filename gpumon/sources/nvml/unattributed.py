"""Memory in use that belongs to no process which the driver lists."""

from __future__ import annotations

from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.sources.nvml.answers import DeviceAnswers

METRIC = "gpu.memory_unattributed"
_SLACK = float(64 << 20)
"""Bytes by which the processes may hold more than is in use, because the two were read one after the other."""


def give_unattributed(answers: DeviceAnswers, held: float) -> None:
    """Fill in what is in use beyond `held`, the memory of all processes in bytes, or why that is not known.

    It is known only where the list is whole and the memory of each process is known. A driver that does not tell
    its own reservation counts that as used.
    """
    why = answers.missing.get(PROCESSES)
    used, reserved = (answers.values.get(name, NAN) for name in ("gpu.memory_used", "gpu.memory_reserved"))
    rest = used - held
    if why is not None:
        answers.lack(METRIC, why)
    elif not (is_known(rest) and is_known(reserved)):
        answers.lack(METRIC, Availability.NOT_SUPPORTED)
    elif rest < -_SLACK:  # shared memory, counted for each of its processes
        answers.lack(METRIC, Availability.UNRELIABLE)
    else:
        answers.values[METRIC] = max(0.0, rest)
        answers.missing.pop(METRIC, None)
