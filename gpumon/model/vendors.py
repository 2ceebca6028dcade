"""Makers of GPUs: the one table of their words, outside of the sources that read them.

A training imports it, so it imports nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Vendor(NamedTuple):
    """A maker, as users and its driver name things. Empty where it has none, or gpumon reads none of it yet."""

    name: str
    """As the names of its cards begin."""
    whole: tuple[str, ...]
    """Beginnings of the identifiers of a whole GPU."""
    parts: tuple[str, ...] = ()
    """Beginnings of the identifiers of a part of one, which has no board of its own."""
    visible: tuple[str, ...] = ()
    """Environment variables that give a process its devices; the first that is set counts."""
    numbers: str = ""
    """The one of them whose numbers count as the driver does."""
    order: tuple[str, str] = ("", "")
    """The environment variable that says how they count, and its value where that is by bus, as the driver does."""
    runtime: str = ""
    """The programming interface."""
    listing: str = ""
    """The command that lists identifiers."""
    reset: str = ""
    """The command that resets a GPU. In commands `{gpu}` stands for the GPU, before what is done to it: one that is
    cut, wrapped or pasted in part acts on no other GPU."""
    links: str = ""
    """The command that lists the links of a GPU."""
    instances: str = ""
    """The command that lists the profiles by which a GPU can be divided."""
    undivide: str = ""
    """The command that ends the division of a GPU."""
    looked_for: str = ""
    to_do: tuple[str, ...] = ()
    """Where no GPU of it is found: by what it was looked for, and what its owner can do."""
    clock_events: tuple[tuple[int, str, str], ...] = ()
    """Bits of `gpu.event_reasons`, each with its words, and short ones for a column."""
    recoveries: tuple[tuple[int, str, str, bool], ...] = ()
    """Numbers of `gpu.recovery_action`: what the driver requires, what to do, and whether nothing runs until then.
    `{reset}` and `{restart}` stand for the clauses of `gpumon.model.remedies`."""


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
    instances="sudo nvidia-smi mig -i {gpu} -lgip",
    undivide="sudo nvidia-smi -i {gpu} -mig 0",
    looked_for="NVIDIA GPUs, through the driver's library libnvidia-ml.so.1",
    to_do=(
        "with an NVIDIA GPU: install its driver, or load it with 'sudo modprobe nvidia'",
        "in a container: pass the GPUs in, as with 'docker run --gpus all'",
    ),
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
    recoveries=(  # nvml.h, NVML_GPU_RECOVERY_ACTION_*; 5 is not the same in branches 580 and 615
        (1, "a reset of the GPU", "{reset}", True),
        (2, "a restart of the machine", "{restart}", True),
        (3, "an end of traffic between GPUs", "end the processes that use several GPUs, then look again", False),
        (4, "a reset of the GPU when it is free", "a part of it is off until it is reset: {reset}", False),
    ),
)
AMD = Vendor(
    "AMD",
    whole=("GPU-", "AMD-"),
    visible=("ROCR_VISIBLE_DEVICES",),
    runtime="ROCm",
    listing="rocm-smi --showuniqueid",
)
"""ROCR_VISIBLE_DEVICES may list identifiers: ROCm documentation, "GPU isolation techniques". Numbers in it, and in
HIP_VISIBLE_DEVICES, do not count as the driver does on some machines."""

VENDORS = (NVIDIA, AMD)
SHORT_CLOCK_EVENTS = {word: short for vendor in VENDORS for _, word, short in vendor.clock_events}
"""Short words for a narrow column, by those of every view."""
WHOLE = tuple(dict.fromkeys(prefix for vendor in VENDORS for prefix in vendor.whole))
PARTS = tuple(dict.fromkeys(prefix for vendor in VENDORS for prefix in vendor.parts))
IDENTIFIERS = WHOLE + PARTS
"""Beginnings of all identifiers of devices."""
_SHORT = 12
"""Characters of an identifier that tell it from others."""


def maker(model: str, uuid: str = "") -> Vendor | None:
    """The maker of a card: by the name of its model, else by its identifier; None for an unknown one."""
    named = next((vendor for vendor in VENDORS if model.startswith(f"{vendor.name} ")), None)
    return named or next((vendor for vendor in VENDORS if uuid.startswith(vendor.whole + vendor.parts)), None)


def is_part(uuid: str) -> bool:
    """Whether a UUID is that of a part of a GPU, such as a MIG instance."""
    return uuid.startswith(PARTS)


def numbered(uuid: str, number: int) -> str:
    """The device of which only UUID and number are known: `GPU 0`, or `GPU 0 MIG-6770756d` of an instance of it."""
    return f"GPU {number} {uuid[:_SHORT]}" if is_part(uuid) else f"GPU {number}"


def short_name(model: str) -> str:
    """The name of a model without its maker: `H100 80GB HBM3`."""
    vendor = maker(model)
    return model.removeprefix(f"{vendor.name} ") if vendor else model


def clock_events(vendor: Vendor, mask: int) -> tuple[str, ...]:
    """The bits of `gpu.event_reasons` in words; those that have no name as numbers."""
    found = [word for bit, word, _ in vendor.clock_events if mask & bit]
    rest = mask & ~sum(bit for bit, _, _ in vendor.clock_events)
    return (*found, f"0x{rest:x}") if rest else tuple(found)


def required(vendor: Vendor | None, action: float) -> str:
    """Return the words for a number of `gpu.recovery_action`: `nothing` for 0; empty where it has none."""
    if action == 0:
        return "nothing"
    return next((what for number, what, _, _ in vendor.recoveries if number == action), "") if vendor else ""


def bare(uuid: str) -> str:
    """An identifier without what it begins with."""
    prefix = next((prefix for prefix in IDENTIFIERS if uuid.startswith(prefix)), "")
    return uuid.removeprefix(prefix)


def visible_devices(env: Mapping[str, str]) -> str:
    """The devices that the environment gives a process, as it writes them; empty where it says nothing."""
    names = (name for vendor in VENDORS for name in vendor.visible)
    return next((env[name] for name in names if env.get(name)), "")
