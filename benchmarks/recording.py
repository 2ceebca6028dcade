"""Recordings of eight GPUs at one frame a second, beside JSON lines of the same frames, compressed by gzip.

Time is accelerated: frames come from the simulation by a clock of the benchmark's, and what half an hour of them takes
is scaled to a day. `--prepared DIR` records a whole day there, once, in some five minutes.

The simulation's curves have noise down to the last bit of each number, which no driver gives; "as a driver rounds"
has the same frames with the resolution and the stamps of NVML, and processes that are read anew every third second.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.report import Budget, Result, number, times
from benchmarks.stage import GPUS, Effort, Stage
from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.daemon.recorder import Recorder
from gpumon.daemon.sampler import make_sampler
from gpumon.live import Live
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, HOST_METRICS
from gpumon.model.process import Process
from gpumon.recording.codec import nanoseconds
from gpumon.recording.content import Context, DecodedParts, RecordedFrame
from gpumon.recording.reader import RecordingReader
from gpumon.recording.writer import RecordingWriter
from tests.fakes import FakeClock

DAY = 86400
MEGABYTE = 1e6
_RESOLUTION = {
    "gpu.power": 1000, "gpu.energy": 1000, "gpu.pcie_sent": 1, "gpu.pcie_received": 1, "gpu.throttled_sw_power": 10**6,
}  # fmt: skip
"""Steps of a unit in which NVML tells these."""
_WHOLE = ("host.memory_used", "host.disk_read", "host.disk_written", "host.network_received", "host.network_sent")


def measure(stage: Stage, effort: Effort) -> Result:
    """Record, play, and write as JSON lines; and a whole day, where that is wanted."""
    result = Result(
        "Recordings",
        ("frames", "recording, MB a day", "gzip, MB a day", "recording is 1", "record, µs", "play, µs", "gzip, µs"),
    )
    simulated = list(_simulated(effort.times(1800)))
    for name, frames in (("simulated", simulated), ("as a driver rounds", list(_rounded(simulated)))):
        ours, recorded, played = _recording(stage.scratch / f"{len(result.rows)}.gpumon", frames)
        theirs, zipped = _json_lines(stage.scratch / f"{len(result.rows)}.gz", frames)
        scale = DAY / len(frames) / MEGABYTE
        result.rows.append(
            (
                name, number(ours * scale), number(theirs * scale), times(theirs, ours), number(recorded),
                number(played), number(zipped),
            )
        )  # fmt: skip
        result.budgets.append(Budget(f"a day of {GPUS} GPUs, {name}", ours * scale, 25, " MB"))
        result.budgets.append(Budget(f"recording a frame, {name}", recorded / 1000, 5, " ms"))
    if effort.prepared:
        size = os.path.getsize(_day(Path(effort.prepared))) / MEGABYTE
        result.rows.append(("a whole day, as a driver rounds", number(size), "", "", "", "", ""))
        result.budgets.append(Budget(f"a whole day of {GPUS} GPUs, as a driver rounds", size, 25, " MB"))
    return result


def _day(directory: Path) -> Path:
    """A recording of a whole day, made first where it is not there yet."""
    found = directory / "day.gpumon"
    if not found.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = directory / "day.gpumon.new"
        writer = RecordingWriter.create(str(made), {}, force=True)
        for frame in _rounded(_simulated(DAY)):
            writer.add(frame)
        writer.close()
        made.rename(found)
    return found


def _simulated(count: int) -> Iterator[RecordedFrame]:
    """Frames as a ring gives them."""
    clock = FakeClock()
    recorder = Recorder(make_sampler("sim", Places(), clock, 1.0), clock)
    recorder.sample_once()
    live = Live(recorder.open_ring)
    context = Context(live.origin(), live.driver(), live.hostname())
    newest = live.latest()
    seen = newest.number if newest else 0
    chance = random.Random(1)
    for _ in range(count):
        clock.advance(1 + chance.gauss(0, 2e-4))
        recorder.sample_once()
        (frame,) = live.since(seen)
        seen = frame.number
        for part in (frame.samples, frame.host, frame.processes, frame.runs, frame.boundaries):
            assert part is not None  # decoded here, so that it is not measured as recording
        yield RecordedFrame(frame, context)
    live.close()
    recorder.close()


def _rounded(recorded: Iterable[RecordedFrame]) -> Iterator[RecordedFrame]:
    """The same frames with the resolution of a driver, and its stamps."""
    chance = random.Random(2)
    processes: tuple[Process, ...] = ()
    for i, (frame, context) in enumerate(recorded):
        if i % 3 == 0:
            processes = tuple(
                process._replace(
                    cpu_utilization=process.cpu_utilization + chance.random() / 20,
                    host_memory=float(int(process.host_memory) // 4096 * 4096 + chance.randrange(1000) * 4096),
                )
                for process in frame.processes
            )
        host = tuple(
            float(int(value)) if metric.name in _WHOLE else round(value, 2) if metric.name == "host.load" else value
            for metric, value in zip(HOST_METRICS, frame.host, strict=True)
        )
        samples = tuple(_sample(one, frame.monotonic_ns, chance) for one in frame.samples)
        parts = DecodedParts(samples, host, processes, frame.runs, frame.boundaries)
        same = Frame(
            number=frame.number,
            monotonic_ns=frame.monotonic_ns,
            time_ns=nanoseconds(frame.time) + chance.randrange(300),
            interval=frame.interval,
            sample_duration=round(chance.gauss(4e-3, 5e-4), 6),
            skipped_ticks=0,
            dropped=0,
            parts=parts,
        )
        yield RecordedFrame(same, context)


def _sample(sample: Sample, at: int, chance: random.Random) -> Sample:
    values = list(sample.values)
    values[GPU_INDEX["gpu.power"]] += chance.gauss(0, 4)
    for name, steps in _RESOLUTION.items():
        values[GPU_INDEX[name]] = round(values[GPU_INDEX[name]] * steps) / steps
    read = at + sample.device.index * SECOND // 2000 + chance.randrange(60_000)
    return sample._replace(
        values=tuple(values), monotonic_ns=read, counters_monotonic_ns=(read - chance.randrange(10**8)) // 1000 * 1000
    )


def _recording(path: Path, frames: Sequence[RecordedFrame]) -> tuple[int, float, float]:
    """Bytes, and µs of CPU to record and to play a frame."""
    begun = time.process_time()
    writer = RecordingWriter.create(str(path), {})
    for frame in frames:
        writer.add(frame)
    writer.close()
    between = time.process_time()
    reader = RecordingReader(str(path))
    assert sum(1 for _ in reader.frames()) == len(frames)
    reader.close()
    done = time.process_time()
    return os.path.getsize(path), (between - begun) / len(frames) * 1e6, (done - between) / len(frames) * 1e6


def _json_lines(path: Path, frames: Sequence[RecordedFrame]) -> tuple[int, float]:
    """Bytes, and µs of CPU to write a frame."""
    begun = time.process_time()
    with gzip.open(path, "wt", compresslevel=6) as file:
        for one in frames:
            json.dump(_document(one.frame), file)
            file.write("\n")
    return os.path.getsize(path), (time.process_time() - begun) / len(frames) * 1e6


def _document(frame: Frame) -> dict[str, object]:
    """The same numbers by name."""
    names = [metric.key for metric in GPU_METRICS]
    return {
        "time": frame.time, "monotonic_ns": frame.monotonic_ns,
        "gpus": [
            {
                "uuid": sample.device.uuid, "run": sample.run, "read": sample.monotonic_ns,
                "counted": sample.counters_monotonic_ns, **dict(zip(names, sample.values, strict=True)),
            }
            for sample in frame.samples
        ],
        "host": dict(zip((metric.key for metric in HOST_METRICS), frame.host, strict=True)),
        "processes": [process._asdict() for process in frame.processes],
        "runs": [{**run._asdict(), "memory": run.memory._asdict(), "facts": run.facts._asdict()} for run in frame.runs],
        "boundaries": [boundary._asdict() for boundary in frame.boundaries],
    }  # fmt: skip
