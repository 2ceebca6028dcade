"""`gpumon status` on the stub driver: what it promises to programs, what it tells people, and what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zlib import crc32

import jsonschema
import pytest

from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.metrics import GPU_METRICS
from gpumon.model.origin import Origin
from gpumon.ring.layout import MAJOR, SUPERBLOCK
from gpumon.ring.writer import RingWriter
from tests.builders import sample, tick
from tests.nvml import Process, Stub, sleepers
from tests.programs import PATIENCE, daemon, environment, gpumon, status, until

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "gpumon" / "reports" / "status.schema.json").read_text()
)
CHECK = jsonschema.Draft202012Validator(SCHEMA)

TRAINING = """
import sys, time, gpumon
with gpumon.run("resnet50", epochs=90, devices=sys.argv[1:]) as run:
    for epoch in run.epochs(start=7):
        for batch in run.steps(range(3)):
            pass
        run.log(loss=0.31)
        print("ready", flush=True)
        time.sleep(3600)
"""


RANK = """
import sys, time, gpumon
rank, device = sys.argv[1:]
with gpumon.run("llama", epochs=3, devices=[device], run_id="job") as run:
    with run.epoch(int(rank)):
        run.step(10 + int(rank))
        print("ready", flush=True)
        time.sleep(3600)
"""
OUT_OF_MEMORY = """
import sys, gpumon
from gpumon.tracking.wire_format import Memory, device_mark
UNIT = 1 << 28  # so that the process fits into what the stub's GPU has in use
with gpumon.run("too-big", epochs=3, devices=sys.argv[1:]) as run:
    run.describe(base=1)
    with run.epoch(2):
        held = Memory(0, device_mark(sys.argv[1]), 6 * UNIT, 8 * UNIT, 7 * UNIT, 6 * UNIT, UNIT, 5 * UNIT, 3, 1)
        run._board.memory([held])
        run._board.out_of_memory(2 * UNIT, UNIT, sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        raise MemoryError
"""


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    return environment(live_dir, stub.env())


@pytest.mark.parametrize(("gpus", "with_daemon"), [(0, True), (1, False), (8, True)])
def test_the_json_matches_its_schema(env: dict[str, str], stub: Stub, gpus: int, with_daemon: bool) -> None:
    stub.gpus = gpus
    with sleepers(max(1, gpus)) as pids:
        for index, pid in enumerate(pids[:gpus]):
            stub.set_processes(index, [Process(pid, memory=None if index % 2 else 2**30)])
        with daemon(env=env) if with_daemon else nullcontext():
            found = status(env)
    CHECK.validate(found)
    assert len(found["gpus"]) == gpus
    assert (found["daemon"] is not None) == with_daemon
    assert [gpu["index"] for gpu in found["gpus"]] == list(range(gpus))
    for gpu in found["gpus"]:
        assert {metric.key for metric in GPU_METRICS} <= gpu.keys()
        assert len(gpu["processes"]) == 1
        assert (gpu["processes"][0]["memory_used"] is None) == (gpu["index"] % 2 == 1), "never 0 for unknown"


def test_the_json_tells_run_epoch_step_and_phase_of_a_training(env: dict[str, str], stub: Stub) -> None:
    training = subprocess.Popen(
        [sys.executable, "-c", TRAINING, stub.uuid(1)], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert training.stdout is not None
        assert training.stdout.readline() == "ready\n"
        stub.set_processes(1, [Process(training.pid, memory=2**30, sm=50)])
        with daemon(env=env):
            found = status(env)
        alone = status(env)
    finally:
        training.kill()
        training.communicate()
    for document in (found, alone):
        CHECK.validate(document)
        assert document["gpus"][0]["run"] is None
        run = document["gpus"][1]["run"]
        assert (run["name"], run["epoch"], run["epochs"], run["step"]) == ("resnet50", 7, 90, 3)
        (listed,) = document["runs"]
        assert listed["metrics"] == {"loss": 0.31}
        assert listed["pid"] == training.pid
        assert listed["gpus"] == [stub.uuid(1)]
        assert document["gpus"][1]["processes"][0]["run"] == run["id"]


def test_ranks_of_a_run_are_told_below_it(env: dict[str, str], stub: Stub) -> None:
    stub.gpus = 2
    trainings = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), stub.uuid(rank)], stdout=subprocess.PIPE, text=True,
            env={**env, "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for rank, training in enumerate(trainings):
            assert training.stdout is not None
            assert training.stdout.readline() == "ready\n"
            stub.set_processes(rank, [Process(training.pid, memory=2**30)])
        lines = gpumon("status", env=env).stdout.splitlines()
        found = status(env)
    finally:
        for training in trainings:
            training.kill()
            training.communicate()
    CHECK.validate(found)
    (at,) = [place for place, line in enumerate(lines) if line.startswith("run  ")]
    assert "epoch 0 (1/3)" in lines[at], "as far as its slowest rank"
    assert "memory 2.0 GiB" in lines[at]
    assert "2 of 3 ranks on this host" in lines[at]
    below = [line.split("  ·  ")[:4] for line in lines[at + 1 :] if line.startswith(" ")]
    assert [[word.strip() for word in words] for words in below] == [
        ["rank 0", "GPU 0", "epoch 0 (1/3)", "step 10"],
        ["rank 1", "GPU 1", "epoch 1 (2/3)", "step 11"],
    ]
    assert sorted(run["rank"] for run in found["runs"]) == [0, 1]


def test_an_out_of_memory_error_and_the_memory_of_a_run_are_told(env: dict[str, str], stub: Stub) -> None:
    unit = 2**28
    training = subprocess.Popen(
        [sys.executable, "-c", OUT_OF_MEMORY, stub.uuid(0)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert training.stdout is not None
        assert training.stdout.readline() == "ready\n"
        stub.set_processes(0, [Process(training.pid, memory=9 * unit)])
        with daemon("--interval", "0.1", env=env):
            found = until(lambda: (seen := status(env))["gpus"][0]["run"] and seen)
            lines = gpumon("status", env=env).stdout.splitlines()
            training.communicate("\n", timeout=PATIENCE)
            ended = until(lambda: "failed" in (seen := gpumon("status", env=env).stdout) and seen)
    finally:
        training.kill()
        training.communicate()
    CHECK.validate(found)
    (run,) = found["runs"]
    assert (run["epoch"], run["epochs"], run["base"], run["first_epoch"]) == (2, 3, 1, 2)
    assert {name: run[f"memory_{name}"] for name in ("allocated", "reserved", "peak", "inactive_split")} == {
        "allocated": 6 * unit, "reserved": 8 * unit, "peak": 7 * unit, "inactive_split": unit,
    }  # fmt: skip
    assert (run["memory_retries"], run["memory_ooms"]) == (3, 1)
    assert (run["memory_slack"], run["memory_fragments"]) == (0.25, 0.125)
    assert run["memory_rounding"] == pytest.approx(1 / 6)
    gpu = found["gpus"][0]
    parts = gpu["memory_split"]
    assert (parts["allocated"], parts["cached"], parts["context"]) == (6 * unit, 2 * unit, unit)
    assert sum(value or 0 for value in parts.values()) == gpu["memory_total"]
    assert "allocated 1.5  ·  cached 0.5  ·  context and libraries 0.2" in "".join(lines)
    assert gpu["run"]["base"] == 1
    assert "too-big epoch 2/3" in lines[1]
    for screen in ("\n".join(lines), ended):
        assert "out of memory: requested 512 MiB, 256 MiB free, at " in screen
        assert "resumed at epoch 2" in screen
    assert "failed: exited with an error" in ended


def test_without_a_gpu_the_exit_code_is_3_and_one_line_says_why(env: dict[str, str], stub: Stub) -> None:
    stub.gpus = 0
    done = gpumon("status", env=env)
    assert done.returncode == 3
    assert "no GPU" in done.stderr
    assert "--source sim" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    reason = done.stderr.removeprefix("gpumon: ").partition(". ")[0]
    assert reason not in done.stdout, "once is enough"
    assert status(env)["problem"] == reason, "programs get it in the object"


def test_what_is_wrong_with_all_gpus_is_exit_code_3_though_they_are_listed(env: dict[str, str], live_dir: Path) -> None:
    writer = RingWriter.create(str(live_dir / "ring"), 1, 60 * SECOND)
    problem = "driver and library are of two versions: reboot"
    writer.append(tick(1, [sample(0, utilization=0.5)], origin=Origin("nvml", problem=problem)))
    writer.heartbeat()
    done = gpumon("status", env=env)
    assert done.returncode == 3
    assert problem in done.stderr
    assert gpumon("status", "--json", env=env).returncode == 3
    writer.close()


def test_a_driver_that_has_not_answered_a_daemon_yet_is_not_live(env: dict[str, str], live_dir: Path) -> None:
    writer = RingWriter.create(str(live_dir / "ring"), 1, 60 * SECOND)
    problem = "the NVIDIA driver has not answered for 12 s"
    writer.append(tick(1, [], origin=Origin("nvml", problem=problem, unanswered=12.0)))
    writer.heartbeat()
    found = status(env)
    assert (found["live"], found["problem"], found["driver"]["unanswered"]) == (False, problem, 12)
    CHECK.validate(found)
    writer.append(tick(2, [], origin=Origin("nvml", problem="no driver: install it")))
    writer.heartbeat()
    found = status(env)
    assert (found["live"], found["driver"]["unanswered"]) == (True, None), "the host is of now, and it is known why"
    writer.close()


def test_a_simulation_says_that_it_is_one(env: dict[str, str]) -> None:
    done = gpumon("status", "--source", "sim", env=env)
    assert done.returncode == 0
    assert "SIMULATED" in done.stdout.splitlines()[0]
    found = status(env, "--source", "sim")
    CHECK.validate(found)
    assert found["label"] == "SIMULATED"


def test_people_see_each_gpu_on_a_line_with_who_holds_it(env: dict[str, str], stub: Stub) -> None:
    with sleepers(1) as (pid,):
        stub.set_processes(0, [Process(pid, memory=3 * 2**30)])
        lines = gpumon("status", env=env).stdout.splitlines()
    assert "sleep" in lines[1]
    assert "3.0 GiB" in lines[1]
    assert lines[2].endswith("held by an unknown process"), "5 GiB in use, and nobody listed"


LOADED = """
import io, sys
from contextlib import redirect_stdout
from gpumon.cli import main
with redirect_stdout(io.StringIO()):
    main(["status", *sys.argv[1:]])
print(*sys.modules)
"""


@pytest.mark.parametrize("with_daemon", [False, True])
def test_status_loads_nothing_heavy(env: dict[str, str], with_daemon: bool) -> None:
    with daemon(env=env) if with_daemon else nullcontext():
        words = [sys.executable, "-c", LOADED, *(() if with_daemon else ("--json",))]
        loaded = set(subprocess.check_output(words, env=env, text=True).split())
    heavy = {"numpy", "textual", "dash", "plotly", "torch", "asyncio", "psutil", "rich", "logging"}
    assert not {name.partition(".")[0] for name in loaded} & heavy
    assert "pynvml" not in loaded, "the driver's binding neither: only the child that asks it, where no daemon runs"
    if not with_daemon:
        assert "dataclasses" not in loaded, "which only the columns of the text need"
        return
    assert not loaded & {"threading", "subprocess", "socket", "tomllib"}, "imports are most of its time"
    kept_apart = ("cli.sampling", "sources.base", "daemon", "tracking", "storage.ledger", "recording", "ring.writer")
    assert not loaded & {f"gpumon.{name}" for name in kept_apart}


def test_a_pipe_that_closes_early_is_no_error(env: dict[str, str]) -> None:
    done = subprocess.run(
        f"{sys.executable} -m gpumon status --json | head -c 10", shell=True, env=env, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stderr == ""


def test_settings_come_from_flags_then_environment_then_file(env: dict[str, str], live_dir: Path) -> None:
    config = live_dir / ".config" / "gpumon"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('source = "sim:one"\n')
    assert len(status(env)["gpus"]) == 1
    assert len(status({**env, "GPUMON_SOURCE": "sim"})["gpus"]) == 8
    assert len(status({**env, "GPUMON_SOURCE": "sim"}, "--source", "sim:sixteen")["gpus"]) == 16
    (config / "config.toml").write_text("sauce = 1\n")
    done = gpumon("status", env=env)
    assert done.returncode == 2
    assert "unknown setting 'sauce'" in done.stderr


def test_two_sources_are_shown_at_once_and_one_that_fails_says_so(env: dict[str, str], stub: Stub) -> None:
    alone = status(env)["gpus"]
    found = status(env, "--source", "nvml,sim:one")
    CHECK.validate(found)
    assert (found["source"], found["label"], found["problem"]) == ("nvml,sim", "sim: SIMULATED", None)
    assert [gpu["index"] for gpu in found["gpus"]] == list(range(len(alone) + 1))
    assert {gpu["uuid"] for gpu in alone} < {gpu["uuid"] for gpu in found["gpus"]}
    stub.driver_error = 9
    done = gpumon("status", "--source", "nvml,sim:one", env=env)
    assert done.returncode == 0
    assert "nvml: the NVIDIA driver is installed but not loaded" in done.stdout


OWN_SAMPLES = """
import argparse, time
from gpumon.cli.sampling import private_sampler
from gpumon.common.paths import places
with private_sampler(places(), argparse.Namespace(source=None, interval=0.1, speed=1.0, gpm=None)) as live:
    while not live.state().live:
        time.sleep(0.01)
    print(live.state().text)
"""


def write_newer_layout(ring: Path) -> None:
    """Make a ring one of the next version of gpumon."""
    head = bytearray(ring.read_bytes()[: SUPERBLOCK.size])
    head[8:10] = (MAJOR + 1).to_bytes(2, "little")
    with ring.open("r+b") as file:
        file.write(head + crc32(head).to_bytes(4, "little"))


def test_a_ring_of_a_newer_version_is_named_as_what_cannot_be_read(driver_library: Path, live_dir: Path) -> None:
    with Stub(driver_library) as stub:
        env = environment(live_dir, stub.env())
        with daemon(env=env):
            live = follow(Places(explicit=str(live_dir)))
            until(lambda: (frame := live.latest()) and frame.samples)  # else a wider ring may replace the damaged one
            write_newer_layout(live_dir / "ring")
            done = gpumon("status", env=env)
    layouts = f"the ring has layout {MAJOR + 1}, but this gpumon reads layout {MAJOR}: "
    assert done.returncode == 0, "it sampled by itself"
    assert "the daemon's ring cannot be read" in done.stdout.splitlines()[0]
    assert done.stderr.startswith(f"gpumon: {layouts}")


def test_views_that_sample_by_themselves_report_a_ring_of_another_version(driver_library: Path, live_dir: Path) -> None:
    ring = live_dir / "ring"
    RingWriter.create(str(ring), 1, SECOND).append(tick(1))
    write_newer_layout(ring)
    with Stub(driver_library) as stub:
        env = environment(live_dir, stub.env())
        view = subprocess.run(
            [sys.executable, "-c", OWN_SAMPLES], env=env, capture_output=True, text=True, timeout=PATIENCE
        )
        repeated = gpumon("top", "-n", "1", env=env)
    layouts = f"the ring has layout {MAJOR + 1}, but this gpumon reads layout {MAJOR}: "
    assert view.stdout.startswith(layouts), "the terminal view and the browser view show this state"
    assert view.stderr.startswith(f"gpumon: {layouts}")
    assert "no daemon" not in repeated.stdout
    assert repeated.stderr.startswith(f"gpumon: {layouts}")


def test_shares_and_memory_that_the_driver_does_not_know_are_null_and_never_a_number(
    env: dict[str, str], stub: Stub
) -> None:
    stub.gpus = 1
    with sleepers(4) as pids:
        known, unsampled, garbage, idle = pids
        stub.set_processes(
            0,
            [
                Process(known, memory=2**30, sm=37, mem=11, enc=5, dec=100),
                Process(unsampled, memory=None, sm=None),
                Process(garbage, memory=2**30, sm=4000, mem=1, enc=1, dec=1),
                Process(idle, memory=2**30, sm=0),
            ],
        )
        with daemon("--interval", "0.1", env=env):
            found = until(lambda: (seen := status(env))["gpus"] and seen)
    rows = {one["pid"]: one for one in found["gpus"][0]["processes"]}
    keys = [f"{name}_utilization" for name in ("sm", "memory", "encoder", "decoder")]
    assert [rows[known][key] for key in keys] == [0.37, 0.11, 0.05, 1]
    assert [rows[idle][key] for key in keys] == [0, 0, 0, 0], "the driver says so"
    for pid in (unsampled, garbage):
        assert [rows[pid][key] for key in keys] == [None] * 4
    assert rows[unsampled]["memory_used"] is None
    CHECK.validate(found)


def test_gpumon_without_a_command_prints_the_status_in_a_pipe(stub: Stub, live_dir: Path) -> None:
    done = gpumon(env=environment(live_dir, stub.env()))
    assert done.returncode == 0, done.stderr
    assert any(line.split()[:1] == ["0"] for line in done.stdout.splitlines()), done.stdout
