"""Rows of the GPU table: what a row says about one GPU, and groups of GPUs of the same run or holder as one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpumon.analysis.gpu_state import GpuState
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon_web.components import levels
from gpumon_web.components.holders import holder_pieces, holders_without_run, idle_for, memory_parts
from gpumon_web.components.machine import Gpu, Holder, LiveRun, Now
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import (
    gpu_address,
    line,
    link,
    person,
    progress,
    run_address,
    run_name,
    run_position,
    tag,
    text,
)

LARGE = 8
"""Number of GPUs above which the table has a row per holder, and a map shows each GPU."""
_ORDER = {GpuState.BUSY: 0, GpuState.ALLOCATED: 1, GpuState.HELD: 2, GpuState.FREE: 9}


def group_key(gpu: Gpu, now: Now) -> str:
    """Return the key of a GPU's group; empty if it has its own row."""
    runs = now.runs_of(gpu)
    if gpu.sample.device.parent or gpu.state is GpuState.DIVIDED:
        return ""
    if len(runs) == 1 and len(runs[0]["gpus"]) > 1 and len({holder.user for holder in gpu.holders}) <= 1:
        return f"run {runs[0]['id']}"
    if len(now.gpus) <= LARGE:
        return ""
    if gpu.state is GpuState.FREE:
        return "free"
    users = {user or "" for user in (*(run["user"] for run in runs), *(holder.user for holder in gpu.holders))}
    if len(users) != 1 or users == {""} or runs:
        return ""
    names = {name for holder in gpu.holders for name in holder.names}
    return f"user {gpu.state.value} {users.pop()} {'/'.join(sorted(names))}"


def groups(now: Now) -> dict[str, list[Gpu]]:
    """Return the groups of at least two GPUs, by key."""
    members_by_key: dict[str, list[Gpu]] = {}
    for gpu in now.gpus:
        if key := group_key(gpu, now):
            members_by_key.setdefault(key, []).append(gpu)
    return {key: members for key, members in members_by_key.items() if len(members) > 1}


def group_state(members: Sequence[Gpu]) -> GpuState:
    """Return the common state of a group, or the one with the highest `_ORDER`."""
    states = {gpu.state for gpu in members}
    return max(states, key=lambda state: _ORDER.get(state, 5))


def group_sums(members: Sequence[Gpu]) -> Cells:
    """Return mean utilization, total memory and power, and highest temperature; totals are None if one is unknown."""

    def read(name: str) -> list[float | None]:
        return [gpu.counted.get(name) for gpu in members]

    def total(values: Sequence[Any]) -> float | None:
        return None if None in values or not values else sum(values)

    utilization, watts, used = (total(read(f"gpu.{name}")) for name in ("utilization", "power", "memory_used"))
    size = total([gpu.memory_total for gpu in members])
    warm = [value for value in read("gpu.temperature") if value is not None]
    return {
        "now": None if utilization is None else utilization / len(members),
        GPU_BY_KEY["memory_used"].file_name: used,
        "memory": {
            "used": _bytes(used), "total": _bytes(size),
            "parts": _parts(members, used, size) if size else None,
        },
        GPU_BY_KEY["power"].file_name: watts,
        "power": units.MISSING if watts is None else GPU_BY_KEY["power"].write(watts),
        "temperature": max(warm, default=None),
    }  # fmt: skip


def group_label(members: Sequence[Gpu]) -> str:
    """Return the numbers of the GPUs as ranges: `0–3, 6`."""
    return ranges([gpu.number for gpu in members])


def _parts(members: Sequence[Gpu], used: float | None, size: float) -> list[Cells]:
    holders = [holder for gpu in members for holder in gpu.holders]
    return memory_parts(holders, size, used)


def _bytes(value: float | None) -> str:
    return units.MISSING if value is None else GPU_BY_KEY["memory_used"].write(value)


MAX_RUNS = 4
"""Most runs in a row; the page of the GPU has all."""
MAX_HOLDERS = 2
"""Most holders without a run in a row."""
SILENT = frozenset((GpuState.STALE, GpuState.LOST, GpuState.UNREADABLE, GpuState.ASLEEP))
"""States without present values; the row shows the reason."""
_TAGGED = frozenset((GpuState.HELD, GpuState.FREE, GpuState.ALLOCATED))
"""States that a row shows as a tag."""


def holder_lines(gpu: Gpu, runs: Sequence[LiveRun], time: float) -> list[Cells]:
    """Return the lines of a row: why the GPU does not answer, runs, other holders, idle time, and faults."""
    state, lines = gpu.state, []
    if state in SILENT:
        label = tag(silence_text(gpu), levels.GPU_LEVELS[state])
        # When data stops coming, the age would be frozen; the plain state replaces it.
        old = {"old": GpuState.STALE.title, "ended": label["tag"]} if state is GpuState.STALE else {}
        lines.append(line({**label, **old}))
    for run in runs[:MAX_RUNS]:
        phase = run["phase"] if run["phase"] != "train" else ""
        name = link(run_name(run), run_address(run["id"]), "name")
        lines.append(line(person(run["user"]), name, tag(phase) if phase else None, css="who"))
        if position := run_position(run):
            lines.append(progress(run, position))
    if len(runs) > MAX_RUNS:
        lines.append(_more(gpu, f"and {units.counted(len(runs) - MAX_RUNS, 'more run')}"))
    holders = holders_without_run(gpu.holders, {run["id"] for run in runs})
    lines += [_holder(holder) for holder in holders[:MAX_HOLDERS]]
    if rest := sum(holder.count for holder in holders[MAX_HOLDERS:]):
        lines.append(_more(gpu, f"and {rest} more {'process' if rest == 1 else 'processes'}"))
    if state is GpuState.DIVIDED:
        lines.append(line(text(GpuState.DIVIDED.title, "mut")))
    elif gpu.processes_unknown:
        lines.append(line(text(f"processes unknown: {gpu.processes_unknown}"), css="mut"))
    elif (gpu.status.is_unlisted or not (gpu.status.is_empty or state in SILENT)) and not runs and not gpu.holders:
        # A GPU that does not answer lists no processes either.
        why = gpu.reason or "the GPU does not answer"
        words = f"processes unknown: {why}" if state in SILENT else "unknown: the driver lists no process"
        lines.append(line(text(words), css="mut"))
    if state in _TAGGED:
        duration = "" if state is GpuState.ALLOCATED else idle_for(gpu, time)
        lines.append(line(tag(f"{state.title}{duration}", levels.GPU_LEVELS[state], is_now=True)))
    elif not lines:
        lines.append(line(text(units.MISSING if state is GpuState.STALE else "no process", "mut")))
    if fault := gpu.fault:
        label = tag(units.counted(fault.number, "fault"), fault.level, is_now=True)
        lines.append(line(label, text(fault.text, "mut", is_now=True), css="who fault"))
    return lines


def silence_text(gpu: Gpu) -> str:
    """Return why a GPU has no present values, and for how long."""
    reason = gpu.reason or gpu.state.title
    if gpu.state is GpuState.ASLEEP:
        return f"{GpuState.ASLEEP.title}: {reason}"
    is_aged = gpu.state is GpuState.STALE and gpu.age is not None and gpu.age >= 1
    return f"stale {units.long_duration(gpu.age or 0.0)}: {reason}" if is_aged else reason


def power_text(power: float | None, limit: float | None, *, is_sum: bool = False) -> str:
    """Return power and limit: `300 / 700 W`, or `4.21 / 5.6 kW` for a large sum."""
    if power is None and not (limit and not is_sum):
        return units.MISSING
    watts = units.MISSING if power is None else GPU_BY_KEY["power"].write(power).removesuffix(" W")
    if is_sum and power is not None and limit is not None and limit > 1000:
        return f"{power / 1000:.2f} / {limit / 1000:.1f} kW"
    return f"{watts} / {GPU_BY_KEY['power'].write(limit)}" if limit else f"{watts} W"


def _holder(holder: Holder) -> Cells:
    """Return the line of a holder without a run, or of the combined others."""
    return line(*holder_pieces(holder), css="who" if holder.user is not None else "mut")


def _more(gpu: Gpu, words: str) -> Cells:
    return line(link(words, gpu_address(gpu.label), "mut"))


def users_of(gpu: Gpu, now: Now) -> list[str]:
    """Return the known users of a GPU, sorted."""
    users = {run["user"] for run in now.runs_of(gpu)} | {holder.user for holder in gpu.holders}
    return sorted(user for user in users if user)


def search_text(gpu: Gpu, now: Now) -> str:
    """Return the text that a search looks in, in lower case."""
    runs = [word for run in now.runs_of(gpu) for word in (run["name"], run["framework"])]
    names = [name for holder in gpu.holders for name in holder.names]
    states = (gpu.state.title, gpu.word)
    return " ".join((f"gpu {gpu.label}", gpu.name, *states, *users_of(gpu, now), *runs, *names)).lower()
