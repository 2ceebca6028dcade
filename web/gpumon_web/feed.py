"""The live data of the pages, read from the ring: the newest frame, the state of GPUs and runs, and chart lines.

The first request of a tick reads the new frames. Reading a full ring takes seconds, so a thread (`ring_reader`) reads
the older frames while requests are answered from the newest ones. It also reads new frames while there are no requests;
for a recording it does only that. Frames are numbered; `boot` changes when the numbers restart.
"""

from __future__ import annotations

import math
import secrets
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, Protocol

from gpumon.analysis.run_epochs import Epochs
from gpumon.common.numbers import is_known, shown
from gpumon.diagnosis.running_findings import RecordedFindings
from gpumon.live import LiveState
from gpumon.model import units
from gpumon.model.frame import Frame, RunState
from gpumon.model.metrics import BY_NAME, HOST_METRICS, Kind
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.panels import GPU_PANELS
from gpumon.storage.history.buckets import DEFAULT_WINDOW, Grid, aligned
from gpumon.storage.history.open import open_history
from gpumon.storage.history.query import HOST, Query, Series
from gpumon.storage.history.recent import KEEP
from gpumon.storage.history.tiered_history import TieredHistory
from gpumon_web.components.machine import Now
from gpumon_web.fleet import Fleet
from gpumon_web.stored.run_course import LoggedValues

FIRST_WINDOW = float(DEFAULT_WINDOW.seconds)
"""Seconds of history that a page gets when it opens."""
POINTS = 900
"""Maximum number of points per line in that history."""
LOCKED_FOR = 0.02
"""Seconds for which a tick waits for a locked history file; it is then answered from frames alone."""
PACE = 0.5
"""Shortest time between points of a line, in seconds: faster sampling only shows in charts, not at each tick."""
COLUMNS = tuple(panel.metric.name for panel in GPU_PANELS)
SPARK = "gpu.utilization"
AT_ONCE = 60
"""Maximum number of frames that a request reads itself; the thread reads the older ones."""
PART = 30
"""Frames that the thread reads before it checks for changes."""
KEEPS_UP = 10.0
"""Longest pause of the thread between reads of new frames, in seconds."""
PAUSE = 4.0
"""Shortest pause of the thread, as a multiple of its reading time: a recording can be played at any speed."""
READING = "the last hour is still being read: charts and idle times begin {ago} ago"
ABOUT_EVERY = 5.0
"""Seconds between updates of slowly changing data; started or ended processes and new epochs update it at once."""


class JsonBody(NamedTuple):
    """A JSON body, plain and compressed."""

    plain: bytes
    packed: bytes


class Point(NamedTuple):
    """A point of the chart lines: the number of its frame, and its time (s since 1970)."""

    number: int
    time: float


class Frames(Protocol):
    """Source of a feed's frames: a `Live`, or a recording up to a position."""

    def since(self, number: int) -> Sequence[Frame]:
        """Return the frames newer than `number`, oldest first."""

    def state(self) -> LiveState:
        """Return whether the data is live, and its age."""

    def origin(self) -> Origin:
        """Return where the data comes from."""

    def driver(self) -> Driver:
        """Return the GPU driver."""

    def hostname(self) -> str:
        """Return the host name of the machine."""

    def history_file(self) -> str:
        """Return the path of the file with longer history; empty if there is none."""


class FrameState:
    """Everything derived from a sequence of frames: history, epochs, logged values and GPU activity."""

    def __init__(self, history: TieredHistory) -> None:
        self.history = history
        self.epochs = Epochs()
        self.logged = LoggedValues()
        self.fleet = Fleet()
        self.points: list[Point] = []
        self._gap: float | None = None

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        previous_end = self.history.end
        self.history.add(frame)
        self.epochs.add(frame)
        self.logged.add(frame)
        self.fleet.add(frame)
        if previous_end < self.history.pause < frame.time:
            self._gap = self.history.pause
        if not self.points or frame.time - self.points[-1].time >= PACE - frame.interval / 2:
            if self._gap is not None:
                self.points.append(Point(frame.number, self._gap))
            self.points.append(Point(frame.number, frame.time))
            self._gap = None


class Feed:
    """The live data of the pages. Thread-safe; each frame is read once.

    `play` returns the player's data for a recording in which viewers may seek; `extent` returns the first and last time
    of a log that only plays forward (s since 1970), NaN if unknown; `keep`: number of frames whose values are kept for
    lines.
    """

    def __init__(
        self, live: Frames, play: Callable[[], dict[str, Any]] | None = None, *, keep: int = KEEP,
        extent: Callable[[], tuple[float, float]] | None = None,
    ) -> None:  # fmt: skip
        self.live = live
        self.hides_names: bool = getattr(live, "hides_names", False)
        """Whether all users are shown under the same name, so that viewers cannot choose theirs."""
        self._play = play
        self._extent = extent
        self.lock = Lock()
        self._state = FrameState(open_history(keep=keep, metrics=BY_NAME, timeout=LOCKED_FOR))
        self._first = Point(0, 0.0)
        """The oldest frame of the ring at the first read."""
        self._unread: deque[Frame] | None = None
        """Frames that the thread has yet to read; None if `_state` has them all. Guarded by `lock`."""
        self._can_defer = False
        self._wake_up = Event()
        self.frame: Frame | None = None
        self._nonce = secrets.token_hex(4)
        self._restarts = 0
        self._newest = 0
        self._dropped = 0
        self.about = Now()
        """Slowly changing data: devices, holders, runs. The caller holds `lock`."""
        self._about_time = 0.0
        self.recorded: Callable[[Sequence[str]], Mapping[str, RecordedFindings]] = lambda _: {}
        """Returns what the ledger says about running runs, by their ids."""
        self._outline: tuple[Any, ...] = ()

    @property
    def history(self) -> TieredHistory:
        """Values by time. The caller holds `lock`."""
        return self._state.history

    @property
    def epochs(self) -> Epochs:
        """Epochs of the runs in the ring. The caller holds `lock`."""
        return self._state.epochs

    @property
    def logged(self) -> LoggedValues:
        """Values that trainings logged. The caller holds `lock`."""
        return self._state.logged

    @property
    def boot(self) -> str:
        """Changes when frame numbers restart: another server, a cleared ring, a recording played from its start."""
        return f"{self._nonce}.{self._restarts}"

    @property
    def newest(self) -> int:
        """The number of the newest frame read."""
        return self._newest

    def head(self) -> dict[str, Any]:
        """Return the state shown at the top of every page. The caller holds `lock`."""
        state = self.live.state()
        origin = self.live.origin()
        is_recorded = Capability.NOW not in origin.capabilities
        return {
            "boot": self.boot,
            "seq": self._newest,
            "live": state.live,
            "state": state.text,
            "interval": state.interval,
            "age": whole_seconds(state),
            "ended": origin.ended,
            "label": origin.label,
            "problem": origin.problem,
            "left_out": self._left_out(),
            **({"recorded": True} if is_recorded else {}),
            **({"play": self._play()} if self._play else {}),
            **self._log(),
        }

    def _log(self) -> dict[str, Any]:
        begin, end = self._extent() if self._extent else (math.nan, math.nan)
        return {"log": [begin, end]} if begin < end else {}

    def _left_out(self) -> str:
        """Return text about data that is missing from the pages; empty if none is."""
        if self.frame is None:
            return ""
        return "; ".join(text for text in (self.frame.left_out, self.reading) if text)

    @property
    def reading(self) -> str:
        """Text about missing data while older frames are being read; empty afterward."""
        if self._unread is None or self.frame is None:
            return ""
        return READING.format(ago=units.duration(self.frame.time - self.history.first_frame))

    def values(self, uuid: str) -> dict[str, float | None]:
        """Return the newest value of each metric in `COLUMNS`. The caller holds `lock`."""
        newest = [self.history.end]
        return {name: self._values_at(uuid, name, newest)[0] for name in COLUMNS}

    def host_rates(self) -> dict[str, float | None]:
        """Return the machine's present disk and network rates (bytes/s). The caller holds `lock`."""
        rates = [metric for metric in HOST_METRICS if metric.kind is Kind.COUNTER]
        return {metric.key: self._values_at(HOST, metric.name, [self.history.end])[0] for metric in rates}

    def mean(self, uuid: str, name: str, seconds: float) -> tuple[float, float] | None:
        """Return the mean of a metric over the last `seconds`, and how many of them have data; None if unknown.

        The caller holds `lock`.
        """
        end = self.history.end
        grid = Grid(0, seconds, 1, end - seconds + PACE)  # shifted so that it includes the newest sample
        series = self.history.query(Query(uuid, (name,), end - seconds, end, grid=grid, seen=True))[name]
        return (series.mean[0], series.seen[0]) if math.isfinite(series.mean[0]) else None

    def lines(self, metrics: Mapping[str, tuple[str, str]], since: int, has_past: bool) -> dict[str, Any]:
        """Return chart lines by name, each of a (GPU, metric): the points after frame `since`; 0 returns the history.

        `every` is the time between points in seconds, which may exceed that between frames. The caller holds `lock`.
        """
        is_whole = since == 0 or since < self._dropped
        if is_whole and has_past and metrics:
            end = self.history.end
            series_by_name = self._past(metrics, end)
            fine = aligned(end - FIRST_WINDOW, end, POINTS)
            if any(series.step > fine.step for series in series_by_name.values()):
                series_by_name = self._past(metrics, end, fine)
            times = [min(time, end) for time in next(iter(series_by_name.values())).times]
            lines = {name: [shown(value) for value in series.mean] for name, series in series_by_name.items()}
        else:
            points = self._state.points
            points = points[-1:] if is_whole else points[_after(points, since) :]
            times = [point.time for point in points]
            lines = {name: self._values_at(uuid, metric, times) for name, (uuid, metric) in metrics.items() if times}
        interval = max(PACE, self.frame.interval) if self.frame else PACE
        return {"t": [round(time, 3) for time in times], "lines": lines, "whole": is_whole, "every": interval}

    def _past(self, metrics: Mapping[str, tuple[str, str]], end: float, grid: Grid | None = None) -> dict[str, Series]:
        """Return the lines of the first window. On a fine `grid`, a stored minute is a horizontal line."""
        begin = end - FIRST_WINDOW
        return {
            name: self.history.query(Query(uuid, (metric,), begin, end, POINTS, grid))[metric]
            for name, (uuid, metric) in metrics.items()
        }

    def refresh(self) -> None:
        """Read the ring's new frames. The caller holds `lock`."""
        frames = self.live.since(self._newest)
        if not frames:
            return
        self.history.set_path(self.live.history_file())
        is_restarted = frames[0].number <= self._newest or (self.frame and frames[0].time < self.frame.time - 60)
        if is_restarted:
            self._restart()
        if is_restarted or self.frame is None:
            self._first = Point(frames[0].number, frames[0].time)
            if len(frames) > AT_ONCE and self._is_deferred():
                self._unread = deque(frames)
                self._wake_up.set()
                frames = frames[-AT_ONCE:]
        if self._unread is not None and (not self._unread or self._unread[-1].number < frames[0].number):
            self._unread.extend(frames)
        for frame in frames:
            self._state.add(frame)
        self.frame = frames[-1]
        self._newest = self.frame.number
        oldest, points = self.frame.time - 2 * FIRST_WINDOW, self._state.points
        if points[0].time < oldest:
            index = bisect_left(points, oldest, key=lambda point: point.time)
            self._dropped = points[index - 1].number
            del points[:index]
        key = outline(self.frame)
        if key != self._outline or not 0 <= self.frame.time - self._about_time < ABOUT_EVERY:
            self._outline = key
            self._update_about()

    def known(self) -> dict[str, Any]:
        """Return the time range of the samples, and whether older ones were dropped. The caller holds `lock`."""
        begin, end = self.history.begin, self.history.end
        if not is_known(begin):
            return {"begin": None, "end": None, "cut": False}
        if self._unread is not None:
            begin = min(begin, self._first.time)
        return {"begin": begin, "end": end, "cut": self._first.number > 1 or begin > self._first.time}

    def _restart(self) -> None:
        self._restarts += 1
        self._dropped = 0
        self._unread = None
        self._state = FrameState(self.history.without_frames())

    def _update_about(self) -> None:
        """Update the slowly changing data from the newest frame."""
        assert self.frame is not None
        self._about_time = self.frame.time
        live, fleet = self.live, self._state.fleet
        self.about = fleet.about(
            self.frame, self.epochs, live.origin(), live.driver(), live.hostname(), self.history,
            self.recorded_findings(),
        )  # fmt: skip

    def recorded_findings(self) -> Mapping[str, RecordedFindings]:
        """Return what the ledger says about the running runs of the newest frame, by id. The caller holds `lock`."""
        runs = self.frame.runs if self.frame else ()
        return self.recorded(sorted({run.id for run in runs if run.state is RunState.RUNNING}))

    def _read_ring(self, ended: Event) -> None:
        """Thread: read older frames of the ring, and new ones while there are no requests, until `ended`."""
        while not ended.is_set():
            with self.lock:
                start = time.perf_counter()
                self.refresh()
                duration = time.perf_counter() - start
                interval = self.frame.interval / max(1.0, self.live.origin().speed) if self.frame else 1.0
            self._read_older(ended)
            self._wake_up.wait(max(PAUSE * duration, min(KEEPS_UP, AT_ONCE / 2 * interval)))
            self._wake_up.clear()

    def _is_deferred(self) -> bool:
        """Whether the thread reads older frames. Not for recordings, whose frames may come faster than it reads."""
        return self._can_defer and Capability.NOW in self.live.origin().capabilities

    def _read_older(self, ended: Event) -> None:
        """Read the deferred frames into a second state, then switch to it."""
        with self.lock:
            unread, state = self._unread, FrameState(self.history.without_frames())
        while unread is not None and not ended.is_set():
            with self.lock:
                if self._unread is not unread:
                    return  # the frame numbers restarted
                part = [unread.popleft() for _ in range(min(PART, len(unread)))]
                if not part:
                    self._restarts += 1
                    self._dropped, self._state, self._unread = 0, state, None
                    self._update_about()
                    return
            for frame in part:
                state.add(frame)

    def _values_at(self, uuid: str, name: str, times: Sequence[float]) -> list[float | None]:
        return [shown(value) for value in self.history.at(uuid, name, times)]


@contextmanager
def ring_reader(feed: Feed) -> Iterator[None]:
    """Run a thread that reads the ring, so that requests only have to read the newest frames."""
    ended = Event()
    thread = Thread(target=feed._read_ring, args=(ended,), name="ring", daemon=True)
    feed._can_defer = True
    thread.start()
    try:
        yield
    finally:
        ended.set()
        feed._wake_up.set()
        thread.join()


def _after(points: Sequence[Point], number: int) -> int:
    """Return the index of the first point after frame `number`."""
    return bisect_right(points, number, key=lambda point: point.number)


def whole_seconds(state: LiveState) -> int | None:
    """Return the seconds since the last frame; None while data is live, or if unknown."""
    return int(state.age) if not state.live and math.isfinite(state.age) else None


def host_row(frame: Frame) -> dict[str, float | None]:
    """Return the machine's present values, for a page without GPUs."""
    return {
        metric.key: shown(value)
        for metric, value in zip(HOST_METRICS, frame.host, strict=True)
        if metric.kind is Kind.GAUGE
    }


def outline(frame: Frame) -> tuple[Any, ...]:
    """Return the values whose change viewers must see at once."""
    return (
        tuple((sample.device.uuid, sample.state, sample.run) for sample in frame.samples),
        tuple((process.pid, process.uuid) for process in frame.processes),
        tuple((run.key, run.state, run.epoch, run.phase) for run in frame.runs),
    )
