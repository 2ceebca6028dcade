"""Events as rows (text, GPU and group of each, filtering, merging of the log with events from frames), and as a
one-row timeline."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from operator import attrgetter
from typing import NamedTuple

from rich.segment import Segment

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.events import BY_NAME, EVENT_GROUPS, LASTING, NOT_SEEN, Event, EventGroup, EventSubject
from gpumon.reports.events import RESTARTED, LastedEvent, details, unwatched_words, went_on_words, with_restarts
from gpumon.storage.events.query import LoggedEvent
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import HOST, History
from gpumon_tui import theme
from gpumon_tui.render.axis import clock_labels, place_labels
from gpumon_tui.render.strip import GAP, LEVELS
from gpumon_tui.render.text_width import Line, fit, safe
from gpumon_tui.render.time_axis import column_text, read, step_of

SAME_EVENT = 2 * SECOND
"""Maximum difference in ns between a log entry and a frame event of the same kind and subject for them to be the
same event.
"""
MAX_LOG_AGE = 120.0
"""Age in seconds after which the log says nothing about the present.

The times at which open events were last seen are written once a minute and read some seconds later.
"""
ALL = "all"
GROUPS: Mapping[str, tuple[EventGroup, ...]] = {
    ALL: EVENT_GROUPS,
    "critical": (),
    "warnings": (),
    "runs": ("runs",),
    "throttled": ("throttling",),
    "GPUs": ("gpus",),
    "idle": ("idle",),
}
"""Groups of kinds by the filter that shows them. Filters of severities have none, because severity is a property of
each event.
"""
_SEVERITIES = {"critical": "critical", "warnings": "warning"}
_ENDS_OF_DAEMONS = ("daemon_stopped", RESTARTED.name)
"""Kinds without a duration of their own: the daemon's running time up to the event could be mistaken for its down
time.
"""
_NO_RUNS: Mapping[str, Sequence[str]] = {}
_NO_RESTARTS: Mapping[tuple[int, str], LastedEvent] = {}
_RECOVERIES = ("gpu_back", "driver_reloaded", "idle_ended")


class EventRow(NamedTuple):
    """An event as shown on the page."""

    event: LoggedEvent
    time: float
    """Time in s since 1970."""
    gpu: str
    """Displayed text: `GPU 0–3`; empty if it concerns no GPU."""
    user: str
    text: str
    duration: str
    is_open: bool
    """Whether the event has not ended."""
    severity: str
    search_text: str
    """Text that the filter searches, in lower case."""

    @property
    def key(self) -> tuple[int, str, EventSubject]:
        """Return a key that is equal for the same event."""
        return self.event.time_ns, self.event.kind.name, self.event.subject

    @property
    def mark(self) -> tuple[str, str]:
        """Return its glyph and the role of its color."""
        name = self.event.kind.name
        if self.severity == "critical":
            return "▲", "crit"
        if self.severity == "warning":
            return "△", "warn"
        if name.startswith("run_"):
            return ("▸" if name == "run_began" else "●"), "run"
        return ("●", "util") if name in _RECOVERIES else ("·", "dim")


def merge_events(logged: Sequence[LoggedEvent], frame_events: Iterable[Event]) -> list[LoggedEvent]:
    """Merge both, newest first; an event that is in both is listed once, as in the log.

    Events open in the log, which is written some seconds later, are closed if a later frame showed their end.
    """
    frame_events = [event for event in frame_events if event.kind != NOT_SEEN or not _lasted_longer(event, logged)]
    ends = {(_ended_kind(event), event.subject): event.time_ns for event in frame_events if _ended_kind(event)}
    logged = [
        replace(entry, until_ns=0) if 0 < entry.time_ns <= ends.get((entry.kind.name, entry.subject), 0) else entry
        for entry in logged
    ]
    times: dict[tuple[str, EventSubject], list[int]] = {}
    begun: dict[tuple[str, EventSubject], int] = {}
    for entry in logged:
        times.setdefault((entry.kind.name, entry.subject), []).append(entry.time_ns)
        if entry.until_ns:
            begun[entry.kind.name, entry.subject] = entry.time_ns
    merged = list(logged)
    for event in frame_events:
        key = event.kind, event.subject
        goes_on = event.kind in LASTING and begun.get(key, event.time_ns + 1) <= event.time_ns
        if not goes_on and all(abs(time - event.time_ns) > SAME_EVENT for time in times.get(key, ())):
            kind = BY_NAME[event.kind].for_details(event.details)
            merged.append(
                LoggedEvent(event.time_ns, kind, event.subject, event.subject.device, event.lasted, 0, event.details)
            )
    return sorted(merged, key=attrgetter("time_ns"), reverse=True)


def _ended_kind(event: Event) -> str:
    """Return the name of the kind that ends with this event, observed or not; empty if nothing ends."""
    return str(event.details.get("of", "")) if event.kind == NOT_SEEN else BY_NAME[event.kind].ends


def _lasted_longer(event: Event, logged: Sequence[LoggedEvent]) -> bool:
    """Whether the log has a later end of an event whose end was not observed in the frames."""
    name, time_ns = _ended_kind(event), event.time_ns
    return any(
        entry.time_ns < time_ns and entry.until_ns > time_ns + SAME_EVENT
        for entry in logged
        if entry.until_ns and entry.kind.name == name and entry.subject == event.subject
    )


def merged_rows(
    logged: Sequence[LoggedEvent], frame_events: Iterable[Event], labels: Mapping[str, str], *, is_of_now: bool,
    now: float = NAN, runs: Mapping[str, Sequence[str]] = _NO_RUNS,
) -> list[EventRow]:  # fmt: skip
    """Return rows of the log (oldest first) and of frame events, with each restart as one event; newest first.

    `labels`, `is_of_now`, `now` and `runs` as in `event_rows`.
    """
    lasted = with_restarts(sorted(merge_events(logged, frame_events), key=attrgetter("time_ns")))
    restarts = {_key(event.event): event for event in lasted if event.unwatched is not None}
    events = sorted((event.event for event in lasted), key=attrgetter("time_ns"), reverse=True)
    return event_rows(events, labels, is_of_now=is_of_now, now=now, restarts=restarts, runs=runs)


def _key(event: LoggedEvent) -> tuple[int, str]:
    """Return a key that is equal for the same stop of a daemon."""
    return event.time_ns, event.kind.name


def event_rows(
    events: Sequence[LoggedEvent], labels: Mapping[str, str], *, is_of_now: bool = True, now: float = NAN,
    restarts: Mapping[tuple[int, str], LastedEvent] = _NO_RESTARTS, runs: Mapping[str, Sequence[str]] = _NO_RUNS,
) -> list[EventRow]:  # fmt: skip
    """Return rows of events, newest first; `labels` are the available numbers of GPUs by UUID.

    `runs` has the GPUs of runs by id: ranks start one after another, so the first event of a run lists only few.

    For an event whose end was not observed, the row shows the minimum duration. It does not get a row for its end,
    because a stop of the daemon leaves the end of every open event unobserved. `is_of_now`: the log is written by a
    running daemon, so events without an end are still open at `now` (s since 1970), unless the log is too old;
    otherwise only the time of their last observation is available.
    """
    labels = {**_numbered(events), **labels}
    last_seen, end_reports = _unobserved_ends(events)
    run_gpus = _gpus_of_runs(events, runs)
    rows = []
    for index, event in enumerate(events):
        if index not in end_reports:
            until_ns = last_seen.get(index, 0)
            at_least = (until_ns - event.time_ns) / SECOND if until_ns else NAN
            is_known_now = is_of_now and not event.until_ns / SECOND < now - MAX_LOG_AGE
            gpu = _gpu(event, labels, run_gpus)
            rows.append(_row(event, gpu, labels, at_least, restarts.get(_key(event)), goes_on=is_known_now, now=now))
    return rows


def _numbered(events: Sequence[LoggedEvent]) -> dict[str, str]:
    """Return the numbers of GPUs by UUID according to the log; later entries take precedence."""
    numbers = (
        (event.subject.device, event.device.removeprefix("GPU ")) for event in reversed(events) if event.subject.device
    )
    return {uuid: number for uuid, number in numbers if number and uuid != number}


def _unobserved_ends(events: Sequence[LoggedEvent]) -> tuple[Mapping[int, int], Collection[int]]:
    """Return the times (ns since 1970) until which events with unobserved ends lasted at least, and the
    events that report this, by index.
    """
    begun: dict[tuple[str, EventSubject], int] = {}
    last_seen: dict[int, int] = {}
    end_reports: set[int] = set()
    for index, event in sorted(enumerate(events), key=lambda item: (item[1].time_ns, item[1].kind.name == NOT_SEEN)):
        if event.kind.name != NOT_SEEN:
            begun.pop((event.kind.ends, event.subject), None)
            begun[event.kind.name, event.subject] = index
        elif (first := begun.pop((str(event.details.get("of")), event.subject), None)) is not None:
            last_seen[first] = event.time_ns
            end_reports.add(index)
    return last_seen, end_reports


def _row(
    event: LoggedEvent, gpu_text: str, labels: Mapping[str, str], at_least: float, restart: LastedEvent | None, *,
    goes_on: bool, now: float,
) -> EventRow:  # fmt: skip
    gpu, user = safe(gpu_text), safe(event.subject.user)
    texts = [event.subject.run, details(event, timed=False)]
    lasted = event.lasted
    if restart is not None:
        unwatched, since = unwatched_words(restart)
        texts += [f"{unwatched} {units.clock(since)}" if is_known(since) else unwatched, went_on_words(restart, labels)]
    if event.kind.name in _ENDS_OF_DAEMONS:
        if is_known(lasted):
            texts.append(f"had run for {units.fine_duration(lasted)}")
        lasted = NAN
    words = ", ".join([safe(part) for part in texts if part])
    goes_on = goes_on and event.until_ns > 0 and not is_known(at_least)
    took = "ongoing" if goes_on else units.fine_duration(lasted) if is_known(lasted) else ""
    if is_known(at_least):
        took = f"≥ {units.fine_duration(at_least)}" if at_least >= 1.0 else ""
    elif event.until_ns and not goes_on:
        took = f"last seen {_moment(event.until_ns / SECOND, now)}"
    severity = event.severity
    letters = f"{event.kind.label} {event.kind.name} {gpu} {user} {words} {severity}".lower()
    return EventRow(event, event.time_ns / SECOND, gpu, user, words, took, goes_on, severity, letters)


def _moment(time: float, now: float) -> str:
    """Format a time as `14:03`, or `09-21` on another day if the current time is available."""
    text = units.moment(time)
    return text[11:16] if not is_known(now) or text[:10] == units.moment(now)[:10] else text[5:10]


def _gpus_of_runs(events: Sequence[LoggedEvent], runs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, None]]:
    """Return the UUIDs of the GPUs of each run, combining its events and `runs`."""
    gpus = {run: dict.fromkeys(uuids) for run, uuids in runs.items()}
    for event in events:
        uuids = event.details.get("gpus")
        if event.subject.run and isinstance(uuids, list):
            gpus.setdefault(event.subject.run, {}).update(
                dict.fromkeys(uuid for uuid in uuids if isinstance(uuid, str))
            )
    return gpus


def _gpu(event: LoggedEvent, labels: Mapping[str, str], runs: Mapping[str, Mapping[str, None]]) -> str:
    """Return the GPU of an event; for a run, all its GPUs."""
    if event.subject.device:
        number = labels.get(event.subject.device)
        return f"GPU {number}" if number else event.device
    uuids = event.details.get("gpus")
    if not isinstance(uuids, list):
        return ""
    numbers = [labels[uuid] for uuid in runs.get(event.subject.run, uuids) if isinstance(uuid, str) and uuid in labels]
    if not numbers or not all(number.isdecimal() for number in numbers):
        return f"GPU {','.join(numbers)}" if numbers else ""
    indexes = sorted(map(int, numbers))
    if len(indexes) > 1 and indexes[-1] - indexes[0] == len(indexes) - 1:
        return f"GPU {indexes[0]}–{indexes[-1]}"
    return f"GPU {','.join(map(str, indexes))}"


def is_in_group(row: EventRow, name: str) -> bool:
    """Whether the filter `name` of `GROUPS` shows a row."""
    if name in _SEVERITIES:
        return row.severity == _SEVERITIES[name]
    return row.event.kind.group in GROUPS[name]


def group_counts(rows: Sequence[EventRow]) -> dict[str, int]:
    """Return the number of rows in each group."""
    return {name: sum(is_in_group(row, name) for row in rows) for name in GROUPS}


def concerns_gpu(row: EventRow, label: str) -> bool:
    """Whether a row concerns the GPU with this number, possibly among others."""
    first, _, last = row.gpu.removeprefix("GPU ").partition("–")
    if last:
        return label.isdecimal() and int(first) <= int(label) <= int(last)
    return label in first.split(",")


def filter_rows(rows: Sequence[EventRow], group: str, gpu: str, words: str) -> Sequence[EventRow]:
    """Return the rows of a group (and a GPU, if given) that contain all words; words may be terms like `gpu:3
    user:bob`.
    """
    matches = [row for row in rows if is_in_group(row, group)] if group != ALL else rows
    if gpu:
        matches = [row for row in matches if concerns_gpu(row, gpu)]
    for word in words.lower().split():
        name, colon, value = word.partition(":")
        if name == "gpu" and colon:
            matches = [row for row in matches if concerns_gpu(row, value)] if value else matches
        elif name == "user" and colon:
            matches = [row for row in matches if row.user.lower().startswith(value)]
        else:
            matches = [row for row in matches if word in row.search_text]
    return matches


def index_of(row: EventRow, rows: Sequence[EventRow]) -> int:
    """Return the index of the row of the same event by bisection; 0 if there is none. The newest rows come first."""
    index = bisect_left(rows, -row.event.time_ns, key=lambda other: -other.event.time_ns)
    while index < len(rows) and rows[index].event.time_ns == row.event.time_ns:
        if rows[index].key == row.key:
            return index
        index += 1
    return 0


def time_text(time: float, now: float, cells: int) -> str:
    """Return the time of day, with the date if it is another day and there is room."""
    text, today = units.moment(time), units.moment(now)
    if text[:10] == today[:10] or len(text) < 19:
        return text[11:][: cells if cells < 8 else 8]
    return text[5:10] if cells < 8 else text[5 : 5 + cells]


DAY = 86400.0
STRIP_FROM = 80
"""Minimum width, in columns, at which the strip is drawn."""
_LABEL_CELLS = 18
"""Cells at the left for its label."""
_COMMON_METRICS = ("gpu.utilization", "gpu.memory_used", "gpu.power")
"""GPU metrics; nearly every source has at least one of them."""
_ROLES = ("run", "warn", "crit")
_SEVERITY_ORDER = ("info", "warning", "critical")
_DIM, _FAINT, _TRACK = theme.ink("dim"), theme.ink("faint"), theme.ink("rule")


class StripSpan(NamedTuple):
    """The time interval that is drawn."""

    title: str
    grid: Grid
    now: float
    """Current time (s since 1970); later columns are in the future or not played yet."""
    ends_now: bool


def strip_cells(cells: int, side: int) -> int:
    """Return the number of cells for events in a line of `cells`."""
    return cells - 2 * side - _LABEL_CELLS


def last_day_span(now: float, cells: int) -> StripSpan:
    """Return the last 24 hours, in at most `cells` columns."""
    step = step_of(DAY, cells)
    count = int(DAY / step)
    return StripSpan("24 hours", Grid(floor(now / step) - count + 1, step, count), now, True)


def recording_span(begin: float, end: float, now: float, cells: int) -> StripSpan:
    """Return the duration of a recording in `cells` columns; `begin` or `end` may be NaN if not read yet."""
    last_time = max(now, end) if is_known(end) else now
    begin = min(begin, now) if is_known(begin) else now
    step = step_of(max(last_time - begin, 1.0) + 1e-3, cells)
    first = floor(begin / step)
    if ceil(last_time / step + 1e-6) - first > cells:  # the start lies within a column
        step = step_of(step * (cells + 1), cells)
        first = floor(begin / step)
    return StripSpan("recording", Grid(first, step, max(1, floor(last_time / step) - first + 1)), now, False)


def observed_columns(history: History, gpus: Sequence[str], grid: Grid, interval: float) -> list[bool]:
    """Return for each column whether there were samples, of the host or, if those are missing, of the GPUs."""
    host = _has_values(history, HOST, ("host.cpu_utilization", "host.memory_used"), grid, interval)
    if any(host) or not gpus:
        return host
    gpu_columns = [_has_values(history, gpu, _COMMON_METRICS, grid, interval) for gpu in gpus]
    return [any(has_values) for has_values in zip(*gpu_columns, strict=True)]


def _has_values(history: History, subject: str, metrics: Sequence[str], grid: Grid, interval: float) -> list[bool]:
    metric = next((name for name in metrics if history.has(subject, name)), None)
    if metric is None:
        return [False] * grid.buckets
    return [is_known(value) for value in read(history, subject, metric, grid, interval).mean]


def event_strip(
    rows: Sequence[EventRow],
    span: StripSpan,
    observed: Sequence[bool],
    cells: int,
    left_margin: int,
    *,
    is_read: bool = True,
) -> list[Line]:
    """Return the strip and its time axis; the color of a column shows its most severe event.

    Until all history `is_read`, columns without data are blank, not marked as unobserved.
    """
    grid = span.grid
    counts, severities = [0] * grid.buckets, [0] * grid.buckets
    for row in rows:  # newest first
        column = grid.at(row.time)
        if column < 0:
            break
        if column < grid.buckets:
            counts[column] += 1
            severities[column] = max(severities[column], _SEVERITY_ORDER.index(row.severity))
    max_count = max([*counts, 1])
    label_cells = max(left_margin + _LABEL_CELLS, cells - left_margin - grid.buckets)
    strip: Line = [Segment(fit(" " * left_margin + span.title, label_cells), _DIM)]
    last = grid.at(span.now)
    for column, (count, severity) in enumerate(zip(counts, severities, strict=True)):
        if count:
            step = max(1, min(len(LEVELS) - 1, round((len(LEVELS) - 1) * count / max_count)))
            strip.append(Segment(LEVELS[step], theme.ink(_ROLES[severity])))
        elif column > last:
            strip.append(Segment(" "))
        else:
            strip.append(Segment(LEVELS[0], _TRACK) if observed[column] else Segment(GAP if is_read else " ", _FAINT))
    labels = clock_labels(grid, grid.buckets)
    if span.ends_now:
        labels = [(cell, text) for cell, text in labels if cell + len(text) + 1 < grid.buckets - 3]
        labels.append((grid.buckets - 3, "now"))
    resolution = f"{column_text(grid.step)} a cell"
    times = place_labels(labels, " " * grid.buckets)
    return [strip, [Segment(fit(" " * left_margin + resolution, label_cells), _FAINT), Segment(times, _FAINT)]]
