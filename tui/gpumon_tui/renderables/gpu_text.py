"""A GPU as one line of words, for the clipboard."""

from __future__ import annotations

from gpumon.analysis.gpu_status import GpuStatus
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.device import REPLAY_PREFIX
from gpumon.model.frame import Run
from gpumon.model.metrics import BY_NAME
from gpumon.model.vendors import short_name
from gpumon_tui.gpu_status import holder, of_now


def gpu_text(status: GpuStatus, run: Run | None, word: str) -> str:
    """Return number, model, UUID, utilization, memory, temperature, power, users, run or program, epoch and `word`.

    They are separated by tabs. An id that a log does not tell is none. Of a GPU whose driver does not answer no value
    passes for one of now.
    """
    device, sample = status.sample.device, of_now(status.sample)
    held = holder(sample, run, status.processes, len(status.runs))
    watts = [units.rounded(sample.value(name)) for name in ("gpu.power", "gpu.power_limit")]
    told = watts if is_known(sample.value("gpu.power_limit")) else watts[:1]
    uuid = units.MISSING if device.uuid.startswith(REPLAY_PREFIX) else device.uuid
    return "\t".join((
        device.label, short_name(device.name), uuid, units.percent(sample.value("gpu.utilization")),
        units.of_total(sample.value("gpu.memory_used"), sample.value("gpu.memory_total")),
        units.number(sample.value("gpu.temperature"), BY_NAME["gpu.temperature"].unit), f"{'/'.join(told)} W",
        ", ".join(held.users), held.name, held.epoch, word,
    ))  # fmt: skip
