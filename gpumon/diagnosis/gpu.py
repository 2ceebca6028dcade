"""Rules about the current state of a GPU, and the facts that no rule could judge because data is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpumon.analysis import thresholds
from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.throttling import THERMAL
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import GpuContext, Rule
from gpumon.diagnosis.faults import FAULT_RULES, reported_fault, unavailable_remedy
from gpumon.diagnosis.finding import Finding, Severity, severity_of
from gpumon.model import units
from gpumon.model.frame import Sample
from gpumon.model.metrics import BY_NAME, GPU_INDEX, PROCESSES, Availability, Unit, title_within
from gpumon.model.remedies import RESTART_MACHINE, command, reset
from gpumon.model.vendors import find_vendor

_JUDGED_FACTS = (
    ("temperature", ("gpu.temperature", "gpu.temperature_memory")),
    ("throttling", ("gpu.throttled_hw_thermal", "gpu.throttled_sw_thermal")),
    ("memory limit", ("gpu.memory_used", "gpu.memory_total")),
)
"""Facts that rules judge, each with its name for users and the metrics that the rules read. One of the metrics is
sufficient, except for the facts in `_ALL_NEEDED`."""
_ALL_NEEDED = ("memory limit",)
GPUS = "GPUs"
"""Result of `not_judged` if there is no GPU."""
NOTHING = "Nothing needs attention."


def nothing_found(unknown: Sequence[str]) -> str:
    """Return the sentence to show if there are no findings. `unknown`: facts that no rule could judge."""
    return f"No findings; not available here: {', '.join(unknown)}." if unknown else NOTHING


def not_judged(samples: Sequence[Sample], *, tells_processes: bool) -> list[str]:
    """Return the facts that no rule could judge because no GPU reports them, such as `temperature`.

    GPUs that do not answer are ignored, because each of them has its own finding. `tells_processes`: whether the source
    lists processes and runs.
    """
    if not samples:
        return [GPUS]
    answering = [sample for sample in samples if sample.state is Availability.OK]
    if not answering:
        return []
    unknown = []
    for title, metrics in _JUDGED_FACTS:
        enough = all if title in _ALL_NEEDED else any
        if not any(enough(name not in sample.device.missing for name in metrics) for sample in answering):
            unknown.append(title)
    return unknown if tells_processes else [*unknown, "processes", "runs"]


_VITAL = ("gpu.utilization", "gpu.memory_used", "gpu.power", "gpu.temperature", "gpu.clock_sm")
"""A working GPU reports at least one of these metrics."""
_MAX_TITLES = 3
"""Maximum number of missing metrics that a finding lists."""
_UNLISTED = "a process that the driver does not list"
HOT = (BY_NAME["gpu.temperature"], BY_NAME["gpu.temperature_memory"])


def lost(gpu: GpuContext) -> Iterator[Finding]:
    """The driver lost the GPU. The GPU's MIG instances get no finding of their own."""
    sample = gpu.status.sample
    if sample.state is Availability.LOST and not gpu.is_lost_with_gpu:
        is_part = sample.device.is_instance
        finding = _unavailable(gpu, _create_instance(gpu) if is_part else "")
        if gpu.is_replaced:
            summary = f"{finding.summary}: {sample.device.uuid}; another GPU now has its index"
            finding = finding._replace(summary=summary)
        yield finding


def unavailable(gpu: GpuContext) -> Iterator[Finding]:
    """The driver cannot read the GPU, or has not answered for so long that load on the machine cannot be the cause."""
    sample = gpu.status.sample
    if sample.state is Availability.STALE:
        if not _seconds_unanswered(sample) < thresholds.SILENT or reported_fault(gpu) is not None:
            yield _unavailable(gpu, f"Check 'dmesg' for driver errors; if the GPU stays silent, {RESTART_MACHINE}.")
    elif sample.state not in (Availability.OK, Availability.ASLEEP, Availability.LOST):
        yield _unavailable(gpu, "")


def partly_unavailable(gpu: GpuContext) -> Iterator[Finding]:
    """The driver returns some values; for others, it returns the error that the GPU is lost or must be reset."""
    condition = gpu.status.sample.condition
    if gpu.is_current and condition is not Availability.OK:
        names = [name for name, why in gpu.device.missing.items() if why is condition]
        titles = [title_within(name) for name in sorted(names, key=lambda name: GPU_INDEX.get(name, len(GPU_INDEX)))]
        more = f" and {len(titles) - _MAX_TITLES} more" if len(titles) > _MAX_TITLES else ""
        summary = f"{condition.reason} (the driver's answer for {', '.join(titles[:_MAX_TITLES])}{more})"
        action = unavailable_remedy(gpu.device, condition, reported_fault(gpu))
        yield Finding("unavailable", Severity.CRITICAL, gpu.subject, summary, action)


def answers_with_errors(gpu: GpuContext) -> Iterator[Finding]:
    """The driver returns errors instead of values for the GPU."""
    sample = gpu.status.sample
    if (
        gpu.status.state is not GpuState.UNKNOWN
        or not gpu.is_current
        or any(is_known(gpu.value(name)) for name in _VITAL)
    ):
        return
    if any(sample.device.missing.get(name) is Availability.FAILED for name in _VITAL):
        summary = "the driver returns errors for this GPU: its state is unknown"
        action = (
            f"Check 'dmesg' for driver errors. If the GPU does not recover: {reset(gpu.device)}. "
            f"Otherwise {RESTART_MACHINE}."
        )
        yield Finding("unavailable", Severity.CRITICAL, gpu.subject, summary, action)


def hot(gpu: GpuContext) -> Iterator[Finding]:
    """The GPU or its memory is near the temperature at which the driver lowers the clocks."""
    if not gpu.is_current:
        return
    for metric in HOT:
        value = gpu.value(metric.name)
        severity = severity_of(metric, value)
        if severity is not Severity.INFO:
            summary = f"{metric.title.lower()} is {units.metric(value, metric)}"
            yield Finding(
                "hot", severity, gpu.subject, summary, "Check the fans and the air flow.", {metric.key: value}
            )


def heat_throttled(gpu: GpuContext) -> Iterator[Finding]:
    """The driver lowers the clocks because the GPU is too hot."""
    severity = heat_severity(gpu.rates)
    if severity is not Severity.INFO and gpu.is_current:
        evidence = {BY_NAME[name].key: share for name, share in gpu.rates.items()}
        yield Finding("heat_throttled", severity, gpu.subject, "heat-throttled", "Check the cooling.", evidence)


def heat_severity(rates: Mapping[str, float]) -> Severity:
    """Return the severity of throttling by heat. `rates`: rates of the `THERMAL` counters by metric."""
    return max(severity_of(metric, rates.get(metric.name, NAN)) for metric in THERMAL)


def memory_nearly_full(gpu: GpuContext) -> Iterator[Finding]:
    """The memory is nearly full, so the next allocation may fail."""
    used, total = gpu.value("gpu.memory_used"), gpu.value("gpu.memory_total")
    is_divided = gpu.status.state is GpuState.DIVIDED  # its instances have their own findings
    if gpu.is_current and not is_divided and used >= BY_NAME["gpu.memory_used"].critical * total:
        summary = f"memory is nearly full: {units.of_total(used, total)}"
        evidence = {"memory_used": used, "memory_total": total}
        yield Finding("memory_nearly_full", Severity.WARNING, gpu.subject, summary, "Reduce the batch size.", evidence)


def divided(gpu: GpuContext) -> Iterator[Finding]:
    """The GPU is in MIG mode but has no instance, so nothing can run on it."""
    count = gpu.value("gpu.mig_instances")
    if gpu.is_current and gpu.status.state is GpuState.DIVIDED and count == 0:
        action = _create_instance(gpu, or_undivide=True)
        summary = "in MIG mode without instances: nothing can run on this GPU"
        yield Finding("divided", Severity.INFO, gpu.subject, summary, action, {"mig_instances": count})


def allocated_idle(gpu: GpuContext) -> Iterator[Finding]:
    """A process is on the GPU but has run no kernel for a long time."""
    status = gpu.status
    if status.state is GpuState.HELD and status.since is not None and _idle(gpu) >= thresholds.LONG_IDLE:
        used = gpu.value("gpu.memory_used")
        held = "memory" if not is_known(used) else units.number(used, Unit.BYTES)
        summary = f"idle for {idle_text(gpu)}, {held} held by {_holders(gpu)}"
        action = "Ask the user to free the GPU, or end the process if it is yours."
        yield Finding("allocated_idle", Severity.WARNING, gpu.subject, summary, action, {"seconds": _idle(gpu)})


def memory_unattributed(gpu: GpuContext) -> Iterator[Finding]:
    """Memory is in use that belongs to no listed process."""
    size = gpu.value("gpu.memory_unattributed")
    if gpu.is_current and size >= thresholds.UNATTRIBUTED:
        summary = f"{units.number(size, Unit.BYTES)} held by no listed process"
        action = "A killed process may have left this memory allocated, or a process in another container holds it."
        yield Finding("memory_unattributed", Severity.INFO, gpu.subject, summary, action, {"memory_unattributed": size})


def free(gpu: GpuContext) -> Iterator[Finding]:
    """The GPU has been free for a long time."""
    status = gpu.status
    if status.state is GpuState.FREE and status.since is not None and _idle(gpu) >= thresholds.LONG_IDLE:
        evidence = {"seconds": _idle(gpu)}
        yield Finding("free", Severity.INFO, gpu.subject, f"free for {idle_text(gpu)}", "", evidence)


GPU_RULES: tuple[Rule[GpuContext], ...] = (
    lost, unavailable, partly_unavailable, answers_with_errors, *FAULT_RULES, hot, heat_throttled, memory_nearly_full,
    divided, allocated_idle, memory_unattributed, free,
)  # fmt: skip
"""Rules sorted by urgency. Findings of equal severity are shown in this order."""


def idle_text(gpu: GpuContext) -> str:
    """Return the idle time of the GPU as text, in minutes: `at least 42 min`, `6 h 37 min`."""
    since = gpu.status.since
    minutes = int(_idle(gpu) // 60)
    text = f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    return f"at least {text}" if since is not None and since.at_least else text


def _unavailable(gpu: GpuContext, action: str) -> Finding:
    """Return the finding about an unavailable GPU. If the driver reported an XID error, the finding names it.

    `action`: as for `unavailable_remedy`.
    """
    sample, fault = gpu.status.sample, reported_fault(gpu)
    reason = sample.reason
    if sample.state is Availability.STALE and _seconds_unanswered(sample) > 0:
        reason = f"the driver has not answered for {units.duration(_seconds_unanswered(sample))}"
    remedy = unavailable_remedy(gpu.device, sample.state, fault, action)
    if fault is None:
        return Finding("unavailable", Severity.CRITICAL, gpu.subject, reason, remedy)
    summary, evidence = f"{reason}, after {fault.text}", {"xid": float(fault.code)}
    return Finding("unavailable", Severity.CRITICAL, gpu.subject, summary, remedy, evidence)


def _seconds_unanswered(sample: Sample) -> float:
    """Return the seconds since the start of the unanswered driver call.

    If the start was not recorded, return the age of the values.
    """
    return sample.unanswered if is_known(sample.unanswered) else sample.age


def _create_instance(gpu: GpuContext, *, or_undivide: bool = False) -> str:
    """Return a sentence that says how to create a MIG instance. `or_undivide`: also say how to leave MIG mode."""
    vendor = find_vendor(gpu.device.name, gpu.device.uuid)
    if vendor is None or not (profiles := command(gpu.device, vendor.instances)):
        return "Create an instance on this GPU, or turn MIG mode off." if or_undivide else "Create the instance again."
    off = f"; '{command(gpu.device, vendor.undivide)}' turns MIG mode off on this GPU" if or_undivide else ""
    return f"Create an instance on this GPU with a profile from '{profiles}'{off}."


def _idle(gpu: GpuContext) -> float:
    """Return the idle time in seconds; NaN if there is none.

    CLOCK_MONOTONIC is used because the wall clock may have been set.
    """
    since = gpu.status.since
    return NAN if since is None else since.seconds


def _holders(gpu: GpuContext) -> str:
    ordered = sorted(gpu.status.processes, key=lambda process: -(process.memory_used if process.memory_used > 0 else 0))
    users = dict.fromkeys(process.user for process in ordered)
    unlisted = "an unknown process" if PROCESSES in gpu.status.sample.device.missing else _UNLISTED
    return ", ".join(user or "an unknown user" for user in users) or unlisted
