"""Checks the kernel drivers and device files of AMD and Intel GPUs for `gpumon doctor`, without waking a card."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpumon.common.check_result import Check, Condition
from gpumon.model.units import counted
from gpumon.sources.drm.cards import AMDGPU, PCI_DEVICES, relevant_cards
from gpumon.sources.drm.files import list_folder, read_text

_VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
_MODULES = {"AMD": AMDGPU, "Intel": "i915' or 'sudo modprobe xe"}
_DISPLAY = "0x03"
"""First digits of the PCI class of a display controller, see linux/pci_ids.h."""
_KFD = "/dev/kfd"


@dataclass(frozen=True, slots=True)
class Installation:
    """The parts of the drivers that are on this machine."""

    drivers: tuple[str, ...] = ()
    """Kernel driver of each GPU that can be read."""
    unbound: tuple[tuple[str, str], ...] = ()
    """Address and vendor of each AMD or Intel GPU on the PCI bus that no kernel driver controls."""
    nodes: tuple[tuple[str, bool], ...] = ()
    """Path of each device file that programs need, and whether this user may open it. Missing files are included."""
    missing: tuple[str, ...] = ()
    """Device files in `nodes` that do not exist."""


def find_installation(root: str = "", may_open: Callable[[str], bool] | None = None) -> Installation:
    """Find the parts of the drivers. `root`: folder put before all paths. `may_open`: see `Installation.nodes`."""
    may_open = may_open or (lambda path: os.access(path, os.R_OK | os.W_OK))
    cards = relevant_cards(root)
    paths = [_KFD] if any(card.driver == AMDGPU for card in cards) else []
    paths += [f"/dev/dri/renderD{card.render_minor}" for card in cards if card.render_minor >= 0]
    return Installation(
        drivers=tuple(card.driver for card in cards),
        unbound=tuple(_unbound(f"{root}{PCI_DEVICES}")),
        nodes=tuple((path, may_open(f"{root}{path}")) for path in paths),
        missing=tuple(path for path in paths if not os.path.exists(f"{root}{path}")),
    )


def _unbound(folder: str) -> list[tuple[str, str]]:
    addresses = [
        (address, read_text(f"{folder}/{address}/vendor"))
        for address in list_folder(folder)
        if read_text(f"{folder}/{address}/class").startswith(_DISPLAY)
    ]
    return [
        (address, _VENDORS[vendor])
        for address, vendor in addresses
        if vendor in _VENDORS and not os.path.lexists(f"{folder}/{address}/driver")
    ]


def check_installation(installation: Installation, gpu_count: int) -> list[Check]:
    """Check drivers and device files. `gpu_count`: number of GPUs that were just read."""
    checks = []
    for driver in sorted(set(installation.drivers)):
        count = counted(installation.drivers.count(driver), "GPU")
        checks.append(Check("kernel driver", Condition.OK, f"{driver} has {count}"))
    for vendor in _MODULES:
        addresses = [address for address, maker in installation.unbound if maker == vendor]
        if addresses:
            remedy = f"load the driver with 'sudo modprobe {_MODULES[vendor]}', then check 'dmesg'"
            which = f"{counted(len(addresses), f'{vendor} GPU')} at PCI address {', '.join(addresses)}"
            checks.append(Check("kernel driver", Condition.WARNING, f"no kernel driver controls {which}", remedy))
    if not installation.drivers and not installation.unbound and not gpu_count:
        checks.append(Check("kernel driver", Condition.NOTE, "no AMD or Intel GPU was found"))
    for paths, use in (
        ((_KFD,), "no ROCm program can use a GPU"),
        (_render_nodes(installation), "programs cannot use these GPUs"),
    ):
        checks += _check_nodes(installation, paths, use)
    return checks


def _render_nodes(installation: Installation) -> tuple[str, ...]:
    return tuple(path for path, _ in installation.nodes if path != _KFD)


def _check_nodes(installation: Installation, paths: Sequence[str], use: str) -> Iterator[Check]:
    name = "device files"
    can_open = {path: can_open for path, can_open in installation.nodes if path in paths}
    missing = [path for path in can_open if path in installation.missing]
    closed = [path for path, is_open in can_open.items() if not is_open and path not in missing]
    if missing:
        remedy = "in a container, pass it in: 'docker run --device /dev/kfd --device /dev/dri'"
        yield Check(name, Condition.WARNING, f"{', '.join(missing)} missing: {use}", remedy)
    if closed:
        remedy = "add the user to the groups 'render' and 'video', then log in again"
        yield Check(name, Condition.WARNING, f"this user may not open {', '.join(closed)}: {use}", remedy)
    if can_open and not missing and not closed:
        yield Check(name, Condition.OK, ", ".join(can_open))
