"""Identity of one GPU: its handle, UUID, name and place, asked once for each GPU that a look finds."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, Library

NAMELESS = "NVIDIA GPU"


class Identity(NamedTuple):
    """Answers of the driver about one GPU."""

    code: int
    """SUCCESS, or why it is not known."""
    handle: Any = None
    uuid: str = ""
    name: str = ""
    address: str = ""
    """On the PCI bus; empty where the driver does not give it."""
    minor: int = -1
    """Number of its device file; -1 where the driver does not give it."""
    is_known: bool = False
    """Whether its handle is that of before: nothing else was asked."""


def identify(library: Library, index: int, known: int | None) -> Identity:
    """Ask for the identity of the GPU with an index. `known`: the handle of the one that was there before."""
    code, handle = library.handle(index)
    if code != SUCCESS:
        return Identity(code)
    if handle.value == known:
        return Identity(code, is_known=True)
    code, uuid = library.text("nvmlDeviceGetUUID", handle)
    address = library.bus_address(handle)
    if code in (SUCCESS, NOT_SUPPORTED) and not uuid:  # a card that has no UUID
        uuid, code = (f"PCI-{address}", SUCCESS) if address else ("", NOT_SUPPORTED)
    name = library.text("nvmlDeviceGetName", handle)[1] if uuid else ""
    minor = library.minor(handle) if uuid else -1
    return Identity(code, handle, uuid, name or NAMELESS, address, minor)
