"""Driver calls per GPU and second at 1 Hz, counted by the stub driver.

Two daemons (one read by nobody, one by four readers), nvitop and gpustat run side by side for the
same time, each on a stub with counters of its own. A daemon's calls are counted between two of its
frames, from the tenth on, so both daemons are counted over the same part of their schedule.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

from benchmarks.report import Budget, Result, number, times
from benchmarks.stage import GPUS, Effort, Place, Stage, tool
from benchmarks.terminal import in_terminal
from benchmarks.usage import run_once
from gpumon.live import connect
from tests.nvml import Stub
from tests.programs import command, daemon

WARM = 10
READERS = 4


def measure(stage: Stage, effort: Effort) -> Result:
    """Count for a window, everybody at once."""
    frames = max(5, round(effort.seconds))
    alone, read = stage.place("alone"), stage.place("read")
    peers = {
        "nvitop": (stage.place("nvitop"), [tool("nvitop"), "--interval", "1"]),
        "gpustat -i 1": (stage.place("gpustat"), [tool("gpustat"), "-i", "1"]),
    }
    with ExitStack() as stack:
        for place, started in peers.values():
            if started[0]:
                stack.enter_context(in_terminal([str(word) for word in started], place))
        for place in (alone, read):
            stack.enter_context(daemon(env=place.env))
        stack.enter_context(_readers(read))
        with ThreadPoolExecutor() as pool:
            ours = [pool.submit(calls_between_frames, place, WARM, frames) for place in (alone, read)]
            time.sleep(WARM)
            theirs = _rates({name: place.stub for name, (place, started) in peers.items() if started[0]}, frames)
            by_function = ours[0].result()
            none, four = (sum(one.result().values()) / frames / GPUS for one in ours)

    result = Result("Driver calls at 1 Hz", ("program", "calls per GPU and second", "ours is 1"))
    result.rows.append(("gpumon daemon, no reader", number(none), "1"))
    result.rows.append((f"gpumon daemon, {READERS} readers", number(four), times(four, none)))
    for name, rate in theirs.items():
        result.rows.append((name, number(rate), times(rate, none)))
    result.budgets.append(Budget("calls per GPU and second", none, 6))
    # A call at the edge of the window may fall on either side; one more each frame would be 1.
    result.budgets.append(Budget("more for each reader", max(0.0, round((four - none) / READERS, 4)), 0.01))
    listed = sorted(by_function.items(), key=lambda item: -item[1])
    each = (f"{name.removeprefix('nvml')} {number(count / frames / GPUS)}" for name, count in listed)
    result.notes.append(f"The daemon's, per GPU and second: {', '.join(each)}.")
    return result


def calls_between_frames(place: Place, first: int, frames: int) -> dict[str, int]:
    """Driver calls of a daemon, by function, for exactly so many frames."""
    live = connect(str(place.live))

    def at(number: int) -> dict[str, int]:
        while (heartbeat := live.heartbeat()) is None or heartbeat.head < number:
            time.sleep(0.005)
        return place.stub.calls()

    before = at(first)
    after = at(first + frames)
    live.close()
    return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}


def _rates(stubs: Mapping[str, Stub], seconds: float) -> dict[str, float]:
    """Calls per GPU and second over a window that starts now."""
    begun = time.monotonic()
    for stub in stubs.values():
        stub.reset_calls()
    time.sleep(seconds)
    passed = time.monotonic() - begun
    return {name: sum(stub.calls().values()) / passed / GPUS for name, stub in stubs.items()}


@contextmanager
def _readers(place: Place) -> Iterator[None]:
    """Three loops of `gpumon status` and one reader that follows every frame."""
    stop = Event()

    def follow() -> None:
        live, seen = connect(str(place.live)), 0
        while not stop.wait(0.25):
            for frame in live.since(seen):
                seen = frame.number
        live.close()

    def look() -> None:
        while not stop.wait(1.0):
            run_once(command("status"), place.env)

    threads = [Thread(target=follow), *(Thread(target=look) for _ in range(READERS - 1))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
