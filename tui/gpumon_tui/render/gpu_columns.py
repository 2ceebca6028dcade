"""Columns of the GPU table for a given width, and the arrangement of GPUs in several columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from gpumon.model.columns import GPU_BY_KEY

SHORT = 56
"""Width below which a GPU has a short line."""
SHORT_CELLS = 39
"""Width of a short line when several are side by side."""
WIDE = 100
VERY_WIDE = 198
"""Minimum width, in columns, at which the table has columns for values that not every driver reports."""
OPTIONAL_COLUMNS = {"fan": 7, "performance_state": 4, "encoder_utilization": 7, "decoder_utilization": 7}
"""Width of each of these columns."""
NUMBERS = ("temperature", "power", "clock_sm", "pcie_received", "pcie_sent", *OPTIONAL_COLUMNS)
"""Number columns to the right of the memory column, from left to right."""
BAR = "bar"
COLUMN_METRICS = {
    BAR: "gpu.memory_total",
    **{key: GPU_BY_KEY[key].metric for key in (*NUMBERS, "throttled") if key not in OPTIONAL_COLUMNS},
}
"""Metrics of the columns that are hidden if no GPU reports them."""
HOLDERS = "holders"
"""Name of the columns that are hidden if the users of GPUs are not available."""
TAIL, SHORT_TAIL, BRIEF_TAIL, BRIEF = 42, 29, 26, 80
"""Width of the user part: from 100 cells on; below that, where `jupyter-kernel` still fits; and below `BRIEF` cells."""
STATE_TAIL = 16
"""Width of the state alone."""


class GpuColumns(NamedTuple):
    """First cells of text and bar columns, end cells of number columns; 0 for hidden columns.

    Columns of metrics have the keys of `model.columns`.
    """

    cells: int
    begin: int
    label: int
    """Column of the GPU number."""
    strip: int
    strip_cells: int
    percent: int
    bar: int
    bar_cells: int
    used: int
    of: int
    temperature: int
    power: int
    clock_sm: int
    pcie_received: int
    pcie_sent: int
    throttled: int
    user: int
    user_cells: int
    run: int
    epoch: int
    end: int
    fan: int = 0
    performance_state: int = 0
    encoder_utilization: int = 0
    decoder_utilization: int = 0
    has_holders: bool = True

    @property
    def is_short(self) -> bool:
        """Whether a single word replaces epoch and state."""
        return self.cells < SHORT


@lru_cache(maxsize=64)
def gpu_columns(
    cells: int, label: int = 1, *, totals: bool = False, reported: frozenset[str] = frozenset(),
    missing: frozenset[str] = frozenset(),
) -> GpuColumns:  # fmt: skip
    """Divide `cells` into columns; `label` is the width of the longest GPU number.

    `totals`: memory sizes differ, so every row shows its total. `reported`: columns of `OPTIONAL_COLUMNS` that any
    driver reports; `missing`: columns of `COLUMN_METRICS` that no GPU reports, and possibly `HOLDERS`.
    """
    if cells < SHORT:
        return _short(cells, label)
    is_wide = cells >= WIDE
    begin = 2 if is_wide else 1
    label_end = begin + max(3, label)
    bar_cells = 0 if BAR in missing else 20 if cells >= 185 else 12 if is_wide else 8 if cells >= 66 else 0
    column_cells = {
        "of": 6 * (totals and cells >= 80), "temperature": (4 + is_wide) * (cells >= 70),
        "power": (5 + is_wide) * (cells >= 76),
        "clock_sm": 8 * (cells >= 150), "pcie_received": 8 * (cells >= 185), "pcie_sent": 6 * (cells >= 185),
        **{key: width * (cells >= VERY_WIDE and key in reported) for key, width in OPTIONAL_COLUMNS.items()},
        "throttled": 14 * (cells >= 150),
    }  # fmt: skip
    column_cells |= dict.fromkeys(missing & column_cells.keys(), 0)
    has_holders = HOLDERS not in missing
    tail = TAIL + 4 * (cells >= 150) if is_wide else SHORT_TAIL if cells >= BRIEF else BRIEF_TAIL
    tail = tail if has_holders else STATE_TAIL
    margin = 2 if is_wide else 1
    numbers = 5 + (bar_cells + 2 if bar_cells else 0) + 6 + is_wide + sum(column_cells.values())
    strip_room = cells - margin - label_end - 2 - numbers - 2 - is_wide - tail
    strip_cells = max(0, strip_room if strip_room <= 69 else 69 + (strip_room - 69) * 2 // 3)
    strip = label_end + 2 if is_wide else label_end + 1 + (strip_cells > 0)
    position = strip + strip_cells
    percent = position = position + 5
    bar = position + 2 if bar_cells else 0
    position = bar + bar_cells if bar_cells else position
    used = position = position + (7 if is_wide else 6)
    ends = dict.fromkeys(column_cells, 0)
    for name, width in column_cells.items():
        if width:
            ends[name] = position + 3 if name == "throttled" else position + width
            position += width
    user = position + (3 if is_wide else 2)
    user_cells = 0 if not has_holders else 10 if cells >= 150 else 8 if cells >= 120 else 7
    return GpuColumns(
        cells=cells, begin=begin, label=label_end, strip=strip, strip_cells=strip_cells, percent=percent, bar=bar,
        bar_cells=bar_cells, used=used, user=user, user_cells=user_cells, run=user + user_cells,
        epoch=cells - margin - 11 if is_wide else cells - margin, end=cells - margin, has_holders=has_holders, **ends,
    )  # fmt: skip


def _short(cells: int, label: int) -> GpuColumns:
    label_end = 1 + max(2, label)
    strip_cells = max(0, min(8, cells - 30)) if cells >= 34 else 0
    strip = label_end + 1
    percent = strip + strip_cells + 4 + (strip_cells > 0)
    used = percent + 5
    user = min(used + 1, cells)
    return GpuColumns(
        cells=cells, begin=1, label=label_end, strip=strip, strip_cells=strip_cells, percent=percent, bar=0,
        bar_cells=0, used=used, of=0, temperature=0, power=0, clock_sm=0, pcie_received=0, pcie_sent=0, throttled=0,
        user=user, user_cells=6, run=0, epoch=0, end=cells - 1,
    )  # fmt: skip


def numbers(uuids: Sequence[str], labels: Mapping[str, str]) -> str:
    """Return devices by their labels: `0–3`, `0,5`, for MIG instances `0:1`; empty if no label is available."""
    known_labels = [label for uuid in uuids if (label := labels.get(uuid))]
    spans: list[list[int]] = []
    for index in sorted(int(label) for label in known_labels if label.isdecimal()):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    ranges = [str(first) if first == last else f"{first}–{last}" for first, last in spans]
    return ",".join((*ranges, *sorted(label for label in known_labels if not label.isdecimal())))


GAP = 2
"""Cells between two GPUs side by side."""
SIDE_BY_SIDE_FROM = 80
"""Minimum width, in columns, at which GPUs are placed side by side if there are too few rows."""
MIN_MARKED_ROWS = 3
"""Rows from which the count of hidden GPUs has its own row; below, it is appended to the last row."""


class GpuArrangement(NamedTuple):
    """Arrangement of the GPUs, column by column."""

    columns: int
    cells: int
    """Width of each GPU."""
    rows: int
    """Rows of GPUs on screen."""
    needed_rows: int
    """Rows needed for all GPUs."""
    has_summary: bool
    """Whether there is a row with the number of free GPUs."""
    has_heading: bool
    has_epochs: bool
    """Whether there is a row for the epochs of a run."""

    @property
    def first_row(self) -> int:
        """Row of the first GPU."""
        return int(self.has_heading) + 2 * int(self.has_summary)

    @property
    def has_hidden(self) -> bool:
        """Whether some GPUs are not on screen."""
        return self.rows < self.needed_rows


def arrange_gpus(cells: int, rows: int, gpus: int) -> GpuArrangement:
    """Arrange `gpus` in a room of `rows` and `cells`; headings and epochs get the remaining rows."""
    rows = max(1, rows)
    column_count = 1
    if gpus > rows and cells >= SIDE_BY_SIDE_FROM:
        column_count = min(ceil(gpus / rows), (cells + GAP) // (SHORT_CELLS + GAP))
    needed_rows = ceil(gpus / column_count)
    gpu_cells = (cells - GAP * (column_count - 1)) // column_count
    spare = rows - needed_rows
    has_summary = gpu_cells < SHORT and column_count == 1 and spare >= 2
    heading = gpu_cells >= SHORT and spare >= 1
    epochs = gpu_cells >= SHORT and spare >= 2
    visible_rows = needed_rows if spare >= 0 else rows - 1 if rows >= MIN_MARKED_ROWS else rows
    return GpuArrangement(column_count, gpu_cells, visible_rows, needed_rows, has_summary, heading, epochs)
