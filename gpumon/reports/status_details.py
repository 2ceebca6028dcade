"""Details for `gpumon status --verbose`: clock limits, missing metrics, sampling, processes, and driver call times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.analysis.processes import job_or_container
from gpumon.analysis.throttling import clock_event_reasons
from gpumon.common.driver_calls import DriverCall
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.columns import PROCESS_BY_KEY
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability, title_within
from gpumon.model.process import Process
from gpumon.model.remedies import may_have, missing_reason
from gpumon.reports.text_table import draw, text_column


def details(frame: Frame) -> Iterator[str]:
    """Yield lines about lowered clocks, missing metrics and sampling."""
    for sample in frame.samples:
        if names := clock_event_reasons(sample):
            ago = f" {units.duration(sample.age)} ago" if sample.state is Availability.STALE else ""
            yield f"GPU {sample.device.label}: clock event reasons{ago}: {', '.join(names)}"
    yield from _missing_metrics(frame)
    parts = [f"one sample every {frame.interval:g} s"]
    if frame.sample_duration:
        parts.append(f"taken in {units.rounded(1000 * frame.sample_duration)} ms")
    parts.append(f"{units.counted(frame.skipped_ticks, 'sample')} skipped since sampling began")
    yield f"sampling: {', '.join(parts)}"


def _missing_metrics(frame: Frame) -> Iterator[str]:
    """Yield a line for each reason why metrics are missing. A line names the metrics and the GPUs."""
    gpus: dict[tuple[str, str], list[str]] = {}
    for sample in frame.samples:
        by_reason: dict[str, list[str]] = {}
        for name in sorted(sample.device.missing):
            if may_have(sample.device, name):
                by_reason.setdefault(missing_reason(sample.device, name), []).append(title_within(name))
        for reason, titles in by_reason.items():
            gpus.setdefault((reason, ", ".join(titles)), []).append(sample.device.label)
    for (reason, titles_text), labels in gpus.items():
        yield f"GPU {', '.join(labels)}: not available: {titles_text}: {reason}"


def call_costs(calls: Sequence[DriverCall]) -> Iterator[str]:
    """Yield a line for each driver function with the number of calls and the duration of a call."""
    if calls:
        yield "driver calls since the start of the daemon, by total time:"
    width = max((len(call.function) for call in calls), default=0)
    for call in calls:
        limit = f"; slow, so made only every {call.every:.1f} s per GPU" if call.every else ""
        yield (
            f"  {call.function:{width}}  {units.counted(call.calls, 'call')}, {_time(call.mean)} on average, "
            f"{_time(call.worst)} at worst{limit}"
        )


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds >= 0.001 else f"{1e6 * seconds:.0f} µs"


_SHARES = ("sm_utilization", "memory_utilization", "encoder_utilization", "decoder_utilization", "cpu_utilization")
_SHOWN = ("gpu", "pid", "user", "name", "kind", "memory_used", *_SHARES, "host_memory", "where")
COLUMNS = tuple(text_column(PROCESS_BY_KEY[key]) for key in _SHOWN)


def process_lines(frame: Frame) -> Iterator[str]:
    """Yield a line for each process, sorted by GPU and then by memory, largest first.

    Yield nothing if the frame has no processes.
    """
    labels = {sample.device.uuid: sample.device.label for sample in frame.samples}
    order = {uuid: index for index, uuid in enumerate(labels)}
    # In the frame, the processes of each GPU are already sorted by memory.
    processes = sorted(frame.processes, key=lambda process: order.get(process.uuid, len(order)))
    if processes:
        yield "processes, with the shares of time in which they used the engines of the GPU (–: no sample):"
        for line in draw(COLUMNS, [_row(process, labels.get(process.uuid, "")) for process in processes]):
            yield f"  {line}".rstrip()


def _row(process: Process, label: str) -> tuple[str, ...]:
    def write(key: str) -> str:
        return PROCESS_BY_KEY[key].write(getattr(process, key), is_narrow=True)

    return (
        label or units.MISSING, write("pid"), clean(process.user) or units.MISSING,
        clean(process.name) or units.MISSING, process.kind, write("memory_used"),
        *map(write, _SHARES), write("host_memory"), clean(job_or_container(process)),
    )  # fmt: skip
