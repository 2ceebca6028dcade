"""Ten ways to hang, with torch.distributed and gloo: the first sentence names the rank and the place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.common.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from gpumon.common.numbers import is_known
from gpumon.common.paths import Places
from gpumon.hang.process_state import children_of
from gpumon.hang.report import HangReport, collect
from gpumon.tracking.stalls import StallLimits
from gpumon.tracking.tag_reader import TagReader
from tests.nvml import Stub
from tests.programs import PATIENCE, command, daemon, environment, gpumon, until

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
RANKS, CULPRIT = 3, 1
LIMITS = StallLimits(step=3.0, start=3 * PATIENCE, phase=3.0)
PROMPT = 60.0
"""Maximum seconds from the time at which a run counts as stalled to the sentence."""
PROGRAM = "hanging.py"
WAYS = {
    "sleeping_rank": ("`oversleep`", PROGRAM),
    "deadlocked_lock": ("`lock_twice`", PROGRAM),
    "stopped_worker": ("`DataLoader.__next__`", "worker", "stopped by a signal"),
    "full_queue": ("`Queue.put`", "`fill_queue`"),
    "exception": ("failed", "step 13"),
    "endless_validation": ("`validate_forever`", "phase validate"),
    "busy_loop": ("`hold_the_gil`", "of a CPU"),
    "stopped_rank": ("stopped by a signal",),
    "never_joined": ("has not begun the run",),
    "slow_disk": ("`DataLoader.__next__`", "worker", "`read_shard`", "reading", "shard"),
}
"""By way: what the sentence must have, besides the rank."""
QUICK = ("deadlocked_lock", "slow_disk")


@contextmanager
def training(way: str, folder: Path) -> Iterator[TagReader]:
    """The ranks of a training that hangs."""
    live, fifo = folder / "live", folder / "shard"
    live.mkdir(0o700)
    os.mkfifo(fifo)
    env = environment(live) | {
        "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29000 + os.getpid() % 3000),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    program = Path(__file__).parents[1] / "trainings" / PROGRAM
    start = LIMITS.start if way != "never_joined" else 20.0
    limits = StallLimits(step=LIMITS.step, start=start, phase=LIMITS.phase)
    reader = TagReader(Places(explicit=str(live), uid=os.getuid()), limits=limits)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), way, str(fifo)], env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.DEVNULL,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    try:
        yield reader
    finally:
        for rank in ranks:
            for pid in (*children_of(rank.pid), rank.pid):
                os.kill(pid, signal.SIGKILL)
            rank.wait()
        reader.close()


def until_stalled(reader: TagReader, way: str) -> Ranks:
    """Poll until the run is stalled."""
    expected = RANKS - (way == "never_joined")
    end = time.monotonic() + 6 * PATIENCE
    while time.monotonic() < end:
        for ranks in ranks_of(reader.poll().runs):
            if len(ranks.all) == expected and is_known(ranks.stalled_since):
                return ranks
        time.sleep(0.25)
    raise AssertionError("the run did not stall")


def explain(way: str, folder: Path) -> HangReport:
    with training(way, folder) as reader:
        ranks = until_stalled(reader, way)
        begun = time.monotonic()
        report = collect(ranks, time.time())
        assert time.monotonic() - begun < PROMPT
        return report


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way in QUICK else pytest.mark.slow) for way in WAYS]
)  # fmt: skip
def test_the_sentence_names_rank_and_place(way: str, tmp_path: Path) -> None:
    report = explain(way, tmp_path)
    assert report.culprits == (CULPRIT,)
    assert report.sentence.startswith(f"Rank {CULPRIT} "), report.sentence
    assert [part for part in WAYS[way] if part not in report.sentence] == [], report.sentence
    waiting = {rank.place.text for rank in report.ranks if rank.run.rank != CULPRIT}
    assert waiting == {"`barrier`" if way == "endless_validation" else "`all_reduce`"} or way == "never_joined"
    assert report.silent < LIMITS.start + PROMPT
    assert report.is_stalled


class TestCommand:
    """`gpumon hang` without a daemon, on a training of one process."""

    CODE = """
import gpumon, time
def oversleep(): time.sleep(3600)
with gpumon.run("slow-net") as run:
    for step in run.steps(range(100)):
        if step == 3: print(run.id, flush=True); oversleep()
"""

    @pytest.fixture
    def env(self, tmp_path: Path) -> dict[str, str]:
        (tmp_path / "live").mkdir(0o700)
        return environment(tmp_path / "live")

    def test_prints_where_the_run_waits(self, env: dict[str, str]) -> None:
        process = subprocess.Popen([sys.executable, "-c", self.CODE], env=env, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            id = process.stdout.readline().strip()
            text = gpumon("hang", "slow", env=env)
            assert text.returncode == EXIT_OK
            assert f"Process {process.pid} has been in `oversleep`" in text.stdout
            document = json.loads(gpumon("hang", "--json", env=env).stdout)
            assert (document["run"], document["stalled"], document["culprits"]) == (id, False, [0])
            (rank,) = document["ranks"]
            (stack,) = rank["process"]["stacks"]
            assert stack["frames"][0]["function"] == "oversleep"
            assert gpumon("hang", "other", env=env).returncode == EXIT_USAGE
        finally:
            process.kill()
            process.communicate()

    def test_without_a_run_is_an_error(self, env: dict[str, str]) -> None:
        assert gpumon("hang", env=env).returncode == EXIT_FAILED


STALLS = """
import gpumon, time
def oversleep(): time.sleep(120)
with gpumon.run("net", epochs=1) as run:
    with run.epoch(0):
        for step in run.steps(range(60)):
            if step == 30: oversleep()
            time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_stall_is_in_every_view_with_its_reason(stub: Stub, live_dir: Path, tmp_path: Path) -> None:
    env = environment(live_dir, stub.env())
    target = tmp_path / "receive"
    target.write_text(f'#!/bin/sh\ncat >> "{tmp_path}/messages"\n')
    target.chmod(0o755)
    with daemon(env=env):
        notifier = subprocess.Popen(command("notify", str(target)), env=env)
        training = subprocess.Popen([sys.executable, "-c", STALLS], env=env)
        try:
            found = until(lambda: [f for f in findings(env) if f["kind"] == "stalled"], 3 * PATIENCE)
            assert found[0]["evidence"]["silent"] > 58  # times are rounded, and the sample is later than the boards
            events = until(lambda: logged(env, "stall_began"))
            assert "`oversleep`" in events[0]["details"]["sentence"]
            assert "`oversleep`" in until(
                lambda: (tmp_path / "messages").exists() and (tmp_path / "messages").read_text()
            )
            assert json.loads(gpumon("hang", "--json", env=env).stdout)["stalled"]
            (ended,) = until(lambda: logged(env, "stall_ended"), 3 * PATIENCE)
            assert ended["lasted"] == pytest.approx(120, abs=5)
            assert not [f for f in findings(env) if f["kind"] == "stalled"]
        finally:
            notifier.terminate()
            notifier.wait(PATIENCE)
            training.kill()
            training.wait(PATIENCE)


def findings(env: dict[str, str]) -> list[dict[str, Any]]:
    document: dict[str, Any] = json.loads(gpumon("status", "--json", env=env).stdout)
    found: list[dict[str, Any]] = document["findings"]
    return found


def logged(env: dict[str, str], kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gpumon("history", "events", "--json", env=env).stdout)["events"]
    return [event for event in found if event["kind"] == kind]
