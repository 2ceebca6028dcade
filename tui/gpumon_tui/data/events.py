"""Events since the view started, detected in its frames.

The rules are the same as for the daemon's event log, which is written some seconds later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_status import GpuStatus, longest_held
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import RunState, Tick, XidEvent
from gpumon.model.origin import Capability, Origin
from gpumon_tui.background_queries import PENDING, Answer, BackgroundQueries

if TYPE_CHECKING:
    from gpumon.model.events import Event, EventSubject
    from gpumon.model.frame import Frame
    from gpumon.model.origin import Driver
    from gpumon.storage.events.query import LoggedEvent
    from gpumon_tui.feed import Writer

OpenEvents = Callable[[str], "Sequence[LoggedEvent]"]
"""Reads the event log from the history file at a path, or from the default one. Raises GpumonError if there is none."""
AT_ONCE = 10
"""Frames processed at once; at startup, minutes of frames are waiting."""
_IDLE, _IDLE_ENDED = "idle_began", "idle_ended"
_MAX_EVENTS = 1000
"""Maximum number of events kept; the oldest are dropped."""
_MAX_WAITING = 200
"""Maximum number of waiting frames, also at startup; a ring buffer holds fewer full frames."""
_READ_EVERY = 20.0
"""Seconds between reads of the log while it is shown."""
_READ_SOON, _SOON = 2.0, 15.0
"""A shorter interval, and the seconds for which it applies after a new daemon has started: the daemon soon logs its own
start and the end of earlier events.
"""


class EventHistory:
    """Events from the log, and from frames since the view started."""

    def __init__(self, queries: BackgroundQueries, read: OpenEvents | None = None) -> None:
        self.queries = queries
        self._read = read
        self._waiting: deque[tuple[Frame, Origin, Driver]] = deque()
        self.labels: dict[str, str] = {}
        """Last known numbers of GPUs by UUID, including GPUs that are no longer in the frames."""
        self._writer: tuple[int, int] | None = None
        self._has_new_writer, self._read_soon_until = False, 0.0
        self.forget()

    def forget(self) -> None:
        """Reset for frames of another source."""
        self._waiting.clear()
        self.since = 0.0
        """Time of the first frame (s since 1970); 0 if there is none yet. No frame is missing from here to `until`."""
        self.until = 0.0
        """Time of the last processed frame (s since 1970)."""
        self.recorded: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self.corrections = 0
        """Number of events whose time was corrected after they were recorded."""
        self._undated: list[Event] = []
        """Idle events that were already open in the first frame; older frames may show when they started."""
        self._longer: dict[EventSubject, float] = {}
        """Additional duration (s) of open events that started before the first frame, by subject."""
        self._rules: _EventRules | None = None

    def add(
        self, frames: Sequence[Frame], origin: Origin, driver: Driver, statuses: Sequence[GpuStatus] = (),
        now: float = NAN,
    ) -> None:  # fmt: skip
        """Add frames. A frame without runs and processes resets the events; detection starts again after it.

        `statuses` are the states of the GPUs at `now` (s since 1970), from all frames before these; empty while history
        is still loading.
        """
        if statuses and self._undated:
            self._correct_times(statuses, now)
        for frame in frames[-1:]:
            self.labels.update((sample.device.uuid, sample.device.label) for sample in frame.samples)
        # A log has no processes or runs in any frame, so nothing is missing from frames with values only.
        has_more = Capability.PROCESSES in origin.capabilities
        for index in range(len(frames) - 1, -1, -1):
            if has_more and not frames[index].is_full:
                self.forget()
                frames = frames[index + 1 :]
                break
        if self._rules is None and has_more:
            frames = frames[-_MAX_WAITING:]
        self._waiting.extend((frame, origin, driver) for frame in frames)
        self._process(max(AT_ONCE, len(self._waiting) - _MAX_WAITING))

    def _process(self, limit: int) -> None:
        while self._waiting and limit:
            limit -= 1
            frame, origin, driver = self._waiting.popleft()
            if self._rules is None:
                self._rules, self.since = _EventRules(), frame.time
            self.until = frame.time
            self.recorded.extend(map(self._check_idle, self._rules.add(frame_tick(frame, origin, driver))))

    def _check_idle(self, event: Event) -> Event:
        if event.kind == _IDLE and event.details.get("at_least"):
            self._undated.append(event)
        elif event.kind == _IDLE_ENDED and (longer := self._longer.pop(event.subject, 0.0)):
            return event._replace(lasted=event.lasted + longer)
        return event

    def _correct_times(self, statuses: Sequence[GpuStatus], now: float) -> None:
        """Set the start of idle events from before the first frame to the time that other parts of the view show."""
        undated, self._undated = self._undated, []
        by_uuid = {status.sample.device.uuid: status for status in statuses}
        for event in undated:
            status = by_uuid.get(event.subject.device)
            if status is None or status.since is None or event not in self.recorded:
                continue
            processes = [process for process in status.processes if process.user == event.subject.user]
            held_since = now - longest_held(processes, now)
            time_ns = round(max(status.since.time, held_since) * SECOND)
            if time_ns < event.time_ns:
                at_least = status.since.at_least and status.since.time >= held_since
                dated = event._replace(time_ns=time_ns, details={"at_least": True} if at_least else {})
                self.recorded[self.recorded.index(event)] = dated
                self._longer[event.subject] = (event.time_ns - time_ns) / SECOND
                self.corrections += 1

    def all_recorded(self) -> Sequence[Event]:
        """Return all events up to now, in the order in which they were recorded."""
        self._process(len(self._waiting))
        return tuple(self.recorded)

    def set_writer(self, writer: Writer | None) -> None:
        """Set the process that writes the frames.

        After a change, events that are open in the log of the previous writer no longer count as open.
        """
        if writer is None or (identity := (writer.pid, writer.started)) == self._writer:
            return
        if self._writer is not None:
            self._has_new_writer, self._read_soon_until = True, monotonic() + _SOON
        self._writer = identity

    def logged(self, path: str) -> Answer[Sequence[LoggedEvent]]:
        """Return the events of the log at a path, newest last. The log is read in the background."""
        read, key = self._read, ("events", path)
        if read is None:
            return PENDING
        if self._has_new_writer:
            self._has_new_writer = False
            self.queries.expire(key)
        interval = _READ_SOON if monotonic() < self._read_soon_until else _READ_EVERY
        previous = self.queries.cached(key).result

        def read_again() -> Sequence[LoggedEvent]:
            logged = read(path)
            return previous if previous == logged else logged  # its rows are then not built and drawn again

        return self.queries.get(key, read_again, interval)

    @property
    def can_read(self) -> bool:
        """Whether there is a log to read."""
        return self._read is not None


class _EventRules:
    """The rules of the daemon's event log; imported when the first frame arrives."""

    def __init__(self) -> None:
        from gpumon.analysis.holders import HolderWatch
        from gpumon.storage.events.device_watch import DeviceWatch, XidWatch
        from gpumon.storage.events.run_watch import RunWatch

        self._holders, self._devices, self._runs, self._xids = HolderWatch(), DeviceWatch(), RunWatch(), XidWatch()
        self._codes: dict[str, float] = {}
        """Last XID of each GPU in the previous frame."""

    def add(self, tick: Tick) -> Iterator[Event]:
        """Yield the events of a tick.

        A run that disappears from the frames counts as died only if the daemon reported it as died.
        """
        yield from self._xids.add(tick._replace(xids=self._faults(tick)))
        yield from self._devices.add(tick, self._holders.judged(tick))
        dead = {run.id or run.key for run in tick.runs if run.state is RunState.DIED}
        for event in self._runs.add(tick):
            if event.kind != "run_died" or event.subject.run in dead:
                yield event

    def _faults(self, tick: Tick) -> list[XidEvent]:
        """Return the GPU faults since the previous frame. A frame contains only the code of the most severe XID."""
        faults = []
        for sample in tick.samples:
            uuid, code = sample.device.uuid, sample.value("gpu.xid")
            if code > 0 and is_known(previous := self._codes.get(uuid, NAN)) and code != previous:
                faults.append(XidEvent(uuid, int(code), tick.monotonic_ns, tick.time_ns))
            if is_known(code):
                self._codes[uuid] = code
        return faults


def frame_tick(frame: Frame, origin: Origin, driver: Driver) -> Tick:
    """Convert a frame to a tick. Fields that a frame does not contain keep their defaults."""
    return Tick(
        monotonic_ns=frame.monotonic_ns,
        time_ns=round(frame.time * SECOND) if isfinite(frame.time) else 0,
        samples=frame.samples,
        host=frame.host,
        processes=frame.processes,
        runs=frame.runs,
        boundaries=frame.boundaries,
        origin=origin,
        driver=driver,
        interval_ns=round(frame.interval * SECOND),
    )
