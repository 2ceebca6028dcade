"""Commands that people are advised to run on a GPU, each with the GPU it acts on.

A GPU is named by its UUID, not by its number: numbers change when a GPU is lost, and on another machine no GPU has
this UUID.
"""

from __future__ import annotations

from gpumon.model.device import Device
from gpumon.model.vendors import maker

STOP_DAEMON = "stop gpumon ('gpumon daemon stop')"
"""Before a reset: a driver resets no GPU that a program has open."""
RESTART_MACHINE = "restart the machine, which ends everything that runs on it"


def command(device: Device, template: str) -> str:
    """Return a vendor's command for one GPU, for that of a MIG instance; empty where nothing names the GPU for it."""
    uuid, vendor = device.parent or device.uuid, maker(device.name, device.uuid)
    gpu = uuid if vendor and uuid.startswith(vendor.whole) else device.address
    return template.format(gpu=gpu) if gpu else ""


def reset(device: Device) -> str:
    """Return how to reset one GPU and what that touches, as a clause."""
    vendor = maker(device.name, device.uuid)
    with_command = command(device, vendor.reset) if vendor else ""
    how = f"then '{with_command}' resets this GPU alone" if with_command else "then reset this GPU alone"
    instances = ", and removes its MIG instances" if device.is_instance or device.is_divided else ""
    return f"end all processes on it and {STOP_DAEMON}, {how}{instances}"


def sentence(clause: str) -> str:
    """Return a clause as a sentence."""
    return f"{clause[:1].upper()}{clause[1:]}."
