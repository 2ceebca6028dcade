"""The parts of NVIDIA's driver on this machine, by their files: no call is made, so none hangs and no GPU wakes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from gpumon.checkup import Check, Condition
from gpumon.sources.nvml.bus import PCI_DEVICES, gpus_on, line_of
from gpumon.sources.nvml.loader import SHARED, SONAME
from gpumon.text import clean
from gpumon.units import counted
from gpumon.vendors import NVIDIA

_DRIVER = "nvidia"
_CONTROL = "nvidiactl"
_OF_GPU = re.compile(r"nvidia\d+$")
_NO_DRIVER = "no kernel driver"
_INSTALL = "install NVIDIA's driver, then restart the machine"
_PASS_IN = "in a container, pass the GPUs in, as with 'docker run --gpus all'"


class Installation(NamedTuple):
    """Parts that were found."""

    gpus: tuple[tuple[str, str], ...] = ()
    """PCI address of each NVIDIA GPU, and the kernel driver that is bound to it; empty for none."""
    module: str = ""
    """Version of the kernel module that is loaded; empty for none."""
    library: str = ""
    """Path of the driver's library; its bare name where the kernel hides where it lies; empty for none."""
    nodes: tuple[tuple[str, bool], ...] = ()
    """Names of device files in /dev, and whether this user may open each."""
    is_wsl: bool = False

    @property
    def library_version(self) -> str:
        """Version of the library, as its file is named; empty where it is not."""
        found = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", os.path.realpath(self.library)) if self.library else None
        return found[1] if found else ""


def installation(
    root: str = "", library: Callable[[], str] | None = None, may_open: Callable[[str], bool] | None = None
) -> Installation:
    """Look at this machine; `root` is put before the paths of sysfs and /dev.

    `library` finds the library's path, and `may_open` tells whether this user may open a device file.
    """
    may_open = may_open or _may_open
    names, devices = _listed(f"{root}/dev"), f"{root}{PCI_DEVICES}"
    nodes = sorted(name for name in names if name == _CONTROL or _OF_GPU.match(name))
    return Installation(
        gpus=tuple((address, _bound(f"{devices}/{address}")) for address in gpus_on(devices)),
        module=clean(line_of(f"{root}/sys/module/{_DRIVER}/version")),
        library=(library or _library)(),
        nodes=tuple((name, may_open(f"{root}/dev/{name}")) for name in nodes),
        is_wsl="dxg" in names,
    )


def checks(found: Installation, *, is_read: bool) -> list[Check]:
    """Judge the parts, from the bus upward: the first fault is the cause of those behind it.

    Where a GPU `is_read` all the same, none is more than a warning.
    """
    if found.is_wsl:
        parts = [_library_check(found)]
    else:
        parts = [_bus_check(found), _module_check(found), _library_check(found), _nodes_check(found)]
    told = [part for part in parts if part is not None]
    if is_read:
        return [part._replace(condition=min(part.condition, Condition.WARNING)) for part in told]
    return told


def _bus_check(found: Installation) -> Check | None:
    name = "PCI bus"
    if not found.gpus:
        if found.library or found.module:  # a sandbox may hide the bus, and not the driver
            return None
        return Check(
            name, Condition.FAULT, "no NVIDIA GPU is on the PCI bus",
            "on a machine without one, 'gpumon tui' shows host and runs, and 'gpumon tui --source sim' a simulation",
        )  # fmt: skip
    others = {driver for _, driver in found.gpus} - {_DRIVER}
    bound = len([driver for _, driver in found.gpus if driver == _DRIVER])
    text = counted(len(found.gpus), "NVIDIA GPU")
    if not others:
        return Check(name, Condition.OK, text)
    with_them = ", ".join(driver or _NO_DRIVER for driver in sorted(others))
    if bound:
        return Check(name, Condition.WARNING, f"{text}, of which {len(found.gpus) - bound} with {with_them}")
    remedy = "" if not (found.library or found.module) else _INSTALL
    if "vfio-pci" in others:
        remedy = "vfio-pci gives a GPU to a virtual machine: run gpumon in that"
    elif "nouveau" in others:
        remedy = f"nouveau has no counters that could be read: {_INSTALL}"
    return Check(name, Condition.FAULT if remedy else Condition.NOTE, f"{text}, with {with_them}", remedy)


def _module_check(found: Installation) -> Check | None:
    name = "kernel module"
    if not found.module:
        if not found.gpus and not found.library:
            return None
        if found.library:  # the library tells itself whether it reaches one, also where sysfs hides it
            return Check(name, Condition.NOTE, "NVIDIA's is not to be seen in /sys/module")
        return Check(name, Condition.FAULT, "NVIDIA's kernel module is not loaded", _INSTALL)
    library = found.library_version
    if library and library != found.module:
        text = f"the driver's kernel module is of version {found.module}, its library of {library}"
        remedy = "the driver was updated: restart the machine, or unload and load the module"
        return Check(name, Condition.FAULT, text, remedy)
    return Check(name, Condition.OK, f"version {found.module}")


def _library_check(found: Installation) -> Check | None:
    name = "driver library"
    if found.library:
        version = f", version {found.library_version}" if found.library_version else ""
        return Check(name, Condition.OK, f"{found.library}{version}")
    if found.is_wsl:
        remedy = "install NVIDIA's driver in Windows; WSL gets its library from there"
    elif found.module:
        remedy = f"{_PASS_IN}; else install the driver's libraries of version {found.module}"
    elif found.gpus:
        remedy = _INSTALL
    else:
        return Check(name, Condition.NOTE, f"{SONAME} was not found", NVIDIA.to_do[-1])
    return Check(name, Condition.FAULT, f"{SONAME} was not found", remedy)


def _nodes_check(found: Installation) -> Check | None:
    name = "device files"
    if not found.module:
        return None
    closed = [node for node, may_open in found.nodes if not may_open]
    if closed:
        return Check(
            name, Condition.FAULT, f"this user may not open /dev/{closed[0]}",
            f"'ls -l /dev/{closed[0]}' names the group that may: join it, or ask your admin",
        )  # fmt: skip
    names = {node for node, _ in found.nodes}
    cards = names - {_CONTROL}
    if not cards or _CONTROL not in names:
        text = f"/dev/{_CONTROL} is missing" if cards else "there is no device file of a GPU in /dev"
        return Check(name, Condition.FAULT, text, f"on the machine itself, 'sudo nvidia-modprobe -c 0'; {_PASS_IN}")
    if len(cards) < len(found.gpus):
        text = f"of {len(cards)} of {counted(len(found.gpus), 'GPU')}: the others are not passed into this container"
        return Check(name, Condition.NOTE, text)
    return Check(name, Condition.OK, f"of {counted(len(cards), 'GPU')}, which this user may open")


def _bound(folder: str) -> str:
    """The kernel driver of a PCI device; empty for none."""
    try:
        return clean(os.path.basename(os.readlink(f"{folder}/driver")))
    except OSError:
        return ""


def _may_open(path: str) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def _library() -> str:
    try:
        loaded = SHARED.current is not None
    except OSError:
        return ""
    return f"{SHARED.directory}/{SONAME}" if loaded and SHARED.directory else SONAME


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
