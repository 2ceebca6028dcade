"""A user whose hundred runs have 250 epochs a second each, beside a daemon and the run of somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpumon.ring.reader import RingReader
from tests.nvml import Stub
from tests.programs import PATIENCE, Child, daemon, environment, gpumon, until
from tests.strangers import foreign_directory

BOARDS, SECONDS = 100, 30
FLOOD = """
import os, sys, tempfile, time
from gpumon.tracking import wire_format
from gpumon.tracking.board import Board
from gpumon.tracking.description import Description

def made(number, directory):
    board = Board(lambda: directory, Description(f"flood{number}", f"flood{number}"))
    board.begin_epoch(0)
    return board

made(0, tempfile.mkdtemp()).close()  # all modules are there before this user cannot read them any more
os.setgroups([]), os.setgid(65534), os.setuid(65534)
boards = [made(number, sys.argv[1]) for number in range(int(sys.argv[2]))]
files = [os.open(board.path, os.O_RDWR) for board in boards]
print(len(files), flush=True)
number, begun = 10, time.monotonic()
while True:
    now, wall = time.monotonic_ns(), time.time_ns()
    for _ in range(50):
        number += 1
        mark = wire_format.EPOCH_BEGIN if number % 2 else wire_format.EPOCH_END
        event = wire_format.Event(
            mark, 0, number, now, wall, 0, 0, number // 2, 0, 0, wire_format.NOT_KNOWN, wire_format.NOTHING_LOGGED
        )
        for file in files:
            os.pwrite(file, wire_format.pack_supplement(event), wire_format.supplement_offset(number))
            os.pwrite(file, wire_format.pack_event(event), wire_format.event_offset(number))
    for file in files:
        os.pwrite(file, number.to_bytes(8, "little"), wire_format.EVENT_HEAD)
    begun += 0.1
    time.sleep(max(0, begun - time.monotonic()))
"""
HONEST = f"""
import gpumon, json, sys, time
begins, ends = [], []
with gpumon.run("honest", epochs={SECONDS}, devices=[sys.argv[1]]) as run:
    for _ in run.epochs():
        begins.append(time.monotonic())
        time.sleep(1)
        ends.append(time.monotonic())
print(json.dumps([*zip(begins, ends)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_a_user_with_a_hundred_busy_runs_costs_others_no_epoch_and_the_daemon_little(stub: Stub) -> None:
    with foreign_directory() as directory:
        live = directory / "live"
        env = environment(live, stub.env())
        with daemon(env=env) as process:
            live.chmod(0o755)
            (live / "tags").chmod(0o1777)
            begun, cpu, first = time.monotonic(), cpu_seconds(process.pid), newest(live)
            flood = [sys.executable, "-c", FLOOD, str(live / "tags"), str(BOARDS)]
            with Child(flood, env=env, stdout=subprocess.PIPE, text=True) as busy:
                try:
                    assert busy.stdout is not None
                    assert busy.stdout.readline().strip() == str(BOARDS)
                    honest = subprocess.run(
                        [sys.executable, "-c", HONEST, stub.uuid(0)],
                        env=env, timeout=SECONDS + PATIENCE, check=True, stdout=subprocess.PIPE, text=True,
                    )  # fmt: skip
                finally:
                    busy.kill()
            took, ticks = time.monotonic() - begun, newest(live) - first
            cpu = (cpu_seconds(process.pid) - cpu) / took
            assert cpu < 0.4
            assert memory(process.pid) < 100e6
            if os.getloadavg()[0] < 3 * (os.cpu_count() or 1):  # else others delay it, too
                assert ticks >= 0.9 * took - 1
            found = until(lambda: epochs_of(env))
        assert [epoch["epoch"] for epoch in found] == [*range(SECONDS)]
        times = json.loads(honest.stdout)
        truth = [stub.truth("gpu.energy", 0, end) - stub.truth("gpu.energy", 0, begin) for begin, end in times]
        for epoch, joules in zip(found, truth, strict=True):
            # The readings are a second apart, and the power of the stub changes between them.
            assert epoch["energy"] is None or epoch["energy"] == pytest.approx(joules, rel=0.1)
            assert (epoch["energy_least"] or 0) <= 1.1 * joules
        # A reading that is late on a busy machine may cost an epoch a part of its energy.
        assert sum(epoch["energy_least"] or 0 for epoch in found) > 0.8 * sum(truth)


def newest(live: Path) -> int:
    with closing(RingReader.open(str(live / "ring"))) as reader:
        frame = reader.newest()
        return frame.number if frame else 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def epochs_of(env: dict[str, str]) -> Any:
    """The epochs of the honest run once it has ended."""
    shown = json.loads(gpumon("runs", "show", "honest", "--json", env=env).stdout)
    return shown["epochs"] if shown["run"]["state"] == "finished" else []
