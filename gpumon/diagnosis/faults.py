"""Rules about faults of a GPU, of its memory and of its links, which somebody must act on. What is unknown is none."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_state import GpuState
from gpumon.diagnosis.context import GpuContext, Rule
from gpumon.diagnosis.finding import Finding, Severity, severity_of
from gpumon.model import units
from gpumon.model.metrics import BY_NAME
from gpumon.model.remedies import RESTART_MACHINE, command, reset, sentence
from gpumon.model.vendors import Vendor, maker

if TYPE_CHECKING:
    from gpumon.model.xids import Xid

SLOW_LINK, NVLINK_DOWN = OF_LINKS = ("slow_link", "nvlink_down")
"""Kinds of the findings about a link."""
_SLOW = {
    "gpu.pcie_generation": "generation {now:.0f} where {most:.0f} is possible",
    "gpu.pcie_width": "{now:.0f} of {most:.0f} lanes",
}
_NO_CODE = 2.0**24
"""Beyond what a frame keeps exactly; drivers count in hundreds."""
_WAITING = (BY_NAME["gpu.remapping_pending"], BY_NAME["gpu.retirement_pending"])


def recovery_required(gpu: GpuContext) -> Iterator[Finding]:
    """The driver says that it does not work fully until something is done."""
    action = gpu.value("gpu.recovery_action")
    if gpu.is_current and BY_NAME["gpu.recovery_action"].warn <= action < inf:
        vendor = _vendor(gpu)
        known = {row[0]: row for row in vendor.recoveries} if vendor else {}
        other = (0, f"recovery action {action:.0f}", "see the log of the kernel", False)
        _, what, do, is_down = known.get(int(action), other)
        severity = Severity.CRITICAL if is_down else Severity.WARNING
        do = sentence(do.format(reset=reset(gpu.device), restart=RESTART_MACHINE))
        evidence = {"recovery_action": action}
        yield Finding("recovery_required", severity, gpu.subject, f"the driver requires {what}", do, evidence)


def xid_error(gpu: GpuContext) -> Iterator[Finding]:
    """The driver has reported a fault of the card."""
    if gpu.is_current and (fault := reported_fault(gpu)) is not None:
        severity = Severity[fault.severity.upper()]
        yield Finding("xid_error", severity, gpu.subject, fault.text, fault.action, {"xid": float(fault.code)})


def reported_fault(gpu: GpuContext) -> Xid | None:
    """Return the fault of the card that the driver has reported by an XID error; None without one."""
    code = gpu.value("gpu.xid")
    if not 0 < code < _NO_CODE:
        return None
    from gpumon.model.xids import xid_of  # a table that few need

    return xid_of(int(code))


def uncorrected_errors(gpu: GpuContext) -> Iterator[Finding]:
    """Its memory gave wrong data."""
    metric = BY_NAME["gpu.ecc_uncorrected"]
    errors = gpu.value(metric.name)
    severity = severity_of(metric, errors)
    if gpu.is_current and severity is not Severity.INFO and errors < inf:
        what = units.counted(int(errors), "uncorrected memory error")
        action = f"Check the results of its runs; {reset(gpu.device)}; if errors return, replace the card."
        summary = f"{what} since the driver was loaded"
        yield Finding("uncorrected_errors", severity, gpu.subject, summary, action, {metric.key: errors})


def remapping_failed(gpu: GpuContext) -> Iterator[Finding]:
    """It has no good memory left in place of bad memory."""
    metric = BY_NAME["gpu.remapping_failed"]
    failed = gpu.value(metric.name)
    severity = severity_of(metric, failed)
    if gpu.is_current and severity is not Severity.INFO:
        summary = "faulty rows of its memory could not be replaced"
        yield Finding("remapping_failed", severity, gpu.subject, summary, "Replace the card.", {metric.key: failed})


def memory_repair_pending(gpu: GpuContext) -> Iterator[Finding]:
    """Faulty memory stays in use until the next reset."""
    waiting = [metric for metric in _WAITING if severity_of(metric, gpu.value(metric.name)) is not Severity.INFO]
    if gpu.is_current and waiting:
        evidence = {metric.key: gpu.value(metric.name) for metric in waiting}
        summary, action = "faulty memory is in use until the GPU is reset", f"When it is free, {reset(gpu.device)}."
        yield Finding("memory_repair_pending", Severity.WARNING, gpu.subject, summary, action, evidence)


def nvlink_down(gpu: GpuContext) -> Iterator[Finding]:
    """Some of its links are up, but not as many as another GPU of its model has."""
    active, most = gpu.value("gpu.nvlink_active"), gpu.peer_links
    # None at all is no fault of a card without a bridge, which nobody can tell from one whose links are all down.
    if gpu.is_current and 0 < active < most:
        summary = f"{active:.0f} NVLink links are up, {most:.0f} on another GPU of this model"
        vendor = _vendor(gpu)
        with_command = command(gpu.device, vendor.links) if vendor and vendor.links else ""
        look = f" with '{with_command}'" if with_command else ""
        action = f"Check the links{look}, and the log of the fabric manager."
        evidence = {"nvlink_active": active, "most": most}
        yield Finding(NVLINK_DOWN, Severity.WARNING, gpu.subject, summary, action, evidence)


def slow_link(gpu: GpuContext) -> Iterator[Finding]:
    """Its PCIe link was slower than it could be when it was last loaded, and it is still held: a pause ends nothing."""
    if gpu.is_current and gpu.status.state is not GpuState.FREE and (slow := gpu.slow_link):
        parts = [_SLOW[metric].format(now=now, most=most) for metric, now, most in slow]
        summary = f"under load its PCIe link has {' and '.join(parts)}"
        place = f" at {gpu.device.address} on the PCI bus" if gpu.device.address else ""
        action = (
            f"Check the settings of the firmware; with the machine off, reseat the card{place}, and check its slot and "
            "riser."
        )
        evidence = {"utilization": gpu.loaded.load} | {BY_NAME[metric].key: now for metric, now, _ in slow}
        yield Finding(SLOW_LINK, Severity.WARNING, gpu.subject, summary, action, evidence)


FAULT_RULES: tuple[Rule[GpuContext], ...] = (
    recovery_required, xid_error, remapping_failed, uncorrected_errors, memory_repair_pending, nvlink_down, slow_link
)  # fmt: skip
"""The most urgent first."""


def _vendor(gpu: GpuContext) -> Vendor | None:
    return maker(gpu.device.name, gpu.device.uuid)
