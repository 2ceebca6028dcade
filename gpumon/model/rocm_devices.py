"""The GPUs that the environment of a process lets ROCm use, and the names that ROCm has for GPUs.

Sources: ROCm documentation, "GPU isolation techniques"; clr, rocclr/device/rocm/rocdevice.cpp. ROCr reads
ROCR_VISIBLE_DEVICES first. HIP then reads HIP_VISIBLE_DEVICES, or if it is empty CUDA_VISIBLE_DEVICES, and counts only
the GPUs that remain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpumon.model.vendors import ADDRESS, AMD

ORDER = AMD.order[1]
"""Name of ROCm's own order of GPUs, in which KFD lists them."""
_ROCR, _HIP, _CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
SERIAL_DIGITS = 16
"""Number of hexadecimal digits of a card's serial number."""
_SERIAL = re.compile(rb"[0-9a-f]{%d}" % SERIAL_DIGITS)


def rocm_visible_devices(env: Mapping[str, str]) -> str:
    """Return the GPUs that a ROCm process sees, as numbers in ROCm's order or UUIDs, separated by commas.

    Empty if it sees all GPUs. -1 if it sees none.
    """
    by_rocr = _entries(env.get(_ROCR, ""))
    by_hip = _entries(env.get(_HIP, "") or env.get(_CUDA, ""))
    if by_hip is None:
        return _joined(by_rocr)
    if by_rocr is None:
        return _joined(by_hip)
    chosen: list[str] = []
    for entry in by_hip:
        if entry.isdigit() and int(entry) < len(by_rocr):
            chosen.append(by_rocr[int(entry)])
        elif entry in by_rocr and not entry.isdigit():
            chosen.append(entry)
        else:
            break
    return _joined(chosen)


def _entries(value: str) -> list[str] | None:
    """Return the valid entries of a variable; None if it is not set. The first invalid entry ends the list."""
    if not value.strip():
        return None
    entries: list[str] = []
    for entry in (entry.strip() for entry in value.split(",")):
        is_number = entry.isascii() and entry.isdigit() and len(entry) < 5
        if not is_number and not entry.startswith(AMD.whole):
            break
        entries.append(str(int(entry)) if is_number else entry)
    return entries


def _joined(entries: list[str] | None) -> str:
    return "" if entries is None else ",".join(entries) or "-1"


def hip_uuid(uuid: str) -> str | None:
    """Return the identifier of a card from the UUID of HIP, whose 16 bytes are the text of the card's serial number.

    None if the UUID is of another kind. Empty if it is of a card without a serial number.

    >>> hip_uuid("31663964-6530-3935-3764-313337393432")
    'GPU-1f9de0957d137942'
    """
    try:
        raw = bytes.fromhex(uuid.replace("-", ""))
    except ValueError:
        return None
    if len(raw) == SERIAL_DIGITS and _SERIAL.fullmatch(raw):
        return "" if raw == b"0" * 16 else f"{AMD.whole[0]}{raw.decode()}"
    return "" if not raw.strip(b"X\0") else None


def address_name(domain: object, bus: object, device: object) -> str:
    """Return an identifier from numbers on the PCI bus, such as `PCI-0000:03:00.0`; empty if one is not a number."""
    numbers = [number for number in (domain, bus, device) if isinstance(number, int) and 0 <= number < 1 << 32]
    return f"{ADDRESS}{numbers[0]:04x}:{numbers[1]:02x}:{numbers[2]:02x}.0" if len(numbers) == 3 else ""


def named_address(address: str) -> str:
    """Return the identifier of a device from its address, such as `PCI-0000:65:00.0` from `00000000:65:00.0`."""
    domain, separator, rest = address.lower().partition(":")
    try:
        return f"{ADDRESS}{int(domain, 16):04x}:{rest}" if separator else ""
    except ValueError:
        return ""
