"""A GPU as one line of words, for the clipboard."""

from __future__ import annotations

from gpumon.analysis.gpu_status import GpuStatus
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon.model.device import REPLAY_PREFIX
from gpumon.model.frame import Run
from gpumon.model.vendors import short_name
from gpumon_tui.gpu_status import holder, of_now


def gpu_text(status: GpuStatus, run: Run | None, word: str) -> str:
    """Return number, model, UUID, utilization, memory, temperature, power, users, run or program, epoch and `word`.

    They are separated by tabs. An id that a log does not tell is none. Of a GPU whose driver does not answer no value
    passes for one of now.
    """
    device, sample = status.sample.device, of_now(status.sample)
    held = holder(sample, run, status.processes, len(status.runs))
    write_watts = GPU_BY_KEY["power"].write_without_unit
    watts = [write_watts(sample.value(name)) for name in ("gpu.power", "gpu.power_limit")]
    told = watts if is_known(sample.value("gpu.power_limit")) else watts[:1]
    uuid = units.MISSING if device.uuid.startswith(REPLAY_PREFIX) else device.uuid
    return "\t".join((
        device.label, short_name(device.name), uuid,
        GPU_BY_KEY["utilization"].write(sample.value("gpu.utilization"), is_narrow=True),
        units.of_total(sample.value("gpu.memory_used"), sample.value("gpu.memory_total")),
        GPU_BY_KEY["temperature"].write(sample.value("gpu.temperature")), f"{'/'.join(told)} W",
        ", ".join(held.users), held.name, held.epoch, word,
    ))  # fmt: skip
