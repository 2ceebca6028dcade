"""Epochs of a run as rows of a section of the overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.reports.run_tables import OPEN
from gpumon_tui import theme
from gpumon_tui.renderables.lean_section import LeanColumn, Told
from gpumon_tui.renderables.text_width import Line, safe, width

if TYPE_CHECKING:
    from gpumon_tui.run_reading.rows import StretchRow

GOES_ON = " ▸"
TITLES = ("epoch", "took", "change", "steps/s", "wait", "util", "idle", "energy")
"""Headings of all columns but those of metrics."""


class EpochLine(NamedTuple):
    """An epoch as a row tells of it; NaN and empty texts stand for what is not known."""

    title: str
    """`e6`."""
    took: float
    """Seconds."""
    change: float
    """Against the epoch before, as a share of it."""
    pace: float
    """Steps per second of training."""
    wait: float
    """Share of the time waited for data."""
    utilization: float
    idle: float
    energy: str
    logged: Sequence[str]
    """Values of the metrics that have columns."""
    goes_on: bool
    is_settling: bool = False
    """Whether it has ended, and what was measured in it may still change."""


def columns(lines: Sequence[EpochLine], metrics: Sequence[str]) -> tuple[LeanColumn, ...]:
    """Return the columns of which some row knows something, with those of at most two `metrics` by their names."""
    known = {
        "change": any(is_known(one.change) for one in lines), "steps/s": any(is_known(one.pace) for one in lines),
        "wait": any(is_known(one.wait) for one in lines), "idle": any(is_known(one.idle) for one in lines),
        "energy": any(one.energy for one in lines),
    }  # fmt: skip
    found = (
        LeanColumn("epoch", 8, right=True, keep=20),
        LeanColumn("took", 7, right=True, keep=19),
        LeanColumn("change", 7, right=True, keep=9),
        LeanColumn("steps/s", 7, right=True, keep=12),
        LeanColumn("wait", 4, right=True, keep=11),
        LeanColumn("util", 5, right=True, keep=18),
        LeanColumn("idle", 5, right=True, keep=8),
        LeanColumn("energy", 9, right=True, keep=10),
        *(
            LeanColumn(name, 8, right=True, keep=17 - place, wish=min(width(name), 20))
            for place, name in enumerate(map(safe, metrics[:2]))
        ),
    )
    return tuple(column for column in found if known.get(column.title, True))


def texts(one: EpochLine, of: Sequence[LeanColumn], decimals: int) -> list[Told | Line]:
    """Return the texts of a row for the columns `of` a table; `decimals` are those of its steps per second."""
    style = theme.STRONG if one.goes_on else theme.PLAIN

    def known(text: str, style: Style = theme.PLAIN) -> Told:
        return (units.MISSING, theme.FAINT) if text in ("", units.MISSING) else (text, style)

    all_texts: tuple[Told, ...] = (
        (one.title + (GOES_ON if one.goes_on else ""), theme.RUN),
        (units.span(one.took), style),
        (units.change_of_value(one.change) if is_known(one.change) else "", theme.DIM),
        known(units.pace(one.pace, decimals)),
        known(units.percent(one.wait)),
        known(units.about(units.percent(one.utilization), is_final=not one.is_settling)),
        known(units.about(units.percent(one.idle), is_final=not one.is_settling)),
        known(one.energy),
    )
    by_title = dict(zip(TITLES, all_texts, strict=True))
    logged = iter([known(text, style) for text in one.logged[:2]])
    return [by_title[one.title] if one.title in by_title else next(logged, known("")) for one in of]


def of_ledger(one: StretchRow) -> EpochLine:
    """Return a row of an opened run."""
    of, title = one.of, one.title + (OPEN if one.goes_on and not one.is_running else "")
    return EpochLine(
        title, of.seconds, one.took_change, of.steps_per_second, of.wait_share, of.value("utilization_mean"),
        of.value("idle_share"), one.energy, one.logged, one.is_running, of.is_settling,
    )  # fmt: skip
