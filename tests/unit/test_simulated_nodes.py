"""Simulated nodes of the benchmarks: they speak the exporter's dialect, and are a plausible cluster."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections import Counter

import pytest

from benchmarks.nodes.node import QUIET_AFTER
from benchmarks.nodes.plan import Fault, plan
from benchmarks.nodes.serving import Nodes, serve
from gpumon.cluster.queries import QUERIES

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
BEGAN = 1_800_000_000.0


class MovedTime:
    """A time that tests move."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __call__(self) -> float:
        return BEGAN + self.passed


def told(nodes: Nodes, number: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples of a node by name."""
    status, _, body = nodes.answer(f"/node/{number}/metrics", {})
    assert status == 200
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parser.text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_a_node_tells_all_that_the_cluster_page_asks() -> None:
    now = MovedTime()
    nodes = Nodes(plan(40, 8), now)
    now.passed = QUIET_AFTER + 30
    seen = {name for number in range(1, 41) if number != 23 for name in told(nodes, number)}
    asked = {word for question in QUERIES for word in re.findall(r"(?<![\w:])gpumon_\w+", question.promql)}
    assert asked
    assert asked <= seen


def test_states_of_a_node_add_up_to_its_gpus() -> None:
    now = MovedTime()
    nodes = Nodes(plan(40, 8), now)
    now.passed = 600.0
    counts: Counter[str] = Counter()
    for number in (*range(1, 23), *range(24, 41)):
        states = {labels["state"]: value for labels, value in told(nodes, number)["gpumon_gpus"]}
        assert sum(states.values()) == 8
        counts.update({state: int(value) for state, value in states.items()})
    assert counts["lost"] == 1
    assert counts["unknown"] == 8, "nobody samples on one node"
    assert counts["busy"] > counts["free"] > 0
    assert counts["held_idle"] > 0


def test_counters_grow_as_the_time_and_held_time_is_busy_or_idle() -> None:
    now = MovedTime()
    nodes = Nodes(plan(3, 8), now)
    sums = []
    for now.passed in (100.0, 160.0):
        found = told(nodes, 1)
        sums.append({name: sum(value for _, value in found.get(f"gpumon_user_{name}_seconds_total", []))
                     for name in ("held", "busy", "idle_held")})  # fmt: skip
        gpus = len(found["gpumon_gpu_user_info"])
        assert gpus
        assert sums[-1]["held"] == pytest.approx(sums[-1]["busy"] + sums[-1]["idle_held"])
    assert sums[1]["held"] - sums[0]["held"] == pytest.approx(60.0 * gpus)


def test_faults_begin_after_nodes_were_seen() -> None:
    now = MovedTime()
    nodes = Nodes(plan(40, 8), now)
    assert nodes.answer("/node/23/metrics", {})[0] == 200
    now.passed = QUIET_AFTER + 1
    assert nodes.answer("/node/23/metrics", {})[0] == 503
    assert [labels["xid"] for labels, _ in told(nodes, 27)["gpumon_gpu_xid_last_timestamp_seconds"]] == ["79"]
    ((_, sampled),) = told(nodes, 14)["gpumon_last_sample_timestamp_seconds"]
    assert sampled == BEGAN + QUIET_AFTER


@pytest.mark.parametrize("count", [1, 3, 40, 1000])
def test_a_cluster_of_any_size_has_users_and_unique_names(count: int) -> None:
    found = plan(count, 8)
    assert len({node.name for node in found}) == count
    assert all(len(node.jobs) == 8 for node in found)
    assert plan(count, 8) == found, "the same again"
    if count >= 40:
        assert {Fault.LOST, Fault.DOWN, Fault.HOT} <= {node.fault for node in found}
        spanning = Counter(job for node in found for job in set(node.jobs) if job)
        assert max(spanning.values()) > 1, "some job is on several nodes"


def test_it_is_served_with_its_targets() -> None:
    async def asked() -> tuple[bytes, bytes]:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(Nodes(plan(3, 2)), "127.0.0.1", 0, ready.set_result))
        port = await ready

        def get(path: str) -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                body: bytes = answer.read()
                return body

        found = await asyncio.to_thread(get, "/targets"), await asyncio.to_thread(get, "/node/2/metrics")
        task.cancel()
        return found

    targets, metrics = asyncio.run(asked())
    described = json.loads(targets)
    assert [one["labels"]["instance"] for one in described] == ["gn01", "gn02", "gn03"]
    assert described[1]["labels"]["__metrics_path__"] == "/node/2/metrics"
    assert b"gpumon_gpu_info{" in metrics
