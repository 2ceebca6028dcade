"""One GPU: its numbers now, its metrics on one time axis with the epochs behind them, its memory and processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpumon import units
from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.video import TITLES as VIDEO
from gpumon.analysis.whereabouts import TITLE
from gpumon.history.windows import USUAL, WINDOWS
from gpumon.metrics import Unit
from gpumon.panels import GPU_PANELS
from gpumon_web import levels
from gpumon_web.holders import by_user, idle_for, memory_parts
from gpumon_web.page import Args, Cells, Column, Gpu, Now, Page, Rows
from gpumon_web.tokens import bar, gpu_address, link, run_address, run_name, text

if TYPE_CHECKING:
    from dash.development.base_component import Component

BUTTONS = (*((str(one.seconds), one.title) for one in WINDOWS if one.has_button), ("all", "All"))
"""Windows of the figure."""
NAMED = 3
"""Holders named below the memory."""
UNLISTED = "The driver lists no process, but there may be one."

COLUMNS = (
    Column("user", "User", "person", is_head=True),
    Column("name", "Program", "text", css="mono"),
    Column("pid", "PID", "count"),
    Column("kind", "Kind"),
    Column("memory", "GPU memory", "bytes"),
    Column("sm", "Busy", "percent", "Share of time in which its kernels ran"),
    Column("video", "", "percent", each_of="video_titles"),
    Column("cpu", "CPU", "percent", "Of one core"),
    Column("started", "Running for", "elapsed", sorts_by="running"),
    Column("where", "", each_of="where_titles"),
    Column("run", "Run", "link", sorts_by="run_name"),
)


def layout() -> Component:
    """The head, five headlines, the figure, the division of memory, and the processes."""
    from dash import html

    from gpumon_web.parts import aria, bound, card, choice, figure, headline, headlines, shown_if, table

    head = [
        bound("title", "text", html.H1), bound("state", "standing"), bound("model", "text", className="mut"),
        bound("others", "places", html.Nav, className="others", **aria(label="GPUs")),
    ]  # fmt: skip
    numbers = headlines(
        headline("Utilization", "utilization", "percent", "activity"),
        headline("Memory", "memory", "text", "holders", extra="memory_bar"),
        headline("Power", "power", "text", "power_share"),
        headline("Temperature", "temperature", "celsius"),
        headline("Clock", "clock", "megahertz", "idle", old_below=""),
        dims="is_stale",
    )
    over_time = card(
        "Over time",
        figure("api/gpu?gpu=", "uuid", "outline", "Metrics of this GPU over time"),
        bound("missing", "text", html.P, className="mut missing"),
        tools=[choice("window", "Window", BUTTONS, str(USUAL.seconds))],
    )
    processes = table("processes", "Processes", COLUMNS, "memory", down=True, empty_from="no_processes")
    return html.Div(
        [
            html.Div(head, className="head"),
            shown_if("uuid", numbers),
            shown_if("look", card("Attention", bound("look", "notes", html.Ul, className="look", old=""))),
            shown_if("uuid", over_time),
            shown_if("divided", card("Memory", bound("divided", "parts", html.Div, className="split"))),
            shown_if("uuid", card("Processes", processes, bound("notice", "text", html.P, className="mut missing"))),
        ]
    )


def live(now: Now, args: Args) -> Cells:
    """All values of the GPU that the address names by UUID or index, of the first where it names none."""
    gpu = find(now.gpus, args.get("id", ""))
    values = {"others": [place(one, gpu) for one in now.gpus]}
    if gpu is None:
        title = "No such GPU" if now.gpus else "No GPU"
        return {**dict.fromkeys(_NAMES), **values, "title": title, "processes": Rows()}
    about, state = gpu.about, GpuState(gpu.about["state"])
    since = about["since"]
    runs = now.runs_of(gpu)
    return {
        **values,
        **numbers(gpu),
        "title": f"GPU {about['label']}",
        "model": about["name"],
        "uuid": about["uuid"],
        "is_stale": state is GpuState.STALE,
        "state": {
            "state": state.value, "text": about["reason"] or state.title, "level": levels.OF_GPU[state],
            "lasts": state in (GpuState.LOST, GpuState.UNREADABLE),
        },
        "idle": about["held_clocks"] if since is None else f"idle{idle_for(about, now.time)}",
        "outline": json.dumps([[run["id"], run["state"], run["epoch"], run["phase"]] for run in runs]) if runs else "",
        "look": list(now.findings) if len(now.gpus) == 1 else [],
        "missing": absent(about["missing"]),
        "divided": divided(about),
        "no_processes": no_processes(about, now),
        "notice": f"Note: {now.notice}." if now.notice else "",
        "video_titles": list(VIDEO) if any(one["encoder"] or one["decoder"] for one in about["processes"]) else [],
        "where_titles": [TITLE] if any(one["where"] for one in about["processes"]) else [],
        "processes": Rows(process(one, now.runs) for one in about["processes"]),
    }  # fmt: skip


def find(gpus: Sequence[Gpu], named: str) -> Gpu | None:
    """The GPU of a UUID or a label; the first one where `named` is empty."""
    if not named:
        return gpus[0] if gpus else None
    return next((gpu for gpu in gpus if named in (gpu.about["uuid"], gpu.about["label"])), None)


def place(gpu: Gpu, shown: Gpu | None) -> Cells:
    """A GPU among the others."""
    state = GpuState(gpu.about["state"])
    return {
        "link": gpu_address(gpu.about["label"]), "text": gpu.about["label"], "name": f"GPU {gpu.about['label']}",
        "state": state.value, "title": state.title, "lasts": state in (GpuState.LOST, GpuState.UNREADABLE),
        "is_shown": gpu is shown,
    }  # fmt: skip


def numbers(gpu: Gpu) -> Cells:
    """The headlines."""
    about, values = gpu.about, gpu.values
    used, total, power = values.get("gpu.memory_used"), about["memory_total"], values.get("gpu.power")
    limit, activity = about["power_limit"], values.get("gpu.memory_utilization")
    held = [f"{name} {units.number(size, Unit.BYTES)}" for _, name, size in by_user(about["holders"])]
    more = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
    nobody = {"text": "no process", "old": "holder unknown"} if about["empty"] else "holder unknown"
    return {
        "utilization": values.get("gpu.utilization"),
        "activity": "" if activity is None else f"{units.number(activity, Unit.RATIO)} memory activity",
        "memory": "shared with the host" if about["shares_memory"] else of_total(used, total),
        "memory_bar": [bar(*memory_parts(about, used))] if total else [],
        "holders": ", ".join(held[:NAMED]) + more if held else nobody,
        "power": units.MISSING if power is None else f"{power:.0f} {f'/ {limit:.0f} W' if limit else 'W'}",
        "power_share": f"{units.number(power / limit, Unit.RATIO)} of its limit" if limit and power is not None else "",
        "temperature": values.get("gpu.temperature"),
        "clock": values.get("gpu.clock_sm"),
    }


def of_total(used: float | None, total: float | None) -> str:
    """`72.0 / 80.0 GiB`."""
    given = [float("nan") if value is None else value for value in (used, total)]
    return units.of_total(*given).replace("/", " / ")


def absent(missing: Mapping[str, str]) -> str:
    """The metrics that are not available, by their reason: `Not available: fan (the driver does not support it).`"""
    reasons: dict[str, list[str]] = {}
    for name, reason in missing.items():
        reasons.setdefault(reason, []).append(name.removeprefix("gpu.").replace("_", " "))
    said = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    return f"Not available: {said}." if said else ""


def divided(about: Cells) -> list[Cells]:
    """The parts of its memory: title, size, share and color; empty where the driver does not tell."""
    total, found = about["memory_total"], []
    for part in about["split"]:
        if part["bytes"] is not None and total:
            color, _, opacity = part["color"][1:].partition("/")
            found.append(
                {
                    "title": part["title"], "size": units.number(part["bytes"], Unit.BYTES),
                    "share": round(part["bytes"] / total, 3), "color": color, "opacity": opacity or "1",
                }
            )  # fmt: skip
    return found


def no_processes(about: Cells, now: Now) -> str | Cells:
    """The sentence in place of processes: none is there, none is listed, or they are unknown."""
    if about["state"] == GpuState.DIVIDED.value:
        return "Its processes are on its MIG instances."
    if about["processes_unknown"]:
        if not now.processes_known:
            return "This recording has no process data."
        return f"The process list is unknown: {about['processes_unknown']}."
    if about["unlisted"]:
        return "The driver lists no process, but memory is in use: its holder is unknown."
    return {"text": "No process uses this GPU.", "old": UNLISTED} if about["empty"] else UNLISTED


def process(one: Cells, runs: Mapping[str, Cells]) -> Cells:
    """The cells of a process."""
    run = one["run"]
    name = run_name(runs[run]) if run in runs else run
    return {
        **one,
        "key": str(one["pid"]),
        "kind": one["kind"] or units.MISSING,
        "running": None if one["started"] is None else -one["started"],
        "run": link(name, run_address(run)) if run else text(units.MISSING),
        "run_name": name,
        "video": dict(zip(VIDEO, (one["encoder"], one["decoder"]), strict=True)),
        "where": {TITLE: one["where"] or units.MISSING},
    }


def _lines(now: Now, args: Args) -> dict[str, tuple[str, str]]:
    gpu = find(now.gpus, args.get("id", ""))
    return {} if gpu is None else {panel.metric.name: (gpu.about["uuid"], panel.metric.name) for panel in GPU_PANELS}


_NAMES = (
    "state", "model", "uuid", "is_stale", "utilization", "activity", "memory", "memory_bar", "holders", "power",
    "power_share", "temperature", "clock", "idle", "outline", "look", "missing", "divided", "no_processes",
    "video_titles", "where_titles", "notice",
)  # fmt: skip
"""Values that are none where no GPU is shown."""

PAGE = Page("gpu", "GPU", layout, live, series=_lines, args={"id": ""}, without_gpus="none")
