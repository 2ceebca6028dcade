"""The events page: events with time, GPU and user, and a strip for each GPU with its holders and unobserved time.

Similar events within a minute are one row that opens, so that a burst does not hide other events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.reports.events import RESTARTED, LastedEvent, details, unwatched_words, went_on_words
from gpumon.reports.history import NOT_YET
from gpumon.reports.usage import device_name
from gpumon.storage.events.query import LoggedEvent
from gpumon_web.components.page import Cells, Column, Page, Rows, StoredSubject, StoredValues
from gpumon_web.components.tokens import gpu_address, line, link, pick, run_address, text
from gpumon_web.stored.events import ALL, GROUPS, HOURS, EventChoice, WindowEvents, is_in_group

if TYPE_CHECKING:
    from dash.development.base_component import Component

MAX_GROUP_SECONDS = 60.0
"""Longest time in seconds from the first to the last event of a group."""
MIN_EVENTS = 3
"""Fewest events in a group."""
MAX_TEXTS = 4
"""Most different texts shown in a group's row."""


def group_rows(events: Sequence[LastedEvent], rows: Sequence[Cells], numbers: Mapping[str, Sequence[str]]) -> Rows:
    """Return a row for each group of events, the newest first.

    `rows` are the rows of the single events; `numbers` are the GPU numbers of each, by the key of its row.
    """
    open_groups: dict[str, list[tuple[LastedEvent, Cells]]] = {}
    groups = []
    for event, row in zip(events, rows, strict=True):
        members = open_groups.get(row["kind"])  # the label: runs that ended have one kind, but several labels
        if members is None or (members[0][0].event.time_ns - event.event.time_ns) / SECOND > MAX_GROUP_SECONDS:
            members = open_groups[row["kind"]] = []
            groups.append(members)
        members.append((event, row))
    return Rows(_group_row([row for _, row in members], numbers) for members in groups if len(members) >= MIN_EVENTS)


def _group_row(rows: Sequence[Cells], numbers: Mapping[str, Sequence[str]]) -> Cells:
    first = rows[0]
    key = f"bundle {rows[-1]['key']}"
    indexes = {int(number) for row in rows for number in numbers[row["key"]]}
    gpu = f"GPU {ranges(indexes)}" if indexes else ""
    users = {row["user"] for row in rows}
    texts = [*dict.fromkeys(row["words"] for row in rows if row["words"])]
    more = [f"and {len(texts) - MAX_TEXTS} more"] if len(texts) > MAX_TEXTS else []
    words = "; ".join([*texts[:MAX_TEXTS], *more])
    shape = first["event"][0]["line"][0]
    opener = {"opens": key, "text": f"{first['kind']}, {units.counted(len(rows), 'event')}"}
    return {
        "key": key,
        "members": [row["key"] for row in rows],
        "time": first["time"],
        "event": [line(shape, opener, css=first["event"][0]["css"])],
        "kind": first["kind"],
        "subject": [line(text(gpu))] if gpu else [],
        "gpu": gpu or None,
        "user": users.pop() if len(users) == 1 else None,
        "words": words,
        "took": "",
        "seconds": max((row["seconds"] for row in rows if row["seconds"] is not None), default=None),
        "search": " ".join(row["search"] for row in rows),
    }


MAX_ROWS = 500
"""Most rows; further events are only counted."""
AROUND = 300.0
"""Seconds before and after an event that its chart shows."""
LOG_LAG = 120.0
"""Seconds that the times at which events were last seen may lag behind: they are written every minute."""
AGAIN, SOON = 20.0, 2.0
"""Seconds until the page requests the events again; `SOON` if the end of a run is not in the log yet."""
MAX_LANES = 16
"""Most GPUs that each get a strip; with more, one strip has the events of all."""
_SHAPES = {"critical": "lost", "warning": "held", "info": "unknown"}
_GOOD = ("gpu_back", "driver_reloaded", "idle_ended", "stall_ended", "run_began", "daemon_started", RESTARTED.name)
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


def kept(document: WindowEvents) -> StoredValues:
    """Compute the strips, filters and rows."""
    events, choice, now, running = document.events, document.choice, document.now, document.running
    devices = [strip.device for strip in document.strips]
    labels = {device.uuid: str(device.number) for device in devices if device.number >= 0}
    group = choice.group if choice.group in GROUPS else ALL
    gpu, user = choice.gpu, choice.user
    candidates = [
        event
        for event in events
        if (not gpu or gpu in _gpus(event, labels)) and (not user or event.event.subject.user == user)
    ]
    is_readable = document.has_history and not document.problem
    counts = {name: sum(is_in_group(event.event, name) for event in candidates) for name in GROUPS}
    matches = [event for event in candidates if is_in_group(event.event, group)]
    query = choice.q.strip().lower()
    if query:  # also searches events beyond `MAX_ROWS`
        matches = [event for event in matches if query in row(event, labels, now, running)["search"]]
    users = sorted({event.event.subject.user for event in events} - {""})
    empty_text = _no_events_text(document, is_filtered=bool(gpu or user or query or group != ALL), count=len(events))
    rows = [row(event, labels, now, running) for event in matches[:MAX_ROWS]]
    is_behind = any(
        _is_log_current(event.event.until_ns, now) and not _goes_on(event.event, running) for event in events
    )
    numbers = {cells["key"]: _gpus(event, labels) for cells, event in zip(rows, matches, strict=False)}
    values = {
        "title": f"Last {choice.window.replace('h', ' hours').replace('d', ' days')}",
        "summary": _summary(matches, document.older, now) if is_readable else "",
        "windows": [
            {"text": name.replace("h", " h").replace("d", " d"), "title": "", "is_pressed": name == choice.window,
             "arg": "window", "value": name} for name in HOURS
        ],
        "groups": [
            {"text": f"{TITLES[name]} {counts[name] if is_readable else ''}".rstrip(), "title": "",
             "is_pressed": name == group, "arg": "group", "value": name}
            for name in GROUPS if counts[name] or name in (ALL, "attention", group)
        ],
        "gpus": pick("gpu", "GPU", gpu, [(number, f"GPU {number}") for number in sorted(labels.values(), key=int)]),
        "people": pick("user", "user", user, [(name, name) for name in users]),
        "nothing": empty_text,
        "searched": query,
        "is_without": not document.has_history,  # nothing to filter
        "lanes_known": bool(document.strips),
        "lanes": Rows(_lanes(document, matches, labels)),
        "ticks": _ticks(document),
        "events": Rows(rows),
        "bundles": group_rows(matches[:MAX_ROWS], rows, numbers),
    }  # fmt: skip
    return StoredValues(values, again=SOON if is_behind else AGAIN, unread=str(empty_text) if document.problem else "")


def row(
    lasted_event: LastedEvent, labels: Mapping[str, str], now: float, running: Collection[str] | None = None
) -> Cells:
    """Return the cells of an event. `running`: ids of the running runs; None if unknown."""
    event = lasted_event.event
    time, label = event.time_ns / SECOND, event.kind.label
    shape = "busy" if event.kind.name in _GOOD else _SHAPES[event.severity]
    name = link(label, href, "row") if (href := event_address(event, time, now)) else text(label)
    duration, seconds = (
        _duration(lasted_event, now, running),
        event.lasted if is_known(event.lasted) else lasted_event.unwatched,
    )
    gpu = _gpu_text(lasted_event, labels)
    words = ", ".join(
        filter(None, (event.subject.run, details(event, timed=False), went_on_words(lasted_event, labels)))
    )
    return {
        "key": f"{event.time_ns} {event.kind.name} {'/'.join(event.subject)}",
        "time": time,
        "event": [line(text("", f"state {shape}"), name, css=f"who {_LEVELS[event.severity]}")],
        "kind": label,
        "subject": [line(text(gpu))] if gpu else [],
        "gpu": gpu or None,
        "user": event.subject.user or None,
        "words": words,
        "took": duration,
        "seconds": None if seconds is None else round(seconds, 3),
        "search": " ".join(
            (label, gpu, event.subject.user, words, duration if isinstance(duration, str) else str(duration["text"]))
        ).lower(),
    }


def event_address(event: Any, time: float, now: float) -> str:
    """Return the address that shows an event: its time on the chart of its GPU, or its run."""
    if event.subject.device:
        end = min(time + AROUND, now)
        return f"{gpu_address(event.subject.device)}?from={end - 2 * AROUND:.0f}&to={end:.0f}"
    return run_address(event.subject.run) if event.subject.run else ""


def _duration(event: LastedEvent, now: float, running: Collection[str] | None) -> str | Cells:
    """Return how long an event lasted; if it is ongoing, since when, or when it was last seen if data stops coming."""
    unwatched, since = unwatched_words(event)
    if unwatched:
        return {"text": unwatched, "time": since} if is_known(since) else unwatched
    if event.event.until_ns:
        lasted = (event.event.until_ns - event.event.time_ns) / SECOND
        # If it was seen only once, its length is unknown; 0 s would mean that it ended at once.
        words = f"{units.fine_duration(lasted)}, last seen" if lasted >= 1.0 else "at least until"
        last: Cells = {"text": words, "time": event.event.until_ns / SECOND}
        if not _is_log_current(event.event.until_ns, now) or not _goes_on(event.event, running):
            return last
        return {"text": "ongoing since", "time": event.event.time_ns / SECOND, "old": last}
    return units.fine_duration(event.event.lasted) if is_known(event.event.lasted) else ""


def _is_log_current(until_ns: int, now: float) -> bool:
    """Whether the log is up to date; only then may the page call an event ongoing."""
    return until_ns / SECOND > now - LOG_LAG


def _goes_on(event: LoggedEvent, running: Collection[str] | None) -> bool:
    """Whether no sample contradicts that an event is ongoing. The end of a run reaches the log some seconds late."""
    return running is None or event.kind.name != "run_began" or event.subject.run in running


def _gpus(event: LastedEvent, labels: Mapping[str, str]) -> list[str]:
    """Return the numbers of the GPUs of an event, or of its run."""
    gpus = event.event.details.get("gpus")
    uuids = [event.event.subject.device] if event.event.subject.device else gpus if isinstance(gpus, list) else []
    return [labels[uuid] for uuid in uuids if isinstance(uuid, str) and uuid in labels]


def _gpu_text(event: LastedEvent, labels: Mapping[str, str]) -> str:
    numbers = _gpus(event, labels)
    return f"GPU {ranges([int(number) for number in numbers])}" if numbers else event.event.device


def _summary(events: Sequence[LastedEvent], older: int, now: float) -> str | Cells:
    """Return a summary of the listed events; `older` events of the window were not read."""
    ends = [event.event.until_ns for event in events if event.event.until_ns > 0 and event.event.severity != "info"]
    more = f", the newest {MAX_ROWS} are shown" if len(events) > MAX_ROWS else ""
    older_text = f", {older:,} older ones of all kinds are left out" if older else ""
    summary = f"{units.counted(len(events), 'event')}{more}{older_text}"
    if not ends:
        return summary
    attention_text = f"{len(ends)} that need{'s' if len(ends) == 1 else ''} attention"
    last: Cells = {
        "text": f"{summary}; {attention_text} {'was' if len(ends) == 1 else 'were'} still going on, last seen at",
        "time": max(ends) / SECOND,
    }
    if not _is_log_current(max(ends), now):
        return last
    return {"text": f"{summary}; {attention_text} {'goes' if len(ends) == 1 else 'go'} on", "old": last}


def _no_events_text(document: WindowEvents, *, is_filtered: bool, count: int) -> str | Cells:
    if document.problem:
        return f"The events cannot be read now: {document.problem}."
    if not document.has_history:
        return document.missing or NOT_YET
    if is_filtered:
        return f"No matching events among the newest {count:,}." if document.older else "No matching events."
    return "No events in this window."


def _lanes(document: WindowEvents, events: Sequence[LastedEvent], labels: Mapping[str, str]) -> list[Cells]:
    """Return a strip for each GPU with its events, or one for all if there are many GPUs."""
    begin, end, now, strips = document.begin, document.end, document.now, document.strips
    length = max(min(end, now) - begin, 1.0)

    def mark(event: LastedEvent) -> list[Any]:
        return [round((event.event.time_ns / SECOND - begin) / length, 4), _LEVELS[event.event.severity]]

    until = round(min(1.0, (now - begin) / max(end - begin, 1.0)), 4)
    if len(strips) > MAX_LANES:
        all_unseen = [slot for slot in strips[0].unseen if all(slot in strip.unseen for strip in strips)]
        strip = {"slots": strips[0].slots, "parts": [], "unseen": all_unseen, "is_bars": False, "until": until,
                 "ends_now": True, "label": units.counted(len(events), "event"),
                 "events": [mark(event) for event in events]}  # fmt: skip
        return [{"key": "all", "gpu": "All GPUs", "order": 0, "strip": strip}]
    rows = []
    for holders in strips:
        device = holders.device
        marks = [mark(event) for event in events if labels.get(device.uuid, device.uuid) in _gpus(event, labels)]
        strip = {"slots": holders.slots, "parts": holders.parts, "unseen": holders.unseen, "is_bars": False,
                 "until": until, "ends_now": True, "events": marks,
                 "label": f"{device_name(device)}: {units.counted(len(marks), 'event')}"}  # fmt: skip
        rows.append({"key": device.uuid, "gpu": device_name(device), "order": device.number, "strip": strip})
    return rows


def _ticks(document: WindowEvents) -> list[Cells]:
    """Return the times below the strips, which the scripts show in the viewer's time zone."""
    begin, end = document.begin, document.end
    length = max(min(end, document.now) - begin, 1.0)
    times = [begin + (end - begin) * share / 4 for share in range(4)]
    return [{"at": round((time - begin) / length, 4), "time": time} for time in times]


PAGE = Page(
    "events", "Events", layout, kept=kept, kept_of=StoredSubject.EVENTS,
    kept_args=dict.fromkeys(EventChoice._fields, ""),
)  # fmt: skip
