"""The checks of `gpumon doctor`: GPUs (read from the daemon, or sampled), packages, daemon and files."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.cli.doctor.machine import GpuFacts
from gpumon.cli.options import DEFAULT_SOURCE
from gpumon.cli.sampling import sample_once
from gpumon.cli.streams import print_message
from gpumon.common.check_result import Check, Condition
from gpumon.common.errors import GpumonError
from gpumon.common.paths import (
    Places,
    history_paths,
)
from gpumon.diagnosis.context import GpuContext, diagnose
from gpumon.diagnosis.faults import FAULT_RULES, MAX_XID, unavailable_remedy
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.gpu import answers_with_errors
from gpumon.live import Live, follow
from gpumon.model.events import XID
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.remedies import clause
from gpumon.model.units import counted
from gpumon.model.vendors import AMD, NVIDIA, find_vendor
from gpumon.model.xids import Xid, worse, xid_of
from gpumon.storage.events.query import EventFilter, read_events

GPUS = "GPUs"
_ANSWERS = (Availability.OK, Availability.ASLEEP)
"""Conditions of a GPU that are no fault."""
_DRIVER_TIMEOUT = 20.0
"""Seconds to wait for the driver. Without persistence mode, the driver may need some seconds to start each GPU."""
_SLOW_REMEDY = (
    "check 'dmesg' for a driver that hangs; if GPUs are slow to start, 'sudo nvidia-smi -pm 1' keeps all GPUs of this "
    "machine started"
)


@dataclass(frozen=True, slots=True)
class GpuChecks:
    """Checks of the GPUs that the driver shows."""

    checks: Sequence[Check]
    readable: int = 0
    """Number of GPUs if at least one of them can be read, else 0."""
    facts: GpuFacts = field(default_factory=GpuFacts)


def check_gpus(places: Places, arguments: Namespace) -> GpuChecks:
    """Check the GPUs of this machine."""
    live, reader = _local_daemon(places), "the daemon"
    if live is None:
        reader, arguments.source = "this command", DEFAULT_SOURCE
        try:
            live = sample_once(places, arguments, _DRIVER_TIMEOUT, until_all_answer=True, on_slow=_report_slow)
        except GpumonError as error:
            return GpuChecks([_no_gpu(str(error))])
        if live is None:
            text = f"the driver did not answer within {_DRIVER_TIMEOUT:g} s"
            return GpuChecks([Check(GPUS, Condition.FAULT, text, _SLOW_REMEDY)])
    frame = live.latest()
    if frame is None:
        return GpuChecks([Check(GPUS, Condition.FAULT, live.state().text)])
    failing = [sample.device.uuid for sample in frame.samples if sample.condition not in _ANSWERS]
    return check_frame(frame, live.origin(), live.driver(), reader, logged_xids(places, failing))


def logged_xids(places: Places, uuids: Sequence[str]) -> dict[str, int]:
    """Return the code of the worst logged XID error by GPU, since the machine started and the GPU last came back."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    codes: dict[str, int] = {}
    for uuid in uuids:
        events = []
        for path in history_paths(places):
            with suppress(GpumonError):  # another check reports a file that cannot be read
                events += read_events(path, booted, wanted=EventFilter((XID, "gpu_back"), uuid))
        for event in sorted(events, key=lambda event: event.time_ns):
            code = event.details.get("code") if event.kind.name == XID else 0
            codes[uuid] = worse(code, codes.get(uuid, 0)) if isinstance(code, int) and code > 0 else 0
    return codes


def check_frame(
    frame: Frame, origin: Origin, driver: Driver, reader: str, xids: Mapping[str, int] = MappingProxyType({})
) -> GpuChecks:
    """Return the checks of the GPUs in a frame.

    `reader`: what sampled the frame, as text for messages: "the daemon" or "this command". `xids`: code of the worst
    logged XID error of GPUs that cannot be read, by UUID.
    """
    samples = [sample for sample in frame.samples if not sample.device.is_instance]
    answering = [sample for sample in samples if sample.state is Availability.OK]
    asleep = [sample.device.label for sample in samples if sample.state is Availability.ASLEEP]
    if not answering and not asleep:
        reasons = ", ".join(sorted({sample.state.reason for sample in samples})) or "none was found"
        remedy = _remedy(samples[0]) if samples else "check 'dmesg' for driver errors"
        first = _no_gpu(origin.problem) if origin.problem else Check(GPUS, Condition.FAULT, reasons, remedy)
        explained = [
            sample for sample in samples if sample.state is Availability.RESET_REQUIRED or _fault(sample, xids)
        ]
        return GpuChecks([first, *(_unreadable_gpu(sample, xids) for sample in explained)])
    checks: list[Check] = []
    if answering:
        checks.append(_readable(answering, samples, driver, reader))
    if asleep:
        text = f"GPU {', '.join(asleep)}: powered down, so not queried"
        checks.append(Check("asleep" if answering else GPUS, Condition.NOTE, text))
    for status in gpu_statuses(frame, []):
        if status.sample.device.is_instance:
            continue
        if status.sample.condition in _ANSWERS:
            checks += _faults(status, frame.time)
        else:
            checks.append(_unreadable_gpu(status.sample, xids))
    checks += _denied(answering)
    if origin.notice:
        checks.append(Check("processes", Condition.WARNING, origin.notice))
    if not answering:
        return GpuChecks(checks)
    devices = [sample.device for sample in samples]
    vendors = [find_vendor(device.name, device.uuid) for device in devices]
    own = [device for device, vendor in zip(devices, vendors, strict=True) if vendor in (NVIDIA, None)]
    facts = GpuFacts(
        tuple(device.name for device in own), tuple(device.uuid for device in own), driver.version_of("CUDA"),
        has_amd=AMD in vendors,
    )  # fmt: skip
    return GpuChecks(checks, len(samples), facts)


def _report_slow() -> None:
    print_message(f"gpumon: the driver is slow to answer: waiting up to {_DRIVER_TIMEOUT:g} s")


def _local_daemon(places: Places) -> Live | None:
    """Return the ring of a daemon that is sampling this machine; None if there is none."""
    live = follow(places)
    if live.state().live and Capability.LIVE in live.origin().capabilities:
        return live
    return None


def _readable(answering: Sequence[Sample], samples: Sequence[Sample], driver: Driver, reader: str) -> Check:
    versions = ", ".join(filter(None, (f"driver {driver.version}" if driver.version else "", driver.runtime)))
    with_versions = f" with {versions}" if versions else ""
    if len(answering) < len(samples):
        text = f"{reader} reads {len(answering)} of {counted(len(samples), 'GPU')}{with_versions}"
        return Check(GPUS, Condition.NOTE, text)  # a separate check reports each GPU that cannot be read
    counts = Counter(sample.device.name for sample in samples)
    models = ", ".join(f"{number} × {name}" for name, number in counts.items())
    return Check(GPUS, Condition.OK, f"{reader} reads {models}{with_versions}")


def _no_gpu(problem: str) -> Check:
    """Return the check that reports that no GPU can be read.

    `problem`: one line with the reason and, after a colon, a remedy if there is one.
    """
    text, _, remedy = problem.partition(": ")
    return Check(GPUS, Condition.FAULT, text, remedy)


def _fault(sample: Sample, xids: Mapping[str, int]) -> Xid | None:
    """Return the hardware fault that the driver reported of a GPU, as an XID error. None if it reported none."""
    code = sample.value("gpu.xid")
    known = int(code) if 0 < code < MAX_XID else xids.get(sample.device.uuid, 0)
    return xid_of(known) if known else None


def _unreadable_gpu(sample: Sample, xids: Mapping[str, int]) -> Check:
    name, text = f"GPU {sample.device.label}", sample.condition.reason
    fault = _fault(sample, xids)
    return Check(name, Condition.WARNING, f"{text}, after {fault.text}" if fault else text, _remedy(sample, fault))


def _faults(status: GpuStatus, now: float) -> Iterator[Check]:
    """Yield checks for the critical hardware faults of a GPU that answers, with the remedies of `gpumon status`."""
    for finding in diagnose((answers_with_errors, *FAULT_RULES), [GpuContext(status, now)]):
        if finding.severity is Severity.CRITICAL:
            yield Check(finding.subject.title, Condition.WARNING, finding.summary, clause(finding.action))


def _remedy(sample: Sample, fault: Xid | None = None) -> str:
    """Return what to do about a GPU that cannot be read."""
    action = "Check 'dmesg' for driver errors."
    if sample.condition is Availability.LOST:
        action = ""
    elif sample.state is Availability.NO_PERMISSION:
        action = "Check the GPU's device file, and which devices this container or job may use."
    return clause(unavailable_remedy(sample.device, sample.condition, fault, action))


def _denied(samples: Sequence[Sample]) -> Iterator[Check]:
    """Yield checks for the data that the driver denies this user. Data that a GPU does not support is not reported."""
    denied = Counter(
        name for sample in samples for name, why in sample.device.missing.items() if why is Availability.NO_PERMISSION
    )
    if denied.pop(PROCESSES, 0):
        yield Check("processes", Condition.WARNING, "the driver denies this user the lists of processes")
    if denied:
        names = ", ".join(name.removeprefix("gpu.") for name in denied)
        yield Check("counters", Condition.NOTE, f"the driver denies this user {names}", "root may read them")
