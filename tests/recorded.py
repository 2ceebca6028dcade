"""Frames to record, and what makes two of them the same, bit for bit."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpumon.common.paths import Places
from gpumon.daemon.recorder import Recorder
from gpumon.daemon.sampler import make_sampler
from gpumon.live import Live
from gpumon.model.frame import Frame
from gpumon.recording.content import Context, RecordedFrame
from gpumon.recording.reader import RecordingReader
from gpumon.recording.writer import RecordingWriter
from tests.fakes import FakeClock

SIM_PAST = 600
"""Frames that the simulation gives at first."""


def simulated(frames: int, scenario: str = "sim") -> list[RecordedFrame]:
    """Frames of a simulation, as a ring gives them, a second and some apart."""
    clock = FakeClock()
    recorder = Recorder(make_sampler(scenario, Places(), clock, 1.0), clock)
    try:
        recorder.sample_once()
        live = Live(recorder.open_ring)
        context = Context(live.origin(), live.driver(), live.hostname())
        found = []
        for i in range(frames):
            clock.advance(1 + (i * 7919 % 1000) / 1e6)
            recorder.sample_once()
            (frame,) = live.since(SIM_PAST + 1 + i)
            assert frame.is_full
            bits(frame)  # decoded while the ring is there
            found.append(RecordedFrame(frame, context))
        live.close()
        return found
    finally:
        recorder.close()


def bits(frame: Frame, *, number: bool = True) -> Any:
    """All of a frame, comparable: floats by their bits, any NaN as another."""
    return comparable((
        frame.number * number, frame.monotonic_ns, frame.time, frame.interval, frame.sample_duration,
        frame.skipped_ticks, frame.is_full, frame.dropped, frame.dropped_runs, frame.samples, frame.host,
        frame.processes, frame.runs, frame.boundaries,
    ))  # fmt: skip


def comparable(part: Any) -> Any:
    """A part of a frame, comparable."""
    if isinstance(part, float):
        return "NaN" if part != part else struct.pack("<d", part)
    if isinstance(part, dict):
        return tuple((key, comparable(value)) for key, value in part.items())
    if isinstance(part, tuple | list):
        return tuple(comparable(one) for one in part)
    return part


def write(path: Path, recorded: Iterable[RecordedFrame]) -> bytes:
    """Record frames into a file; its bytes."""
    writer = RecordingWriter.create(str(path), {})
    add_all(writer, recorded)
    writer.close()
    return path.read_bytes()


def add_all(writer: RecordingWriter, recorded: Iterable[RecordedFrame]) -> None:
    """Append frames until all are there, or one cannot be."""
    for one in recorded:
        writer.add(one)


def read(path: Path) -> tuple[list[RecordedFrame], str]:
    """The frames of a file, and what is wrong with it."""
    reader = RecordingReader(str(path))
    try:
        return list(reader.frames()), reader.problem
    finally:
        reader.close()
