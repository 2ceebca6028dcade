"""Totals of a window as a table, as JSON and as CSV: `gpumon history totals`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model.device import Device
from gpumon.model.metrics import BY_NAME, Unit
from gpumon.model.units import MISSING, duration, energies, moment, number
from gpumon.reports.csv_cells import csv_line, utc
from gpumon.reports.text_table import TextColumn, distinct, draw
from gpumon.storage.history.totals import THROTTLED, TOTALS, Total, TotalKind, WindowTotals

SCHEMA = 1
FIELDS = (
    "device", "total", "unit", "value", "seconds", "missing_seconds", "missing_share", "estimated_seconds", "complete",
)  # fmt: skip
"""UUID of the GPU; the total with its unit and value; seconds of the window, those missing, those estimated."""
INCOMPLETE, ESTIMATED = "*", "~"
_REST = "MISSING"
"""Heading of the time that was not sampled."""
_MARKED = 0.005
"""The share of a window that is estimated, from which on a table says so."""
_HEADINGS = {
    "energy": "ENERGY", "utilization": "UTIL", "memory_peak": "MEM PEAK", "ecc_corrected": "ECC-C",
    "ecc_uncorrected": "ECC-U",
}  # fmt: skip
_KEEP = {
    "energy": 9, "utilization": 8, "memory_peak": 7, "pcie_sent": 3, "pcie_received": 3, "nvlink_sent": 3,
    "nvlink_received": 3, "ecc_corrected": 1, "ecc_uncorrected": 4,
}  # fmt: skip


def text(found: WindowTotals, width: int = 0) -> Iterator[str]:
    """Yield the table, a GPU in each line, with what the marks in it mean."""
    yield f"from {moment(found.begin)} to {moment(found.end)} ({duration(found.end - found.begin)})"
    devices = found.gpus
    has_indexes = any(map(_index, devices))
    columns = [TextColumn("GPU", 10), TextColumn("UUID", 2 if has_indexes else 10, right=False, least=13)]
    names = [clean(device.uuid, 100) for device in devices]
    if width and not has_indexes:
        names = distinct(names, max(13, width // 3))
    columns += [TextColumn(_heading(kind), _KEEP.get(kind.name, 5)) for kind in TOTALS]
    cells = [_column(kind, [found.devices[device.uuid][kind.name] for device in devices]) for kind in TOTALS]
    missing = [_missing(found.devices[device.uuid]) for device in devices]
    rows = [
        (_index(device), names[place], *(column[place] for column in cells), missing[place])
        for place, device in enumerate(devices)
    ]
    heading, *drawn_rows = draw([*columns, TextColumn(_REST, 8)], rows, width)
    yield from (heading, *drawn_rows)
    drawn = "".join("".join(row[2:]) for row in rows)
    if INCOMPLETE in drawn:
        rest = f"; {_REST} is the rest" if _REST in heading else ""
        yield f"{INCOMPLETE} incomplete: a total of the time that was sampled{rest}"
    if ESTIMATED in drawn:
        yield f"{ESTIMATED} estimated: a border of the window cuts a cell of kept history, which counts by its share"


def document(found: WindowTotals) -> dict[str, Any]:
    """Return the totals as one JSON object; a value of which nothing is known is null."""
    return {
        "schema": SCHEMA,
        "begin": found.begin,
        "end": found.end,
        "seconds": found.end - found.begin,
        "problem": found.problem or None,
        "devices": [
            {
                "uuid": device.uuid,
                "index": device.index if device.index >= 0 else None,
                "totals": {kind.name: _as_json(found.devices[device.uuid][kind.name], kind) for kind in TOTALS},
            }
            for device in found.gpus
        ],
    }


def table(found: WindowTotals) -> Iterator[str]:
    """Yield CSV, a line for each GPU and total, its heading first."""
    yield csv_line(("begun_utc", "ended_utc", *FIELDS))
    for device in found.gpus:
        for kind in TOTALS:
            cells = _as_json(found.devices[device.uuid][kind.name], kind)
            whole = "true" if cells["complete"] else "false"
            row = {**cells, "device": device.uuid, "total": kind.name, "complete": whole}
            yield csv_line((utc(found.begin), utc(found.end), *(row[name] for name in FIELDS)))


def _as_json(total: Total, kind: TotalKind) -> dict[str, Any]:
    return {
        "value": total.value if is_known(total.value) else None,
        "unit": kind.unit.value,
        "seconds": total.seconds,
        "missing_seconds": total.missing_seconds,
        "missing_share": total.missing_share,
        "estimated_seconds": total.estimated_seconds,
        "complete": total.is_complete,
    }


def _heading(kind: TotalKind) -> str:
    return _HEADINGS.get(kind.name) or BY_NAME[kind.metric].column


def _index(device: Device) -> str:
    return device.label


def _column(kind: TotalKind, totals: Sequence[Total]) -> list[str]:
    """Texts of one total of every GPU; empty for all where no GPU ever has it."""
    if not any(is_known(total.value) for total in totals):
        return [""] * len(totals)
    values = [total.value for total in totals]
    if kind.unit is Unit.JOULES:
        texts = energies(values)
    elif kind.metric in THROTTLED:  # a thousandth of it is a lot
        texts = [f"{value * 100:.1f} %" for value in values]
    else:
        texts = [number(value, kind.unit) for value in values]
    return [
        shown + _marks(total) if is_known(total.value) else MISSING for shown, total in zip(texts, totals, strict=True)
    ]


def _marks(total: Total) -> str:
    estimated = ESTIMATED if total.estimated_seconds > _MARKED * total.seconds else ""
    return estimated + ("" if total.is_complete else INCOMPLETE)


def _missing(totals: Mapping[str, Total]) -> str:
    """The longest time that a total lacks which the GPU has; of one that was never seen, the whole window."""
    known = [total for total in totals.values() if is_known(total.value)] or list(totals.values())
    worst = max(known, key=lambda total: total.missing_seconds)
    return "" if worst.is_complete else f"{duration(worst.missing_seconds)} ({worst.missing_share * 100:.1f} %)"
