"""GPUs, as `gpumon doctor` finds them: read from the daemon that runs, else by one sample of its own."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence

from gpumon.checkup import Check, Condition
from gpumon.cli.options import DEFAULT_SOURCE
from gpumon.cli.sampled import sampled
from gpumon.diagnosis.now import ANSWERS, why_none
from gpumon.errors import GpumonError
from gpumon.frame import Driver, Frame, Origin, Sample
from gpumon.live import Live, follow
from gpumon.metrics import PROCESSES, Availability
from gpumon.origin import Capability
from gpumon.paths import Places
from gpumon.units import counted

GPUS = "GPUs"
_PATIENCE = 3.0
"""Seconds that the driver has for its answer."""
_HUNG = f"the driver did not answer within {_PATIENCE:g} s"


def gpu_checks(where: Places, arguments: Namespace) -> list[Check]:
    """Return what can be read of this machine's GPUs."""
    live = _live(where)
    by = "the daemon"
    if live is None:
        by = "this command"
        arguments.source = DEFAULT_SOURCE
        try:
            live = sampled(where, arguments, _PATIENCE)
        except GpumonError as error:
            return [_none(str(error))]
        if live is None:
            return [Check(GPUS, Condition.FAULT, _HUNG, "'dmesg' may tell of a GPU that hangs; restart the machine")]
    frame = live.latest()
    if frame is None:
        return [Check(GPUS, Condition.FAULT, live.state().text)]
    return list(read_gpus(frame, live.origin(), live.driver(), by))


def read_gpus(frame: Frame, origin: Origin, driver: Driver, by: str) -> Iterator[Check]:
    """Judge a frame that `by` has sampled."""
    samples = [sample for sample in frame.samples if not sample.device.is_instance]
    answering = [sample for sample in samples if sample.state in ANSWERS]
    if not answering:
        yield _none(origin.problem or why_none(frame, ""))
        return
    versions = ", ".join(
        text for text in (f"driver {driver.version}" if driver.version else "", driver.runtime) if text
    )
    with_versions = f" with {versions}" if versions else ""
    if len(answering) == len(samples):
        yield Check(GPUS, Condition.OK, f"{by} reads {_models(samples)}{with_versions}")
    else:
        text = f"{by} reads {len(answering)} of {counted(len(samples), 'GPU')}{with_versions}"
        yield Check(GPUS, Condition.WARNING, text)
    for sample in samples:
        if sample.state not in ANSWERS:
            yield Check(f"GPU {sample.device.label}", Condition.WARNING, sample.state.reason, "see 'dmesg'")
    asleep = [sample.device.label for sample in samples if sample.state is Availability.ASLEEP]
    if asleep:
        yield Check("asleep", Condition.NOTE, f"GPU {', '.join(asleep)}: powered down, and not woken by gpumon")
    yield from _refused(answering)
    if origin.notice:
        yield Check("processes", Condition.WARNING, origin.notice)


def _live(where: Places) -> Live | None:
    """The ring of a daemon that samples this machine now; None where there is none."""
    live = follow(where)
    if live.state().live and Capability.LIVE in live.origin().capabilities:
        return live
    return None


def _none(said: str) -> Check:
    """No GPU can be read, and why; `said` in one line, with what to do behind a colon where something can be done."""
    text, _, remedy = said.partition(": ")
    return Check(GPUS, Condition.FAULT, text, remedy)


def _models(samples: Sequence[Sample]) -> str:
    counts = Counter(sample.device.name for sample in samples)
    return ", ".join(f"{number} × {name}" for name, number in counts.items())


def _refused(samples: Sequence[Sample]) -> Iterator[Check]:
    """Say what the driver refuses this user; what a card does not have is no matter for a doctor."""
    refused = Counter(
        name for sample in samples for name, why in sample.device.missing.items() if why is Availability.NO_PERMISSION
    )
    if refused.pop(PROCESSES, 0):
        yield Check("processes", Condition.WARNING, "the driver refuses this user the lists of processes")
    if refused:
        names = ", ".join(name.removeprefix("gpu.") for name in refused)
        text = f"the driver refuses this user {names}"
        yield Check("counters", Condition.NOTE, text, "NVIDIA's admin-only switch for counters, or root")
