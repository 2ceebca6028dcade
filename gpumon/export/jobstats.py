"""Metrics with the names that Princeton's jobstats expects, so that `jobstats` and its dashboards work unchanged.

Names, units and labels are taken from https://github.com/plazonic/nvidia_gpu_prometheus_exporter. In it, GPM metrics
with `percent` in their name are ratios. `jobstats` finds the GPUs of a job by `jobid`, and distinguishes them by
`minor_number`.
"""

from __future__ import annotations

from gpumon.common.numbers import NAN
from gpumon.export.family import Family, gauge, label_text
from gpumon.export.snapshot import DialectRow, GpuFacts, Snapshot, UserNames, find_job, has_no_job, row_families

_PERCENT = 100.0
LABELS = ("minor_number", "ordinal", "uuid", "name", "GPU_I_ID", "jobid", "userid")

ROWS: tuple[DialectRow, ...] = (
    DialectRow("nvidia_gpu_memory_used_bytes", "gpu.memory_used", 1, "Memory used by the GPU device in bytes.",
               is_whole=True),
    DialectRow("nvidia_gpu_memory_total_bytes", "gpu.memory_total", 1, "Total memory of the GPU device in bytes.",
               is_whole=True),
    DialectRow("nvidia_gpu_duty_cycle", "gpu.utilization", _PERCENT,
               "Percent of time over the past sample period during which the GPU device was actively processing.",
               is_whole=True),
    DialectRow("nvidia_gpu_power_usage_milliwatts", "gpu.power", 1e3, "Power usage of the GPU device in milliwatts.",
               is_whole=True),
    DialectRow("nvidia_gpu_temperature_celsius", "gpu.temperature", 1, "Temperature of the GPU device in celsius.",
               is_whole=True),
    DialectRow("nvidia_gpu_fanspeed_percent", "gpu.fan", _PERCENT, "Fan speed of the GPU device as a percent.",
               is_whole=True),
    DialectRow("nvidia_gpu_graphics_util_percent", "gpu.graphics_activity", 1, "Graphics utilization, ratio."),
    DialectRow("nvidia_gpu_sm_util_percent", "gpu.sm_activity", 1, "SM utilization, ratio."),
    DialectRow("nvidia_gpu_sm_occupancy_percent", "gpu.sm_occupancy", 1, "SM occupancy, ratio."),
    DialectRow("nvidia_gpu_any_tensor_util_percent", "gpu.tensor_activity", 1, "Tensor utilization, ratio."),
    DialectRow("nvidia_gpu_dram_bw_util_percent", "gpu.dram_activity", 1, "DRAM bandwidth utilization, ratio."),
    DialectRow("nvidia_gpu_fp64_util_percent", "gpu.fp64_activity", 1, "FP64 utilization, ratio."),
    DialectRow("nvidia_gpu_fp32_util_percent", "gpu.fp32_activity", 1, "FP32 utilization, ratio."),
    DialectRow("nvidia_gpu_fp16_util_percent", "gpu.fp16_activity", 1, "FP16 utilization, ratio."),
    DialectRow("nvidia_gpu_pcie_tx_per_sec", "gpu.pcie_sent_rate", 1, "PCIe bytes sent per second."),
    DialectRow("nvidia_gpu_pcie_rx_per_sec", "gpu.pcie_received_rate", 1, "PCIe bytes received per second."),
)  # fmt: skip


def jobstats_families(snapshot: Snapshot, users: UserNames) -> list[Family]:
    """Return the families of a node, or none if no daemon is sampling. `users`: how users are named in labels."""
    if not snapshot.live:
        return []

    def labels(gpu: GpuFacts) -> tuple[str, ...]:
        return _labels(gpu, users)

    answering = [gpu for gpu in snapshot.gpus if gpu.answers]
    jobs = [(labels(gpu), find_job(gpu)) for gpu in answering]
    families = [
        gauge("nvidia_gpu_num_devices", "Number of GPU devices.", (),
              [((), float(snapshot.devices))] if answering else ()),
        *row_families(ROWS, snapshot.gpus, LABELS, labels),
        gauge("nvidia_gpu_jobId", "Number of the job that has the GPU; 0 for none.", LABELS,
              [(labels(gpu), _number(find_job(gpu).job, 0.0 if has_no_job(gpu) else NAN)) for gpu in answering]),
        gauge("nvidia_gpu_jobUid", "Number of the user whose job has the GPU.", LABELS,
              [(values, _number(job.uid, NAN)) for values, job in jobs if users is not UserNames.OFF]),
    ]  # fmt: skip
    return [family for family in families if family.series]


def _labels(gpu: GpuFacts, users: UserNames) -> tuple[str, ...]:
    device, job = gpu.sample.device, find_job(gpu)
    uid = "" if users is UserNames.OFF else job.uid or (UserNames.UID.label(job.user) if job.user else "")
    return (
        str(device.minor) if device.minor >= 0 else "", str(device.index) if device.index >= 0 else "", device.uuid,
        label_text(device.name), str(device.instance) if device.is_instance else "", job.job, uid,
    )  # fmt: skip


def _number(text: str, default: float) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 16 else default
