"""Frames that a command which stays keeps, so that each picture reads only what is new."""

from __future__ import annotations

import argparse
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING

from gpumon.analysis.epochs import Epochs
from gpumon.cli.options import is_recording, playback_of, reads_hardware, source_of
from gpumon.cli.streams import say
from gpumon.common.errors import EXIT_USAGE, GpumonError, SourceError, UsageError
from gpumon.common.paths import LEDGER, Places, ledger_paths, unreadable_rings, without_daemon
from gpumon.diagnosis.live import LOOK_BACK
from gpumon.live import CATCHING_UP, WAITING, Live, follow
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability

if TYPE_CHECKING:
    from argparse import Namespace

    from gpumon.storage.ledger.reader import Ledgers


class FollowedFrames:
    """The last frames of a ring: what `gpumon status` looks back on, read once each."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._kept: deque[Frame] = deque(maxlen=LOOK_BACK)
        self.epochs = Epochs()
        """By every boundary that the ring has kept, also of before those frames."""

    def until(self, newest: Frame) -> list[Frame]:
        """Return what is known up to `newest`, oldest first; of a ring that begins anew, nothing of the one before."""
        kept = self._kept
        if kept and newest.number < kept[-1].number:
            kept.clear()
        after = kept[-1].number if kept else max(0, newest.number - LOOK_BACK)
        if not kept:
            self.epochs = Epochs()
            self.epochs.add_boundaries(self._live.boundaries())
        if after < newest.number:
            new = [frame for frame in self._live.since(after) if frame.number > after]
            for frame in new:
                self.epochs.add(frame)
            kept.extend(new)
        return list(kept)


def ledger_at(path: str, generation: int) -> str:
    """The file that keeps the runs of frames of a generation (`Live.generation`), where the first is kept at `path`."""
    return f"{path}.{generation}" if generation else path


@contextmanager
def private_sampler(where: Places, arguments: argparse.Namespace, ledger: str = "") -> Iterator[Live]:
    """Sample into a ring in this process's own memory; with `ledger`, a path, runs are kept there too (`ledger_at`).

    What a simulation tells of the time before now is seen once all of it is there: its frames come faster than they
    are true, and none of them is of now. Raises SourceError or UsageError.
    """
    from gpumon.common.clock import SystemClock
    from gpumon.daemon.recorder import Recorder
    from gpumon.daemon.sampling import make_sampler
    from gpumon.daemon.service import PrivateSampler

    clock = SystemClock()
    source = source_of(arguments)
    playback = playback_of(arguments)
    samples = make_sampler(
        source, where, clock, arguments.interval, arguments.speed, playback=playback, gpm=arguments.gpm
    )
    recorder = Recorder(samples, clock)
    if playback is not None:
        playback.renew = recorder.restart
    if ledger:
        from gpumon.daemon.followers import lazy_ledger

        runs = lazy_ledger(
            lambda: ledger_at(ledger, recorder.generation), where.uid, recorder.log,
            waits=not reads_hardware(arguments),
            earlier=lambda: ledger_paths(where) if reads_hardware(arguments) else (),
        )  # fmt: skip
        recorder.followers.append(runs)
        if playback is not None:

            def renew() -> None:
                # Runs as they were at another place are not told of at this one: what lies after it is yet to come.
                former = ledger_at(ledger, recorder.generation)
                runs.restart()
                recorder.restart()
                for end in ("", "-wal", "-shm"):
                    with suppress(OSError):
                        os.unlink(former + end)

            playback.renew = renew
    sampler = PrivateSampler(recorder).start()
    note = _why_private(where) if not arguments.source else "replayed" if is_recording(arguments) else "live"
    waits = WAITING if reads_hardware(arguments) or is_recording(arguments) else CATCHING_UP

    def open_ring() -> int:
        if not recorder.has_full_round:
            raise FileNotFoundError(2, waits)
        return recorder.open_ring()

    try:
        live = Live(open_ring, note, waits, lambda: recorder.generation, playback, where=where)
        live.has_failed = lambda: sampler.failure is not None
        live.end_sampling = sampler.request_stop
        yield live
    finally:
        sampler.stop()
        if playback is not None and playback.problem:
            say(f"gpumon: {playback.problem}")
        if sampler.failure is not None:
            say(f"gpumon: sampling ended early: {type(sampler.failure).__name__}: {sampler.failure}")


def _why_private(where: Places) -> str:
    """Return why this process samples although no source was named; a ring that cannot be read is reported."""
    with closing(follow(where)) as live:
        unreadable = live.unreadable()
    if unreadable:
        say(f"gpumon: {unreadable}")
    if unreadable and not unreadable_rings(where):
        return f"{unreadable}; sampling in this process meanwhile"
    return f"{without_daemon(where)}: sampling in this process"


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
    recorder.sample_once()
    live, until = Live(recorder.open_ring), time.monotonic() + seconds
    while time.monotonic() < until and not _all_answer(live):
        time.sleep(_AGAIN)
        recorder.sample_once()
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


class Simulated:
    """Frames of a simulation, as often as they are asked for, and the runs of the one that goes on."""

    def __init__(self, where: Places) -> None:
        self._where = where
        self._ledger = ""

    @contextmanager
    def begin(self) -> Iterator[Live]:
        """Simulate, and keep the runs for as long as that goes on."""
        from tempfile import TemporaryDirectory

        arguments = argparse.Namespace(source="sim", interval=1.0, speed=1.0, gpm=True)
        with TemporaryDirectory(prefix="gpumon-tui-") as directory:
            ledger = f"{directory}/{LEDGER}"
            with private_sampler(self._where, arguments, ledger) as live:
                self._ledger = ledger
                try:
                    yield live
                finally:
                    self._ledger = ""

    def ledgers(self) -> Ledgers:
        """The ledger of the simulation that goes on. Raises GpumonError where there is none yet."""
        from gpumon.storage.ledger.reader import NOTHING, Ledgers

        if not os.path.exists(self._ledger):
            raise GpumonError(NOTHING)
        return Ledgers([self._ledger])
