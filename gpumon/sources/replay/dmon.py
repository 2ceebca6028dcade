"""Logs of `nvidia-smi dmon`, any `-s` selection, with or without `-o D`, `T` or `DT`."""

from __future__ import annotations

import re
from datetime import datetime

from gpumon.common.clock import SECOND
from gpumon.sources.replay.format import (
    CLOCK,
    MEMORY,
    POWER,
    RATE,
    RATIO,
    TEMPERATURE,
    BadLine,
    Form,
    LogColumn,
    Place,
    Row,
    chosen,
    fill,
    when,
)

_DAY = 86400 * SECOND

COLUMNS: dict[str, LogColumn] = {
    "pwr": LogColumn("gpu.power", POWER),
    "gtemp": LogColumn("gpu.temperature", TEMPERATURE),
    "temp": LogColumn("gpu.temperature", TEMPERATURE),
    "mtemp": LogColumn("gpu.temperature_memory", TEMPERATURE),
    "sm": LogColumn("gpu.utilization", RATIO),
    "mem": LogColumn("gpu.memory_utilization", RATIO),
    "enc": LogColumn("gpu.encoder_utilization", RATIO),
    "dec": LogColumn("gpu.decoder_utilization", RATIO),
    "mclk": LogColumn("gpu.clock_memory", CLOCK),
    "pclk": LogColumn("gpu.clock_sm", CLOCK),
    "fb": LogColumn("gpu.memory_used", MEMORY),
    # A share of time, added up to seconds. `tviol` only says yes or no, which has no length.
    "pviol": LogColumn("gpu.throttled_sw_power", RATIO, rate=True),
    "rxpci": LogColumn("gpu.pcie_received", RATE, rate=True),
    "txpci": LogColumn("gpu.pcie_sent", RATE, rate=True),
}
"""dmon's names for our metrics; other columns are passed over."""

# What the second heading line consists of.
_UNITS = {"idx", "w", "c", "%", "mhz", "mb", "mb/s", "bool", "errs", "yyyymmdd", "hh:mm:ss", "gb/s", "kb/s", "mib"}


class DmonForm:
    """The columns that a heading line names; a second line may name their units."""

    identified = True

    def __init__(self, names: list[str], modified: int) -> None:
        self._names = names
        self._gpu = names.index("gpu")
        self._date = names.index("date") if "date" in names else -1
        self._time = names.index("time") if "time" in names else -1
        self._modified = modified
        self.timed = self._time >= 0
        self.units([])

    def units(self, units: list[str]) -> None:
        """Take the units of the line below the heading; a wrong count of them is passed over."""
        fitting = units if len(units) == len(self._names) else [""] * len(self._names)
        self._places = chosen([
            Place(i, COLUMNS[name], fitting[i] if fitting[i] in COLUMNS[name].quantity.units else "")
            for i, name in enumerate(self._names) if name in COLUMNS
        ])  # fmt: skip
        self._rates = tuple(place.column.metric for place in self._places if place.column.rate)
        self.measures = bool(self._places)

    def same(self, names: list[str]) -> bool:
        """Whether `names` is this heading again."""
        return names == self._names

    def row(self, line: int, text: str, last: int) -> Row:
        """The row in `text`. Raises BadLine."""
        cells = words(text)
        if len(cells) != len(self._names):
            raise BadLine(f"{len(cells)} cells, but the header has {len(self._names)}")
        if not re.fullmatch("[0-9]{1,4}", cells[self._gpu], re.ASCII):
            raise BadLine(f"{cells[self._gpu][:40]!r} is not an index")
        time = self._when(cells, last) if self.timed else None
        values, absent, lost = fill(cells, self._places)
        index = cells[self._gpu]
        return Row(
            line=line,
            time_ns=time,
            names=(f"index {int(index)}",),
            number=int(index),
            uuid="",
            model="",
            driver="",
            values=values,
            missing=absent,
            rates=self._rates,
            lost=lost,
        )

    def holds_place(self, text: str) -> bool:
        """Never: rows carry their index."""
        return False

    def _when(self, cells: list[str], last: int) -> int:
        """Times without a date run up to the day on which the file was last written."""
        clock = cells[self._time]
        if self._date >= 0:
            date = cells[self._date]
            return when(f"{date[:4]}/{date[4:6]}/{date[6:]} {clock}", last)
        day = datetime.fromtimestamp((last if last >= 0 else self._modified) / SECOND)
        time = when(f"{day:%Y/%m/%d} {clock}", last)
        if last < 0:
            return time - _DAY if time > self._modified + SECOND else time
        # Past midnight the hands start again; half a day back cannot be a clock set right.
        return time + _DAY if last - time > _DAY // 2 else time


def words(text: str) -> list[str]:
    """The cells of a line, however they are parted."""
    return text.replace(",", " ").split()


def _is_heading(names: list[str]) -> bool:
    """Whether these are the columns of dmon: those of pmon, and of prose, have some of them as well."""
    first = [name for name in names[:3] if name not in ("date", "time")][:1]
    is_of_processes = bool({"pid", "type", "command"} & set(names))
    return first == ["gpu"] and bool(COLUMNS.keys() & set(names)) and not is_of_processes


def heading(text: str, before: Form | None, modified: int) -> DmonForm | None:
    """The columns, when `text` is a heading of such a log, and `before` when it repeats that.

    `modified` is when the file was last written, ns since 1970.
    """
    names = [word.lower() for word in words(text.lstrip("#"))]
    known = before if isinstance(before, DmonForm) else None
    if known is not None and names and _UNITS.issuperset(names):
        known.units(names)
        return known
    if not _is_heading(names):
        return None
    return known if known is not None and known.same(names) else DmonForm(names, modified)
