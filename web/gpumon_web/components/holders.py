"""Display of the holders of a GPU's memory: by user, as shares of a bar, by program; and for how long it is idle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon_web.components.machine import Gpu, Holder
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import person, share, text


def by_user(holders: Iterable[Holder]) -> list[tuple[str, str, float]]:
    """Return (user, name to show, bytes) by user, the largest first; holders of unknown memory are left out."""
    sizes: dict[tuple[str, str], float] = {}
    for holder in holders:
        if holder.memory is not None:
            name = holder.user or ("others" if holder.user is None else "unknown")
            key = holder.user or "", name
            sizes[key] = sizes.get(key, 0.0) + holder.memory
    return sorted(((user, name, size) for (user, name), size in sizes.items()), key=lambda entry: -entry[2])


def unexplained_title(holders: Sequence[Holder]) -> str:
    """Return the label of used memory without a holder: "no listed process" only if the memory of all is known."""
    is_complete = holders and all(holder.memory is not None for holder in holders)
    return "no listed process" if is_complete else "unknown"


def memory_parts(holders: Sequence[Holder], total: float, used: float | None) -> list[Cells]:
    """Return the shares of memory by user, and of used memory without a known holder."""
    users = by_user(holders)
    parts = [
        share(held / total, user=user, color="" if user else "rest", title=f"{name}: {units.number(held, Unit.BYTES)}")
        for user, name, held in users
    ]
    held = sum(entry[2] for entry in users)
    if used is not None and used > held:
        parts.append(share((used - held) / total, color="rest", title=unexplained_title(holders)))
    return parts


def holders_without_run(holders: Iterable[Holder], runs: Collection[str]) -> list[Holder]:
    """Return the holders that do not belong to `runs` (ids); combined holders only count processes without a run."""
    others = (holder for holder in holders if holder.run not in runs)
    counted = [holder if holder.without_run is None else replace(holder, count=holder.without_run) for holder in others]
    return [holder for holder in counted if holder.count]


def holder_pieces(holder: Holder) -> list[Cells]:
    """Return a holder without a run: user and programs, or the pid of a process whose user is unknown."""
    if holder.user is None:
        return [text(f"and {holder.count} more processes", "mut")]
    rest = holder.count - len(holder.names)
    names = ", ".join(holder.names) + (f" and {rest} more" if holder.names and rest > 0 else "")
    if holder.user:
        return [person(holder.user), text(names, "name mut")]
    pid = f"pid {holder.pid}" if holder.count == 1 else f"{holder.count} processes"
    return [text("unknown", "mut"), text(f"{names} ({pid})" if names else f"({pid})", "name mut")]


def idle_for(gpu: Gpu, time: float) -> str:
    """Return ` for 42 min` or ` for at least 3 h 4 min`; empty if unknown, or less than a second."""
    since = gpu.status.since
    if since is None or time - since.time < 1:
        return ""
    return f" for {'at least ' if since.at_least else ''}{units.long_duration(time - since.time)}"
