"""What is worth a look: at most six sentences, the worst first, each with where to look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpumon import units
from gpumon.analysis.epochs import Epochs
from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.ranks import Ranks
from gpumon.clock import SECOND
from gpumon.frame import NAN, Frame, RunState, Sample
from gpumon.metrics import BY_NAME, Unit

SHOWN = 6
RECENT = 600.0
"""Seconds for which a run that went wrong is news."""
LONG_IDLE = 300.0
"""Seconds after which memory held for nothing is worth a word."""
WAITING = 0.2
"""Share of its time that a training may wait for data: xprof calls 20 % high."""
_BAD, _WARN, _GOOD = "bad", "warn", "ok"
_ORDER = (_BAD, _WARN, _GOOD)


def worth_a_look(
    frame: Frame, rows: Sequence[Mapping[str, Any]], joined: Sequence[Ranks], epochs: Epochs
) -> list[dict[str, str]]:
    """Sentences as {"level", "about", "text", "link"}."""
    found = [
        *(note for sample, row in zip(frame.samples, rows, strict=True) for note in _of_gpu(sample, row, frame.time)),
        *(note for ranks in joined for note in _of_run(ranks, frame.time, epochs)),
        *_free(rows, frame.time),
    ]
    return sorted(found, key=lambda note: _ORDER.index(note["level"]))[:SHOWN]


def _of_gpu(sample: Sample, row: Mapping[str, Any], now: float) -> Iterable[dict[str, str]]:
    about, link = f"GPU {row['index']}", f"#/gpu/{row['uuid']}"
    if row["reason"]:
        yield _note(_BAD, about, row["reason"], link)
        return
    for name in ("gpu.temperature", "gpu.temperature_memory"):
        metric, value = BY_NAME[name], sample.value(name)
        if value >= metric.warn:
            level = _BAD if value >= metric.critical else _WARN
            yield _note(level, about, f"{metric.title.lower()} is {units.metric(value, metric)}", link)
    used, total = sample.value("gpu.memory_used"), sample.value("gpu.memory_total")
    if used >= BY_NAME["gpu.memory_used"].critical * total:
        yield _note(_WARN, about, f"memory is nearly full: {units.of_total(used, total)}", link)
    if row["state"] == GpuState.HELD.value and row["since"] is not None and now - row["since"] >= LONG_IDLE:
        held = "memory" if used != used else units.number(used, Unit.BYTES)
        yield _note(_WARN, about, f"idle for {_idle(row, now)}, {held} held by {_holders(row)}", link)


def _free(rows: Sequence[Mapping[str, Any]], now: float) -> Iterable[dict[str, str]]:
    """One sentence for all GPUs that are free for long, by the one that is so for the shortest time."""
    free = [row for row in rows if row["state"] == GpuState.FREE.value and row["since"] is not None]
    free = [row for row in free if now - row["since"] >= LONG_IDLE]
    if free:
        newest = max(free, key=lambda row: row["since"])
        about = f"GPU {_ranges([row['index'] for row in free])}"
        more = " or longer" if len(free) > 1 and not newest["at_least"] else ""
        link = f"#/gpu/{free[0]['uuid']}" if len(free) == 1 else "#/fleet"
        yield _note(_GOOD, about, f"free for {_idle(newest, now)}{more}", link)


def _ranges(numbers: Sequence[int]) -> str:
    """`0–3, 6`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in found)


def _holders(row: Mapping[str, Any]) -> str:
    users = dict.fromkeys(holder["user"] or "" for holder in row["holders"])
    return ", ".join(user or "an unknown user" for user in users) or "a process that the driver does not list"


def _idle(row: Mapping[str, Any], now: float) -> str:
    return f"{'at least ' if row['at_least'] else ''}{_minutes(now - row['since'])}"


def _of_run(ranks: Ranks, now: float, epochs: Epochs) -> Iterable[dict[str, str]]:
    run = ranks.first
    about, link = run.name.strip() or run.id, f"#/run/{run.id}"
    for fault in epochs.faults([one.key for one in ranks.all])[-1:]:
        if now - fault.time / SECOND < RECENT:
            text = f"out of memory: requested {units.number(fault.asked, Unit.BYTES)}"
            if fault.free == fault.free:
                text += f", {units.number(fault.free, Unit.BYTES)} free"
            yield _note(_BAD, about, text, link)
    if ranks.state in (RunState.DIED, RunState.FAILED):
        ended = max((one.updated for one in ranks.all if one.updated == one.updated), default=NAN)
        if now - ended < RECENT:
            word = "died" if ranks.state is RunState.DIED else "failed"
            yield _note(_BAD, about, f"{word} in epoch {run.epoch_text}" if run.epoch >= 0 else word, link)
    elif ranks.state is RunState.RUNNING and run.epoch > run.first_epoch:
        share = run.wait / (now - run.started) if now > run.started else NAN
        if share >= WAITING:
            yield _note(_WARN, about, f"waits for data {units.number(share, Unit.RATIO)} of the time", link)


def _note(level: str, about: str, text: str, link: str) -> dict[str, str]:
    return {"level": level, "about": about, "text": text, "link": link}


def _minutes(seconds: float) -> str:
    """Whole minutes, so that a sentence does not change each second: `42 min`, `6 h 37 min`."""
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
