"""Threads for a driver's calls: one that hangs keeps its own and holds up no other, and a swift tick wakes one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from gpumon.common.clock import SECOND, SystemClock
from gpumon.sources import executor as executor_module
from gpumon.sources.executor import PendingCall, WorkerPool
from tests.programs import until

LONG = 30 * SECOND
"""ns: longer than any of this takes, on a machine however busy."""
NAME = "gpumon-driver"


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


@contextmanager
def worker_pool() -> Iterator[WorkerPool]:
    """WorkerPool whose threads end with the test."""
    made = WorkerPool(SystemClock())
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
    with worker_pool() as executor:
        calls = [PendingCall(threading.get_ident) for _ in range(8)]
        seen = set()
        for _ in range(3):
            executor.run(calls, LONG)
            seen |= {call.pop() for call in calls}
        assert len(seen) == 1
        assert threading.get_ident() not in seen


def test_one_that_hangs_holds_up_no_other_and_its_answer_comes_with_a_later_round() -> None:
    gate, begun = Event(), Event()
    with worker_pool() as executor, ExitStack() as after:
        after.callback(gate.set)
        slow = PendingCall(hanging(gate, begun))
        swift = [PendingCall(lambda: "swift") for _ in range(7)]

        def asked() -> bool:
            executor.run([slow, *swift], SECOND // 20)
            return not any(call.is_running for call in swift)

        until(asked)
        assert [call.pop() for call in swift] == ["swift"] * 7
        assert slow.is_running
        assert slow.pop() is None
        for _ in range(5):
            executor.run([slow, *swift], LONG)  # and waits for the swift ones alone
            assert [call.pop() for call in swift] == ["swift"] * 7
        assert threads() >= 2
        gate.set()
        until(lambda: not slow.is_running)
        assert slow.pop() == "late"
        assert slow.pop() is None, "once"


def test_all_may_hang_and_each_is_under_way_once() -> None:
    gate = Event()
    begun = [Event() for _ in range(4)]
    with worker_pool() as executor, ExitStack() as after:
        after.callback(gate.set)
        all_slow = [PendingCall(hanging(gate, one)) for one in begun]

        def asked() -> bool:
            executor.run(all_slow, SECOND // 20)
            return all(one.is_set() for one in begun)

        until(asked)  # none waits behind another
        assert threads() == 4, "one each, and no more"
        gate.set()
        until(lambda: not any(call.is_running for call in all_slow))
        assert [call.pop() for call in all_slow] == ["late"] * 4


def test_one_that_fails_says_so_until_it_answers_and_the_others_answer() -> None:
    answers = iter([ValueError("garbage"), "well"])

    def sometimes() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with worker_pool() as executor:
        failing, swift = PendingCall(sometimes), PendingCall(lambda: "swift")
        executor.run([failing, swift], LONG)
        assert (failing.pop(), swift.pop()) == (None, "swift")
        assert str(failing.failure) == "garbage"
        executor.run([failing], LONG)
        assert (failing.pop(), failing.failure) == ("well", None)


def test_one_that_was_slow_has_a_thread_of_its_own_from_the_start() -> None:
    with worker_pool() as executor:
        ready = Event()
        slow = PendingCall(lambda: ready.wait(0.15))
        executor.run([slow, PendingCall(threading.get_ident)], LONG)
        assert slow.slow_rounds
        ready.set()
        before = slow.slow_rounds
        executor.run([slow], LONG)
        assert slow.slow_rounds == before - 1, "and no longer than it must"


def test_there_are_never_many_threads_and_what_waits_for_one_is_asked_in_the_end() -> None:
    gate = Event()
    with worker_pool() as executor, ExitStack() as after:
        after.callback(gate.set)
        gone: list[PendingCall[str]] = []
        for _ in range(10):  # GPUs that come, hang and go
            these = [PendingCall(hanging(gate, Event())) for _ in range(4)]
            executor.run(these, SECOND // 100)
            gone += these
        assert threads() <= 12
        gate.set()

        def answered() -> bool:
            executor.run([], SECOND // 100)
            return not any(call.is_running for call in gone)

        until(answered)
        assert {call.pop() for call in gone} == {"late"}


def test_threads_that_calls_have_held_end_where_others_took_their_place() -> None:
    gate = Event()
    with worker_pool() as executor, ExitStack() as after:
        after.callback(gate.set)
        for _ in range(3):
            executor.run([PendingCall(hanging(gate, Event())) for _ in range(4)], SECOND // 20)
        until(lambda: threads() > 5)
        gate.set()
        until(lambda: threads() <= 5)
        well = [PendingCall(lambda: "well") for _ in range(4)]
        executor.run(well, LONG)
        assert [call.pop() for call in well] == ["well"] * 4


def four_are_free(executor: WorkerPool, gate: Event) -> None:
    """Let four calls hang, each in a thread of its own, and come back once `gate` is set."""
    slow = [PendingCall(hanging(gate, Event())) for _ in range(4)]

    def each_has_one() -> bool:
        executor.run(slow, SECOND // 20)
        return threads() == 4

    until(each_has_one)
    gate.set()
    until(lambda: len(executor._idle) == 4)


def test_threads_that_no_round_needs_any_more_end(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Event()
    with worker_pool() as executor, ExitStack() as after:
        after.callback(gate.set)
        four_are_free(executor, gate)
        swift = [PendingCall(threading.get_ident) for _ in range(4)]
        executor.run(swift, LONG)
        assert threads() == 4, "they may be needed again soon"
        monkeypatch.setattr(executor_module, "_UNUSED_FOR", 0)
        executor._end_unused_at = 0

        def alone() -> bool:
            executor.run(swift, LONG)
            return threads() == 1

        until(alone)
        for _ in range(5):
            executor.run(swift, LONG)
            assert None not in [call.pop() for call in swift]
        assert threads() == 1
        assert len(executor._threads) == 1


def test_a_round_wakes_one_thread_however_many_are_free() -> None:
    def switches(thread: threading.Thread) -> int:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    gate = Event()
    with worker_pool() as executor, ExitStack() as after:
        after.callback(gate.set)
        four_are_free(executor, gate)
        swift = [PendingCall(threading.get_ident) for _ in range(4)]
        executor.run(swift, LONG)
        until(lambda: len(executor._idle) == 4)
        (at_work,) = {call.pop() for call in swift}
        others = [thread for thread in executor._threads if thread.ident != at_work]
        before = list(map(switches, others))
        for _ in range(20):
            executor.run(swift, LONG)
            assert {call.pop() for call in swift} == {at_work}
            until(lambda: len(executor._idle) == 4)
        assert list(map(switches, others)) == before
