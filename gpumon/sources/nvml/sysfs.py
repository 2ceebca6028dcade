"""NVIDIA's GPUs on the PCI bus, as sysfs has them: to ask it wakes none, where a call to the driver would."""

from __future__ import annotations

import os
from contextlib import suppress

PCI_DEVICES = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
DRIVER = "nvidia"
"""Name of its kernel driver."""
_DISPLAY = "0x03"
"""Vendor, and the first digits of a class: linux/pci_ids.h."""


def gpus_on(devices: str = PCI_DEVICES) -> list[str]:
    """Return the PCI addresses of NVIDIA's GPUs, in their order; none where the bus cannot be seen."""
    try:
        addresses = sorted(os.listdir(devices))
    except OSError:
        return []
    return [address for address in addresses if _is_gpu(f"{devices}/{address}")]


def gpus_may_be_there(devices: str = PCI_DEVICES) -> bool:
    """Whether a GPU is on the bus, or may be out of sight: the bus cannot be seen, or Windows has the GPU (WSL)."""
    return bool(gpus_on(devices)) or not os.path.isdir(devices) or os.path.exists("/dev/dxg")


def kernel_driver(folder: str) -> str:
    """Return the kernel driver that is bound to the PCI device in this folder; empty for none."""
    try:
        return os.path.basename(os.readlink(f"{folder}/driver"))
    except OSError:
        return ""


def line_of(path: str) -> str:
    """Return the line in a file of sysfs; empty where there is none."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def _is_gpu(folder: str) -> bool:
    return line_of(f"{folder}/vendor") == NVIDIA and line_of(f"{folder}/class").startswith(_DISPLAY)


_SUSPENDED = "suspended"
_LOOK_AGAIN = 10.0
"""Seconds between looks at a device that may not be powered down now."""


class RuntimePower:
    """The runtime power management of one device, by its PCI address: Documentation/power/runtime_pm.rst."""

    def __init__(self, address: str, devices: str = PCI_DEVICES) -> None:
        """`address` as NVML has it, such as 00000000:65:00.0; empty where it is not known."""
        self._folder = f"{devices}/{_as_in_sysfs(address)}" if address else ""
        self._look_at = 0.0

    def is_asleep(self, now: float) -> bool:
        """Whether it is powered down; False where nobody tells. `now` in seconds."""
        if now < self._look_at or not self._folder:
            return False
        if line_of(f"{self._folder}/vendor") != NVIDIA:
            self._folder = ""  # another machine's address, as in a virtual one, or no PCI device
            return False
        if line_of(f"{self._folder}/power/control") != "auto":
            self._look_at = now + _LOOK_AGAIN
            return False
        return line_of(f"{self._folder}/power/runtime_status") == _SUSPENDED


def all_asleep(devices: str = PCI_DEVICES) -> list[str]:
    """Return the addresses of this machine's NVIDIA GPUs if all of them are powered down, in their order; else none.

    Those that another kernel driver has, or none, are no matter of NVIDIA's driver.
    """
    gpus = [address for address in gpus_on(devices) if kernel_driver(f"{devices}/{address}") == DRIVER]
    asleep = [line_of(f"{devices}/{address}/power/runtime_status") == _SUSPENDED for address in gpus]
    return gpus if all(asleep) else []


def _as_in_sysfs(address: str) -> str:
    domain, _, rest = address.lower().partition(":")
    with suppress(ValueError):
        return f"{int(domain, 16):04x}:{rest}"
    return address
