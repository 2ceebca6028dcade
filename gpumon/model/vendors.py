"""The table of GPU vendors, with their names, UUID prefixes and commands, and the meaning of bits and codes.

This module is separate from the sources and imports no other module of gpumon, because trainings import it.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Vendor(NamedTuple):
    """A vendor. A field is empty if the vendor has no such thing, or if gpumon does not use it."""

    name: str
    """Name of the vendor. The names of its cards begin with it."""
    whole: tuple[str, ...]
    """Prefixes of the UUIDs of whole GPUs."""
    parts: tuple[str, ...] = ()
    """Prefixes of the UUIDs of parts of a GPU, such as MIG instances."""
    visible: tuple[str, ...] = ()
    """Environment variables that list the devices a process may use. The first one that is set applies."""
    numbers: str = ""
    """The variable in `visible` in which a number is the driver's index of a device."""
    order: tuple[str, str] = ("", "")
    """The environment variable that sets how devices are numbered, and its value for the driver's order, which is by
    PCI bus."""
    runtime: str = ""
    """Name of the programming interface, such as `CUDA`."""
    listing: str = ""
    """Command that lists the UUIDs of GPUs."""
    reset: str = ""
    """Command that resets a GPU. In commands, the GPU (`{gpu}`) comes before the action, so that a truncated or partly
    pasted command affects no other GPU."""
    links: str = ""
    """Command that lists the links of a GPU."""
    link_ends: str = ""
    """Command that lists what is at the other end of each link of a GPU."""
    instances: str = ""
    """Command that lists the profiles for dividing a GPU."""
    undivide: str = ""
    """Command that turns a divided GPU back into a whole GPU."""
    looked_for: str = ""
    for_driver: str = ""
    for_container: str = ""
    """Advice for the case that no GPU was found: `for_driver` for a machine that may have a card, `for_container` for a
    container. `looked_for` describes what gpumon searched for."""
    clock_events: tuple[tuple[int, str, str], ...] = ()
    """Bits of `gpu.event_reasons`, each with its name and a short name for a column."""
    own_metrics: tuple[str, ...] = ()
    """Beginnings of the names of metrics that only GPUs of this vendor have."""
    recoveries: tuple[tuple[int, str, str, bool], ...] = ()
    """Values of `gpu.recovery_action`. Each has the action that the driver requires, advice for the user, and whether
    the GPU runs nothing until the action. The advice is a template for `gpumon.model.remedies.advice`."""


NVIDIA = Vendor(
    "NVIDIA",
    whole=("GPU-",),
    parts=("MIG-",),
    visible=("CUDA_VISIBLE_DEVICES",),
    numbers="CUDA_VISIBLE_DEVICES",
    order=("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    runtime="CUDA",
    listing="nvidia-smi -L",
    reset="sudo nvidia-smi -i {gpu} --gpu-reset",
    links="nvidia-smi nvlink -i {gpu} --status",
    link_ends="nvidia-smi nvlink -i {gpu} --pcibusid",
    instances="sudo nvidia-smi mig -i {gpu} -lgip",
    undivide="sudo nvidia-smi -i {gpu} -mig 0",
    looked_for="NVIDIA GPUs, through the driver's library libnvidia-ml.so.1",
    for_driver="with an NVIDIA GPU: install its driver, or load it with 'sudo modprobe nvidia'",
    for_container="in a container: pass the GPUs in, for example with 'docker run --gpus all'",
    clock_events=(  # nvml.h, nvmlClocksEventReason*
        (0x1, "idle", "idle"),
        (0x2, "application clocks", "app clocks"),
        (0x4, "power limit", "power limit"),
        (0x8, "hardware slowdown", "hw slowdown"),
        (0x10, "sync boost", "sync boost"),
        (0x20, "heat (driver)", "heat (sw)"),
        (0x40, "heat (hardware)", "heat (hw)"),
        (0x80, "power brake", "power brake"),
        (0x100, "display clock", "display"),
    ),
    own_metrics=(
        "gpu.nvlink_",
        "gpu.mig_",
        "gpu.xid",
        "gpu.rows_remapped_",
        "gpu.remapping_",
        "gpu.retirement_",
        "gpu.sm_",
        "gpu.tensor_",
        "gpu.fp",
        "gpu.dram_",
        "gpu.graphics_activity",
        "gpu.pcie_sent_rate",
        "gpu.pcie_received_rate",
        "gpu.jpeg_",
        "gpu.optical_flow_",
        "gpu.throttled_sync_boost",
        "gpu.recovery_action",
        "gpu.performance_state",
        "gpu.utilization_low",
        "gpu.idle_share",
    ),
    recoveries=(  # nvml.h, NVML_GPU_RECOVERY_ACTION_*; value 5 differs between driver branches 580 and 615
        (1, "a reset of the GPU", "{reset}", True),
        (2, "a restart of the machine", "{restart}", True),
        (
            3,
            "an end of traffic between GPUs",
            "end the processes that use this GPU ({uuid}) together with others, then check again",
            False,
        ),
        (4, "a reset of the GPU when it is free", "part of the GPU is disabled until a reset: {reset}", False),
    ),
)
AMD = Vendor(
    "AMD",
    whole=("GPU-", "AMD-"),
    parts=("XCP-",),
    visible=("ROCR_VISIBLE_DEVICES",),
    numbers="ROCR_VISIBLE_DEVICES",
    order=("", "KFD"),
    runtime="ROCm",
    listing="rocm-smi --showuniqueid",
    looked_for="AMD and Intel GPUs, in /sys/class/drm",
    clock_events=(  # groups of bits of the driver's mask, see gpumon/sources/drm/metrics_table.py
        (0x1, "power limit", "power limit"),
        (0x2, "current limit", "current"),
        (0x4, "heat (hardware)", "heat (hw)"),
        (0x8, "memory heat", "heat (mem)"),
        (0x10, "regulator heat", "heat (vr)"),
        (0x20, "power brake", "power brake"),
        (0x40, "reliability limit", "reliability"),
    ),
)
"""ROCm has no variable for the order of GPUs, which is always the one of KFD. `rocm_devices` reads the other variables
with which ROCm selects GPUs."""

INTEL = Vendor("Intel", whole=("INTEL-",), runtime="Level Zero")

VENDORS = (NVIDIA, AMD, INTEL)
SHORT_CLOCK_EVENTS = {word: short for vendor in VENDORS for _, word, short in vendor.clock_events}
"""Short names for narrow columns, by full name."""
WHOLE = tuple(dict.fromkeys(prefix for vendor in VENDORS for prefix in vendor.whole))
PARTS = tuple(dict.fromkeys(prefix for vendor in VENDORS for prefix in vendor.parts))
ADDRESS = "PCI-"
"""Prefix of an identifier that is an address on the PCI bus, for a framework that does not know the UUID of its GPU."""
IDENTIFIERS = (*WHOLE, *PARTS, ADDRESS)
"""All prefixes of UUIDs."""
_SHORT = 12
"""Number of characters of a UUID that are shown."""


def find_vendor(model: str, uuid: str = "") -> Vendor | None:
    """Return the vendor of a card by its model name, or else by its UUID; None if the vendor is not in the table."""
    by_name = next((vendor for vendor in VENDORS if model.startswith(f"{vendor.name} ")), None)
    return by_name or next((vendor for vendor in VENDORS if uuid.startswith(vendor.whole + vendor.parts)), None)


def is_part(uuid: str) -> bool:
    """Return whether a UUID belongs to a part of a GPU, such as a MIG instance."""
    return uuid.startswith(PARTS)


def gpu_label(uuid: str, number: int) -> str:
    """Return the label of a device, such as `GPU 0`, or `GPU 0 MIG-6770756d` for an instance. `number`: its index."""
    return f"GPU {number} {uuid[:_SHORT]}" if is_part(uuid) else f"GPU {number}"


def short_name(model: str) -> str:
    """Return the name of a model without its vendor: `H100 80GB HBM3`."""
    vendor = find_vendor(model)
    return model.removeprefix(f"{vendor.name} ") if vendor else model


def clock_events(vendor: Vendor, mask: int) -> tuple[str, ...]:
    """Return the names of the bits that are set in `mask`, a value of `gpu.event_reasons`.

    Bits without a name are combined into one hexadecimal number.
    """
    names = [name for bit, name, _ in vendor.clock_events if mask & bit]
    rest = mask & ~sum(bit for bit, _, _ in vendor.clock_events)
    return (*names, f"0x{rest:x}") if rest else tuple(names)


def recovery_text(vendor: Vendor | None, action: float) -> str:
    """Return the action that a value of `gpu.recovery_action` requires. `nothing` for 0; empty if not in the table."""
    if action == 0:
        return "nothing"
    return next((what for number, what, _, _ in vendor.recoveries if number == action), "") if vendor else ""


def without_prefix(uuid: str) -> str:
    """Return a UUID without its vendor's prefix."""
    prefix = next((prefix for prefix in IDENTIFIERS if uuid.startswith(prefix)), "")
    return uuid.removeprefix(prefix)


def visible_devices(env: Mapping[str, str]) -> str:
    """Return the list of visible devices in the environment of a process, unchanged; empty if there is none."""
    names = (name for vendor in VENDORS for name in vendor.visible)
    return next((env[name] for name in names if env.get(name)), "")
