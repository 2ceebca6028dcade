"""Intel GPUs with i915 and xe: what the files have, and what follows from the clients."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.common.numbers import is_known
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.sources.drm.pci import memory_window
from tests.drm import trees
from tests.drm.reading import Machine, known
from tests.drm.trees import GIB, Program, put

MIB = 2**20
XE, I915 = trees.battlemage(), trees.arc()


def watched(machine: Machine, seconds: int) -> dict[str, float]:
    """The values after reads in each of so many seconds."""
    for second in range(seconds):
        machine.one(float(second))
    return known(machine.one(float(seconds)))


@pytest.mark.parametrize("card", [XE, I915], ids=["xe", "i915"])
def test_sensors_and_power(card: trees.Card, tmp_path: Path) -> None:
    machine = Machine(tmp_path, [card])
    values = watched(machine, 9)
    mean = card.energy(9.0) - card.energy(8.0)
    assert values["power"] == pytest.approx(mean, rel=0.01)
    assert values["energy"] == pytest.approx(card.energy(9.0), rel=1e-5)
    assert values["power_limit"] == 190
    assert values["temperature"] == pytest.approx(card.temperature("edge", 9.0), rel=0.01)
    assert values["temperature_memory"] == pytest.approx(card.temperature("mem", 9.0), rel=0.01)
    assert values["clock_sm"] == pytest.approx(card.clock(9.0), rel=0.01)
    assert values["memory_total"] == card.vram
    assert values["pcie_width"] == 16


def test_xe_reports_its_idle_time(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [XE])
    first = machine.one(0.0)
    assert first.device.missing["gpu.utilization"] is Availability.TOO_EARLY
    values = watched(machine, 9)
    assert values["utilization"] == pytest.approx(1 - (XE.idle(9.0) - XE.idle(8.0)), abs=0.01)


@pytest.mark.parametrize(("card", "engine"), [(XE, "ccs"), (I915, "render")], ids=["xe", "i915"])
def test_clients_use_engines_and_memory(card: trees.Card, engine: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, [card])
    machine.tree.add(
        Program(61, card, client=1, vram=900 * MIB, engines={engine: 0.5}),
        Program(62, card, client=2, vram=100 * MIB, engines={engine: 0.25}),
    )
    values = watched(machine, 9)
    assert values["memory_used"] == 1000 * MIB
    if card.driver == "i915":
        assert values["utilization"] == pytest.approx(0.75, abs=0.01)
    found = {process.pid: process for process in machine.reading().processes}
    assert {pid: process.memory_used for pid, process in found.items()} == {61: 900 * MIB, 62: 100 * MIB}
    assert found[61].sm_utilization == pytest.approx(0.5, rel=0.01)
    assert found[61].kind == ("compute" if engine == "ccs" else "graphics")


def test_hidden_clients_are_no_idle_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, [I915])
    machine.tree.add(Program(61, I915, client=1, vram=900 * MIB, engines={"render": 0.5}))
    real = os.open

    def refuse(path: str, flags: int, *rest: int) -> int:
        if str(path).endswith("/61/fd"):
            raise PermissionError(13, "denied")
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    watched(machine, 5)
    missing = machine.one(6.0).device.missing
    assert {missing[key] for key in ("gpu.utilization", "gpu.memory_used", PROCESSES)} == {Availability.NO_PERMISSION}


def test_a_gpu_of_a_processor_uses_the_hosts_memory(tmp_path: Path) -> None:
    card = trees.intel_integrated()
    machine = Machine(tmp_path, [card])
    machine.tree.add(Program(61, card, client=1, vram=0, gtt=300 * MIB, engines={"render": 0.5}))
    values = watched(machine, 5)
    assert {"clock_sm", "utilization"} == {*values}
    assert machine.one(6.0).device.missing["gpu.memory_used"] is Availability.SHARED_WITH_HOST
    (process,) = machine.reading(8.0).processes
    assert process.memory_used == 300 * MIB
    assert machine.one().device.uuid == "INTEL-0000:00:02.0"


def test_a_counter_that_stands_still_is_no_power_of_zero(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [I915])
    path = machine.tree.hwmon(I915) / "energy1_input"
    machine.tree.write(3.0)
    path.chmod(0o444)
    text = path.read_text()
    samples = []
    for _ in range(5):
        machine.clock.advance(1)
        put(path, text.strip())
        samples.append(machine.one())
    assert not is_known(samples[-1].value("gpu.power"))
    assert samples[-1].device.missing["gpu.power"] is Availability.UNRELIABLE


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (f"0x0 0x0 0x0\n0x0 0x0 0x0\n0x4000000000 0x{0x4000000000 + 8 * GIB - 1:x} 0x14220c", 8 * GIB),
        ("0x0 0x0 0x0\n0x0 0x0 0x0\n0x4000000000 0x400fffffff 0x14220c", None),  # 256 MiB: a window to a part
        ("0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0", None),
        ("0x0 0x0 0x0", None),
        ("a\nb\nc d e", None),
        ("", None),
    ],
)
def test_the_window_to_the_memory(text: str, size: int | None, tmp_path: Path) -> None:
    put(tmp_path / "resource", text)
    found = memory_window(str(tmp_path))
    assert found == size if size else not is_known(found)
