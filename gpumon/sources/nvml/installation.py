"""Checks the files of NVIDIA's driver on this machine. No driver call is made, because a call could hang or wake a
GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from gpumon.common.check_result import Check, Condition
from gpumon.common.text import clean
from gpumon.model.units import counted
from gpumon.sources.nvml.library import SHARED, SONAME, is_absent
from gpumon.sources.nvml.sysfs import DRIVER, PCI_DEVICES, kernel_driver, list_gpus, read_line

_CONTROL_NODE = "nvidiactl"
_GPU_NODE = re.compile(r"nvidia\d+$")
_WSL_FOLDER = "/usr/lib/wsl/"
_NO_DRIVER = "no kernel driver"
_INSTALL = "install NVIDIA's driver, then restart the machine"
_PASS_IN = "in a container, pass the GPUs in, for example with 'docker run --gpus all'"
_MISSING_GPU = "a GPU may have failed to start (see 'dmesg'), or be hidden from this container or job"


@dataclass(frozen=True, slots=True)
class Installation:
    """The parts of the driver that are on this machine."""

    sees_bus: bool = True
    """False if the PCI bus is hidden, as in a sandbox."""
    gpus: tuple[tuple[str, str], ...] = ()
    """By PCI address of each NVIDIA GPU: the kernel driver that is bound to it; empty if there is none."""
    sees_modules: bool = True
    """False if the kernel's modules are hidden."""
    module: str = ""
    """Version of the loaded kernel module; empty if none is loaded."""
    library: str = ""
    """Path of the driver's library, or only its name if the kernel hides the path. Empty if the library is not
    installed."""
    load_error: str = ""
    """Why the library cannot be loaded although it is installed; empty if it can be loaded."""
    nodes: tuple[tuple[str, bool], ...] = ()
    """By name of each device file in /dev: whether its mode lets this user open it."""
    is_wsl: bool = False
    kernel: str = ""
    """Release of the running kernel."""
    module_kernels: tuple[str, ...] = ()
    """Kernels for which NVIDIA's module is installed. Only filled if there are GPUs but the module is not loaded."""

    @property
    def bound(self) -> int:
        """Number of GPUs that NVIDIA's kernel driver controls."""
        return sum(driver == DRIVER for _, driver in self.gpus)

    @property
    def library_version(self) -> str:
        """Version of the library according to its file name; empty if the name contains no version."""
        match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", os.path.realpath(self.library)) if self.library else None
        return match[1] if match else ""


def find_installation(
    root: str = "",
    find_library: Callable[[], str] | None = None,
    may_open: Callable[[str], bool] | None = None,
    kernel: str = "",
) -> Installation:
    """Find the parts of the driver. `root`: directory put before the paths in sysfs and /dev, for tests.

    `find_library`: function that returns the path of the library, or "" if it is not installed. It raises OSError if
    the library cannot be loaded. `may_open`: function that returns whether the permissions of a device file let this
    user open it. `kernel`: release of the running kernel, os.uname() if empty.
    """
    may_open = may_open or _may_open
    names, devices, modules = _list_folder(f"{root}/dev"), f"{root}{PCI_DEVICES}", f"{root}/sys/module"
    nodes = sorted(name for name in names if name == _CONTROL_NODE or _GPU_NODE.match(name))
    library = load_error = ""
    try:
        library = (find_library or _find_library)()
    except OSError as error:
        load_error = clean(str(error))
    gpus = list_gpus(devices)
    module = clean(read_line(f"{modules}/{DRIVER}/version"))
    return Installation(
        sees_bus=os.path.isdir(devices),
        gpus=tuple((address, clean(kernel_driver(f"{devices}/{address}"))) for address in gpus),
        sees_modules=os.path.isdir(modules),
        module=module,
        library=library,
        load_error=load_error,
        nodes=tuple((name, may_open(f"{root}/dev/{name}")) for name in nodes),
        is_wsl="dxg" in names,
        kernel=kernel or os.uname().release,
        module_kernels=_kernels_with_module(f"{root}/lib/modules") if gpus and not module else (),
    )


def check_installation(installation: Installation, gpu_count: int) -> list[Check]:
    """Check the parts of the driver, starting with the PCI bus. A fault in a part causes faults in all later parts.

    `gpu_count`: number of GPUs that were just read successfully. If it is not 0, no result is worse than a warning.
    """
    checks: list[Check | None] = [_check_library(installation)]
    if not installation.is_wsl:
        checks = [
            _check_bus(installation, gpu_count),
            _check_module(installation),
            *checks,
            _check_nodes(installation, gpu_count),
        ]
    applicable = [check for check in checks if check is not None]
    if not gpu_count:
        return applicable
    return [check._replace(condition=min(check.condition, Condition.WARNING)) for check in applicable]


def _check_bus(installation: Installation, gpu_count: int) -> Check | None:
    name = "PCI bus"
    gpus = installation.gpus
    if not gpus:
        # A sandbox may hide the bus but not the driver.
        if installation.library or installation.module or not installation.sees_bus:
            return None
        remedy = (
            "on a machine without one, 'gpumon tui' shows host and runs, and 'gpumon tui --source sim' a simulation"
        )
        return Check(name, Condition.FAULT, "no NVIDIA GPU is on the PCI bus", remedy)
    text = counted(len(gpus), "NVIDIA GPU")
    others = sorted({driver for _, driver in gpus} - {DRIVER})
    if not others:
        if 0 < gpu_count < installation.bound:
            return Check(name, Condition.WARNING, f"{text}, of which the driver shows {gpu_count}", _MISSING_GPU)
        return Check(name, Condition.OK, text)
    other_names = " and ".join(driver or _NO_DRIVER for driver in others)
    if installation.bound:
        return Check(name, Condition.NOTE, f"{text}, {len(gpus) - installation.bound} of them with {other_names}")
    remedies = []
    if "nouveau" in others:
        remedies.append(f"nouveau provides no counters: {_INSTALL}")
    if any("vfio" in driver for driver in others):
        remedies.append("vfio assigns a GPU to a virtual machine: run gpumon in that machine")
    if remedies:
        return Check(name, Condition.FAULT, f"{text}, with {other_names}", "; ".join(remedies))
    return Check(name, Condition.NOTE, f"{text}, with {other_names}")


def _check_module(installation: Installation) -> Check | None:
    name = "kernel module"
    has_driver = any(driver for _, driver in installation.gpus)
    if not installation.module:
        if not installation.gpus or has_driver:
            return None
        if not installation.sees_modules:
            return Check(name, Condition.NOTE, "the kernel's modules are hidden here")
        if installation.module_kernels and installation.kernel not in installation.module_kernels:
            other = installation.module_kernels[-1]
            text = f"NVIDIA's kernel module is installed for the kernel {other}, but {installation.kernel} is running"
            remedy = f"'sudo dkms autoinstall -k {installation.kernel}', or restart with the kernel {other}"
            return Check(name, Condition.FAULT, text, remedy)
        remedy = "load it with 'sudo modprobe nvidia'; if that fails, 'dmesg' shows the reason, such as Secure Boot"
        text = "NVIDIA's kernel module is not loaded"
        return Check(name, Condition.FAULT, text, remedy if installation.library else _INSTALL)
    library, module = installation.library_version, installation.module
    if library and library != module:
        text = f"the driver's kernel module is version {module}, but its library is version {library}"
        remedy = (
            "the library is older: restart the container, or remove it from LD_LIBRARY_PATH"
            if _version_numbers(library) < _version_numbers(module)
            else "the driver was updated: restart the machine, or end all programs on its GPUs and reload the module"
        )
        return Check(name, Condition.FAULT, text, remedy)
    if installation.gpus and not has_driver:
        text = f"NVIDIA's kernel module, version {module}, is loaded but drives no GPU"
        return Check(
            name,
            Condition.FAULT,
            text,
            "check 'dmesg' for the reason; the card may need another driver branch",
        )
    return Check(name, Condition.OK, f"version {module}")


def _check_library(installation: Installation) -> Check | None:
    name = "driver library"
    if installation.load_error:
        text = f"{SONAME} cannot be loaded: {installation.load_error}"
        return Check(name, Condition.FAULT, text, "reinstall the driver's libraries")
    library = installation.library
    if library:
        version = f", version {installation.library_version}" if installation.library_version else ""
        if installation.is_wsl and os.path.isabs(library) and not library.startswith(_WSL_FOLDER):
            remedy = "remove the Linux driver: WSL has its own library, from the driver in Windows"
            return Check(name, Condition.WARNING, f"{library}{version}, which is not the library of WSL", remedy)
        return Check(name, Condition.OK, f"{library}{version}")
    if installation.is_wsl:
        remedy = "install NVIDIA's driver in Windows; WSL gets its library from there"
    elif installation.module:
        remedy = f"{_PASS_IN}; else install the driver's libraries of version {installation.module}"
    elif installation.gpus:
        remedy = _INSTALL if all(driver == "" for _, driver in installation.gpus) else ""
    else:
        return Check(name, Condition.NOTE, f"{SONAME} was not found", _PASS_IN)
    return Check(name, Condition.FAULT, f"{SONAME} was not found", remedy)


def _check_nodes(installation: Installation, gpu_count: int) -> Check | None:
    name = "device files"
    if not installation.module:
        return None
    closed = [node for node, may_open in installation.nodes if not may_open]
    if closed:
        remedy = f"'ls -l /dev/{closed[0]}' shows the group that may open it: join this group, or ask the administrator"
        return Check(name, Condition.FAULT, f"this user may not open /dev/{closed[0]}", remedy)
    names = {node for node, _ in installation.nodes}
    cards = names - {_CONTROL_NODE}
    if not cards or _CONTROL_NODE not in names:
        text = f"/dev/{_CONTROL_NODE} is missing" if cards else "/dev has no device file of a GPU"
        return Check(name, Condition.FAULT, text, f"on the machine itself, 'sudo nvidia-smi' creates them; {_PASS_IN}")
    if len(cards) < installation.bound:
        return Check(name, Condition.NOTE, f"of {len(cards)} of {counted(installation.bound, 'GPU')}")
    text = f"of {counted(len(cards), 'GPU')}, whose modes let this user open them"
    if not gpu_count:
        text += "; a container or a job may still not be allowed to"
    return Check(name, Condition.OK, text)


_MODULE_FOLDERS = (
    "updates/dkms", "updates", "extra", "extra/nvidia", "extramodules", "misc", "video", "kernel/drivers/video",
    "kernel/drivers/video/nvidia", "kernel/nvidia",
)  # fmt: skip
"""Folders of a kernel's modules in which distributions, DKMS and NVIDIA's installer put the driver."""


def _kernels_with_module(folder: str) -> tuple[str, ...]:
    """Return the releases of the kernels for which NVIDIA's module is installed. `folder`: /lib/modules."""
    return tuple(
        clean(kernel)
        for kernel in sorted(_list_folder(folder))
        if any(
            name.startswith("nvidia.ko")
            for part in _MODULE_FOLDERS
            for name in _list_folder(f"{folder}/{kernel}/{part}")
        )
    )


def _version_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _may_open(path: str) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def _find_library() -> str:
    """Return the path of the library; empty if it is not installed. Raises OSError if it cannot be loaded."""
    try:
        is_loaded = SHARED.current is not None
    except OSError as error:
        if is_absent(error):
            return ""
        raise
    return f"{SHARED.directory}/{SONAME}" if is_loaded and SHARED.directory else SONAME


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
