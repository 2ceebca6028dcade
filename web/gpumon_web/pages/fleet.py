"""The fleet page: free, idle and own GPUs, a row for each GPU or group of GPUs, and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_state import GpuState
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon.storage.history.buckets import DEFAULT_WINDOW
from gpumon_web.components import levels
from gpumon_web.components.fleet_summary import (
    free_count,
    gpu_chips,
    gpu_sums,
    host_lines,
    idle_count,
    idle_text,
    other_gpus_text,
    own_gpus,
    unknown_idle_text,
)
from gpumon_web.components.gpu_rows import (
    LARGE,
    group_label,
    group_state,
    group_sums,
    groups,
    holder_lines,
    power_text,
    search_text,
    users_of,
)
from gpumon_web.components.holders import memory_parts
from gpumon_web.components.machine import LASTING, Gpu, Now
from gpumon_web.components.page import Args, Cells, Page, Rows, StoredSubject, table_column
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
)
from gpumon_web.feed import SPARK
from gpumon_web.health import nothing_wrong
from gpumon_web.stored.holder_strips import last_day

if TYPE_CHECKING:
    from dash.development.base_component import Component

_USUAL = (GpuState.BUSY, GpuState.FREE, GpuState.IDLE, GpuState.ALLOCATED)
_MUTED = frozenset((GpuState.FREE, GpuState.STALE, GpuState.LOST, GpuState.ASLEEP))
_DENSE = 8

_USED, _MEMORY, _POWER = (GPU_BY_KEY[key] for key in ("utilization", "memory_used", "power"))
COLUMNS = (
    table_column(GPU_BY_KEY["gpu"], "state", css="c-gpu", sorts_by="index", is_head=True),
    table_column(GPU_BY_KEY["day"], "day", sort=False, css="c-day", needs="day"),
    table_column(GPU_BY_KEY["history"], "spark", key="spark", sort=False, css="c-spark")._replace(
        title=DEFAULT_WINDOW.title.capitalize()
    ),
    table_column(_USED, key="now", css="c-now", small_unit="big", csv=_USED.file_name),
    table_column(_MEMORY, "memory", key="memory", css="c-memory")._replace(is_number=False),
    table_column(_POWER, "text", css="c-power", small_unit="unit"),
    table_column(GPU_BY_KEY["temperature"], css="c-temp", small_unit="unit"),
    table_column(GPU_BY_KEY["who"], "rich", css="c-who", sorts_by="user", csv_list="users"),
)
ORDERS = (("mine", "Mine first"), ("gpu", "GPU"), ("free", "Free first"), ("-now", "Utilization"))
"""Sort orders: by a column, or rows with a tag first."""
SHOWS = (("", "All"), ("mine", "Mine"), ("free", "Free"), ("held", "Allocated, idle"))
"""Filters of rows by tag."""


def layout() -> Component:
    """Create the layout: summary, map (on a large machine), filters, table of GPUs, and findings."""
    from dash import html

    from gpumon_web.components.layout import (
        aria,
        bound,
        card,
        download,
        headline,
        headlines,
        search,
        shown_if,
        strip_key,
        table,
    )

    grouping = bound("grouped", "filters", html.Div, className="seg grouping", role="group", **aria(label="Groups"))
    tools = [
        bound("orders", "filters", html.Div, className="seg", role="group", **aria(label="Order")),
        bound("shows", "filters", html.Div, className="seg", role="group", **aria(label="Rows")),
        shown_if("grouped", grouping),
        shown_if("day", strip_key("key end")),
        html.Div(
            [
                search("gpus", "Search GPU, user, run", "Filter GPUs by number, user, run and state"),
                download("gpus", "GPUs", key="uuid"),
            ],
            className="sought",
        ),
    ]
    return html.Div(
        [
            html.H1("Fleet", className="sr"),
            html.Section(
                [
                    headlines(
                        headline("Free now", "free", "text", "others", "chips", is_first=True, old="–"),
                        headline("Allocated, idle", "idle", "text", "idle_below", "idle_chips", old="–"),
                        headline("Mine", "mine", "mine"),
                        headline("Utilization", "utilization", "percent", "past"),
                        headline("Power", "power", "text", "energy"),
                        css="one",
                    ),
                    bound("host", "rich", html.Div, className="hostline"),
                ],
                className="card summary", **aria(label="Summary"),
            ),
            shown_if("map", card("Map", bound("map", "tiles", html.Div, className="tiles"), titled="map_title",
                                 tools=[html.Span("color: who holds it; height: utilization", className="mut note")])),
            html.Div(tools, className="toolbar"),
            card(
                "GPUs",
                table("gpus", "GPUs", COLUMNS, "gpu", css="fleet", empty="No known GPU.",
                      loading="Looking for GPUs …", no_match="No matching GPU.",
                      dense_beyond=_DENSE, within="groups"),
                has_head=False,
            ),
            card("Attention", bound("look", "notes", html.Ul, "The current state is unknown.", className="look")),
        ]
    )  # fmt: skip


def live(now: Now, args: Args) -> Cells:
    """Compute the summary, filters, rows and findings."""
    del args
    # A GPU divided by MIG cannot be used itself, only its instances.
    usable = [gpu for gpu in now.gpus if gpu.state is not GpuState.DIVIDED]
    free = [gpu for gpu in usable if gpu.state is GpuState.FREE]
    idle = [gpu for gpu in usable if gpu.state is GpuState.HELD]
    members_by_key = groups(now)
    group_keys = {gpu.uuid: key for key, gpus in members_by_key.items() for gpu in gpus}
    is_large = len(usable) > LARGE
    count = free_count(usable)
    totals = gpu_sums([gpu for gpu in now.gpus if not gpu.sample.device.parent])
    answering = [gpu.health for gpu in now.gpus if not gpu.reason]
    return {
        "free": f"{count} of {len(usable)}" if count != units.MISSING else count,
        "tab": {"text": f"{count} of {len(usable)} free", "old": ""} if count != units.MISSING else None,
        "others": other_gpus_text(now, usable),
        "chips": gpu_chips(free),
        "idle": idle_count(usable),
        "idle_below": "; ".join(filter(None, (idle_text(idle, now), unknown_idle_text(usable)))),
        "idle_chips": gpu_chips(idle, "chip warn"),
        "mine": own_gpus(now) if usable else None,
        **{name: totals[name] for name in ("utilization", "past", "power", "energy")},
        "host": host_lines(now.host, totals),
        "map": "gpus" if is_large else "",
        "map_title": f"{len(usable)} GPUs" if is_large else "",
        "orders": [{"arg": "sort", "value": value, "text": words} for value, words in ORDERS],
        "shows": [
            {"arg": "show", "value": value, "text": words, "count": _count(value, usable)}
            for value, words in SHOWS
        ],
        "grouped": [{"arg": "by", "value": value, "text": words}
                    for value, words in (("", "By holder" if is_large else "Runs grouped"), ("each", "Each GPU"))]
        if members_by_key else [],
        "look": list(now.findings) or [{"text": nothing_wrong(answering, now.not_judged)}],
        "gpus": Rows({**row(gpu, now), "in": group_keys.get(gpu.uuid, "")} for gpu in now.gpus),
        "groups": Rows(group_row(key, gpus, now) for key, gpus in members_by_key.items()),
    }  # fmt: skip


def _count(value: str, usable: Sequence[Gpu]) -> int | str | None:
    """Return the number of rows that match a filter, as in the summary; None for a filter without a number."""
    counts: Mapping[str, int | str] = {"": len(usable), "free": free_count(usable), "held": idle_count(usable)}
    return counts.get(value)


def group_row(key: str, members: Sequence[Gpu], now: Now) -> Cells:
    """Return the row of a group of GPUs, which expands to their rows."""
    state, first = group_state(members), members[0]
    kind = key.partition(" ")[0]
    runs = now.runs_of(first) if kind == "run" else []
    lines = [] if runs else holder_lines(first, [], now.time)
    if kind == "free":
        waits = [gpu.status.since.time for gpu in members if gpu.status.since is not None]
        duration = (
            f"at least {units.long_duration(now.time - max(waits))}" if waits and now.time - max(waits) >= 1 else ""
        )
        lines = [line(tag(f"{len(members)} free{f' for {duration}' if duration else ''}", "ok", is_now=True))]
    for run in runs:
        name = link(run_name(run), run_address(run["id"]), "name")
        lines.append(line(person(run["user"]), name, tag(f"{len(members)} GPUs"), css="who"))
        if position := run_position(run):
            lines.append(progress(run, position))
    worst = [gpu.label for gpu in members if gpu.state not in _USUAL]
    if kind == "run" and worst:
        lines.append(line(tag(f"GPU {', '.join(worst)}: {state.title}", levels.GPU_LEVELS[state], is_now=True)))
    users = sorted({user for gpu in members for user in users_of(gpu, now)})
    return {
        **group_sums(members),
        "key": key,
        "index": first.order,
        "members": [gpu.uuid for gpu in members],
        "gpu": {"state": state.value, "title": state.title, "text": group_label(members), "before": "GPUs ",
                "name": first.name, "link": "", "group": key, "lasts": state in LASTING},
        "day": [gpu.uuid for gpu in members],
        "spark": {"series": [gpu.uuid for gpu in members], "user": users[0] if users else "",
                  "color": "warn" if state is GpuState.HELD else "mut" if state in _MUTED else ""},
        "user": users[0] if users else None,
        "users": users,
        "tags": _tags(state),
        "who": lines,
        "search": " ".join(search_text(gpu, now) for gpu in members),
    }  # fmt: skip


def _tags(state: GpuState) -> list[str]:
    return [state.value] if state in (GpuState.FREE, GpuState.HELD) else []


def row(gpu: Gpu, now: Now) -> Cells:
    """Return the cells of a GPU."""
    values, runs, state = gpu.values, now.runs_of(gpu), gpu.state
    used, total = values.get("gpu.memory_used"), gpu.memory_total
    user = runs[0]["user"] if runs else gpu.holders[0].user or "" if gpu.holders else ""
    color = "warn" if state is GpuState.HELD else "mut" if state in _MUTED else ""
    return {
        "key": gpu.uuid,
        "index": gpu.order,
        "gpu": {
            "state": state.value, "title": gpu.word, "text": gpu.label, "before": "GPU ",
            "name": gpu.name, "link": gpu_address(gpu.label), "lasts": gpu.is_lasting,
        },
        "day": [gpu.uuid],
        "spark": {"series": [gpu.uuid], "user": user, "color": color},
        "now": values.get("gpu.utilization"),
        _MEMORY.file_name: used,
        "memory": {
            "used": _bytes(used), "total": _bytes(total),
            "parts": memory_parts(gpu.holders, total, used) if total else None,
        },
        _POWER.file_name: values.get("gpu.power"),
        "power": power_text(values.get("gpu.power"), gpu.power_limit),
        "temperature": values.get("gpu.temperature"),
        "user": user or None,
        "users": users_of(gpu, now),
        "tags": _tags(state),
        "who": holder_lines(gpu, runs, now.time),
        "search": search_text(gpu, now),
    }  # fmt: skip


def _bytes(value: float | None) -> str:
    return units.MISSING if value is None else _MEMORY.write(value)


def _chart_lines(now: Now, args: Args) -> dict[str, tuple[str, str]]:
    del args
    return {gpu.uuid: (gpu.uuid, SPARK) for gpu in now.gpus}


PAGE = Page(
    "fleet",
    "Fleet",
    layout,
    live,
    last_day,
    kept_of=StoredSubject.DAY,
    series=_chart_lines,
    has_past=True,
    without_gpus="none",
)
