"""One sample, taken in a child process: a driver that hangs costs a deadline, and nothing else.

A process inside a driver call may not even die of SIGKILL, and a parent that waits for it hangs with it. So the
child holds none of our streams, and once the time is up nobody waits for it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from gpumon.cli.options import playback_of, reads_hardware, source_of
from gpumon.common.errors import EXIT_USAGE, GpumonError, SourceError, UsageError
from gpumon.common.paths import Places
from gpumon.live import Live
from gpumon.model.metrics import Availability

if TYPE_CHECKING:
    from argparse import Namespace

_FRAMES = 4
_STARTING = 30.0
"""Seconds that the child may take until it asks the driver: on a busy machine, loading our modules takes a while."""
_SLOW = 3.0
"""Seconds that most drivers take at most."""
_AGAIN = 0.25
"""Seconds from a tick to the next while some GPU has not answered."""
_SPARE = 3.0
"""Seconds beyond those of the ticks, for the last of them."""
_ASKING = b"."
"""Message of the child before it asks the driver: from here on, silence is the driver's."""
_DONE = b"0"
_CRASHED = b"!"


def sampled(
    where: Places, arguments: Namespace, seconds: float, *, until_all_answer: bool = False,
    slow: Callable[[], object] = lambda: None,
) -> Live | None:  # fmt: skip
    """A ring with one tick of `--source` in it; None when the driver has not answered `seconds` after it was asked.

    `until_all_answer`: more ticks, for at most so many seconds, as long as there is no answer of some GPU; `slow` is
    called once where the driver takes longer than most.
    Raises SourceError or UsageError.
    """
    if not reads_hardware(arguments):
        fd = _sample(where, arguments, lambda: None)  # no driver, so nothing that hangs
        return Live(lambda: os.dup(fd))
    ring = os.memfd_create("gpumon-status", os.MFD_CLOEXEC)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(where, arguments, ring, tell, seconds if until_all_answer else 0.0)
    os.close(tell)
    answer = _read(told, seconds + (_SPARE if until_all_answer else 0.0), slow)
    os.close(told)
    if answer is None:
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
        return None
    if answer != _DONE:
        raise _error(answer)
    return Live(lambda: os.dup(ring))


def _sample(where: Places, arguments: Namespace, asks: Callable[[], object], seconds: float = 0.0) -> int:
    """A descriptor of a ring with one tick; `asks` is called before the driver is asked.

    With more ticks, for so many `seconds` at most, as long as there is no answer of some GPU.
    """
    from gpumon.common.clock import SystemClock
    from gpumon.daemon.recorder import Recorder
    from gpumon.daemon.sampling import make_sampler

    clock = SystemClock()
    source = source_of(arguments)
    playback = playback_of(arguments)
    sampler = make_sampler(
        source, where, clock, arguments.interval, arguments.speed, past=False, playback=playback, gpm=arguments.gpm
    )
    recorder = Recorder(sampler, clock, frames=_FRAMES)
    asks()
    recorder.take_one()
    live, until = Live(recorder.open_ring), time.monotonic() + seconds
    while time.monotonic() < until and not _all_answer(live):
        time.sleep(_AGAIN)
        recorder.take_one()
    return recorder.open_ring()


def _all_answer(live: Live) -> bool:
    """Whether the driver has answered for each GPU, be it that it cannot be read."""
    frame = live.latest()
    states = [sample.state for sample in frame.samples] if frame else []
    return not live.origin().unanswered and Availability.STALE not in states


def _answer(where: Places, arguments: Namespace, ring: int, pipe: int, seconds: float) -> None:
    """In the child: sample into `ring`, say so or why not, and end without a look back."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # who reads our output must not wait for a child that hangs
            os.dup2(nothing, stream)
        answer = _DONE
        try:
            fd = _sample(where, arguments, lambda: os.write(pipe, _ASKING), seconds)
            os.ftruncate(ring, os.fstat(fd).st_size)
            at = 0
            while part := os.pread(fd, 1 << 20, at):
                at += os.pwrite(ring, part, at)
        except GpumonError as error:
            answer = f"{error.exit_code} {error}".encode("utf-8", "replace")
        except Exception:
            from traceback import format_exc

            answer = _CRASHED + format_exc().encode("utf-8", "replace")
        while answer:
            answer = answer[os.write(pipe, answer) :]
    finally:
        os._exit(0)


def _read(pipe: int, seconds: float, slow: Callable[[], object] = lambda: None) -> bytes | None:
    """The answer that comes through `pipe`; None when that has no end `seconds` after the driver was asked.

    `slow` is called once where the driver takes longer than most.
    """
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    found, deadline, slow_from = b"", time.monotonic() + _STARTING, inf
    while True:
        until = min(deadline, slow_from)
        if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
            if until == deadline:
                return None
            slow_from = inf
            slow()
            continue
        part = os.read(pipe, 65536)
        if not part:
            return found.removeprefix(_ASKING)
        if not found and part.startswith(_ASKING):
            deadline, slow_from = time.monotonic() + seconds, time.monotonic() + _SLOW
        found += part


def _error(answer: bytes) -> Exception:
    text = answer.decode("utf-8", "replace")
    code, _, message = text.partition(" ")
    if code.isdigit():
        return UsageError(message) if int(code) == EXIT_USAGE else SourceError(message)
    return RuntimeError(text.removeprefix(_CRASHED.decode()) or "the sampling process exited without reporting")
