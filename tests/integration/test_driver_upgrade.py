"""A daemon outlives an upgrade of the driver: the library is replaced on disk, and the kernel's part is a newer one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpumon.model.metrics import Availability
from tests.nvml import Stub, build
from tests.nvml.build import LIBRARY
from tests.programs import asked, environment
from tests.sourced import nvml_source

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = 580, 615

COPIES = """
import sys
from gpumon.sources.nvml.library import Library
from gpumon.common.errors import SourceError
import json
for line in sys.stdin:
    try:
        library = Library()
        told = [library.driver.version, library.count()[0]]
        library.close()
    except SourceError as error:
        told = [str(error), -1]
    maps = open("/proc/self/maps").read().splitlines()
    print(json.dumps([*told, len({l.split()[4] for l in maps if "libnvidia-ml" in l})]), flush=True)
"""


@pytest.fixture
def installed(tmp_path: Path, driver_library: Path) -> Path:
    """The directory of the system's libraries, with the old driver's in it."""
    directory = tmp_path / "lib"
    directory.mkdir()
    install(directory, OLD)
    return directory


def install(directory: Path, level: int) -> None:
    """As a package manager does: the file is written beside the old one, and takes its name in one step."""
    copy = directory / f"{LIBRARY}.new"
    shutil.copy(build(level, into=ROOT / ".cache") / LIBRARY, copy)
    copy.replace(directory / LIBRARY)


def version(level: int) -> str:
    return {OLD: "580.65.06", NEW: "615.71.05"}[level]


def test_a_source_reads_on_through_the_new_library(installed: Path, tmp_path: Path) -> None:
    with Stub(installed) as stub, nvml_source(stub, tmp_path) as read:
        stub.kernel_module = OLD
        assert [gpu.state for gpu in read().gpus] == [Availability.OK] * 2
        install(installed, NEW)
        stub.kernel_module = NEW
        gone = read(100.0)
        assert [gpu.state for gpu in gone.gpus] == [Availability.NO_DRIVER] * 2
        assert "updated" in gone.problem
        back = read(160.0)
        assert [gpu.state for gpu in back.gpus] == [Availability.OK] * 2
        assert back.problem == ""
        assert back.gpus[0]["energy"] > 0


def test_upgrades_and_the_way_back_load_each_file_once(installed: Path, tmp_path: Path) -> None:
    with Stub(installed) as stub, asked(COPIES, environment(tmp_path, stub.env())) as ask:
        assert ask(0) == [version(OLD), 0, 1]
        install(installed, NEW)
        assert ask(0) == [version(OLD), 0, 1], "as long as the kernel's part is the old one, so is the library"
        stub.kernel_module = NEW
        for _ in range(3):
            assert ask(0) == [version(NEW), 0, 2]
        stub.kernel_module = OLD
        install(installed, OLD)
        for _ in range(3):
            assert ask(0) == [version(OLD), 0, 3]


def test_a_library_that_does_not_fit_either_says_what_to_do(installed: Path, tmp_path: Path) -> None:
    with Stub(installed) as stub, asked(COPIES, environment(tmp_path, stub.env())) as ask:
        ask(0)
        stub.kernel_module = NEW
        problem, code, copies = ask(0)
        assert "restart" in problem, "the package was not upgraded: nothing else is there to load"
        assert (code, copies) == (-1, 1)
        (installed / LIBRARY).unlink()
        assert ask(0)[:2] == [problem, -1], "half-way through an upgrade"
        (installed / LIBRARY).write_bytes(b"\x7fELF")
        assert ask(0)[:2] == [problem, -1]
        install(installed, NEW)
        assert ask(0)[:2] == [version(NEW), 0]
