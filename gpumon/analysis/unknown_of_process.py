"""Reasons why values of a process are not known, in words."""

from __future__ import annotations

from gpumon.common.numbers import is_known
from gpumon.model.process import Process


def unknown_of(process: Process) -> str:
    """Return why some values are missing, such as `the driver has no sample of its work`; empty where none is."""
    shares = (
        process.sm_utilization, process.memory_utilization, process.encoder_utilization, process.decoder_utilization,
    )  # fmt: skip
    reasons = {
        "its process cannot be seen from where gpumon samples, or has ended": not is_known(process.started),
        "the driver does not report its memory": not is_known(process.memory_used),
        "the driver has no sample of its work": not any(map(is_known, shares)),
        "its CPU use is known from the next look on": is_known(process.started)
        and not is_known(process.cpu_utilization),
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)
