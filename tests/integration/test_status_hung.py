"""`gpumon status` beside a driver that hangs: it ends, and says what is known and for how long."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.ring.layout import HOT, HOT_OFFSET, RUNNING
from gpumon.ring.writer import RingWriter
from tests.builders import sample, tick
from tests.integration.test_status import CHECK
from tests.nvml import Stub
from tests.programs import PATIENCE, Child, command, daemon, environment, gpumon, slept_until_end, status, until

HANG = 3_600_000_000
"""Microseconds that a call of a driver that hangs takes."""

SILENT = 70
"""Seconds for which a daemon has been silent: fewer than any machine that runs these tests is up, since its clock of
monotonic time begins when it boots."""


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    stub.set_latency(None, HANG)
    return environment(live_dir, stub.env())


@contextmanager
def ring_of(live_dir: Path, silent: float, pid: int | None = None) -> Iterator[None]:
    """A ring with one frame whose writer was last heard `silent` seconds ago: this process, or the one of `pid`."""
    then = time.monotonic_ns() - int(silent * SECOND)
    writer = RingWriter.create(str(live_dir / "ring"), 1, SECOND)
    writer.append(tick(1, [sample(0, utilization=0.97, memory_used=2.0**34, memory_total=2.0**36)], monotonic_ns=then))
    os.pwrite(writer.fd, HOT.pack(writer.head, then, RUNNING, 1), HOT_OFFSET)
    if pid is not None:
        with open(live_dir / "ring", "r+b") as file:
            head = bytearray(file.read(4096))
            at = head.index(os.getpid().to_bytes(4, "little"))
            head[at : at + 4] = pid.to_bytes(4, "little")
            from zlib import crc32

            from gpumon.ring.layout import SUPERBLOCK

            head[SUPERBLOCK.size : SUPERBLOCK.size + 4] = crc32(head[: SUPERBLOCK.size]).to_bytes(4, "little")
            file.seek(0)
            file.write(head)
    yield
    os.close(writer.fd)


def states(told: dict[str, Any]) -> set[str]:
    """The states of all GPUs."""
    return {gpu["state"] for gpu in told["gpus"]}


def test_a_daemon_that_hangs_is_shown_by_its_last_values_with_their_age(env: dict[str, str], live_dir: Path) -> None:
    with ring_of(live_dir, silent=SILENT):
        done = gpumon("status", env=env)
        told = json.loads(gpumon("status", "--json", env=env).stdout)
    assert done.returncode == 3
    assert f"stale: daemon, pid {os.getpid()}, silent for 1:" in done.stdout
    assert "97%" in done.stdout
    assert "stale 1:" in done.stdout.splitlines()[1]
    assert "has been silent for 1:" in done.stderr
    CHECK.validate(told)
    assert (told["live"], told["gpus"][0]["state"]) == (False, "stale")
    assert SILENT <= told["age"] < SILENT + PATIENCE, "and whatever a busy machine takes"
    assert told["daemon"]["pid"] == os.getpid()


def test_a_daemon_whose_driver_hangs_is_shown_by_its_last_values(
    env: dict[str, str], live_dir: Path, stub: Stub
) -> None:
    stub.set_latency(None, 0)
    with daemon("--interval", "0.1", env=env) as process:
        seen = status(env)
        stub.set_latency(None, HANG)
        told = until(lambda: one if states(one := status(env)) == {"stale"} else None)
        done = gpumon("status", env=env)
        stub.set_latency(None, 0)
        until(lambda: states(status(env)) == {"ok"})
    CHECK.validate(told)
    assert told["live"], "the daemon is, and its frames go on"
    assert told["problem"] == "no GPU can be read: the driver does not answer"
    assert all(gpu["age"] > 0 for gpu in told["gpus"])
    assert len(told["gpus"]) == len(seen["gpus"])
    assert all(gpu["memory_total"] == 80 * 2**30 for gpu in told["gpus"])
    assert told["daemon"]["pid"] == process.pid
    assert done.returncode == 3
    assert "the driver does not answer" in done.stderr
    assert "free" not in done.stdout


def test_a_daemon_that_is_late_says_so_before_it_counts_as_silent(env: dict[str, str], live_dir: Path) -> None:
    with ring_of(live_dir, silent=2.5):
        done = gpumon("status", env=env)
    assert done.returncode in (0, 3), "3 on a machine so busy that it is 5 s by now"
    assert "silent for " in done.stdout.splitlines()[0]


@pytest.mark.parametrize("with_json", [False, True])
def test_a_driver_that_hangs_ends_no_status_that_asks_it(env: dict[str, str], stub: Stub, with_json: bool) -> None:
    words = command("status", *(["--json"] if with_json else []))
    pipe = subprocess.PIPE
    with Child(words, env=env, stdout=pipe, stderr=pipe, text=True) as process:
        until(lambda: sum(stub.calls().values()))
        slept = slept_until_end(process)
        # Its output is read to its end: a child of it that hangs must not hold that open for the hour that it takes.
        output, errors = process.communicate(timeout=PATIENCE)
    assert slept < 5, "seconds; the driver has 2 for its answer"
    assert process.returncode == 3
    if with_json:
        told = json.loads(output)
        CHECK.validate(told)
        assert told["gpus"] == []
        assert "has not answered" in told["problem"]
    else:
        assert "the NVIDIA driver has not answered for" in errors
        assert len(errors.splitlines()) == 1


def test_one_gpu_that_hangs_hides_no_other_from_a_status_without_a_daemon(env: dict[str, str], stub: Stub) -> None:
    stub.gpus = 8
    stub.set_latency(None, 0)
    stub.set_latency(None, HANG, gpu=3)
    told = status(env)
    CHECK.validate(told)
    assert [gpu["state"] for gpu in told["gpus"]] == ["ok"] * 3 + ["stale"] + ["ok"] * 4
    assert told["gpus"][3]["memory_total"] is None, "nobody has heard of it"
    done = gpumon("status", env=env)
    lines = done.stdout.splitlines()[1:9]
    assert ["stale" in line for line in lines] == [gpu == 3 for gpu in range(8)]
    assert done.returncode == 0


def test_what_a_dead_daemon_saw_last_is_shown_when_the_driver_hangs(env: dict[str, str], live_dir: Path) -> None:
    with ring_of(live_dir, silent=SILENT, pid=2**22 + 1):
        done = gpumon("status", env=env)
    assert done.returncode == 3
    assert "stale: no daemon for 1:" in done.stdout
    assert "97%" in done.stdout
    assert "has not answered" in done.stderr


def test_what_a_dead_daemon_saw_last_is_shown_when_the_driver_is_gone(
    env: dict[str, str], live_dir: Path, stub: Stub
) -> None:
    stub.set_latency(None, 0)
    stub.driver_error = 9
    with ring_of(live_dir, silent=SILENT, pid=2**22 + 1):
        done = gpumon("status", env=env)
        told = json.loads(gpumon("status", "--json", env=env).stdout)
        simulated = gpumon("status", "--source", "sim", env=env)
    assert done.returncode == 3
    assert "stale: no daemon for 1:" in done.stdout.splitlines()[0]
    assert "97%" in done.stdout
    assert "stale 1:" in done.stdout.splitlines()[1]
    (why,) = done.stderr.splitlines()
    assert "driver" in why
    CHECK.validate(told)
    assert (told["live"], told["daemon"], told["gpus"][0]["state"]) == (False, None, "stale")
    assert SILENT <= told["age"] < SILENT + PATIENCE
    assert f"gpumon: {told['problem']}" == why
    assert "stale" not in simulated.stdout


def test_what_a_daemon_saw_before_it_was_stopped_is_shown_when_the_driver_is_gone(
    env: dict[str, str], stub: Stub
) -> None:
    stub.set_latency(None, 0)
    with daemon("--interval", "0.1", env=env):
        until(lambda: status(env)["gpus"])
    stub.driver_error = 9
    done = gpumon("status", env=env)
    assert done.returncode == 3
    assert "stale: no daemon for " in done.stdout.splitlines()[0]
    assert done.stdout.count("H100") == 2


def test_a_dead_daemon_of_a_simulation_is_not_shown_for_a_driver_that_is_gone(
    env: dict[str, str], live_dir: Path, stub: Stub
) -> None:
    stub.set_latency(None, 0)
    stub.driver_error = 9
    with daemon("--source", "sim", "--interval", "0.1", env=env):
        until(lambda: status(env)["gpus"])
    done = gpumon("status", env=env)
    assert (done.returncode, "H100" in done.stdout, "stale" in done.stdout) == (3, False, False)


def test_a_dead_daemon_does_not_hide_a_driver_that_answers(env: dict[str, str], live_dir: Path, stub: Stub) -> None:
    stub.set_latency(None, 0)
    with ring_of(live_dir, silent=SILENT, pid=2**22 + 1):
        done = gpumon("status", env=env)
    assert done.returncode == 0
    assert "no daemon" in done.stdout.splitlines()[0]
    assert "stale" not in done.stdout
