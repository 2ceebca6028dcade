"""A feed that makes up frames: the same ones each time, and as odd as a test wants them."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from math import nan, sin
from typing import Any, NamedTuple

from gpumon.live import LiveState
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Mark, Run, RunState, Sample
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.recording.content import DecodedParts
from gpumon.sources.registry import BY_NAME

START = 1_790_000_000
"""Seconds since 1970 of the first frame."""
EPOCH_SECONDS = 97
VALIDATION_SECONDS = 12
OUT_OF_MEMORY_AT = 430
GIB = 2.0**30


class FakePlayer:
    """A player of a recording that notes what it is asked."""

    def __init__(self, begin: float = nan, end: float = nan) -> None:
        self.is_paused = False
        self.can_seek = self.can_pause = True
        self.begin, self.end = begin, end
        self.seeks = 0
        self.seek_target = nan
        self.arrives = True
        self.asked: list[float] = []

    @property
    def completed_seek(self) -> tuple[int, float]:
        """Of each turn all is there, unless it does not arrive."""
        return self.seeks - (not self.arrives), nan

    def seek(self, seconds: float) -> None:
        """Note where to go."""
        self.asked.append(seconds)


LIVE = LiveState(True, "live", 1.0)
NAMES = ("python train.py", "python", "/usr/lib/xorg/Xorg", "jupyter-kernel", "trtexec", "ollama runner")
USERS = ("alice", "bob", "carol", "dmitri")
_MADE: dict[tuple[object, ...], tuple[tuple[Device, ...], tuple[Frame, ...]]] = {}
"""Devices and first frames by what they are made from; the newest behind."""
_MOST_MADE = 8


class FakeWriter(NamedTuple):
    """A process that makes frames."""

    pid: int = 4711
    started: int = 12345


WRITER = FakeWriter()


@dataclass
class FakeFeed:
    """`gpus` cards on which trainings go on; `advance` makes the next frames."""

    gpus: int = 8
    seconds: int = 700
    first: int = 0
    """Second of the first frame. An app takes in all frames when it starts, so a later one is quicker."""
    processes_count: int = 24
    epoch_seconds: float = EPOCH_SECONDS
    names: tuple[str, ...] = NAMES
    users: tuple[str, ...] = USERS
    run_names: tuple[str, ...] = ("resnet50", "llama-8b-lora")
    problem: str = ""
    notice: str = ""
    label: str = "SIMULATED"
    lost: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()
    powerless: tuple[int, ...] = ()
    """GPUs that do not report their power."""
    gap: tuple[int, int] = (0, 0)
    """Seconds from and until which GPUs gave no values."""
    left_out: tuple[int, int] = (0, 0)
    """Processes and runs that no frame has room for."""
    live: LiveState = LIVE
    source: str = "sim"
    speed: float = 1.0
    """Of a recording that plays."""
    ended: bool = False
    """A recording that has been played."""
    state_of_all: Availability = Availability.OK
    """Of every GPU in every frame from now on."""
    kept_in: str = ""
    """The file of longer history."""
    frames: list[Frame] = field(default_factory=list)
    made_by: FakeWriter | None = WRITER

    def __post_init__(self) -> None:
        self.devices = [Device(f"GPU-{index:04}", index, "NVIDIA H100 80GB HBM3", {}) for index in range(self.gpus)]
        if type(self) is not FakeFeed or self.frames:
            self.advance(self.seconds - self.first)
            return
        # Most tests begin with the same frames, whose making took them more time than all else.
        frames_from = (
            self.gpus, self.seconds, self.first, self.processes_count, self.epoch_seconds, tuple(self.names),
            tuple(self.users), tuple(self.run_names), tuple(self.lost), tuple(self.stale),
            tuple(self.powerless), self.gap, self.left_out, self.state_of_all,
        )  # fmt: skip
        if (made := _MADE.pop(frames_from, None)) is None:
            self.advance(self.seconds - self.first)
            made = tuple(self.devices), tuple(self.frames)
        _MADE[frames_from] = made
        while len(_MADE) > _MOST_MADE:
            del _MADE[next(iter(_MADE))]
        # Copies: some tests change what frames tell.
        self.devices, self.frames = list(made[0]), [copy(frame) for frame in made[1]]

    def since(self, number: int) -> list[Frame]:
        return self.frames[max(0, number - self.first) :]

    def origin(self) -> Origin:
        return Origin(self.source, self.label, self.problem, self.ended, BY_NAME[self.source].capabilities)._replace(
            notice=self.notice, speed=self.speed
        )

    def writer(self) -> FakeWriter | None:
        return self.made_by

    def driver(self) -> Driver:
        return Driver("550.54.15", "CUDA 12.4") if self.gpus else Driver()

    def hostname(self) -> str:
        return "node7"

    def history_file(self) -> str:
        return self.kept_in

    def state(self) -> LiveState:
        return self.live

    def advance(self, count: int = 1) -> None:
        """The next frames."""
        for _ in range(count):
            self.frames.append(self.frame(self.first + len(self.frames)))

    def frame(self, second: int) -> Frame:
        """The frame of a second since `START`."""
        parts = DecodedParts(
            tuple(self.sample(device, second) for device in self.devices),
            tuple(_in_order(HOST_METRICS, self.host(second))),
            self.processes(second),
            self.runs(second),
            self.boundaries(second),
        )
        time = (START + second) * 10**9
        return Frame(second + 1, second * 10**9, time, 1.0, 0.002, 0, self.left_out[0], parts, self.left_out[1])

    def sample(self, device: Device, second: int) -> Sample:
        """What a GPU reads at a second."""
        if self.gap[0] <= second < self.gap[1]:
            return Sample(device, Availability.FAILED, [nan] * len(GPU_METRICS))
        if self.state_of_all not in (Availability.OK, Availability.STALE):
            return Sample(device, self.state_of_all, [nan] * len(GPU_METRICS))
        if device.index in self.lost:
            return Sample(device, Availability.LOST, [nan] * len(GPU_METRICS))
        utilization = self.utilization(device.index, second)
        used = (14 + 9 * device.index % 60 + 3 * sin(second / 40)) * GIB
        values = {
            "gpu.utilization": utilization,
            "gpu.memory_utilization": utilization * 0.6,
            "gpu.memory_used": used if device.index % 8 != 7 else 0.003 * GIB,
            "gpu.memory_reserved": 0.5 * GIB,
            "gpu.memory_total": 79.6 * GIB,
            "gpu.power": nan if device.index in self.powerless else 69 + 610 * utilization,
            "gpu.power_limit": 700.0,
            "gpu.energy": 5e6 + 500.0 * second,
            "gpu.temperature": 33 + 38 * utilization + 18 * (device.index % 8 == 2),
            "gpu.clock_sm": (0.345 + 1.6 * (utilization > 0.1)) * 1e9,
            "gpu.performance_state": 8.0 * (utilization < 0.1),
            "gpu.fan": 0.3 + 0.4 * utilization,
            "gpu.encoder_utilization": 0.0,
            "gpu.decoder_utilization": 0.12 * (device.index == 1),
            "gpu.pcie_received": 3e9 * second * (1 + 0.1 * sin(second / 9)),
            "gpu.pcie_sent": 4e8 * second,
        }
        if device.index < 5:
            held = 0.8 * used
            values |= {
                "gpu.run_allocated": 0.6 * used,
                "gpu.run_reserved": held,
                "gpu.run_inactive_split": 0.05 * held,
                "gpu.run_used": held + 0.6 * GIB,
            }
        state = Availability.STALE if device.index in self.stale else self.state_of_all
        run = self._run_key(device.index)
        return Sample(device, state, _in_order(GPU_METRICS, values), run, 12.0 * (state is Availability.STALE))

    def utilization(self, index: int, second: int) -> float:
        """High in training, lower in validation; GPU 5 holds memory for nothing, GPU 7 is free."""
        if index % 8 in (5, 7):
            return 0.0
        if second % self.epoch_seconds > self.epoch_seconds - VALIDATION_SECONDS:
            return 0.42 + 0.05 * sin(second)
        return 0.93 - 0.05 * (index % 3) + 0.06 * sin(second / 7 + index)

    def host(self, second: int) -> dict[str, float]:
        """What the machine reads."""
        return {
            "host.cpu_utilization": 0.31 + 0.2 * sin(second / 30),
            "host.memory_used": 181 * GIB,
            "host.memory_total": 503 * GIB,
            "host.swap_used": 0.0,
            "host.swap_total": 8 * GIB,
            "host.load": 21.5,
            "host.disk_read": 2e8 * second,
            "host.network_received": 1e7 * second,
        }

    def processes(self, second: int) -> tuple[Process, ...]:
        """Processes on the GPUs but the free one; their memory changes with time."""
        devices = [device for device in self.devices if device.index % 8 != 7 and device.index not in self.lost]
        if not devices:
            return ()
        found = []
        for place in range(self.processes_count):
            device = devices[place % len(devices)]
            memory = (0.4 + (place * 7 + second // 20) % 23) * GIB
            found.append(
                Process(
                    1000 + 37 * place,
                    device.uuid,
                    "compute",
                    self.names[place % len(self.names)],
                    self.users[place % len(self.users)],
                    started=START - 3000.0 - 61 * place,
                    memory_used=memory,
                    sm_utilization=nan if place % 6 == 2 else self.utilization(device.index, second) * 0.9,
                    cpu_utilization=0.1 + place % 5,
                    host_memory=(1 + place % 9) * GIB,
                    run=self._run_key(device.index) if place < len(devices) else "",
                )
            )
        return tuple(sorted(found, key=lambda process: -process.memory_used))

    def runs(self, second: int) -> tuple[Run, ...]:
        """The first run has four ranks; the second counts from 1, resumes another, and ran out of memory once."""
        epoch = int(second // self.epoch_seconds)
        runs = []
        ranks = list(range(min(self.gpus, 5))) or [0]
        for index in ranks:
            other = index == 4
            runs.append(
                Run(
                    self._run_key(index) or "run-0",
                    "id-1" if other else "id-0",
                    self.run_names[1 if other else 0],
                    4000 + index,
                    self.users[1 if other else 0],
                    rank=0 if other else index,
                    world_size=1 if other else min(4, len(ranks)),
                    epochs=90 if not other else 3,
                    gpus=(self.devices[index].uuid,) if self.devices else (),
                    started=float(START),
                    state=RunState.RUNNING,
                    first_epoch=2 * other,
                    base=int(other),
                    epoch=epoch if not other else 2,
                    step=second * 7,
                    phase=self.phase(second),
                    epoch_started=START + epoch * self.epoch_seconds if not other else START + 300.0,
                    updated=float(START + second),
                    memory=FrameworkMemory(8 * GIB, 12 * GIB, retries=3.0 * other, ooms=float(other)),
                    metrics={"loss": 2.4 * 0.93 ** (second / self.epoch_seconds), "acc": 0.4},
                )
            )
        return tuple(runs)

    def phase(self, second: float) -> str:
        """Each epoch ends with a validation."""
        left = self.epoch_seconds - second % self.epoch_seconds
        return "validate" if left <= VALIDATION_SECONDS else "train"

    def boundaries(self, second: int) -> tuple[Boundary, ...]:
        """Begins of epochs and of validations within the second before a frame, for every rank of run 0.

        Run 4 runs out of memory once.
        """
        found = []
        if self.gpus > 4 and second == OUT_OF_MEMORY_AT:
            moments = second * 10**9, (START + second) * 10**9
            found.append(Boundary("run-4", 1, Mark.OUT_OF_MEMORY, 2, 99, "train", *moments, nan, 2 * GIB, 1.1 * GIB))
        for index in list(range(min(self.gpus, 4))) or [0]:
            key = self._run_key(index) or "run-0"
            number, time = 1, 0.0
            epoch = 0
            while time <= second:
                validation = time + self.epoch_seconds - VALIDATION_SECONDS
                for mark, phase, moment in ((Mark.EPOCH_BEGIN, "train", time), (Mark.PHASE, "validate", validation)):
                    if second - 1 < moment <= second:
                        ns = int((START + moment) * 1e9)
                        found.append(Boundary(key, number, mark, epoch, int(7 * moment), phase, int(moment * 1e9), ns))
                    number += 1
                time += self.epoch_seconds
                epoch += 1
        return tuple(found)

    def _run_key(self, index: int) -> str:
        return f"run-{index}" if index < 5 else ""


def recent(**changes: Any) -> FakeFeed:
    """A feed of less than two minutes, which apps take in at once: for tests to which the past is no matter."""
    return FakeFeed(**{"first": 600, **changes})


def _in_order(metrics: tuple[object, ...], values: dict[str, float]) -> list[float]:
    return [values.get(metric.name, nan) for metric in metrics]  # type: ignore[attr-defined]
