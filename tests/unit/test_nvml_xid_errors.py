"""XID errors are collected in a thread of their own: no caller waits, and no GPU silences another."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator
from ctypes import c_void_p
from math import isnan
from queue import Empty, Queue
from typing import Any

import pynvml
import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import XidEvent
from gpumon.model.metrics import Availability
from gpumon.sources.nvml import xid
from gpumon.sources.nvml.xid import UnfreedSet, XidWatcher
from tests.fakes import FakeClock
from tests.nvml.signatures import CheckedLibrary, buffer_of
from tests.programs import PATIENCE, until

SUCCESS, NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, LOST, UNKNOWN = 0, 3, 4, 10, 15, 999
GONE, NONE_LEFT = 9, 17
FREE = "nvmlEventSetFree"
XID = 8
HANDLES = {f"GPU-{index}": c_void_p(0x1000 + index) for index in range(3)}
OK = Availability.OK


class Driver(CheckedLibrary):
    """A driver whose wait gives what the test puts into `told`: a GPU and a code, or the wait's own return code."""

    def __init__(self, functions: bool = True) -> None:
        super().__init__({
            "nvmlEventSetCreate": self.create, "nvmlDeviceGetSupportedEventTypes": self.supported,
            "nvmlDeviceRegisterEvents": self.register, "nvmlEventSetWait_v2": self.wait,
        })  # fmt: skip
        self.told: Queue[tuple[str, int, int] | int] = Queue()
        self.types = dict.fromkeys(HANDLES, 0xFF)
        self.refusals: dict[str, int] = {}
        self.registered: list[str] = []
        self.threads: set[int] = set()
        self.may_return = threading.Event()
        self.may_return.set()
        self.is_held = threading.Event()
        self.waits = 0
        self._has_functions = functions

    def find(self, *names: str) -> Callable[..., int] | None:
        return super().find(*names) if self._has_functions else None

    def text(self, name: str, handle: Any) -> tuple[int, str]:
        return SUCCESS, f"MIG-{handle.value:x}"

    def create(self, made: Any) -> int:
        buffer_of(made).value = 0xE0
        self.registered.clear()
        return SUCCESS

    def supported(self, handle: c_void_p, types: Any) -> int:
        self.threads.add(threading.get_ident())
        uuid = uuid_of(handle)
        buffer_of(types).value = self.types[uuid]
        return self.refusals.get(uuid, SUCCESS)

    def register(self, handle: c_void_p, types: Any, events: c_void_p) -> int:
        assert (types.value, events.value) == (XID, 0xE0)
        self.registered.append(uuid_of(handle))
        return SUCCESS

    def wait(self, events: c_void_p, data: Any, timeout: Any) -> int:
        self.waits += 1
        try:
            told = self.told.get(timeout=0.02)
        except Empty:
            told = TIMEOUT
        if not self.may_return.is_set():
            self.is_held.set()
            self.may_return.wait(PATIENCE)
        if isinstance(told, int):
            return told
        uuid, kind, code = told
        found = buffer_of(data)
        place = HANDLES[uuid].value if uuid in HANDLES else 0x77
        found.device = ctypes.cast(c_void_p(place), pynvml.c_nvmlDevice_t)
        found.eventType, found.eventData = kind, code
        return SUCCESS


def uuid_of(handle: c_void_p) -> str:
    return next(uuid for uuid, one in HANDLES.items() if one.value == handle.value)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def errors(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[XidWatcher]:
    monkeypatch.setattr(xid, "WAIT_MS", 20)
    made = XidWatcher(driver, FakeClock(5 * SECOND, 9 * SECOND), deque())  # type: ignore[arg-type]
    yield made
    driver.may_return.set()
    made.stop(lambda: None)
    if made._thread is not None:
        made._thread.join(PATIENCE)


def watched(errors: XidWatcher, *uuids: str) -> None:
    """Follow all GPUs, and wait until these are registered."""
    errors.watch(HANDLES)
    until(lambda: all(errors.state(uuid).why is OK for uuid in uuids or HANDLES))


def taken(errors: XidWatcher, count: int) -> list[XidEvent]:
    until(lambda: len(errors._new) >= count)
    return [errors._new.popleft() for _ in range(count)]


def test_an_error_has_its_gpu_its_code_and_the_time_at_which_it_came(driver: Driver, errors: XidWatcher) -> None:
    watched(errors)
    driver.told.put(("GPU-1", XID, 79))
    assert taken(errors, 1) == [XidEvent("GPU-1", 79, 5 * SECOND, 9 * SECOND)]
    assert not errors._new
    assert [errors.state(uuid).code for uuid in HANDLES] == [0, 79, 0]


def test_the_caller_makes_no_call(driver: Driver, errors: XidWatcher) -> None:
    watched(errors)
    errors.watch(HANDLES)
    assert threading.get_ident() not in driver.threads
    assert driver.calls.count("nvmlEventSetCreate") == 1
    assert sorted(driver.registered) == sorted(HANDLES)


def test_the_worst_error_of_the_card_stays_and_an_applications_own_is_none(driver: Driver, errors: XidWatcher) -> None:
    watched(errors)
    for code in (31, 63, 48, 45):
        driver.told.put(("GPU-0", XID, code))
    assert [xid.code for xid in taken(errors, 4)] == [31, 63, 48, 45]
    assert errors.state("GPU-0").code == 48


def test_events_of_another_type_are_none(driver: Driver, errors: XidWatcher) -> None:
    watched(errors)
    driver.told.put(("GPU-0", 0x2, 48))
    driver.told.put(("GPU-0", XID, 13))
    assert [xid.code for xid in taken(errors, 1)] == [13]


@pytest.mark.parametrize(
    ("code", "why"), [(NOT_SUPPORTED, Availability.NOT_SUPPORTED), (NO_PERMISSION, Availability.NO_PERMISSION)]
)
def test_a_gpu_that_cannot_be_watched_has_a_reason_and_is_asked_once(
    code: int, why: Availability, driver: Driver, errors: XidWatcher
) -> None:
    driver.refusals["GPU-1"] = code
    driver.types["GPU-2"] = 0x2
    watched(errors, "GPU-0")
    before = driver.calls.count("nvmlDeviceGetSupportedEventTypes")
    waits = driver.waits
    until(lambda: driver.waits > waits + 3)
    assert driver.calls.count("nvmlDeviceGetSupportedEventTypes") == before == 3
    assert errors.state("GPU-1").why is why
    assert isnan(errors.state("GPU-1").code)
    assert errors.state("GPU-2").why is Availability.NOT_SUPPORTED


def test_a_driver_without_these_functions_gives_a_reason_and_starts_no_thread() -> None:
    errors = XidWatcher(Driver(functions=False), FakeClock(), deque())  # type: ignore[arg-type]
    errors.watch(HANDLES)
    assert errors.state("GPU-0").why is Availability.NOT_SUPPORTED
    assert errors._thread is None
    closed: list[int] = []
    errors.stop(lambda: closed.append(1))
    assert closed == [1]


def test_one_that_is_lost_leaves_the_others_watched_and_is_well_when_it_comes_back(
    driver: Driver, errors: XidWatcher
) -> None:
    watched(errors)
    driver.told.put(("GPU-1", XID, 79))
    taken(errors, 1)
    driver.refusals["GPU-1"] = LOST
    driver.told.put(LOST)
    until(lambda: errors.state("GPU-1").why is Availability.LOST)
    until(lambda: errors.state("GPU-0").why is OK)
    assert "GPU-1" not in driver.registered
    assert errors.worst("GPU-1") == 79, "why it was lost"
    driver.told.put(("GPU-2", XID, 13))
    assert taken(errors, 1)[0].uuid == "GPU-2"
    del driver.refusals["GPU-1"]
    until(lambda: errors.state("GPU-1").why is OK)
    assert errors.worst("GPU-1") == errors.state("GPU-1").code == 0, "a reset or a restart has answered its error"


def test_a_wait_that_fails_at_once_each_time_is_no_busy_loop(driver: Driver, errors: XidWatcher) -> None:
    watched(errors)
    waits = driver.waits
    for _ in range(50):
        driver.told.put(UNKNOWN)
    until(lambda: driver.waits >= waits + 2)
    begun = driver.waits
    threading.Event().wait(0.3)
    assert driver.waits - begun <= 1


def test_a_wait_that_failed_many_times_is_tried_again_at_once_every_two_seconds(
    driver: Driver, errors: XidWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert xid._PAUSES[-1] <= 2.0
    monkeypatch.setattr(xid, "_PAUSES", tuple(pause / 100 for pause in xid._PAUSES))
    watched(errors)
    for _ in range(30):
        driver.told.put(UNKNOWN)
    until(driver.told.empty)
    driver.told.put(("GPU-1", XID, 79))
    assert taken(errors, 1)[0].code == 79
    until(lambda: all(errors.state(uuid).why is OK for uuid in HANDLES))


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, GONE, LOST, UNKNOWN])
@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlEventSetCreate", "nvmlEventSetWait_v2"],
)
def test_each_code_of_each_call_is_a_reason_and_no_error_and_over_soon_after_it(
    function: str, code: int, driver: Driver, errors: XidWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xid, "_PAUSES", (0.0, 0.01, 0.02))
    watched(errors)
    works, driver.answers[function] = driver.answers[function], code
    driver.told.put(UNKNOWN)  # which ends the wait for all
    until(lambda: errors.state("GPU-1").why is not OK)
    assert isnan(errors.state("GPU-1").code)
    driver.answers[function] = works
    until(lambda: all(errors.state(uuid).why is OK for uuid in HANDLES))
    assert not errors._new


def test_a_set_that_a_driver_does_not_free_while_it_is_gone_is_freed_when_it_answers(
    driver: Driver, errors: XidWatcher
) -> None:
    watched(errors)
    frees, driver.answers[FREE] = driver.answers.get(FREE, SUCCESS), GONE
    driver.told.put(GONE)
    until(lambda: driver.calls.count("nvmlEventSetCreate") == 2)
    asked = driver.calls.count(FREE)
    assert asked >= 1
    driver.answers[FREE] = frees
    driver.told.put(UNKNOWN)
    until(lambda: driver.calls.count("nvmlEventSetCreate") == 3)
    assert driver.calls.count(FREE) == asked + 2, "that of now, and that of before"


def test_a_set_of_an_opening_before_is_freed_where_the_driver_has_none_left(driver: Driver, errors: XidWatcher) -> None:
    unfreed: deque[UnfreedSet] = deque()
    before = XidWatcher(driver, FakeClock(), deque(), unfreed)  # type: ignore[arg-type]
    watched(before)
    driver.answers[FREE] = GONE
    closed = threading.Event()
    before.stop(closed.set)
    assert closed.wait(PATIENCE)
    assert len(unfreed) == 1
    driver.answers[FREE] = SUCCESS

    create: Any = lambda made: NONE_LEFT if unfreed else driver.create(made)  # noqa: E731
    driver.answers["nvmlEventSetCreate"] = create
    after = XidWatcher(driver, FakeClock(), deque(), unfreed)  # type: ignore[arg-type]
    watched(after)
    after.stop(lambda: None)


def test_a_gpu_that_never_could_be_watched_is_asked_again_after_a_minute(driver: Driver, errors: XidWatcher) -> None:
    driver.refusals["GPU-1"] = NO_PERMISSION
    watched(errors, "GPU-0", "GPU-2")
    until(lambda: errors.state("GPU-1").why is Availability.NO_PERMISSION)
    del driver.refusals["GPU-1"]
    errors._clock.advance(61.0)  # type: ignore[attr-defined]
    until(lambda: errors.state("GPU-1").why is OK)


def test_a_driver_that_does_not_wait_is_no_busy_loop(
    driver: Driver, errors: XidWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched(errors)
    monkeypatch.setattr(xid, "WAIT_MS", 60_000)
    for _ in range(50):
        driver.told.put(TIMEOUT)
    until(lambda: driver.told.qsize() < 50)
    threading.Event().wait(0.3)
    assert driver.told.qsize() >= 47
    monkeypatch.undo()
    errors.watch({"GPU-0": c_void_p(0x1000)} | {"GPU-9": HANDLES["GPU-1"]})
    until(lambda: errors.state("GPU-9").why is OK)


def test_a_new_gpu_is_watched_and_one_that_left_is_not_told_of_by_name(driver: Driver, errors: XidWatcher) -> None:
    first = {"GPU-0": HANDLES["GPU-0"]}
    errors.watch(first)
    until(lambda: errors.state("GPU-0").why is OK)
    errors.watch(HANDLES)
    until(lambda: errors.state("GPU-2").why is OK)
    assert driver.calls.count("nvmlEventSetCreate") == 1, "what is registered goes on"
    errors.watch(first)
    assert errors.state("GPU-2").why is Availability.TOO_EARLY
    driver.told.put(("GPU-unknown", XID, 48))
    assert taken(errors, 1)[0].uuid == "MIG-77", "the driver knows whose it is"


def test_stopping_waits_for_no_call_and_closes_the_driver_after_the_last(driver: Driver, errors: XidWatcher) -> None:
    watched(errors)
    driver.may_return.clear()
    assert driver.is_held.wait(PATIENCE)
    closed = threading.Event()
    errors.stop()
    errors.stop(closed.set)
    assert not closed.is_set()
    driver.may_return.set()
    assert closed.wait(PATIENCE)
    assert driver.calls[-1] == "nvmlEventSetFree"


def test_stopping_before_anything_was_watched_closes_the_driver_at_once(errors: XidWatcher) -> None:
    closed: list[int] = []
    errors.stop(lambda: closed.append(1))
    assert closed == [1]
    errors.watch(HANDLES)
    assert errors._thread is None
