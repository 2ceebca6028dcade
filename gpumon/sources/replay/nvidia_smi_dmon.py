"""Logs of `nvidia-smi dmon` with any `-s` selection, with or without `-o D`, `T` or `DT`."""

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
    ColumnPosition,
    LogColumn,
    LogFormat,
    Row,
    parse_cells,
    parse_time,
    select_columns,
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
    # The value is a share of time, which is summed up to seconds. `tviol` is not used because it is only yes or no.
    "pviol": LogColumn("gpu.throttled_sw_power", RATIO, is_rate=True),
    "rxpci": LogColumn("gpu.pcie_received", RATE, is_rate=True),
    "txpci": LogColumn("gpu.pcie_sent", RATE, is_rate=True),
}
"""Metrics by dmon's column names. Other columns are ignored."""

_UNITS = {"idx", "w", "c", "%", "mhz", "mb", "mb/s", "bool", "errs", "yyyymmdd", "hh:mm:ss", "gb/s", "kb/s", "mib"}
"""Words in the second heading line, which contains the units."""


class DmonFormat:
    """The columns of a log, from its heading and the line with units below it, if there is one."""

    has_ids = True

    def __init__(self, names: list[str], modified: int) -> None:
        self._names = names
        self._gpu = names.index("gpu")
        self._date = names.index("date") if "date" in names else -1
        self._time = names.index("time") if "time" in names else -1
        self._modified = modified
        self.has_times = self._time >= 0
        self.set_units([])

    def set_units(self, units: list[str]) -> None:
        """Set the units from the line below the heading.

        Ignore the units if there is not exactly one for each column.
        """
        if len(units) != len(self._names):
            units = [""] * len(self._names)
        self._columns = select_columns([
            ColumnPosition(i, COLUMNS[name], units[i] if units[i] in COLUMNS[name].quantity.units else "")
            for i, name in enumerate(self._names) if name in COLUMNS
        ])  # fmt: skip
        self._rates = tuple(entry.column.metric for entry in self._columns if entry.column.is_rate)
        self.has_metrics = bool(self._columns)

    def has_names(self, names: list[str]) -> bool:
        """Return whether `names` are the same columns as in this heading."""
        return names == self._names

    def parse_row(self, line: int, text: str, last: int) -> Row:
        """Parse a line. Raises BadLine."""
        cells = _split(text)
        if len(cells) != len(self._names):
            raise BadLine(f"{len(cells)} cells, but the header has {len(self._names)}")
        index = cells[self._gpu]
        if not re.fullmatch("[0-9]{1,4}", index, re.ASCII):
            raise BadLine(f"{index[:40]!r} is not an index")
        time = self._parse_time(cells, last) if self.has_times else None
        values, missing, is_lost = parse_cells(cells, self._columns)
        return Row(
            line=line,
            time_ns=time,
            names=(f"index {int(index)}",),
            gpu_index=int(index),
            values=values,
            missing=missing,
            rates=self._rates,
            is_lost=is_lost,
        )

    def looks_like_row(self, text: str) -> bool:
        """Return False. Every row contains the GPU's index, so a damaged row can be left out without a placeholder."""
        return False

    def _parse_time(self, cells: list[str], last: int) -> int:
        """Parse the time of a row.

        If the log has no dates, the last day in the log is assumed to be the day on which the file was last modified.
        """
        clock = cells[self._time]
        if self._date >= 0:
            date = cells[self._date]
            return parse_time(f"{date[:4]}/{date[4:6]}/{date[6:]} {clock}", last)
        day = datetime.fromtimestamp((last if last >= 0 else self._modified) / SECOND)
        time = parse_time(f"{day:%Y/%m/%d} {clock}", last)
        if last < 0:
            return time - _DAY if time > self._modified + SECOND else time
        # If the time goes back by more than half a day, the row belongs to the next day.
        return time + _DAY if last - time > _DAY // 2 else time


def _split(text: str) -> list[str]:
    """Split a line into cells at spaces or commas."""
    return text.replace(",", " ").split()


def _is_heading(names: list[str]) -> bool:
    """Return whether these are columns of dmon. Headings of pmon, and other text, contain some of the same words."""
    first = [name for name in names[:3] if name not in ("date", "time")][:1]
    is_of_processes = bool({"pid", "type", "command"} & set(names))
    return first == ["gpu"] and bool(COLUMNS.keys() & set(names)) and not is_of_processes


def parse_heading(text: str, before: LogFormat | None, modified: int) -> DmonFormat | None:
    """Return the columns if the line is a heading of such a log; otherwise None.

    `before`: the current format. It is returned again if the heading has the same columns. `modified`: time at which
    the file was last modified (ns since 1970).
    """
    names = [word.lower() for word in _split(text.lstrip("#"))]
    known = before if isinstance(before, DmonFormat) else None
    if known is not None and names and _UNITS.issuperset(names):
        known.set_units(names)
        return known
    if not _is_heading(names):
        return None
    return known if known is not None and known.has_names(names) else DmonFormat(names, modified)
