"""GPUs as the file of kept history names them: by UUID, the index and the name that each had last."""

from __future__ import annotations

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import UNKNOWN_MODEL
from gpumon.common.text import clean
from gpumon.database.cells import typed_rows
from gpumon.history.read import OpenFile, reading
from gpumon.model.device import Device
from gpumon.model.vendors import PARTS

_MOST_NAME = 100
"""Characters of a name."""


def device_table(file: OpenFile) -> dict[str, Device]:
    """Return every GPU of the table of devices by UUID. Raises sqlite3.Error, or ValueError for a damaged one."""
    rows = file.connection.execute("SELECT uuid, number, name FROM device") if file.has_people else ()
    # A MIG instance has no number of its own, and which one of its GPU it was the table does not tell.
    return {
        uuid: Device(uuid, -1 if uuid.startswith(PARTS) else max(-1, number), clean(name, _MOST_NAME) or UNKNOWN_MODEL)
        for uuid, number, name in typed_rows(rows, str, int, str)
    }


def devices_in(path: str) -> dict[str, Device]:
    """Return the same of the file at `path`; of none, or one that cannot be read, no GPU: who reads it says why."""
    try:
        with reading(path) as file:
            return device_table(file)
    except GpumonError:
        return {}
