"""Record samples into one compressed file, which 'gpumon tui --source replay:FILE' plays.

Joins a running daemon; without one, samples in its own process. Records from now on, until Ctrl-C or for a given time.
With --last, records the samples that the daemon still holds. A recording contains the names of users and runs;
--anonymize replaces them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.cli.options import DEFAULT_SOURCE, add_places, add_source, resolve_options
from gpumon.cli.sampling import private_sampler
from gpumon.cli.signals import EndSignal
from gpumon.cli.streams import print_message
from gpumon.common.clock import SECOND, positive_seconds
from gpumon.common.errors import EXIT_OK, GpumonError
from gpumon.common.paths import history_paths
from gpumon.common.text import clean
from gpumon.live import Live, follow, no_daemon
from gpumon.model.frame import Frame
from gpumon.model.origin import Capability
from gpumon.model.units import bytes_binary, counted, duration, moment
from gpumon.recording.anonymize import Anonymizer
from gpumon.recording.content import VALUES, Context, RecordedFrame, means_part
from gpumon.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from gpumon.storage.history.past_frames import StoredFrame

_POLL_INTERVAL = 0.5
"""Maximum seconds between two reads of the ring. The ring holds the frames of several minutes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="output file, such as run.gpumon")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    period = parser.add_mutually_exclusive_group()
    period.add_argument(
        "--for", dest="length", metavar="DURATION", help="how long to record: 90s, 10m or 2h (default: until Ctrl-C)"
    )
    period.add_argument(
        "--last", metavar="DURATION", help="record the last 10m or 2h that the daemon still holds, and exit"
    )
    parser.add_argument(
        "--anonymize",
        action="store_true",
        help="replace names of users, hosts, runs, processes and logged metrics, and GPU UUIDs, to share the file",
    )
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    places, arguments = resolve_options(arguments)
    length = positive_seconds(arguments.length) if arguments.length else None
    last = positive_seconds(arguments.last) if arguments.last else None
    live = follow(places)
    if arguments.source is None and (live.has_writer() or (last and live.latest())):
        newest = live.latest()
        # The history file belongs to this machine. There is none for a recording or a simulation.
        is_live = Capability.LIVE in live.origin().capabilities
        histories = history_paths(places) if last and is_live else []
        return _record(live, arguments, length, last, newest.number if newest else 0, histories)
    live.close()
    if last:
        raise GpumonError(f"--last records the samples that a daemon holds, but {no_daemon(places)}")
    with private_sampler(places, arguments) as own:
        return _record(own, arguments, length, None, 0)


def _record(
    live: Live,
    arguments: argparse.Namespace,
    length: float | None,
    last: float | None,
    after: int,
    histories: Sequence[str] = (),
) -> int:
    with EndSignal() as stop:
        facts = {"written_by": f"gpumon {__version__}", "anonymized": arguments.anonymize}
        writer = RecordingWriter.create(arguments.output, facts, force=arguments.force)
        recording = _Recording(writer, live, Anonymizer() if arguments.anonymize else None)
        try:
            if last:
                recording.add_last(last, histories)
            else:
                end = f"for {duration(length)}; Ctrl-C stops it earlier" if length else "until Ctrl-C"
                print(f"recording into {clean(arguments.output)} {end}", flush=True)
                recording.add_new(after, length, stop)
        finally:
            writer.close({"missed": recording.missed})
    recording.report(arguments.output)
    return EXIT_OK


class _Recording:
    """Writes the frames of a ring into a file."""

    def __init__(self, writer: RecordingWriter, live: Live, anonymizer: Anonymizer | None) -> None:
        self._anonymizer = anonymizer
        self.missed = 0
        """Number of frames that the daemon overwrote before this process read them."""
        self._writer = writer
        self._live = live
        self._first = self._last = 0.0
        self._devices = 0
        self._number = 0
        self._values_only = 0
        """Number of frames without processes and runs."""

    def add_last(self, seconds: float, histories: Sequence[str]) -> None:
        """Record the last `seconds` from the ring and, for the time before its first frame, from history files."""
        frames = self._live.since(0)
        if not frames:
            return
        begin = frames[-1].time - seconds
        if frames[0].time - begin > max(2 * frames[0].interval, 1.0):
            kept = self._kept(begin, frames, histories)
            for step, frame in kept:
                self._add([frame], means_part(step))
            means = f", and the history has means since {moment(kept[0].frame.time)}" if kept else ""
            print_message(f"gpumon: the daemon holds frames since {moment(frames[0].time)}{means}")
        self._add(frame for frame in frames if frame.time >= begin)

    @staticmethod
    def _kept(begin: float, frames: Sequence[Frame], histories: Sequence[str]) -> list[StoredFrame]:
        from gpumon.storage.history.past_frames import stored_frames  # SQLite

        devices = {sample.device.uuid: sample.device for sample in frames[-1].samples}
        return next((kept for path in histories if (kept := stored_frames(path, begin, frames[0], devices))), [])

    def add_new(self, after: int, length: float | None, stop: EndSignal) -> None:
        """Record frames after number `after`: for `length` seconds, until `stop`, or until a recording ends."""
        started, reported = monotonic(), ""
        started_ns = round(started * SECOND)
        self._number = after
        while True:
            left = _POLL_INTERVAL if length is None else started + length - monotonic()
            is_last = stop.wait(min(max(left, 0.0), _POLL_INTERVAL, max(self._live.interval() / 2, 0.01))) or left <= 0
            # The state is read before the frames. Frames that arrive between the two reads are read in the next round.
            origin, state = self._live.origin(), self._live.state()
            frames = self._live.since(self._number)
            if Capability.NOW in origin.capabilities:  # a simulation starts with its last ten minutes
                frames = [frame for frame in frames if frame.monotonic_ns >= started_ns or after]
            self._add(frames)
            if is_last or self._live.has_failed() or (origin.ended and not frames):
                return
            problem = "" if state.live or origin.ended else state.text
            if problem != reported and self._writer.frames:
                print_message(f"gpumon: {problem or 'new frames again'}")
            reported = problem

    def report(self, path: str) -> None:
        """Print a summary of the recording. If no frame was recorded, remove the file and raise GpumonError."""
        writer = self._writer
        if not writer.frames:
            with suppress(OSError):
                os.unlink(path)
            raise GpumonError(f"no frame was recorded: {self._live.state().text}")
        if self.missed:
            print_message(f"gpumon: {counted(self.missed, 'frame')} missed, because this process was too slow")
        if self._values_only:
            print_message(
                f"gpumon: {self._values_only} of {counted(writer.frames, 'frame')} have no processes and no runs: "
                "the daemon keeps processes and runs only for the last few minutes"
            )
        print(
            f"recorded {counted(writer.frames, 'frame')} of {counted(self._devices, 'GPU')} "
            f"in {duration(self._last - self._first)} into {clean(path)}, {bytes_binary(writer.size)}"
        )

    def _add(self, frames: Iterator[Frame] | list[Frame], part: str = VALUES) -> None:
        """Record frames. `part`: which data the frames contain if they are not complete."""
        context = Context(self._live.origin(), self._live.driver(), self._live.hostname())
        for frame in frames:
            if self._number and frame.number:
                self.missed += max(0, frame.number - self._number - 1)
            recorded = RecordedFrame(frame, context if frame.is_full else replace(context, part=part))
            self._values_only += not frame.is_full
            self._writer.add(self._anonymizer.recorded(recorded) if self._anonymizer else recorded)
            self._first, self._last = self._first or frame.time, frame.time
            self._devices = max(self._devices, sum(not sample.device.is_instance for sample in frame.samples))
            self._number = frame.number
