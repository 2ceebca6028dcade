"""GPUs, as `gpumon doctor` finds them: read from the daemon that runs, else by samples of its own."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.cli.options import DEFAULT_SOURCE
from gpumon.cli.sampled import sampled
from gpumon.cli.streams import say
from gpumon.common.checkup import Check, Condition
from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places
from gpumon.live import Live, follow
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.remedies import RESTART_MACHINE, reset
from gpumon.model.units import counted

GPUS = "GPUs"
_PATIENCE = 20.0
"""Seconds that the driver has: without persistence mode, it may take some for each GPU to start."""
_LONG = (
    "it may hang ('dmesg' says more), or be slow to start its GPUs: 'sudo nvidia-smi -pm 1' keeps all GPUs of this "
    "machine started"
)


class FoundGpus(NamedTuple):
    """The GPUs that the driver shows."""

    checks: Sequence[Check]
    read: int = 0
    """Number of GPUs that it shows, where it was asked and answers for one at least."""


def find_gpus(where: Places, arguments: Namespace) -> FoundGpus:
    """Look for the GPUs of this machine."""
    live, by = _live(where), "the daemon"
    if live is None:
        by, arguments.source = "this command", DEFAULT_SOURCE
        try:
            live = sampled(where, arguments, _PATIENCE, until_all_answer=True, slow=_tell_slow)
        except GpumonError as error:
            return FoundGpus([_none(str(error))])
        if live is None:
            text = f"the driver did not answer within {_PATIENCE:g} s"
            return FoundGpus([Check(GPUS, Condition.FAULT, text, _LONG)])
    frame = live.latest()
    if frame is None:
        return FoundGpus([Check(GPUS, Condition.FAULT, live.state().text)])
    return read_gpus(frame, live.origin(), live.driver(), by)


def read_gpus(frame: Frame, origin: Origin, driver: Driver, by: str) -> FoundGpus:
    """Judge a frame that `by` has sampled."""
    samples = [sample for sample in frame.samples if not sample.device.is_instance]
    answering = [sample for sample in samples if sample.state is Availability.OK]
    asleep = [sample.device.label for sample in samples if sample.state is Availability.ASLEEP]
    if not answering and not asleep:
        reasons = ", ".join(sorted({sample.state.reason for sample in samples})) or "none was found"
        none = _none(origin.problem) if origin.problem else _silent(GPUS, Condition.FAULT, samples, reasons)
        to_reset = [sample for sample in samples if sample.state is Availability.RESET_REQUIRED]
        return FoundGpus([none, *map(_silent_one, to_reset)])
    told: list[Check] = []
    if answering:
        told.append(_read(answering, samples, driver, by))
    if asleep:
        text = f"GPU {', '.join(asleep)}: powered down, and so not asked"
        told.append(Check("asleep" if answering else GPUS, Condition.NOTE, text))
    for sample in samples:
        if sample.state not in (Availability.OK, Availability.ASLEEP):
            told.append(_silent_one(sample))
    told += _refused(answering)
    if origin.notice:
        told.append(Check("processes", Condition.WARNING, origin.notice))
    return FoundGpus(told, len(samples) if answering else 0)


def _tell_slow() -> None:
    say(f"gpumon: the driver takes its time: waiting for at most {_PATIENCE:g} s")


def _live(where: Places) -> Live | None:
    """The ring of a daemon that samples this machine now; None where there is none."""
    live = follow(where)
    if live.state().live and Capability.LIVE in live.origin().capabilities:
        return live
    return None


def _read(answering: Sequence[Sample], samples: Sequence[Sample], driver: Driver, by: str) -> Check:
    versions = ", ".join(filter(None, (f"driver {driver.version}" if driver.version else "", driver.runtime)))
    with_versions = f" with {versions}" if versions else ""
    if len(answering) < len(samples):
        text = f"{by} reads {len(answering)} of {counted(len(samples), 'GPU')}{with_versions}"
        return Check(GPUS, Condition.NOTE, text)  # those that it does not read say why themselves
    counts = Counter(sample.device.name for sample in samples)
    models = ", ".join(f"{number} × {name}" for name, number in counts.items())
    return Check(GPUS, Condition.OK, f"{by} reads {models}{with_versions}")


def _none(said: str) -> Check:
    """No GPU can be read, and why; `said` in one line, with what to do behind a colon where something can be done."""
    text, _, remedy = said.partition(": ")
    return Check(GPUS, Condition.FAULT, text, remedy)


def _silent_one(sample: Sample) -> Check:
    return _silent(f"GPU {sample.device.label}", Condition.WARNING, [sample], sample.state.reason)


def _silent(name: str, condition: Condition, samples: Sequence[Sample], text: str) -> Check:
    """Why some cannot be read, and what to do about the first of them."""
    remedy = "'dmesg' may say more"
    if samples and samples[0].state is Availability.RESET_REQUIRED:
        remedy = f"{reset(samples[0].device)}; or {RESTART_MACHINE}"
    elif samples and samples[0].state is Availability.NO_PERMISSION:
        remedy = "see its device file, and what this container or job may use"
    return Check(name, condition, text, remedy)


def _refused(samples: Sequence[Sample]) -> Iterator[Check]:
    """Say what the driver refuses this user; what a card does not have is no matter for a doctor."""
    refused = Counter(
        name for sample in samples for name, why in sample.device.missing.items() if why is Availability.NO_PERMISSION
    )
    if refused.pop(PROCESSES, 0):
        yield Check("processes", Condition.WARNING, "the driver refuses this user the lists of processes")
    if refused:
        names = ", ".join(name.removeprefix("gpu.") for name in refused)
        yield Check("counters", Condition.NOTE, f"the driver refuses this user {names}", "root may read them")
