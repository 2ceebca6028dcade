"""The chart of one GPU: the requested panels, its runs with their epochs, events, and its holders over time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from gpumon.analysis.run_epochs import Epochs
from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.model.frame import RunState, Sample
from gpumon.model.panels import GPU_PANELS, Panel
from gpumon.model.process import Process
from gpumon.reports.events import details
from gpumon.reports.figures.document import (
    Cells,
    chart,
    event,
    left_out,
    limit,
    line_of,
    marks_on,
    metric_panel,
    moment,
    ribbon,
)
from gpumon.storage.events.query import EventFilter, LoggedEvent, count_events, read_events
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import MAX_POINTS, History, Query, Series
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.processes.query import HeldSpan, held_spans
from gpumon.storage.usage.query import read_accounts

Held = tuple[float, float, str]
"""Begin and end (s since 1970), and the user."""
_WHOLE = 0.99
"""Fraction of an hour from which a GPU counts as held for the whole hour: some ticks are skipped."""


def held_by(
    begin: float, end: float, path: str, uuid: str, epochs: Epochs, keys: Sequence[str], processes: Sequence[Process]
) -> list[Held]:
    """Return who held a GPU from `begin` to `end`, without overlaps: more exact sources override whole hours.

    `path` is the history file with hours and processes, or empty; `processes` are the present ones.
    """
    stored = _stored_spans(path, uuid, begin, end)
    spans = [*held_hours(path, uuid, begin, end), *((span.begin, span.end, span.user) for span in stored if span.user)]
    for key in keys:
        run = epochs.run(key)
        if run and isfinite(run.started) and run.user:
            ended = end if run.state is RunState.RUNNING else run.updated
            spans.append((run.started, ended, run.user))
    starts = {span.pid: span.begin for span in stored}
    # The largest present holder last, so that it overrides the others.
    for process in sorted(processes, key=_known_memory):
        if process.user and isfinite(process.started):
            # The process may have started long before it used this GPU.
            spans.append((max(process.started, starts.get(process.pid, process.started)), end, process.user))
    return flat([span for span in spans if span[0] < end and span[1] > begin], begin, end, (end - begin) / MAX_POINTS)


def _known_memory(process: Process) -> float:
    return process.memory_used if isfinite(process.memory_used) else 0.0


def _stored_spans(path: str, uuid: str, begin: float, end: float) -> list[HeldSpan]:
    try:
        return held_spans(path, uuid, begin, end) if path else []
    except GpumonError:
        return []  # the chart is still right without the colors of users


def held_hours(path: str, uuid: str, begin: float, end: float) -> list[Held]:
    """Return the stored hours that a single user held entirely; empty if the file is missing or unreadable."""
    if not path:
        return []
    try:
        accounts = read_accounts(path, begin - HOUR, end, device=uuid)
    except GpumonError:
        return []
    whole = _WHOLE * HOUR
    return [
        (hour.begin, hour.begin + HOUR, user)
        for hour in accounts.hours
        if (user := next((account.user for account in hour.accounts if account.user and account.held >= whole), ""))
    ]


def flat(spans: Iterable[Held], begin: float, end: float, gap: float = 0.0) -> list[Held]:
    """Return `spans` within a window without overlaps: of overlapping ones, the later in the list wins.

    Spans of the same user at most `gap` seconds apart are merged, as no screen can show the gap.
    """
    inside = [span for span in spans if span[0] < end and span[1] > begin]
    clipped = [(max(since, begin), min(until, end), user) for since, until, user in inside]
    edges = sorted({edge for since, until, _ in clipped for edge in (since, until)})
    users = [""] * len(edges)
    free = [*range(len(edges))]  # for each part, itself or a later part without a user (union-find)

    def next_free(index: int) -> int:
        while free[index] != index:
            free[index] = index = free[free[index]]
        return index

    for since, until, user in reversed(clipped):
        stop, index = bisect_left(edges, until), next_free(bisect_left(edges, since))
        while index < stop:
            users[index], free[index] = user, index + 1
            index = next_free(index + 1)
    merged: list[Held] = []
    for (since, until), user in zip(pairwise(edges), users, strict=False):
        if not user:
            continue
        if merged and merged[-1][2] == user and since - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], until, user)
        else:
            merged.append((since, until, user))
    return merged


USUAL = tuple(panel.metric.name for panel in GPU_PANELS[:4])
"""Default panels."""
EVENTS = 2000
"""Newest events of a window shown with their text; older ones are only counted."""
RUNS = 6
"""Newest runs with a ribbon; more would be taller than the panels."""
BANDS = 3000
"""Maximum number of epochs per run in a window."""

_LEVELS = {"warning": "warn", "critical": "bad"}


class GpuChartWindow(NamedTuple):
    """The requested part of a GPU's history."""

    begin: float
    """Seconds since 1970, like `end`."""
    end: float
    points: int = MAX_POINTS
    panels: Sequence[str] = USUAL


def gpu_chart(
    history: History, epochs: Epochs, sample: Sample, processes: Sequence[Process], interval: float, log: str,
    window: GpuChartWindow,
) -> Cells:  # fmt: skip
    """Create the chart of a device; `log` is the history file with events and holders, or empty."""
    uuid = sample.device.uuid
    available = [panel for panel in GPU_PANELS if history.has(uuid, panel.metric.name)]
    chosen = [panel for panel in available if panel.metric.name in window.panels] or available[: len(USUAL)]
    end = min(window.end, history.end) if is_known(history.end) else window.end  # there is no data of the future
    begin = max(window.begin, history.begin) if is_known(history.begin) else window.begin
    # Query the unrounded end: a sample at the very end may be after the rounded one.
    names = [panel.metric.name for panel in chosen]
    lines = history.query(Query(uuid, names, window.begin, end, window.points))
    filled = _filled(history, uuid, lines, end)
    begin, end = moment(begin), moment(end)
    keys = epochs.runs_on(uuid)
    runs, cut = ribbons(epochs, keys, begin, end)
    return chart(
        [
            _panel(panel, sample, line_of(lines[name], filled=filled.get(name)))
            for panel, name in zip(chosen, names, strict=True)
        ],
        begin,
        end,
        interval=interval,
        step=max((series.step for series in lines.values()), default=0.0),
        coarse=next(([list(map(moment, stretch)) for stretch in series.coarse] for series in lines.values()), []),
        all=[{"key": panel.metric.name, "title": panel.title} for panel in available],
        runs=runs,
        events=marks_on(_events(epochs, keys, uuid, log, begin, end), begin, end),
        held=[list(span) for span in held_by(begin, end, log, uuid, epochs, keys, processes)],
        **cut,
    )


def _filled(history: History, uuid: str, lines: Mapping[str, Series], end: float) -> dict[str, float]:
    """Return the seconds with data in each line's newest bucket, by which the scripts weight the next values."""
    series = next(iter(lines.values()), None)
    if series is None or not series.step or not series.times:
        return {}
    grid = Grid(round(series.times[-1] / series.step - 0.5), series.step, 1)
    totals = history.query(Query(uuid, list(lines), grid.begin, end, grid=grid, seen=True))
    return {name: round(bucket.seen[0], 3) if bucket.seen else 0.0 for name, bucket in totals.items()}


def _panel(panel: Panel, sample: Sample, line: Cells) -> Cells:
    name = panel.metric.name
    top = sample.value(panel.metric.limit) if panel.metric.limit and name != "gpu.power" else math.nan
    limits: list[Cells] = []
    if name == "gpu.power":
        watts = sample.value("gpu.power_limit")
        limits = limit(watts, f"power limit {watts:,.0f} W")
    elif name == "gpu.temperature":
        celsius = sample.value("gpu.temperature_slowdown")
        limits = limit(celsius, f"slowdown at {celsius:.0f} °C")
    extra = {"top": top} if is_known(top) and top > 0 else {}
    return metric_panel(name, [line], limits=limits, **extra)


def ribbons(
    epochs: Epochs, keys: Sequence[str], begin: float, end: float
) -> tuple[list[Cells], dict[str, str]]:  # fmt: skip
    """Return the newest `RUNS` runs with epochs or phases in a window, and text about the omitted runs."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        run = epochs.run(key)
        groups.setdefault(run.id if run else key, []).append(key)
    documents, cut = [], list[tuple[int, int, str]]()
    for name, group in groups.items():
        first, chart_marks = epochs.run(group[0]), epochs.chart_marks(group)
        ended = max((_end_time(epochs, key) for key in group), default=math.inf)
        ends = [mark.time for mark in chart_marks.marks[1:]] + [end]
        bands = [
            (max(mark.time, begin), min(after, ended, end), mark.epoch)
            for mark, after in zip(chart_marks.marks, ends, strict=False)
            if mark.time < end and min(after, ended, end) > begin
        ]
        spans = [
            (max(span.begin, begin), min(span.end, ended, end), span.phase)
            for span in chart_marks.spans_within(begin, end)
            if span.begin < end and min(span.end, ended, end) > begin
        ]
        if bands or spans:
            title = (first.name.strip() or first.id) if first else name
            documents.append(ribbon(name, title, first.user if first else "", bands[-BANDS:], spans[-BANDS:]))
            cut.append((BANDS, len(bands), f"epochs of {title}"))
    documents.sort(key=lambda document: min(part[0] for part in (*document["bands"], *document["phases"])))
    return documents[-RUNS:], left_out([(RUNS, len(documents), "runs"), *cut])


def _end_time(epochs: Epochs, key: str) -> float:
    run = epochs.run(key)
    return run.updated if run and run.state is not RunState.RUNNING else math.inf


def _events(epochs: Epochs, keys: Sequence[str], uuid: str, log: str, begin: float, end: float) -> list[Cells]:
    """Return the events of the device in the log, and out-of-memory errors that are not in the log yet."""
    logged, older = list[LoggedEvent](), 0
    if log:
        try:
            event_filter = EventFilter(device=uuid)
            logged = read_events(log, begin, end, event_filter, EVENTS)
            if len(logged) == EVENTS:
                older = count_events(log, begin, logged[0].time_ns / SECOND, event_filter)
        except GpumonError:
            logged = []  # the chart is right without them, and the events page shows the error
    marks = [{**event(begin, "", f"{older:,} earlier events"), "count": older}] if older else []
    marks += [event(entry.time_ns / SECOND, _LEVELS.get(entry.severity, ""), _event_text(entry)) for entry in logged]
    logged_times = {round(entry.time_ns / SECOND) for entry in logged if entry.kind.name == "out_of_memory"}
    for fault in epochs.chart_marks(keys).faults:
        time = fault.time_ns / SECOND
        if begin <= time <= end and round(time) not in logged_times:
            marks.append(event(time, "bad", "out of memory"))
    return marks


def _event_text(logged: LoggedEvent) -> str:
    text = details(logged)
    return f"{logged.kind.label}: {text}" if text else logged.kind.label
