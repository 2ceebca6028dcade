"""Finds the GPUs that a user names by index, label or UUID, including GPUs that are only in the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.numbers import UNKNOWN_MODEL
from gpumon.model.device import Device, by_number
from gpumon.model.frame import Frame
from gpumon.model.vendors import PARTS
from gpumon.storage.history.read import OpenFile, reading
from gpumon.storage.sqlite.cells import clean_name, typed_rows


def device_table(file: OpenFile) -> dict[str, Device]:
    """Return the GPUs in the file's table `device`, by UUID.

    Raises sqlite3.Error, or ValueError if the table is damaged.
    """
    rows = file.connection.execute("SELECT uuid, number, name FROM device") if file.has_tables else ()
    # A MIG instance has no number of its own, and its position within the GPU is not stored.
    return {
        uuid: Device(uuid, -1 if uuid.startswith(PARTS) else max(-1, number), clean_name(name) or UNKNOWN_MODEL)
        for uuid, number, name in typed_rows(rows, str, int, str)
    }


def read_devices(path: str) -> dict[str, Device]:
    """Return the GPUs in the file at `path` by UUID; empty if there is no file or it cannot be read."""
    try:
        with reading(path) as file:
            return device_table(file)
    except GpumonError:
        return {}


Wanted = int | str | Device
"""A GPU, given by its index, UUID or `Device`. A MIG instance that exists at present may also be given by its label
(`0:1`)."""


def devices_of(frames: Iterable[Frame]) -> dict[str, Device]:
    """Return the GPUs that appear in `frames`, by UUID."""
    return {sample.device.uuid: sample.device for frame in frames for sample in frame.samples}


def resolve_devices(
    wanted: Wanted | Iterable[Wanted] | None, known: Mapping[str, Device],
    read_stored: Callable[[], Mapping[str, Device] | None],
) -> list[str]:  # fmt: skip
    """Return the UUIDs of the GPUs that a user names. The list is empty if `wanted` is None.

    `known`: current GPUs by UUID. An index refers to the GPU in `known` with this index. If there is none, it refers to
    all GPUs in the history that last had this index. `read_stored`: function that returns the GPUs in the history, or
    None if the history cannot be read. In that case any UUID is accepted. Raises UsageError for an unknown GPU.
    """
    if wanted is None:
        return []
    names = [wanted] if isinstance(wanted, int | str | Device) else list(wanted)
    uuids: list[str] = []
    for name in names:
        if isinstance(name, int):
            matches = _with_index(name, known) or _with_index(name, read_stored() or {})
            if not matches:
                raise _unknown_index(name, known, read_stored() or {})
            uuids += matches
            continue
        uuid = name.uuid if isinstance(name, Device) else _labeled(name, known)
        if isinstance(name, str) and uuid not in known:
            stored = read_stored()
            if stored is not None and name not in stored:
                raise unknown_gpu(name, [*known, *stored])
        uuids.append(uuid)
    return list(dict.fromkeys(uuids))


def unknown_gpu(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a GPU that does not exist. Its message lists the `known` GPUs."""
    listed = ", ".join(clean_name(name) for name in dict.fromkeys(known))
    return UsageError(f"no such GPU: '{clean_name(name)}'. GPUs in the data: {listed or 'none'}")


def sort_devices(
    subjects: Iterable[str], known: Mapping[str, Device], read_stored: Callable[[], Mapping[str, Device]]
) -> Sequence[Device]:
    """Return the devices with these UUIDs, sorted by index. Devices without an index come last.

    `known`: devices by UUID. `read_stored`: function that returns the GPUs in the history. It is called only if a
    device is not in `known`. For a device that is in neither of the two, only the UUID is set.
    """
    uuids = list(dict.fromkeys(subjects))
    stored = read_stored() if any(uuid not in known for uuid in uuids) else {}
    devices = [known.get(uuid) or stored.get(uuid) or Device(uuid, -1, UNKNOWN_MODEL) for uuid in uuids]
    return sorted(devices, key=lambda device: (device.index < 0, *by_number(device), device.uuid))


def _labeled(name: str, known: Mapping[str, Device]) -> str:
    """Return the UUID of the MIG instance whose label is `name`, such as `0:1`. Return `name` if there is none."""
    return next((uuid for uuid, device in known.items() if device.is_instance and device.label == name), name)


def _with_index(index: int, devices: Mapping[str, Device]) -> list[str]:
    return sorted(uuid for uuid, device in devices.items() if device.index == index >= 0 and is_whole(device))


def is_whole(device: Device) -> bool:
    """Return whether the device is a whole GPU and not a MIG instance.

    A removed MIG instance is recognized by its UUID.
    """
    return not (device.is_instance or device.uuid.startswith(PARTS))


def _unknown_index(index: int, *known: Mapping[str, Device]) -> UsageError:
    """Return the error for an index that no GPU has."""
    indexes = sorted({device.index for devices in known for device in devices.values() if device.index >= 0})
    listed = ", ".join(map(str, indexes)) or "none; pass a UUID"
    return UsageError(f"no such GPU: {index}. Indexes in the data: {listed}")
