"""Rules about hardware faults of a GPU, its memory and its links. A missing value is never a fault."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_state import GpuState
from gpumon.diagnosis.context import GpuContext, Rule
from gpumon.diagnosis.finding import Finding, Severity, severity_of
from gpumon.model import units
from gpumon.model.metrics import BY_NAME, Availability
from gpumon.model.remedies import (
    AFTER_LOSS,
    RESTART_MACHINE,
    advice,
    card,
    command,
    reset,
    sentence,
    without_reset,
)
from gpumon.model.vendors import Vendor, find_vendor

if TYPE_CHECKING:
    from gpumon.model.device import Device
    from gpumon.model.xids import Xid

SLOW_LINK, NVLINK_DOWN = OF_LINKS = ("slow_link", "nvlink_down")
"""Kinds of the findings about links."""
_SLOW = {
    "gpu.pcie_generation": "at generation {now:.0f} instead of {most:.0f}",
    "gpu.pcie_width": "with {now:.0f} of {most:.0f} lanes",
}
MAX_XID = 2.0**24
"""Values above this limit are not XID codes, which are at most a few hundred. Frames store integers up to this limit
exactly."""
_PENDING_REPAIRS = (BY_NAME["gpu.remapping_pending"], BY_NAME["gpu.retirement_pending"])


def recovery_required(gpu: GpuContext) -> Iterator[Finding]:
    """The driver requires an action, such as a reset, before the GPU works fully."""
    action = gpu.value("gpu.recovery_action")
    if gpu.is_current and BY_NAME["gpu.recovery_action"].warn <= action < inf:
        vendor = _vendor(gpu)
        recoveries = {row[0]: row for row in vendor.recoveries} if vendor else {}
        other = (0, f"recovery action {action:.0f}", "check 'dmesg' for the reason", False)
        _, required, remedy, is_down = recoveries.get(int(action), other)
        severity = Severity.CRITICAL if is_down else Severity.WARNING
        remedy = advice(remedy, gpu.device)
        evidence = {"recovery_action": action}
        yield Finding("recovery_required", severity, gpu.subject, f"the driver requires {required}", remedy, evidence)


def xid_error(gpu: GpuContext) -> Iterator[Finding]:
    """The driver has reported a hardware fault as an XID error."""
    if gpu.is_current and (fault := reported_fault(gpu)) is not None:
        severity, remedy = Severity[fault.severity.upper()], advice(fault.action, gpu.device)
        yield Finding("xid_error", severity, gpu.subject, fault.text, remedy, {"xid": float(fault.code)})


def reported_fault(gpu: GpuContext) -> Xid | None:
    """Return the hardware fault that the driver has reported as an XID error, or None."""
    code = gpu.value("gpu.xid")
    if not 0 < code < MAX_XID:
        return None
    from gpumon.model.xids import xid_of  # imported here because the table is large and needed only in rare cases

    return xid_of(int(code))


_UNREACHABLE = (Availability.LOST, Availability.NO_DRIVER)
"""Conditions in which no command reaches a GPU."""


def unavailable_remedy(device: Device, condition: Availability, fault: Xid | None, action: str = "") -> str:
    """Return sentences that say what to do about a GPU that cannot be read. Empty if there is no advice.

    `action`: advice for the condition. It is replaced for a GPU that must be reset, and has a default for a lost GPU.
    `fault`: XID error of the GPU. If its remedy is an urgent repair, only this remedy is returned. If its remedy is a
    repair that can wait, it is left out. Any other remedy is appended to the advice.
    """
    if condition is Availability.LOST:
        action = action or sentence(AFTER_LOSS)
    elif condition is Availability.RESET_REQUIRED:
        action = sentence(f"{reset(device)}; or {RESTART_MACHINE}")
    if fault is None:
        return action
    is_unreachable = condition in _UNREACHABLE
    if fault.is_repair and fault.severity != "critical" and (action or is_unreachable):
        return action
    if fault.is_repair:
        return advice(without_reset(fault.action) if is_unreachable else fault.action, device)
    return f"{action} {advice(fault.action, device)}".strip()


def uncorrected_errors(gpu: GpuContext) -> Iterator[Finding]:
    """ECC could not correct errors in the memory of the GPU."""
    metric = BY_NAME["gpu.ecc_uncorrected"]
    errors = gpu.value(metric.name)
    severity = severity_of(metric, errors)
    if gpu.is_current and severity is not Severity.INFO and errors < inf:
        action = (
            f"Check the results of runs on this GPU; {reset(gpu.device)}; if errors return, replace {card(gpu.device)}."
        )
        summary = f"{units.counted(int(errors), 'uncorrected memory error')} since the driver was loaded"
        yield Finding("uncorrected_errors", severity, gpu.subject, summary, action, {metric.key: errors})


def remapping_failed(gpu: GpuContext) -> Iterator[Finding]:
    """Faulty rows of the GPU's memory could not be remapped to spare rows."""
    metric = BY_NAME["gpu.remapping_failed"]
    failed = gpu.value(metric.name)
    severity = severity_of(metric, failed)
    if gpu.is_current and severity is not Severity.INFO:
        summary = "faulty memory rows could not be remapped to spare rows"
        yield Finding(
            "remapping_failed", severity, gpu.subject, summary, f"Replace {card(gpu.device)}.", {metric.key: failed}
        )


def memory_repair_pending(gpu: GpuContext) -> Iterator[Finding]:
    """Faulty memory of the GPU is in use until the next reset."""
    pending = [m for m in _PENDING_REPAIRS if severity_of(m, gpu.value(m.name)) is not Severity.INFO]
    if gpu.is_current and pending:
        evidence = {metric.key: gpu.value(metric.name) for metric in pending}
        summary = "faulty memory is in use until the GPU is reset"
        action = f"When the runs on this GPU have finished, {reset(gpu.device)}."
        yield Finding("memory_repair_pending", Severity.WARNING, gpu.subject, summary, action, evidence)


def nvlink_down(gpu: GpuContext) -> Iterator[Finding]:
    """The GPU has fewer active NVLink links than another GPU of the same model."""
    active, most = gpu.value("gpu.nvlink_active"), gpu.peer_links
    # Zero links are not reported, because a card without an NVLink bridge looks the same.
    if gpu.is_current and 0 < active < most:
        summary = f"{active:.0f} NVLink links are up, {most:.0f} on another GPU of this model"
        vendor = _vendor(gpu)
        link_command = command(gpu.device, vendor.links) if vendor and vendor.links else ""
        how = f" with '{link_command}'" if link_command else ""
        action = f"Check the links{how}, and the log of the fabric manager."
        evidence = {"nvlink_active": active, "most": most}
        yield Finding(NVLINK_DOWN, Severity.WARNING, gpu.subject, summary, action, evidence)


def slow_link(gpu: GpuContext) -> Iterator[Finding]:
    """The PCIe link of the GPU was slower than possible when it was last under load, and the GPU is still in use."""
    if gpu.is_current and gpu.status.state is not GpuState.FREE and (slow := gpu.slow_link):
        parts = [_SLOW[metric].format(now=now, most=most) for metric, now, most in slow]
        summary = f"under load, the PCIe link runs {' and '.join(parts)}"
        action = (
            f"Check the firmware settings; with the machine off, reseat {card(gpu.device)}, and check its "
            "slot and riser."
        )
        evidence = {"utilization": gpu.loaded.load} | {BY_NAME[metric].key: now for metric, now, _ in slow}
        yield Finding(SLOW_LINK, Severity.WARNING, gpu.subject, summary, action, evidence)


FAULT_RULES: tuple[Rule[GpuContext], ...] = (
    recovery_required, xid_error, remapping_failed, uncorrected_errors, memory_repair_pending, nvlink_down, slow_link
)  # fmt: skip
"""Rules about hardware faults, most urgent first."""


def _vendor(gpu: GpuContext) -> Vendor | None:
    return find_vendor(gpu.device.name, gpu.device.uuid)
