"""Events since the view began, from its frames: by the same watches as the daemon's log, which writes once a minute."""

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
from gpumon_tui.background import NOT_YET, Answer, Asked

if TYPE_CHECKING:
    from gpumon.model.events import Event, EventSubject
    from gpumon.model.frame import Frame
    from gpumon.model.origin import Driver
    from gpumon.storage.events.query import LoggedEvent
    from gpumon_tui.feed import Writer

OpenEvents = Callable[[str], "Sequence[LoggedEvent]"]
"""Reads the event log from the file of history at a path, or where there is one. Raises GpumonError where none is."""
AT_ONCE = 10
"""Frames that are looked through at once: those of minutes wait when the view begins."""
_IDLE, _IDLE_ENDED = "idle_began", "idle_ended"
_MOST = 1000
"""Events kept: the oldest go first."""
_MOST_WAITING = 200
"""Frames that wait to be looked through, at most, and with which it begins; a ring has fewer that are full."""
_READ_EVERY = 20.0
"""Seconds after which the log is read anew while it is shown."""
_READ_SOON, _SOON = 2.0, 15.0
"""The same, in so many seconds after another daemon began: it notes soon what of before is over, and its own begin."""


class Happened:
    """Events of the log, and of the frames since the view began."""

    def __init__(self, asked: Asked, read: OpenEvents | None = None) -> None:
        self.asked = asked
        self._read = read
        self._waiting: deque[tuple[Frame, Origin, Driver]] = deque()
        self.labels: dict[str, str] = {}
        """Numbers of GPUs by UUID, as frames told them last: also of those that no frame tells of any more."""
        self._writer: tuple[int, int] | None = None
        self._is_old, self._soon_until = False, 0.0
        self.forget()

    def forget(self) -> None:
        """Begin anew, as with frames of another source."""
        self._waiting.clear()
        self.since = 0.0
        """s since 1970 of the first frame; 0 before it. From here to `until` no frame was left out."""
        self.until = 0.0
        """s since 1970 of the last frame that was looked through."""
        self.seen: deque[Event] = deque(maxlen=_MOST)
        self.dated = 0
        """Counts events that have another time now than when they were noted."""
        self._undated: list[Event] = []
        """Idleness that the first of these frames has shown already: older frames may know when it began."""
        self._longer: dict[EventSubject, float] = {}
        """Seconds by which it had lasted longer than these frames tell, where it goes on."""
        self._watches: _Watches | None = None

    def add(
        self, frames: Sequence[Frame], origin: Origin, driver: Driver, judged: Sequence[GpuStatus] = (),
        now: float = NAN,
    ) -> None:  # fmt: skip
        """Take frames; where some come without runs and processes, all begins anew with those after them.

        `judged` are the GPUs as all frames that the view has show them `now` (s since 1970), before these came; none
        while it has not taken in all of them.
        """
        if judged and self._undated:
            self._date(judged, now)
        for frame in frames[-1:]:
            self.labels.update((sample.device.uuid, sample.device.label) for sample in frame.samples)
        # A log knows neither processes nor runs, so that its frames lack nothing where only their values are kept.
        has_more = Capability.PROCESSES in origin.capabilities
        for place in range(len(frames) - 1, -1, -1):
            if has_more and not frames[place].is_full:
                self.forget()
                frames = frames[place + 1 :]
                break
        if self._watches is None and has_more:
            frames = frames[-_MOST_WAITING:]
        self._waiting.extend((frame, origin, driver) for frame in frames)
        self._look(max(AT_ONCE, len(self._waiting) - _MOST_WAITING))

    def _look(self, most: int) -> None:
        while self._waiting and most:
            most -= 1
            frame, origin, driver = self._waiting.popleft()
            if self._watches is None:
                self._watches, self.since = _Watches(), frame.time
            self.until = frame.time
            self.seen.extend(map(self._noted, self._watches.add(tick_of(frame, origin, driver))))

    def _noted(self, event: Event) -> Event:
        if event.kind == _IDLE and event.details.get("at_least"):
            self._undated.append(event)
        elif event.kind == _IDLE_ENDED and (longer := self._longer.pop(event.subject, 0.0)):
            return event._replace(lasted=event.lasted + longer)
        return event

    def _date(self, judged: Sequence[GpuStatus], now: float) -> None:
        """Let idleness of before the first frame here begin when the view says elsewhere that it did."""
        waiting, self._undated = self._undated, []
        of = {status.sample.device.uuid: status for status in judged}
        for event in waiting:
            status = of.get(event.subject.device)
            if status is None or status.since is None or event not in self.seen:
                continue
            theirs = [process for process in status.processes if process.user == event.subject.user]
            held_since = now - longest_held(theirs, now)
            time_ns = round(max(status.since.time, held_since) * SECOND)
            if time_ns < event.time_ns:
                at_least = status.since.at_least and status.since.time >= held_since
                dated = event._replace(time_ns=time_ns, details={"at_least": True} if at_least else {})
                self.seen[self.seen.index(event)] = dated
                self._longer[event.subject] = (event.time_ns - time_ns) / SECOND
                self.dated += 1

    def all_seen(self) -> Sequence[Event]:
        """Return the events of all frames until now, as they were noted."""
        self._look(len(self._waiting))
        return tuple(self.seen)

    def written_by(self, writer: Writer | None) -> None:
        """Take who makes the frames: what goes on by the log of the one before does so no more."""
        if writer is None or (now := (writer.pid, writer.started)) == self._writer:
            return
        if self._writer is not None:
            self._is_old, self._soon_until = True, monotonic() + _SOON
        self._writer = now

    def logged(self, path: str) -> Answer[Sequence[LoggedEvent]]:
        """Return the events of the log at a path, the newest last; read in a thread."""
        read, question = self._read, ("events", path)
        if read is None:
            return NOT_YET
        if self._is_old:
            self._is_old = False
            self.asked.forget(question)
        every = _READ_SOON if monotonic() < self._soon_until else _READ_EVERY
        return self.asked.ask(question, lambda: read(path), every)

    @property
    def can_read(self) -> bool:
        """Whether a log can be asked at all."""
        return self._read is not None


class _Watches:
    """The watches of the daemon's event log, imported with the first frame that they take."""

    def __init__(self) -> None:
        from gpumon.analysis.holders import HolderWatch
        from gpumon.storage.events.device_watch import DeviceWatch, XidWatch
        from gpumon.storage.events.run_watch import RunWatch

        self._holders, self._devices, self._runs, self._xids = HolderWatch(), DeviceWatch(), RunWatch(), XidWatch()
        self._codes: dict[str, float] = {}
        """XID of each GPU in the frame before."""

    def add(self, tick: Tick) -> Iterator[Event]:
        """Yield what happened. A run that frames do not show any more has died only where the daemon says so."""
        yield from self._xids.add(tick._replace(xids=self._faults(tick)))
        yield from self._devices.add(tick, self._holders.judged(tick))
        dead = {run.id or run.key for run in tick.runs if run.state is RunState.DIED}
        for event in self._runs.add(tick):
            if event.kind != "run_died" or event.subject.run in dead:
                yield event

    def _faults(self, tick: Tick) -> list[XidEvent]:
        """Faults of cards since the frame before; frames tell no more of XIDs than the code of the worst."""
        found = []
        for sample in tick.samples:
            uuid, code = sample.device.uuid, sample.value("gpu.xid")
            if code > 0 and is_known(before := self._codes.get(uuid, NAN)) and code != before:
                found.append(XidEvent(uuid, int(code), tick.monotonic_ns, tick.time_ns))
            if is_known(code):
                self._codes[uuid] = code
        return found


def tick_of(frame: Frame, origin: Origin, driver: Driver) -> Tick:
    """Return the tick that a frame was, as far as frames tell."""
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
