"""The GPUs that a value of CUDA_VISIBLE_DEVICES names, as CUDA reads it.

Sources: CUDA C++ Programming Guide, "CUDA Environment Variables"; torch/cuda/__init__.py, _parse_visible_devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model.device import Device
from gpumon.model.rocm_devices import named_address
from gpumon.model.vendors import ADDRESS, NVIDIA, find_vendor

VARIABLE = "CUDA_VISIBLE_DEVICES"


def named_devices(value: str, devices: Sequence[Device]) -> list[str | None]:
    """Return the UUID of each entry of a value; None for an entry that is invalid. A final comma is ignored.

    `devices`: the GPUs of this machine. A number is the driver's, as with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    numbered = [device for device in devices if not device.is_instance and device.index >= 0]
    # CUDA numbers only NVIDIA's GPUs. On a machine without NVIDIA GPUs, HIP reads the variable.
    own = [device for device in numbered if find_vendor(device.name, device.uuid) in (NVIDIA, None)] or numbered
    by_number = {str(device.index): device.uuid for device in own}
    entries = [entry.strip() for entry in value.split(",")]
    if len(entries) > 1 and not entries[-1]:
        entries.pop()
    return [
        by_number.get(str(int(entry))) if entry.isascii() and entry.isdigit() else device_by_uuid(entry, devices)
        for entry in entries
    ]


def as_cuda_reads(entries: Sequence[str | None]) -> list[str]:
    """Return the devices that CUDA makes visible for these entries; None stands for an invalid entry.

    The first invalid entry ends the list. If a device is listed twice, none is visible.
    """
    valid: list[str] = []
    for uuid in entries:
        if uuid is None:
            break
        valid.append(uuid)
    return valid if len({*valid}) == len(valid) else []


def device_by_uuid(uuid: str, devices: Sequence[Device]) -> str | None:
    """Return the device that matches `uuid`; None if no device or several match.

    `uuid` may be shortened or have the wrong prefix.
    """
    if uuid.startswith(ADDRESS):
        found = [device.uuid for device in devices if device.address and named_address(device.address) == uuid]
        return found[0] if len(found) == 1 else None
    exact = [device.uuid for device in devices if device.uuid == uuid]
    if exact:
        return exact[0]
    prefix, bare = uuid[:4], uuid[4:]
    if len(bare) < 4:
        return None
    matches = [device.uuid for device in devices if device.uuid.startswith(prefix + bare)]
    # Some versions of torch report a MIG instance with the prefix of a whole GPU.
    matches = matches or [device.uuid for device in devices if device.uuid[4:] == bare]
    return matches[0] if len(matches) == 1 else None
