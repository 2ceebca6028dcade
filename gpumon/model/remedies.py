"""Commands for a GPU that people are advised to run.

A command names a GPU by its UUID, not by its index: indices change when a GPU is lost, and no other machine has a GPU
with this UUID.
"""

from __future__ import annotations

from gpumon.model.device import Device
from gpumon.model.vendors import find_vendor

STOP_DAEMON = "stop gpumon ('gpumon daemon stop')"
"""Before a reset: a driver does not reset a GPU that a program has open."""
RESTART_MACHINE = "restart the machine, which ends everything that runs on it"


def command(device: Device, template: str) -> str:
    """Return a vendor's command for a GPU, or for the GPU of a MIG instance; empty if it cannot be named."""
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
