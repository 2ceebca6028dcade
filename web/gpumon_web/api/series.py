"""The route `series`: metrics over time, for any window of up to a month. Also the parameters for windows and GPUs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

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
from gpumon_web.api.parameters import BadParameter, ParameterValues, QueryParameter, number, one_of, text, whole
from gpumon_web.api.route import ApiData
from gpumon_web.feed import Feed
from gpumon_web.jobs import Packed, packed

LONGEST = 31 * 86400
"""Longest window in seconds: history is kept for as long."""
USUAL = 600.0
FURTHEST = 1e11
"""Largest time accepted (s since 1970)."""
POINTS, MOST_POINTS = 400, 2000
MOST_VALUES = 32_000
"""Maximum number of points in an answer, over all lines."""
METRICS_AT_ONCE, GPUS_AT_ONCE = 16, 64

WINDOW: Sequence[QueryParameter] = (
    number("from", "start of the window, seconds since 1970; without it, `window` before its end", 0, FURTHEST),
    number("to", "end of the window, seconds since 1970; without it, the newest sample", 0, FURTHEST),
)
GPU = text("gpu", "GPUs by index, UUID or label (`0:1`, a MIG instance); without it, all that there are now",
           is_list=True, max_items=GPUS_AT_ONCE)  # fmt: skip
PARAMETERS: Sequence[QueryParameter] = (
    one_of("metric", "metrics, as in docs/metrics.md", [metric.name for metric in METRICS], is_list=True,
           max_items=METRICS_AT_ONCE, is_required=True),
    GPU,
    *WINDOW,
    number("window", f"length of the window, seconds; without it and `from`, {USUAL:g}", 0.001, LONGEST),
    whole("points", "points of each line at most; of more samples, stretches", 1, MOST_POINTS, default=POINTS),
)  # fmt: skip


class TimeWindow(NamedTuple):
    """The requested window; seconds since 1970."""

    begin: float
    end: float


def requested_window(values: ParameterValues, newest: float, limit: float, default: float) -> TimeWindow:
    """Return the window given by `from`, `to` and `window`; it ends at `newest` by default. Raises BadParameter."""
    begin, end, length = values["from"], values["to"], values.get("window")
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


def start(data: ApiData, values: ParameterValues) -> Future[Packed]:
    """Start the job for the lines. Raises BadParameter."""
    feed, names = data.feed, list(dict.fromkeys(values["metric"]))
    with feed.lock:
        feed.refresh()
        newest = feed.history.end
    window = requested_window(values, newest if is_known(newest) else time.time(), LONGEST, USUAL)
    gpus = tuple(values["gpu"] or ())
    key = (feed.boot, feed.newest, *names, *gpus, *window, values["points"])
    return data.answers.get(
        key, math.inf, lambda _: data.work.ask(partial(_lines, feed, names, gpus, window, values["points"]), tuple)
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
