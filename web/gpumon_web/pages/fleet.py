"""The fleet: free GPUs first, then one row per GPU with its users, then what needs attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpumon import units
from gpumon.analysis.gpu_state import GpuState
from gpumon.history.windows import USUAL
from gpumon.json_value import shown
from gpumon.metrics import Unit
from gpumon_web import levels
from gpumon_web.feed import SPARK
from gpumon_web.holders import holder_names, idle_for, memory_parts
from gpumon_web.page import Args, Cells, Column, Gpu, Now, Page, Rows
from gpumon_web.tokens import gpu_address, line, link, person, place, progress, run_address, run_name, tag, text

if TYPE_CHECKING:
    from dash.development.base_component import Component

CHIPS = 12
RUNS = 4
"""Runs in a row; the page of the GPU has all."""
HOLDERS = 2
"""Holders in a row beside those of runs."""
_SILENT = frozenset(("stale", "lost", "unreadable", "asleep"))
"""States without values of now; a reason says why."""
_MUTED = frozenset(("free", "stale", "lost", "asleep"))
_TAGGED = frozenset((GpuState.HELD.value, GpuState.FREE.value, GpuState.ALLOCATED.value))
"""States that a row has in words."""
_DENSE = 8

COLUMNS = (
    Column("gpu", "GPU", "state", css="c-gpu", sorts_by="index", is_head=True),
    Column("spark", f"Utilization, {USUAL.title}", "spark", sort=False, css="c-spark"),
    Column("now", "Now", "percent", css="c-now", small_unit="big"),
    Column("memory", "Memory", "memory", css="c-memory", sorts_by="used"),
    Column("power", "Power", "text", css="c-power", sorts_by="watts", is_number=True, small_unit="unit"),
    Column("temperature", "Temp", "celsius", css="c-temp", small_unit="unit"),
    Column("who", "Who", "rich", css="c-who", sorts_by="user"),
)


def layout() -> Component:
    """Five headlines, the table, and the sentences."""
    from dash import html

    from gpumon_web.parts import bound, card, headline, headlines, table

    return html.Div(
        [
            html.H1("Fleet", className="sr"),
            headlines(
                headline("Free now", "free", "text", "others", "chips", is_first=True, old="–"),
                headline("Utilization now", "utilization", "percent", "past"),
                headline("Memory in use", "memory", "text", "memory_share"),
                headline("Power", "power", "text", "energy"),
                headline("Hottest", "hottest", "celsius", "where"),
            ),
            card(
                "GPUs",
                table("gpus", "GPUs", COLUMNS, "gpu", css="fleet", empty="No known GPU.", dense_beyond=_DENSE),
                has_head=False,
            ),
            card("Attention", bound("look", "notes", html.Ul, "The current state is unknown.", className="look")),
        ]
    )


def live(now: Now, args: Args) -> Cells:
    """Headlines, rows and sentences."""
    del args
    # Of a GPU that MIG divides, its instances are what somebody can have.
    usable = [gpu for gpu in now.gpus if gpu.about["state"] != GpuState.DIVIDED.value]
    free = [gpu for gpu in usable if gpu.about["state"] == GpuState.FREE.value]
    return {
        "free": f"{len(free)} of {len(usable)}" if usable else units.MISSING,
        "others": others(usable),
        "chips": chips([gpu.about["label"] for gpu in free]),
        **sums([gpu for gpu in now.gpus if not gpu.about["parent"]]),
        "look": list(now.findings) or [{"text": "Nothing needs attention."}],
        "gpus": Rows(row(gpu, now) for gpu in now.gpus),
    }


def chips(free: Sequence[str]) -> list[Cells]:
    """Links to the free GPUs, and how many more there are."""
    found = [
        link(label if len(free) > 3 else f"GPU {label}", gpu_address(label), "chip", f"GPU {label}")
        for label in free[:CHIPS]
    ]
    return [*found, *([text(f"+{len(free) - CHIPS}", "mut")] if len(free) > CHIPS else [])]


def others(gpus: Sequence[Gpu]) -> str:
    """The GPUs that are not free: allocated and idle, asleep and unknown ones; without any, whether all are in use."""

    def of(*states: GpuState) -> str:
        values = [state.value for state in states]
        return ", ".join(gpu.about["label"] for gpu in gpus if gpu.about["state"] in values)

    held = of(GpuState.HELD)
    unknown = of(GpuState.UNKNOWN, GpuState.STALE, GpuState.LOST, GpuState.UNREADABLE, GpuState.IDLE)
    asleep = of(GpuState.ASLEEP)
    kinds = (("allocated, idle", held), ("asleep", asleep), ("unknown", unknown))
    said = [f"{kind}: GPU {indexes}" for kind, indexes in kinds if indexes]
    if said:
        return "; ".join(said)
    used = sum(gpu.about["state"] in (GpuState.BUSY.value, GpuState.ALLOCATED.value) for gpu in gpus)
    return "" if not used else "all are in use" if used == len(gpus) else "the others are in use"


def sums(gpus: Sequence[Gpu]) -> Cells:
    """Headlines over the GPUs that report; where some do not, the line below says how many do."""

    def reporting(name: str) -> list[tuple[Gpu, float]]:
        return [(gpu, value) for gpu in gpus if (value := gpu.counted.get(name)) is not None]

    def some(found: Sequence[Any]) -> str:
        return f"of {len(found)} of {len(gpus)} GPUs" if 0 < len(found) < len(gpus) else ""

    busy = reporting("gpu.utilization")
    past = [gpu.mean for gpu in gpus if gpu.mean is not None]
    used_of = reporting("gpu.memory_used")
    sized = [(gpu, used) for gpu, used in used_of if gpu.about["memory_total"] is not None]
    counted = sized or used_of
    used, total = sum(value for _, value in counted), sum(gpu.about["memory_total"] for gpu, _ in sized)
    drawing = reporting("gpu.power")
    power = sum(value for _, value in drawing)
    limits = [gpu.about["power_limit"] for gpu, _ in drawing]
    limit = sum(limits) if None not in limits else None
    hottest = max(reporting("gpu.temperature"), key=lambda one: one[1], default=None)
    return {
        "utilization": shown(sum(value for _, value in busy) / len(busy)) if busy else None,
        "past": some(busy) or (f"{_percent(sum(past) / len(past))} over ten minutes" if past else ""),
        "memory": f"{_gib(used)} {f'/ {_gib(total)} ' if sized else ''}GiB" if counted else units.MISSING,
        "memory_share": some(counted) or (f"{_percent(used / total)} of the server" if total else ""),
        "power": power_text(power if drawing else None, limit, is_sum=True),
        "energy": some(drawing) or (f"{power * 0.024:.1f} kWh per day at this rate" if drawing else ""),
        "hottest": hottest[1] if hottest else None,
        "where": f"GPU {hottest[0].about['label']}" if hottest else "",
    }


def row(gpu: Gpu, now: Now) -> Cells:
    """The cells of a GPU."""
    about, values, runs = gpu.about, gpu.values, now.runs_of(gpu)
    state, used, total = about["state"], values.get("gpu.memory_used"), about["memory_total"]
    user = (runs or about["holders"] or [{"user": ""}])[0]["user"] or ""
    color = "warn" if state == GpuState.HELD.value else "mut" if state in _MUTED else ""
    return {
        "key": about["uuid"],
        "index": about["order"],
        "gpu": {
            "state": state, "title": GpuState(state).title, "text": about["label"], "before": "GPU ",
            "name": about["name"], "link": gpu_address(about["label"]), "lasts": state in ("lost", "unreadable"),
        },
        "spark": {"series": about["uuid"], "user": user, "color": color},
        "now": values.get("gpu.utilization"),
        "used": used,
        "memory": {
            "used": _bytes(used), "total": _bytes(total), "parts": memory_parts(about, used) if total else None,
        },
        "watts": values.get("gpu.power"),
        "power": power_text(values.get("gpu.power"), about["power_limit"]),
        "temperature": values.get("gpu.temperature"),
        "user": user or None,
        "who": who(about, runs, now.time),
    }  # fmt: skip


def who(about: Cells, runs: Sequence[Cells], time: float) -> list[Cells]:
    """The lines of a row: why it does not answer, its runs, other holders, and since when it does nothing."""
    state, lines = about["state"], []
    if state in _SILENT:
        lines.append(line(tag(silence(about), levels.OF_GPU[GpuState(state)])))
    for run in runs[:RUNS]:
        phase = run["phase"] if run["phase"] != "train" else ""
        name = link(run_name(run), run_address(run["id"]), "name")
        lines.append(line(person(run["user"]), name, tag(phase) if phase else None, css="who"))
        if far := place(run):
            lines.append(progress(run, far))
    if len(runs) > RUNS:
        lines.append(_more(about, f"and {len(runs) - RUNS} more runs"))
    ids = {run["id"] for run in runs}
    holders = [holder for holder in about["holders"] if holder["run"] not in ids]
    lines += [_holder(holder) for holder in holders[:HOLDERS]]
    if rest := sum(holder["count"] for holder in holders[HOLDERS:]):
        lines.append(_more(about, f"and {rest} more {'process' if rest == 1 else 'processes'}"))
    if state == GpuState.DIVIDED.value:
        lines.append(line(text(GpuState.DIVIDED.title, "mut")))
    elif about["processes_unknown"]:
        lines.append(line(text(f"processes unknown: {about['processes_unknown']}"), css="mut"))
    elif (about["unlisted"] or not (about["empty"] or state in _SILENT)) and not runs and not about["holders"]:
        lines.append(line(text("unknown: the driver lists no process"), css="mut"))
    if state in _TAGGED:
        for_long = "" if state == GpuState.ALLOCATED.value else idle_for(about, time)
        lines.append(line(tag(f"{GpuState(state).title}{for_long}", levels.OF_GPU[GpuState(state)], is_now=True)))
    elif not lines:
        lines.append(line(text(units.MISSING if state == "stale" else "no process", "mut")))
    return lines


def silence(about: Cells) -> str:
    """Why a GPU has no values of now, and for how long."""
    reason = about["reason"] or GpuState(about["state"]).title
    if about["state"] == GpuState.ASLEEP.value:
        return f"{GpuState.ASLEEP.title}: {reason}"
    age = about["age"]
    return f"stale {units.words(age)}: {reason}" if about["state"] == "stale" and age and age >= 1 else str(reason)


def power_text(power: float | None, limit: float | None, *, is_sum: bool = False) -> str:
    """`300 / 700 W`; of a sum beyond a kilowatt `4.21 / 5.6 kW`."""
    if power is None and not (limit and not is_sum):
        return units.MISSING
    watts = units.MISSING if power is None else f"{power:.0f}"
    if is_sum and power is not None and limit is not None and limit > 1000:
        return f"{power / 1000:.2f} / {limit / 1000:.1f} kW"
    return f"{watts} / {units.number(limit, Unit.WATTS)}" if limit else f"{watts} W"


def _holder(holder: Cells) -> Cells:
    """A holder of memory without a run: user and programs, or the pid of a process that cannot be seen."""
    if holder["user"] is None:
        return line(text(f"and {holder['count']} more processes"), css="mut")
    names = holder_names(holder)
    if holder["user"]:
        return line(person(holder["user"]), text(names, "name mut"), css="who")
    pid = f"pid {holder['pid']}" if holder["count"] == 1 else f"{holder['count']} processes"
    return line(text("unknown", "mut"), text(f"{names} ({pid})" if names else f"({pid})", "name mut"), css="who")


def _more(about: Cells, words: str) -> Cells:
    return line(link(words, gpu_address(about["label"]), "mut"))


def _percent(value: float) -> str:
    return units.number(value, Unit.RATIO)


def _bytes(value: float | None) -> str:
    return units.MISSING if value is None else units.number(value, Unit.BYTES)


def _gib(value: float) -> str:
    return f"{value / 2**30:.{0 if value >= 100 * 2**30 else 1}f}"


def _lines(now: Now, args: Args) -> dict[str, tuple[str, str]]:
    del args
    return {gpu.about["uuid"]: (gpu.about["uuid"], SPARK) for gpu in now.gpus}


PAGE = Page("fleet", "Fleet", layout, live, series=_lines, has_past=True, without_gpus="none")
