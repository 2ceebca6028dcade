"""The NVIDIA source in a process of its own, on the stub driver: NVML keeps its state for the life of a process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.metrics import GPU_METRICS, Availability
from tests.nvml import Stub
from tests.programs import asked, environment

READ_AT = """
import json, sys
from gpumon.common.clock import SystemClock
from gpumon.sources.base import ProcessInfo
from gpumon.sources.nvml import NvmlSource

class Clock(SystemClock):
    at = None
    def monotonic(self): return self.at[0] if self.at else super().monotonic()
    def time(self): return self.at[1] if self.at else super().time()

clock = Clock()
source = NvmlSource(clock, lambda pid: ProcessInfo(), timeout=60.0)
for line in sys.stdin:
    clock.at = json.loads(line)
    (reading,) = source.read()
"""
"""A program that reads the source at each line's moment (ns of CLOCK_MONOTONIC and since 1970; null: now); what it
prints of `reading` comes behind, within the loop."""

_CLIENT = (
    READ_AT
    + """\
    print(json.dumps({
        "monotonic": reading.monotonic_ns,
        "problem": source.origin().problem,
        "samples": [
            [s.device.uuid, s.device.index, s.device.name, s.device.missing, s.state, s.values, s.monotonic_ns,
             s.counters_monotonic_ns, s.device.label, s.device.parent] for s in reading.samples
        ],
        "processes": [[p.pid, p.uuid, p.kind, p.memory_used, p.sm_utilization] for p in reading.processes],
    }), flush=True)
"""
)


class Gpu(NamedTuple):
    """One sample of a read."""

    uuid: str
    index: int
    name: str
    missing: dict[str, Availability]
    state: Availability
    values: dict[str, float]
    """Those that are known."""
    monotonic_ns: int
    counters_monotonic_ns: int
    label: str
    parent: str

    def __getitem__(self, metric: Any) -> Any:
        """The value of a metric, without its scope; raises KeyError where it is missing."""
        return self.values[f"gpu.{metric}"]


class Read(NamedTuple):
    """What one read gave."""

    monotonic_ns: int
    problem: str
    gpus: list[Gpu]
    processes: list[tuple[int, str, str, float, float]]
    """pid, device, kind, memory, SM share."""


def _gpu(row: list[Any]) -> Gpu:
    uuid, index, name, missing, state, values, *times = row
    known = {metric.name: value for metric, value in zip(GPU_METRICS, values, strict=True) if not math.isnan(value)}
    return Gpu(uuid, index, name, {k: Availability(v) for k, v in missing.items()}, Availability(state), known, *times)


Source = Callable[..., Read]


@contextmanager
def nvml_source(stub: Stub, tmp_path: Path) -> Iterator[Source]:
    """A source to be read at moments that the test names: seconds after the driver's start, or now."""
    wall = stub._file.t0_unix_ns - stub._file.t0_ns
    with asked(_CLIENT, environment(tmp_path, stub.env())) as ask:

        def read(seconds: float | None = None) -> Read:
            moment = None
            if seconds is not None:
                stub.hold_clock(seconds)
                monotonic = stub._file.t0_ns + round(seconds * SECOND)
                moment = [monotonic, monotonic + wall]
            answer = ask(moment)
            return Read(
                answer["monotonic"], answer["problem"], [_gpu(row) for row in answer["samples"]],
                [tuple(row) for row in answer["processes"]],
            )  # fmt: skip

        yield read


def pci_device(
    devices: Path, address: str, *, status: str, vendor: str = "0x10de", kind: str = "0x030000", control: str = "auto",
    driver: str = "nvidia",
) -> None:  # fmt: skip
    """Write a device of sysfs; `driver`: the kernel's that is bound to it."""
    folder = devices / address
    (folder / "power").mkdir(parents=True, exist_ok=True)
    known = {"vendor": vendor, "class": kind, "power/control": control, "power/runtime_status": status}
    for name, text in known.items():
        (folder / name).write_text(f"{text}\n")
    (folder / "driver").unlink(missing_ok=True)
    (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
