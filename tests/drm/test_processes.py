"""Processes on cards: from KFD those that compute, from fdinfo those that draw, with memory and shares."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.common.numbers import is_known
from gpumon.model.metrics import PROCESS_SHARES, PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.sources.drm.clients import ClientScanner, parse_fdinfo
from gpumon.sources.drm.kfd import read_nodes, read_processes
from gpumon.sources.processes import ProcessTable
from tests.drm import trees
from tests.drm.reading import Machine
from tests.drm.trees import Card, Program, put
from tests.fakes import FakeClock

MIB = 2**20


def processes(machine: Machine, t: float) -> dict[int, Process]:
    """By pid, of the second of two reads."""
    machine.reading(t - 2)
    return {process.pid: process for process in machine.reading(t).processes}


class TestComputing:
    CARD = trees.mi300x()

    def test_is_listed_with_memory_and_share(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [self.CARD, trees.mi300x(1)])
        machine.tree.add(Program(4001, self.CARD, kfd_vram=900 * MIB, units=76))
        (process,) = processes(machine, 10.0).values()
        assert (process.pid, process.kind, process.memory_used) == (4001, "compute", 900 * MIB)
        assert process.sm_utilization == pytest.approx(76 / 304)
        assert process.uuid == f"GPU-{self.CARD.unique_id}"

    def test_is_no_idle_process_where_units_are_not_counted(self, tmp_path: Path) -> None:
        card = trees.rx7900()
        machine = Machine(tmp_path, [card])
        machine.tree.add(Program(4001, card, client=3, vram=900 * MIB, engines={"compute": 0.0}, kfd_vram=900 * MIB))
        (process,) = processes(machine, 10.0).values()
        assert not is_known(process.sm_utilization)
        assert machine.one(11.0).device.missing[PROCESS_SHARES] is Availability.NOT_SUPPORTED

    def test_is_described_by_the_machine(self, tmp_path: Path) -> None:
        table = ProcessTable(FakeClock(), proc=str(tmp_path / "proc"))
        machine = Machine(tmp_path, [self.CARD], table.describe)
        machine.tree.add(Program(4001, self.CARD, kfd_vram=MIB, units=1, name="train"))
        (process,) = processes(machine, 10.0).values()
        assert (process.name, process.user) == ("train", "root")
        table.close()

    def test_has_the_larger_memory_of_both_lists(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [self.CARD])
        machine.tree.add(Program(4001, self.CARD, client=1, vram=700 * MIB, kfd_vram=600 * MIB, units=0))
        (process,) = processes(machine, 10.0).values()
        assert process.memory_used == 700 * MIB
        assert process.sm_utilization == 0, "the card counts its units, and none runs it"

    def test_hides_no_gap_in_the_list_from_other_users(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [self.CARD])
        machine.reading(1.0)
        sample = machine.one(2.0)
        assert PROCESSES not in sample.device.missing
        assert machine.reading(3.0).processes == ()


class TestDrawing:
    CARD = trees.rx7900()

    @pytest.mark.parametrize("old_names", [False, True])
    def test_is_listed_with_memory_and_share(self, old_names: bool, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [self.CARD])
        engines = {"gfx": 0.4, "compute": 0.0, "dec": 0.1, "enc": 0.05}
        machine.tree.add(
            Program(51, self.CARD, client=9, vram=300 * MIB, gtt=5 * MIB, engines=engines, old_names=old_names)
        )
        (process,) = processes(machine, 10.0).values()
        assert (process.kind, process.memory_used) == ("graphics", 300 * MIB)
        shares = (process.sm_utilization, process.encoder_utilization, process.decoder_utilization)
        assert shares == pytest.approx((0.4, 0.05, 0.1), rel=0.01)

    def test_a_client_of_two_processes_counts_once(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [self.CARD])
        parent = Program(51, self.CARD, client=9, vram=300 * MIB, engines={"gfx": 0.4}, descriptors=(7, 8))
        machine.tree.add(parent, Program(52, self.CARD, client=9, vram=300 * MIB, engines={"gfx": 0.4}))
        found = processes(machine, 10.0)
        assert [*found] == [51]
        assert found[51].sm_utilization == pytest.approx(0.4, rel=0.01)

    def test_two_clients_of_a_process_are_one_process(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [self.CARD])
        machine.tree.add(Program(51, self.CARD, client=9, vram=300 * MIB, engines={"gfx": 0.4}))
        machine.tree.programs.append(Program(51, self.CARD, 10, 100 * MIB, engines={"gfx": 0.2}, descriptors=(11,)))
        (tmp_path / "proc/51/fd/11").symlink_to("/dev/dri/card0")
        (process,) = processes(machine, 10.0).values()
        assert process.memory_used == 400 * MIB
        assert process.sm_utilization == pytest.approx(0.6, rel=0.01)

    def test_memory_of_a_processor_with_graphics_is_the_hosts(self, tmp_path: Path) -> None:
        card = trees.apu()
        machine = Machine(tmp_path, [card])
        machine.tree.add(Program(51, card, client=9, vram=10 * MIB, gtt=4000 * MIB))
        assert processes(machine, 10.0)[51].memory_used == 4010 * MIB

    def test_files_of_other_users_are_a_reason(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        card = Card("0000:03:00.0", "744c", node=1)
        machine = Machine(tmp_path, [card])
        machine.tree.add(Program(51, card, client=9))
        nodes = tmp_path / "sys/class/kfd"
        nodes.rename(tmp_path / "sys/class/none")  # no ROCm
        real = os.open

        def refuse(path: str, flags: int, *rest: int) -> int:
            if str(path).endswith("/51/fd"):
                raise PermissionError(13, "denied")
            return real(path, flags, *rest)

        monkeypatch.setattr(os, "open", refuse)
        machine.reading(1.0)
        assert machine.one(2.0).device.missing[PROCESSES] is Availability.NO_PERMISSION


class TestList:
    def test_is_the_same_object_while_nothing_changes(self, tmp_path: Path) -> None:
        card = trees.mi300x()
        machine = Machine(tmp_path, [card])
        program = Program(4001, card, client=2, kfd_vram=MIB, units=4, engines={"gfx": 0.5})
        machine.tree.add(program)
        machine.reading(2.0)
        before = machine.reading(12.0).processes
        for t in (13.0, 14.0, 16.0, 18.0):
            assert machine.reading(t).processes is before
        machine.tree.end(program)
        assert machine.reading(20.0).processes == ()
        assert len(before) == 1


class TestFdinfo:
    def test_units(self) -> None:
        head = b"drm-driver:\tamdgpu\ndrm-client-id:\t4\ndrm-pdev:\t0000:03:00.0\n"
        amounts = {b"5": 5, b"5 KiB": 5120, b"5 MiB": 5 * MIB}
        for text, size in amounts.items():
            client = parse_fdinfo(1, head + b"drm-resident-vram:\t" + text)
            assert client is not None
            assert client.device_memory == size

    def test_the_resident_size_is_taken_before_the_total(self) -> None:
        client = parse_fdinfo(1, fdinfo() + b"\ndrm-total-vram:\t999 MiB\ndrm-resident-vram:\t3 MiB")
        assert client is not None
        assert client.device_memory == 3 * MIB

    @pytest.mark.parametrize("text", [b"", b"pos:\t0", b"drm-driver:\tamdgpu\ndrm-client-id:\t4", b"\xff" * 900])
    def test_of_other_files(self, text: bytes) -> None:
        assert parse_fdinfo(1, text) is None

    def test_any_bytes_are_parsed(self) -> None:
        fuzz(5_000)

    @pytest.mark.slow
    def test_a_million_texts_are_parsed(self) -> None:
        fuzz(1_000_000)


def fdinfo() -> bytes:
    return Program(1, trees.rx7900(), 4, engines={"gfx": 0.5, "dec": 0.25}, old_names=True).fdinfo(3.0).encode()


def fuzz(count: int) -> None:
    rng = random.Random(3)
    texts = [fdinfo(), Program(1, trees.rx7900(), 4, 5, 6, {"compute": 1.0}).fdinfo(9.0).encode()]
    parsed = 0
    for _ in range(count):
        data = bytearray(rng.choice(texts))
        for _ in range(rng.randrange(6)):
            data[rng.randrange(len(data))] = rng.choice(b"0123456789 -:\n\t\xff\0aK")
        client = parse_fdinfo(1, bytes(data))
        if client is None:
            continue
        parsed += 1
        for amount in (
            *client.busy.values(),
            *client.memory.values(),
            *client.cycles.values(),
            *client.capacity.values(),
        ):
            assert 0 <= amount <= 2**65
    assert parsed > count / 4


BAD: dict[str, Callable[[Path], None]] = {
    "text": lambda path: put(path, "many"),
    "negative": lambda path: put(path, "-4"),
    "huge": lambda path: put(path, "9" * 40),
    "missing": Path.unlink,
}


class TestKfd:
    @pytest.mark.parametrize("wrong", BAD)
    @pytest.mark.parametrize("file", ["vram_10200", "stats_10200/cu_occupancy"])
    def test_a_broken_file_loses_its_own_value(self, file: str, wrong: str, tmp_path: Path) -> None:
        card = trees.mi300x()
        machine = Machine(tmp_path, [card])
        machine.tree.add(Program(4001, card, kfd_vram=900 * MIB, units=76))
        BAD[wrong](tmp_path / "sys/class/kfd/kfd/proc/4001" / file)
        (process,) = read_processes(str(tmp_path))
        values = {"vram_10200": process.memory, "stats_10200/cu_occupancy": process.compute_units}
        assert [is_known(value) for name, value in values.items() if name != file] == [True]
        assert not is_known(values[file]) or wrong == "huge"

    def test_nodes(self, tmp_path: Path) -> None:
        Machine(tmp_path, [trees.mi300x(0, partitions=8), trees.rx7900()])
        nodes = read_nodes(str(tmp_path))
        assert len(nodes) == 9
        assert [node.partition for node in nodes if node.address == "0000:1b:00.0"] == [*range(8)]
        assert {node.memory for node in nodes} == {24 * 2**30}
        assert nodes[-1].compute_units == 304 // 8

    def test_of_hostile_nodes(self, tmp_path: Path) -> None:
        folder = tmp_path / "sys/class/kfd/kfd/topology/nodes"
        put(folder / "1/gpu_id", "77")
        put(folder / "1/properties", "simd_per_cu 0\nsimd_count 99999999999999999999999\nlocation_id -4\ndomain x\n")
        put(folder / "x/gpu_id", "78")
        (node,) = read_nodes(str(tmp_path))
        assert (node.compute_units, node.address) == (0, "0000:00:00.0")
        assert not is_known(node.memory)


def test_the_scan_reads_no_process_without_a_device(tmp_path: Path) -> None:
    card = trees.rx7900()
    machine = Machine(tmp_path, [card])
    machine.tree.add(Program(51, card, client=9))
    put(tmp_path / "proc/77/fdinfo/3", Program(77, card, client=10).fdinfo(0.0))
    (tmp_path / "proc/77/fd").mkdir()
    (tmp_path / "proc/77/fd/3").symlink_to("/dev/null")
    scanner = ClientScanner(str(tmp_path))
    scanner.scan()
    assert [client.pid for client in scanner.read()] == [51]
