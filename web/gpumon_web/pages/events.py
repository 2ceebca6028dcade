"""The events page: events with time, GPU and user, and a strip for each GPU with its holders and unobserved time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.reports.events import RESTARTED, LastedEvent, details, unwatched_words, went_on_words
from gpumon.reports.missing_history import NOT_YET
from gpumon.reports.usage import device_name
from gpumon_web.components.event_rows import group_rows
from gpumon_web.components.page import Cells, Column, Page, Rows, StoredSubject, StoredValues
from gpumon_web.components.tokens import gpu_address, line, link, pick, run_address, text
from gpumon_web.stored.events import ALL, HOURS, KINDS, is_in_group

if TYPE_CHECKING:
    from dash.development.base_component import Component

MAX_ROWS = 500
"""Most rows; further events are only counted."""
AROUND = 300.0
"""Seconds before and after an event that its chart shows."""
LOG_LAG = 120.0
"""Seconds that the log may lag behind: it is written every minute."""
MAX_LANES = 16
"""Most GPUs that each get a strip; with more, one strip has the events of all."""
_SHAPES = {"critical": "lost", "warning": "held", "info": "unknown"}
_GOOD = ("gpu_back", "driver_reloaded", "idle_ended", "run_began", "daemon_started", RESTARTED.name)
_LEVELS = {"critical": "bad", "warning": "warn", "info": "mut"}
TITLES = {ALL: "All", "attention": "Attention", "runs": "Runs", "health": "Health", "idle": "Idle", "daemon": "Daemon"}

COLUMNS = (
    Column("time", "Time", "when", falls=True, is_head=True),
    Column("event", "Event", "rich", css="c-event", sorts_by="kind"),
    Column("subject", "GPU", "rich", css="c-gpu", sorts_by="gpu"),
    Column("user", "User", "person"),
    Column("words", "Details", "text", css="c-words", sort=False),
    Column("took", "Lasted", "text", css="c-took", sorts_by="seconds", is_number=True, csv="lasted_seconds"),
)
STRIPS = (
    Column("gpu", "GPU", "text", css="c-gpu", sorts_by="order", is_head=True),
    Column("strip", "Held, and events", "strip", css="c-strip", sort=False),
)


def layout() -> Component:
    """Create the layout: window, a strip for each GPU with its events, and a row for each event."""
    from dash import html

    from gpumon_web.components.layout import aria, bound, card, download, hidden_if, search, shown_if, strip_key, table

    windows = bound("windows", "choices", html.Div, className="seg", role="group", **aria(label="Window"))
    strips = table("lanes", "Events of each GPU", STRIPS, "gpu", css="strips lanes", empty=" ")
    ticks = bound("ticks", "ticks", html.Div, className="ticks")
    tools = [
        bound("groups", "choices", html.Div, className="seg", role="group", **aria(label="Kinds of events")),
        bound("gpus", "pick"),
        bound("people", "pick"),
        html.Div([search("events", "Search events", "Filter events by their words"), download("events", "Events")],
                 className="sought"),
    ]  # fmt: skip
    rows = table(
        "events", "Events", COLUMNS, "time", css="events", loading="Loading the events …",
        empty_from="nothing", no_match="No matching events.", within="bundles", searched="searched",
    )  # fmt: skip
    return html.Div(
        [
            html.Div([html.H1("Events"), bound("summary", "text", className="facts")], className="head"),
            shown_if("lanes_known", card("", strips, ticks, tools=[strip_key(), windows], titled="title")),
            hidden_if("is_without", html.Div(tools, className="toolbar")),
            card("Events", rows, has_head=False),
        ]
    )


def kept(document: Cells) -> StoredValues:
    """Compute the strips, filters and rows."""
    events: Sequence[LastedEvent] = document["events"]
    labels = {one["device"].uuid: str(one["device"].number) for one in document["strips"] if one["device"].number >= 0}
    group = document["group"] if document["group"] in KINDS else ALL
    gpu, user = document["gpu"], document["user"]
    wanted = [
        one for one in events if (not gpu or gpu in _gpus(one, labels)) and (not user or one.event.subject.user == user)
    ]
    is_known = document["has_history"] and not document["problem"]
    counts = {name: sum(is_in_group(one.event, name) for one in wanted) for name in KINDS}
    found = [one for one in wanted if is_in_group(one.event, group)]
    words = document["q"].strip().lower()
    if words:  # also searches events beyond `SHOWN`
        found = [one for one in found if words in row(one, labels, document["now"])["search"]]
    users = sorted({one.event.subject.user for one in events} - {""})
    nothing = _no_events_text(document, is_filtered=bool(gpu or user or words or group != ALL), read=len(events))
    shown = [row(one, labels, document["now"]) for one in found[:MAX_ROWS]]
    numbers = {cells["key"]: _gpus(one, labels) for cells, one in zip(shown, found, strict=False)}
    values = {
        "title": f"Last {document['window'].replace('h', ' hours').replace('d', ' days')}",
        "summary": _summary(found, document["older"], document["now"]) if is_known else "",
        "windows": [
            {"text": name.replace("h", " h").replace("d", " d"), "title": "", "is_pressed": name == document["window"],
             "arg": "window", "value": name} for name in HOURS
        ],
        "groups": [
            {"text": f"{TITLES[name]} {counts[name] if is_known else ''}".rstrip(), "title": "",
             "is_pressed": name == group, "arg": "group", "value": name}
            for name in KINDS if counts[name] or name in (ALL, "attention", group)
        ],
        "gpus": pick("gpu", "GPU", gpu, [(number, f"GPU {number}") for number in sorted(labels.values(), key=int)]),
        "people": pick("user", "user", user, [(name, name) for name in users]),
        "nothing": nothing,
        "searched": words,
        "is_without": not document["has_history"],  # nothing to filter
        "lanes_known": bool(document["strips"]),
        "lanes": Rows(_lanes(document, found, labels)),
        "ticks": _ticks(document),
        "events": Rows(shown),
        "bundles": group_rows(found[:MAX_ROWS], shown, numbers),
    }  # fmt: skip
    return StoredValues(values, again=20.0, unread=str(nothing) if document["problem"] else "")


def row(one: LastedEvent, labels: Mapping[str, str], now: float) -> Cells:
    """Return the cells of an event."""
    event = one.event
    time, label = event.time_ns / SECOND, event.kind.label
    shape = "busy" if event.kind.name in _GOOD else _SHAPES[event.severity]
    named = link(label, where, "row") if (where := event_address(event, time, now)) else text(label)
    took, lasted = _duration(one, now), event.lasted if is_known(event.lasted) else one.unwatched
    gpu = _gpu_text(one, labels)
    words = ", ".join(filter(None, (event.subject.run, details(event, timed=False), went_on_words(one, labels))))
    return {
        "key": f"{event.time_ns} {event.kind.name} {'/'.join(event.subject)}",
        "time": time,
        "event": [line(text("", f"state {shape}"), named, css=f"who {_LEVELS[event.severity]}")],
        "kind": label,
        "subject": [line(text(gpu))] if gpu else [],
        "gpu": gpu or None,
        "user": event.subject.user or None,
        "words": words,
        "took": took,
        "seconds": None if lasted is None else round(lasted, 3),
        "search": " ".join(
            (label, gpu, event.subject.user, words, took if isinstance(took, str) else str(took["text"]))
        ).lower(),
    }


def event_address(event: Any, time: float, now: float) -> str:
    """Return the address that shows an event: its time on the chart of its GPU, or its run."""
    if event.subject.device:
        end = min(time + AROUND, now)
        return f"{gpu_address(event.subject.device)}?from={end - 2 * AROUND:.0f}&to={end:.0f}"
    return run_address(event.subject.run) if event.subject.run else ""


def _duration(one: LastedEvent, now: float) -> str | Cells:
    """Return how long an event lasted; if it is ongoing, since when, or when it was last seen if data stops coming."""
    unwatched, since = unwatched_words(one)
    if unwatched:
        return {"text": unwatched, "time": since} if is_known(since) else unwatched
    if one.event.until_ns:
        lasted = (one.event.until_ns - one.event.time_ns) / SECOND
        # Seen only once, its length is unknown: 0 s would mean that it ended at once. The heading is "Lasted".
        words = f"{units.long_duration(lasted)}, last seen" if lasted >= 1.0 else "at least until"
        last: Cells = {"text": words, "time": one.event.until_ns / SECOND}
        if not _is_log_current(one.event.until_ns, now):
            return last
        return {"text": "ongoing since", "time": one.event.time_ns / SECOND, "old": last}
    return units.long_duration(one.event.lasted) if is_known(one.event.lasted) else ""


def _is_log_current(until_ns: int, now: float) -> bool:
    """Whether the log is up to date; only then may the page call an event ongoing."""
    return until_ns / SECOND > now - LOG_LAG


def _gpus(one: LastedEvent, labels: Mapping[str, str]) -> list[str]:
    """Return the numbers of an event's GPUs; for an event of a run, those of the run."""
    named = one.event.details.get("gpus")
    uuids = [one.event.subject.device] if one.event.subject.device else named if isinstance(named, list) else []
    return [labels[uuid] for uuid in uuids if isinstance(uuid, str) and uuid in labels]


def _gpu_text(one: LastedEvent, labels: Mapping[str, str]) -> str:
    numbers = _gpus(one, labels)
    return f"GPU {ranges([int(number) for number in numbers])}" if numbers else one.event.device


def _summary(found: Sequence[LastedEvent], older: int, now: float) -> str | Cells:
    """Return a summary of the listed events; `older` events of the window were not read."""
    going_on = [one.event.until_ns for one in found if one.event.until_ns > 0 and one.event.severity != "info"]
    more = f", the newest {MAX_ROWS} are shown" if len(found) > MAX_ROWS else ""
    before = f", {older:,} older ones of all kinds are left out" if older else ""
    told = f"{units.counted(len(found), 'event')}{more}{before}"
    if not going_on:
        return told
    need = f"{len(going_on)} that need{'s' if len(going_on) == 1 else ''} attention"
    last: Cells = {"text": f"{told}; {need} had not ended when last seen,", "time": max(going_on) / SECOND}
    if not _is_log_current(max(going_on), now):
        return last
    return {"text": f"{told}; {need} {'goes' if len(going_on) == 1 else 'go'} on", "old": last}


def _no_events_text(document: Cells, *, is_filtered: bool, read: int) -> str | Cells:
    if document["problem"]:
        return f"The events cannot be read now: {document['problem']}."
    if not document["has_history"]:
        missing: str | Cells = document["missing"] or NOT_YET
        return missing
    if is_filtered:
        return f"No matching events among the newest {read:,}." if document["older"] else "No matching events."
    return "No events in this window."


def _lanes(document: Cells, found: Sequence[LastedEvent], labels: Mapping[str, str]) -> list[Cells]:
    """Return a strip for each GPU with its events, or one for all if there are many GPUs."""
    begin, now = document["begin"], document["now"]
    length = max(min(document["end"], now) - begin, 1.0)

    def at(one: LastedEvent) -> list[Any]:
        return [round((one.event.time_ns / SECOND - begin) / length, 4), _LEVELS[one.event.severity]]

    until = round(min(1.0, (now - begin) / max(document["end"] - begin, 1.0)), 4)
    strips = document["strips"]
    if len(strips) > MAX_LANES:
        all_unseen = [slot for slot in strips[0]["unseen"] if all(slot in one["unseen"] for one in strips)]
        strip = {"slots": strips[0]["slots"], "parts": [], "unseen": all_unseen, "is_bars": False, "until": until,
                 "ends_now": True, "label": units.counted(len(found), "event"),
                 "events": [at(one) for one in found]}  # fmt: skip
        return [{"key": "all", "gpu": "All GPUs", "order": 0, "strip": strip}]
    rows = []
    for one in strips:
        device = one["device"]
        events = [at(each) for each in found if labels.get(device.uuid, device.uuid) in _gpus(each, labels)]
        held = {"slots": one["slots"], "parts": one["parts"], "unseen": one["unseen"], "is_bars": False,
                "until": until, "ends_now": True, "events": events,
                "label": f"{device_name(device)}: {units.counted(len(events), 'event')}"}  # fmt: skip
        rows.append({"key": device.uuid, "gpu": device_name(device), "order": device.number, "strip": held})
    return rows


def _ticks(document: Cells) -> list[Cells]:
    """Return the times below the strips, which the scripts show in the viewer's time zone."""
    begin, end = document["begin"], document["end"]
    length = max(min(end, document["now"]) - begin, 1.0)
    times = [begin + (end - begin) * share / 4 for share in range(4)]
    return [{"at": round((time - begin) / length, 4), "time": time} for time in times]


PAGE = Page(
    "events", "Events", layout, kept=kept, kept_of=StoredSubject.EVENTS,
    kept_args={"window": "", "group": "", "gpu": "", "user": "", "q": ""},
)  # fmt: skip
