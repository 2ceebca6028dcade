"""The parts of NVIDIA's driver on this machine, by their files: no call is made, so none hangs and no GPU wakes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from gpumon.common.checkup import Check, Condition
from gpumon.common.text import clean
from gpumon.model.units import counted
from gpumon.sources.nvml.library import SHARED, SONAME, is_absent
from gpumon.sources.nvml.sysfs import DRIVER, PCI_DEVICES, gpus_on, kernel_driver, line_of

_CONTROL = "nvidiactl"
_OF_GPU = re.compile(r"nvidia\d+$")
_OF_WSL = "/usr/lib/wsl/"
_NO_DRIVER = "no kernel driver"
_INSTALL = "install NVIDIA's driver, then restart the machine"
_PASS_IN = "in a container, pass the GPUs in, as with 'docker run --gpus all'"
_KEPT_AWAY = "a GPU may have failed to start (see 'dmesg'), or be kept from this container or job"


class Installation(NamedTuple):
    """Parts that were found."""

    sees_bus: bool = True
    """Whether the PCI bus can be looked at: a sandbox may hide it."""
    gpus: tuple[tuple[str, str], ...] = ()
    """PCI address of each NVIDIA GPU, and the kernel driver that is bound to it; empty for none."""
    sees_modules: bool = True
    """Whether the modules of the kernel can be looked at."""
    module: str = ""
    """Version of the kernel module that is loaded; empty for none."""
    library: str = ""
    """Path of the driver's library; its bare name where the kernel hides where it lies; empty for none."""
    unloadable: str = ""
    """Why a library that is there cannot be loaded."""
    nodes: tuple[tuple[str, bool], ...] = ()
    """Names of device files in /dev, and whether their modes let this user open each."""
    is_wsl: bool = False

    @property
    def bound(self) -> int:
        """Number of GPUs that NVIDIA's kernel driver has."""
        return sum(driver == DRIVER for _, driver in self.gpus)

    @property
    def library_version(self) -> str:
        """Version of the library, as its file is named; empty where it is not."""
        found = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", os.path.realpath(self.library)) if self.library else None
        return found[1] if found else ""


def installation(
    root: str = "", library: Callable[[], str] | None = None, may_open: Callable[[str], bool] | None = None
) -> Installation:
    """Look at this machine; `root` is put before the paths of sysfs and /dev.

    `library` finds the library's path, empty for none, or raises OSError where it cannot be loaded; `may_open` tells
    whether the mode of a device file lets this user open it.
    """
    may_open = may_open or _may_open
    names, devices, modules = _listed(f"{root}/dev"), f"{root}{PCI_DEVICES}", f"{root}/sys/module"
    nodes = sorted(name for name in names if name == _CONTROL or _OF_GPU.match(name))
    path = unloadable = ""
    try:
        path = (library or _library)()
    except OSError as error:
        unloadable = clean(str(error))
    return Installation(
        sees_bus=os.path.isdir(devices),
        gpus=tuple((address, clean(kernel_driver(f"{devices}/{address}"))) for address in gpus_on(devices)),
        sees_modules=os.path.isdir(modules),
        module=clean(line_of(f"{modules}/{DRIVER}/version")),
        library=path,
        unloadable=unloadable,
        nodes=tuple((name, may_open(f"{root}/dev/{name}")) for name in nodes),
        is_wsl="dxg" in names,
    )


def checks(found: Installation, read: int) -> list[Check]:
    """Judge the parts, from the bus upward: the first fault is the cause of those behind it.

    `read`: number of GPUs that the driver showed just now; where there are some, no part is more than a warning.
    """
    parts = [_library_check(found)]
    if not found.is_wsl:
        parts = [_bus_check(found, read), _module_check(found), *parts, _nodes_check(found, read)]
    told = [part for part in parts if part is not None]
    return [part._replace(condition=min(part.condition, Condition.WARNING)) for part in told] if read else told


def _bus_check(found: Installation, read: int) -> Check | None:
    name = "PCI bus"
    if not found.gpus:
        if found.library or found.module or not found.sees_bus:  # a sandbox may hide the bus, and not the driver
            return None
        remedy = (
            "on a machine without one, 'gpumon tui' shows host and runs, and 'gpumon tui --source sim' a simulation"
        )
        return Check(name, Condition.FAULT, "no NVIDIA GPU is on the PCI bus", remedy)
    text = counted(len(found.gpus), "NVIDIA GPU")
    others = sorted({driver for _, driver in found.gpus} - {DRIVER})
    if not others:
        if 0 < read < found.bound:
            return Check(name, Condition.WARNING, f"{text}, of which the driver shows {read}", _KEPT_AWAY)
        return Check(name, Condition.OK, text)
    with_them = " and ".join(driver or _NO_DRIVER for driver in others)
    if found.bound:
        return Check(name, Condition.NOTE, f"{text}, {len(found.gpus) - found.bound} of them with {with_them}")
    remedies = []
    if "nouveau" in others:
        remedies.append(f"nouveau has no counters that could be read: {_INSTALL}")
    if any("vfio" in driver for driver in others):
        remedies.append("vfio gives a GPU to a virtual machine: run gpumon in that")
    if remedies:
        return Check(name, Condition.FAULT, f"{text}, with {with_them}", "; ".join(remedies))
    return Check(name, Condition.NOTE, f"{text}, with {with_them}")


def _module_check(found: Installation) -> Check | None:
    name = "kernel module"
    if not found.module:
        if not found.gpus or any(driver for _, driver in found.gpus):
            return None
        if not found.sees_modules:
            return Check(name, Condition.NOTE, "kernel modules cannot be looked at here")
        remedy = "'sudo modprobe nvidia' loads it, or says why not (Secure Boot, or none for this kernel)"
        text = "NVIDIA's kernel module is not loaded"
        return Check(name, Condition.FAULT, text, remedy if found.library else _INSTALL)
    library = found.library_version
    if library and library != found.module:
        text = f"the driver's kernel module is of version {found.module}, its library of {library}"
        remedy = (
            "the library is older: restart the container, or take it out of LD_LIBRARY_PATH"
            if _numbers(library) < _numbers(found.module)
            else "the driver was updated: restart the machine, or end all that use its GPUs and reload the module"
        )
        return Check(name, Condition.FAULT, text, remedy)
    if found.gpus and not any(driver for _, driver in found.gpus):
        text = f"NVIDIA's kernel module, version {found.module}, is loaded and drives no GPU"
        return Check(name, Condition.FAULT, text, "'dmesg' says why, as a card of another branch of the driver")
    return Check(name, Condition.OK, f"version {found.module}")


def _library_check(found: Installation) -> Check | None:
    name = "driver library"
    if found.unloadable:
        text = f"{SONAME} cannot be loaded: {found.unloadable}"
        return Check(name, Condition.FAULT, text, "install the driver's libraries anew")
    if found.library:
        version = f", version {found.library_version}" if found.library_version else ""
        if found.is_wsl and os.path.isabs(found.library) and not found.library.startswith(_OF_WSL):
            remedy = "remove the Linux driver: WSL has its own library, from the driver in Windows"
            return Check(name, Condition.WARNING, f"{found.library}{version}, which is not WSL's", remedy)
        return Check(name, Condition.OK, f"{found.library}{version}")
    if found.is_wsl:
        remedy = "install NVIDIA's driver in Windows; WSL gets its library from there"
    elif found.module:
        remedy = f"{_PASS_IN}; else install the driver's libraries of version {found.module}"
    elif found.gpus:
        remedy = _INSTALL if all(driver == "" for _, driver in found.gpus) else ""
    else:
        return Check(name, Condition.NOTE, f"{SONAME} was not found", _PASS_IN)
    return Check(name, Condition.FAULT, f"{SONAME} was not found", remedy)


def _nodes_check(found: Installation, read: int) -> Check | None:
    name = "device files"
    if not found.module:
        return None
    closed = [node for node, may_open in found.nodes if not may_open]
    if closed:
        remedy = f"'ls -l /dev/{closed[0]}' names the group that may: join it, or ask your admin"
        return Check(name, Condition.FAULT, f"this user may not open /dev/{closed[0]}", remedy)
    names = {node for node, _ in found.nodes}
    cards = names - {_CONTROL}
    if not cards or _CONTROL not in names:
        text = f"/dev/{_CONTROL} is missing" if cards else "there is no device file of a GPU in /dev"
        return Check(name, Condition.FAULT, text, f"on the machine itself, 'sudo nvidia-smi' makes them; {_PASS_IN}")
    if len(cards) < found.bound:
        return Check(name, Condition.NOTE, f"of {len(cards)} of {counted(found.bound, 'GPU')}")
    text = f"of {counted(len(cards), 'GPU')}, whose modes let this user open them"
    if not read:
        text += "; a container or a job may be kept from them all the same"
    return Check(name, Condition.OK, text)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _may_open(path: str) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def _library() -> str:
    """Path of the library; empty where there is none. Raises OSError where it cannot be loaded."""
    try:
        loaded = SHARED.current is not None
    except OSError as error:
        if is_absent(error):
            return ""
        raise
    return f"{SHARED.directory}/{SONAME}" if loaded and SHARED.directory else SONAME


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
