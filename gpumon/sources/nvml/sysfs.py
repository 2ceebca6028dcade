"""NVIDIA GPUs on the PCI bus, read from sysfs. Unlike a driver call, this does not wake a GPU."""

from __future__ import annotations

import os
from contextlib import suppress

PCI_DEVICES = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
DRIVER = "nvidia"
"""Name of NVIDIA's kernel driver in sysfs."""
_DISPLAY = "0x03"
"""First digits of the PCI class of a display controller, see linux/pci_ids.h."""


def list_gpus(devices: str = PCI_DEVICES) -> list[str]:
    """Return the PCI addresses of NVIDIA GPUs, sorted; empty if the bus is not visible."""
    try:
        addresses = sorted(os.listdir(devices))
    except OSError:
        return []
    return [address for address in addresses if _is_gpu(f"{devices}/{address}")]


def may_have_gpu(devices: str = PCI_DEVICES) -> bool:
    """Return whether a GPU is on the bus or may be hidden. GPUs are hidden in WSL, and where the bus is not visible."""
    return bool(list_gpus(devices)) or not os.path.isdir(devices) or os.path.exists("/dev/dxg")


def kernel_driver(folder: str) -> str:
    """Return the name of the kernel driver for the PCI device in this sysfs folder; empty if it has none."""
    try:
        return os.path.basename(os.readlink(f"{folder}/driver"))
    except OSError:
        return ""


def read_line(path: str) -> str:
    """Return the content of a sysfs file; empty if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def _is_gpu(folder: str) -> bool:
    return read_line(f"{folder}/vendor") == NVIDIA and read_line(f"{folder}/class").startswith(_DISPLAY)


_SUSPENDED = "suspended"
_CHECK_EVERY = 10.0
"""Seconds between two checks of whether runtime power management may power a device down."""


class RuntimePower:
    """Runtime power management of one device, see Documentation/power/runtime_pm.rst."""

    def __init__(self, address: str, devices: str = PCI_DEVICES) -> None:
        """`address`: PCI address in NVML's notation, such as 00000000:65:00.0; empty if not available."""
        self._folder = f"{devices}/{_sysfs_address(address)}" if address else ""
        self._check_at = 0.0

    def is_asleep(self, now: float) -> bool:
        """Return whether the device is powered down. False if this cannot be read. `now` in seconds."""
        if now < self._check_at or not self._folder:
            return False
        if read_line(f"{self._folder}/vendor") != NVIDIA:
            self._folder = ""  # the address is of another machine, as in a virtual machine, or no PCI device has it
            return False
        if read_line(f"{self._folder}/power/control") != "auto":
            self._check_at = now + _CHECK_EVERY
            return False
        return read_line(f"{self._folder}/power/runtime_status") == _SUSPENDED


def sleeping_gpus(devices: str = PCI_DEVICES) -> list[str]:
    """Return the sorted PCI addresses of this machine's NVIDIA GPUs if all are powered down, else an empty list.

    Only GPUs that NVIDIA's kernel driver controls are considered.
    """
    gpus = [address for address in list_gpus(devices) if kernel_driver(f"{devices}/{address}") == DRIVER]
    asleep = [read_line(f"{devices}/{address}/power/runtime_status") == _SUSPENDED for address in gpus]
    return gpus if all(asleep) else []


def _sysfs_address(address: str) -> str:
    domain, _, rest = address.lower().partition(":")
    with suppress(ValueError):
        return f"{int(domain, 16):04x}:{rest}"
    return address
