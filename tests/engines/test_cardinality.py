"""Series that a node makes over time: few for each run and each user, and none that nobody has asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from gpumon.export.scrape import MAX_FAMILY_SERIES
from gpumon.model.energy import FOLLOWS
from gpumon.storage.usage.counters import MAX_USERS
from tests.builders import device, process, run, sample, tick
from tests.exported import Node

GPUS = 2
FEW = round(FOLLOWS) + 5
"""Seconds and runs: energy of a counter that stands still is known once no later reading can come."""
MOST_OF_RUN = 3
"""Series of a run on a GPU: who it is, its epoch, and how many there are to be."""


def series(node: Node, ticks: Iterable[dict[str, Any]]) -> set[str]:
    """All series that scrapes after each of these ticks tell of."""
    exporter = node.exporter()
    found = set()
    for second, fields in enumerate(ticks, 1):
        node.add([tick(second, **fields)])
        body = exporter.scrape().decode()
        found |= {line.rpartition(" ")[0] for line in body.splitlines() if not line.startswith("#")}
    return found


def seen(user: str, name: str = "") -> dict[str, Any]:
    """GPUs that a user holds, with a run where it has a name."""
    uuids = tuple(device(place).uuid for place in range(GPUS))
    training = run(f"tag.{name}", id=name, name=name, user=user, gpus=uuids, epoch=3, epochs=90, started=1.79e9)
    rows = [sample(place, run=training.key if name else "", utilization=0.5, power=100.0, energy=1e3,
                   memory_used=1e9, memory_total=8e10) for place in range(GPUS)]  # fmt: skip
    processes = [process(4711, place, user=user, sm_utilization=0.5) for place in range(GPUS)]
    return {"samples": rows, "processes": processes, "runs": [training] if name else []}


@pytest.mark.parametrize("runs", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_each_run_adds_three_series_on_each_gpu(runs: int) -> None:
    few = series(Node(GPUS), (seen("ada", f"run-{number}") for number in range(FEW)))
    many = series(Node(GPUS), (seen("ada", f"run-{number}") for number in range(runs)))
    assert len(many) - len(few) == (runs - FEW) * GPUS * MOST_OF_RUN
    assert len([one for one in few if "run-" not in one]) < 200


def test_users_who_come_and_go_leave_their_counters_which_are_bounded() -> None:
    node = Node(GPUS)
    node.add(tick(second, **seen(f"user-{second}")) for second in range(1, MAX_USERS // GPUS + 20))
    page = node.exporter().scrape().decode().splitlines()
    now = Counter(line.partition("{")[0] for line in page if "user-" in line)
    assert set(now) == {
        "gpumon_gpu_user_info", "gpumon_gpu_user_memory_bytes", "gpumon_user_held_seconds_total",
        "gpumon_user_busy_seconds_total", "gpumon_user_idle_held_seconds_total", "gpumon_user_energy_joules_total",
        "gpumon_user_held_share_seconds_total", "gpumon_user_judged_seconds_total",
    }  # fmt: skip
    assert GPUS * 100 < now["gpumon_user_held_seconds_total"] <= min(MAX_USERS, MAX_FAMILY_SERIES)
    assert now["gpumon_gpu_user_info"] == GPUS
    (dropped,) = (float(line.split()[1]) for line in page if line.startswith("gpumon_users_dropped_total"))
    assert dropped > 0


def test_a_gpu_that_is_gone_has_no_series_any_more() -> None:
    node = Node(GPUS)
    both = seen("ada")
    series(node, [both])
    one = {**both, "samples": both["samples"][:1], "processes": both["processes"][:1]}
    assert not [line for line in series(node, [one, one]) if device(1).uuid in line]
