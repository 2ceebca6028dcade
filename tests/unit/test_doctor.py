"""`gpumon doctor`: what it makes of a machine, on trees like those of /sys and /dev, and on frames made by hand."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.cli.doctor import lines
from gpumon.cli.doctor import machine as doctor_machine
from gpumon.cli.doctor.files import file_checks
from gpumon.cli.doctor.gpus import check_frame, logged_xids
from gpumon.cli.doctor.packages import package_checks
from gpumon.common.check_result import Check, CheckSection, Condition
from gpumon.common.paths import HISTORY, Places, make_live_dir, tag_dir_for_client
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.live_findings import JudgedFrame
from gpumon.model.events import XID
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.remedies import advice_clause, clause
from gpumon.model.xids import xid_of
from gpumon.sources.nvml.installation import check_installation, find_installation
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.sqlite.write import open_to_write
from tests.builders import device, frame_of, sample, tick

ROOM = 1 << 20
HEALTHY = {"utilization": 0.0, "memory_used": 0.0, "temperature": 40.0}


class Machine:
    """A tree with the files that are looked at."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.library = ""

    def bus(self, *drivers: str) -> Machine:
        for number, driver in enumerate(drivers):
            folder = self.root / "sys/bus/pci/devices" / f"0000:{number:02x}:00.0"
            folder.mkdir(parents=True)
            (folder / "vendor").write_text("0x10de\n")
            (folder / "class").write_text("0x030200\n")
            if driver:
                (folder / "driver").symlink_to(f"../../../drivers/{driver}")
        return self

    def module(self, version: str) -> Machine:
        folder = self.root / "sys/module/nvidia"
        folder.mkdir(parents=True)
        (folder / "version").write_text(f"{version}\n")
        return self

    def with_library(self, version: str) -> Machine:
        (self.root / f"libnvidia-ml.so.{version}").touch()
        (self.root / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")
        self.library = str(self.root / "libnvidia-ml.so.1")
        return self

    def dev(self, *names: str) -> Machine:
        for folder in ("dev", "sys/bus/pci/devices", "sys/module"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (self.root / "dev" / name).touch()
        return self

    def checks(self, read: int = 0) -> list[Check]:
        return check_installation(find_installation(str(self.root), lambda: self.library), read)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def faults(found: Sequence[Check]) -> list[tuple[str, str]]:
    return [(check.name, check.text) for check in found if check.condition is Condition.FAULT]


def named(found: Sequence[Check], name: str) -> Check:
    (one,) = [check for check in found if check.name == name]
    return one


def test_a_machine_that_is_well_has_no_fault(machine: Machine) -> None:
    well = machine.bus("nvidia", "nvidia").module("550.54.14").with_library("550.54.14")
    found = well.dev("nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm").checks()
    assert {check.condition for check in found} == {Condition.OK}
    assert [check.name for check in found] == ["PCI bus", "kernel module", "driver library", "device files"]
    assert not any(check.remedy for check in found)


def test_without_a_gpu_the_bus_is_the_cause(machine: Machine) -> None:
    found = machine.dev().checks()
    assert faults(found) == [("PCI bus", "no NVIDIA GPU is on the PCI bus")]
    shutil.rmtree(machine.root / "sys")
    assert not faults(machine.checks()), "a bus that cannot be seen"


def test_a_library_of_another_version_than_the_module_is_the_cause(machine: Machine) -> None:
    updated = machine.bus("nvidia").module("535.104.05").with_library("550.54.14").dev("nvidiactl", "nvidia0")
    assert faults(updated.checks()) == [
        ("kernel module", "the driver's kernel module is version 535.104.05, but its library is version 550.54.14")
    ]
    read = named(updated.checks(read=1), "kernel module")
    assert read.condition is Condition.WARNING, "a daemon from before the update still reads"


def test_where_sysfs_hides_the_driver_nothing_is_a_fault(machine: Machine) -> None:
    found = machine.with_library("550.54.14").checks()
    assert not faults(found), "whether it reaches a module, the library says itself"


@pytest.mark.parametrize("nodes", [(), ("nvidiactl",), ("nvidia0",)])
def test_missing_device_files_are_a_fault(machine: Machine, nodes: tuple[str, ...]) -> None:
    found = machine.bus("nvidia").module("550.54.14").with_library("550.54.14").dev(*nodes).checks()
    assert [name for name, _ in faults(found)] == ["device files"]


def test_wsl_has_no_bus_and_no_module(machine: Machine) -> None:
    assert [check.name for check in machine.dev("dxg").checks()] == ["driver library"]
    assert "in Windows" in machine.checks()[0].remedy
    machine.with_library("550.54.14")
    assert not faults(machine.checks())


def test_gpus_that_the_driver_does_not_show_are_a_warning(machine: Machine) -> None:
    well = machine.bus("nvidia", "nvidia", "vfio-pci").module("550.54.14").with_library("550.54.14")
    well.dev("nvidiactl", "nvidia0", "nvidia1")
    assert named(well.checks(read=2), "PCI bus").condition is Condition.NOTE
    assert "1 of them with vfio-pci" in named(well.checks(read=2), "PCI bus").text
    shutil.rmtree(machine.root / "sys/bus/pci/devices/0000:02:00.0")
    missing = named(well.checks(read=1), "PCI bus")
    assert (missing.condition, missing.text) == (Condition.WARNING, "2 NVIDIA GPUs, of which the driver shows 1")


def test_a_library_that_cannot_be_loaded_says_why(machine: Machine) -> None:
    def broken() -> str:
        raise OSError("libnvidia-ml.so.1: file too short")

    found = check_installation(find_installation(str(machine.dev().root), broken), 0)
    assert ("driver library", "libnvidia-ml.so.1 cannot be loaded: libnvidia-ml.so.1: file too short") in faults(found)


def test_files_of_any_bytes_do_no_harm(machine: Machine) -> None:
    machine.bus("nvidia").module("550").dev("nvidiactl", "nvidia0")
    (machine.root / "sys/module/nvidia/version").write_bytes(b"\x1b[31m\xff\x00\n")
    assert "\x1b" not in "".join(check.text for check in machine.checks())


def of(*samples: Sample, origin: Origin | None = None) -> list[Check]:
    frame = frame_of(tick(samples=samples))
    return list(check_frame(frame, origin or Origin("nvml"), Driver("550.54.14", "CUDA 12.4"), "the daemon").checks)


def test_gpus_that_all_answer_are_counted_by_model() -> None:
    (found,) = of(sample(0), sample(1))
    name = sample(0).device.name
    assert found == Check("GPUs", Condition.OK, f"the daemon reads 2 × {name} with driver 550.54.14, CUDA 12.4")


def test_one_gpu_that_is_lost_is_a_warning_and_named() -> None:
    found = of(sample(0), sample(1, Availability.LOST))
    assert [(check.name, check.condition) for check in found] == [
        ("GPUs", Condition.NOTE), ("GPU 1", Condition.WARNING),
    ]  # fmt: skip
    assert "1 of 2 GPUs" in found[0].text
    assert found[1].text == Availability.LOST.reason


@pytest.mark.parametrize("state", [Availability.LOST, Availability.RESET_REQUIRED, Availability.FAILED])
@pytest.mark.parametrize("others", [(), (sample(0),)])
def test_a_gpu_that_was_lost_names_its_xid_error_with_its_remedy(
    state: Availability, others: tuple[Sample, ...]
) -> None:
    lost, uuid = sample(1, state), sample(1).device.uuid
    found = check_frame(frame_of(tick(samples=[*others, lost])), Origin("nvml"), Driver(), "this command", {uuid: 79})
    by_frame = check_frame(
        frame_of(tick(samples=[*others, sample(1, state, xid=79.0)])), Origin("nvml"), Driver(), "the daemon"
    )
    check = named(found.checks, "GPU 1")
    assert check == named(by_frame.checks, "GPU 1")
    assert xid_of(79).text in check.text
    assert check.remedy == advice_clause(xid_of(79).action, lost.device)


def test_the_xid_errors_of_a_gpu_come_from_the_log_since_it_last_came_back(tmp_path: Path) -> None:
    places, now = Places(explicit=str(tmp_path), state=str(tmp_path), uid=os.getuid()), time.time_ns()
    first, second = "GPU-1", "GPU-2"
    entries = [
        (first, XID, 48), (first, "gpu_back", 0), (first, XID, 13), (first, XID, 79), (first, XID, 13),
        (second, XID, 48), (second, "gpu_back", 0),
    ]  # fmt: skip
    path = f"{tmp_path}/{HISTORY}"
    with closing(open_to_write(path, HISTORY_FILE, shared=False, uid=os.getuid(), log=pytest.fail)) as connection:
        for age, (uuid, kind, code) in enumerate(reversed(entries), 1):
            event = (now - age * 10**9, kind, uuid, f'{{"code": {code}}}')
            connection.execute("INSERT INTO event VALUES (?, ?, ?, '', '', '', '', NULL, NULL, ?)", event)
    assert logged_xids(places, [first, second, "GPU-3"]) == {first: 79, second: 0}


@pytest.mark.parametrize("xid", [math.nan, 48.0, 63.0, 79.0])
@pytest.mark.parametrize("state", [Availability.RESET_REQUIRED, Availability.LOST])
def test_a_gpu_that_cannot_be_read_has_the_remedy_of_its_finding(state: Availability, xid: float) -> None:
    lost = sample(1, state, xid=xid)
    (finding,) = JudgedFrame(frame_of(tick(samples=[sample(0), lost]))).findings()
    assert named(of(sample(0), lost), "GPU 1").remedy == clause(finding.action)


@pytest.mark.parametrize("fault", [{"xid": 48.0}, {"xid": 79.0}, {"recovery_action": 2.0}])
def test_a_gpu_that_answers_with_a_critical_fault_is_a_warning_with_the_remedy_of_its_finding(
    fault: Mapping[str, float],
) -> None:
    frame = frame_of(tick(samples=[sample(0, **HEALTHY), sample(1, **{**HEALTHY, **fault})]))
    (finding,) = (one for one in JudgedFrame(frame).findings() if one.severity is Severity.CRITICAL)
    read, check = of(*frame.samples)
    assert read.condition is Condition.OK, "all of them can be read"
    assert check == Check("GPU 1", Condition.WARNING, finding.summary, clause(finding.action))


@pytest.mark.parametrize("xid", [0.0, 13.0, 63.0, math.nan])
def test_a_gpu_without_a_critical_fault_is_no_warning(xid: float) -> None:
    assert [check.name for check in of(sample(0, **HEALTHY, xid=xid))] == ["GPUs"]


@pytest.mark.parametrize("state", [Availability.RESET_REQUIRED, Availability.LOST])
def test_a_gpu_of_which_the_driver_says_so_in_place_of_some_values_is_a_warning_too(state: Availability) -> None:
    part = sample(1)._replace(device=sample(1).device._replace(missing={"gpu.utilization": state}))
    counted, found = of(sample(0), part)
    assert counted.condition is Condition.OK
    (expected,) = of(sample(0), sample(1, state))[1:]
    assert found == expected


def test_no_gpu_that_answers_is_a_fault_with_its_reason() -> None:
    (found,) = of(sample(0, Availability.LOST))
    assert (found.condition, found.text) == (Condition.FAULT, Availability.LOST.reason)
    (found,) = of(origin=Origin("nvml", problem="the driver is gone: load it"))
    assert (found.text, found.remedy) == ("the driver is gone", "load it")


def test_a_sleeping_gpu_is_well() -> None:
    found = of(sample(0, Availability.ASLEEP))
    assert [(check.name, check.condition) for check in found] == [("GPUs", Condition.NOTE)]
    assert "not queried" in found[0].text


def test_what_the_driver_refuses_this_user_is_told_and_what_a_card_lacks_is_not() -> None:
    missing = {
        "gpu.fan": Availability.NOT_SUPPORTED, "gpu.sm_activity": Availability.NO_PERMISSION,
        PROCESSES: Availability.NO_PERMISSION,
    }  # fmt: skip
    found = of(sample(0)._replace(device=device(0, missing=missing)), origin=Origin("nvml", notice="container: …"))
    told = [(check.name, check.text) for check in found[1:]]
    assert told == [
        ("processes", "the driver denies this user the lists of processes"),
        ("counters", "the driver denies this user sm_activity"),
        ("processes", "container: …"),
    ]


def packages(versions: Mapping[str, str], *, has_gpu: bool = True, encoding: str = "utf-8") -> list[Check]:
    found = {"nvidia-ml-py": "13.615.71", **versions}

    class Installed(doctor_machine.Packages):
        def version(self, name: str) -> str:
            return found.get(name, "")

    facts = doctor_machine.GpuFacts(("NVIDIA H100",), ("GPU-0",), "12.4") if has_gpu else doctor_machine.GpuFacts()
    return package_checks(doctor_machine.Machine(environ={}, packages=Installed([]), gpus=facts), encoding)


def test_a_torch_for_cpus_is_a_warning_where_there_are_gpus() -> None:
    assert named(packages({"torch": "2.13.0+cpu"}), "torch").condition is Condition.WARNING
    assert named(packages({"torch": "2.13.0+cpu"}, has_gpu=False), "torch").condition is Condition.NOTE
    assert [check.name for check in packages({"torch": "2.13.0"})] == ["Python", "nvidia-ml-py", "frameworks"]


def test_a_framework_older_than_its_callback_takes_is_told() -> None:
    found = packages({"keras": "2.15.0", "pytorch-lightning": "1.9.5", "transformers": "5.1"})
    assert {check.name for check in found if check.condition is Condition.WARNING} == {"keras", "pytorch-lightning"}
    assert named(found, "frameworks").text == "keras 2.15.0, pytorch-lightning 1.9.5, transformers 5.1"


@pytest.mark.parametrize(("version", "is_another"), [("11.5.3", True), ("12.0.0", False), ("", False)])
def test_another_pynvml_in_the_way_of_ours_is_told(version: str, is_another: bool) -> None:
    found = named(packages({"pynvml": version}), "nvidia-ml-py")
    assert (found.condition is Condition.WARNING) == is_another


def test_a_terminal_without_unicode_is_a_note() -> None:
    assert named(packages({}, encoding="ANSI_X3.4-1968"), "terminal").condition is Condition.NOTE


def of_files(folder: Path, room: int = ROOM) -> list[Check]:
    where = Places(explicit=str(folder / "live"), state=str(folder / "state"), uid=os.getuid())
    return list(file_checks(where, room, None))


def test_files_that_are_not_there_yet_are_notes_and_nothing_is_made(tmp_path: Path) -> None:
    found = of_files(tmp_path)
    assert {check.name: check.condition for check in found} == {
        "live data": Condition.OK, "tags": Condition.OK, "ledger": Condition.NOTE, "history": Condition.NOTE,
        "kept data": Condition.OK,
    }  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_the_directories_named_are_those_that_a_daemon_and_a_training_take(tmp_path: Path) -> None:
    found = of_files(tmp_path)
    where = Places(explicit=str(tmp_path / "live"), uid=os.getuid())
    assert named(found, "live data").text.endswith(make_live_dir(where))
    assert named(found, "tags").text.endswith(tag_dir_for_client(where))


def test_a_directory_that_others_may_write_to_is_refused_as_a_daemon_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "live").chmod(0o777)
    found = of_files(tmp_path)
    assert {named(found, name).condition for name in ("live data", "tags")} == {Condition.FAULT}
    assert "is writable by others" in named(found, "tags").text


@pytest.mark.parametrize("name", ["ledger", "history"])
def test_a_file_that_is_none_of_ours_is_told_of(tmp_path: Path, name: str) -> None:
    (tmp_path / "state").mkdir()
    path = tmp_path / "state" / f"{name}.sqlite"
    path.write_text("not a database, but text that is long enough for one" * 20)
    found = named(of_files(tmp_path), name)
    assert found.condition is Condition.WARNING
    assert f"{path} cannot be read" in found.text
    path.unlink()
    os.mkfifo(path)
    assert named(of_files(tmp_path), name).condition is Condition.FAULT, "and nobody waits for who writes it"
    path.unlink()
    path.touch()
    assert named(of_files(tmp_path), name).text == f"{path} is empty"


def test_damage_behind_the_first_page_is_found(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    path = tmp_path / "state" / "history.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE block (number INTEGER, data BLOB)")
        made.executemany("INSERT INTO block VALUES (?, ?)", [(n, bytes(900)) for n in range(200)])
        made.commit()
    assert named(of_files(tmp_path), "history").condition is Condition.OK
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 16384)
    assert named(of_files(tmp_path), "history").condition is Condition.WARNING


def test_too_little_room_for_history_is_a_warning(tmp_path: Path) -> None:
    assert named(of_files(tmp_path, room=1 << 60), "kept data").condition is Condition.WARNING


@pytest.mark.parametrize("width", [40, 100])
def test_text_stays_within_a_terminal_and_loses_no_word(width: int) -> None:
    check = Check("GPUs", Condition.FAULT, "words " * 20, "remedies " * 12)
    told = list(lines([CheckSection("GPUs", [check])], "the verdict " * 9, width))
    assert max(map(len, told)) <= width
    words = " ".join(told).split()
    assert (words.count("words"), words.count("remedies"), words.count("verdict")) == (20, 12, 9)


def test_text_of_others_is_made_harmless() -> None:
    (line,) = lines([], "red \x1b[31m", 0)
    assert "\x1b" not in line
