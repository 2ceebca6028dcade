"""The status of a server whose ring is silent, stopped, gone or of before a restart: never that of now."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from gpumon.common.clock import SECOND
from gpumon.live import Live
from gpumon.model.origin import Origin
from gpumon.ring.reader import Heartbeat
from gpumon.ring.writer import RingWriter
from gpumon_web.api.now import LiveStatus
from gpumon_web.api.openapi import schemas
from gpumon_web.feed import Feed
from tests.builders import process, sample, tick
from tests.web.api import GIB
from tests.web.served import Served

CHECK = jsonschema.Draft202012Validator({**schemas()["status"], "$defs": dict(schemas())})


class Told(Live):
    """A reader of a ring that can be taken away, and of whose writer a test tells."""

    heard: Heartbeat | None = None
    pid = 0

    def heartbeat(self) -> Heartbeat | None:
        return self.heard or super().heartbeat()

    def writer_pid(self) -> int:
        return self.pid or super().writer_pid()


class Ring:
    """A ring with two ticks, its reader and its status at second 3."""

    def __init__(self) -> None:
        self.writer = RingWriter.private(1, SECOND, 60)
        for number in (1, 2):
            held = sample(0, utilization=0.9, memory_used=8 * GIB, memory_total=80 * GIB)
            self.writer.append(tick(number, [held], [process()]))
        self.is_there = True
        self.live = Told(self._opened)
        self.status = LiveStatus(Feed(self.live), lambda: 3 * SECOND)

    def _opened(self) -> int:
        if not self.is_there:
            raise FileNotFoundError(2, "no ring")
        return os.dup(self.writer.fd)

    def told(self) -> dict[str, Any]:
        found = self.status.document()
        CHECK.validate(found)
        return found


@pytest.fixture
def ring() -> Ring:
    return Ring()


def head(ring: Ring) -> int:
    found = Live.heartbeat(ring.live)
    assert found is not None
    return found.head


def test_what_this_process_samples_has_no_daemon(ring: Ring) -> None:
    found = ring.told()
    assert (found["live"], found["age"], found["daemon"], found["problem"]) == (True, 1.0, None, None)
    assert found["gpus"][0]["gpu_state"] == "busy"


def test_a_daemon_is_named_with_its_last_sign_of_life(ring: Ring) -> None:
    ring.live.pid = os.getpid() + 1
    ring.live.heard = Heartbeat(head(ring), 1, 0.25)
    assert ring.told()["daemon"] == {"pid": os.getpid() + 1, "interval": 1.0, "age": 0.25}


def _silent(ring: Ring) -> None:
    ring.live.heard = Heartbeat(head(ring), 1, 500.0)


def _stopped(ring: Ring) -> None:
    ring.live.heard = Heartbeat(head(ring), 0, 500.0)


def _of_before_a_restart(ring: Ring) -> None:
    ring.live.heard = Heartbeat(head(ring), 0, math.inf)


def _gone(ring: Ring) -> None:
    ring.is_there = False
    ring.live.close()


def test_before_the_first_sample_no_source_is_claimed() -> None:
    found = Served().json("/api/v1/status")
    assert (found["source"], found["gpus"]) == (None, [])


@pytest.mark.parametrize("befalls", [_silent, _stopped, _of_before_a_restart, _gone])
def test_what_is_not_of_now_is_said_to_be_old(ring: Ring, befalls: Callable[[Ring], None]) -> None:
    ring.told()
    befalls(ring)
    found = ring.told()
    assert found["live"] is False
    (gpu,) = found["gpus"]
    assert (gpu["state"], gpu["gpu_state"]) == ("stale", "stale")
    assert found["source"] == "nvml"
    assert found["host"]["hostname"] == "node1"
    if befalls is _silent:
        return  # it is the daemon that has `age`
    assert found["daemon"] is None
    assert found["problem"]
    if befalls is _of_before_a_restart:
        assert found["age"] is None or found["age"] > 3600, "by the wall clock, not by that of another boot"


def test_a_driver_that_does_not_answer_is_not_live(ring: Ring) -> None:
    ring.writer.append(tick(3, [], origin=Origin("nvml", problem="the driver hangs", unanswered=30.0)))
    found = ring.told()
    assert (found["live"], found["problem"], found["gpus"]) == (False, "the driver hangs", [])
    assert found["driver"]["unanswered"] == 30
