"""GPUs that belong together as one row: those of a run that has several, and on a large machine those of one holder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpumon.analysis.gpu_state import GpuState
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon_web.holders import memory_parts
from gpumon_web.page import Cells, Gpu, Now

LARGE = 8
"""GPUs beyond which rows are of holders, and a map shows each GPU."""
_ORDER = {"busy": 0, "allocated": 1, "held": 2, "free": 9}


def group_of(gpu: Gpu, now: Now) -> str:
    """The key of the group of a GPU; empty of one that has a row of its own."""
    about, runs = gpu.about, now.runs_of(gpu)
    if about["parent"] or about["state"] == GpuState.DIVIDED.value:
        return ""
    if len(runs) == 1 and len(runs[0]["gpus"]) > 1 and len({one["user"] for one in about["holders"]}) <= 1:
        return f"run {runs[0]['id']}"
    if len(now.gpus) <= LARGE:
        return ""
    if about["state"] == GpuState.FREE.value:
        return "free"
    users = {one["user"] or "" for one in (*runs, *about["holders"])}
    if len(users) != 1 or users == {""} or runs:
        return ""
    names = {name for one in about["holders"] for name in one["names"]}
    return f"user {about['state']} {users.pop()} {'/'.join(sorted(names))}"


def groups(now: Now) -> dict[str, list[Gpu]]:
    """The members of each group of two GPUs or more."""
    found: dict[str, list[Gpu]] = {}
    for gpu in now.gpus:
        if key := group_of(gpu, now):
            found.setdefault(key, []).append(gpu)
    return {key: members for key, members in found.items() if len(members) > 1}


def state_of(members: Sequence[Gpu]) -> GpuState:
    """The state of a group: that of all, else the first that needs a look."""
    states = {gpu.about["state"] for gpu in members}
    return GpuState(max(states, key=lambda state: _ORDER.get(state, 5)) if len(states) > 1 else states.pop())


def group_sums(members: Sequence[Gpu]) -> Cells:
    """Mean utilization, memory and power together, and the hottest; None where a member does not tell."""

    def of(name: str) -> list[float | None]:
        return [gpu.counted.get(name) for gpu in members]

    def total(values: Sequence[Any]) -> float | None:
        return None if None in values or not values else sum(values)

    use, watts, used = total(of("gpu.utilization")), total(of("gpu.power")), total(of("gpu.memory_used"))
    size = total([gpu.about["memory_total"] for gpu in members])
    warm = [value for value in of("gpu.temperature") if value is not None]
    return {
        "now": None if use is None else use / len(members),
        GPU_BY_KEY["memory_used"].file_name: used,
        "memory": {
            "used": _bytes(used), "total": _bytes(size),
            "parts": _parts(members, used, size) if size else None,
        },
        GPU_BY_KEY["power"].file_name: watts,
        "power": units.MISSING if watts is None else GPU_BY_KEY["power"].write(watts),
        "temperature": max(warm, default=None),
    }  # fmt: skip


def label_of(members: Sequence[Gpu]) -> str:
    """`0–3, 6`."""
    return ranges([gpu.about["index"] for gpu in members])


def _parts(members: Sequence[Gpu], used: float | None, size: float) -> list[Cells]:
    holders = [holder for gpu in members for holder in gpu.about["holders"]]
    return memory_parts({"memory_total": size, "holders": holders}, used)


def _bytes(value: float | None) -> str:
    return units.MISSING if value is None else GPU_BY_KEY["memory_used"].write(value)
