"""Threads for a driver's calls: one that hangs keeps its own and holds up no other, and a swift tick wakes one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from gpumon.common.clock import SECOND, SystemClock
from gpumon.sources.nvml import executor as lanes_module
from gpumon.sources.nvml.executor import Inquiry, Lanes
from tests.programs import until

LONG = 30 * SECOND
"""ns: longer than any of this takes, on a machine however busy."""
NAME = "gpumon-driver"


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


@contextmanager
def lanes() -> Iterator[Lanes]:
    """Lanes whose threads end with the test."""
    made = Lanes(SystemClock())
    yield made
    threads = list(made._threads)
    made.close()
    for thread in threads:
        thread.join()


def hanging(gate: Event, begun: Event) -> Callable[[], str]:
    """A call that does not come back before the gate is open."""

    def call() -> str:
        begun.set()
        gate.wait()
        return "late"

    return call


def test_swift_calls_are_all_made_by_one_thread() -> None:
    with lanes() as asker:
        inquiries = [Inquiry(threading.get_ident) for _ in range(8)]
        seen = set()
        for _ in range(3):
            asker.ask(inquiries, LONG)
            seen |= {inquiry.take() for inquiry in inquiries}
        assert len(seen) == 1
        assert threading.get_ident() not in seen


def test_one_that_hangs_holds_up_no_other_and_its_answer_comes_with_a_later_round() -> None:
    gate, begun = Event(), Event()
    with lanes() as asker, ExitStack() as after:
        after.callback(gate.set)
        slow = Inquiry(hanging(gate, begun))
        swift = [Inquiry(lambda: "swift") for _ in range(7)]

        def asked() -> bool:
            asker.ask([slow, *swift], SECOND // 20)
            return not any(inquiry.is_under_way for inquiry in swift)

        until(asked)
        assert [inquiry.take() for inquiry in swift] == ["swift"] * 7
        assert slow.is_under_way
        assert slow.take() is None
        for _ in range(5):
            asker.ask([slow, *swift], LONG)  # and waits for the swift ones alone
            assert [inquiry.take() for inquiry in swift] == ["swift"] * 7
        assert threads() >= 2
        gate.set()
        until(lambda: not slow.is_under_way)
        assert slow.take() == "late"
        assert slow.take() is None, "once"


def test_all_may_hang_and_each_is_under_way_once() -> None:
    gate = Event()
    begun = [Event() for _ in range(4)]
    with lanes() as asker, ExitStack() as after:
        after.callback(gate.set)
        all_slow = [Inquiry(hanging(gate, one)) for one in begun]

        def asked() -> bool:
            asker.ask(all_slow, SECOND // 20)
            return all(one.is_set() for one in begun)

        until(asked)  # none waits behind another
        assert threads() == 4, "one each, and no more"
        gate.set()
        until(lambda: not any(inquiry.is_under_way for inquiry in all_slow))
        assert [inquiry.take() for inquiry in all_slow] == ["late"] * 4


def test_one_that_fails_says_so_until_it_answers_and_the_others_answer() -> None:
    answers = iter([ValueError("garbage"), "well"])

    def sometimes() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with lanes() as asker:
        failing, swift = Inquiry(sometimes), Inquiry(lambda: "swift")
        asker.ask([failing, swift], LONG)
        assert (failing.take(), swift.take()) == (None, "swift")
        assert str(failing.failure) == "garbage"
        asker.ask([failing], LONG)
        assert (failing.take(), failing.failure) == ("well", None)


def test_one_that_was_slow_has_a_thread_of_its_own_from_the_start() -> None:
    with lanes() as asker:
        ready = Event()
        slow = Inquiry(lambda: ready.wait(0.15))
        asker.ask([slow, Inquiry(threading.get_ident)], LONG)
        assert slow.careful
        ready.set()
        before = slow.careful
        asker.ask([slow], LONG)
        assert slow.careful == before - 1, "and no longer than it must"


def test_there_are_never_many_threads_and_what_waits_for_one_is_asked_in_the_end() -> None:
    gate = Event()
    with lanes() as asker, ExitStack() as after:
        after.callback(gate.set)
        gone: list[Inquiry[str]] = []
        for _ in range(10):  # GPUs that come, hang and go
            these = [Inquiry(hanging(gate, Event())) for _ in range(4)]
            asker.ask(these, SECOND // 100)
            gone += these
        assert threads() <= 12
        gate.set()

        def answered() -> bool:
            asker.ask([], SECOND // 100)
            return not any(inquiry.is_under_way for inquiry in gone)

        until(answered)
        assert {inquiry.take() for inquiry in gone} == {"late"}


def test_threads_that_calls_have_held_end_where_others_took_their_place() -> None:
    gate = Event()
    with lanes() as asker, ExitStack() as after:
        after.callback(gate.set)
        for _ in range(3):
            asker.ask([Inquiry(hanging(gate, Event())) for _ in range(4)], SECOND // 20)
        until(lambda: threads() > 5)
        gate.set()
        until(lambda: threads() <= 5)
        well = [Inquiry(lambda: "well") for _ in range(4)]
        asker.ask(well, LONG)
        assert [inquiry.take() for inquiry in well] == ["well"] * 4


def four_are_free(asker: Lanes, gate: Event) -> None:
    """Let four calls hang, each in a thread of its own, and come back once `gate` is set."""
    slow = [Inquiry(hanging(gate, Event())) for _ in range(4)]

    def each_has_one() -> bool:
        asker.ask(slow, SECOND // 20)
        return threads() == 4

    until(each_has_one)
    gate.set()
    until(lambda: len(asker._free) == 4)


def test_threads_that_no_round_needs_any_more_end(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Event()
    with lanes() as asker, ExitStack() as after:
        after.callback(gate.set)
        four_are_free(asker, gate)
        swift = [Inquiry(threading.get_ident) for _ in range(4)]
        asker.ask(swift, LONG)
        assert threads() == 4, "they may be needed again soon"
        monkeypatch.setattr(lanes_module, "_UNUSED_FOR", 0)
        asker._look_at = 0

        def alone() -> bool:
            asker.ask(swift, LONG)
            return threads() == 1

        until(alone)
        for _ in range(5):
            asker.ask(swift, LONG)
            assert None not in [inquiry.take() for inquiry in swift]
        assert threads() == 1
        assert len(asker._threads) == 1


def test_a_round_wakes_one_thread_however_many_are_free() -> None:
    def switches(thread: threading.Thread) -> int:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    gate = Event()
    with lanes() as asker, ExitStack() as after:
        after.callback(gate.set)
        four_are_free(asker, gate)
        swift = [Inquiry(threading.get_ident) for _ in range(4)]
        asker.ask(swift, LONG)
        until(lambda: len(asker._free) == 4)
        (at_work,) = {inquiry.take() for inquiry in swift}
        others = [thread for thread in asker._threads if thread.ident != at_work]
        before = list(map(switches, others))
        for _ in range(20):
            asker.ask(swift, LONG)
            assert {inquiry.take() for inquiry in swift} == {at_work}
            until(lambda: len(asker._free) == 4)
        assert list(map(switches, others)) == before
