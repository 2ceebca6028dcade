"""Scenarios: the GPUs and programs of a simulated machine, their load, and the metrics that trainings log."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

GIB = 2.0**30
_MODEL = "NVIDIA H100 80GB HBM3 (simulated)"
_LAPTOP = "NVIDIA GeForce RTX 4060 Laptop GPU (simulated)"


@dataclass(frozen=True, slots=True)
class Job:
    """A simulated program with one process on each of its GPUs."""

    name: str
    """Name of the run; empty for a program that publishes no run."""
    process: str
    user: str
    gpus: tuple[int, ...]
    loads: Callable[[Random], list[float]]
    """Function that returns the load (0 to 1) in each 0.1 s of one period."""
    memory: float
    """GiB of memory on each GPU."""
    cpu: float = 1.0
    """Number of CPU cores that each process uses."""
    resident: float = 8.0
    """GiB of host memory per process."""
    tensor: float = 0.1
    """Share of the load on tensor cores."""
    phases: tuple[tuple[str, float], ...] = ()
    """Phases of an epoch: name, and the second of the epoch at which the phase starts."""
    framework: str = ""
    epochs: int = 0
    steps: int = 0
    """Number of steps per epoch."""
    metrics: Callable[[float], Mapping[str, float]] = lambda progress: {}
    """Function that returns the logged values by name after a number of epochs, which may be a fraction."""


def _distributed(rng: Random) -> list[float]:
    train = [0.97 + 0.03 * rng.random() if i > 15 else 0.4 for i in range(780)]
    validate = [0.80 + 0.04 * rng.random() for _ in range(110)]
    return train + validate + [0.04 if i > 5 else 0.3 for i in range(60)]


def _input_bound(rng: Random) -> list[float]:
    train = [0.3 + 0.3 * rng.random() for _ in range(34) for _ in range(5)]
    return train + [0.66 + 0.06 * rng.random() for _ in range(30)]


def _bursts(rng: Random) -> list[float]:
    return [0.6 + 0.3 * rng.random() if 180 <= i < 265 or 300 <= i < 330 else 0.0 for i in range(470)]


def _idle(rng: Random) -> list[float]:
    return [0.0] * 600


def _language(progress: float) -> Mapping[str, float]:
    loss = 0.92 + 1.35 * math.exp(-progress / 2.5) + 0.015 * math.sin(progress * 41)
    logged = {"loss": loss, "learning_rate": 2e-5 * max(0.0, 1 - progress / 40)}
    return logged | ({"val_loss": 0.97 + 1.3 * math.exp(-int(progress) / 2.5)} if progress >= 1 else {})


def _images(progress: float) -> Mapping[str, float]:
    loss = 0.85 + 5.6 * math.exp(-progress / 9) + 0.03 * math.sin(progress * 29)
    return {"loss": loss, "accuracy": 0.76 * (1 - math.exp(-progress / 11)) + 0.004 * math.sin(progress * 31)}


_LLAMA = Job(
    name="llama-8b-sft",
    process="python",
    user="alice",
    gpus=(0, 1, 2, 3),
    loads=_distributed,
    memory=68.4,
    tensor=0.52,
    cpu=1.3,
    resident=41.0,
    phases=(("train", 0), ("validate", 78), ("checkpoint", 89)),
    framework="torch",
    epochs=40,
    steps=312,
    metrics=_language,
)
_RESNET = Job(
    name="resnet50",
    process="python3",
    user="bob",
    gpus=(5,),
    loads=_input_bound,
    memory=21.7,
    tensor=0.28,
    cpu=7.8,
    resident=14.0,
    phases=(("train", 0), ("validate", 17)),
    framework="keras",
    epochs=90,
    steps=195,
    metrics=_images,
)
_JUPYTER = Job(
    name="", process="jupyter-kernel", user="carol", gpus=(4,), loads=_bursts, memory=9.2, cpu=0.4, resident=3.1
)
_HOLDER = Job(name="", process="python", user="dave", gpus=(6,), loads=_idle, memory=41.3, cpu=0.0, resident=5.6)
_EIGHT = replace(_LLAMA, name="vit-l-pretrain", user="erin", gpus=tuple(range(8, 16)), memory=57.2, metrics=_images)
_TOWER = "z" + "\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308" * 4
_HOSTILE = (
    replace(_LLAMA, name="[red]run[/] \x1b]0;pwn\x07 <script>alert(1)</script>", process="[red]x[/]\x1b[2J",
            user="\u202eecila\u202c"),
    replace(_RESNET, name="訓練モデル・画像分類の長い名前" * 3, process="学習\u200b\u200dプロセス", user="用户"),
    replace(_JUPYTER, process=_TOWER, user="carol\r\nroot"),
    replace(_HOLDER, process="%s%n{0}\x00[link=file:///]", user="[bold"),
)  # fmt: skip


_WRONG_ADDRESS = ((4, 31, 1700.0),)
"""An XID error that a notebook causes by accessing an illegal address. Such errors of applications raise no alarm.
"""
_FAULTS: Mapping[int, Mapping[str, float]] = {
    2: {"gpu.nvlink_active": 16.0, "gpu.nvlink_crc_errors": 412.0, "gpu.nvlink_replays": 57.0},
    3: {"gpu.pcie_width": 8.0, "gpu.pcie_replays": 1284.0},
    6: {
        "gpu.ecc_uncorrected": 1.0, "gpu.ecc_uncorrected_lifetime": 1.0, "gpu.remapping_pending": 1.0,
        "gpu.recovery_action": 4.0, "gpu.xid": 94.0,
    },
}  # fmt: skip
"""Faults by GPU: inactive NVLink links, a link with half of the PCIe lanes, and a memory error with its
consequences."""
_FAULT_XIDS = (*_WRONG_ADDRESS, (6, 94, 300.0))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulated machine: its GPUs, jobs and faults."""

    gpus: int
    model: str
    jobs: tuple[Job, ...] = ()
    asleep: tuple[int, ...] = ()
    """GPUs that are powered down."""
    faults: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Faulty values of metrics, by GPU. They apply after `gpu.FAULTS_FROM` seconds."""
    xids: tuple[tuple[int, int, float], ...] = ()
    """Periodic XID errors: GPU, code, and period in seconds."""


SCENARIOS: Mapping[str, Scenario] = {
    "default": Scenario(8, _MODEL, (_LLAMA, _RESNET, _JUPYTER, _HOLDER), xids=_WRONG_ADDRESS),
    "idle": Scenario(8, _MODEL),
    "one": Scenario(1, _MODEL, (replace(_RESNET, gpus=(0,)),)),
    "laptop": Scenario(1, _LAPTOP, asleep=(0,)),
    "sixteen": Scenario(16, _MODEL, (_LLAMA, _RESNET, _JUPYTER, _HOLDER, _EIGHT)),
    "faults": Scenario(8, _MODEL, (_LLAMA, _RESNET, _JUPYTER, _HOLDER), faults=_FAULTS, xids=_FAULT_XIDS),
    "hostile": Scenario(8, "[blink]NVIDIA[/] \u202eH100\x1b[31m 図形" + _TOWER, _HOSTILE),
}
