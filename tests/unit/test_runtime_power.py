"""Devices that the system has powered down, by trees like those of sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.sources.nvml.sysfs import RuntimePower, may_have_gpu, sleeping_gpus
from tests.sourced import pci_device

ADDRESS = "0000:65:00.0"


@pytest.fixture
def pci(tmp_path: Path) -> Path:
    pci_device(tmp_path, ADDRESS, status="suspended")
    return tmp_path


@pytest.mark.parametrize("address", ["00000000:65:00.0", "00000000:65:00.0".upper(), "0000:65:00.0"])
def test_a_device_that_is_powered_down_is_asleep_and_awake_again(pci: Path, address: str) -> None:
    power = RuntimePower(address, str(pci))
    assert power.is_asleep(0.0)
    pci_device(pci, ADDRESS, status="active")
    assert not power.is_asleep(0.1)
    pci_device(pci, ADDRESS, status="suspended")
    assert power.is_asleep(0.2), "at once: it is not to be woken"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vendor", "0x1002"),
        ("power/control", "on"),
        ("power/runtime_status", "active"),
        ("power/runtime_status", "suspending"),
        ("power/runtime_status", "unsupported"),
        ("power/runtime_status", "error"),
        ("power/runtime_status", ""),
    ],
)
def test_nothing_else_is_asleep(pci: Path, name: str, text: str) -> None:
    (pci / ADDRESS / name).write_text(f"{text}\n")
    assert not RuntimePower(ADDRESS, str(pci)).is_asleep(0.0)


@pytest.mark.parametrize("address", ["", "00000000:66:00.0", "nonsense", "zz:1"])
def test_a_device_without_a_place_is_awake(pci: Path, address: str) -> None:
    assert not RuntimePower(address, str(pci)).is_asleep(0.0)
    assert not RuntimePower(address, str(pci / "none")).is_asleep(0.0)


def test_a_device_that_may_not_be_powered_down_is_looked_at_seldom(pci: Path) -> None:
    (pci / ADDRESS / "power" / "control").write_text("on\n")
    power = RuntimePower(ADDRESS, str(pci))
    assert not power.is_asleep(0.0)
    (pci / ADDRESS / "power" / "control").write_text("auto\n")
    assert not power.is_asleep(9.0)
    assert power.is_asleep(10.0)


def test_all_sleep_only_where_each_gpu_does(pci: Path) -> None:
    assert sleeping_gpus(str(pci)) == [ADDRESS]
    pci_device(pci, "0000:65:00.1", status="active", kind="0x040300")
    assert sleeping_gpus(str(pci)) == [ADDRESS], "its sound device is no GPU"
    pci_device(pci, "0000:02:00.0", status="suspended", vendor="0x1002")
    assert sleeping_gpus(str(pci)) == [ADDRESS]
    pci_device(pci, "0000:01:00.0", status="suspended")
    assert sleeping_gpus(str(pci)) == ["0000:01:00.0", ADDRESS]
    pci_device(pci, "0000:01:00.0", status="active")
    assert sleeping_gpus(str(pci)) == []
    pci_device(pci, "0000:01:00.0", status="active", driver="nouveau")
    assert sleeping_gpus(str(pci)) == [ADDRESS], "what another driver has is no matter of NVIDIA's"
    assert sleeping_gpus(str(pci / "none")) == []


def test_a_bus_without_a_card_has_no_gpu_and_a_hidden_one_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.exists", lambda path: False)  # /dev/dxg, by which WSL hides the bus
    assert may_have_gpu(str(tmp_path / "hidden"))
    assert not may_have_gpu(str(tmp_path))
    pci_device(tmp_path, ADDRESS, status="active", kind="0x020000")
    assert not may_have_gpu(str(tmp_path)), "a network card of this vendor"
    pci_device(tmp_path, ADDRESS, status="active", kind="0x030200")
    assert may_have_gpu(str(tmp_path))
