"""The ranks of real distributed trainings are one run, however they were launched."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.model.frame import RunState
from gpumon.tracking.context import detect_rank, run_id
from tests.conftest import ROOT
from tests.programs import PATIENCE, environment, gpumon, until
from tests.trainings import Told, need, told, train

EXAMPLES = ROOT / "examples"


def free_port() -> int:
    """A port below those that the kernel gives to whoever asks for any: nobody takes it before it is used."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def joined(found: list[Told], epochs: list[int], steps: int) -> str:
    """Check that `found` are the two ranks of one run that went well; gives its id."""
    assert [(one.run.rank, one.run.local_rank, one.run.world_size) for one in found] == [(0, 0, 2), (1, 1, 2)]
    assert len({one.run.id for one in found}) == 1
    for one in found:
        assert one.run.state is RunState.FINISHED
        assert [epoch for mark, epoch, *_ in one.marks() if mark == "EPOCH_BEGIN"] == epochs
        assert one.run.step == steps
    return found[0].run.id


# ddp_spawn loads Lightning three times over. That spawned ranks are joined is held by the test of two trainings below,
# and that a callback that was pickled tells of its run by lightning_cases.
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("ddp_spawn", marks=pytest.mark.slow)])
def test_lightning(live_dir: Path, strategy: str) -> None:
    """With ddp the first rank is the process that starts the others; with ddp_spawn none is, and all are pickled to."""
    need("torch", "lightning")
    train(
        [EXAMPLES / "lightning_regression.py", "--ranks", 2, "--epochs", 2, "--strategy", strategy],
        live_dir,
        may_abort=True,
    )
    found = told(live_dir)
    joined(found, [0, 1], 64)
    assert len({one.run.metrics["val_loss"] for one in found}) == 1, "Lightning took its mean over the ranks"
    assert {phase for one in found for mark, _, _, phase in one.marks() if mark == "PHASE"} == {
        "sanity", "", "validate", "train",
    }  # fmt: skip


@pytest.mark.slow
def test_accelerate(live_dir: Path) -> None:
    """Not slow: ranks that torchrun starts are joined in test_examples_ranks, with the same variables."""
    need("torch", "accelerate")
    # As `accelerate launch` starts several ranks; on a CPU it would want MPI for that.
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port", free_port()]
    train([*launch, "-m", "tests.trainings.accelerated"], live_dir, may_abort=True)
    found = told(live_dir)
    joined(found, [0, 1], 8)
    assert [one.run.facts.batch for one in found] == [8, 8]


def test_two_trainings_that_one_process_spawns_are_two_runs(live_dir: Path) -> None:
    need("torch")
    train(["-m", "tests.trainings.spawned", free_port(), "fork"], live_dir)
    found = told(live_dir)
    ids = [joined([one for one in found if one.run.id == run], [0, 1], 2) for run in {one.run.id for one in found}]
    assert len(ids) == 2


def test_slurm(live_dir: Path) -> None:
    source = "import gpumon\nwith gpumon.run('net', epochs=2) as run:\n    for _ in run.epochs(): run.step()"
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    for rank in "10":
        env = {**environment(live_dir), **slurm, "SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        subprocess.run([sys.executable, "-c", source], env=env, check=True, timeout=PATIENCE)
    joined(told(live_dir), [0, 1], 2)


def up(rank: int, size: int = 4) -> SimpleNamespace:
    """A torch whose process group is up."""
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: rank, get_world_size=lambda: size
    )
    return SimpleNamespace(distributed=group)


def test_slurm_steps_of_a_job_are_different_runs_although_torch_is_up(tmp_path: Path) -> None:
    """Lightning under srun takes its port from the job: only the step tells two of them apart."""
    ids = set()
    for step in "01":
        env = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": step, "SLURM_NTASKS": "4", "MASTER_ADDR": "node1"}
        ranks = [detect_rank({**env, "SLURM_PROCID": str(rank)}, {"torch": up(rank)}) for rank in range(4)]
        assert [one.rank for one in ranks] == [0, 1, 2, 3]
        ids |= {run_id("net", one, 0, str(one.rank), 1) for one in ranks}
    assert len(ids) == 2


def test_ranks_that_one_slurm_task_spawns_are_not_slurms(tmp_path: Path) -> None:
    env = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}
    assert [detect_rank(env, {"torch": up(rank)}).rank for rank in range(4)] == [0, 1, 2, 3]


def lightnings(tmp_path: Path, born: bytes, **more: str) -> bool:
    """Whether a first rank that was born with the environment `born` started the others."""
    (tmp_path / "self").mkdir(exist_ok=True)
    (tmp_path / "self" / "environ").write_bytes(born)
    env = {"MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": "4", **more}
    return detect_rank(env, {"torch": up(0)}, str(tmp_path)).starter


def test_the_starter_set_its_own_rank_variables(tmp_path: Path) -> None:
    assert lightnings(tmp_path, b"HOME=/root\0PATH=/bin\0")
    assert not lightnings(tmp_path, b"HOME=/root\0LOCAL_RANK=0\0"), "started by hand or by a launcher"
    assert not lightnings(tmp_path, b"HOME=/root\0", LOCAL_RANK="1")
    (tmp_path / "self" / "environ").unlink()
    assert not detect_rank({"LOCAL_RANK": "0", "NODE_RANK": "0"}, {"torch": up(0)}, str(tmp_path)).starter


def test_spawn_groups_of_one_parent_are_different_runs() -> None:
    def spawned(rank: int, number: int) -> str:
        process = SimpleNamespace(
            current_process=lambda: SimpleNamespace(_identity=(number,)), parent_process=lambda: object()
        )
        where = detect_rank({"MASTER_ADDR": "localhost"}, {"torch": up(rank), "multiprocessing.process": process})
        return run_id("net", where, 0, "1/1", 0)

    first, second = ({spawned(rank, before + rank) for rank in range(4)} for before in (1, 5))
    assert (len(first), len(second), len(first | second)) == (1, 1, 2)


RESTARTED = """
import os, pathlib, signal, sys, time
import gpumon
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
with gpumon.run("elastic", epochs=3) as run:
    for epoch in run.epochs(start=attempt):
        run.step()
        if epoch == 1:
            pathlib.Path(sys.argv[1], f"{attempt}-{rank}").touch()
            while not pathlib.Path(sys.argv[1], f"{attempt}-{1 - rank}").exists():
                time.sleep(0.01)
            if not attempt:
                os.kill(os.getpid(), signal.SIGKILL) if rank else time.sleep(600)
"""


def test_each_attempt_of_torchrun_is_a_resumed_run(watched: Path, tmp_path: Path) -> None:
    need("torch")
    env = environment(watched)
    # One of the same name, which the second attempt does not resume.
    source = "import gpumon\nwith gpumon.run('elastic') as run: list(run.epochs(3))"
    subprocess.run([sys.executable, "-c", source], env=env, check=True, timeout=PATIENCE)
    until(lambda: [run for run in listed(env) if run["state"] == "finished"])
    script = tmp_path / "elastic.py"
    script.write_text(RESTARTED)
    port = ["--master-port", free_port()]
    train(["-m", "torch.distributed.run", "--nproc-per-node", 2, "--max-restarts", 1, *port, script, tmp_path], watched)
    found = until(lambda: runs if len(runs := over(env)) == 3 else None)
    second, first = found[:2]
    assert second["id"] == f"{first['id']}~2"
    assert (first["state"], second["state"]) == ("died", "finished")
    assert until(lambda: listed(env)[0]["resumes"]) == first["id"]
    shown = json.loads(gpumon("runs", "show", second["id"], "--json", env=env).stdout)
    assert [rank["rank"] for rank in shown["ranks"]] == [0, 1]
    assert [epoch["epoch"] for epoch in shown["epochs"]] == [1, 2]


REPEATED = """
import os, time
import gpumon
with gpumon.run("fits", epochs=3) as run:
    for _ in range(3):
        for epoch in run.epochs(3):
            run.step()
            time.sleep(0.05 + 0.15 * int(os.environ["RANK"]))
"""


def test_epochs_repeated_by_ranks_are_counted_once(watched: Path) -> None:
    env = environment(watched) | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen([sys.executable, "-c", REPEATED], env={**env, "RANK": rank, "LOCAL_RANK": rank})
        for rank in "01"
    ]
    assert [rank.wait(PATIENCE) for rank in ranks] == [0, 0]
    (run,) = until(lambda: over(env))
    shown = json.loads(gpumon("runs", "show", run["id"], "--json", env=env).stdout)
    assert (run["world_size"], run["epochs_done"], shown["run"]["epochs_done"]) == (2, 9, 9)
    assert [epoch["epoch"] for epoch in shown["epochs"]] == [0, 1, 2] * 3


def listed(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Runs of the ledger, newest first; none before there is one."""
    done = gpumon("runs", "--json", env=env)
    runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"] if not done.returncode else []
    return runs


def over(env: Mapping[str, str]) -> list[dict[str, Any]]:
    return [run for run in listed(env) if run["state"] != "running"]
