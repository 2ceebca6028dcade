"""AMD GPUs beside NVIDIA ones: an unchanged daemon on a tree of files in place of /sys, and the driver stub."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.conftest import ROOT
from tests.drm import trees
from tests.drm.trees import Program, Tree
from tests.nvml import Stub
from tests.programs import PATIENCE, command, environment, gpumon, status, until

TRAINING = """
import sys, time, types
import gpumon

ASCII = sys.argv[1].encode().hex()
UUID = "-".join((ASCII[:8], ASCII[8:12], ASCII[12:16], ASCII[16:20], ASCII[20:]))
allocated = {"current": 3 << 30, "peak": 3 << 30}
stats = {"reserved_bytes": {"all": {"current": 4 << 30}}, "allocated_bytes": {"all": allocated}}
cuda = types.SimpleNamespace(
    is_initialized=lambda: True, device_count=lambda: 1, current_device=lambda: 0,
    get_device_properties=lambda index: types.SimpleNamespace(uuid=UUID),
    memory_stats_as_nested_dict=lambda index: stats,
)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(hip="6.4", cuda=None))
with gpumon.run("on-rocm", epochs=1000) as run:
    for epoch in run.epochs():
        for step in run.steps(range(10)):
            time.sleep(0.05)
"""
"""A training with a torch on ROCm of our own making, whose card has the serial number in its argument."""
IN_TREE = ["unshare", "--mount", "bash", "-c", 'mount --bind "$0" /sys && exec "$@"']
"""A command in a mount namespace of its own, in which a folder is /sys."""


@pytest.fixture(scope="module", autouse=True)
def may_mount(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("sys")
    done = subprocess.run([*IN_TREE, str(folder), "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounts are not allowed here: {done.stderr.strip()}")


@pytest.fixture
def env(driver_library: Path, live_dir: Path) -> Iterator[dict[str, str]]:
    with Stub(driver_library) as stub:
        yield environment(live_dir, stub.env())


@pytest.fixture
def tree(tmp_path: Path, env: dict[str, str]) -> Iterator[Tree]:
    """Two AMD cards, one of them asleep, and a daemon that reads them beside two NVIDIA GPUs."""
    tree = Tree(tmp_path, [trees.mi300x(), trees.asleep()])
    words = [*IN_TREE, str(tmp_path / "sys"), *command("daemon", "--interval", "0.2")]
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        first = process.stdout.readline()
        assert "nvml: 2 GPUs" in first, first + process.stderr.read()
        assert "drm: 2 GPUs" in first
        yield tree
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
        process.stdout.close()
        process.stderr.close()


def gpus(env: dict[str, str]) -> dict[str, Any]:
    """By name, from JSON that fits its schema."""
    document = status(env)
    schema = json.loads((ROOT / "gpumon/reports/status.schema.json").read_text())
    jsonschema.validate(document, schema)
    assert document["source"] == "nvml,drm"
    return {gpu["name"]: gpu for gpu in document["gpus"]}


def test_gpus_of_both_vendors_are_read_by_one_daemon(tree: Tree, env: dict[str, str]) -> None:
    (card, _) = tree.cards
    found = gpus(env)
    assert len(found) == 3, "the two NVIDIA GPUs have one name"
    amd = found["AMD Instinct MI300X OAM"]
    assert amd["power"] == pytest.approx(card.power_draw(0.0), rel=0.01)
    assert amd["memory_total"] == card.vram
    assert found["AMD Radeon RX 6800"]["state"] == "asleep"
    assert found["NVIDIA H100 80GB HBM3"]["power"] > 0
    text = gpumon("status", "--verbose", env=env)
    assert "Instinct MI300X OAM" in text.stdout


def test_a_card_that_leaves_the_bus_keeps_the_rest(tree: Tree, env: dict[str, str]) -> None:
    card = tree.cards[0]
    for name in ("card0", "renderD128"):
        (tree.root / "sys/class/drm" / name).unlink()
    (tree.root / "sys/bus/pci/devices" / card.address).unlink()
    found = until(lambda: (now := gpus(env))["AMD Instinct MI300X OAM"]["state"] == "lost" and now)
    assert found["AMD Radeon RX 6800"]["state"] == "asleep"
    assert found["NVIDIA H100 80GB HBM3"]["power"] > 0


def test_a_run_of_torch_on_rocm_is_on_its_card(tree: Tree, env: dict[str, str]) -> None:
    card = tree.cards[0]
    with subprocess.Popen([sys.executable, "-c", TRAINING, card.unique_id], env=env) as process:
        tree.programs.append(Program(process.pid, card, kfd_vram=5 << 30, units=304))
        tree.write(0.0)
        gpu = until(lambda: (now := gpus(env)[card.name])["run"] and now["run_used"] and now)
        process.kill()
    assert gpu["run"]["name"] == "on-rocm"
    assert (gpu["run_allocated"], gpu["run_reserved"], gpu["run_used"]) == (3 << 30, 4 << 30, 5 << 30)


def test_a_process_of_kfd_is_shown_with_its_user(tree: Tree, env: dict[str, str]) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        tree.programs.append(Program(process.pid, tree.cards[0], kfd_vram=2**34, units=152))
        tree.write(0.0)
        (shown,) = until(lambda: gpus(env)["AMD Instinct MI300X OAM"]["processes"])
        process.kill()
    assert (shown["pid"], shown["name"], shown["memory_used"]) == (process.pid, "sleep", 2**34)
    assert shown["sm_utilization"] == pytest.approx(0.5)
