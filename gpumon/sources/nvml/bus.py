"""NVIDIA's GPUs on the PCI bus, as sysfs has them: to ask it wakes none, where a call to the driver would."""

from __future__ import annotations

import os

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
