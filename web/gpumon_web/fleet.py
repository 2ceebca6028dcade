"""Who is on which GPU, and what is worth a look: what the fleet page shows, as data.

Everything here is pure but for one memory: since when a GPU does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gpumon.epochs import Epochs
from gpumon.frame import Driver, Frame, Origin, Process, RunState, Sample
from gpumon.gpu_state import Activity, GpuState, is_held, judge
from gpumon.memory import PARTS, split, told
from gpumon.metrics import Availability
from gpumon.panels import GPU_PANELS
from gpumon.ranks import Ranks, ranks_of
from gpumon.runs.document import known
from gpumon.runs.report_figures import COLOURS
from gpumon_web.look import worth_a_look

NAMED = 4
"""Holders shown on a row."""
_STEP = 2.0**26

_DOES_NOTHING = (GpuState.HELD, GpuState.IDLE, GpuState.FREE)
_SHOWN = frozenset(panel.metric.name for panel in GPU_PANELS)


class Fleet:
    """Remembers since when each GPU is idle."""

    def __init__(self) -> None:
        self._activity = Activity()

    def add(self, frame: Frame) -> None:
        """Take in a frame; they come in order."""
        self._activity.add(frame)

    def about(self, frame: Frame, epochs: Epochs, origin: Origin, driver: Driver, hostname: str) -> dict[str, Any]:
        """All that changes seldom: devices, who is on them, runs, processes without their command lines."""
        joined = ranks_of(frame.runs)
        rows = [self.row(sample, frame, joined) for sample in frame.samples]
        return {
            "hostname": hostname,
            "driver": driver.version,
            "cuda": driver.cuda,
            "source": origin.source,
            "gpus": rows,
            "runs": [run_row(ranks, frame, epochs) for ranks in joined],
            "look": worth_a_look(frame, rows, joined, epochs),
        }

    def row(self, sample: Sample, frame: Frame, joined: Sequence[Ranks]) -> dict[str, Any]:
        """One GPU: its card, its state and since when, its holders and its run."""
        device = sample.device
        processes = [process for process in frame.processes if process.uuid == device.uuid]
        ranks = next((one for one in joined if any(run.key == sample.run for run in one.all)), None)
        held = is_held(sample, processes, ranks is not None)
        state = judge(sample, held, self._activity.since_work(device.uuid))
        since = self._activity.idle_since(device.uuid) if state in _DOES_NOTHING else None
        return {
            "uuid": device.uuid,
            "index": device.index,
            "name": device.name.removeprefix("NVIDIA "),
            "state": state.value,
            "reason": "" if sample.state is Availability.OK else sample.state.reason,
            "since": round(since.time, 1) if since else None,
            "at_least": bool(since and since.at_least),
            "memory_total": known(sample.value("gpu.memory_total")),
            "power_limit": known(sample.value("gpu.power_limit")),
            "holders": holders(processes),
            "split": parts(sample),
            "processes": [process_row(process, joined) for process in processes],
            "run": ranks.first.id if ranks else None,
            "missing": {name: why.reason for name, why in sorted(device.missing.items()) if name in _SHOWN},
        }


def parts(sample: Sample) -> list[dict[str, Any]]:
    """How the memory of a GPU divides, part by part; empty where the driver does not tell."""
    divided = split(sample)
    colours = dict(zip((part.name for part in PARTS), COLOURS, strict=True))
    return [
        {"title": part.title, "bytes": coarse(value), "colour": colours[part.name]}
        for part, value in (told(divided) if divided else ())
    ]


def holders(processes: Iterable[Process]) -> list[dict[str, Any]]:
    """Who holds memory, by user and program, the most first; those beyond the fourth as one."""
    groups: dict[tuple[str, str], float] = {}
    for process in processes:
        place = (process.user, process.name)
        groups[place] = groups.get(place, 0.0) + process.memory_used
    ordered = sorted(groups.items(), key=lambda group: -group[1] if group[1] == group[1] else 0.0)
    named = [{"user": user, "name": name, "memory": coarse(memory)} for (user, name), memory in ordered[:NAMED]]
    rest = [memory for _, memory in ordered[NAMED:]]
    return [*named, *([{"user": "", "name": f"{len(rest)} more", "memory": coarse(sum(rest))}] if rest else [])]


def process_row(process: Process, joined: Iterable[Ranks]) -> dict[str, Any]:
    """A process as people may know it: never its command line."""
    run = next((ranks.first.id for ranks in joined if any(run.key == process.run for run in ranks.all)), None)
    return {
        "pid": process.pid,
        "user": process.user,
        "name": process.name,
        "kind": process.kind,
        "memory": coarse(process.memory_used),
        "sm": known(round(process.sm_utilization, 2)),
        "cpu": known(round(process.cpu_utilization, 1)),
        "started": known(process.started),
        "run": run if process.run else None,
    }


def run_row(ranks: Ranks, frame: Frame, epochs: Epochs) -> dict[str, Any]:
    """A run for a list: whose, how far, how long still."""
    run = ranks.slowest
    mean = epochs.duration(run.key)
    inside = (frame.time - run.epoch_started) / mean if mean > 0 else 0.0
    done = run.epoch - run.base + max(0.0, min(inside, 0.99)) if run.epoch >= run.base else 0.0
    running = ranks.state is RunState.RUNNING
    return {
        "id": run.id,
        "name": run.name,
        "user": run.user,
        "state": ranks.state.name.lower(),
        "framework": run.framework,
        "ranks": ranks.present if ranks.is_distributed else "",
        "gpus": list(ranks.gpus),
        "started": known(run.started),
        "updated": known(run.updated) if not running else None,
        "epoch": run.epoch_text if run.epoch >= 0 else "",
        "phase": run.phase,
        "resumed": run.first_epoch if run.resumed else None,
        "progress": round(min(1.0, done / run.epochs), 3) if run.epochs else None,
        "left": coarse_time((run.epochs - done) * mean) if run.epochs and running and run.epoch >= 0 else None,
    }


def coarse(memory: float) -> float | None:
    """Bytes in steps of 64 MiB, so that not every tick is news."""
    return round(memory / _STEP) * _STEP if math.isfinite(memory) else None


def coarse_time(seconds: float) -> float | None:
    """Seconds in steps of a tenth of what they are, for a time that is only guessed."""
    if not math.isfinite(seconds):
        return None
    step = 10 ** max(0, math.floor(math.log10(max(seconds, 1))) - 1)
    return float(round(seconds / step) * step)
