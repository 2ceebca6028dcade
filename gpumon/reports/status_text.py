"""One frame as lines of plain text: what `gpumon status` prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.ranks import Ranks, run_memory
from gpumon.common.numbers import is_known
from gpumon.common.text import cut, text_width
from gpumon.diagnosis.finding import group_findings
from gpumon.diagnosis.live import JudgedFrame
from gpumon.model import units
from gpumon.model.frame import Frame, Run, RunState, Sample
from gpumon.model.metrics import BY_NAME, HOST_INDEX, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.model.vendors import short_name

if TYPE_CHECKING:
    from gpumon.analysis.epochs import Epochs
    from gpumon.analysis.progress import Progress


_BAR = 10
_NAMED = 3
"""Programs named on a GPU's line."""
_RANKS = 16
"""Ranks of a run that have a line each."""
BELOW = "     "
"""Begins what belongs to the line above."""
DOT = "  ·  "
"""Stands between facts."""
MEMORY_UNIT = " GiB"
_SHOWN_ELSEWHERE = frozenset(("free", "out_of_memory", "died", "failed"))
"""Findings that the lines of GPUs and runs have already."""
_STATES = {
    RunState.RUNNING: "running",
    RunState.FINISHED: "finished",
    RunState.FAILED: "failed: exited with an error",
    RunState.DIED: "died: process exited without reporting (killed or OOM)",
    RunState.INTERRUPTED: "interrupted: stopped by its user (Ctrl-C)",
    RunState.STOPPED: "stopped before its end",
}


class MemoryLine(NamedTuple):
    """Parts of the memory of a GPU, with the unit at the end."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{BELOW}{DOT.join(self.parts)}{MEMORY_UNIT}"


class RunLine(NamedTuple):
    """Facts of a run or a rank."""

    head: str
    parts: tuple[str, ...]
    kept: tuple[str, ...]
    """Those that are shown however narrow the terminal is: which run it is, how far, and what is left."""

    def __str__(self) -> str:
        return self.head + DOT.join(self.parts)


class GpuRow(NamedTuple):
    """Cells of a GPU's line; of one that cannot be read only label, model and `reason`."""

    label: str
    model: str
    reason: str = ""
    """State and reason of a GPU that cannot be read; else empty."""
    bar: str = ""
    utilization: str = ""
    memory: str = ""
    degrees: str = ""
    power: str = ""
    word: str = ""
    who: str = ""


def lines(
    frame: Frame,
    origin: Origin,
    driver: Driver,
    hostname: str,
    note: str,
    before: Sequence[Frame] = (),
    live: bool = True,
    age: float = math.nan,
    width: int = 0,
    epochs: Epochs | None = None,
) -> Iterator[str]:
    """The machine, a line for each GPU with who holds it, and the runs; `before`: earlier frames, as known.

    `live` is false where the frame is the last one of a daemon that went silent, `age` seconds ago. Why no GPU can be
    read (`origin.problem`) is for who asked to say. Lines are cut to `width` cells; 0 for as wide as they get.
    """
    told = _told(frame, origin, driver, hostname, note, before=before, live=live, age=age, epochs=epochs)
    if width:
        yield from fitted(list(told), width)
        return
    widest = max((len(_model(sample)) for sample in frame.samples), default=0)
    for line in told:
        yield _plain(line, widest) if isinstance(line, GpuRow) else str(line)


def _told(
    frame: Frame, origin: Origin, driver: Driver, hostname: str, note: str, *,
    before: Sequence[Frame], live: bool, age: float, epochs: Epochs | None,
) -> Iterator[str | GpuRow | MemoryLine | RunLine]:  # fmt: skip
    yield _title(frame, origin, driver, hostname, note)
    runs = {run.key: run for run in frame.runs}
    found = JudgedFrame(frame, before, live, epochs)
    for status in found.gpus:
        run = runs.get(status.sample.run)
        others = [ranks for ranks in status.runs if run is not None and all(one.key != run.key for one in ranks.all)]
        who = _who(list(status.processes), run, others) or ("held by an unknown process" if status.is_unlisted else "")
        # One that has not answered since the tick of the frame is as old as that.
        word = status.word(0.0 if live and status.sample.age > 0 else age)
        yield _gpu(status.sample, frame.host, word, who)
        if run is not None and (parts := _parts(status.sample)):
            yield MemoryLine(parts)
    labels = {sample.device.uuid: sample.device.label for sample in frame.samples}
    if found.runs:
        from gpumon.diagnosis.runs import notes  # for runs alone: this command is to be quick
    for ranks in found.runs:
        far = found.progress(ranks)  # what is left goes by a run of which nobody knows now whether it goes on
        yield _run(ranks, frame, far if live else far._replace(left=math.nan))
        for incident in notes(ranks, found.epochs.faults([run.key for run in ranks.all])):
            yield BELOW + incident.summary
        if ranks.is_distributed:
            yield from (_rank(run, labels, frame) for run in ranks.all[:_RANKS])
            if len(ranks.all) > _RANKS:
                yield f"{BELOW}and {len(ranks.all) - _RANKS} more ranks"
    for group in group_findings(found.findings()):
        # The line of a GPU that cannot be read says no more than why: what to do about it is in the finding.
        finding = group.first
        if finding.kind not in _SHOWN_ELSEWHERE and (finding.kind != "unavailable" or group.action):
            action = f". {group.action}" if group.action else ""
            yield f"{finding.severity.name.lower()}  {group.title}: {finding.summary}{action}"
    if frame.left_out:
        yield f"and {frame.left_out}"
    if origin.notice and frame.samples:
        yield f"note  {origin.notice}"


def _title(frame: Frame, origin: Origin, driver: Driver, hostname: str, note: str) -> str:
    parts = [hostname or "this machine", origin.label, f"driver {driver.version}" if driver.version else ""]
    cpu, used, total = (
        frame.host[HOST_INDEX[name]] for name in ("host.cpu_utilization", "host.memory_used", "host.memory_total")
    )
    if math.isfinite(total):
        parts.append(f"CPU {units.percent(cpu)}, memory {units.of_total(used, total)}")
    return "  ·  ".join(part for part in (*parts, units.clock(frame.time), note) if part)


def _gpu(sample: Sample, host: Sequence[float], word: str, who: str) -> GpuRow:
    label, model = sample.device.label, _model(sample)
    if sample.state not in (Availability.OK, Availability.STALE):
        return GpuRow(label, model, f"{sample.state.title}: {sample.reason}")
    # The last one known of a driver that hangs would pass for one of now, as in the terminal view.
    utilization, power, limit = (sample.value(f"gpu.{key}") for key in ("utilization", "power", "power_limit"))
    utilization = math.nan if sample.state is Availability.STALE else utilization
    memory = units.of_total(sample.value("gpu.memory_used"), sample.value("gpu.memory_total"))
    if sample.device.missing.get("gpu.memory_used") is Availability.SHARED_WITH_HOST:
        used, total = (host[HOST_INDEX[name]] for name in ("host.memory_used", "host.memory_total"))
        memory = f"{units.of_total(used, total)} shared with the host"
    degrees = units.number(sample.value("gpu.temperature"), BY_NAME["gpu.temperature"].unit)
    watts = f"{units.whole(power):>4}/{units.whole(limit)} W"
    return GpuRow(label, model, "", bar(utilization), units.percent(utilization), memory, degrees, watts, word, who)


def _plain(row: GpuRow, width: int) -> str:
    """The line in full; models are `width` wide."""
    head = f"{row.label:>3}  {row.model:<{width}}"
    if row.reason:
        return f"{head}  {row.reason}"
    who = "  ".join(part for part in (row.word, row.who) if part)
    return (f"{head}  {row.bar} {row.utilization:>4}  {row.memory:>14}  {row.degrees:>5}  {row.power}  {who}").rstrip()


def _who(held: list[Process], run: Run | None, runs: Sequence[Ranks] = ()) -> str:
    """The run in force, the other `runs` on the GPU, and processes of others."""
    if run is not None:
        keys = {one.key for ranks in runs for one in ranks.all}
        others = [process for process in held if process.user not in ("", run.user) and process.run not in keys]
        told = [f"{one.user}: {one.name} {_epoch(one)}".rstrip() for one in (run, *(ranks.first for ranks in runs))]
        return ", ".join(part for part in (*told, _who(others, None)) if part)
    groups: dict[tuple[str, str], list[Process]] = {}
    for process in held:
        groups.setdefault((process.user or "unknown user", process.name or f"pid {process.pid}"), []).append(process)
    named = [
        f"{user}: {name}" + (f" ×{len(same)}" if len(same) > 1 else "") + _memory(same)
        for (user, name), same in list(groups.items())[:_NAMED]
    ]
    return ", ".join(named) + (f" and {len(groups) - _NAMED} more" if len(groups) > _NAMED else "")


def _memory(processes: list[Process]) -> str:
    total = sum(process.memory_used for process in processes)
    return "" if not is_known(total) else f" {units.bytes_binary(total)}"


def _parts(sample: Sample) -> tuple[str, ...]:
    """Memory breakdown of a GPU, known parts only."""
    from gpumon.analysis.memory import breakdown_of, known_parts  # for runs alone: this command is to be quick

    divided = breakdown_of(sample)
    if divided is None:
        return ()
    return tuple(f"{part.title} {units.gibibytes(value)}" for part, value in known_parts(divided))


def _run(ranks: Ranks, frame: Frame, far: Progress) -> RunLine:
    from gpumon.analysis.progress import seconds_since_begin  # for runs alone: this command is to be quick

    run, first = ranks.slowest, ranks.first
    kept = [f"{first.name} ({first.user})", _epoch(run)]
    parts = [*kept, _step(run), run.phase]
    if ranks.state is not RunState.RUNNING:
        kept.append(_STATES[ranks.state])
        parts.append(kept[-1])
    elif is_known(first.started):
        parts.append(f"for {units.duration(max(0.0, seconds_since_begin(first, frame.time, frame.monotonic_ns)))}")
    if is_known(far.done):
        left = f", {units.duration(far.left)} left" if is_known(far.left) else ""
        kept.append(f"{units.percent(far.done)} done{left}")
        parts.append(kept[-1])
    memory = run_memory(ranks.all, frame.processes)
    if is_known(memory):
        parts.append(f"memory {units.bytes_binary(memory)}")
    if ranks.is_distributed:
        parts.append(f"{len(ranks.all)} of {first.world_size} ranks on this host")
    logged = [f"{name} {units.plain(value)}" for name, value in first.metrics.items()]
    losses = [text for text in logged if "loss" in text.casefold()]
    kept += (losses or logged)[:1]
    return _line("run  ", [*parts, *logged], kept)


def _rank(run: Run, labels: Mapping[str, str], frame: Frame) -> RunLine:
    gpus = ", ".join(f"GPU {labels[uuid]}" for uuid in run.gpus if uuid in labels)
    kept = [f"rank {run.rank}", gpus, _epoch(run)]
    parts = [*kept, _step(run), run.phase]
    memory = run_memory((run,), frame.processes)
    if is_known(memory):
        parts.append(units.bytes_binary(memory))
    if run.state is not RunState.RUNNING:
        kept.append(_STATES[run.state])
        parts.append(kept[-1])
    return _line(BELOW, parts, kept)


def _line(head: str, parts: Sequence[str], kept: Sequence[str]) -> RunLine:
    return RunLine(head, tuple(filter(None, parts)), tuple(filter(None, kept)))


def _step(run: Run) -> str:
    """Empty before the first: not every training counts its steps."""
    return f"step {run.step_text}" if run.step_text else ""


def _epoch(run: Run) -> str:
    if run.epoch >= 0:
        return f"epoch {run.epoch_text}"
    return "before its first epoch" if run.epochs else ""  # not every program has epochs


def _model(sample: Sample) -> str:
    name = short_name(sample.device.name)
    _, mig, profile = name.partition(" MIG ")
    return f"MIG {profile}" if sample.device.is_instance and mig else name


def bar(ratio: float, width: int = _BAR) -> str:
    """A ratio as blocks: `█████▌····`; dots alone when it is not known."""
    if not math.isfinite(ratio):
        return "·" * width
    eighths = round(max(0.0, min(1.0, ratio)) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(width, "·")


_GAP = "  "
_ORDER = ("label", "model", "bar", "utilization", "memory", "degrees", "power", "word", "who")
_ALWAYS = ("label", "utilization", "word")
_KEEP = ("memory", "who", "model", "bar", "degrees", "power")
"""Columns that may go, the last one first."""
_RIGHT = ("label", "utilization", "memory", "degrees", "power")
_MOST = {"who": 24, "word": 28}
"""Cells that a column claims at most; who has what is left, too."""
_MORE, _NARROW_DOT = " …", " · "
_FIRST_AND_LAST = 3
"""Parts of the title that stay: machine, label, sampler."""
_LEAST = 20
"""Cells below which nothing sensible fits: lines are cut there only by the terminal."""


def fitted(told: Sequence[str | GpuRow | MemoryLine | RunLine], width: int) -> Iterator[str]:
    """Return the lines, at most `width` cells wide; the first is the title."""
    width = max(width, _LEAST)
    widths = _widths([line for line in told if isinstance(line, GpuRow)], width)
    for number, line in enumerate(told):
        if isinstance(line, GpuRow):
            yield _row(line, widths, width)
        elif text_width(str(line)) <= width:
            yield str(line)
        elif isinstance(line, RunLine):
            yield from _of_run(line, width)
        elif isinstance(line, MemoryLine):
            yield _first_parts(str(line), width, MEMORY_UNIT)
        elif number == 0:
            yield from _fit_title(line, width)
        elif DOT in line:
            yield _first_parts(line, width)
        else:
            yield from _wrapped(line, width)


def _fit_title(line: str, width: int) -> Iterator[str]:
    """Machine and label, and who samples, which may be that nobody does; time and what is between as there is room."""
    parts = line.split(DOT)
    while len(parts) > _FIRST_AND_LAST and text_width(DOT.join(parts)) > width:
        del parts[-2 if len(parts) == _FIRST_AND_LAST + 1 else -3]
    yield from _wrapped(DOT.join(parts), width)


def _widths(rows: Sequence[GpuRow], width: int) -> dict[str, int]:
    """Cells of the columns that are shown."""
    wanted = {}
    for name in _ORDER:  # of a GPU that cannot be read, most are empty
        widest = max((text_width(getattr(row, name).strip()) for row in rows), default=0)
        if widest:
            wanted[name] = min(widest, _MOST.get(name, widest))
    wanted["label"] = max(wanted.get("label", 0), 3)
    shown = {name: wanted[name] for name in _ALWAYS if name in wanted}
    for name in _KEEP:
        if name in wanted and sum(shown.values()) + wanted[name] + len(_GAP) * len(shown) <= width:
            shown[name] = wanted[name]
    return shown


def _row(row: GpuRow, widths: dict[str, int], width: int) -> str:
    if row.reason:
        model = f"{row.model:<{widths['model']}}{_GAP}" if "model" in widths else ""
        full = f"{row.label:>3}{_GAP}{model}{row.reason}"
        return full if text_width(full) <= width else cut(f"{row.label:>3}{_GAP}{row.reason}", width)
    cells = []
    for name in _ORDER:
        if name in widths:
            text = getattr(row, name).strip()
            if name == "who":
                cells.append(text)
                continue
            text = cut(text, widths[name])
            room = " " * (widths[name] - text_width(text))
            cells.append(room + text if name in _RIGHT else text + room)
    line = _GAP.join(cells)
    if "who" not in widths and row.who:
        line = f"{line.rstrip()}{_GAP}{row.who}" if text_width(line.rstrip()) + 8 <= width else line
    return cut(line.rstrip(), width)


def _first_parts(line: str, width: int, end: str = "") -> str:
    """The facts that fit, from the first on; at least that one. `end` is their unit."""
    parts = line.split(DOT)
    end = _MORE + end
    while len(parts) > 1 and text_width(DOT.join(parts)) + len(end) > width:
        parts.pop()
    return cut(DOT.join(parts) + end, width)


def _of_run(line: RunLine, width: int) -> Iterator[str]:
    """Kept facts on as many lines as they need; the other facts, from the first on, where all fit on one."""
    shown = list(line.kept)
    for part in line.parts:
        more = [one for one in line.parts if one in shown or one == part]
        if text_width(line.head + DOT.join(more)) + len(_MORE) <= width:
            shown = more
    now = line.head + shown[0]
    for part in shown[1:]:
        is_last = part == shown[-1] and len(shown) < len(line.parts)
        dot = DOT if len(shown) > len(line.kept) else _NARROW_DOT
        if text_width(now + dot + part) + len(_MORE) * is_last > width:
            yield cut(now, width)
            now = BELOW + part
        else:
            now += dot + part
    yield cut(now + _MORE * (len(shown) < len(line.parts)), width)


def _wrapped(line: str, width: int) -> Iterator[str]:
    """A sentence on as many lines as it needs; what goes on is indented."""
    words = line.split()
    now = line[: len(line) - len(line.lstrip())] + words[0]
    for word in words[1:]:
        gap = _GAP if f"{now.strip()}{_GAP}{word}" in line else " "
        if text_width(now) + len(gap) + text_width(word) > width:
            yield cut(now, width)
            now = BELOW + word
        else:
            now += gap + word
    yield cut(now, width)
