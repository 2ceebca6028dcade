"""Advice about a GPU in gpumon's messages, with its commands.

A command names a GPU by its UUID instead of its index, because indices change when a GPU is lost. On another machine,
such a command has no effect, because no other machine has a GPU with this UUID.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.model.device import Device
from gpumon.model.metrics import ENERGY_COUNTER, NEEDS, why_missing
from gpumon.model.vendors import NVIDIA, VENDORS, find_vendor

_OTHER_NEEDS: Mapping[str, str] = {
    "gpu.fan": "fans of its own",
    "gpu.event_reasons": "a driver that reports the causes of throttling",
    "gpu.throttled_sw_power": "MI300 or newer",
    "gpu.throttled_hw_thermal": "MI300 or newer",
    "gpu.throttled_hw_power_brake": "MI300 or newer",
    "gpu.ecc_corrected": "a card with RAS counters",
    "gpu.ecc_uncorrected": "a card with RAS counters",
    "gpu.temperature_memory": "a sensor in the memory, as HBM has",
    ENERGY_COUNTER: "a card with an energy counter; the energy is the sum of the power since the daemon started",
}
"""Requirements as in `metrics.NEEDS`, for GPUs of other vendors than NVIDIA."""


def missing_reason(device: Device, metric: str) -> str:
    """Return why a device lacks a metric that is in `Device.missing`."""
    is_nvidia = find_vendor(device.name, device.uuid) in (NVIDIA, None)
    return why_missing(metric, device.missing[metric], NEEDS if is_nvidia else _OTHER_NEEDS)


def may_have(device: Device, metric: str) -> bool:
    """Return whether GPUs of the device's vendor may have a metric. Views do not list the others as missing."""
    vendor = find_vendor(device.name, device.uuid)
    return vendor is None or not any(
        metric.startswith(other.own_metrics) for other in VENDORS if other is not vendor and other.own_metrics
    )


STOP_DAEMON = "stop gpumon ('gpumon daemon stop')"
"""First step of a reset, because a driver does not reset a GPU that any program has open."""
RESTART_MACHINE = "restart the machine, which ends everything that runs on it"
AFTER_LOSS = f"check 'dmesg', then {RESTART_MACHINE}"
"""What to do about a GPU that the driver lost. Such a GPU cannot be reset, because the driver does not reach it."""


def command(device: Device, template: str) -> str:
    """Return a vendor's command for a device; empty if the GPU has no name that the command accepts.

    `template`: the command, with `{gpu}` in place of the GPU. For a MIG instance, the GPU that contains the instance is
    inserted.
    """
    uuid, vendor = device.parent or device.uuid, find_vendor(device.name, device.uuid)
    gpu = uuid if vendor and uuid.startswith(vendor.whole) else device.address
    return template.format(gpu=gpu) if gpu else ""


def reset(device: Device) -> str:
    """Return a clause that says how to reset one GPU and what the reset affects."""
    vendor = find_vendor(device.name, device.uuid)
    with_command = command(device, vendor.reset) if vendor else ""
    how = f" with '{with_command}'" if with_command else f" ({device.parent or device.uuid})"
    is_divided = vendor is NVIDIA and (device.is_instance or device.is_divided)
    instances = ", which removes its MIG instances" if is_divided else ""
    return f"end all processes on it, {STOP_DAEMON}, then reset this GPU alone{how}{instances}"


def card(device: Device) -> str:
    """Return text by which a person finds the card in the machine: its address on the PCI bus."""
    return f"the card at {device.address} on the PCI bus" if device.address else "the card"


def advice(template: str, device: Device) -> str:
    """Return advice about a GPU as a sentence with all placeholders replaced; empty if `template` is empty.

    `template`: as for `advice_clause`.
    """
    return sentence(advice_clause(template, device)) if template else ""


def advice_clause(template: str, device: Device) -> str:
    """Return advice about a GPU as a clause with all placeholders replaced; empty if `template` is empty.

    `template`: a clause from a table of advice. `{reset}` and `{restart}` stand for the instructions to reset the GPU
    and to restart the machine. `{other_end}` stands for a reset of the GPU at the other end of an NVLink connection.
    `{card}` and `{uuid}` stand for this GPU.
    """
    if not template:
        return ""
    vendor = find_vendor(device.name, device.uuid)
    link_ends = command(device, vendor.link_ends) if vendor else ""
    which = f", which '{link_ends}' names" if link_ends else ""
    return template.format(
        reset=reset(device),
        restart=RESTART_MACHINE,
        other_end=f"reset the GPU at the other end of the link as well{which}",
        card=card(device),
        uuid=device.parent or device.uuid,
    )


def without_reset(template: str) -> str:
    """Return the template with a restart of the machine in place of a reset. Used for a GPU that no command reaches."""
    repairs = ("{reset}", "{restart}", "{other_end}")
    others = [clause for clause in template.split("; ") if not any(repair in clause for repair in repairs)]
    return "; ".join(["{restart}", *others])


def sentence(clause: str) -> str:
    """Return a clause as a sentence."""
    return f"{clause[:1].upper()}{clause[1:]}."


def clause(sentence: str) -> str:
    """Return a sentence as a clause."""
    return f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"
