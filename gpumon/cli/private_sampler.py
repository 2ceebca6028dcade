"""A view without a daemon: it samples in its own process, on the same code path."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gpumon.cli.options import is_recording, playback_of, reads_hardware, source_of
from gpumon.cli.streams import say
from gpumon.common.paths import Places, ledger_paths, without_daemon
from gpumon.live import CATCHING_UP, WAITING, Live


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
        playback.renew = recorder.begin_anew
    if ledger:
        from gpumon.daemon.followers import runs_at

        runs = runs_at(
            lambda: ledger_at(ledger, recorder.generation), where.uid, recorder.say,
            waits=not reads_hardware(arguments),
            earlier=lambda: ledger_paths(where) if reads_hardware(arguments) else (),
        )  # fmt: skip
        recorder.followers.append(runs)
        if playback is not None:

            def renew() -> None:
                # Runs as they were at another place are not told of at this one: what lies after it is yet to come.
                former = ledger_at(ledger, recorder.generation)
                runs.begin_anew()
                recorder.begin_anew()
                for end in ("", "-wal", "-shm"):
                    with suppress(OSError):
                        os.unlink(former + end)

            playback.renew = renew
    sampler = PrivateSampler(recorder).start()
    note = f"{without_daemon(where)}: sampling in this process"
    if arguments.source:
        note = "replayed" if is_recording(arguments) else "live"
    waits = WAITING if reads_hardware(arguments) or is_recording(arguments) else CATCHING_UP

    def open_ring() -> int:
        if not recorder.has_caught_up:
            raise FileNotFoundError(2, waits)
        return recorder.open_ring()

    try:
        live = Live(open_ring, note, waits, lambda: recorder.generation, playback, where=where)
        live.has_failed = lambda: sampler.failure is not None
        live.end_sampling = sampler.end_soon
        yield live
    finally:
        sampler.stop()
        if playback is not None and playback.problem:
            say(f"gpumon: {playback.problem}")
        if sampler.failure is not None:
            say(f"gpumon: sampling ended early: {type(sampler.failure).__name__}: {sampler.failure}")
