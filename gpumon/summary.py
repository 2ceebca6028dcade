"""One frame as lines of plain text: what `gpumon status` prints."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpumon import units
from gpumon.frame import Driver, Frame, Origin, Process, Run, RunState, Sample
from gpumon.metrics import BY_NAME, HOST_INDEX, Availability

_BAR = 10
_NAMED = 3
"""Programs named on a GPU's line."""


def lines(frame: Frame, origin: Origin, driver: Driver, hostname: str, note: str) -> Iterator[str]:
    """The machine, a line for each GPU with who holds it, and the runs."""
    yield _title(frame, origin, driver, hostname, note)
    if origin.problem:
        yield f"No GPU can be read: {origin.problem}."
    runs = {run.key: run for run in frame.runs}
    width = max((len(_model(sample)) for sample in frame.samples), default=0)
    for sample in frame.samples:
        held = [process for process in frame.processes if process.uuid == sample.device.uuid]
        # A recording does not tell who was there: nobody known is not nobody.
        nobody = "" if origin.source == "replay" else "free"
        yield _gpu(sample, _who(held, runs.get(sample.run)) or nobody, width)
    first_ranks = {run.id: run for run in sorted(frame.runs, key=lambda run: -run.rank)}
    for run in first_ranks.values():
        yield "run  " + _run(run, [other for other in frame.runs if other.id == run.id], frame.time)


def _title(frame: Frame, origin: Origin, driver: Driver, hostname: str, note: str) -> str:
    parts = [hostname or "this machine", origin.label, f"driver {driver.version}" if driver.version else ""]
    cpu, used, total = (
        frame.host[HOST_INDEX[name]] for name in ("host.cpu_utilization", "host.memory_used", "host.memory_total")
    )
    if not math.isnan(total):
        parts.append(f"CPU {units.percent(cpu)}, memory {units.of_total(used, total)}")
    return "  ·  ".join(part for part in (*parts, units.clock(frame.time), note) if part)


def _gpu(sample: Sample, who: str, width: int) -> str:
    head = f"{sample.device.index:>3}  {_model(sample):<{width}}"
    if sample.state not in (Availability.OK, Availability.STALE):
        return f"{head}  {sample.state.name.lower()}: {sample.state.reason}"
    utilization, power, limit = (sample.value(f"gpu.{key}") for key in ("utilization", "power", "power_limit"))
    memory = units.of_total(sample.value("gpu.memory_used"), sample.value("gpu.memory_total"))
    degrees = units.number(sample.value("gpu.temperature"), BY_NAME["gpu.temperature"].unit)
    return (
        f"{head}  {bar(utilization)} {units.percent(utilization):>4}  {memory:>14}  {degrees:>5}"
        f"  {units.whole(power):>4}/{units.whole(limit)} W  {who}"
    ).rstrip()


def _who(held: list[Process], run: Run | None) -> str:
    if run is not None:
        return f"{run.user}: {run.name} {_epoch(run)}"
    groups: dict[tuple[str, str], list[Process]] = {}
    for process in held:
        groups.setdefault((process.user or "somebody", process.name or f"pid {process.pid}"), []).append(process)
    named = [
        f"{user}: {name}" + (f" ×{len(same)}" if len(same) > 1 else "") + _memory(same)
        for (user, name), same in list(groups.items())[:_NAMED]
    ]
    return ", ".join(named) + (f" and {len(groups) - _NAMED} more" if len(groups) > _NAMED else "")


def _memory(processes: list[Process]) -> str:
    total = sum(process.memory_used for process in processes)
    return "" if math.isnan(total) else f" {units.bytes_binary(total)}"


def _run(run: Run, ranks: list[Run], now: float) -> str:
    parts = [f"{run.name} ({run.user})", _epoch(run), f"step {run.step}", run.phase]
    parts += [f"{name} {units.plain(value)}" for name, value in run.metrics.items() if not math.isnan(value)]
    if run.world_size > 1:
        parts.append(f"{len(ranks)} of {run.world_size} ranks here")
    if run.state is not RunState.RUNNING:
        parts.append(run.state.name.lower())
    elif not math.isnan(run.started):
        parts.append(f"for {units.duration(max(0.0, now - run.started))}")
    return "  ·  ".join(part for part in parts if part)


def _epoch(run: Run) -> str:
    if run.epoch < 0:
        return "before its first epoch"
    return f"epoch {run.epoch}" + (f" of {run.epochs}" if run.epochs else "")


def _model(sample: Sample) -> str:
    return sample.device.name.removeprefix("NVIDIA ")


def bar(ratio: float, width: int = _BAR) -> str:
    """A ratio as blocks: `█████▌····`; dots alone when it is missing."""
    if math.isnan(ratio):
        return "·" * width
    eighths = max(0, min(width * 8, round(ratio * width * 8)))
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(width, "·")
