"""The machine itself as a line among those of GPUs, where no GPU can be read."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.renderables.gpu_columns import GpuColumns
from gpumon_tui.renderables.memory_bar import CELL, TINTS
from gpumon_tui.renderables.placed import Piece, Placed
from gpumon_tui.renderables.text_width import Line


def host_row(history: Line, host: Callable[[str], float], name: str, columns: GpuColumns) -> list[Piece]:
    """Return the texts of the line; `host` gives its metrics by their names."""
    row = Placed()
    row.right(columns.label, "CPU", theme.STRONG)
    if columns.strip_cells:
        row.segments(columns.strip, history)
    row.right(columns.percent, units.percent(host("host.cpu_utilization")), theme.STRONG)
    used, total = host("host.memory_used"), host("host.memory_total")
    if columns.bar_cells and isfinite(used) and total > 0:
        full = min(columns.bar_cells, round(columns.bar_cells * used / total))
        row.put(columns.bar, CELL * full, palette.tinted("memory", 0.45))
        row.put(columns.bar + full, CELL * (columns.bar_cells - full), TINTS["free"])
    size = units.gibibytes(used)
    row.right(columns.used, f"{used / 2**30:.0f}G" if columns.is_short and isfinite(used) else size, theme.PLAIN)
    row.put(columns.user, f"host {name}".rstrip(), theme.DIM)
    return row.pieces
