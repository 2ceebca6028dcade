"""Who is on which GPU, and what is worth a look: what the fleet page shows, as data.

Everything here is pure but for one memory: since when a GPU does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gpumon.epochs import Epochs
from gpumon.frame import NAN, Driver, Frame, Origin, Process, RunState, Sample
from gpumon.memory import PARTS, split, told
from gpumon.metrics import IDLE, Availability
from gpumon.panels import GPU_PANELS
from gpumon.ranks import Ranks, ranks_of
from gpumon.runs.document import known
from gpumon.runs.report_figures import COLOURS
from gpumon_web.look import worth_a_look

IDLE_AFTER = 60.0
"""Seconds: a pause between two epochs or a validation on the CPU is not idleness."""
EMPTY = 0.03
"""Share of its memory that a GPU may have in use with nobody on it: what the driver itself holds."""
NAMED = 4
"""Holders shown on a row."""
_STEP = 2.0**26

_SHOWN = frozenset(panel.metric.name for panel in GPU_PANELS)

BUSY, HELD, FREE, UNKNOWN = "busy", "idle", "free", "unknown"


class Fleet:
    """Remembers since when each GPU is idle."""

    def __init__(self) -> None:
        self._idle_since: dict[str, float] = {}
        self._begin = NAN

    def add(self, frame: Frame) -> None:
        """Take in a frame; they come in order."""
        if self._begin != self._begin:
            self._begin = frame.time
        for sample in frame.samples:
            utilization = sample.value("gpu.utilization")
            if utilization >= IDLE:
                self._idle_since.pop(sample.device.uuid, None)
            elif utilization == utilization:
                self._idle_since.setdefault(sample.device.uuid, frame.time)

    def about(self, frame: Frame, epochs: Epochs, origin: Origin, driver: Driver, hostname: str) -> dict[str, Any]:
        """All that changes seldom: devices, who is on them, runs, processes without their command lines."""
        joined = ranks_of(frame.runs)
        rows = [self.row(sample, frame, joined, origin) for sample in frame.samples]
        return {
            "hostname": hostname,
            "driver": driver.version,
            "cuda": driver.cuda,
            "source": origin.source,
            "gpus": rows,
            "runs": [run_row(ranks, frame, epochs) for ranks in joined],
            "look": worth_a_look(frame, rows, joined, epochs),
        }

    def row(self, sample: Sample, frame: Frame, joined: Sequence[Ranks], origin: Origin) -> dict[str, Any]:
        """One GPU: its card, its state and since when, its holders and its run."""
        device = sample.device
        processes = [process for process in frame.processes if process.uuid == device.uuid]
        ranks = next((one for one in joined if any(run.key == sample.run for run in one.all)), None)
        state = self._state(sample, frame.time, bool(processes) or ranks is not None, origin.source == "replay")
        since = self._idle_since.get(device.uuid)
        return {
            "uuid": device.uuid,
            "index": device.index,
            "name": device.name.removeprefix("NVIDIA "),
            "state": state,
            "reason": "" if sample.state is Availability.OK else sample.state.reason,
            "since": round(since, 1) if since is not None and state in (HELD, FREE) else None,
            "at_least": since == self._begin,
            "memory_total": known(sample.value("gpu.memory_total")),
            "power_limit": known(sample.value("gpu.power_limit")),
            "holders": holders(processes),
            "split": parts(sample),
            "processes": [process_row(process, joined) for process in processes],
            "run": ranks.first.id if ranks else None,
            "missing": {name: why.reason for name, why in sorted(device.missing.items()) if name in _SHOWN},
        }

    def _state(self, sample: Sample, now: float, held: bool, alone: bool) -> str:
        """`alone`: a recording, which does not tell who was there, so that nobody known is not nobody."""
        if sample.state not in (Availability.OK, Availability.STALE):
            return sample.state.name.lower()
        utilization = sample.value("gpu.utilization")
        if utilization != utilization:
            return UNKNOWN
        since = self._idle_since.get(sample.device.uuid)
        held = held or sample.value("gpu.memory_used") > EMPTY * sample.value("gpu.memory_total")
        if not held and not alone:
            return FREE if since is not None else BUSY
        return BUSY if since is None or now - since < IDLE_AFTER else HELD


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
