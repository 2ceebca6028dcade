"""AMD cards are read from files: every value equals the one that the tree was made from, every gap has a reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.common.numbers import is_known
from gpumon.model.metrics import ENERGY_COUNTER, Availability
from gpumon.sources.drm.files import KernelFile
from tests.drm import trees
from tests.drm.reading import Machine, known
from tests.drm.trees import GIB, KERNEL, Card, put

OK, NOT_SUPPORTED, ASLEEP = Availability.OK, Availability.NOT_SUPPORTED, Availability.ASLEEP
TIMES = (0.0, 1.0, 2.5, 11.0, 40.0)
CARDS: dict[str, Card] = {
    "rx7900": trees.rx7900(),
    "mi300x": trees.mi300x(),
    "mi300x list": trees.mi300x(table=(1, 9)),
    "mi250x": trees.mi250x(0),
    "apu": trees.apu(),
    "strix halo": trees.strix_halo(),
    "without hwmon": trees.without_hwmon(),
}


def truth(card: Card, t: float) -> dict[str, float]:
    """All values that a card has at `t`."""
    core = "edge" if "edge" in card.temperatures else "junction"
    values = {
        "utilization": card.busy(t) / 100,
        "memory_used": card.memory_used(t) + (card.gtt_used(t) if card.is_apu else 0),
        "memory_total": card.vram + (card.gtt if card.is_apu else 0),
        "pcie_generation": 4, "pcie_width": 16, "pcie_generation_max": 5, "pcie_width_max": 16,
    }  # fmt: skip
    if not card.is_apu:
        values |= {"memory_utilization": card.memory_busy(t) / 100, "pcie_replays": card.replays(10 * (t // 10))}
    if card.has_hwmon:
        values |= {
            "power": card.power_draw(t), "temperature": card.temperature(core, t), "clock_sm": card.clock(t),
        }  # fmt: skip
        if "power1_input" in card.power:
            values["power_instant"] = card.power_draw(t)
        if not card.is_apu:
            values["clock_memory"] = card.memory_clock(t)
        if "mem" in card.temperatures:
            values["temperature_memory"] = card.temperature("mem", t)
    if card.has_fan:
        values["fan"] = card.fan(t) / 255
    number = {"edge": 1, "junction": 2}[core]
    for metric, name, scale in (
        ("power_limit", "power1_cap", 1e-6),
        ("temperature_slowdown", f"temp{number}_crit", 1e-3),
        ("temperature_shutdown", f"temp{number}_emergency", 1e-3),
    ):
        if card.has_hwmon and name in card.extra:
            values[metric] = int(card.extra[name]) * scale
    if "temperature_slowdown" in values:
        values["temperature_margin"] = values["temperature_slowdown"] - values["temperature"]
    return values


class TestValues:
    @pytest.mark.parametrize("name", CARDS)
    def test_equal_the_truth(self, name: str, tmp_path: Path) -> None:
        card = CARDS[name]
        machine = Machine(tmp_path, [card])
        for t in TIMES:
            sample = machine.one(t)
            values = known(sample)
            expected = truth(card, t)
            others = {"energy", "event_reasons", "ecc_corrected", "ecc_uncorrected"}
            assert {*values} - others - {key for key in values if key.startswith("throttled")} == {*expected}
            assert sample.state is OK
            for key, value in expected.items():
                assert values[key] == pytest.approx(value, rel=0.01, abs=1e-6), key

    def test_the_mean_power_comes_first(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [trees.rx7900()])
        put(machine.tree.hwmon(trees.rx7900()) / "power1_input", "123000000")
        values = known(machine.one(3.0))
        assert values["power"] == pytest.approx(trees.rx7900().power_draw(3.0), rel=1e-3)
        assert values["power_instant"] == 123

    def test_sensors_of_another_chip_are_not_read(self, tmp_path: Path) -> None:
        card = trees.rx7900()
        machine = Machine(tmp_path, [card])
        put(machine.tree.folder(card) / "hwmon/hwmon1/name", "nvme")
        put(machine.tree.folder(card) / "hwmon/hwmon1/temp1_input", "11000")
        assert known(machine.one(1.0))["temperature"] > 40

    def test_heat_is_no_cause_while_the_card_is_cold(self, tmp_path: Path) -> None:
        card = trees.rx7900()
        machine = Machine(tmp_path, [card])
        hot_spot = {"indep_throttle_status": 1 << 36 | 1}
        machine.tree._table = lambda card, t: hot_spot  # type: ignore[method-assign]
        assert known(machine.one(1.0))["event_reasons"] == 1
        put(machine.tree.hwmon(card) / "temp1_input", "95000")
        assert known(machine.one())["event_reasons"] == 5


class TestEnergy:
    def test_of_the_counter_is_exact(self, tmp_path: Path) -> None:
        card = trees.mi300x()
        machine = Machine(tmp_path, [card])
        first = machine.one(0.0)
        last = machine.one(60.0)
        growth = last.value("gpu.energy") - first.value("gpu.energy")
        assert growth == pytest.approx(card.energy(60.0) - card.energy(0.0), rel=1e-3)
        assert ENERGY_COUNTER not in last.device.missing

    def test_is_integrated_without_a_counter_and_marked(self, tmp_path: Path) -> None:
        card = trees.apu()
        machine = Machine(tmp_path, [card])
        for second in range(61):
            sample = machine.one(float(second))
        assert sample.value("gpu.energy") == pytest.approx(card.energy(60.0) - card.energy(0.0), rel=0.01)
        assert sample.device.missing[ENERGY_COUNTER] is NOT_SUPPORTED

    def test_is_integrated_once_the_counter_is_stuck(self, tmp_path: Path) -> None:
        card = trees.mi300x()
        machine = Machine(tmp_path, [card])
        stuck = machine.tree._table(card, 0.0)
        machine.tree._table = lambda card, t: stuck  # type: ignore[method-assign]
        energies = [machine.one(float(second)).value("gpu.energy") for second in range(61)]
        assert energies == sorted(energies)
        assert energies[-1] - energies[0] == pytest.approx(card.energy(60.0) - card.energy(0.0), rel=0.02)


class TestThrottling:
    @pytest.mark.parametrize("table", [(1, 6), (1, 9)])
    def test_times_are_the_shares_of_the_table(self, table: tuple[int, int], tmp_path: Path) -> None:
        machine = Machine(tmp_path, [trees.mi300x(table=table)])
        first = known(machine.one(0.0))
        for second in range(1, 21):
            last = known(machine.one(float(second)))
        assert first["throttled_sw_power"] == 0
        assert last["throttled_sw_power"] == pytest.approx(20 * trees.PPT_SHARE, rel=0.01)
        assert last["throttled_hw_thermal"] == pytest.approx(20 * trees.HEAT_SHARE, rel=0.01)
        assert last["throttled_hw_power_brake"] == 0

    def test_times_are_right_when_the_counters_wrap_and_never_fall(self, tmp_path: Path) -> None:
        card = trees.mi300x()
        machine = Machine(tmp_path, [card])
        begin = 2**32 - 5_000

        def table(card: Card, t: float) -> dict[str, int]:
            counts = trees.throttling(t)
            names = ("accumulation_counter", "ppt_residency_acc")
            return {**counts, **{name: (counts[name] + begin) % 2**32 for name in names}}

        machine.tree._table = table  # type: ignore[method-assign]
        times = [known(machine.one(float(second)))["throttled_sw_power"] for second in range(21)]
        assert times == sorted(times)
        assert times[-1] == pytest.approx(20 * trees.PPT_SHARE, rel=0.01)
        machine.tree._table = lambda card, t: trees.throttling(0.0)  # type: ignore[method-assign]
        assert known(machine.one(21.0))["throttled_sw_power"] >= times[-1]

    def test_times_are_missing_where_the_table_has_none(self, tmp_path: Path) -> None:
        sample = Machine(tmp_path, [trees.rx7900()]).one(1.0)
        assert sample.device.missing["gpu.throttled_sw_power"] is NOT_SUPPORTED


class TestErrors:
    def test_are_summed_over_the_blocks(self, tmp_path: Path) -> None:
        card = trees.mi300x()
        machine = Machine(tmp_path, [card])
        ras = machine.tree.folder(card) / "ras"
        put(ras / "umc_err_count", "ue: 1\nce: 40")
        put(ras / "gfx_err_count", "ue: 0\nce: 2\nde: 7")
        put(ras / "sdma_err_count", "Query failed")
        put(ras / "features", "feature mask: 0x3")
        values = known(machine.one(1.0))
        assert (values["ecc_corrected"], values["ecc_uncorrected"]) == (42, 1)

    def test_are_missing_without_counters(self, tmp_path: Path) -> None:
        sample = Machine(tmp_path, [trees.rx7900()]).one(1.0)
        assert sample.device.missing["gpu.ecc_uncorrected"] is NOT_SUPPORTED


class TestTwoDies:
    def test_power_counts_once(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [trees.mi250x(0), trees.mi250x(1)])
        first, second = machine.read(5.0)
        assert first.value("gpu.power") == pytest.approx(trees.mi250x(0).power_draw(5.0), rel=0.01)
        for metric in ("gpu.power", "gpu.energy"):
            assert not is_known(second.value(metric))
            assert second.device.missing[metric] is Availability.OF_OTHER_DIE
        assert is_known(second.value("gpu.utilization"))


class TestIdentity:
    def test_of_each_card(self, tmp_path: Path) -> None:
        cards = [trees.mi300x(1), trees.mi300x(0), trees.without_hwmon(), trees.rx7900()]
        machine = Machine(tmp_path, cards)
        devices = [sample.device for sample in machine.read(1.0)]
        # ROCm numbers cards in the order of KFD's nodes
        assert [(device.uuid, device.name) for device in devices] == [
            ("GPU-1f9de0957d137942", "AMD Radeon RX 7900 XTX"),
            ("GPU-a1b2c3d4e5f60718", "AMD Instinct MI300X OAM"),
            ("GPU-a1b2c3d4e5f60719", "AMD Instinct MI300X OAM"),
            ("AMD-0000:41:00.0", "AMD Instinct MI100"),
        ]
        assert [device.index for device in devices] == [0, 1, 2, 3]
        assert devices[0].address == "0000:03:00.0"
        assert machine.source.driver().version == f"amdgpu of Linux {KERNEL}"

    def test_a_serial_number_that_cannot_be_read_is_known_to_kfd(self, tmp_path: Path) -> None:
        card = trees.mi300x()
        machine = Machine(tmp_path, [card])
        (machine.tree.folder(card) / "unique_id").unlink()
        machine.reopen()
        assert machine.one(1.0).device.uuid == f"GPU-{card.unique_id}"

    def test_a_card_that_is_in_no_list_has_its_number(self, tmp_path: Path) -> None:
        assert Machine(tmp_path, [trees.apu()]).one(1.0).device.name == "AMD GPU 15bf"

    def test_a_processor_with_graphics_is_left_out_beside_a_card(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [trees.apu(), trees.rx7900()])
        assert machine.one(1.0).device.address == trees.rx7900().address


class TestSleepingCard:
    def test_is_not_woken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        machine = Machine(tmp_path, [trees.asleep(), trees.rx7900()])
        opened: list[str] = []
        real = os.open

        def record(path: str, flags: int, *rest: int) -> int:
            if not flags & os.O_WRONLY:  # the tree is written by this process, too
                opened.append(path)
            return real(path, flags, *rest)

        monkeypatch.setattr(os, "open", record)
        asleep = machine.read(1.0)[1]
        machine.read(20.0)
        assert asleep.state is ASLEEP
        assert known(asleep) == {}
        touched = {Path(path).name for path in opened if trees.asleep().address in os.path.realpath(path)}
        assert touched <= {"uevent", "unique_id", "revision", "product_name", "runtime_status"}
        assert any("gpu_metrics" in path for path in opened), "the other card is read"

    def test_wakes_and_sleeps_again(self, tmp_path: Path) -> None:
        card = trees.rx7900()
        machine = Machine(tmp_path, [card])
        status = machine.tree.folder(card) / "power/runtime_status"
        assert machine.one(1.0).state is OK
        put(status, "suspended")
        sample = machine.one(2.0)
        assert (sample.state, known(sample)) == (ASLEEP, {})
        put(status, "active")
        sample = machine.one(3.0)
        assert sample.state is OK
        assert known(sample)["power_limit"] == 339


class TestRemoval:
    def test_of_a_card_keeps_the_rest(self, tmp_path: Path) -> None:
        first, second = trees.mi300x(0), trees.mi300x(1)
        machine = Machine(tmp_path, [first, second])
        machine.read(1.0)
        (tmp_path / "sys/class/drm/card0").unlink()
        (tmp_path / "sys/class/drm/renderD128").unlink()
        (tmp_path / "sys/bus/pci/devices" / first.address).unlink()
        lost, rest = machine.read(10.0)
        assert (lost.state, rest.state) == (Availability.LOST, OK)
        assert known(lost) == {}

    def test_of_the_driver_removes_the_row(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [trees.mi300x(0), trees.mi300x(1)])
        machine.read(1.0)
        (tmp_path / "sys/class/drm/card1").unlink()
        (tmp_path / "sys/class/drm/renderD129").unlink()
        assert [sample.device.index for sample in machine.read(10.0)] == [0]

    def test_of_all_cards_is_a_problem(self, tmp_path: Path) -> None:
        machine = Machine(tmp_path, [])
        assert machine.read(1.0) == []
        assert machine.source.origin().problem


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


WRONG: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "empty": lambda path: put(path, b""),
    "text": lambda path: put(path, "N/A"),
    "negative": lambda path: put(path, "-5"),
    "huge": lambda path: put(path, "9" * 19),
    "too long": lambda path: put(path, "1" * 100_000),
    "bytes": lambda path: put(path, bytes(range(256))),
    "folder": _folder,
    "fifo": _fifo,
}
FILES = {
    "gpu_busy_percent": {"utilization"},
    "mem_busy_percent": {"memory_utilization"},
    "mem_info_vram_used": {"memory_used"},
    "mem_info_vram_total": {"memory_total"},
    "current_link_speed": {"pcie_generation"},
    "max_link_width": {"pcie_width_max"},
    "hwmon/hwmon3/power1_average": {"power"},
    "hwmon/hwmon3/power1_cap": {"power_limit"},
    "hwmon/hwmon3/temp1_input": {"temperature", "temperature_margin"},
    "hwmon/hwmon3/temp3_input": {"temperature_memory"},
    "hwmon/hwmon3/freq1_input": {"clock_sm"},
    "hwmon/hwmon3/pwm1": {"fan"},
}


class TestBrokenFile:
    @pytest.mark.parametrize("file", FILES)
    @pytest.mark.parametrize("wrong", WRONG)
    def test_loses_its_own_metrics_only(self, file: str, wrong: str, tmp_path: Path) -> None:
        card = Card("0000:03:00.0", "744c", table=None, extra=trees.rx7900().extra)
        machine = Machine(tmp_path, [card])
        before = known(machine.one())
        WRONG[wrong](machine.tree.folder(card) / file)
        machine.reopen()
        sample = machine.one()
        assert {*before} - {*known(sample)} - {"energy"} == FILES[file]
        assert 0 not in [known(sample).get(key) for key in FILES[file]]

    @pytest.mark.parametrize(
        ("error", "reason"),
        [("EINVAL", NOT_SUPPORTED), ("EOPNOTSUPP", NOT_SUPPORTED), ("ENODATA", NOT_SUPPORTED),
         ("EBUSY", Availability.FAILED), ("EIO", Availability.FAILED), ("EPERM", Availability.FAILED)],
    )  # fmt: skip
    def test_an_error_of_the_driver_is_a_reason(
        self, error: str, reason: Availability, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import errno

        card = Card("0000:03:00.0", "744c", table=None)
        machine = Machine(tmp_path, [card])
        real = os.pread

        def fail(fd: int, length: int, offset: int) -> bytes:
            if os.readlink(f"/proc/self/fd/{fd}").endswith(("gpu_busy_percent", "power1_average")):
                raise OSError(getattr(errno, error), error)
            return real(fd, length, offset)

        monkeypatch.setattr(os, "pread", fail)
        sample = machine.one(1.0)
        assert sample.device.missing["gpu.utilization"] is sample.device.missing["gpu.power"] is reason
        assert known(sample)["memory_total"] == 24 * GIB
        monkeypatch.undo()
        assert {"utilization", "power"} <= {*known(machine.one(2.0))}

    def test_a_file_that_may_not_be_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object, **more: object) -> int:
            raise PermissionError(13, "denied")

        monkeypatch.setattr(os, "open", refuse)
        file = KernelFile(str(tmp_path / "anything"))
        assert not is_known(file.number())
        assert file.why is Availability.NO_PERMISSION
