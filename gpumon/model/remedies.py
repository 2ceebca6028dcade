"""Commands that gpumon's messages advise people to run for a GPU.

A command names a GPU by its UUID, not by its index: indices change when a GPU is lost, and no other machine has a GPU
with this UUID.
"""

from __future__ import annotations

from gpumon.model.device import Device
from gpumon.model.vendors import find_vendor

STOP_DAEMON = "stop gpumon ('gpumon daemon stop')"
"""First step of a reset, because a driver does not reset a GPU that a program has open."""
RESTART_MACHINE = "restart the machine, which ends everything that runs on it"


def command(device: Device, template: str) -> str:
    """Return a vendor's command for a device; empty if the GPU has no name that the command accepts.

    `template`: the command, with `{gpu}` where the GPU belongs. For a MIG instance, this is the GPU that contains it.
    """
    uuid, vendor = device.parent or device.uuid, find_vendor(device.name, device.uuid)
    gpu = uuid if vendor and uuid.startswith(vendor.whole) else device.address
    return template.format(gpu=gpu) if gpu else ""


def reset(device: Device) -> str:
    """Return how to reset one GPU, and what that affects, as a clause."""
    vendor = find_vendor(device.name, device.uuid)
    with_command = command(device, vendor.reset) if vendor else ""
    how = f" with '{with_command}'" if with_command else ""
    instances = ", which removes its MIG instances" if device.is_instance or device.is_divided else ""
    return f"end all processes on it, {STOP_DAEMON}, then reset this GPU alone{how}{instances}"


def sentence(clause: str) -> str:
    """Return a clause as a sentence."""
    return f"{clause[:1].upper()}{clause[1:]}."
