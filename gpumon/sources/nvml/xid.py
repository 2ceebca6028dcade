"""Receives XID errors of all GPUs in a separate thread, because waiting for them must not delay ticks.

The driver stores no history of errors and returns no times. So the time of an error is the time at which it is
received.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Any

import pynvml

from gpumon.common.clock import SECOND, Clock
from gpumon.common.numbers import NAN
from gpumon.model.frame import XidEvent
from gpumon.model.metrics import Availability
from gpumon.model.xids import worse, xid_of
from gpumon.sources.nvml.library import Function, Library
from gpumon.sources.nvml.return_codes import SUCCESS, availability
from gpumon.sources.nvml.values import RETRY_UNSUPPORTED

XID = int(pynvml.nvmlEventTypeXidCriticalError)


@dataclass(frozen=True, slots=True)
class _Functions:
    """Driver functions for event sets."""

    create: Function
    supported: Function
    register: Function
    wait: Function
    free: Function


_FUNCTIONS = (
    ("nvmlEventSetCreate",),
    ("nvmlDeviceGetSupportedEventTypes",),
    ("nvmlDeviceRegisterEvents",),
    ("nvmlEventSetWait_v2", "nvmlEventSetWait"),
    ("nvmlEventSetFree",),
)
"""Names of each function in `_Functions`, newest first. The older wait function fills in only the start of the
structure."""


@dataclass(frozen=True, slots=True)
class UnfreedSet:
    """An event set that could not be freed because the driver was gone."""

    free: Function
    """Free function of the library that created the set. This library may have been replaced on disk since."""
    events: ctypes.c_void_p

    def try_free(self) -> bool:
        """Try to free the set. Return whether it no longer exists."""
        return availability(self.free(self.events)) in _FREED


_FREED = (Availability.OK, Availability.NOT_SUPPORTED)
"""Return codes of the free function after which the set no longer exists."""
_MAX_UNFREED = 64
"""Maximum number of unfreed sets that are stored."""


class XidEventSet:
    """An event set of the driver. It is created when the first GPU is added."""

    def __init__(self, functions: _Functions, unfreed: deque[UnfreedSet] | None = None) -> None:
        """`unfreed`: sets from earlier initializations of the driver."""
        self._driver = functions
        self._set = ctypes.c_void_p()
        self._earlier = deque[UnfreedSet]() if unfreed is None else unfreed
        self._unfreed = deque[UnfreedSet](maxlen=_MAX_UNFREED)
        self.data: Any = pynvml.c_nvmlEventData_t()
        """The event received by `wait`."""

    @classmethod
    def from_library(cls, library: Library, unfreed: deque[UnfreedSet] | None = None) -> XidEventSet | None:
        """Return a set without GPUs; None if the driver has no events. `unfreed`: see `__init__`."""
        functions = [library.find(*names) for names in _FUNCTIONS]
        return None if None in functions else cls(_Functions(*functions), unfreed)  # type: ignore[arg-type]

    @property
    def is_empty(self) -> bool:
        """Whether there is no GPU to wait for."""
        return not self._set

    def add(self, handle: Any) -> Availability:
        """Add a GPU. Return OK, or why its events cannot be received."""
        types = ctypes.c_ulonglong()
        why = availability(self._driver.supported(handle, ctypes.byref(types)))
        if why is Availability.OK and not types.value & XID:
            why = Availability.NOT_SUPPORTED
        if why is Availability.OK and not self._set:
            why = self._create()
        if why is Availability.OK:
            why = availability(self._driver.register(handle, ctypes.c_ulonglong(XID), self._set))
        return why

    def wait(self, milliseconds: int) -> int:
        """Wait for an event, store it in `data`, and return the NVML return code."""
        return self._driver.wait(self._set, ctypes.byref(self.data), ctypes.c_uint(milliseconds))

    def free(self) -> None:
        """Free the event set, which unregisters all GPUs.

        If the driver is gone, the set is freed when the driver is back.
        """
        if self._set:
            event_set = UnfreedSet(self._driver.free, ctypes.c_void_p(self._set.value))
            self._set.value = None
            if not event_set.try_free():
                self._unfreed.append(event_set)

    def close(self) -> None:
        """Free the remaining sets before the driver is closed.

        Sets that cannot be freed are stored until the driver is opened again.
        """
        self.free()
        _free_all(self._unfreed)
        while self._unfreed:
            self._earlier.append(self._unfreed.popleft())
        while len(self._earlier) > _MAX_UNFREED:
            self._earlier.popleft()

    def _create(self) -> Availability:
        _free_all(self._unfreed)
        why = availability(self._driver.create(ctypes.byref(self._set)))
        # A driver that has been closed may not recognize earlier sets, so they are freed only if necessary.
        if why is Availability.FAILED and self._earlier:
            _free_all(self._earlier)
            why = availability(self._driver.create(ctypes.byref(self._set)))
        return why


def _free_all(sets: deque[UnfreedSet]) -> None:
    """Try to free all sets. Sets that cannot be freed stay in the queue."""
    for event_set in [sets.popleft() for _ in range(len(sets))]:
        if not event_set.try_free():
            sets.append(event_set)


WAIT_MS = 2000
"""Timeout of one wait in ms. Each wait is a driver call. Stopping the watcher or registering a new GPU may take this
long."""
_PAUSES = (0.0, 1.0, 2.0)
"""Pauses after failed waits, in seconds: the first, the second, and the longest one. From the third on, each pause is
twice as long as the previous one.
"""
MOST = 10_000
"""Maximum number of errors that are stored until they are popped. If there are more, the oldest errors are dropped."""
_TIMEOUT = int(pynvml.NVML_ERROR_TIMEOUT)
_PERMANENT = (Availability.NOT_SUPPORTED, Availability.NO_PERMISSION)
"""If registering a GPU that was never watched fails for one of these reasons, it is retried only after a while. Other
reasons may be temporary."""
_WENT_AWAY = (Availability.LOST, Availability.NO_DRIVER, Availability.RESET_REQUIRED)
"""States that end with a reset of the GPU or a restart of the driver. Errors from before this no longer count."""


@dataclass(frozen=True, slots=True)
class XidState:
    """The worst error of a GPU."""

    code: float
    """Code of the worst error since the GPU has been watched; 0 if there was none, NaN if it cannot be watched."""
    why: Availability
    """OK, or why the GPU cannot be watched."""


_NOT_SUPPORTED, _TOO_EARLY = (XidState(NAN, why) for why in (Availability.NOT_SUPPORTED, Availability.TOO_EARLY))


class _WatchedGpu:
    """A GPU whose errors are received."""

    __slots__ = ("due", "handle", "state", "was_registered", "why", "worst")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.update(Availability.STALE, 0)
        self.due = 0
        """Time at which to retry the registration (ns, CLOCK_MONOTONIC)."""
        self.was_registered = False

    def update(self, why: Availability, worst: int) -> None:
        """Set the code of the worst error, and why errors are not received (OK if they are).

        Not thread-safe.
        """
        self.why, self.worst = why, worst
        self.state = XidState(float(worst) if why is Availability.OK else NAN, why)


class XidWatcher:
    """Receives the XID errors of all GPUs in a thread of its own. Its public methods never wait for the driver."""

    def __init__(
        self, library: Library, clock: Clock, new: deque[XidEvent], unfreed: deque[UnfreedSet] | None = None
    ) -> None:
        """`new`: queue to which errors are appended, oldest first.

        Any thread may pop them. `unfreed`: event sets that could not be freed. They are kept from one initialization of
        the driver to the next.
        """
        self._library = library
        self._new = new
        self._clock = clock
        self._events = XidEventSet.from_library(library, unfreed)
        self._lock = Lock()
        self._changed = Event()
        self._gpus: dict[str, _WatchedGpu] = {}
        self._thread: Thread | None = None
        self._is_stopping = self._has_ended = self._is_closed = self._is_paused = False
        self._on_end: Callable[[], object] | None = None

    def watch(self, handles: Mapping[str, Any]) -> None:
        """Watch these GPUs and no others. `handles`: handles by UUID. GPUs that are already watched stay registered.

        May be called again after `stop`.
        """
        with self._lock:
            if self._is_closed:
                return
            was_stopping, self._is_stopping = self._is_stopping, False
            before = self._gpus
            self._gpus = {
                uuid: before[uuid]
                if uuid in before and before[uuid].handle.value == handle.value
                else _WatchedGpu(handle)
                for uuid, handle in handles.items()
            }
            is_unchanged = not was_stopping and all(gpu in before.values() for gpu in self._gpus.values())
            if self._events is None or is_unchanged:
                return
            needs_thread = self._thread is None or self._has_ended
            self._has_ended = False
        self._changed.set()
        if needs_thread:
            # A daemon thread, because a wait that hangs must not keep the process from exiting.
            self._thread = Thread(target=self._run, name="gpumon-xid", daemon=True)
            self._thread.start()

    def state(self, uuid: str) -> XidState:
        """Return the worst error of a GPU. While nothing changes, the same object is returned."""
        if self._events is None:
            return _NOT_SUPPORTED
        gpu = self._gpus.get(uuid)
        return gpu.state if gpu else _TOO_EARLY

    def worst(self, uuid: str) -> int:
        """Return the code of the worst error of a GPU, even if the GPU was lost afterward; 0 if it had no error."""
        gpu = self._gpus.get(uuid)
        return gpu.worst if gpu else 0

    def set_paused(self, is_paused: bool) -> None:
        """Stop or resume waiting.

        Waiting is stopped while all GPUs are powered down, so that no driver calls are made.
        """
        if self._is_paused is not is_paused:
            self._is_paused = is_paused
            self._changed.set()

    def stop(self, on_end: Callable[[], object] | None = None) -> None:
        """Stop watching.

        `on_end`: function that closes the driver. It is called when no driver call is running any more, possibly from
        another thread.
        """
        with self._lock:
            self._is_stopping = True
            self._is_closed = self._is_closed or on_end is not None
            is_idle = self._thread is None or self._has_ended
            if not is_idle:
                self._on_end = on_end or self._on_end
        self._changed.set()
        if is_idle and on_end is not None:
            self._end(on_end)

    def _run(self) -> None:
        assert self._events is not None
        while not self._has_ended:
            self._receive(self._events)
            with self._lock:
                self._has_ended, on_end = self._is_stopping, self._on_end  # `watch` may have restarted the thread
        if on_end is not None:
            self._end(on_end)

    def _end(self, on_end: Callable[[], object]) -> None:
        """Free the remaining event sets, then close the driver. Sets cannot be freed after the driver is closed."""
        if self._events is not None:
            self._events.close()
        on_end()

    def _receive(self, events: XidEventSet) -> None:
        """Receive events until stopped."""
        first, second, longest = _PAUSES
        pause = first
        while not self._is_stopping:
            if self._is_paused:
                self._changed.clear()
                if self._is_paused and not self._is_stopping:  # both may have changed before `clear`
                    self._changed.wait()
                continue
            if unregistered := self._unregistered():
                self._register(events, unregistered)
            if events.is_empty:
                self._changed.wait(WAIT_MS / 1000)
                continue
            began = self._clock.monotonic()
            code = events.wait(WAIT_MS)
            if code == SUCCESS:
                pause = first
                self._record(events.data)
            elif code == _TIMEOUT:
                pause = first
                left = WAIT_MS / 1000 - (self._clock.monotonic() - began) / SECOND
                if left > WAIT_MS / 2000:  # the driver returned without waiting
                    self._changed.wait(left)
            else:
                # One lost GPU makes the wait fail for all GPUs, so the other GPUs are registered again without the lost
                # one.
                events.free()
                self._unregister_all(availability(code))
                self._changed.wait(pause)
                pause = min(max(second, 2 * pause), longest)
        events.free()

    def _unregistered(self) -> list[_WatchedGpu]:
        """Return the GPUs that are due to be registered."""
        self._changed.clear()
        now = self._clock.monotonic()
        with self._lock:
            return [gpu for gpu in self._gpus.values() if gpu.why is not Availability.OK and gpu.due <= now]

    def _register(self, events: XidEventSet, gpus: Sequence[_WatchedGpu]) -> None:
        # All GPUs are added before any state is updated, because no errors are received while one of these calls hangs.
        for gpu, why in [(gpu, events.add(gpu.handle)) for gpu in gpus]:
            if why is Availability.OK:
                gpu.was_registered = True
                if gpu.why in _WENT_AWAY:
                    gpu.worst = 0
            elif why in _PERMANENT and not gpu.was_registered:
                gpu.due = self._clock.monotonic() + round(RETRY_UNSUPPORTED * SECOND)
            gpu.update(why, gpu.worst)

    def _unregister_all(self, why: Availability) -> None:
        """Mark all GPUs as unregistered. Registering them again shows which GPU was lost."""
        with self._lock:
            for gpu in self._gpus.values():
                if gpu.why is Availability.OK:
                    gone = Availability.NO_DRIVER if why is Availability.NO_DRIVER else Availability.STALE
                    gpu.update(gone, gpu.worst)

    def _record(self, data: Any) -> None:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        if not data.eventType & XID:
            return
        handle = ctypes.cast(data.device, ctypes.c_void_p)
        code = int(data.eventData)
        with self._lock:
            known = next((uuid for uuid, gpu in self._gpus.items() if gpu.handle.value == handle.value), "")
        uuid = known or self._library.text("nvmlDeviceGetUUID", handle)[1]
        if not uuid:
            return  # the GPU was unplugged in the meantime
        self._new.append(XidEvent(uuid, code, monotonic, time))
        with self._lock:
            gpu = self._gpus.get(uuid)
            if gpu is not None and xid_of(code).is_of_card:
                gpu.update(gpu.why, worse(gpu.worst, code))
