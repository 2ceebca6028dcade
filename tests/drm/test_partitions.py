"""A card in mode CPX is one row with eight partitions below it, and nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.common.numbers import is_known
from gpumon.model.device import countable_uuids
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.vendors import gpu_label, is_part
from tests.drm import trees
from tests.drm.reading import Machine, known
from tests.drm.trees import GIB, Program, put

CARD = trees.mi300x(0, partitions=8)


def test_the_card_has_the_values_and_each_partition_its_memory_size(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [CARD])
    machine.read(1.0)
    whole, *parts = machine.read(3.0)
    assert whole.device.is_divided
    assert known(whole)["power"] == pytest.approx(CARD.power_draw(3.0), rel=0.01)
    assert [known(part)["memory_total"] for part in parts] == [24 * GIB] * 8
    assert [known(part)["utilization"] for part in parts] == pytest.approx(
        [CARD.partition_busy(n) / 100 for n in range(8)]
    )
    assert {key for part in parts for key in known(part)} == {"memory_total", "utilization"}
    assert {part.device.name for part in parts} == {"AMD Instinct MI300X OAM CPX"}
    for part in parts:
        assert part.device.parent == whole.device.uuid
        assert part.device.missing["gpu.power"] is Availability.OF_WHOLE_GPU
        assert PROCESSES not in part.device.missing
        assert is_part(part.device.uuid)
    assert [part.device.label for part in parts] == [f"0:{number}" for number in range(8)]
    assert len({gpu_label(part.device.uuid, 0) for part in parts}) == 8
    assert len(countable_uuids([sample.device for sample in (whole, *parts)])) == 8
    assert sum(
        sample.value("gpu.memory_used") for sample in (whole, *parts) if is_known(sample.value("gpu.power"))
    ) == (CARD.memory_used(3.0))


def test_processes_are_on_their_partition(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [CARD])
    machine.tree.add(Program(4001, CARD, client=3, vram=5 * GIB, kfd_vram=5 * GIB, units=19, partition=3))
    machine.reading(1.0)
    reading = machine.reading(3.0)
    (process,) = reading.processes
    (part,) = [sample for sample in reading.samples if sample.device.uuid == process.uuid]
    assert part.device.instance == 3
    assert process.sm_utilization == pytest.approx(0.5)


def test_partitions_come_and_go(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [CARD])
    assert len(machine.read(1.0)) == 9
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number in range(1, 8):
        (nodes / str(CARD.node + number)).rename(tmp_path / str(number))
    machine.read(10.0)
    (whole,) = machine.read(12.0)
    assert not whole.device.is_divided
    for number in range(1, 8):
        (tmp_path / str(number)).rename(nodes / str(CARD.node + number))
    machine.read(20.0)
    assert len(machine.read(22.0)) == 9


def test_older_drivers_do_not_number_partitions(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [CARD])
    for number in range(8):
        folder = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(CARD.node + number)
        put(folder / "properties", f"simd_count 152\nsimd_per_cu 4\nlocation_id {0x1B00}\ndomain 0\n")
    machine.reopen()
    assert [sample.device.instance for sample in machine.read(1.0)] == [-1, *range(8)]


def test_partitions_of_a_sleeping_card_sleep(tmp_path: Path) -> None:
    machine = Machine(tmp_path, [CARD])
    put(machine.tree.folder(CARD) / "power/runtime_status", "suspended")
    samples = machine.read(1.0)
    assert {sample.state for sample in samples} == {Availability.ASLEEP}
    assert [known(sample) for sample in samples] == [{}] * 9
