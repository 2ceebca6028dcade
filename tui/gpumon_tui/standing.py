"""One word for how a GPU stands, and who has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.style import Style

from gpumon import units
from gpumon.frame import TRAINING, Process, Run, Sample
from gpumon.history.recent import History
from gpumon.metrics import BY_NAME, IDLE, Availability
from gpumon_tui import theme
from gpumon_tui.levels import CRITICAL, FINE, WARN, level
from gpumon_tui.renderables.cells import safe

IDLE_FRAMES = 20
"""A pause between two batches or epochs is not idleness."""
HEAT = (BY_NAME["gpu.throttled_hw_thermal"], BY_NAME["gpu.throttled_sw_thermal"])


class Standing(NamedTuple):
    """How a GPU stands."""

    word: str
    style: Style
    quiet: bool
    """Nothing a person has to look at, so that a run's epoch may stand in its place."""


def standing(sample: Sample, history: History, held: bool | None) -> Standing:
    """`busy`, `free`, `idle but held`, `slowed by heat`, `stale 12 s`, `lost` …

    `held` is None where nobody can tell, as in a recording: then it is idle, and no more is claimed.
    """
    if sample.state is Availability.STALE:
        return Standing(f"stale {units.duration(sample.age)}", theme.WARN, False)
    if sample.state is not Availability.OK:
        word = "lost" if sample.state is Availability.LOST else sample.state.reason
        return Standing(word, theme.CRITICAL, False)
    uuid = sample.device.uuid
    heat = max(level(metric, history.last(uuid, metric.name)) for metric in HEAT)
    if heat > FINE:
        return Standing("slowed by heat", theme.CRITICAL if heat == CRITICAL else theme.WARN, False)
    peak = max(history.peak(uuid, "gpu.utilization", IDLE_FRAMES), sample.value("gpu.utilization"))
    if peak >= IDLE:
        return Standing("busy", theme.GOOD, True)
    if peak != peak:
        return Standing(units.MISSING, theme.DIM, True)
    if held is None:
        return Standing("idle", theme.DIM, True)
    return Standing("idle but held", theme.LEVELS[WARN], False) if held else Standing("free", theme.DIM, True)


def epoch_text(run: Run) -> str:
    """`e12 (13/90) validate`, or nothing before the first epoch."""
    if run.epoch < 0:
        return safe(run.phase)
    phase = "" if run.phase == TRAINING else " " + safe(run.phase)
    return f"e{run.epoch_text}{phase}"


def who(run: Run | None, processes: Sequence[Process]) -> tuple[str, str, str]:
    """Run, epoch and users on a device, each may be empty."""
    users = list(dict.fromkeys(safe(process.user) for process in processes if process.user))
    if run is not None:
        return safe(run.name), epoch_text(run), safe(run.user) or ", ".join(users)
    if not processes:
        return "", "", ""
    more = f" +{len(processes) - 1}" if len(processes) > 1 else ""
    return safe(processes[0].name) + more, "", ", ".join(users)
