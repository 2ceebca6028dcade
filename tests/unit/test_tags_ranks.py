"""Ranks and ids of runs, from the environment variables of launchers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpumon.tracking.context import RankInfo, attempt_id, detect_rank, parent_identity, run_id, slug
from gpumon.tracking.description import ID_LENGTH

TORCHRUN = {
    "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "job-17",
}  # fmt: skip
SLURM = {"SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "99", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (0, 0, 1)),
        (TORCHRUN, (5, 1, 8)),
        ({**SLURM, **TORCHRUN}, (5, 1, 8)),
        (SLURM, (3, 3, 4)),
        ({key: value for key, value in SLURM.items() if key != "SLURM_STEP_ID"}, (0, 0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 0, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, (1, 1, 2)),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, (0, 0, 1)),
        ({"RANK": "x", "WORLD_SIZE": "y"}, (0, 0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "9" * 50}, (0, 0, 1)),
        ({"RANK": "²", "WORLD_SIZE": "2"}, (0, 0, 1)),
    ],
)
def test_the_rank_comes_from_the_launcher(env: dict[str, str], expected: tuple[int, int, int]) -> None:
    assert detect_rank(env)[:3] == expected


def test_spawned_ranks_come_from_torch_distributed() -> None:
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
    )
    torch = SimpleNamespace(distributed=group)
    assert detect_rank({"MASTER_ADDR": "localhost"}, {"torch": torch})[:3] == (1, 1, 2)
    assert detect_rank({"MASTER_ADDR": "node1", "LOCAL_WORLD_SIZE": "1"}, {"torch": torch})[:3] == (1, 0, 2)
    assert detect_rank(TORCHRUN, {"torch": torch})[:3] == (5, 1, 8)
    for other in (SimpleNamespace(), SimpleNamespace(distributed=SimpleNamespace(is_available=lambda: False))):
        assert detect_rank({}, {"torch": other}) == RankInfo()


def ids(env: dict[str, str], ranks: int, *, begun: int = 0, parent: str = "1/1", key: str = "RANK") -> set[str]:
    return {run_id("net", detect_rank({**env, key: str(rank)}), begun, parent, 1000) for rank in range(ranks)}


def test_all_ranks_share_a_run_id() -> None:
    assert len(ids(TORCHRUN, 8)) == 1
    assert len(ids(SLURM, 4, key="SLURM_PROCID")) == 1


def test_a_second_run_has_another_id_on_all_ranks() -> None:
    second = ids(TORCHRUN, 8, begun=1)
    assert len(second) == 1
    assert second != ids(TORCHRUN, 8)


def test_ranks_on_different_machines_do_not_hash_their_parents() -> None:
    for env in (TORCHRUN, {**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}):
        assert ids(env, 8, parent="10/1") == ids(env, 8, parent="77/2")


def test_a_launch_without_an_id_uses_the_parent_process() -> None:
    weak = {**TORCHRUN, "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none"}
    assert len(ids(weak, 8)) == 1
    assert ids(weak, 8, parent="10/1") != ids(weak, 8, parent="77/2")


def test_a_later_attempt_has_its_number_as_suffix() -> None:
    where = detect_rank({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"})
    first = detect_rank({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "0"})
    assert run_id("net", where, 0, "1/1", 1000) == run_id("net", first, 0, "1/1", 1000), "nodes may count differently"
    assert (attempt_id("net-1", first.attempt), attempt_id("net-1", where.attempt)) == ("net-1", "net-1~3")
    assert attempt_id("n" * ID_LENGTH, 1) == "n" * (ID_LENGTH - 2) + "~2"


def test_a_requeued_job_has_another_id() -> None:
    again = {"SLURM_RESTART_COUNT": "1"}
    assert len({*ids(SLURM, 4, key="SLURM_PROCID"), *ids({**SLURM, **again}, 4, key="SLURM_PROCID")}) == 2
    torch = {**TORCHRUN, "SLURM_JOB_ID": "99"}
    assert len({*ids(torch, 8), *ids({**torch, **again}, 8)}) == 2


def test_two_jobs_have_different_ids() -> None:
    assert ids(SLURM, 4) != ids({**SLURM, "SLURM_JOB_ID": "100"}, 4)


def test_a_single_process_has_an_id_of_its_own_each_time() -> None:
    assert run_id("net", RankInfo(), 0, "1/1", 0) != run_id("net", RankInfo(), 0, "1/1", 0)


def test_a_slug_is_short_and_plain() -> None:
    assert slug("ResNet 50/../\x1b[31m ü") == "resnet-50-31m"
    assert slug("///") == "run"
    assert len(slug("x" * 500)) == 40


def test_the_identity_of_the_parent_is_unique() -> None:
    assert parent_identity().count("/") == 1
    assert parent_identity("/nowhere").isdigit()
