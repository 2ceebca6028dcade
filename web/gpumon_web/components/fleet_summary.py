"""The summary of the fleet page: free, idle and own GPUs, sums over GPUs, and the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.analysis.gpu_state import FREE_OR_NOT, GpuState
from gpumon.common.numbers import shown
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.storage.history.buckets import DEFAULT_WINDOW
from gpumon_web.components.gpu_rows import power_text, users_of
from gpumon_web.components.holders import idle_for
from gpumon_web.components.machine import Gpu, Now
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import fact, gpu_address, line, link, run_name, text

MAX_CHIPS = 12
_IDLE_KNOWN_STATES = FREE_OR_NOT - {GpuState.ALLOCATED}
"""States that tell whether a GPU is held but idle."""
_FULL_WINDOW_SHARE = 0.95
"""Fraction of ten minutes with data from which a mean is labeled "over ten minutes"."""
MAX_LINKS = 4
"""Most GPUs that each get a link; more are shown as ranges."""


def other_gpus_text(now: Now, gpus: Sequence[Gpu]) -> str:
    """Return text about free GPUs and GPUs in an unknown state, or about when the next GPU may become free."""

    def labels(*states: GpuState) -> str:
        return _labels([gpu for gpu in gpus if gpu.state in states])

    unknown = labels(GpuState.UNKNOWN, GpuState.STALE, GpuState.LOST, GpuState.UNREADABLE, GpuState.IDLE)
    kinds = (("asleep", labels(GpuState.ASLEEP)), ("unknown", unknown))
    texts = [f"{kind}: GPU {indexes}" for kind, indexes in kinds if indexes]
    free = [gpu for gpu in gpus if gpu.state is GpuState.FREE]
    if free:
        return "; ".join([_free_text(free, now.time), *texts])
    if texts or not gpus:
        return "; ".join(texts)
    left = [run["left"] for gpu in gpus for run in now.runs_of(gpu) if run["left"] is not None]
    if left:
        return f"the next in about {units.long_duration(min(left))}"
    present = {gpu.state for gpu in gpus}
    if present == {GpuState.BUSY}:
        return "all are in use" if len(gpus) > 1 else "in use"
    # It is not known whether allocated GPUs are in use.
    return "all are allocated" if present <= {GpuState.BUSY, GpuState.ALLOCATED} else ""


def _free_text(free: Sequence[Gpu], time: float) -> str:
    """Return `80.0 GiB, free for 6 h 10 min`, or `each 80.0 GiB` for several."""
    sizes = {gpu.memory_total for gpu in free}
    size = sizes.pop() if len(sizes) == 1 else None
    each = "each " if len(free) > 1 else ""
    since = f"free{idle_for(free[0], time)}" if len(free) == 1 and idle_for(free[0], time) else ""
    return ", ".join(filter(None, (f"{each}{units.number(size, Unit.BYTES)}" if size else "", since)))


def gpu_chips(gpus: Sequence[Gpu], css: str = "chip") -> list[Cells]:
    """Return links to GPUs and how many more there are, or ranges if these fit into one line."""
    labels = [gpu.label for gpu in gpus]
    if len(labels) > MAX_LINKS and (ranges_text := _labels(gpus)).count(",") < MAX_LINKS:
        return [text(label, css) for label in ranges_text.split(", ")]
    links = [
        link(label if len(labels) > 3 else f"GPU {label}", gpu_address(label), css, f"GPU {label}")
        for label in labels[:MAX_CHIPS]
    ]
    return [*links, *([text(f"+{len(labels) - MAX_CHIPS}", "mut")] if len(labels) > MAX_CHIPS else [])]


def gpu_sums(gpus: Sequence[Gpu]) -> Cells:
    """Return headlines over the GPUs that report a value; the line below a headline says how many if not all do."""

    def reporting(name: str) -> list[tuple[Gpu, float]]:
        return [(gpu, value) for gpu in gpus if (value := gpu.counted.get(name)) is not None]

    def count_text(reports: Sequence[Any]) -> str:
        return f"from {len(reports)} of {len(gpus)} GPUs" if 0 < len(reports) < len(gpus) else ""

    utilizations = reporting("gpu.utilization")
    means = [gpu.mean for gpu in gpus if gpu.mean is not None]
    memory_reports = reporting("gpu.memory_used")
    sized = [(total, used) for gpu, used in memory_reports if (total := gpu.memory_total) is not None]
    counted = [used for _, used in sized] or [used for _, used in memory_reports]
    used, total = sum(counted), sum(total for total, _ in sized)
    power_reports = reporting("gpu.power")
    power = sum(value for _, value in power_reports)
    limits = [limit for gpu, _ in power_reports if (limit := gpu.power_limit) is not None]
    limit = sum(limits) if len(limits) == len(power_reports) else None
    hottest = max(reporting("gpu.temperature"), key=lambda report: report[1], default=None)
    return {
        "utilization": shown(sum(value for _, value in utilizations) / len(utilizations)) if utilizations else None,
        "past": count_text(utilizations) or (_recent_mean_text(means) if means else ""),
        "memory": f"{_gib(used)} {f'/ {_gib(total)} ' if sized else ''}GiB" if counted else units.MISSING,
        "memory_share": count_text(counted) or (_percent(used / total) if total else ""),
        "power": power_text(power if power_reports else None, limit, is_sum=True),
        "energy": count_text(power_reports)
        or ({"text": f"{power * 0.024:.1f} kWh per day at this rate", "old": ""} if power_reports else ""),
        "hottest": hottest[1] if hottest else None,
        "where": f"GPU {hottest[0].label}" if hottest else "",
    }


def _recent_mean_text(means: Sequence[tuple[float, float]]) -> str:
    """Return the mean utilization of some GPUs over the recent past, and the longest time with data among them.

    >>> _lately([(0.5, 600.0), (0.25, 598.0)]), _lately([(0.5, 58.0)])
    ('38 % over ten minutes', '50 % over 58 s')
    """
    longest = max(seconds for _, seconds in means)
    window = "ten minutes" if longest >= _FULL_WINDOW_SHARE * DEFAULT_WINDOW.seconds else units.long_duration(longest)
    return f"{_percent(sum(mean for mean, _ in means) / len(means))} over {window}"


def free_count(gpus: Sequence[Gpu]) -> str:
    """Return the number of free GPUs; unknown if none is known to be free and some are in an unknown state."""
    states = [gpu.state for gpu in gpus]
    free = states.count(GpuState.FREE)
    return str(free) if gpus and (free or FREE_OR_NOT.issuperset(states)) else units.MISSING


def idle_count(gpus: Sequence[Gpu]) -> str:
    """Return the number of GPUs held but idle; unknown if there may be some but none is known."""
    idle = [gpu.state for gpu in gpus].count(GpuState.HELD)
    return str(idle) if gpus and (idle or not unknown_idle_text(gpus)) else units.MISSING


def unknown_idle_text(gpus: Sequence[Gpu]) -> str:
    """Return the GPUs that may be held but idle: `not known yet: GPU 2–7; unknown: GPU 8`."""
    unknown = [gpu for gpu in gpus if gpu.state not in _IDLE_KNOWN_STATES]
    early = [gpu for gpu in unknown if _is_early(gpu)]
    never = [gpu for gpu in unknown if not _is_early(gpu)]
    groups = (("not known yet", early), ("unknown", never))
    return "; ".join(f"{reason}: GPU {_labels(members)}" for reason, members in groups if members)


def _is_early(gpu: Gpu) -> bool:
    """Whether samples to come can show that the GPU is idle: only if its utilization is known."""
    return gpu.state is GpuState.ALLOCATED and gpu.values.get("gpu.utilization") is not None


def idle_text(idle: Sequence[Gpu], now: Now) -> str:
    """Return `dave, 41.3 GiB for 3 h 12 min`, or `dave on GPU 2, 40.0 GiB; unknown on GPU 3–7`."""
    known = [gpu for gpu in idle if users_of(gpu, now)]
    unknown = [gpu for gpu in idle if not users_of(gpu, now)]
    if known and unknown:  # do not attribute GPUs without a known holder to the named users
        return f"{_idle_holders_text(known, now, with_gpus=True)}; {_idle_holders_text(unknown, now, with_gpus=True)}"
    return f"{_idle_holders_text(idle, now)}{idle_for(idle[0], now.time) if len(idle) == 1 else ''}" if idle else ""


def _idle_holders_text(gpus: Sequence[Gpu], now: Now, *, with_gpus: bool = False) -> str:
    """Return `dave, 41.3 GiB`: holders and memory in use of the GPUs, which all have known users, or none has."""
    names = ((*(holder.user or "unknown" for holder in gpu.holders), *users_of(gpu, now)) for gpu in gpus)
    users = dict.fromkeys(user for gpu_users in names for user in gpu_users)
    location = f" on GPU {_labels(gpus)}" if with_gpus else ""
    memory = [gpu.values.get("gpu.memory_used") for gpu in gpus]
    held = [value for value in memory if value is not None]
    size = f", {_gib(sum(held))} GiB" if held and len(held) == len(memory) else ""
    return f"{', '.join(users) or 'unknown'}{location}{size}"


def _labels(gpus: Sequence[Gpu]) -> str:
    """Return the labels as ranges: `2, 4–7`; MIG instances are listed one by one."""
    if all(gpu.label == str(gpu.number) for gpu in gpus):
        return ranges(gpu.number for gpu in gpus)
    return ", ".join(gpu.label for gpu in gpus)


def own_gpus(now: Now) -> Cells:
    """Return the number of GPUs of each user, and the user's run with the most time left."""
    users: Cells = {}
    for gpu in now.gpus:
        for user in users_of(gpu, now):
            users.setdefault(user, {"count": 0, "below": "", "last": ""})["count"] += 1
    for user, cell in users.items():
        runs = sorted((run for run in now.runs.values() if run["user"] == user and run["state"] == "running"),
                      key=lambda run: -(run["left"] or 0.0))  # fmt: skip
        if runs:
            left = f", {units.long_duration(runs[0]['left'])} left" if runs[0]["left"] is not None else ""
            more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
            cell["below"] = f"{run_name(runs[0])}{left}{more}"
            cell["last"] = f"{run_name(runs[0])}{more}"  # shown when data stops coming
    return {"users": users, "own": "#/users?user="}


def host_lines(values: Mapping[str, float | None], totals: Cells) -> list[Cells]:
    """Return a line about the host (CPU, memory, disks, network), and one about its GPUs' memory and temperature."""

    def rate(name: str) -> str:
        value = values.get(name)
        return "" if value is None else f"{units.number(value, Unit.BYTES)}/s"

    used, size = values.get("memory_used"), values.get("memory_total")
    cpu, load = values.get("cpu_utilization"), values.get("load")
    facts = [
        fact("CPU", "" if cpu is None else _percent(cpu)),
        fact("load", "" if load is None else units.load(load)),
        fact("Memory", "" if used is None or not size else f"{_gib(used)} / {_gib(size)} GiB"),
        fact("Disk read", rate("disk_read")),
        fact("written", rate("disk_written")),
        fact("Network in", rate("network_received")),
        fact("out", rate("network_sent")),
    ]
    hottest = totals["hottest"]
    gpus = [
        fact("GPU memory", " ".join(filter(None, (totals["memory"], f"({totals['memory_share']})"))))
        if totals["memory_share"]
        else None,
        fact("hottest", f"{hottest:.0f} °C, {totals['where']}") if hottest is not None else None,
    ]
    known_facts = [value for value in facts if value]
    lines = [line(text("Host", "lead"), *(known_facts or [text("not known here", "mut")]))]
    return [*lines, *([line(*gpus)] if any(gpus) else [])]


def _percent(value: float) -> str:
    return units.number(value, Unit.RATIO)


def _gib(value: float) -> str:
    return f"{value / 2**30:,.{0 if value >= 100 * 2**30 else 1}f}"
