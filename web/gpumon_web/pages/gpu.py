"""The page of one GPU: its users, health, metrics over time with the epochs of its runs, and processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.memory import IN_USE, PARTS, breakdown_of, known_parts
from gpumon.analysis.processes import TITLE, job_or_container
from gpumon.analysis.processes import TITLES as VIDEO_TITLES
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.columns import PROCESS_BY_KEY
from gpumon.model.device import Device
from gpumon.model.metrics import Availability, Unit, title_within
from gpumon.model.panels import GPU_PANELS
from gpumon.model.process import Process
from gpumon.model.remedies import missing_reason
from gpumon.reports.figures.run_chart import MEMORY_COLORS
from gpumon.reports.run_json import nullable
from gpumon.storage.history.buckets import DEFAULT_WINDOW, WINDOWS
from gpumon_web.charts.gpu_chart import USUAL as USUAL_PANELS
from gpumon_web.components import levels
from gpumon_web.components.fleet_summary import host_lines
from gpumon_web.components.gpu_rows import SILENT
from gpumon_web.components.holders import (
    by_user,
    holder_pieces,
    holders_without_run,
    idle_for,
    memory_parts,
    unexplained_title,
)
from gpumon_web.components.machine import Gpu, LiveRun, Now, coarse
from gpumon_web.components.page import Args, Cells, Column, Page, Rows, StoredSubject, table_column
from gpumon_web.components.tokens import (
    bar,
    gpu_address,
    line,
    link,
    person,
    progress,
    run_address,
    run_name,
    run_position,
    run_state,
    text,
)
from gpumon_web.health import attention
from gpumon_web.stored.holder_strips import last_day

if TYPE_CHECKING:
    from dash.development.base_component import Component

BUTTONS = (*((str(window.seconds), window.title) for window in WINDOWS if window.has_button), ("all", "All"))
"""Time windows of the chart."""
FREE = "free"
UNUSED_PARTS = (FREE, next(part.title for part in PARTS if part.name == "driver"))
"""Parts of memory that no process uses."""
REPORTED = tuple(part.title for part in PARTS[:3])
"""Parts of memory reported by the framework of a run; the last one is the part that it does not report."""
REST = "rest"
"""Color role of memory without a known holder, here and on the fleet page."""
MAX_NAMED = 3
"""Most holders named below the memory."""
_NO_FINDINGS_STATE = "The current state is unknown."
"""Replaces the findings when data stops coming."""
CHARTED = frozenset(panel.metric.name for panel in GPU_PANELS)
UNLISTED = "The driver lists no process, but there may be one."

COLUMNS = (
    table_column(PROCESS_BY_KEY["user"], "person", is_head=True, css=""),
    table_column(PROCESS_BY_KEY["name"], css="mono c-program"),
    table_column(PROCESS_BY_KEY["pid"], css=""),
    table_column(PROCESS_BY_KEY["kind"], css=""),
    table_column(PROCESS_BY_KEY["memory_used"], key="memory", css=""),
    table_column(PROCESS_BY_KEY["sm_utilization"], key="sm", csv="busy_ratio", css=""),
    Column("video", "", "percent", each_of="video_titles"),
    table_column(PROCESS_BY_KEY["cpu_utilization"], key="cpu", css=""),
    table_column(PROCESS_BY_KEY["started"], "elapsed", sorts_by="running", css="c-words"),
    Column("where", "", each_of="where_titles"),
    table_column(PROCESS_BY_KEY["run"], "link", sorts_by="run_name", css=""),
)


def layout() -> Component:
    """Create the layout: holders and health side by side, chart, and processes."""
    from dash import html

    from gpumon_web.components.layout import (
        aria,
        bound,
        card,
        choice,
        data,
        download,
        figure,
        hidden_if,
        shown_if,
        table,
    )

    head = [
        bound("title", "text", html.H1), bound("state", "standing"), bound("model", "text", className="mut"),
        bound("idle", "text", className="mut", old=""), bound("others", "places", html.Nav, className="others",
                                                              **aria(label="GPUs")),
    ]  # fmt: skip
    memory = html.Div(
        [
            html.B("Memory"), bound("memory", "text"), bound("memory_free", "text", className="mut end", old=""),
        ], className="memory",
    )  # fmt: skip
    hatch = html.Span([html.I(className="k-unseen"), "not seen"], className="key")
    ends = html.Div([html.Span("Last 24 hours, hour by hour"), hatch, html.Span("now")], className="ends mut")
    who = card(
        "Who is on it",
        html.Div(
            [
                bound("who", "rich", html.Div, className="holding"),
                memory,
                shown_if("divided", bound("divided", "parts", html.Div, className="split")),
                hidden_if("divided", bound("memory_bar", "rich", html.Div)),
                bound("holders", "text", html.P, className="mut below"),
                shown_if("day", html.Div([ends, bound("last_day", "day", html.Div)], className="lastday")),
            ],
            className="inside",
        ),
        has_head=False,
    )
    health = card("Health", bound("health", "checks", html.Ul, className="checks"),
                  tools=[bound("attention", "text", className="mut note")])  # fmt: skip
    over_time = card(
        "Course",
        figure("api/gpu?gpu=", "uuid", "outline", "Metrics of this GPU over time", USUAL_PANELS, "state"),
        bound("missing", "text", html.P, className="mut missing"),
        tools=[choice("window", "Window", BUTTONS, str(DEFAULT_WINDOW.seconds))],
    )
    processes = table("processes", "Processes", COLUMNS, "memory", empty_from="no_processes",
                      loading="Looking for processes …")  # fmt: skip
    return html.Div(
        [
            html.Div(head, className="head"),
            shown_if("gone", bound("gone", "rich", html.Div, className="empty")),
            shown_if("uuid", html.Div([who, health], className="beside", **data(dim="is_stale"))),
            shown_if(
                "host",
                html.Section(
                    bound("host", "rich", html.Div, className="hostline"), className="card", **aria(label="Host")
                ),
            ),
            shown_if(
                "look", card("Attention", bound("look", "notes", html.Ul, className="look", old=_NO_FINDINGS_STATE))
            ),
            shown_if("uuid", over_time),
            shown_if(
                "uuid",
                card(
                    "Processes",
                    processes,
                    bound("notice", "text", html.P, className="mut missing"),
                    tools=[download("processes", "Processes")],
                ),
            ),
        ]
    )


def live(now: Now, args: Args) -> Cells:
    """Compute the values of the GPU in the address (UUID or label); without one, of the first GPU."""
    gpu = find_gpu(now.gpus, args.get("id", ""))
    common = {"others": [gpu_link(other, gpu) for other in now.gpus]}
    if gpu is None:
        title = "No such GPU" if now.gpus else "No GPU"
        gone = _no_gpu_lines(args.get("id", "")) if now.gpus else []
        return {**dict.fromkeys(_VALUE_NAMES), **common, "title": title, "gone": gone, "processes": Rows()}
    state, processes, runs = gpu.state, gpu.status.processes, now.runs_of(gpu)
    return {
        **common,
        "gone": [],
        **memory_values(gpu),
        "who": holder_lines(gpu, runs),
        "health": gpu.health,
        "attention": {"text": attention(gpu.health), "old": "as last reported"},
        "last_day": [gpu.uuid],
        "title": f"GPU {gpu.label}",
        "model": gpu.name,
        "uuid": gpu.uuid,
        "tab": tab_title(gpu, runs),
        "is_stale": state is GpuState.STALE,
        "state": {
            "state": state.value, "text": gpu.reason or gpu.word, "level": levels.GPU_LEVELS[state],
            "lasts": gpu.is_lasting,
            "silent": {"title": state.title, "age": gpu.age} if state in SILENT else None,
        },
        "idle": "" if gpu.status.since is None else f"idle{idle_for(gpu, now.time)}",
        "outline": json.dumps([[run["id"], run["state"], run["epoch"], run["phase"]] for run in runs]) if runs else "",
        "look": list(now.findings if len(now.gpus) == 1 else gpu.notes),
        "host": host_lines(now.host, {"hottest": None, "memory_share": ""}) if len(now.gpus) == 1 else [],
        "missing": missing_text(gpu.sample.device),
        "divided": [] if state in SILENT and state is not GpuState.STALE else memory_split(gpu),
        "no_processes": no_processes_text(gpu, now),
        "notice": f"Note: {now.notice}." if now.notice else "",
        "video_titles": list(VIDEO_TITLES) if any(map(_uses_video, processes)) else [],
        "where_titles": [TITLE] if any(map(job_or_container, processes)) else [],
        "processes": Rows(process_cells(process, gpu.run_of(process), now.runs) for process in processes),
    }  # fmt: skip


def _no_gpu_lines(gpu_id: str) -> list[Cells]:
    """Return a sentence about a GPU that does not exist, and a link to all GPUs."""
    sentence = f"No GPU of this server has the index or UUID {clean(gpu_id, 60)}."
    return [
        line(text(f"{sentence} It may have been taken out, or belong to another server.")),
        line(link("All GPUs", "#/fleet")),
    ]


def tab_title(gpu: Gpu, runs: Sequence[LiveRun]) -> Cells:
    """Return the title of the browser tab: `GPU 2 busy, llama-8b-sft`; when data stops coming, only lasting states."""
    name, word = f"GPU {gpu.label}", gpu.word
    run_text = f", {run_name(runs[0])}" if len(runs) == 1 and runs[0]["state"] == "running" else ""
    return {"text": f"{name} {word}{run_text}", "old": f"{name} {word}" if gpu.is_lasting else name}


def find_gpu(gpus: Sequence[Gpu], gpu_id: str) -> Gpu | None:
    """Find a GPU by UUID or label; the first one if `gpu_id` is empty."""
    if not gpu_id:
        return gpus[0] if gpus else None
    return next((gpu for gpu in gpus if gpu_id in (gpu.uuid, gpu.label)), None)


def gpu_link(gpu: Gpu, shown: Gpu | None) -> Cells:
    """Return the link to a GPU in the list of all GPUs."""
    return {
        "link": gpu_address(gpu.label), "text": gpu.label, "name": f"GPU {gpu.label}",
        "state": gpu.state.value, "title": gpu.word, "lasts": gpu.is_lasting,
        "is_shown": gpu is shown,
    }  # fmt: skip


def holder_lines(gpu: Gpu, runs: Sequence[LiveRun]) -> list[Cells]:
    """Return a line for each run on the GPU with its progress, and for each holder without a run."""
    lines = []
    for run in runs[:MAX_NAMED]:
        ranks = text(f"{run['ranks']} ranks", "mut") if run["ranks"] else None
        phase = text(run["phase"], "mut") if run["phase"] else None
        position = run_position(run)
        lines.append(line(person(run["user"]), link(run_name(run), run_address(run["id"]), "mono name"), ranks, phase,
                          None if run["state"] == "running" else run_state(run["state"]), css="main"))  # fmt: skip
        if position:
            lines.append(progress(run, position))
    if len(runs) > MAX_NAMED:
        lines.append(line(text(f"and {units.counted(len(runs) - MAX_NAMED, 'more run')}", "mut"), css="main"))
    names = {run["user"] for run in runs}
    others = [holder for holder in holders_without_run(gpu.holders, ()) if not holder.run and holder.user not in names]
    for holder in others[:MAX_NAMED]:
        lines.append(line(*holder_pieces(holder), css="main"))
    if not lines:
        is_divided = gpu.state is GpuState.DIVIDED
        is_empty = gpu.status.is_empty and not is_divided
        words = "No process is on it." if is_empty else "Who is on it is not known."
        sentence = "Its instances have the work." if is_divided else words
        lines.append(line(text(sentence, "mut", is_now=is_empty)))
    return lines


def memory_values(gpu: Gpu) -> Cells:
    """Return the memory of the GPU: used, free, and how much each holder has."""
    used, total, breakdown = gpu.values.get("gpu.memory_used"), gpu.memory_total, memory_breakdown(gpu)
    user_texts = [f"{name} {units.number(size, Unit.BYTES)}" for _, name, size in by_user(gpu.holders)]
    more = f" and {len(user_texts) - MAX_NAMED} more" if len(user_texts) > MAX_NAMED else ""
    unknown_holder = {"text": "", "old": "holder unknown"} if gpu.status.is_empty else "holder unknown"
    reported_free = next((part.size for part in breakdown if part.title == FREE), None)
    free_bytes = reported_free if reported_free is not None or used is None or not total else max(0.0, total - used)
    used_text = used_of_total(used, total)
    is_stale, last_text = gpu.state in SILENT and used is not None, f"{used_text} as last reported"
    free = "" if free_bytes is None or gpu.state in SILENT else f"{units.number(free_bytes, Unit.BYTES)} free"
    return {
        "memory": "shared with the host"
        if gpu.sample.device.missing.get("gpu.memory_used") is Availability.SHARED_WITH_HOST
        else {"text": last_text if is_stale else used_text, "old": last_text},
        "memory_free": free,
        "memory_bar": [bar(*memory_parts(gpu.holders, total, used))] if total else [],
        "holders": unknown_holder if not user_texts else "" if breakdown else ", ".join(user_texts[:MAX_NAMED]) + more,
    }


def used_of_total(used: float | None, total: float | None) -> str:
    """Format used and total memory: `72.0 / 80.0 GiB`."""
    values = [float("nan") if value is None else value for value in (used, total)]
    return units.of_total(*values).replace("/", " / ")


def missing_text(device: Device) -> str:
    """Return the unavailable metrics with their reasons: `Not available: DRAM activity (not in the recording).`"""
    reasons: dict[str, list[str]] = {}
    for name in sorted(device.missing):
        if name in CHARTED:
            reasons.setdefault(missing_reason(device, name), []).append(title_within(name))
    groups = [f"{', '.join(names)} ({reason})" for reason, names in reasons.items()]
    return f"Not available: {'; '.join(groups)}." if groups else ""


class MemoryShare(NamedTuple):
    """A part of the memory of a GPU."""

    title: str
    size: float | None
    """Bytes."""
    color: str


def memory_breakdown(gpu: Gpu) -> list[MemoryShare]:
    """Return the parts of a GPU's memory; empty if the driver does not report it."""
    breakdown = breakdown_of(gpu.sample)
    colors = dict(zip((part.name for part in PARTS), MEMORY_COLORS, strict=True))
    return [
        MemoryShare(part.title, coarse(value), colors[part.name])
        for part, value in (known_parts(breakdown) if breakdown else ())
    ]


def memory_split(gpu: Gpu) -> list[Cells]:
    """Return the parts of the GPU's memory: title, size, share and color; empty if the driver does not report it.

    Used memory is divided by user, in their colors, as on the fleet page. If all processes belong to one run, it is
    divided further by what the run's framework reports. Memory without a known holder is gray.
    """
    total, holders = gpu.memory_total, gpu.holders
    if not total:
        return []
    parts = [(part, part.size) for part in memory_breakdown(gpu) if part.size is not None]
    user = holders[0].user or "" if holders else ""
    is_of_one = len({(holder.user, holder.run) for holder in holders}) == 1
    reported = [(part, size) for part, size in parts if is_of_one and part.title in REPORTED and size]
    if not any(part.title in REPORTED[:2] for part, _ in reported):
        reported = []
    used_sizes = [size for part, size in parts if part.title not in UNUSED_PARTS]
    rows = []
    for part, size in reported:
        row = _memory_part(total, part.title, size, user, "" if user else REST)
        rows.append({**row, "opacity": part.color.partition("/")[2] or "1"})
    if used_sizes:
        used = sum(used_sizes)
        rest = used - sum(size for _, size in reported) if reported else None
        rows += [_memory_part(total, *row) for row in _memory_by_user(gpu, used, rest)]
    for part, size in parts:
        if part.title not in UNUSED_PARTS or not (size or part.title == FREE):
            continue
        color, _, opacity = part.color[1:].partition("/")
        title = f"{FREE} when last seen" if part.title == FREE and gpu.state in SILENT else part.title
        rows.append({**_memory_part(total, title, size, "", color), "opacity": opacity or "1",
                      **({"old": f"{FREE} when last seen"} if part.title == FREE else {})})  # fmt: skip
    return rows


def _memory_by_user(gpu: Gpu, used: float, unreported: float | None) -> list[tuple[str, float, str, str]]:
    """Return used memory by user: title, bytes, user and color of each part.

    `unreported`: memory that the framework does not report, on a GPU used by a single run; None if it reports none.
    """
    users = by_user(gpu.holders)
    rest = max(0.0, used - sum(held for _, _, held in users))
    if unreported is not None:
        rest = min(unreported, rest)
        users = [(user, name, unreported - rest) for user, name, _ in users[:1]]
    entries = [(name, held, user, "" if user else REST) for user, name, held in users]
    title = unexplained_title(gpu.holders) if users else IN_USE
    return [entry for entry in (*entries, (title, rest, "", REST)) if entry[1]] or (
        [] if unreported == 0 else [(IN_USE, 0.0, "", REST)]
    )


def _memory_part(total: float, title: str, size: float, user: str, color: str) -> Cells:
    return {"title": title, "size": units.number(size, Unit.BYTES), "share": round(size / total, 3), "color": color,
            "user": user, "opacity": "1"}  # fmt: skip


def no_processes_text(gpu: Gpu, now: Now) -> str | Cells:
    """Return the sentence shown without processes: there are none, none are listed, or they are unknown."""
    if gpu.state is GpuState.DIVIDED:
        return "Its processes are on its instances."
    if gpu.processes_unknown:
        if not now.processes_known:
            return "This recording has no process data."
        return f"The process list is unknown: {gpu.processes_unknown}."
    if gpu.state in SILENT:
        return f"The process list is unknown: {gpu.reason or 'the GPU does not answer'}."
    if gpu.status.is_unlisted:
        return "The driver lists no process, but memory is in use: its holder is unknown."
    return {"text": "No process uses this GPU.", "old": UNLISTED} if gpu.status.is_empty else UNLISTED


def _uses_video(process: Process) -> bool:
    return process.encoder_utilization > 0 or process.decoder_utilization > 0


def process_cells(process: Process, run: str | None, runs: Mapping[str, LiveRun]) -> Cells:
    """Return the cells of a process, never with its command line; `run` is the id of its run."""
    name = run_name(runs[run]) if run is not None and run in runs else run
    started = nullable(process.started)
    video = (process.encoder_utilization, process.decoder_utilization)
    return {
        "key": str(process.pid),
        "pid": process.pid,
        "user": process.user,
        "name": process.name,
        "kind": process.kind or units.MISSING,
        "memory": nullable(process.memory_used),
        "sm": nullable(round(process.sm_utilization, 2)),
        "cpu": nullable(round(process.cpu_utilization, 1)),
        "started": started,
        "running": None if started is None else -started,
        "run": link(name or run, run_address(run)) if run else text(units.MISSING),
        "run_name": name,
        "video": {title: nullable(round(value, 2)) for title, value in zip(VIDEO_TITLES, video, strict=True)},
        "where": {TITLE: job_or_container(process) or units.MISSING},
    }


def _chart_lines(now: Now, args: Args) -> dict[str, tuple[str, str]]:
    gpu = find_gpu(now.gpus, args.get("id", ""))
    return {} if gpu is None else {panel.metric.name: (gpu.uuid, panel.metric.name) for panel in GPU_PANELS}


_VALUE_NAMES = (
    "state", "model", "uuid", "is_stale", "who", "health", "attention", "memory", "memory_free", "memory_bar",
    "holders", "idle", "outline", "look", "host", "missing", "divided", "no_processes", "video_titles", "where_titles",
    "notice", "tab", "last_day",
)  # fmt: skip
"""Values that are None if no GPU is shown."""

PAGE = Page(
    "gpu",
    "GPU",
    layout,
    live,
    last_day,
    kept_of=StoredSubject.DAY,
    series=_chart_lines,
    args={"id": ""},
    without_gpus="none",
)
