"""The processes of a frame as a table of text: a part of `gpumon status --verbose`."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.analysis.processes import whereabouts
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.reports.text_table import TextColumn, draw

_COLUMNS = (
    TextColumn("GPU", 0),
    TextColumn("PID", 0),
    TextColumn("USER", 0, right=False),
    TextColumn("PROCESS", 0, right=False),
    TextColumn("KIND", 0, right=False),
    TextColumn("MEM", 0),
    TextColumn("SM", 0),
    TextColumn("MBW", 0),
    TextColumn("ENC", 0),
    TextColumn("DEC", 0),
    TextColumn("CPU", 0),
    TextColumn("HOST MEM", 0),
    TextColumn("WHERE", 0, right=False),
)


def process_lines(frame: Frame) -> Iterator[str]:
    """A line for each process on a GPU, by GPU, the largest first; nothing where none is known."""
    labels = {sample.device.uuid: sample.device.label for sample in frame.samples}
    order = {uuid: place for place, uuid in enumerate(labels)}
    # Within a GPU they come in the order of the frame, the largest first.
    listed = sorted(frame.processes, key=lambda process: order.get(process.uuid, len(order)))
    if listed:
        yield "processes, with the shares of time in which the engines of the GPU worked for them (–: no sample):"
        for line in draw(_COLUMNS, [_row(process, labels.get(process.uuid, "")) for process in listed]):
            yield f"  {line}".rstrip()


def _row(process: Process, label: str) -> tuple[str, ...]:
    shares = (
        process.sm_utilization, process.memory_utilization, process.encoder_utilization, process.decoder_utilization,
        process.cpu_utilization,
    )  # fmt: skip
    return (
        label or units.MISSING, str(process.pid), clean(process.user) or units.MISSING,
        clean(process.name) or units.MISSING, process.kind, units.bytes_binary(process.memory_used),
        *map(units.percent, shares), units.bytes_binary(process.host_memory), clean(whereabouts(process)),
    )  # fmt: skip
