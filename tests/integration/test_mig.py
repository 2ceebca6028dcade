"""MIG: an instance is a device of its own, also when it comes while gpumon runs, and nothing of it is invented."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.metrics import FROM_DRIVERS, PROCESS_SHARES, Availability
from tests.nvml import Process, Stub
from tests.programs import daemon, environment, status, until
from tests.sourced import Source, nvml_source

GIB = 2.0**30
NO_PERMISSION, UNKNOWN = 4, 999


@pytest.fixture
def stub(driver_library: Path) -> Iterator[Stub]:
    with Stub(driver_library) as stub:
        yield stub


@pytest.fixture
def source(stub: Stub, tmp_path: Path) -> Iterator[Source]:
    with nvml_source(stub, tmp_path) as source:
        yield source


def test_an_instance_is_a_device_behind_its_gpu(source: Source, stub: Stub) -> None:
    assert [gpu["mig_instances"] for gpu in source(1.5).gpus] == [0, 0]
    stub.set_mig(0, 2)
    whole, first, second, other = source(2.0).gpus
    assert (whole["mig_instances"], other["mig_instances"]) == (2, 0)
    assert [gpu.label for gpu in (whole, first, second, other)] == ["0", "0:0", "0:1", "1"]
    assert [gpu.parent for gpu in (whole, first, second, other)] == ["", whole.uuid, whole.uuid, ""]
    assert {gpu.name for gpu in (first, second)} == {"NVIDIA H100 80GB HBM3 MIG 1g.10gb"}
    assert all(gpu.uuid.startswith("MIG-") for gpu in (first, second))
    assert [gpu["memory_used"] for gpu in (first, second)] == [GIB, 2 * GIB]
    assert first["memory_total"] == 10 * GIB
    assert whole["memory_used"] == 3 * GIB
    assert whole.state is first.state is Availability.OK


def test_what_is_not_an_instances_own_has_a_reason_and_the_gpu_keeps_it(source: Source, stub: Stub) -> None:
    stub.set_mig(0, 1)
    whole, instance, _ = source(1.0).gpus
    for name in ("power", "energy", "temperature", "clock_sm", "pcie_sent", "xid"):
        assert instance.missing[f"gpu.{name}"] is Availability.OF_WHOLE_GPU
    assert whole["power"] > 0
    for name in ("utilization", "memory_utilization", "encoder_utilization", "idle_share"):
        assert instance.missing[f"gpu.{name}"] is whole.missing[f"gpu.{name}"] is Availability.IN_MIG_MODE
        assert f"gpu.{name}" not in whole.values.keys() | instance.values.keys(), "not 0: nobody knows"
    assert instance.missing[PROCESS_SHARES] is Availability.IN_MIG_MODE
    assert whole.missing["gpu.processes"] is whole.missing["gpu.memory_unattributed"] is Availability.OF_INSTANCES
    assert instance.missing.keys() & instance.values.keys() == set()
    assert {name for name in FROM_DRIVERS if name not in instance.values} <= instance.missing.keys()


def test_processes_are_on_their_instance_and_nowhere_else(source: Source, stub: Stub) -> None:
    stub.set_processes(0, [Process(10)])
    assert [(one[0], one[1]) for one in source(1.0).processes] == [(10, stub.uuid(0))]
    stub.set_mig(0, 3)
    stub.set_processes(0, [Process(11, instance=0), Process(12, instance=2)])
    read = source(5.0)
    _, first, _, third, _ = read.gpus
    assert [(one[0], one[1]) for one in read.processes] == [(11, first.uuid), (12, third.uuid)]
    assert "gpu.processes" not in first.missing
    stub.set_mig(0, None)
    stub.set_processes(0, [Process(13)])
    assert [(one[0], one[1]) for one in source(10.0).processes] == [(13, stub.uuid(0))]


def test_a_gpu_that_is_whole_again_reports_all_of_it(source: Source, stub: Stub) -> None:
    stub.set_mig(1, 3)
    assert len(source(1.0).gpus) == 5
    stub.set_mig(1, None)
    source(3.0)
    _, again = source(4.0).gpus
    assert again["mig_instances"] == 0
    assert "gpu.utilization" in again.values
    assert "gpu.processes" not in again.missing


def test_instances_come_and_go_within_two_seconds(source: Source, stub: Stub) -> None:
    stub.set_mig(0, 1)
    one = source(1.0).gpus[1].uuid
    stub.set_mig(0, 3)
    found = [source(2.0 + second / 2) for second in range(4)][-1].gpus
    assert [gpu.label for gpu in found] == ["0", "0:0", "0:1", "0:2", "1"]
    assert found[1].uuid == one
    stub.set_mig(0, 2)
    found = [source(4.0 + second / 2) for second in range(4)][-1].gpus
    assert [gpu.label for gpu in found] == ["0", "0:0", "0:1", "1"]
    assert {gpu.state for gpu in found} == {Availability.OK}


def test_another_instance_in_the_place_of_one_is_another_device(source: Source, stub: Stub) -> None:
    stub.set_mig(0, 1)
    source(1.0)
    stub.set_instance(0, 0, slices=2)
    found = [source(2.0 + second) for second in range(4)][-1].gpus[1]
    assert (found.name[-10:], found["memory_total"]) == ("MIG 2g.20gb"[-10:], 20 * GIB)


def test_gpm_measures_each_instance(source: Source, stub: Stub) -> None:
    stub.constant = True
    stub.set_gpm(True)
    stub.set_mig(0, 2)
    first = source(1.0).gpus[1]
    assert first.missing["gpu.graphics_activity"] is Availability.TOO_EARLY
    source(2.0)
    one, other = source(3.0).gpus[1:3]
    assert 0 < one["graphics_activity"] != other["graphics_activity"] > 0


def test_a_fault_of_one_instance_is_that_ones_alone(source: Source, stub: Stub) -> None:
    stub.set_mig(0, 3)
    source(1.0)
    stub.set_instance(0, 1, error=UNKNOWN)
    found = [source(2.0 + second) for second in range(5)][-1].gpus
    assert [gpu.state.name for gpu in found] == ["OK", "OK", "FAILED", "OK", "OK"]
    assert not found[2].values
    stub.reset_calls()
    for second in range(60):
        source(7.0 + second)
    assert sum(stub.calls(0).values()) <= 60 * 15, "it is not asked about again and again"
    stub.set_instance(0, 1)
    found = [source(67.0 + second) for second in range(4)][-1].gpus
    assert [gpu.state.name for gpu in found] == ["OK"] * 5


def test_few_calls_are_made_for_each_instance(source: Source, stub: Stub) -> None:
    def calls_a_second(begin: int) -> int:
        source(begin)
        stub.reset_calls()
        for second in range(begin, begin + 120):
            source(float(second))
        return sum(stub.calls(0).values()) // 120

    whole = calls_a_second(1)
    stub.set_mig(0, 0)
    without = calls_a_second(200)
    stub.set_mig(0, 7)
    assert whole <= 6, (whole, without)
    assert without <= whole + 1
    assert calls_a_second(400) - without <= 7 * 2


def test_instances_that_may_not_be_seen_have_a_reason(source: Source, stub: Stub) -> None:
    stub.set_mig(0, 7)
    stub.set_error("nvmlDeviceGetMigDeviceHandleByIndex", NO_PERMISSION)
    assert source(1.0).gpus[0].missing["gpu.mig_instances"] is Availability.NO_PERMISSION


def test_an_instance_whose_calls_hang_is_stale_alone(stub: Stub, live_dir: Path) -> None:
    stub.set_mig(0, 2)
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env):
        until(lambda: [gpu["state"] for gpu in status(env)["gpus"]] == ["ok"] * 4)
        stub.set_instance(0, 1, microseconds=60_000_000)
        until(lambda: [gpu["state"] for gpu in status(env)["gpus"]] == ["ok", "ok", "stale", "ok"])
        stub.set_instance(0, 1)
        until(lambda: [gpu["state"] for gpu in status(env)["gpus"]] == ["ok"] * 4)


def test_instances_come_and_go_under_a_daemon_and_keep_their_row(stub: Stub, live_dir: Path) -> None:
    def gpus() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = status(env)["gpus"]
        return found

    def labels() -> list[str]:
        return [gpu["label"] for gpu in gpus()]

    env = environment(live_dir, stub.env())
    stub.set_processes(0, [])
    with daemon("--interval", "0.1", env=env):
        until(lambda: labels() == ["0", "1"])
        stub.set_processes(0, [Process(os.getpid(), instance=0)])
        stub.set_instance(0, 1, is_empty=True)
        stub.set_mig(0, 2)
        until(lambda: labels() == ["0", "0:0", "0:1", "1"])
        whole, first, second, _ = until(lambda: found if (found := gpus())[1]["processes"] else None)
        assert [gpu["gpu_state"] for gpu in (whole, first, second)] == ["divided", "allocated", "free"]
        assert (whole["processes"], len(first["processes"]), second["processes"]) == (None, 1, [])
        assert first["parent"] == second["parent"] == whole["uuid"]
        assert whole["energy"] > 0
        assert first["energy"] is second["energy"] is first["power"] is first["utilization"] is None
        stub.set_mig(0, None)
        until(lambda: labels() == ["0", "1"])
        until(lambda: gpus()[0]["utilization"] is not None)
        stub.set_mig(0, 2)
        again = until(lambda: found if len(found := gpus()) == 4 else None)
        assert [gpu["uuid"] for gpu in again[1:3]] == [first["uuid"], second["uuid"]]
        live = follow(Places(explicit=str(live_dir)))
        frames = live.since(0)
        ours = [[sample for sample in frame.samples if sample.device.is_instance] for frame in frames]
        assert {len(one) for one in ours} == {0, 2}
        live.close()


def test_instances_are_there_within_three_seconds_of_frames(source: Source, stub: Stub) -> None:
    """At a tick a second: one that notices, and those that follow."""
    source(1.0)
    source(2.0)
    stub.set_mig(0, 2)
    assert len(source(3.0).gpus) == 4
    stub.set_mig(0, None)
    source(4.0)
    assert len(source(5.0).gpus) == 2


def test_an_instance_that_hangs_before_it_is_known_does_not_hold_up_its_gpu(stub: Stub, live_dir: Path) -> None:
    stub.set_mig(0, 2)
    stub.set_instance(0, 1, microseconds=3600_000_000)
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env):
        until(lambda: [gpu["label"] for gpu in status(env)["gpus"] if gpu["state"] == "ok"] == ["0", "0:0", "1"])
        stub.set_instance(0, 1)
        until(lambda: [gpu["state"] for gpu in status(env)["gpus"]] == ["ok"] * 4)


def test_the_search_for_instances_does_not_wait_for_one_that_hangs(stub: Stub, live_dir: Path) -> None:
    stub.set_mig(0, 2)
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env):
        until(lambda: [gpu["state"] for gpu in status(env)["gpus"]] == ["ok"] * 4)
        stub.set_instance(0, 1, error=UNKNOWN)  # one that fails is looked at again
        until(lambda: [gpu["state"] for gpu in status(env)["gpus"]] == ["ok", "ok", "failed", "ok"])
        stub.set_instance(0, 1, error=UNKNOWN, microseconds=3600_000_000)
        stub.reset_calls()
        until(lambda: stub.calls(0).get("nvmlDeviceGetMigMode", 0) >= 2)  # a look was over, and the next one began
        assert [gpu["state"] for gpu in status(env)["gpus"]] == ["ok", "ok", "failed", "ok"]
        stub.set_instance(0, 1)
