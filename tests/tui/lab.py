"""A lab's machine for tests in a real terminal: GPUs of the stub driver, a daemon, real processes, and a training."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple

from gpumon.common.paths import HISTORY
from gpumon.storage.history.tiers import HOUR, SHAPES
from tests.months import fill, training
from tests.nvml import Process, Stub
from tests.programs import daemon, environment

GIB = 2**30
SECRET = "--token=hunter2"
HELD, FREE, DIVIDED = 1, 2, 3
"""GPUs, beside the one that trains."""
THROTTLED = "sw_power", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake"
SW_POWER_CAP = 0x4
"""An event reason: the power limit holds the clocks."""
HOURS = 5
"""Of history that is kept when the daemon starts."""

SLEEPER = "import sys\nprint('up', flush=True)\nsys.stdin.read()\n"
TRAINING = """
import sys, types
GIB = 1 << 30

class OutOfMemoryError(RuntimeError):
    pass

OutOfMemoryError.__module__ = "torch"
observers = []

def stats(index):
    bytes_of = {"allocated": 6, "reserved": 9, "active": 6, "inactive_split": 1, "requested": 5}
    told = {f"{name}_bytes": {"all": {"current": n * GIB, "peak": n * GIB}} for name, n in bytes_of.items()}
    return {**told, "num_alloc_retries": 2, "num_ooms": 1}

torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(
    is_initialized=lambda: True, current_device=lambda: 0, device_count=lambda: 1, memory_stats_as_nested_dict=stats,
    get_device_properties=lambda index: types.SimpleNamespace(uuid=sys.argv[1].removeprefix("GPU-")))
torch.OutOfMemoryError = OutOfMemoryError
torch._C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=observers.append)
sys.modules["torch"] = torch

import time
import gpumon

def said(word):
    print(word, flush=True)
    return sys.stdin.readline()

with gpumon.run("llama-sft", epochs=9) as run:
    for epoch in run.epochs():
        for step in run.steps(range(40)):
            time.sleep(0.02)
            run.log(loss=2.5 - 0.5 * epoch - step / 1000)
            if epoch == 2 and step == 20:
                for observer in observers:
                    observer(0, 2 * GIB, 80 * GIB, GIB)
                said("in epoch 2")
        with run.phase("validate"):
            time.sleep(0.3)
            if epoch == 1:
                said("validates")
"""


class LabProcess:
    """A script that runs until its standard input ends."""

    def __init__(self, directory: Path, name: str, source: str, *words: str, env: Mapping[str, str]) -> None:
        path = directory / name
        path.write_text(source)
        self.program = subprocess.Popen(
            [sys.executable, str(path), *words], env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.hear()

    @property
    def pid(self) -> int:
        return self.program.pid

    def hear(self) -> str:
        """The next line that it prints."""
        return _pipe(self.program.stdout).readline().rstrip("\n")

    def go_on(self) -> str:
        """Let it go on from where it waits; what it says next."""
        _pipe(self.program.stdin).write("\n")
        _pipe(self.program.stdin).flush()
        return self.hear()

    def close(self) -> None:
        """End it."""
        self.program.kill()
        self.program.communicate()


def _pipe(found: IO[str] | None) -> IO[str]:
    assert found is not None
    return found


class Lab(NamedTuple):
    """What there is."""

    stub: Stub
    env: Mapping[str, str]
    directory: Path
    training: LabProcess
    """On GPU 0; it waits in the validation of epoch 1."""


@contextmanager
def lab(driver_library: Path, directory: Path, gpus: int = 4) -> Iterator[Lab]:
    """One GPU that trains; of four also one that is held and idle, a free one, and one with two MIG instances.

    Four have a daemon and some hours of history. With one, each view samples by itself.
    """
    with ExitStack() as stack:
        stub = stack.enter_context(Stub(driver_library, gpus=gpus))
        live = directory / "live"
        live.mkdir(mode=0o700)
        env = environment(live, stub.env())
        for reason in THROTTLED:
            stub.set_value(f"gpu.throttled_{reason}", 0)
        stub.set_value("gpu.event_reasons", 0)
        stub.set_value("gpu.event_reasons", SW_POWER_CAP, 0)
        if gpus > 1:
            stub.set_mig(DIVIDED, 2)
            for metric in ("gpu.utilization", "gpu.memory_utilization"):
                stub.set_value(metric, 0, HELD)
                stub.set_value(metric, 0, FREE)
            stub.set_value("gpu.memory_used", 0, FREE)
            _remember(Path(env["GPUMON_STATE_DIR"]), stub.uuid(0))
            stack.enter_context(daemon("--interval", "0.5", env=env))
        else:
            stub.set_value("gpu.memory_used", 14 * GIB)
        trains = LabProcess(directory, "train_sft.py", TRAINING, stub.uuid(0), SECRET, env=env)
        stack.callback(trains.close)
        stub.set_processes(0, [Process(trains.pid, memory=11 * GIB, sm=71, mem=37)])
        if gpus > 1:
            for gpu, name, process in (
                (HELD, "notebook.py", Process(0, memory=3 * GIB)),
                (DIVIDED, "small.py", Process(0, memory=GIB, instance=0)),
            ):
                sleeper = LabProcess(directory, name, SLEEPER, SECRET, env=env)
                stack.callback(sleeper.close)
                stub.set_processes(gpu, [replace(process, pid=sleeper.pid)])
        yield Lab(stub, env, directory, trains)


def _remember(state: Path, uuid: str) -> None:
    """Hours of kept history of a GPU."""
    state.mkdir(mode=0o700)
    now = time.time()
    shapes = [shape._replace(keep=min(shape.keep, HOURS * HOUR)) for shape in SHAPES]
    fill(str(state / HISTORY), [uuid], now, training(now), shapes)
