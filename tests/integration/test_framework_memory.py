"""Framework memory and out-of-memory errors reach the frames of a daemon."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gpumon
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Mark
from tests.nvml import Stub
from tests.programs import PATIENCE, daemon, environment, until

GIB = 2.0**30

TORCH = """
import sys, types
GIB = 1 << 30

class OutOfMemoryError(RuntimeError):
    pass

OutOfMemoryError.__module__ = "torch"

def amount(current, peak=0):
    return {"all": {"current": current, "peak": peak or current}}

def stats(index):
    n = index + 1
    return {"allocated_bytes": amount(6 * GIB * n, 7 * GIB * n), "reserved_bytes": amount(8 * GIB * n),
            "active_bytes": amount(6 * GIB * n), "inactive_split_bytes": amount(GIB * n),
            "requested_bytes": amount(5 * GIB * n), "num_alloc_retries": 2 * n, "num_ooms": n}

observers = []
uuids = sys.argv[1:]
cuda = types.SimpleNamespace(
    is_initialized=lambda: True, current_device=lambda: 0, device_count=lambda: len(uuids),
    memory_stats_as_nested_dict=stats,
    get_device_properties=lambda i: types.SimpleNamespace(uuid=uuids[i].removeprefix("GPU-")))
torch = types.ModuleType("torch")
torch.cuda, torch.OutOfMemoryError, torch._C = cuda, OutOfMemoryError, types.SimpleNamespace()
sys.modules["torch"] = torch

import gpumon

def said(word):
    print(word, flush=True)
    sys.stdin.readline()
"""
OBSERVED = """
torch._C._cuda_attach_out_of_memory_observer = observers.append
with gpumon.run("too-big") as run:
    with run.epoch(0):
        run.step()
        said("ready")
        for observer in observers:
            observer(0, 2 * GIB, 80 * GIB, GIB)
        said("failed once")
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
"""
UNOBSERVED = """
with gpumon.run("too-big") as run:
    with run.epoch(0):
        run.step()
        said("ready")
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of "
                               "79.10 GiB of which 1.00 GiB is free. Of the allocated memory")
"""
PASSED_BY = """
run = gpumon.run("too-big")
run.step()
said("ready")
raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. of which 1.00 GiB is free.")
"""
REAL = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
import torch, gpumon
from gpumon.tracking import wire_format
from gpumon.tracking.wire_format import unpack_memory
with gpumon.run("cpu") as run:
    with run.epoch(0):
        run.step()
        weights = torch.ones(1000, requires_grad=True)
        weights.sum().backward()
    run._memory.read()
    front = bytes(run._board._map[:wire_format.FRONT])
print(unpack_memory(front), torch.cuda.is_initialized(), run._memory._frameworks._readers.keys())
"""

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    return environment(live_dir, stub.env())


@pytest.fixture
def start(env: dict[str, str], stub: Stub) -> Iterator[Start]:
    """Runs a training whose torch has the stub driver's two devices."""
    children = []

    def begin(source: str) -> subprocess.Popen[str]:
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", TORCH + source, stub.uuid(0), stub.uuid(1)],
                env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.communicate()


@contextmanager
def watched(env: dict[str, str]) -> Iterator[Callable[[], list[Frame]]]:
    """A daemon, and all the frames that it has taken so far."""
    with daemon("--interval", "0.1", env=env):
        live = gpumon.connect(env["GPUMON_DIR"])
        try:
            yield lambda: live.since(0)
        finally:
            live.close()


def hear(training: subprocess.Popen[str], word: str) -> None:
    assert training.stdout is not None
    heard = training.stdout.readline()
    if heard != f"{word}\n":
        training.kill()
        raise AssertionError(f"{heard!r} {training.communicate()[1]}")


def go_on(training: subprocess.Popen[str]) -> None:
    assert training.stdin is not None
    training.stdin.write("\n")
    training.stdin.flush()


def failures(frames: list[Frame]) -> list[Boundary]:
    return [b for frame in frames for b in frame.boundaries if b.mark is Mark.OUT_OF_MEMORY]


def end_of(frames: list[Frame]) -> list[Boundary]:
    return [b for frame in frames for b in frame.boundaries if b.mark is Mark.RUN_END]


def allocated(frames: list[Frame]) -> dict[str, float]:
    """What the run holds in tensors, by UUID of each device that it is in force on."""
    return {
        s.device.uuid: s.value("gpu.run_allocated")
        for f in frames[-1:]
        for s in f.samples
        if s.value("gpu.run_allocated") > 0
    }


def test_framework_memory_reaches_the_frames_exactly(env: dict[str, str], stub: Stub, start: Start) -> None:
    with watched(env) as frames:
        training = start(OBSERVED)
        hear(training, "ready")
        run = until(lambda: next((r for frame in frames()[-1:] for r in frame.runs if r.memory.allocated > 0), None))
        assert run.memory._replace(largest_free=0.0) == FrameworkMemory(
            allocated=18 * GIB, reserved=24 * GIB, peak=21 * GIB, active=18 * GIB, inactive_split=3 * GIB,
            requested=15 * GIB, retries=6, ooms=3, largest_free=0.0,
        )  # fmt: skip
        assert run.memory.largest_free != run.memory.largest_free
        assert set(run.gpus) == {stub.uuid(0), stub.uuid(1)}
        until(lambda: len(allocated(frames())) == 2)
        told = allocated(frames())
    assert told == {stub.uuid(0): 6 * GIB, stub.uuid(1): 12 * GIB}


def test_an_observed_error_that_ends_the_run_is_one_event(env: dict[str, str], start: Start) -> None:
    with watched(env) as frames:
        training = start(OBSERVED)
        hear(training, "ready")
        go_on(training)
        hear(training, "failed once")
        (seen,) = until(lambda: failures(frames()))
        assert (seen.asked, seen.free, seen.epoch, seen.step, seen.phase) == (2 * GIB, GIB, 0, 1, "train")
        go_on(training)
        until(lambda: end_of(frames()))
        assert failures(frames()) == [seen]


@pytest.mark.parametrize("source", [UNOBSERVED, PASSED_BY], ids=["in the run", "past the run"])
def test_an_unobserved_error_is_reported_at_the_end(env: dict[str, str], start: Start, source: str) -> None:
    with watched(env) as frames:
        training = start(source)
        hear(training, "ready")
        go_on(training)
        until(lambda: end_of(frames()))
        (seen,) = failures(frames())
        (end,) = end_of(frames())
    assert (seen.asked, seen.free) == (2 * GIB, GIB)
    assert seen.number < end.number
    assert training.wait(timeout=PATIENCE) == 1


def test_torch_on_a_cpu_reports_nothing_without_warnings(env: dict[str, str]) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", REAL], env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "(0, ()) False dict_keys(['torch', 'TensorFlow', 'JAX'])\n", done.stderr
    assert "gpumon" not in done.stderr
