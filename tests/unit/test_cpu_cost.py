"""The CPU side of a run: CPU time of its processes, and energy of the machine's packages."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.rapl import PackageEnergy, PackageReading
from gpumon.model.frame import Mark
from gpumon.reports import compare
from gpumon.storage.ledger.recorder import LedgerRecorder
from gpumon.storage.ledger.usage import PackageUsage
from gpumon.storage.ledger.writer import OpenRank, StoredRuns
from gpumon.tracking.cpu_time import CpuTime
from tests.builders import TIME, tick
from tests.unit.test_ledger_recorder import KEY, Course, Memory, keep
from tests.unit.test_whole_runs import kept, ticks

RANGE = 262_143_328_850
"""µJ, as Intel's packages have it."""


class Powercap:
    """A tree as under /sys/class/powercap."""

    def __init__(self, root: Path, packages: int = 2) -> None:
        self.root = root
        for place in range(packages):
            self.zone(f"intel-rapl:{place}", f"package-{place}")
            self.zone(f"intel-rapl:{place}:0", "core")
        self.zone("intel-rapl-mmio:0", "package-0")
        self.zone(f"intel-rapl:{packages}", "psys")
        self.now = 0

    def zone(self, place: str, name: str) -> None:
        (self.root / place).mkdir(parents=True)
        (self.root / place / "name").write_text(f"{name}\n")
        (self.root / place / "max_energy_range_uj").write_text(f"{RANGE}\n")
        self.put(place, 10**12)

    def put(self, place: str, microjoules: int) -> None:
        (self.root / place / "energy_uj").write_text(f"{microjoules}\n")

    def meter(self) -> PackageEnergy:
        return PackageEnergy(str(self.root), lambda: self.now)


def test_the_packages_add_up_and_neither_their_parts_nor_the_platform_count(tmp_path: Path) -> None:
    tree = Powercap(tmp_path)
    meter = tree.meter()
    assert meter.read().joules == 0.0
    tree.put("intel-rapl:0", 10**12 + 3_000_000)
    tree.put("intel-rapl:1", 10**12 + 4_000_000)
    for other in ("intel-rapl:0:0", "intel-rapl-mmio:0", "intel-rapl:2"):
        tree.put(other, 10**12 + 90_000_000)
    assert meter.read().joules == pytest.approx(7.0)
    assert meter.unknown == ""


def test_a_counter_that_starts_over_goes_on(tmp_path: Path) -> None:
    tree = Powercap(tmp_path, packages=1)
    tree.put("intel-rapl:0", RANGE - 1_000_000)
    meter = tree.meter()
    meter.read()
    tree.put("intel-rapl:0", 500_000)
    assert meter.read().joules == pytest.approx(1.5)


def test_a_machine_without_packages_says_so(tmp_path: Path) -> None:
    meter = PackageEnergy(str(tmp_path / "none"))
    assert math.isnan(meter.read().joules)
    assert meter.unknown == f"no CPU package was found under {tmp_path}/none"


def test_a_counter_that_only_root_may_read_is_unknown_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Powercap(tmp_path)
    opened = open

    def refused(path: Any, *rest: Any, **more: Any) -> object:
        if str(path).endswith("energy_uj"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *rest, **more)  # threads of other tests may open theirs just now

    monkeypatch.setattr("builtins.open", refused)
    meter = tree.meter()
    assert math.isnan(meter.read().joules)
    assert meter.unknown == f"only root may read {tmp_path}/intel-rapl:0/energy_uj"


def test_a_counter_that_is_no_number_is_unknown(tmp_path: Path) -> None:
    tree = Powercap(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("much\n")
    assert math.isnan(tree.meter().read().joules)


def test_energy_between_two_readings_counts_within_the_run_alone() -> None:
    usage = PackageUsage()
    for second in range(1, 12):
        readings = [PackageReading(at * SECOND, 100.0 * at) for at in (second - 1, second)]
        usage.add(readings[0], readings[1], round(1.5 * SECOND), round(9.5 * SECOND))
    assert usage.energy(8.0) == pytest.approx(800.0)
    assert usage.energy(8.5) == pytest.approx(850.0), "of what nobody read, by the mean power of the rest"
    assert math.isnan(usage.energy(16.0))
    assert "no daemon read" in usage.reason(16.0)


def test_the_ledger_has_the_energy_of_the_packages_while_a_run_lasted(tmp_path: Path) -> None:
    tree = Powercap(tmp_path / "powercap", packages=1)
    make, ledger = Course(), Memory()
    marks = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.RUN_END, 21.0, -1, "")]
    recorder = LedgerRecorder(ledger, packages=tree.meter())
    for one in ticks(24, marks):
        tree.now = one.monotonic_ns
        tree.put("intel-rapl:0", 10**12 + 80 * one.monotonic_ns // 1000)
        recorder.add(one)
    recorder.close()
    record = kept(ledger, tmp_path)
    assert record.ranks[0].package_energy == pytest.approx(80.0 * 20)
    found = {line.measure.name: line.medians for line in compare.compare([record, record]).whole}
    assert found["package_energy"] == pytest.approx([1600.0, 1600.0])


def test_the_packages_are_not_read_while_no_run_is_there() -> None:
    class Meter(PackageEnergy):
        def read(self) -> PackageReading:
            pytest.fail("read")

    recorder = LedgerRecorder(Memory(), packages=Meter("/nowhere"))
    for number in range(20):
        recorder.add(tick(number))


def test_the_energy_of_the_packages_goes_on_over_a_restart_of_the_daemon(tmp_path: Path) -> None:
    tree = Powercap(tmp_path / "powercap", packages=1)
    make, first, second = Course(), Memory(), Memory()
    shown = ticks(44, [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.RUN_END, 41.0, -1, "")])

    def record(ledger: Memory, some: list[object]) -> None:
        recorder = LedgerRecorder(ledger, packages=tree.meter())
        for one in some:
            tree.now = one.monotonic_ns  # type: ignore[attr-defined]
            tree.put("intel-rapl:0", 10**12 + 80 * tree.now // 1000)
            recorder.add(one)  # type: ignore[arg-type]
        recorder.close()

    record(first, shown[:20])
    progress = json.loads(first.row("progress", KEY)["state"])
    second.stored = StoredRuns({KEY: OpenRank("r", 1, "node1", TIME, progress, [])}, set(), {})
    record(second, shown[20:])
    assert second.row("rank", KEY)["package_energy"] == pytest.approx(80.0 * 40)


def test_why_the_energy_is_unknown_is_said_below_a_comparison(tmp_path: Path) -> None:
    records = []
    for place in ("a", "b", "c"):
        make, ledger = Course(), Memory()
        marks = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.RUN_END, 9.0, -1, "")]
        keep(ledger, ticks(12, marks), LedgerRecorder(ledger, packages=PackageEnergy(str(tmp_path / "none"))))
        records.append(kept(ledger, tmp_path / place))
    said = [line for line in compare.lines(compare.compare(records), 0) if line.startswith("CPU energy of")]
    assert said == [f"CPU energy of A, B and C is unknown: no CPU package was found under {tmp_path}/none."]


BURN = "import time\nwhile time.process_time() < 0.3: pass\n"


def burned(times: Callable[[], float]) -> float:
    subprocess.run([sys.executable, "-c", BURN], check=True)
    return times()


def test_cpu_time_is_of_this_process_and_of_children_that_ended() -> None:
    assert burned(CpuTime().seconds) >= 0.25
    assert 0.25 <= burned(CpuTime(own=False).seconds) < 30


def test_cpu_time_is_of_living_children_too() -> None:
    time = CpuTime(own=False)
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        pytest.skip("this kernel does not list children")
    child = subprocess.Popen(
        [sys.executable, "-c", BURN + "print(1, flush=True)\ninput()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    found = time.seconds()
    child.communicate(b"\n")
    assert found >= 0.25, "in clock ticks"


def test_cpu_time_without_proc_is_that_of_the_process() -> None:
    assert CpuTime(proc="/nowhere").seconds() >= 0
