"""Epochs of a run as rows of a section of the overview."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import BY_KEY
from gpumon.reports import epoch_text
from gpumon.reports.run_tables import OPEN
from gpumon_tui import theme
from gpumon_tui.renderables.lean_section import Told
from gpumon_tui.renderables.table import TableColumn, table_column
from gpumon_tui.renderables.text_width import Line, safe, width
from gpumon_tui.run_reading.rows import COLUMNS

if TYPE_CHECKING:
    from gpumon_tui.run_reading.rows import StretchRow

GOES_ON = " ▸"
_EPOCH, _CHANGE = BY_KEY["epoch"], BY_KEY["change"]
_ALWAYS = ("seconds", "utilization_mean")
"""Columns that stay where no row knows anything for them."""


class EpochLine(NamedTuple):
    """An epoch as a row tells of it."""

    title: str
    """`e6`."""
    values: Mapping[str, float]
    """By the keys of columns; one that is unknown is not there, or NaN."""
    change: float = NAN
    """Of its time against the epoch before, as a share of it."""
    logged: Sequence[str] = ()
    """Values of the metrics that have columns; empty where none was logged."""
    goes_on: bool = False
    signs: Mapping[str, str] = {}
    """What stands before numbers that are bounds, or that may still change."""


def largest(lines: Iterable[EpochLine]) -> Mapping[str, float]:
    """The largest number of each column; one that is unknown in all of them has none."""
    found: dict[str, float] = {}
    for line in lines:
        for key, value in line.values.items():
            if is_known(value):
                found[key] = max(value, found.get(key, value))
    return found


def columns(lines: Sequence[EpochLine], metrics: Sequence[str]) -> tuple[TableColumn, ...]:
    """Return the columns of which some row knows something, with those of at most two `metrics` by their names."""
    known = largest(lines).keys() | _ALWAYS
    first, *others = (table_column(column) for column in COLUMNS if column.key in known)
    return (
        table_column(_EPOCH, 8)._replace(right=True),
        first._replace(cells=7),
        *((table_column(_CHANGE, 7),) if any(is_known(line.change) for line in lines) else ()),
        *others,
        *(
            TableColumn(name, 8, right=True, keep=97 - place, wish=min(width(name), 20))
            for place, name in enumerate(map(safe, metrics[:2]))
        ),
    )


def texts(line: EpochLine, of: Sequence[TableColumn], largest: Mapping[str, float]) -> list[Told | Line]:
    """Return the texts of a row for the columns `of` a table, by the `largest` number of each."""
    style = theme.STRONG if line.goes_on else theme.PLAIN

    def known(text: str, style: Style = theme.PLAIN) -> Told:
        return (units.MISSING, theme.FAINT) if text in ("", units.MISSING) else (text, style)

    by_title = {
        _EPOCH.short: (line.title + (GOES_ON if line.goes_on else ""), theme.RUN),
        _CHANGE.short: (units.change_of_value(line.change) if is_known(line.change) else "", theme.DIM),
    }
    for column in COLUMNS:
        value = line.values.get(column.key, NAN)
        text = column.write(value, largest.get(column.key, value), is_narrow=True)
        sign = line.signs.get(column.key, "") if text != units.MISSING else ""
        by_title[column.short] = known(sign + text, style if column.key == "seconds" else theme.PLAIN)
    logged = iter([known(text, style) for text in line.logged[:2]])
    return [by_title[column.title] if column.title in by_title else next(logged, known("")) for column in of]


def of_ledger(row: StretchRow) -> EpochLine:
    """Return a row of an opened run."""
    return EpochLine(
        row.title + (OPEN if row.goes_on and not row.is_running else ""),
        {column.key: epoch_text.number(column.key, row.of) for column in COLUMNS},
        row.took_change,
        row.logged,
        row.is_running,
        {column.key: epoch_text.sign(column.key, row.of) for column in COLUMNS},
    )
