"""The ledger's rows, from SQLite's to ours.

SQLite keeps any type in any column, and the file may be another user's, so each cell is asked for what
it should be and is not known otherwise.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from gpumon.common.numbers import LARGEST, NAN
from gpumon.common.privacy import in_force
from gpumon.common.text import clean
from gpumon.database.cells import parse_json
from gpumon.history.downsample import Envelope
from gpumon.ledger.records import DeviceRow, MarkRow, RankRow, RunRow, RunTrace
from gpumon.ledger.table_columns import metrics_of
from gpumon.model.frame import Mark, RunState
from gpumon.model.run import facts_of_row

_MARKS = frozenset(Mark)
_STATES = frozenset(RunState)
_POINTS = 1 << 14
_COLUMNS = 256
"""More than a trace ever has: nothing is unpacked by what a damaged row says."""


class Cells(dict[str, Any]):
    """A row by column name."""

    def text(self, name: str) -> str:
        """The cell as harmless text; empty when there is none."""
        cell = self.get(name)
        return clean(cell) if isinstance(cell, str) else ""

    def whole(self, name: str) -> int:
        """The cell as a whole number; 0 when there is none."""
        cell = self.get(name)
        return cell if isinstance(cell, int) else 0

    def real(self, name: str) -> float:
        """The cell as a number; NaN when there is none."""
        cell = self.get(name)
        return float(cell) if isinstance(cell, float | int) and -LARGEST < cell < LARGEST else NAN

    def time(self, name: str) -> float:
        """The cell, in nanoseconds, as seconds since 1970."""
        return self.real(name) / 1e9

    def state(self) -> RunState:
        """State of a run or a rank; one with an unknown state has died."""
        cell = self.get("state")
        return RunState(cell) if cell in _STATES else RunState.DIED


def cells_of(cursor: Any, row: Sequence[Any]) -> Cells:
    """A row factory for sqlite3."""
    return Cells(zip((column[0] for column in cursor.description), row, strict=True))


def run_row(cells: Cells) -> RunRow:
    """A row of `run`."""
    people, user = in_force(), cells.text("user")
    return RunRow(
        id=people.words(cells.text("id"), user),
        name=people.words(cells.text("name"), user),
        user=people.name(user),
        hostname=cells.text("hostname"),
        framework=cells.text("framework"),
        source=cells.text("source"),
        label=people.words(cells.text("label"), user),
        driver=cells.text("driver"),
        world_size=cells.whole("world_size"),
        epochs=cells.whole("epochs"),
        base=cells.whole("base"),
        first_epoch=cells.whole("first_epoch"),
        started=cells.time("started"),
        ended=cells.time("ended"),
        state=cells.state(),
        updated=cells.time("updated"),
        resumes=people.words(cells.text("resumes"), user),
        seconds=cells.real("seconds"),
    )


def rank_row(cells: Cells, devices: Sequence[DeviceRow]) -> RankRow:
    """A row of `rank`, with its devices."""
    return RankRow(
        key=cells.text("key"),
        rank=cells.whole("rank"),
        local_rank=cells.whole("local_rank"),
        pid=cells.whole("pid"),
        started=cells.time("started"),
        ended=cells.time("ended"),
        state=cells.state(),
        steps=cells.whole("steps"),
        wait=cells.real("wait") or NAN,
        lost_events=cells.whole("lost_events"),
        peak=cells.real("peak"),
        retries=cells.real("retries"),
        ooms=cells.real("ooms"),
        devices=tuple(devices),
        facts=facts_of_row(cells),
        seconds=cells.real("seconds"),
        metrics=metrics_of(cells.get("metrics") or "{}"),
        package_energy=cells.real("package_energy"),
        package_unknown=cells.text("package_unknown"),
    )


def device_row(cells: Cells) -> DeviceRow:
    """A row of `device`."""
    return DeviceRow(
        uuid=cells.text("uuid"),
        number=cells.whole("number"),
        name=cells.text("name"),
        memory_total=cells.real("memory_total"),
        power_limit=cells.real("power_limit"),
    )


def mark_row(cells: Cells) -> MarkRow | None:
    """A row of `mark`; None for one that this gpumon does not know."""
    mark = cells.get("mark")
    if mark not in _MARKS:
        return None
    return MarkRow(
        rank=cells.text("rank"),
        number=cells.whole("number"),
        mark=Mark(mark),
        time=cells.time("time"),
        epoch=cells.whole("epoch"),
        step=cells.whole("step"),
        asked=cells.real("asked"),
        free=cells.real("free"),
    )


def trace_row(cells: Cells) -> RunTrace | None:
    """A row of `trace`, unpacked; None for one that is damaged."""
    names, points = parse_json(cells.get("columns")), cells.whole("points")
    packed, step = cells.get("cells"), cells.real("step")
    if not isinstance(names, list) or not isinstance(packed, bytes) or not (0 < points <= _POINTS and step > 0):
        return None
    size = len(names) * points * 3 * 4
    if len(names) > _COLUMNS or (values := _unpacked(packed, size)) is None:
        return None
    columns = {}
    for i, name in enumerate(names):
        block = values[i * points * 3 : (i + 1) * points * 3]
        columns[clean(str(name))] = Envelope(block[0::3], block[1::3], block[2::3])
    return RunTrace(
        rank=cells.text("rank"),
        uuid=cells.text("uuid"),
        begun=cells.time("begun"),
        step=step,
        points=points,
        columns=columns,
    )


def _unpacked(packed: bytes, size: int) -> array[float] | None:
    try:
        plain = zlib.decompressobj().decompress(packed, size + 1)
    except zlib.error:
        return None
    if len(plain) != size:
        return None
    values = array("f", plain)
    if sys.byteorder == "big":
        values.byteswap()
    return values
