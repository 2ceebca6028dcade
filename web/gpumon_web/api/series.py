"""The route `series`: metrics over time, for any window of up to a month. Also the parameters for windows and GPUs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from gpumon.common.errors import SourceError
from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model.device import Device
from gpumon.model.metrics import METRICS
from gpumon.reports import history
from gpumon.reports.history import SubjectHistory
from gpumon.storage.history.devices import devices_of
from gpumon.storage.history.open import stored_devices
from gpumon.storage.history.query import HOST
from gpumon_web.api.now import ApiData
from gpumon_web.api.parameters import COMMAS, BadParameter, OneOf, Parameters, Text, Time
from gpumon_web.feed import Feed
from gpumon_web.jobs import Packed, packed

LONGEST = 31 * 86400
"""Longest window in seconds: history is kept for as long."""
USUAL = 600.0
POINTS, MOST_POINTS = 400, 2000
MOST_VALUES = 32_000
"""Maximum number of points in an answer, over all lines."""
METRICS_AT_ONCE, GPUS_AT_ONCE = 16, 64


class WindowParameters(Parameters):
    """Parameters that select a window of time."""

    begin: Time | SkipJsonSchema[None] = Field(
        None, alias="from", description="start of the window, seconds since 1970; without it, `window` before its end"
    )
    end: Time | SkipJsonSchema[None] = Field(
        None, alias="to", description="end of the window, seconds since 1970; without it, the newest sample"
    )


class SeriesParameters(WindowParameters):
    """Parameters of the route."""

    metric: Annotated[
        tuple[Annotated[str, OneOf(tuple(metric.name for metric in METRICS))], ...],
        Field(min_length=1, max_length=METRICS_AT_ONCE), COMMAS,
    ] = Field(description="metrics, as in docs/reference/metrics.md")  # fmt: skip
    gpu: Annotated[tuple[Text, ...], Field(min_length=1, max_length=GPUS_AT_ONCE), COMMAS] = Field(
        (), description="GPUs by index, UUID or label (`0:1`, a MIG instance); without it, all that there are now"
    )
    window: Annotated[float, Field(ge=0.001, le=LONGEST)] | SkipJsonSchema[None] = Field(
        None, description=f"length of the window, seconds; without it and `from`, {USUAL:g}"
    )
    points: int = Field(
        POINTS, ge=1, le=MOST_POINTS, description="points of each line at most; of more samples, stretches"
    )


class TimeWindow(NamedTuple):
    """The requested window; seconds since 1970."""

    begin: float
    end: float


def requested_window(
    query: WindowParameters, newest: float, limit: float, default: float, length: float | None = None
) -> TimeWindow:
    """Return the requested window of `length` (s); it ends at `newest` by default. Raises BadParameter."""
    begin, end = query.begin, query.end
    if None not in (begin, end, length):
        raise BadParameter("from, to and window are too many: give two of them")
    if end is None:
        end = newest if begin is None or length is None else begin + length
    if begin is None:
        begin = max(0.0, end - (default if length is None else length))
    if not begin < end:
        raise BadParameter("the window is empty: from must be before to")
    if end - begin > limit * (1 + 1e-9):
        raise BadParameter(f"the window is too long: at most {limit:.0f} seconds")
    return TimeWindow(begin, end)


def start(data: ApiData, query: SeriesParameters) -> Future[Packed]:
    """Start the job for the lines. Raises BadParameter."""
    feed, names = data.feed, list(dict.fromkeys(query.metric))
    with feed.lock:
        feed.refresh()
        newest = feed.history.end
    window = requested_window(query, newest if is_known(newest) else time.time(), LONGEST, USUAL, query.window)
    key = (feed.boot, feed.newest, *names, *query.gpu, *window, query.points)
    return data.answers.get(
        key, math.inf, lambda _: data.work.ask(partial(_lines, feed, names, query.gpu, window, query.points), tuple)
    )


def _lines(feed: Feed, names: Sequence[str], gpus: Sequence[str], window: TimeWindow, points: int) -> Packed:
    """Return the lines. Raises SourceError for an unknown GPU, BadParameter if there are too many points."""
    has_gpu_metrics = any(not name.startswith("host.") for name in names)
    devices = find_devices(feed, gpus) if has_gpu_metrics else []
    lines = sum(len(devices) if name.startswith("gpu.") else 1 for name in names)
    if lines * points > MOST_VALUES:
        limit = MOST_VALUES // lines
        raise BadParameter(
            f"{lines} lines of {points} points are too many: ask for fewer metrics or GPUs, or points={limit} at most"
        )
    with feed.lock:
        machine = feed.history.whole(HOST)
        subjects = [SubjectHistory(device, feed.history.whole(device.uuid)) for device in devices]
        problem = feed.history.problem or feed.reading
    if any(name.startswith("host.") for name in names):
        subjects.append(SubjectHistory(None, machine))
    request = history.SeriesRequest(names, *window, points)
    return packed(history.series_json(request, subjects, machine, problem))


def find_devices(feed: Feed, names: Sequence[str]) -> list[Device]:
    """Return the named GPUs, or all present ones if no name is given. Raises SourceError for an unknown GPU."""
    with feed.lock:
        feed.refresh()
        present = devices_of([feed.frame] if feed.frame else [])
        path = feed.live.history_file()
    if not names:
        return list(present.values())
    devices = {name: device for name in names for device in present.values() if name in (device.uuid, device.label)}
    missing = [name for name in names if name not in devices]
    if missing:
        stored = stored_devices(path, []) if path else {}
        devices.update({name: stored[name] for name in missing if stored and name in stored})
    for name in names:
        if name not in devices:
            labels = ", ".join(device.label for device in present.values()) or "none"
            raise SourceError(f"no such GPU: '{clean(name, 100)}'; GPUs now: {labels}")
    return list({devices[name].uuid: devices[name] for name in names}.values())
