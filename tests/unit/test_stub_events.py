"""The stub driver reports events as NVML does: only later ones, only to who has registered, and with a timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.nvml import Stub
from tests.nvml.layout import EVENTS, XID
from tests.unit.test_stub_driver import LOST, NOT_LOADED, NOT_SUPPORTED, Ask, client, compiled

TIMEOUT = 10


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub(compiled(), gpus=3) as stub:
        yield stub


@pytest.fixture
def ask(stub: Stub) -> Iterator[Ask]:
    with client(stub) as ask:
        ask("globals().update(set=n.nvmlEventSetCreate(), wait=lambda ms: n.nvmlEventSetWait_v2(set, ms))")
        yield ask


def register(ask: Ask, gpu: int, types: int = XID) -> object:
    return ask(f"n.nvmlDeviceRegisterEvents(h[{gpu}], {types}, set)")


def next_event(ask: Ask, timeout_ms: int = 5000) -> object:
    return ask(
        "(lambda at, e: [[at(x) for x in h].index(at(e.device)), e.eventType, e.eventData, e.gpuInstanceId])"
        f"(lambda device: ctypes.addressof(device.contents), wait({timeout_ms}))"
    )


def test_events_after_registration_arrive_in_order(stub: Stub, ask: Ask) -> None:
    stub.xid(0, 31)  # before
    register(ask, 0)
    stub.xid(0, 48)
    stub.xid(1, 79)  # of another
    stub.xid(0, 63)
    assert [next_event(ask), next_event(ask)] == [[0, XID, 48, 2**32 - 1], [0, XID, 63, 2**32 - 1]]
    assert ask("wait(0)") == {"error": TIMEOUT}


def test_a_wait_ends_with_the_event_or_with_its_time(stub: Stub, ask: Ask) -> None:
    register(ask, 2)
    begun = time.monotonic()
    assert ask("wait(60)") == {"error": TIMEOUT}
    assert time.monotonic() - begun >= 0.06
    later = threading.Timer(0.05, stub.xid, [2, 79])
    later.start()
    assert next_event(ask, 60_000) == [2, XID, 79, 2**32 - 1]
    later.join()


def test_only_the_types_that_were_asked_for_arrive(stub: Stub, ask: Ask) -> None:
    register(ask, 0)
    stub.event(0, 0x2, 7)
    stub.xid(0, 13)
    assert next_event(ask) == [0, XID, 13, 2**32 - 1]
    stub.event_types = 0x2
    assert ask("n.nvmlDeviceGetSupportedEventTypes(h[0])") == 0x2
    assert register(ask, 1) == {"error": NOT_SUPPORTED}


def test_a_lost_gpu_and_a_driver_that_is_gone_end_the_wait(stub: Stub, ask: Ask) -> None:
    register(ask, 0)
    register(ask, 1)
    stub.xid(1, 79)
    stub.set_lost(1)
    assert next_event(ask) == [1, XID, 79, 2**32 - 1], "what happened before is told first"
    assert ask("wait(60000)") == {"error": LOST}
    stub.driver_error = NOT_LOADED
    assert ask("wait(60000)") == {"error": NOT_LOADED}


def test_of_more_events_than_are_kept_the_oldest_are_gone(stub: Stub, ask: Ask) -> None:
    register(ask, 0)
    for code in range(EVENTS + 5):
        stub.xid(0, code)
    assert next_event(ask) == [0, XID, 5, 2**32 - 1]


def test_a_set_that_was_freed_is_none(ask: Ask) -> None:
    ask("n.nvmlEventSetFree(set)")
    assert ask("wait(0)") == {"error": 2}
