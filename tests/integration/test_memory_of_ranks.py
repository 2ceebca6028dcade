"""Processes of one run that share a GPU: what their frameworks hold there adds up, and divides the GPU's memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import isnan
from pathlib import Path

from gpumon.analysis.memory import breakdown_of
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import Frame, RunState
from tests.nvml import Process, Stub
from tests.programs import PATIENCE, daemon, environment, until

PART = 100 * 2**20
"""Bytes; what the stub says is used in all is more than any of this."""
MIB = 2**20

# A torch whose allocator holds what the test says: each line of the input is executed, then a step is done.
RANK = """
import sys, time, types
torch = types.ModuleType("torch")
held = {}  # by device: allocated, reserved, inactive split
def stats(index):
    allocated, reserved, split = held.get(index, (0, 0, 0))
    amounts = {"allocated": allocated, "reserved": reserved, "active": allocated, "inactive_split": split,
               "requested": allocated}
    told = {f"{key}_bytes": {"all": {"current": n, "peak": n}} for key, n in amounts.items()}
    return {**told, "num_alloc_retries": 2, "num_ooms": 0}
uuids = sys.argv[1:]
torch.cuda = types.SimpleNamespace(
    is_initialized=lambda: True, device_count=lambda: len(uuids), current_device=lambda: 0,
    memory_stats_as_nested_dict=stats,
    get_device_properties=lambda index: types.SimpleNamespace(uuid=uuids[index].removeprefix("GPU-")),
)
sys.modules["torch"] = torch
import gpumon
with gpumon.run("net", epochs=3, run_id="one") as run, run.epoch(0):
    print("ready", flush=True)
    for line in sys.stdin:
        exec(line)
        time.sleep(0.55)  # sooner, memory is not read again
        run.step()
        print("done", flush=True)
"""


class Rank:
    """A process of the run."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._hear() == "ready\n"

    def hold(self, gpu: int, *amounts: int) -> None:
        """From its next step on its allocator has these: allocated, reserved, inactive split."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"held[{gpu}] = {amounts}\n")
        self.process.stdin.flush()
        assert self._hear() == "done\n"

    def end(self) -> None:
        self.process.communicate(timeout=PATIENCE)

    def _hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def rank(env: dict[str, str], *uuids: str) -> Iterator[Rank]:
    process = subprocess.Popen(
        [sys.executable, "-c", RANK, *uuids], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Rank(process)
    finally:
        process.kill()
        process.communicate()


def values(frame: Frame, gpu: int) -> tuple[float, ...]:
    """Allocated, reserved, inactive split, used: of the run on this GPU."""
    return tuple(
        frame.samples[gpu].value(f"gpu.run_{key}") for key in ("allocated", "reserved", "inactive_split", "used")
    )


def test_memory_of_ranks_on_a_gpu_adds_up(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    live = follow(Places(explicit=str(live_dir)))

    def seen(gpu: int, *wanted: float) -> Frame | None:
        frame = live.latest()
        return frame if frame and len(frame.samples) > gpu and values(frame, gpu) == wanted else None

    with daemon("--interval", "0.1", env=env), ExitStack() as stack:
        first = stack.enter_context(rank(env, stub.uuid(0)))
        stranger = Process(1, memory=3 * PART)
        stub.set_processes(0, [Process(first.process.pid, memory=9 * PART), stranger])
        first.hold(0, 5 * PART, 7 * PART, 25 * MIB)
        frame = until(lambda: seen(0, 5 * PART, 7 * PART, 25 * MIB, 9 * PART))
        divided = breakdown_of(frame.samples[0])
        assert divided is not None
        assert divided[:3] == (5 * PART, 2 * PART, 2 * PART)
        known = [part for part in divided if not isnan(part)]
        assert sum(known) == frame.samples[0].value("gpu.memory_total")
        assert all(isnan(value) for value in values(frame, 1)), "nobody trains there"

        second = stack.enter_context(rank(env, stub.uuid(0), stub.uuid(1)))
        pids = [first.process.pid, second.process.pid]
        stub.set_processes(0, [Process(pids[0], memory=9 * PART), Process(pids[1], memory=None), stranger])
        second.hold(0, PART, 2 * PART, 0)
        frame = until(lambda: (now := live.latest()) and values(now, 0)[:3] == (6 * PART, 9 * PART, 25 * MIB) and now)
        assert isnan(values(frame, 0)[3]), "a sum of which a part is not known"
        stub.set_processes(0, [Process(pids[0], memory=9 * PART), Process(pids[1], memory=4 * PART), stranger])
        until(lambda: seen(0, 6 * PART, 9 * PART, 25 * MIB, 13 * PART))

        first.end()
        until(lambda: seen(0, PART, 2 * PART, 0, 4 * PART))
        second.end()
        frame = until(
            lambda: (now := live.latest()) and all(run.state is RunState.FINISHED for run in now.runs) and now
        )
        assert all(isnan(value) for value in values(frame, 0)), "nothing is told of a run that is over"
