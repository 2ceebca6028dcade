"""Sampling in this process: for views without a daemon, for the single sample of `gpumon status`, and for
simulations."""

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

from gpumon.analysis.run_epochs import Epochs
from gpumon.cli.options import chosen_source, is_recording, make_playback, reads_hardware
from gpumon.cli.streams import print_message
from gpumon.common.errors import EXIT_USAGE, GpumonError, SourceError, UsageError
from gpumon.common.paths import LEDGER, Places, ledger_paths, unreadable_rings, without_daemon
from gpumon.diagnosis.live_findings import LOOK_BACK
from gpumon.live import CATCHING_UP, WAITING, Live, follow
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability

if TYPE_CHECKING:
    from argparse import Namespace

    from gpumon.storage.ledger.reader import Ledgers


class RecentFrames:
    """The last frames of a ring. The status of the GPUs is derived from them. Each frame is read only once."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._frames: deque[Frame] = deque(maxlen=LOOK_BACK)
        self.epochs = Epochs()
        """Epochs from all boundaries in the ring, including boundaries that are older than these frames."""

    def until(self, newest: Frame) -> list[Frame]:
        """Return the frames up to `newest`, oldest first. After a restart, only frames of the new ring are returned."""
        frames = self._frames
        if frames and newest.number < frames[-1].number:
            frames.clear()
        after = frames[-1].number if frames else max(0, newest.number - LOOK_BACK)
        if not frames:
            self.epochs = Epochs()
            self.epochs.add_boundaries(self._live.boundaries())
        if after < newest.number:
            new = [frame for frame in self._live.since(after) if frame.number > after]
            for frame in new:
                self.epochs.add(frame)
            frames.extend(new)
        return list(frames)


def ledger_of_generation(path: str, generation: int) -> str:
    """Return the path of the ledger of a generation (`Live.generation`). `path`: ledger of the first generation."""
    return f"{path}.{generation}" if generation else path


@contextmanager
def private_sampler(places: Places, arguments: argparse.Namespace, ledger: str = "") -> Iterator[Live]:
    """Sample in this process into a ring in memory, and yield the ring.

    `ledger`: file for the runs of the first generation (see `ledger_of_generation`); empty to store no runs. A
    simulation first generates its past. The ring can be read once the past is complete. Raises SourceError or
    UsageError.
    """
    from gpumon.common.clock import SystemClock
    from gpumon.daemon.recorder import Recorder
    from gpumon.daemon.sampler import make_sampler
    from gpumon.daemon.service import PrivateSampler

    clock = SystemClock()
    source = chosen_source(arguments)
    playback = make_playback(arguments)
    tick_sampler = make_sampler(
        source, places, clock, arguments.interval, arguments.speed, playback=playback, gpm=arguments.gpm
    )
    recorder = Recorder(tick_sampler, clock)
    if playback is not None:
        playback.on_seek = recorder.restart
    if ledger:
        from gpumon.daemon.followers import lazy_ledger

        runs = lazy_ledger(
            lambda: ledger_of_generation(ledger, recorder.generation), places.uid, recorder.log,
            waits=not reads_hardware(arguments),
            earlier=lambda: ledger_paths(places) if reads_hardware(arguments) else (),
        )  # fmt: skip
        recorder.followers.append(runs)
        if playback is not None:

            def renew() -> None:
                # After a seek, the ledger must not contain runs from after the new position.
                previous = ledger_of_generation(ledger, recorder.generation)
                runs.restart()
                recorder.restart()
                for suffix in ("", "-wal", "-shm"):
                    with suppress(OSError):
                        os.unlink(previous + suffix)

            playback.on_seek = renew
    sampler = PrivateSampler(recorder).start()
    note = _why_private(places) if not arguments.source else "replayed" if is_recording(arguments) else "live"
    missing = WAITING if reads_hardware(arguments) or is_recording(arguments) else CATCHING_UP

    def open_ring() -> int:
        if not recorder.has_full_round:
            raise FileNotFoundError(2, missing)
        return recorder.open_ring()

    try:
        live = Live(open_ring, note, missing, lambda: recorder.generation, playback, directories=places)
        live.has_failed = lambda: sampler.failure is not None
        live.end_sampling = sampler.request_stop
        yield live
    finally:
        sampler.stop()
        if playback is not None and playback.problem:
            print_message(f"gpumon: {playback.problem}")
        if sampler.failure is not None:
            print_message(f"gpumon: sampling ended early: {type(sampler.failure).__name__}: {sampler.failure}")


def _why_private(places: Places) -> str:
    """Return the reason why this process samples although `--source` was not passed.

    Prints a message if the daemon's ring cannot be read.
    """
    with closing(follow(places)) as live:
        unreadable = live.unreadable()
    if unreadable:
        print_message(f"gpumon: {unreadable}")
    if unreadable and not unreadable_rings(places):
        return f"{unreadable}; sampling in this process meanwhile"
    return f"{without_daemon(places)}: sampling in this process"


_FRAMES = 4
_START_TIMEOUT = 30.0
"""Maximum seconds until the child process calls the driver. On a busy machine, its imports take a while."""
_SLOW_AFTER = 3.0
"""A driver that has not answered after this many seconds counts as slow."""
_RETRY_INTERVAL = 0.25
"""Seconds between two ticks while some GPU has not answered."""
_LAST_TICK = 3.0
"""Additional seconds allowed for the last tick."""
_CALLING = b"."
"""Message that the child process sends before it calls the driver. Only the driver can cause a delay after this
message."""
_DONE = b"0"
_CRASHED = b"!"


def sample_once(
    places: Places, arguments: Namespace, seconds: float, *, until_all_answer: bool = False,
    on_slow: Callable[[], object] = lambda: None,
) -> Live | None:  # fmt: skip
    """Return a ring with one tick of `--source`; None if the driver does not answer within `seconds`.

    The driver is called in a child process, because a call may hang. `until_all_answer`: repeat the tick until all GPUs
    have answered, for at most `seconds`. `on_slow`: called once if the driver is slow. Raises SourceError or
    UsageError.
    """
    if not reads_hardware(arguments):
        fd = _sample_into_ring(places, arguments, lambda: None)  # calls no driver
        return Live(lambda: os.dup(fd))
    ring = os.memfd_create("gpumon-status", os.MFD_CLOEXEC)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_child(places, arguments, ring, writing, seconds if until_all_answer else 0.0)
    os.close(writing)
    message = _read_message(reading, seconds + (_LAST_TICK if until_all_answer else 0.0), on_slow)
    os.close(reading)
    if message is None:
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
        return None
    if message != _DONE:
        raise _parse_error(message)
    return Live(lambda: os.dup(ring))


def _sample_into_ring(places: Places, arguments: Namespace, on_call: Callable[[], object], seconds: float = 0.0) -> int:
    """Sample into a new ring until every GPU has answered, for at most `seconds`. Return the ring's file descriptor.

    At least one tick is sampled. `on_call`: called before the first driver call.
    """
    from gpumon.common.clock import SystemClock
    from gpumon.daemon.recorder import Recorder
    from gpumon.daemon.sampler import make_sampler

    clock = SystemClock()
    source = chosen_source(arguments)
    playback = make_playback(arguments)
    sampler = make_sampler(
        source, places, clock, arguments.interval, arguments.speed, past=False, playback=playback, gpm=arguments.gpm
    )
    recorder = Recorder(sampler, clock, frames=_FRAMES)
    on_call()
    recorder.sample_once()
    live, deadline = Live(recorder.open_ring), time.monotonic() + seconds
    while time.monotonic() < deadline and not _all_answer(live):
        time.sleep(_RETRY_INTERVAL)
        recorder.sample_once()
    return recorder.open_ring()


def _all_answer(live: Live) -> bool:
    """Whether the driver has answered for each GPU. An error is an answer, too."""
    frame = live.latest()
    states = [sample.state for sample in frame.samples] if frame else []
    return not live.origin().unanswered and Availability.STALE not in states


def _run_child(places: Places, arguments: Namespace, ring: int, pipe: int, seconds: float) -> None:
    """Runs in the child process. Samples into `ring`, writes success or the error to `pipe`, and exits immediately."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # readers of our output must not wait for a child that hangs
            os.dup2(null, stream)
        message = _DONE
        try:
            fd = _sample_into_ring(places, arguments, lambda: os.write(pipe, _CALLING), seconds)
            os.ftruncate(ring, os.fstat(fd).st_size)
            offset = 0
            while part := os.pread(fd, 1 << 20, offset):
                offset += os.pwrite(ring, part, offset)
        except GpumonError as error:
            message = f"{error.exit_code} {error}".encode("utf-8", "replace")
        except Exception:
            from traceback import format_exc

            message = _CRASHED + format_exc().encode("utf-8", "replace")
        while message:
            message = message[os.write(pipe, message) :]
    finally:
        os._exit(0)


def _read_message(pipe: int, seconds: float, on_slow: Callable[[], object]) -> bytes | None:
    """Return the message of the child process.

    None if it is incomplete `seconds` after the child has called the driver.

    `on_slow`: called once if the driver is slow.
    """
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    message, deadline, slow_from = b"", time.monotonic() + _START_TIMEOUT, inf
    while True:
        until = min(deadline, slow_from)
        if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
            if until == deadline:
                return None
            slow_from = inf
            on_slow()
            continue
        part = os.read(pipe, 65536)
        if not part:
            return message.removeprefix(_CALLING)
        if not message and part.startswith(_CALLING):
            deadline, slow_from = time.monotonic() + seconds, time.monotonic() + _SLOW_AFTER
        message += part


def _parse_error(message: bytes) -> Exception:
    text = message.decode("utf-8", "replace")
    code, _, reason = text.partition(" ")
    if code.isdigit():
        return UsageError(reason) if int(code) == EXIT_USAGE else SourceError(reason)
    return RuntimeError(text.removeprefix(_CRASHED.decode()) or "the sampling process exited without reporting")


class Simulation:
    """Starts simulations for the terminal view, and reads the runs of the current simulation."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._ledger = ""

    @contextmanager
    def begin(self) -> Iterator[Live]:
        """Start a simulation, and yield its ring. Runs of the simulation are stored until it ends."""
        from gpumon.common.scratch import scratch_directory

        arguments = argparse.Namespace(source="sim", interval=1.0, speed=1.0, gpm=True)
        with scratch_directory("tui") as directory:
            ledger = f"{directory}/{LEDGER}"
            with private_sampler(self._places, arguments, ledger) as live:
                self._ledger = ledger
                try:
                    yield live
                finally:
                    self._ledger = ""

    def ledgers(self) -> Ledgers:
        """Return the ledger of the current simulation. Raises GpumonError if it does not exist yet."""
        from gpumon.storage.ledger.reader import NOTHING, Ledgers

        if not os.path.exists(self._ledger):
            raise GpumonError(NOTHING)
        return Ledgers([self._ledger])
