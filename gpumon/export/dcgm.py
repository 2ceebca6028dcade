"""Metrics with the names of NVIDIA's dcgm-exporter up to 4.8, so that dashboards made for it work unchanged.

Names, units and labels are taken from its `etc/default-counters.csv` and from rows that sites often add to it
(https://github.com/NVIDIA/dcgm-exporter). Field 203 is a percentage. (Version 4.9 made it a ratio.) In
prometheus-client, a family without `_total` cannot be a counter. So counters are written without a type, which works in
every query.

vGPU licenses, profiling of GPUs before Hopper, and health checks are not included, because gpumon does not read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpumon.common.numbers import is_known
from gpumon.export.family import Family, gauge, label_text
from gpumon.export.snapshot import DialectRow, GpuFacts, Labels, Snapshot, UserNames, find_job, row_families
from gpumon.model.device import Device
from gpumon.model.process import pod_parts
from gpumon.model.vendors import NVIDIA, find_vendor

_MEBI = 2.0**-20
_PERCENT = 100.0
XID = "gpu.xid"

ROWS: tuple[DialectRow, ...] = (
    DialectRow("DCGM_FI_DEV_SM_CLOCK", "gpu.clock_sm", 1e-6, "SM clock frequency (in MHz).", is_whole=True),
    DialectRow("DCGM_FI_DEV_MEM_CLOCK", "gpu.clock_memory", 1e-6, "Memory clock frequency (in MHz).", is_whole=True),
    DialectRow("DCGM_FI_DEV_MEMORY_TEMP", "gpu.temperature_memory", 1, "Memory temperature (in C).", is_whole=True),
    DialectRow("DCGM_FI_DEV_GPU_TEMP", "gpu.temperature", 1, "GPU temperature (in C).", is_whole=True),
    DialectRow("DCGM_FI_DEV_POWER_USAGE", "gpu.power", 1, "Power draw (in W)."),
    DialectRow("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "gpu.energy", 1e3,
               "Total energy consumption since boot (in mJ).", is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "gpu.pcie_replays", 1, "Total number of PCIe retries.",
               is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_GPU_UTIL", "gpu.utilization", _PERCENT, "GPU utilization (in %).", is_whole=True),
    DialectRow("DCGM_FI_DEV_MEM_COPY_UTIL", "gpu.memory_utilization", _PERCENT, "Memory utilization (in %).",
               is_whole=True),
    DialectRow("DCGM_FI_DEV_ENC_UTIL", "gpu.encoder_utilization", _PERCENT, "Encoder utilization (in %).",
               is_whole=True),
    DialectRow("DCGM_FI_DEV_DEC_UTIL", "gpu.decoder_utilization", _PERCENT, "Decoder utilization (in %).",
               is_whole=True),
    DialectRow("DCGM_FI_DEV_FB_FREE", "gpu.memory_total - gpu.memory_used - gpu.memory_reserved", _MEBI,
               "Framebuffer memory free (in MiB).", is_whole=True, optional=("gpu.memory_reserved",)),
    DialectRow("DCGM_FI_DEV_FB_USED", "gpu.memory_used", _MEBI, "Framebuffer memory used (in MiB).", is_whole=True),
    DialectRow("DCGM_FI_DEV_FB_RESERVED", "gpu.memory_reserved", _MEBI, "Framebuffer memory reserved (in MiB).",
               is_whole=True),
    DialectRow("DCGM_FI_DEV_FB_TOTAL", "gpu.memory_total", _MEBI, "Total framebuffer memory (in MiB).", is_whole=True),
    DialectRow("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gpu.nvlink_sent_rate + gpu.nvlink_received_rate", 1 / 1024e3,
               "Current NVLink bandwidth over all lanes. This is a rate, in spite of the name.", is_whole=True),
    DialectRow("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "gpu.rows_remapped_uncorrected", 1,
               "Number of remapped rows for uncorrectable errors.", is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "gpu.rows_remapped_corrected", 1,
               "Number of remapped rows for correctable errors.", is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gpu.remapping_failed", 1, "Whether remapping of rows has failed.",
               is_whole=True),
    DialectRow("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "gpu.ecc_corrected", 1, "Single-bit volatile ECC errors.",
               is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "gpu.ecc_uncorrected", 1, "Double-bit volatile ECC errors.",
               is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "gpu.ecc_corrected_lifetime", 1, "Single-bit persistent ECC errors.",
               is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "gpu.ecc_uncorrected_lifetime", 1, "Double-bit persistent ECC errors.",
               is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_POWER_VIOLATION", "gpu.throttled_sw_power", 1e9,
               "Throttling duration due to power constraints (in ns).", is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "gpu.throttled_sync_boost", 1e9,
               "Throttling duration due to sync-boost constraints (in ns).", is_counter=True, is_whole=True),
    DialectRow("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gpu.event_reasons", 1, "Reasons for the current clocks, as bits.",
               is_whole=True),
    DialectRow("DCGM_FI_DEV_FAN_SPEED", "gpu.fan", _PERCENT, "Fan speed (in %).", is_whole=True),
    DialectRow("DCGM_FI_DEV_PSTATE", "gpu.performance_state", 1, "Performance state (0 is the fastest).",
               is_whole=True),
    DialectRow("DCGM_FI_DEV_PCIE_LINK_GEN", "gpu.pcie_generation", 1, "Current PCIe generation.", is_whole=True),
    DialectRow("DCGM_FI_DEV_PCIE_LINK_WIDTH", "gpu.pcie_width", 1, "Current PCIe lanes.", is_whole=True),
    DialectRow("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu.graphics_activity", 1,
               "Ratio of time the graphics engine is active."),
    DialectRow("DCGM_FI_PROF_SM_ACTIVE", "gpu.sm_activity", 1,
               "The ratio of cycles an SM has at least 1 warp assigned."),
    DialectRow("DCGM_FI_PROF_SM_OCCUPANCY", "gpu.sm_occupancy", 1,
               "The ratio of number of warps resident on an SM."),
    DialectRow("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gpu.tensor_activity", 1,
               "Ratio of cycles the tensor (HMMA) pipe is active."),
    DialectRow("DCGM_FI_PROF_DRAM_ACTIVE", "gpu.dram_activity", 1,
               "Ratio of cycles the device memory interface is active sending or receiving data."),
    DialectRow("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "gpu.fp64_activity", 1, "Ratio of cycles the fp64 pipes are active."),
    DialectRow("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gpu.fp32_activity", 1, "Ratio of cycles the fp32 pipes are active."),
    DialectRow("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gpu.fp16_activity", 1, "Ratio of cycles the fp16 pipes are active."),
    DialectRow("DCGM_FI_PROF_PCIE_TX_BYTES", "gpu.pcie_sent_rate", 1, "Rate of data transmitted over PCIe (in B/s).",
               is_whole=True),
    DialectRow("DCGM_FI_PROF_PCIE_RX_BYTES", "gpu.pcie_received_rate", 1, "Rate of data received over PCIe (in B/s).",
               is_whole=True),
    DialectRow("DCGM_FI_PROF_NVLINK_TX_BYTES", "gpu.nvlink_sent_rate", 1,
               "Rate of data transmitted over NVLink (in B/s).", is_whole=True),
    DialectRow("DCGM_FI_PROF_NVLINK_RX_BYTES", "gpu.nvlink_received_rate", 1,
               "Rate of data received over NVLink (in B/s).", is_whole=True),
)  # fmt: skip
HOST_LABEL = "Hostname"
"""Label of the host name in dcgm-exporter up to 4.8.2. Later versions write it in lower case."""
_GPU_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID")
_OTHER_LABELS = ("DCGM_FI_DRIVER_VERSION", "hpc_job", "pod", "namespace")
RESERVED_LABELS = frozenset((*_GPU_LABELS, *_OTHER_LABELS, "job", "instance"))
"""Names that the label with the host name must not have. Prometheus itself adds `job` and `instance` to every
series."""
_PROFILE = re.compile(r"\b\d+(?:c\.\d+)?g\.\d+gb\S*")


def dcgm_families(
    snapshot: Snapshot, host_label: str = HOST_LABEL, hostname: str = "", users: UserNames = UserNames.NAME
) -> list[Family]:
    """Return the families of a node, or none if no daemon is sampling.

    `host_label`: name of the label with the host name; empty to omit this label. `hostname`: value of this label.
    `users`: how users are named in labels.
    """
    if not snapshot.live:
        return []
    names = (*_GPU_LABELS, *((host_label,) if host_label else ()), *_OTHER_LABELS)
    host = (label_text(hostname),) if host_label else ()
    driver = label_text(snapshot.driver.version)

    def labels(gpu: GpuFacts) -> tuple[str, ...]:
        return (*_identity(gpu), *host, driver, find_job(gpu).job, *_pod(gpu, users))

    families = [*row_families(ROWS, snapshot.gpus, names, labels), *_xids(snapshot, names, labels)]
    return [family for family in families if family.series]


def _identity(gpu: GpuFacts) -> tuple[str, ...]:
    """Return the labels that identify a GPU.

    A MIG instance has the labels of its GPU, and also the profile and number of the instance.
    """
    device = gpu.sample.device
    number = str(device.index) if device.index >= 0 else ""
    profile = _PROFILE.search(device.name) if device.is_instance else None
    return (
        number, device.parent or device.uuid, label_text(device.address), _device_file(device, number),
        label_text(device.name), profile[0] if profile else "",
        str(device.instance) if device.is_instance else "",
    )  # fmt: skip


def _device_file(device: Device, number: str) -> str:
    """Return the name of a GPU's device file in /dev, as NVIDIA names it; empty for other vendors."""
    is_nvidia = find_vendor(device.name, device.uuid) in (NVIDIA, None)
    return f"nvidia{number}" if number and is_nvidia else ""


def _pod(gpu: GpuFacts, users: UserNames) -> tuple[str, str]:
    """Return the name and namespace of the pod whose processes are on a GPU.

    Both are empty if there are no pods or several.
    """
    pods_and_users = {(pod_parts(process.pod)[1], process.user) for process in gpu.processes or ()}
    pods = {pod for pod, _ in pods_and_users if pod}
    if len(pods) != 1:
        return "", ""
    namespace, _, name = pods.pop().partition("/")
    for _, user in sorted(pods_and_users):
        namespace, name = users.redact(namespace, user), users.redact(name, user)
    return name, namespace


def _xids(snapshot: Snapshot, names: Sequence[str], labels: Labels) -> Iterator[Family]:
    """Yield a metric family with the code of each GPU's last XID error.

    The code is 0 if gpumon reads the XID errors of the GPU but none has occurred since counting started.
    """
    if snapshot.totals is None:
        return
    last: dict[str, tuple[float, int]] = {}
    for (uuid, code), count in snapshot.totals.xids.items():
        if is_known(count.last):
            last[uuid] = max(last.get(uuid, (0.0, 0)), (count.last, code))
    gpus = [gpu for gpu in snapshot.gpus if gpu.answers and not gpu.sample.device.is_instance]
    watched = [gpu for gpu in gpus if gpu.uuid in last or XID not in gpu.sample.device.missing]
    series = [(labels(gpu), float(last.get(gpu.uuid, (0.0, 0))[1])) for gpu in watched]
    yield gauge("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", names, series)
