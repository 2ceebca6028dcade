"""Tells a stub driver what to report, and reads what it was asked."""

import contextlib
import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.nvml import layout
from tests.nvml.truth import gpm, mean_utilization, truth, utilization_samples

Kind = Literal["compute", "graphics", "both", "mps"]


@dataclass(frozen=True)
class Process:
    """A process that holds a GPU, as the driver lists it."""

    pid: int
    memory: int | None = 512 * 2**20  # bytes; None: the driver does not know
    kind: Kind = "compute"
    sm: int | None = 0  # percent; None: the driver has no sample of it, which is not 0
    mem: int = 0
    enc: int = 0
    dec: int = 0
    instance: int | None = None  # of MIG, from 0; None: on the whole GPU


def _row(process: Process) -> layout.StubProcess:
    return layout.StubProcess(
        memory=layout.NO_MEMORY if process.memory is None else process.memory,
        pid=process.pid,
        kind=layout.KINDS[process.kind],
        sm=layout.NOT_SAMPLED if process.sm is None else process.sm,
        mem=process.mem,
        enc=process.enc,
        dec=process.dec,
        instance=0 if process.instance is None else process.instance + 1,
    )


def _write_bit(words: "ctypes.Array[ctypes.c_uint64]", place: int, on: bool) -> None:
    bit = 1 << place % 64
    word = words[place // 64]
    words[place // 64] = word | bit if on else word & ~bit


class Stub:
    """A stub driver and its control file. All settings act at once, also on processes that run on it.

    `library` is a directory that `build` returned. Without `file` the control file is a temporary
    one and goes away with the stub; `Stub.attach` opens one that another process made.
    """

    def __init__(self, library: Path | None = None, *, gpus: int = 2, file: Path | None = None) -> None:
        self.library = library
        self._temporary = file is None
        self.path = file or self._temporary_file()
        self.path.write_bytes(bytes(layout.SIZE))
        self._map(self.path)
        self._file.version, self._file.size = layout.VERSION, layout.SIZE
        self._file.t0_ns, self._file.t0_unix_ns = time.monotonic_ns(), time.time_ns()
        self._file.elapsed_ns = -1
        self._file.pcie_bits = 64
        self._file.event_types = layout.ALL_EVENTS
        self.event_look = 0.25
        for index in range(layout.GPUS):
            self.set_name(index, "NVIDIA H100 80GB HBM3")
            self.set_uuid(index, f"GPU-6770756d-6f6e-4000-8000-{index + 1:012x}")
        self.set_gpm(False)
        self.gpus = gpus
        self._file.magic = layout.MAGIC  # last: a file without it is not ready
        self._baseline = self._absolute_calls()

    @classmethod
    def attach(cls, file: Path, library: Path | None = None) -> Self:
        """A stub whose control file exists, to change it or to read its counts."""
        stub = cls.__new__(cls)
        stub.library, stub.path, stub._temporary = library, file, False
        size = file.stat().st_size
        if size != layout.SIZE:
            raise ValueError(f"{file}: {size} bytes, but the layout of this stub has {layout.SIZE}")
        stub._map(file)
        if (stub._file.magic, stub._file.version) != (layout.MAGIC, layout.VERSION):
            raise ValueError(f"{file}: layout version {stub._file.version}, expected {layout.VERSION}")
        stub._baseline = [[0] * (layout.GPUS + 1) for _ in layout.FUNCTIONS]
        return stub

    @staticmethod
    def _temporary_file() -> Path:
        handle, name = tempfile.mkstemp(prefix="gpumon-stub-")
        os.close(handle)
        return Path(name)

    def _map(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._file = layout.StubFile.from_buffer(mmap.mmap(file.fileno(), layout.SIZE))

    def close(self) -> None:
        """Remove the control file if it is a temporary one. Processes that mapped it keep it."""
        if self._temporary:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment (`base`, or this process's) in which NVML is this stub."""
        if self.library is None:
            raise ValueError("this stub was made without a library: pass what build() returned")
        environment = dict(os.environ if base is None else base)
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{self.library}:{before}" if before else str(self.library)
        environment["GPUMON_STUB_FILE"] = str(self.path)
        return environment

    # The machine ------------------------------------------------------------------------------

    @property
    def gpus(self) -> int:
        """How many GPUs there are. Handles of GPUs that went away answer that they are lost."""
        return self._file.gpu_count

    @gpus.setter
    def gpus(self, count: int) -> None:
        if not 0 <= count <= layout.GPUS:
            raise ValueError(f"{count} GPUs: the stub has 0 to {layout.GPUS}")
        self._file.gpu_count = count

    @property
    def driver_error(self) -> int:
        """The code with which every call fails (1 uninitialized, 9 driver not loaded), or 0."""
        return self._file.driver_error

    @driver_error.setter
    def driver_error(self, code: int) -> None:
        self._file.driver_error = code

    @property
    def kernel_module(self) -> int:
        """The branch of the driver's part in the kernel, such as 615: a library of another one is refused; 0: any."""
        return self._file.kernel_module

    @kernel_module.setter
    def kernel_module(self, level: int) -> None:
        self._file.kernel_module = level

    @property
    def one_at_a_time(self) -> bool:
        """Whether a call that waits holds a lock, for which all others of its process wait, whatever their GPU."""
        return bool(self._file.one_at_a_time)

    @one_at_a_time.setter
    def one_at_a_time(self, locked: bool) -> None:
        self._file.one_at_a_time = locked

    @property
    def constant(self) -> bool:
        """Whether moving values keep the value of the start; counters grow linearly either way."""
        return bool(self._file.constant)

    @constant.setter
    def constant(self, still: bool) -> None:
        self._file.constant = still

    @property
    def pcie_bits(self) -> int:
        """Width of the PCIe byte counters: 64, or 32, with which they wrap every 4 GiB."""
        return self._file.pcie_bits

    @pcie_bits.setter
    def pcie_bits(self, bits: Literal[32, 64]) -> None:
        self._file.pcie_bits = bits

    @property
    def event_look(self) -> float:
        """Seconds between two looks for events. A real driver sleeps; what looking costs counts as the program's."""
        return self._file.event_look_us / 1e6

    @event_look.setter
    def event_look(self, seconds: float) -> None:
        self._file.event_look_us = round(seconds * 1e6)

    @property
    def event_types(self) -> int:
        """The types of events that GPUs support, as bits of nvml.h; 0: they support none."""
        return self._file.event_types

    @event_types.setter
    def event_types(self, types: int) -> None:
        self._file.event_types = types

    # One GPU ----------------------------------------------------------------------------------

    def set_name(self, gpu: int, name: str) -> None:
        self._file.gpus[gpu].name = name.encode()

    def uuid(self, gpu: int) -> str:
        return self._file.gpus[gpu].uuid.decode()

    def set_uuid(self, gpu: int, uuid: str) -> None:
        self._file.gpus[gpu].uuid = uuid.encode()

    @property
    def lost(self) -> frozenset[int]:
        """The GPUs that fell off the bus."""
        return frozenset(index for index, gpu in enumerate(self._file.gpus) if gpu.lost)

    def set_lost(self, gpu: int, lost: bool = True) -> None:
        self._file.gpus[gpu].lost = lost

    def set_mig(self, gpu: int, instances: int | None) -> None:
        """Divide a GPU into so many MIG instances, each of 1 GPC and 10 GiB; None: MIG is off."""
        if instances is not None and not 0 <= instances <= layout.INSTANCES:
            raise ValueError(f"{instances} instances: a GPU has 0 to {layout.INSTANCES}")
        self._file.mig[gpu] = 0 if instances is None else instances + 1

    def set_instance(
        self, gpu: int, place: int, *, error: int = 0, microseconds: int = 0, slices: int = 1, is_empty: bool = False
    ) -> None:
        """How one MIG instance differs: its calls fail, or take so long; its size; whether no memory of it is used."""
        self._file.instances[gpu][place] = layout.StubInstance(error, microseconds, slices, is_empty)

    def xid(self, gpu: int, code: int) -> None:
        """Report an XID error to every process that has registered for those of this GPU."""
        self.event(gpu, layout.XID, code)

    def event(self, gpu: int, kind: int, data: int) -> None:
        """Report an event of a type, a bit of nvml.h; `layout.EVENTS` of them are kept."""
        slot = self._file.events[self._file.event_count % layout.EVENTS]
        slot.type, slot.data, slot.gpu = kind, data, gpu
        self._file.event_count += 1  # last: a reader looks at those before it

    def set_supported(self, metric: str, supported: bool, gpu: int | None = None) -> None:
        """Whether a GPU, or every GPU, can report a metric at all."""
        if metric in layout.GPM:
            self._set_gpm(1 << layout.GPM[metric].bit, supported, gpu)
            return
        for index in range(layout.GPUS) if gpu is None else [gpu]:
            _write_bit(self._file.gpus[index].unsupported, layout.METRICS[metric], not supported)

    def set_value(self, metric: str, number: int | None, gpu: int | None = None) -> None:
        """The number, in the driver's unit, that a GPU, or every GPU, reports from now on; None: its own again."""
        place = layout.METRICS[metric]
        for index in range(layout.GPUS) if gpu is None else [gpu]:
            held = self._file.gpus[index]
            if number is not None:
                held.set[place] = number
            _write_bit(held.is_set, place, number is not None)

    def set_gpm(self, supported: bool, gpu: int | None = None) -> None:
        """Whether a GPU, or every GPU, has GPM; at the start none has it."""
        self._set_gpm(layout.GPM_ALL, supported, gpu)

    def _set_gpm(self, bits: int, supported: bool, gpu: int | None) -> None:
        for index in range(layout.GPUS) if gpu is None else [gpu]:
            held = self._file.gpus[index]
            held.without_gpm = held.without_gpm & ~bits if supported else held.without_gpm | bits

    def set_stall(self, gpu: int, at: float, seconds: float) -> None:
        """No kernel runs on a GPU from `at`, in seconds after the start: the driver's utilization samples show it."""
        held = self._file.gpus[gpu]
        held.stall_at_ns, held.stall_ns = round(at * 1e9), round(seconds * 1e9)

    def set_processes(self, gpu: int, processes: Iterable[Process]) -> None:
        """Replace the process list of a GPU, in one step for those who read it."""
        listed = list(processes)
        if len(listed) > layout.PROCESSES:
            raise ValueError(f"{len(listed)} processes: the stub has room for {layout.PROCESSES} per GPU")
        rows = (layout.StubProcess * layout.PROCESSES)(*map(_row, listed))
        held = self._file.gpus[gpu]
        held.generation += 1  # odd: being written, and only for as long as one copy takes
        ctypes.memmove(held.processes, rows, ctypes.sizeof(rows))
        held.process_count = len(listed)
        held.generation += 1

    def spread(self, pids: Sequence[int]) -> None:
        """Give the processes to the GPUs in turn, each with its own share of memory and time."""
        for gpu in range(self.gpus):
            here = pids[gpu :: self.gpus]
            self.set_processes(
                gpu,
                [Process(pid, (256 + 32 * n) * 2**20, sm=90 // len(here), mem=n) for n, pid in enumerate(here)],
            )

    # One function -----------------------------------------------------------------------------

    def set_latency(self, function: str | None, microseconds: int, gpu: int | None = None) -> None:
        """How long a function (None: each one) takes, for every GPU or for one.

        A call that is waiting already follows within 20 ms, so 0 ends a hang.
        """
        for slot in self._functions(function):
            slot.latency_us[layout.ANY if gpu is None else gpu] = microseconds

    def set_error(self, function: str | None, code: int, gpu: int | None = None) -> None:
        """With which code a function (None: each one) fails, for every GPU or for one; 0: it works."""
        for slot in self._functions(function):
            slot.error[layout.ANY if gpu is None else gpu] = code

    def clear_faults(self) -> None:
        """No errors, no latencies, no lost GPU, everything supported but GPM, no value set."""
        self.driver_error = self.kernel_module = 0
        self.one_at_a_time = False
        for slot in self._file.functions:
            for index in range(layout.GPUS + 1):
                slot.latency_us[index] = slot.error[index] = 0
        for gpu in self._file.gpus:
            gpu.lost = gpu.stall_ns = 0
            for word in range(layout.METRIC_ROOM // 64):
                gpu.unsupported[word] = gpu.is_set[word] = 0
        self.set_gpm(False)

    def _functions(self, function: str | None) -> Iterator[layout.StubFunction]:
        if function is None:
            yield from self._file.functions
        elif function in layout.FUNCTIONS:
            yield self._file.functions[layout.FUNCTIONS[function]]
        else:
            raise ValueError(f"{function}: the stub driver has no such function")

    def calls(self, gpu: int | None = None) -> dict[str, int]:
        """Calls of each function since `reset_calls`, on every GPU or on one; without those never called."""
        counts = zip(layout.FUNCTIONS, self._absolute_calls(), self._baseline, strict=True)
        if gpu is None:
            totals = {name: sum(now) - sum(before) for name, now, before in counts}
        else:
            totals = {name: now[gpu] - before[gpu] for name, now, before in counts}
        return {name: total for name, total in totals.items() if total}

    def reset_calls(self) -> None:
        """Count from here. The file is not written, so no call of another process is lost."""
        self._baseline = self._absolute_calls()

    def _absolute_calls(self) -> list[list[int]]:
        return [list(slot.calls) for slot in self._file.functions]

    # Time and truth ---------------------------------------------------------------------------

    @property
    def t0(self) -> float:
        """The start, in seconds of time.monotonic()."""
        return self._file.t0_ns / 1e9

    def hold_clock(self, seconds: float) -> None:
        """Let the driver's time stand still, so many seconds after the start."""
        self._file.elapsed_ns = round(seconds * 1e9)

    @property
    def elapsed(self) -> int:
        """The time that is held, in ns after the start; -1 where it goes on."""
        return self._file.elapsed_ns

    def set_start(self, time: float) -> None:
        """Let the driver's stamps, which are seconds since 1970, begin at `time`."""
        self._file.t0_unix_ns = round(time * 1e9)

    def run_clock(self) -> None:
        """Let the driver's time be CLOCK_MONOTONIC again."""
        self._file.elapsed_ns = -1

    def truth(self, metric: str, gpu: int, t: float | None = None) -> float:
        """What the driver reports at `t` of time.monotonic(), or now, in base units."""
        if t is not None:
            elapsed = round(t * 1e9) - self._file.t0_ns
        elif self._file.elapsed_ns >= 0:
            elapsed = self._file.elapsed_ns
        else:
            elapsed = time.monotonic_ns() - self._file.t0_ns
        place, held = layout.METRICS[metric], self._file.gpus[gpu]
        if held.is_set[place // 64] >> place % 64 & 1:
            numerator, denominator = layout.SCALES[metric]
            return held.set[place] * numerator / denominator
        return truth(metric, gpu, elapsed, constant=self.constant, pcie_bits=self.pcie_bits)

    def gpm(self, metric: str, gpu: int, begin: int, end: int) -> float:
        """Mean of what GPM measures over a stretch, in ns of time.monotonic_ns(), in base units."""
        t0 = self._file.t0_ns
        return gpm(metric, gpu, begin - t0, end - t0, constant=self.constant)

    def utilization_samples(self, gpu: int, begin: int, end: int) -> list[tuple[int, float]]:
        """What the driver samples from `begin` to `end`, in ns of time.monotonic_ns(): (ns, ratio)."""
        t0 = self._file.t0_ns
        samples = utilization_samples(gpu, begin - t0, end - t0, constant=self.constant)
        return [(t0 + moment, ratio) for moment, ratio in samples]

    def mean_utilization(self, gpu: int, begin: int, end: int) -> float:
        """Mean of the utilization over a stretch, in ns of time.monotonic_ns()."""
        t0 = self._file.t0_ns
        return mean_utilization(gpu, begin - t0, end - t0, constant=self.constant)

    @contextlib.contextmanager
    def fault(self, function: str | None, code: int, gpu: int | None = None) -> Iterator[None]:
        """An error for the length of a block."""
        self.set_error(function, code, gpu)
        try:
            yield
        finally:
            self.set_error(function, 0, gpu)
