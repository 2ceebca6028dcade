"""The table below a cell: what the cell used of each GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.columns import BY_KEY, GPU_BY_KEY, Column
from gpumon.model.vendors import short_name
from gpumon.notebook.cell_cost import GpuCost, costs_by_column
from gpumon.reports.text_table import draw, text_column

_GPU = GPU_BY_KEY["gpu"]
COLUMNS: tuple[Column, ...] = tuple(
    BY_KEY[key] for key in ("seconds", "utilization_mean", "memory_used_peak", "framework_peak", "energy")
)
"""Columns of the table after the GPU."""
_LEFT, _RIGHT = "text-align: left", "text-align: right"
_NAME_LENGTH = 40


@dataclass(frozen=True)
class CellReport:
    """What a cell used of each GPU. IPython displays it as a table."""

    cell: int
    """Execution count of the cell."""
    started: float
    """Start of the cell, in seconds since 1970."""
    seconds: float
    gpus: Sequence[GpuCost]
    notes: Sequence[str] = ()

    def rows(self) -> list[list[str]]:
        """Return the cells of the table as text: the GPU, then `COLUMNS`. A cell that used no GPU has one row."""
        values = [costs_by_column(gpu, self.seconds) for gpu in self.gpus]
        signs = [{"framework_peak": gpu.framework_sign, "energy": gpu.energy_sign} for gpu in self.gpus]
        names = [gpu_name(gpu.device.label, gpu.device.name) for gpu in self.gpus]
        if not values:
            values, signs, names = [{"seconds": self.seconds}], [{}], [units.MISSING]
        return [
            [name, *(_text(column, row, sign.get(column.key, "")) for column in COLUMNS)]
            for name, row, sign in zip(names, values, signs, strict=True)
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the report in a form that can be stored as JSON. Unknown numbers are None."""
        return {
            "cell": self.cell,
            "started": self.started,
            "seconds": self.seconds,
            "gpus": [
                {
                    "uuid": gpu.device.uuid, "index": gpu.device.index, "name": gpu.device.name,
                    **{
                        BY_KEY[key].file_name: value if is_known(value) else None
                        for key, value in costs_by_column(gpu, self.seconds).items() if key != "seconds"
                    },
                }
                for gpu in self.gpus
            ],
            "notes": list(self.notes),
        }  # fmt: skip

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}

    def text(self) -> str:
        """Return the table as plain text, for terminals and for viewers that show no HTML."""
        return "\n".join([*draw([text_column(column) for column in (_GPU, *COLUMNS)], self.rows()), *self.notes])

    def html(self) -> str:
        return html_table([_GPU, *COLUMNS], self.rows(), self.notes)


def gpu_name(label: str, name: str) -> str:
    """Return the index and the model of a GPU: `0 H100`."""
    return f"{label} {clean(short_name(name), _NAME_LENGTH)}".strip()


def html_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), charts: Sequence[str] = ()
) -> str:
    """Return an HTML table without scripts and colors, so that every viewer of notebooks can display it.

    `notes`: lines below the table. `charts`: an SVG for the end of each row.
    """
    styles = [_RIGHT if column.is_number else _LEFT for column in columns]
    head = "".join(
        f'<th style="{style}">{escape(column.title)}</th>' for column, style in zip(columns, styles, strict=True)
    )
    last = [f"<td>{chart}</td>" for chart in charts] or [""] * len(rows)
    head += f'<th style="{_LEFT}">{escape(GPU_BY_KEY["history"].title)}</th>' if charts else ""
    body = "".join(f"<tr>{_html_cells(row, styles)}{end}</tr>" for row, end in zip(rows, last, strict=True))
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    return f'<table class="gpumon"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}'


def _html_cells(row: Sequence[str], styles: Sequence[str]) -> str:
    return "".join(f'<td style="{style}">{escape(cell)}</td>' for cell, style in zip(row, styles, strict=True))


def _text(column: Column, values: Mapping[str, float], sign: str) -> str:
    value = values.get(column.key, float("nan"))
    return f"{sign}{column.write(value)}" if is_known(value) else units.MISSING
