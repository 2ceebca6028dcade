"""The profiles of NVIDIA's mock driver, mocknvml of its k8s-test-infra repository, against what gpumon shows of them.

docs/inside/driver-faults.md says how to build it, and what it imitates otherwise than a driver.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.nvml import sleepers
from tests.programs import daemon, environment, gpumon, status, until

HERE = "GPUMON_MOCKNVML"
"""Names the directory pkg/gpu/mocknvml of k8s-test-infra after `make`: its library, and its profiles in configs/."""
MIB = 2**20
PROFILES = ("a100", "b200", "gb200", "gb300", "h100", "l40s", "t4")
WITH_GPM = ("hopper", "blackwell")
"""Architectures; NVIDIA's newer ones have no profile yet."""

Profile = dict[str, Any]

VALUES: dict[str, tuple[str, float]] = {
    "utilization": ("utilization.gpu", 0.01),
    "memory_utilization": ("utilization.memory", 0.01),
    "encoder_utilization": ("utilization.encoder", 0.01),
    "decoder_utilization": ("utilization.decoder", 0.01),
    "jpeg_utilization": ("utilization.jpeg", 0.01),
    "optical_flow_utilization": ("utilization.ofa", 0.01),
    "memory_total": ("memory.total_bytes", 1.0),
    "memory_reserved": ("memory.reserved_bytes", 1.0),
    "memory_used": ("memory.used_bytes", 1.0),
    "power": ("power.current_draw_mw", 1e-3),
    "power_instant": ("power.current_draw_mw", 1e-3),
    "power_limit": ("power.enforced_limit_mw", 1e-3),
    "temperature": ("thermal.temperature_gpu_c", 1.0),
    "temperature_memory": ("thermal.temperature_memory_c", 1.0),
    "temperature_slowdown": ("thermal.slowdown_threshold_c", 1.0),
    "temperature_shutdown": ("thermal.shutdown_threshold_c", 1.0),
    "clock_sm": ("clocks.sm_current", 1e6),
    "clock_memory": ("clocks.memory_current", 1e6),
    "pcie_generation": ("pcie.current_link_gen", 1.0),
    "pcie_generation_max": ("pcie.max_link_gen", 1.0),
    "pcie_width": ("pcie.current_link_width", 1.0),
    "pcie_width_max": ("pcie.max_link_width", 1.0),
    "pcie_replays": ("pcie.replay_counter", 1.0),
    "rows_remapped_corrected": ("remapped_rows.correctable", 1.0),
    "rows_remapped_uncorrected": ("remapped_rows.uncorrectable", 1.0),
    "remapping_pending": ("remapped_rows.pending", 1.0),
    "remapping_failed": ("remapped_rows.failure_occurred", 1.0),
    "retirement_pending": ("retired_pages.pending_retirement", 1.0),
    "ecc_corrected": ("ecc.errors.volatile.single_bit.total", 1.0),
    "ecc_uncorrected": ("ecc.errors.volatile.double_bit.total", 1.0),
    "ecc_corrected_lifetime": ("ecc.errors.aggregate.single_bit.total", 1.0),
    "ecc_uncorrected_lifetime": ("ecc.errors.aggregate.double_bit.total", 1.0),
}
"""By key of `gpumon status --json`: where a profile has it, and the base unit in that of the profile."""


@pytest.fixture(scope="module")
def built() -> Path:
    """The directory with the library and the profiles."""
    named = os.environ.get(HERE, "")
    if not named:
        pytest.skip(f"{HERE} does not name a built mocknvml of NVIDIA/k8s-test-infra (docs/inside/driver-faults.md)")
    return Path(named)


def read_profile(built: Path, name: str) -> Profile:
    yaml = pytest.importorskip("yaml", reason="profiles are in YAML, which a package of the tests brings")
    found: Profile = yaml.safe_load((built / f"configs/mock-nvml-config-{name}.yaml").read_text(encoding="utf-8"))
    return found


def on(built: Path, profile: Profile, live_dir: Path) -> dict[str, str]:
    """The environment in which NVML is the mock with this profile."""
    path = live_dir / "profile.yaml"
    path.write_text(json.dumps(profile), encoding="utf-8")
    more = {"LD_LIBRARY_PATH": str(built), "MOCK_NVML_CONFIG": str(path)}
    return environment(live_dir, {**os.environ, **more})


def merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> Profile:
    """The defaults of all GPUs under what is one GPU's own."""
    found = dict(defaults)
    for key, value in own.items():
        found[key] = merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


def of_profile(gpu: Profile, place: str) -> float:
    found: Any = gpu
    for key in place.split("."):
        found = found[key]
    return float(found)


def links(profile: Profile) -> int:
    """NVLink links of each GPU: the mock makes them where a profile has switches for them."""
    nvlink = profile.get("nvlink") or {}
    return int(nvlink.get("links_per_gpu", 0)) if nvlink.get("switches") else 0


def assert_shown(shown: Mapping[str, Any], gpu: Profile) -> None:
    assert shown["name"] == gpu["name"]
    assert shown["uuid"] == gpu["uuid"]
    assert shown["state"] == "ok"
    for key, (place, unit) in VALUES.items():
        assert shown[key] == pytest.approx(of_profile(gpu, place) * unit), (key, place)
    assert shown["energy"] >= gpu["power"].get("total_energy_consumption_mj", 0) / 1000
    assert shown["performance_state"] == int(gpu["performance_state"].removeprefix("P"))
    assert shown["fan"] is None, "no profile has one"
    assert shown["missing"]["gpu.fan"] == "not_supported"


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_shown_as_it_is_written(name: str, built: Path, live_dir: Path) -> None:
    profile = read_profile(built, name)
    found = status(on(built, profile, live_dir))
    system = profile["system"]
    assert found["driver"] == {"version": system["driver_version"], "cuda": system["cuda_version"], "unanswered": None}
    assert found["problem"] is None
    assert len(found["gpus"]) == len(profile["devices"])
    for index, (shown, own) in enumerate(zip(found["gpus"], profile["devices"], strict=True)):
        gpu = merged(profile["device_defaults"], own)
        assert shown["index"] == index
        assert_shown(shown, gpu)
        assert shown["clock_event_reasons"] == ["idle"]
        assert shown["nvlink_links"] == shown["nvlink_active"] == links(profile)
        assert shown["processes"] == []
        # Of GPM the first look tells only whether it is there.
        why = "too_early" if gpu["architecture"] in WITH_GPM else "not_supported"
        assert shown["missing"]["gpu.sm_activity"] == why


LOST, FAILING = 3, 5
BUSY: Profile = {
    "utilization": {"gpu": 80, "memory": 41, "jpeg": 7, "ofa": 8},
    "memory": {"used_bytes": 30 * 1024 * MIB},
    "power": {"current_draw_mw": 512345},
    "clocks": {"sm_current": 1755},
    "pcie": {"current_link_gen": 4, "current_link_width": 8},
    "remapped_rows": {"correctable": 3, "uncorrectable": 1, "pending": True},
    "clocks_throttle_reasons": {"gpu_idle": False, "sw_power_cap": True},
    "performance_state": "P2",
    "gpm": {"pcie_tx_mib_per_sec": 3000, "pcie_rx_mib_per_sec": 1000},
}
GPM_OF_UTILIZATION = {
    "graphics_activity": 1.0, "sm_activity": 1.0, "sm_occupancy": 0.75, "tensor_activity": 0.5, "fp64_activity": 0.05,
    "fp32_activity": 0.25, "fp16_activity": 0.35,
}  # fmt: skip
"""The parts of its utilization that the mock gives as GPM (engine/gpm.go)."""


@pytest.fixture
def busy(built: Path, live_dir: Path) -> Iterator[tuple[Profile, dict[str, str], list[int]]]:
    """Profile, environment and processes of eight H100 at work: one falls off the bus, another has memory errors."""
    profile = copy.deepcopy(read_profile(built, "h100"))
    with sleepers(2) as pids:
        profile["device_defaults"] = merged(profile["device_defaults"], BUSY)
        devices = profile["devices"]
        devices[0]["processes"] = [
            {"pid": pids[0], "type": "C", "name": "python", "used_memory_mib": 20000, "sm_util": 70, "mem_util": 30},
            {"pid": pids[1], "type": "G", "name": "python", "used_memory_mib": 300},
        ]
        devices[LOST]["failure"] = {"mode": "lost", "after_calls": 100}
        devices[FAILING]["failure"] = {"mode": "ecc_uncorrectable", "xid": {"code": 64}}
        yield profile, on(built, profile, live_dir), pids


def test_gpus_at_work_are_shown_with_processes_and_a_lost_one_leaves_the_others_alone(
    busy: tuple[Profile, dict[str, str], list[int]],
) -> None:
    profile, env, pids = busy
    defaults = profile["device_defaults"]
    with daemon("--interval", "0.2", env=env):
        found = until(
            lambda: (
                (now := status(env))["gpus"][LOST]["state"] == "lost"
                and now["gpus"][FAILING]["xid"] == 64
                and now["gpus"][0]["sm_activity"] is not None
                and now["gpus"][0]["processes"]
                and now
            )
        )
    gpus = found["gpus"]
    assert [gpu["uuid"] for gpu in gpus] == [one["uuid"] for one in profile["devices"]]
    assert [gpu["state"] for gpu in gpus] == ["lost" if index == LOST else "ok" for index in range(8)]
    for index in set(range(8)) - {LOST, FAILING}:
        gpu = gpus[index]
        assert_shown(gpu, merged(defaults, profile["devices"][index]))
        assert gpu["clock_event_reasons"] == ["power limit"]
        assert gpu["xid"] == 0
        assert gpu["throttled_sw_power"] > 0
        assert gpu["throttled_sync_boost"] == 0
        for key, part in GPM_OF_UTILIZATION.items():
            assert gpu[key] == pytest.approx(0.8 * part), key
        assert gpu["dram_activity"] == pytest.approx(0.41)
        assert gpu["pcie_sent_rate"] == pytest.approx(0.8 * 3000 * MIB)
        assert gpu["pcie_received_rate"] == pytest.approx(0.8 * 1000 * MIB)
    assert {key: value for key, value in gpus[LOST].items() if key in VALUES} == dict.fromkeys(VALUES), "no values"
    assert gpus[FAILING]["ecc_uncorrected"] > 0
    listed = {process["pid"]: process for process in gpus[0]["processes"]}
    assert set(listed) == set(pids)
    assert [listed[pid]["memory_used"] for pid in pids] == [20000 * MIB, 300 * MIB]
    assert listed[pids[0]]["sm_utilization"] == pytest.approx(0.7)
    text = gpumon("history", "events", "--json", "--kind", "xid", env=env).stdout
    assert [(one["uuid"], one["details"]["code"]) for one in json.loads(text)["events"]] == [
        (profile["devices"][FAILING]["uuid"], 64)
    ]
