"""Writes trees of files as the kernel shows them. The values of a card are known functions of time.

Each file is written in place, because a source keeps it open. Run `python -m tests.drm` to write a tree for a demo.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.drm.tables import make_table

GIB = 2**30
KERNEL = "6.12.9-test"


@dataclass(frozen=True)
class Card:
    """What a card has. Files that are not named do not exist."""

    address: str
    device_id: str
    name: str = ""
    """Content of `product_name`."""
    driver: str = "amdgpu"
    unique_id: str = ""
    table: tuple[int, int] | None = (1, 3)
    temperatures: Sequence[str] = ("edge", "junction", "mem")
    power: Sequence[str] = ("power1_average",)
    vram: int = 24 * GIB
    gtt: int = 31 * GIB
    watts: float = 200.0
    """Mean power; it swings by a quarter of this."""
    is_apu: bool = False
    has_hwmon: bool = True
    has_fan: bool = True
    is_second_die: bool = False
    partitions: int = 1
    compute_units: int = 96
    phase: float = 0.0
    runtime: str = "active"
    node: int = 1
    """Number of its first KFD node."""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def vendor(self) -> str:
        return "8086" if self.driver in ("i915", "xe") else "1002"

    # The truth ------------------------------------------------------------------------------------

    def busy(self, t: float) -> int:
        return round(55 + 40 * math.sin(t / 7 + self.phase))

    def partition_busy(self, number: int) -> int:
        return 10 * number

    def memory_busy(self, t: float) -> int:
        return round(30 + 25 * math.sin(t / 5 + self.phase))

    def memory_used(self, t: float) -> int:
        return round(self.vram * (0.5 + 0.25 * math.sin(t / 60 + self.phase)))

    def gtt_used(self, t: float) -> int:
        return round(self.gtt * (0.4 + 0.2 * math.sin(t / 50 + self.phase)))

    def idle(self, t: float) -> float:
        """Seconds of idleness from 0 to `t`."""
        return t - (0.55 * t + 0.4 * 7 * (math.cos(self.phase) - math.cos(t / 7 + self.phase)))

    def power_draw(self, t: float) -> float:
        return self.watts * (1 + 0.25 * math.sin(t / 4 + self.phase))

    def energy(self, t: float) -> float:
        """The integral of `power_draw` from 0 to `t`, in J, after an earlier use of 1 MJ."""
        return 1e6 + self.watts * (t + (math.cos(self.phase) - math.cos(t / 4 + self.phase)))

    def temperature(self, label: str, t: float) -> float:
        return {"edge": 55.0, "junction": 70.0, "mem": 62.0}[label] + 8 * math.sin(t / 30 + self.phase)

    def clock(self, t: float) -> int:
        return round((1500 + 600 * math.sin(t / 6 + self.phase)) * 1e6)

    def memory_clock(self, t: float) -> int:
        return round((1100 + 100 * math.sin(t / 9 + self.phase)) * 1e6)

    def fan(self, t: float) -> int:
        return round(128 + 60 * math.sin(t / 20 + self.phase))

    def replays(self, t: float) -> int:
        return int(t // 10)


def rx7900() -> Card:
    return Card(
        "0000:03:00.0", "744c", unique_id="1f9de0957d137942",
        extra={"revision": "0xc8", "power1_cap": "339000000", "temp1_crit": "100000", "temp1_emergency": "105000"},
    )  # fmt: skip


def mi300x(number: int = 0, partitions: int = 1, table: tuple[int, int] = (1, 6)) -> Card:
    return Card(
        f"0000:{0x1B + 0x10 * number:02x}:00.0", "74a1", "AMD Instinct MI300X OAM",
        unique_id=f"{0xA1B2C3D4E5F60718 + number:016x}", table=table, temperatures=("junction", "mem"),
        power=("power1_input",), vram=192 * GIB, watts=500.0, has_fan=False, partitions=partitions, compute_units=304,
        phase=float(number), node=2 + number * partitions,
        extra={"power1_cap": "750000000", "temp2_crit": "100000"},
    )  # fmt: skip


def mi250x(die: int) -> Card:
    return Card(
        f"0000:{0xC1 + 5 * die:02x}:00.0", "740c", "AMD Instinct MI250X", unique_id=f"{0xD1E0000000000000 + die:016x}",
        vram=64 * GIB, watts=400.0, has_fan=False, is_second_die=die == 1, compute_units=110, phase=0.5 * die,
        node=4 + die, extra={} if die else {"power1_cap": "560000000"},
    )  # fmt: skip


def apu() -> Card:
    """A processor of the kind Phoenix: the memory of a model is in GTT, and no file counts memory activity."""
    return Card(
        "0000:c5:00.0", "15bf", table=(2, 3), temperatures=("edge",), power=("power1_average",), vram=GIB // 2,
        watts=30.0, is_apu=True, has_fan=False, compute_units=12,
    )  # fmt: skip


def strix_halo() -> Card:
    """A large APU, with a table of version 3.0 that this generator does not write."""
    return Card(
        "0000:c6:00.0", "1586", table=None, temperatures=("edge",), power=("power1_input",), vram=GIB, gtt=110 * GIB,
        watts=90.0, is_apu=True, has_fan=False, compute_units=40,
    )  # fmt: skip


def without_hwmon() -> Card:
    return Card(
        "0000:41:00.0", "738c", "AMD Instinct MI100", table=None, has_hwmon=False, has_fan=False, vram=32 * GIB, node=9
    )


def asleep() -> Card:
    return Card("0000:44:00.0", "73bf", "AMD Radeon RX 6800", unique_id="77aa", runtime="suspended", node=10)


def battlemage() -> Card:
    """An Arc B580 with the driver xe."""
    return Card(
        "0000:07:00.0", "e20b", driver="xe", vram=12 * GIB, watts=120.0,
        extra={"power1_max": "190000000", "energy1_label": "card", "energy2_label": "pkg", "energy2_input": "5",
               "temp2_label": "pkg", "temp3_label": "vram"},
    )  # fmt: skip


def arc() -> Card:
    """An Arc A770 with the driver i915, which has no file with the utilization."""
    return Card("0000:08:00.0", "56a0", driver="i915", vram=16 * GIB, watts=150.0, extra={"power1_max": "190000000"})


def intel_integrated() -> Card:
    return Card("0000:00:02.0", "46a6", driver="i915", has_hwmon=False)


class Tree:
    """A tree of files with these cards."""

    def __init__(self, root: Path, cards: Sequence[Card]) -> None:
        self.root = root
        self.cards = cards
        self.programs: list[Program] = []
        for number, card in enumerate(cards):
            self._make(number, card)
        self.write(0.0)
        put(root / "proc/sys/kernel/osrelease", KERNEL)
        put(root / "usr/share/libdrm/amdgpu.ids", "# List\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX")

    def folder(self, card: Card) -> Path:
        """The device's own folder."""
        return self.root / "sys/devices/pci0000:00" / card.address

    def hwmon(self, card: Card) -> Path:
        return self.folder(card) / "hwmon/hwmon3"

    def _make(self, number: int, card: Card) -> None:
        """Everything that does not change."""
        folder = self.folder(card)
        ids = f"{card.vendor.upper()}:{card.device_id.upper()}"
        uevent = f"DRIVER={card.driver}\nPCI_CLASS=30000\nPCI_ID={ids}\nPCI_SLOT_NAME={card.address}\n"
        texts = {
            "uevent": uevent, "vendor": f"0x{card.vendor}", "device": f"0x{card.device_id}", "class": "0x030000",
            "power/control": "auto", "power/runtime_status": card.runtime, "max_link_speed": "32.0 GT/s PCIe",
            "max_link_width": "16", "current_link_speed": "16.0 GT/s PCIe", "current_link_width": "16",
            "revision": card.extra.get("revision", "0x00"),
        }  # fmt: skip
        if card.name:
            texts["product_name"] = card.name
        if card.unique_id:
            texts["unique_id"] = card.unique_id
        for name, text in texts.items():
            put(folder / name, text)
        link(folder / "driver", self.root / "sys/bus/pci/drivers" / card.driver)
        link(self.root / "sys/bus/pci/devices" / card.address, folder)
        for node in (f"card{number}", f"renderD{128 + number}"):
            (folder / "drm" / node).mkdir(parents=True, exist_ok=True)
            link(folder / "drm" / node / "device", folder)
            link(self.root / "sys/class/drm" / node, folder / "drm" / node)
            put(self.root / "dev/dri" / node, "")
        if card.has_hwmon:
            put(self.hwmon(card) / "name", card.driver)
        if card.driver == "amdgpu":
            self._make_amd(card)
        else:
            begin = 0x4000000000
            bars = f"0xa0000000 0xa0ffffff 0x40200\n0x0 0x0 0x0\n0x{begin:x} 0x{begin + card.vram - 1:x} 0x14220c\n"
            put(folder / "resource", bars)
            for name, text in card.extra.items():
                put(self.hwmon(card) / name, text)

    def _make_amd(self, card: Card) -> None:
        hwmon = self.hwmon(card)
        if card.has_hwmon:
            for number, label in enumerate(("edge", "junction", "mem"), 1):
                if label in card.temperatures:
                    put(hwmon / f"temp{number}_label", label)
            put(hwmon / "freq1_label", "sclk")
            put(hwmon / "freq2_label", "mclk")
            for name, text in card.extra.items():
                if name.startswith(("temp", "power")):
                    put(hwmon / name, text)
        if card.partitions > 1:
            put(self.folder(card) / "current_compute_partition", "CPX")
        for partition in range(card.partitions):
            self._make_node(card, partition)
        put(self.root / "dev/kfd", "")

    def _make_node(self, card: Card, partition: int) -> None:
        nodes = self.root / "sys/class/kfd/kfd/topology/nodes"
        put(nodes / "0/gpu_id", "0")
        put(nodes / "0/properties", "cpu_cores_count 64\nsimd_count 0\n")
        node = nodes / str(card.node + partition)
        domain, bus, rest = card.address.split(":")
        location = int(bus, 16) << 8 | int(rest[:2], 16) << 3 | int(rest[3:]) | partition << 28
        units = card.compute_units // card.partitions
        put(node / "gpu_id", str(gpu_id(card, partition)))
        properties = {
            "simd_count": units * 4, "simd_per_cu": 4, "location_id": location, "domain": int(domain, 16),
            "unique_id": int(card.unique_id or "0", 16),
        }  # fmt: skip
        put(node / "properties", "".join(f"{name} {value}\n" for name, value in properties.items()))
        memory = card.vram // card.partitions
        put(node / "mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {memory}\nflags 0\n")

    def write(self, t: float) -> None:
        """Write all values as they are `t` seconds after the start."""
        for card in self.cards:
            if card.driver == "amdgpu":
                self._write_amd(card, t)
            else:
                self._write_intel(card, t)

        for program in self.programs:
            self._write_program(program, t)

    def add(self, *programs: Program) -> None:
        """Start programs."""
        self.programs += programs
        for program in programs:
            folder = self.root / "proc" / str(program.pid)
            put(folder / "stat", f"{program.pid} ({program.name}) S 1 " + "0 " * 18 + "4096 100 0")
            (folder / "fd").mkdir(exist_ok=True)
            for number in program.descriptors if program.client else ():
                (folder / "fd" / str(number)).symlink_to("/dev/dri/renderD128")
        self.write(0.0)

    def end(self, program: Program) -> None:
        """End a program."""
        self.programs.remove(program)
        shutil.rmtree(self.root / "proc" / str(program.pid))
        shutil.rmtree(self.root / "sys/class/kfd/kfd/proc" / str(program.pid), ignore_errors=True)

    def _write_program(self, program: Program, t: float) -> None:
        for number in program.descriptors if program.client else ():
            put(self.root / "proc" / str(program.pid) / "fdinfo" / str(number), program.fdinfo(t))
        if not program.kfd_vram:
            return
        folder = self.root / "sys/class/kfd/kfd/proc" / str(program.pid)
        for card in self.cards:
            for partition in range(card.partitions if card.driver == "amdgpu" else 0):
                number = gpu_id(card, partition)
                is_here = card == program.card and partition == program.partition
                put(folder / f"vram_{number}", str(program.kfd_vram if is_here else 0))
                put(folder / f"sdma_{number}", "0")
                if program.units is not None:
                    put(folder / f"stats_{number}/cu_occupancy", str(program.units if is_here else 0))

    def _write_intel(self, card: Card, t: float) -> None:
        folder, hwmon = self.folder(card), self.hwmon(card)
        megahertz = str(card.clock(t) // 1_000_000)
        if card.driver == "xe":
            put(folder / "tile0/gt0/freq0/act_freq", megahertz)
            put(folder / "tile0/gt0/gtidle/idle_residency_ms", str(round(1000 * card.idle(t))))
        else:
            (node,) = [path for path in (folder / "drm").iterdir() if path.name.startswith("card")]
            put(node / "gt/gt0/rps_act_freq_mhz", megahertz)
        if card.has_hwmon:
            put(hwmon / "energy1_input", str(round(1e6 * card.energy(t))))
            for number, label in ((2, "edge"), (3, "mem")):
                put(hwmon / f"temp{number}_input", str(round(1000 * card.temperature(label, t))))

    def _write_amd(self, card: Card, t: float) -> None:
        folder, hwmon = self.folder(card), self.hwmon(card)
        put(folder / "gpu_busy_percent", str(card.busy(t)))
        put(folder / "mem_info_vram_total", str(card.vram))
        put(folder / "mem_info_vram_used", str(card.memory_used(t)))
        put(folder / "mem_info_gtt_total", str(card.gtt))
        put(folder / "mem_info_gtt_used", str(card.gtt_used(t)))
        if not card.is_apu:
            put(folder / "mem_busy_percent", str(card.memory_busy(t)))
            put(folder / "pcie_replay_count", str(card.replays(t)))
        if card.table is not None:
            put(folder / "gpu_metrics", make_table(card.table, self._table(card, t)))
        if not card.has_hwmon:
            return
        power = 0 if card.is_second_die else round(1e6 * card.power_draw(t))
        for name in card.power:
            put(hwmon / name, str(power))
        for number, label in enumerate(("edge", "junction", "mem"), 1):
            if label in card.temperatures:
                put(hwmon / f"temp{number}_input", str(round(1000 * card.temperature(label, t))))
        put(hwmon / "freq1_input", str(card.clock(t)))
        if not card.is_apu:
            put(hwmon / "freq2_input", str(card.memory_clock(t)))
        if card.has_fan:
            put(hwmon / "pwm1", str(card.fan(t)))
            put(hwmon / "pwm1_max", "255")

    def _table(self, card: Card, t: float) -> dict[str, int]:
        energy = 0 if card.is_second_die else round(card.energy(t) * 2**16)
        table = {
            "gfx_activity": card.busy(t), "umc_activity": card.memory_busy(t), "energy_accumulator": energy,
            "socket_power": 0 if card.is_second_die else round(card.power_draw(t)), "indep_throttle_status": 0,
            "current_gfxclk": card.clock(t) // 1_000_000,
        }  # fmt: skip
        shares = {f"partition{number}": card.partition_busy(number) for number in range(card.partitions)}
        return {**table, **throttling(t), **(shares if card.partitions > 1 else {})}


@dataclass(frozen=True)
class Program:
    """A process that uses a card. Each engine is busy for this share of the time."""

    pid: int
    card: Card
    client: int = 0
    """Number of the DRM client; 0 for a process that only KFD knows."""
    vram: int = 0
    gtt: int = 0
    engines: Mapping[str, float] = field(default_factory=dict)
    kfd_vram: int = 0
    """Memory that KFD reports; 0 for a process that does not compute."""
    units: int | None = None
    """Compute units that run it; None where the card does not count them."""
    partition: int = 0
    descriptors: Sequence[int] = (7,)
    name: str = "python"
    old_names: bool = False

    def fdinfo(self, t: float) -> str:
        """The file of the client in fdinfo, in the format of its driver."""
        lines = [
            "pos:\t0", "flags:\t02100002", f"drm-driver:\t{self.card.driver}", f"drm-client-id:\t{self.client}",
            f"drm-pdev:\t{self.card.address}",
        ]  # fmt: skip
        kind = "memory" if self.old_names else "resident"
        regions = {"amdgpu": ("vram", "gtt"), "i915": ("local0", "system0"), "xe": ("vram0", "gtt")}[self.card.driver]
        lines += [f"drm-total-{region}:\t{2**50} KiB" for region in regions if not self.old_names]
        lines += [
            f"drm-{kind}-{region}:\t{size // 1024} KiB"
            for region, size in zip(regions, (self.vram, self.gtt), strict=True)
        ]
        for engine, share in self.engines.items():
            if self.card.driver == "xe":  # in cycles of 19.2 MHz
                lines += [
                    f"drm-cycles-{engine}:\t{round(19.2e6 * share * t)}",
                    f"drm-total-cycles-{engine}:\t{round(19.2e6 * t)}",
                ]
            else:
                lines.append(f"drm-engine-{engine}:\t{round(1e9 * share * t)} ns")
        return "\n".join(lines)


PPT_SHARE, HEAT_SHARE = 0.25, 0.05


def throttling(t: float) -> dict[str, int]:
    """Residencies in a counter of 1000 ticks a second: a quarter of the time the power limit, 5 % heat, no PROCHOT."""
    return {
        "accumulation_counter": round(1000 * t), "prochot_residency_acc": 0,
        "ppt_residency_acc": round(1000 * PPT_SHARE * t), "socket_thm_residency_acc": round(1000 * HEAT_SHARE * t),
        "vr_thm_residency_acc": 0, "hbm_thm_residency_acc": round(500 * HEAT_SHARE * t),
    }  # fmt: skip


def gpu_id(card: Card, partition: int = 0) -> int:
    """The number by which KFD names a node."""
    return 10_000 + 100 * (card.node + partition)


def put(path: Path, content: str | bytes) -> None:
    """Write a file in place, never empty in between."""
    data = content if isinstance(content, bytes) else f"{content}\n".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(fd, data, 0)
    os.truncate(fd, len(data))
    os.close(fd)


def link(path: Path, target: Path) -> None:
    """A relative link, so that the tree can be moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(os.path.relpath(target, path.parent))
