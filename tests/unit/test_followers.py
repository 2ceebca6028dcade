"""Who gets each tick after the ring: one that fails or is slow costs neither the daemon nor the others anything."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from gpumon.model.frame import Tick
from gpumon.storage.follower import LEDGER, SLOW, Followers
from tests.builders import tick
from tests.fakes import FakeClock
from tests.programs import PATIENCE


class Kept:
    """Keeps the numbers of ticks."""

    def __init__(self, name: str = "other", before: Callable[[Tick], None] = lambda _: None) -> None:
        self.name, self.writes, self.problem = name, f"records of {name}", ""
        self.times: list[int] = []
        self.closed = 0
        self._before = before

    def add(self, tick: Tick) -> None:
        self._before(tick)
        self.times.append(tick.time_ns)

    def close(self) -> None:
        self.closed += 1


class Daemon:
    """Followers, what they say, and a clock."""

    def __init__(self, *followers: Kept) -> None:
        self.clock = FakeClock()
        self.said: list[str] = []
        self.followers = Followers(self.clock, self.said.append)
        for follower in followers:
            self.followers.append(follower)

    def ticks(self, *numbers: int) -> list[int]:
        made = [tick(number) for number in numbers]
        for one in made:
            self.followers.add(one)
        return [one.time_ns for one in made]


def fails_at(number: int) -> Callable[[Tick], None]:
    def before(given: Tick) -> None:
        if given.time_ns == tick(number).time_ns:
            raise ValueError("no such column")

    return before


def test_every_follower_gets_every_tick_in_order() -> None:
    kept = [Kept(name) for name in ("ledger", "history", "accounts")]
    assert [one.times for one in kept] == [[]] * 3
    times = Daemon(*kept).ticks(1, 2, 3)
    assert [one.times for one in kept] == [times] * 3


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_that_raises_is_dropped_and_named_once_and_the_others_continue(place: int) -> None:
    kept = [Kept("history"), Kept("accounts")]
    broken = Kept(LEDGER, fails_at(2))
    daemon = Daemon(*kept[:place], broken, *kept[place:])
    times = daemon.ticks(1, 2, 3, 4)
    assert [one.times for one in kept] == [times] * 2
    assert (broken.times, broken.closed) == (times[:1], 1)
    assert daemon.said == ["this daemon no longer writes records of ledger: ValueError: no such column"]
    assert daemon.followers.problem(LEDGER) == daemon.said[0], "also for readers, from now on"
    assert daemon.followers.problem("history") == ""


def test_one_that_is_slow_is_named_once_keeps_its_ticks_and_comes_after_the_others() -> None:
    order: list[str] = []

    def slow(_: Tick) -> None:
        order.append("slow")
        daemon.clock.advance(SLOW * 2)

    slept, prompt = Kept("history", slow), Kept("accounts", lambda _: order.append("prompt"))
    daemon = Daemon(slept, prompt)
    times = daemon.ticks(1, 2, 3)
    assert slept.times == prompt.times == times
    assert order == ["slow", "prompt", "prompt", "slow", "prompt", "slow"]
    assert daemon.said == ["writing records of history took 2.0 s and delayed sampling"]


def test_a_problem_that_passes_is_that_of_its_follower_alone() -> None:
    ledger = Kept(LEDGER)
    daemon = Daemon(Kept(), ledger)
    ledger.problem = "cannot write ledger.sqlite"
    assert daemon.followers.problem(LEDGER) == ledger.problem
    assert daemon.followers.problem("other") == ""
    ledger.problem = ""
    assert daemon.followers.problem(LEDGER) == ""


def test_all_are_closed_once_also_where_one_cannot_be() -> None:
    class Stuck(Kept):
        def close(self) -> None:
            super().close()
            raise OSError("the disk is full")

    stuck, other = Stuck(LEDGER), Kept()
    daemon = Daemon(stuck, other)
    daemon.followers.close()
    daemon.followers.close()
    assert (stuck.closed, other.closed) == (1, 1)
    assert daemon.said == ["the last records of ledger were lost: OSError: the disk is full"]


def test_a_process_that_ends_waits_for_no_follower_that_hangs() -> None:
    hangs = Event()

    class Hung(Kept):
        def close(self) -> None:
            hangs.wait(PATIENCE)

    class Prompt(Kept):
        def close(self) -> None:
            closed.set()

    closed = Event()
    Daemon(Hung("history"), Prompt()).followers.close_within(0.05)
    assert closed.wait(PATIENCE)
    hangs.set()
