"""XID errors as the driver reports them, in a thread of its own: a wait for them delays no tick.

The driver keeps none of the past, and gives no times: an error has the time at which it arrives here.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

import pynvml

from gpumon.common.clock import SECOND, Clock
from gpumon.common.numbers import NAN
from gpumon.model.frame import XidEvent
from gpumon.model.metrics import Availability
from gpumon.model.xids import worse, xid_of
from gpumon.sources.nvml.library import SUCCESS, Function, Library, availability
from gpumon.sources.nvml.values import UNSUPPORTED

XID = int(pynvml.nvmlEventTypeXidCriticalError)


class _Functions(NamedTuple):
    """The driver's."""

    create: Function
    supported: Function
    register: Function
    wait: Function
    free: Function


class UnfreedSet(NamedTuple):
    """A set that the driver did not free: it was gone when it was asked to."""

    free: Function
    """Of the library that made it, which may have been replaced on disk since."""
    events: ctypes.c_void_p

    def is_freed(self) -> bool:
        """Ask the driver to free it, and return whether it is none any more."""
        return availability(self.free(self.events)) in _FREED


_FREED = (Availability.OK, Availability.NOT_SUPPORTED)
"""Answers after which a set is none any more."""
_MOST_UNFREED = 64
"""Sets that are remembered, for a driver that frees none."""
_FUNCTIONS = (
    ("nvmlEventSetCreate",),
    ("nvmlDeviceGetSupportedEventTypes",),
    ("nvmlDeviceRegisterEvents",),
    ("nvmlEventSetWait_v2", "nvmlEventSetWait"),
    ("nvmlEventSetFree",),
)
"""In the order of `_Functions`, the newest name first. The older wait writes the beginning of the same structure."""


class XidEvents:
    """The set; the driver makes it with the first GPU."""

    def __init__(self, functions: _Functions, unfreed: deque[UnfreedSet] | None = None) -> None:
        """`unfreed`: of earlier openings of the driver."""
        self._call = functions
        self._set = ctypes.c_void_p()
        self._earlier = deque[UnfreedSet]() if unfreed is None else unfreed
        self._unfreed = deque[UnfreedSet](maxlen=_MOST_UNFREED)
        self.data: Any = pynvml.c_nvmlEventData_t()
        """The event that a `wait` has brought."""

    @classmethod
    def make(cls, library: Library, unfreed: deque[UnfreedSet] | None = None) -> XidEvents | None:
        """A set without GPUs; None where the driver has no events. `unfreed` as of `__init__`."""
        functions = [library.find(*names) for names in _FUNCTIONS]
        return None if None in functions else cls(_Functions(*functions), unfreed)  # type: ignore[arg-type]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self._set

    def add(self, handle: Any) -> Availability:
        """Let a GPU report into it; OK, or why it cannot."""
        types = ctypes.c_ulonglong()
        why = availability(self._call.supported(handle, ctypes.byref(types)))
        if why is Availability.OK and not types.value & XID:
            why = Availability.NOT_SUPPORTED
        if why is Availability.OK and not self._set:
            why = self._create()
        if why is Availability.OK:
            why = availability(self._call.register(handle, ctypes.c_ulonglong(XID), self._set))
        return why

    def wait(self, milliseconds: int) -> int:
        """Wait for the next event, which is then in `data`, and return the driver's code."""
        return self._call.wait(self._set, ctypes.byref(self.data), ctypes.c_uint(milliseconds))

    def free(self) -> None:
        """Let all GPUs go. A driver that is gone frees nothing: it is asked again when it answers."""
        if self._set:
            this = UnfreedSet(self._call.free, ctypes.c_void_p(self._set.value))
            self._set.value = None
            if not this.is_freed():
                self._unfreed.append(this)

    def close(self) -> None:
        """Free what is left before the driver is closed; what it does not free even now is left to the next opening."""
        self.free()
        _free_all(self._unfreed)
        while self._unfreed:
            self._earlier.append(self._unfreed.popleft())
        while len(self._earlier) > _MOST_UNFREED:
            self._earlier.popleft()

    def _create(self) -> Availability:
        _free_all(self._unfreed)
        why = availability(self._call.create(ctypes.byref(self._set)))
        # Whether a driver that was closed meanwhile still knows its sets, it does not say: they are touched at need.
        if why is Availability.FAILED and self._earlier:
            _free_all(self._earlier)
            why = availability(self._call.create(ctypes.byref(self._set)))
        return why


def _free_all(sets: deque[UnfreedSet]) -> None:
    """Free them; those that the driver still refuses to free stay."""
    for one in [sets.popleft() for _ in range(len(sets))]:
        if not one.is_freed():
            sets.append(one)


WAIT_MS = 2000
"""Of one call: each costs one, and so long it may take to stop and to see a new GPU."""
_PAUSES = (0.0, 1.0, 2.0)
"""Seconds after a failure: the first, then twice as long each time, and at most: what works again is known in 3 s."""
MOST = 10_000
"""Errors that nobody has taken; the oldest go first."""
_TIMEOUT = int(pynvml.NVML_ERROR_TIMEOUT)
_LASTING = (Availability.NOT_SUPPORTED, Availability.NO_PERMISSION)
"""After these a GPU that never was watched is asked again only after a while; all others may pass at any time."""
_WENT_AWAY = (Availability.LOST, Availability.NO_DRIVER, Availability.RESET_REQUIRED)
"""Codes that a reset or a restart of the driver answers: what the GPU had before is over."""


class XidState(NamedTuple):
    """The state of a GPU by its errors."""

    code: float
    """The worst error of the card since it is watched; 0 without one, NaN where it cannot be watched."""
    why: Availability
    """OK, or why it cannot be watched."""


_NOT_SUPPORTED, _TOO_EARLY = (XidState(NAN, why) for why in (Availability.NOT_SUPPORTED, Availability.TOO_EARLY))


class _Followed:
    """A GPU whose errors are waited for."""

    __slots__ = ("due", "handle", "state", "was_watched", "why", "worst")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.tell(Availability.STALE, 0)
        self.due = 0
        """ns, CLOCK_MONOTONIC: when to ask again, where it is not."""
        self.was_watched = False

    def tell(self, why: Availability, worst: int) -> None:
        """Note whether it is registered (OK), or why not, and its worst error; one thread at a time does so."""
        self.why, self.worst = why, worst
        self.state = XidState(float(worst) if why is Availability.OK else NAN, why)


class XidErrors:
    """Collects the errors of all GPUs of a driver that was started. Its methods call no driver, and do not wait."""

    def __init__(
        self, library: Library, clock: Clock, new: deque[XidEvent], unfreed: deque[UnfreedSet] | None = None
    ) -> None:
        """`new` takes the errors, in their order; any thread may take them from it. `unfreed` keeps, from one opening
        of the driver to the next, what a driver that went away did not free.
        """
        self._library = library
        self._new = new
        self._clock = clock
        self._events = XidEvents.make(library, unfreed)
        self._lock = Lock()
        self._changed = Event()
        self._followed: dict[str, _Followed] = {}
        self._thread: Thread | None = None
        self._is_over = self._has_ended = self._is_closed = self._is_resting = False
        self._then: Callable[[], object] | None = None

    def follow(self, handles: Mapping[str, Any]) -> None:
        """Watch these GPUs, by UUID, and no others; those that are watched go on. After a `stop` it begins anew."""
        with self._lock:
            if self._is_closed:
                return
            was_over, self._is_over = self._is_over, False
            known = self._followed
            self._followed = {
                uuid: known[uuid] if uuid in known and known[uuid].handle.value == handle.value else _Followed(handle)
                for uuid, handle in handles.items()
            }
            is_as_before = not was_over and all(one in known.values() for one in self._followed.values())
            if self._events is None or is_as_before:
                return
            begins = self._thread is None or self._has_ended
            self._has_ended = False
        self._changed.set()
        if begins:
            # A daemon thread: a wait that hangs must not keep the process from ending.
            self._thread = Thread(target=self._run, name="gpumon-xid", daemon=True)
            self._thread.start()

    def state(self, uuid: str) -> XidState:
        """Return the state of a GPU: the same object as long as nothing of it changes."""
        if self._events is None:
            return _NOT_SUPPORTED
        one = self._followed.get(uuid)
        return one.state if one else _TOO_EARLY

    def worst(self, uuid: str) -> int:
        """Return the code of the worst error of a card, also of one that was lost since; 0 without one."""
        one = self._followed.get(uuid)
        return one.worst if one else 0

    def rest(self, is_asleep: bool) -> None:
        """Wait for no error while all GPUs are powered down: nothing is asked of a driver that has none to tell of."""
        if self._is_resting is not is_asleep:
            self._is_resting = is_asleep
            self._changed.set()

    def stop(self, then: Callable[[], object] | None = None) -> None:
        """Watch no longer; `then`, which closes the driver, is called when no call is under way any more, perhaps from
        another thread.
        """
        with self._lock:
            self._is_over = True
            self._is_closed = self._is_closed or then is not None
            is_idle = self._thread is None or self._has_ended
            if not is_idle:
                self._then = then or self._then
        self._changed.set()
        if is_idle and then is not None:
            self._end(then)

    def _run(self) -> None:
        assert self._events is not None
        while not self._has_ended:
            self._watch(self._events)
            with self._lock:
                self._has_ended, then = self._is_over, self._then  # or it is to go on, since the last look at that
        if then is not None:
            self._end(then)

    def _end(self, then: Callable[[], object]) -> None:
        """Close the driver, which takes back first what it did not free while it was gone: later it may not."""
        if self._events is not None:
            self._events.close()
        then()

    def _watch(self, events: XidEvents) -> None:
        first, second, longest = _PAUSES
        pause = first
        while not self._is_over:
            if self._is_resting:
                self._changed.clear()
                if self._is_resting and not self._is_over:  # both may have changed before
                    self._changed.wait()
                continue
            if waiting := self._unregistered():
                self._register(events, waiting)
            if events.is_empty:
                self._changed.wait(WAIT_MS / 1000)
                continue
            begun = self._clock.monotonic()
            code = events.wait(WAIT_MS)
            if code == SUCCESS:
                pause = first
                self._note(events.data)
            elif code == _TIMEOUT:
                pause = first
                left = WAIT_MS / 1000 - (self._clock.monotonic() - begun) / SECOND
                if left > WAIT_MS / 2000:  # a driver that does not wait
                    self._changed.wait(left)
            else:
                # One GPU that is lost ends the wait for all: the others go on without it.
                events.free()
                self._forget(availability(code))
                self._changed.wait(pause)
                pause = min(max(second, 2 * pause), longest)
        events.free()

    def _unregistered(self) -> list[_Followed]:
        """GPUs that are due to be registered."""
        self._changed.clear()
        now = self._clock.monotonic()
        with self._lock:
            return [one for one in self._followed.values() if one.why is not Availability.OK and one.due <= now]

    def _register(self, events: XidEvents, waiting: Sequence[_Followed]) -> None:
        # All first: as long as one hangs, no errors of the others are waited for.
        for one, why in [(one, events.add(one.handle)) for one in waiting]:
            if why is Availability.OK:
                one.was_watched = True
                if one.why in _WENT_AWAY:
                    one.worst = 0
            elif why in _LASTING and not one.was_watched:
                one.due = self._clock.monotonic() + round(UNSUPPORTED * SECOND)
            one.tell(why, one.worst)

    def _forget(self, why: Availability) -> None:
        """Note that no GPU is registered any more. One that was lost is known when it is asked again."""
        with self._lock:
            for one in self._followed.values():
                if one.why is Availability.OK:
                    gone = Availability.NO_DRIVER if why is Availability.NO_DRIVER else Availability.STALE
                    one.tell(gone, one.worst)

    def _note(self, data: Any) -> None:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        if not data.eventType & XID:
            return
        handle = ctypes.cast(data.device, ctypes.c_void_p)
        code = int(data.eventData)
        with self._lock:
            found = next((uuid for uuid, one in self._followed.items() if one.handle.value == handle.value), "")
        uuid = found or self._library.text("nvmlDeviceGetUUID", handle)[1]
        if not uuid:
            return  # of a GPU that has been unplugged meanwhile
        self._new.append(XidEvent(uuid, code, monotonic, time))
        with self._lock:
            one = self._followed.get(uuid)
            if one is not None and xid_of(code).is_of_card:
                one.tell(one.why, worse(one.worst, code))
