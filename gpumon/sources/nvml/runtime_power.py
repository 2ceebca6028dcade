"""GPUs that the system has powered down, as laptops do: asking sysfs wakes none, where a call to the driver would."""

from __future__ import annotations

import os
from contextlib import suppress

PCI_DEVICES = "/sys/bus/pci/devices"
_NVIDIA, _DISPLAY = "0x10de", "0x03"
"""Vendor, and the first digits of a class: linux/pci_ids.h."""
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
        if _text(self._folder, "vendor") != _NVIDIA:
            self._folder = ""  # another machine's address, as in a virtual one, or no PCI device
            return False
        if _text(self._folder, "power/control") != "auto":
            self._look_at = now + _LOOK_AGAIN
            return False
        return _text(self._folder, "power/runtime_status") == _SUSPENDED


def all_asleep(devices: str = PCI_DEVICES) -> list[str]:
    """Return the addresses of this machine's NVIDIA GPUs if all of them are powered down, in their order; else none."""
    with suppress(OSError):
        gpus = [
            address
            for address in sorted(os.listdir(devices))
            if _text(f"{devices}/{address}", "vendor") == _NVIDIA
            and _text(f"{devices}/{address}", "class").startswith(_DISPLAY)
        ]
        if all(_text(f"{devices}/{address}", "power/runtime_status") == _SUSPENDED for address in gpus):
            return gpus
    return []


def _as_in_sysfs(address: str) -> str:
    domain, _, rest = address.lower().partition(":")
    with suppress(ValueError):
        return f"{int(domain, 16):04x}:{rest}"
    return address


def _text(folder: str, name: str) -> str:
    try:
        with open(f"{folder}/{name}", encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""
