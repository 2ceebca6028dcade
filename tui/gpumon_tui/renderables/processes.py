"""Rows of the process table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from gpumon import units
from gpumon.analysis.gpu_state import is_held
from gpumon.analysis.video import use_video
from gpumon.analysis.whereabouts import whereabouts
from gpumon.frame import Device, Process, Run, Sample
from gpumon.metrics import PROCESSES, Availability
from gpumon_tui import theme
from gpumon_tui.renderables.table import Cell, Row, TableColumn
from gpumon_tui.renderables.text_width import safe

COLUMNS = (
    TableColumn("PID", 7, right=True, keep=9),
    TableColumn("GPU", 3, right=True, keep=10),
    TableColumn("USER", 9, keep=8),
    TableColumn("MEM", 8, right=True, keep=7),
    TableColumn("SM%", 4, right=True, keep=6),
    TableColumn("CPU%", 5, right=True, keep=3),
    TableColumn("HOST-MEM", 8, right=True, keep=1),
    TableColumn("TIME", 8, right=True, keep=2),
    TableColumn("RUN", 14, keep=0),
    TableColumn("COMMAND", 0, keep=11),
)
_VIDEO = TableColumn("ENC%", 4, right=True, keep=5), TableColumn("DEC%", 4, right=True, keep=5)
_AFTER_SM = 5
_PLACE = TableColumn("WHERE", 22, keep=4)
Key = tuple[int, str]
"""A process has a row for each device it is on."""


def no_process(samples: Sequence[Sample], problem: str) -> str:
    """Return the text of a table without rows: that there is no process only if every GPU proves it."""
    if not samples:
        return "no GPU can be read"
    silent = [sample for sample in samples if sample.state is not Availability.OK]
    if silent:
        return f"unknown: {problem or silent[0].state.reason}"
    samples = [sample for sample in samples if not sample.device.is_divided]  # its instances tell
    for sample in samples:
        if PROCESSES in sample.device.missing:
            return f"unknown on GPU {sample.device.label}: {sample.device.missing[PROCESSES].reason}"
    held = [is_held(sample, (), False) for sample in samples]
    if True in held:
        return "no process listed, but memory is in use (perhaps by another container)"
    if None in held:
        return "no process listed; memory use unknown"
    return "no process holds GPU memory"


class Extras(NamedTuple):
    """Columns that are there only where a process has something for them."""

    place: bool
    """Of jobs and containers."""
    video: bool
    """Of the video encoder and decoder."""


def extras(processes: Sequence[Process]) -> Extras:
    """Return which columns these processes need."""
    return Extras(any(whereabouts(process) for process in processes), use_video(processes))


@cache
def columns(has: Extras) -> tuple[TableColumn, ...]:
    """Return the columns."""
    video, place = _VIDEO if has.video else (), (_PLACE,) if has.place else ()
    return (*COLUMNS[:_AFTER_SM], *video, *COLUMNS[_AFTER_SM:-1], *place, COLUMNS[-1])


def are_told(samples: Sequence[Sample]) -> bool:
    """Whether it is known of each GPU which processes are on it."""
    told = [
        sample.state is Availability.OK and PROCESSES not in sample.device.missing
        for sample in samples
        if not sample.device.is_divided
    ]
    return bool(told) and all(told)


def key(process: Process) -> Key:
    """Return the key of a row, which stays the same when the table is sorted again."""
    return process.pid, process.uuid


def row(process: Process, device: Device | None, run: Run | None, now: float, *, selected: bool, has: Extras) -> Row:
    """Return the row of a process.

    `selected`: it runs on the GPU that is looked at; `has`: the columns that are there.
    """
    video = process.encoder_utilization, process.decoder_utilization
    return (
        Cell(str(process.pid), theme.DIM),
        Cell(units.MISSING if device is None else device.label, theme.TITLE if selected else theme.PLAIN),
        Cell(safe(process.user)),
        Cell(units.bytes_binary(process.memory_used)),
        Cell(units.percent(process.sm_utilization)),
        *([Cell(units.percent(share)) for share in video] if has.video else ()),
        Cell(units.percent(process.cpu_utilization)),
        Cell(units.bytes_binary(process.host_memory)),
        Cell(elapsed(now - process.started), theme.DIM),
        Cell(safe(run.name) if run else "", theme.RUN),
        *((Cell(safe(whereabouts(process))),) if has.place else ()),
        Cell(safe(process.name)),
    )


def order(processes: tuple[Process, ...], devices: Mapping[str, Device]) -> list[Process]:
    """By device, in the order of `devices`, the largest first."""
    places = {uuid: place for place, uuid in enumerate(devices)}
    return sorted(
        processes,
        key=lambda p: (places.get(p.uuid, len(places)), -(p.memory_used if p.memory_used >= 0 else 0.0), p.pid),
    )


def elapsed(seconds: float) -> str:
    """Whole minutes from the first on: a column that changes every second repaints every row."""
    if not seconds >= 0:
        return units.MISSING
    return units.duration(seconds if seconds < 60 else seconds // 60 * 60)
