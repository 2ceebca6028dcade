"""The newest frame as lines of text, for `gpumon status` and `gpumon top`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.ranks import Ranks, run_memory
from gpumon.common.numbers import is_known
from gpumon.common.text import cut, text_width
from gpumon.diagnosis.finding import group_findings
from gpumon.diagnosis.live_findings import JudgedFrame
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY, GPUS, View, shown
from gpumon.model.frame import Frame, Run, RunState, Sample
from gpumon.model.metrics import HOST_INDEX, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.model.run import exit_text
from gpumon.model.vendors import short_name

if TYPE_CHECKING:
    from gpumon.analysis.progress import Progress
    from gpumon.analysis.run_epochs import Epochs


_BAR = 10
_MAX_PROGRAMS = 3
"""Maximum number of programs that are named on the line of a GPU."""
_MAX_RANKS = 16
"""Maximum number of ranks of a run that have a line."""
BELOW = "     "
"""Indentation of a line that belongs to the line above."""
DOT = "  ·  "
"""Separator between the parts of a line."""
MEMORY_UNIT = " GiB"
_SHOWN_ELSEWHERE = frozenset(("free", "out_of_memory", "died", "failed"))
"""Kinds of findings that are left out because the lines of GPUs and runs already show them."""
_STATES = {
    RunState.RUNNING: "running",
    RunState.FINISHED: "finished",
    RunState.FAILED: "failed",
    RunState.DIED: "died: process exited without reporting (killed or OOM)",
    RunState.INTERRUPTED: "interrupted: stopped by its user (Ctrl-C)",
    RunState.STOPPED: "stopped before its end",
}


class MemoryLine(NamedTuple):
    """A line that shows a GPU's memory by purpose. The unit is written only once, at the end."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{BELOW}{DOT.join(self.parts)}{MEMORY_UNIT}"


class RunLine(NamedTuple):
    """A line about a run or a rank."""

    head: str
    parts: tuple[str, ...]
    kept: tuple[str, ...]
    """Parts of the line that even a very narrow terminal shows: the run, its progress, and the time left."""

    def __str__(self) -> str:
        return self.head + DOT.join(self.parts)


class GpuRow(NamedTuple):
    """A line about a GPU."""

    cells: Mapping[str, str]
    """Texts by column. For a GPU that cannot be read, only the number and the model."""
    reason: str = ""
    """State and reason if the GPU cannot be read, otherwise empty."""


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
    """Yield lines about the machine, each GPU with its users, the runs, and the findings.

    `note`: text for the first line. `before`: earlier frames. `live`: False if the frame is the last frame of a daemon
    that no longer responds. `age`: age of the frame in seconds if `live` is False. `width`: lines are cut to this
    number of columns (0: unlimited). `epochs`: epochs of the runs. If no GPU can be read (`origin.problem`), the caller
    must report why.
    """
    content = _content(frame, origin, driver, hostname, note, before=before, live=live, age=age, epochs=epochs)
    if width:
        yield from fitted(list(content), width)
        return
    widest = max((len(_model(sample)) for sample in frame.samples), default=0)
    for line in content:
        yield _plain(line, widest) if isinstance(line, GpuRow) else str(line)


def _content(
    frame: Frame, origin: Origin, driver: Driver, hostname: str, note: str, *,
    before: Sequence[Frame], live: bool, age: float, epochs: Epochs | None,
) -> Iterator[str | GpuRow | MemoryLine | RunLine]:  # fmt: skip
    yield _title(frame, origin, driver, hostname, note)
    runs = {run.key: run for run in frame.runs}
    judged = JudgedFrame(frame, before, live, epochs)
    for status in judged.gpus:
        run = runs.get(status.sample.run)
        others = [ranks for ranks in status.runs if run is not None and all(rank.key != run.key for rank in ranks.all)]
        who = _who(list(status.processes), run, others) or ("held by an unknown process" if status.is_unlisted else "")
        # If a GPU has not answered since the tick of the frame, its age is the age of the frame.
        word = status.word(0.0 if live and status.sample.age > 0 else age)
        yield _gpu(status.sample, frame.host, word, who)
        if run is not None and (parts := _parts(status.sample)):
            yield MemoryLine(parts)
    labels = {sample.device.uuid: sample.device.label for sample in frame.samples}
    if judged.runs:
        from gpumon.diagnosis.runs import notes  # imported only if there are runs, to start fast
    for ranks in judged.runs:
        progress = judged.progress(ranks)
        # Without a live daemon, the run may have ended, so no time left is shown.
        yield _run(ranks, frame, progress if live else progress._replace(left=math.nan))
        for incident in notes(ranks, judged.epochs.faults([run.key for run in ranks.all])):
            yield BELOW + incident.summary
        if ranks.is_distributed:
            yield from (_rank(run, labels, frame) for run in _shown_ranks(ranks))
            if len(ranks.all) > _MAX_RANKS:
                yield f"{BELOW}and {len(ranks.all) - _MAX_RANKS} more ranks"
    for group in group_findings(judged.findings()):
        # For a GPU that cannot be read, the line of the GPU shows the reason, and the finding says what to do.
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
        return GpuRow({"gpu": label, "name": model}, f"{sample.state.title}: {sample.reason}")
    # While the driver hangs, the last utilization would look current.
    utilization, power, limit = (sample.value(f"gpu.{key}") for key in ("utilization", "power", "power_limit"))
    utilization = math.nan if sample.state is Availability.STALE else utilization
    memory = units.of_total(sample.value("gpu.memory_used"), sample.value("gpu.memory_total"))
    if sample.device.missing.get("gpu.memory_used") is Availability.SHARED_WITH_HOST:
        used, total = (host[HOST_INDEX[name]] for name in ("host.memory_used", "host.memory_total"))
        memory = f"{units.of_total(used, total)} shared with the host"
    watts = GPU_BY_KEY["power"].write_without_unit
    cells = {
        "gpu": label, "name": model, "bar": bar(utilization),
        "utilization": GPU_BY_KEY["utilization"].write(utilization, is_narrow=True), "memory_used": memory,
        "temperature": GPU_BY_KEY["temperature"].write(sample.value("gpu.temperature")),
        "power": f"{watts(power):>4}/{watts(limit)} W", "state": word, "who": who,
    }  # fmt: skip
    return GpuRow(cells)


def _plain(row: GpuRow, width: int) -> str:
    """Return the full line, with models padded to `width`."""
    cells = row.cells
    head = f"{cells['gpu']:>3}  {cells['name']:<{width}}"
    if row.reason:
        return f"{head}  {row.reason}"
    who = "  ".join(part for part in (cells["state"], cells["who"]) if part)
    numbers = f"{cells['utilization']:>4}  {cells['memory_used']:>14}  {cells['temperature']:>5}  {cells['power']}"
    return f"{head}  {cells['bar']} {numbers}  {who}".rstrip()


def _who(held: list[Process], run: Run | None, runs: Sequence[Ranks] = ()) -> str:
    """Return text about the current run, the other `runs` on the GPU, and the processes of other users."""
    if run is not None:
        keys = {rank.key for ranks in runs for rank in ranks.all}
        others = [process for process in held if process.user not in ("", run.user) and process.run not in keys]
        all_runs = (run, *(ranks.first for ranks in runs))
        names = [f"{shown.user}: {shown.name} {_epoch(shown)}".rstrip() for shown in all_runs]
        return ", ".join(part for part in (*names, _who(others, None)) if part)
    groups: dict[tuple[str, str], list[Process]] = {}
    for process in held:
        groups.setdefault((process.user or "unknown user", process.name or f"pid {process.pid}"), []).append(process)
    programs = [
        f"{user}: {name}" + (f" ×{len(group)}" if len(group) > 1 else "") + _memory(group)
        for (user, name), group in list(groups.items())[:_MAX_PROGRAMS]
    ]
    return ", ".join(programs) + (f" and {len(groups) - _MAX_PROGRAMS} more" if len(groups) > _MAX_PROGRAMS else "")


def _memory(processes: list[Process]) -> str:
    total = sum(process.memory_used for process in processes)
    return "" if not is_known(total) else f" {units.bytes_binary(total)}"


def _parts(sample: Sample) -> tuple[str, ...]:
    """Return texts about the purposes for which the memory of a GPU is used. Purposes without data are left out."""
    from gpumon.analysis.memory import breakdown_of, known_parts  # imported only if there are runs, to start fast

    breakdown = breakdown_of(sample)
    if breakdown is None:
        return ()
    return tuple(f"{part.title} {units.gibibytes(value)}" for part, value in known_parts(breakdown))


def _run(ranks: Ranks, frame: Frame, progress: Progress) -> RunLine:
    from gpumon.analysis.progress import seconds_since_begin  # imported only if there are runs, to start fast

    run, first = ranks.slowest, ranks.first
    kept = [f"{first.name} ({first.user})", _epoch(run)]
    parts = [*kept, _step(run), run.phase]
    if ranks.state is not RunState.RUNNING:
        kept.append(_state(ranks.worst))
        parts.append(kept[-1])
    elif is_known(first.started):
        parts.append(f"for {units.duration(max(0.0, seconds_since_begin(first, frame.time, frame.monotonic_ns)))}")
    if is_known(progress.done):
        left = f", {units.duration(progress.left)} left" if is_known(progress.left) else ""
        kept.append(f"{units.percent(progress.done)} done{left}")
        parts.append(kept[-1])
    memory = run_memory(ranks.all, frame.processes)
    if is_known(memory):
        parts.append(f"memory {units.bytes_binary(memory)}")
    if ranks.is_distributed:
        parts.append(f"{len(ranks.all)} of {first.world_size} ranks on this host")
    logged = [f"{name} {units.logged_number(value)}" for name, value in ranks.metrics.items()]
    losses = [text for text in logged if "loss" in text.casefold()]
    kept += (losses or logged)[:1]
    return _line("run  ", [*parts, *logged], kept)


def _shown_ranks(ranks: Ranks) -> list[Run]:
    """Return at most `_MAX_RANKS` ranks, in order of rank.

    If there are more ranks, those that have ended and the slowest rank are preferred.
    """
    by_need = sorted(ranks.all, key=lambda run: run.state is RunState.RUNNING and run.key != ranks.slowest.key)
    shown = {run.key for run in by_need[:_MAX_RANKS]}
    return [run for run in ranks.all if run.key in shown]


def _rank(run: Run, labels: Mapping[str, str], frame: Frame) -> RunLine:
    gpus = ", ".join(f"GPU {labels[uuid]}" for uuid in run.gpus if uuid in labels)
    kept = [f"rank {run.rank}", gpus, _epoch(run)]
    parts = [*kept, _step(run), run.phase]
    memory = run_memory((run,), frame.processes)
    if is_known(memory):
        parts.append(units.bytes_binary(memory))
    if run.state is not RunState.RUNNING:
        kept.append(_state(run))
        parts.append(kept[-1])
    return _line(BELOW, parts, kept)


def _state(run: Run) -> str:
    if run.state is RunState.FAILED:
        return f"failed: {exit_text(run.facts.exit_code, run.facts.exit_signal) or 'exited with an error'}"
    return _STATES[run.state]


def _line(head: str, parts: Sequence[str], kept: Sequence[str]) -> RunLine:
    return RunLine(head, tuple(filter(None, parts)), tuple(filter(None, kept)))


def _step(run: Run) -> str:
    """Return the step as text. It is empty before the first step, because not every training counts steps."""
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
    """Return a ratio (0 to 1) as a bar, such as `█████▌····`. For NaN, the bar has only dots."""
    if not math.isfinite(ratio):
        return "·" * width
    eighths = round(max(0.0, min(1.0, ratio)) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(width, "·")


_GAP = "  "
_COLUMNS = shown(GPUS, View.COMMAND)
_ALWAYS = 95
"""Even a very narrow terminal shows columns with at least this `keep` value."""
_MAX_WIDTHS = {"who": 24, "state": 28}
"""Maximum width of a column. `who` also gets the remaining width."""
_MORE, _NARROW_DOT = " …", " · "
_TITLE_PARTS = 3
"""Number of title parts that are always shown: machine, label and sampler."""
_MIN_WIDTH = 20
"""Minimum width to which lines are fitted. A narrower terminal cuts or wraps the lines itself."""


def fitted(content: Sequence[str | GpuRow | MemoryLine | RunLine], width: int) -> Iterator[str]:
    """Yield the lines, cut to `width` columns. The first line is the title."""
    width = max(width, _MIN_WIDTH)
    widths = _widths([line for line in content if isinstance(line, GpuRow)], width)
    for number, line in enumerate(content):
        if isinstance(line, GpuRow):
            yield _row(line, widths, width)
        elif text_width(str(line)) <= width:
            yield str(line)
        elif isinstance(line, RunLine):
            yield from _fit_run(line, width)
        elif isinstance(line, MemoryLine):
            yield _first_parts(str(line), width, MEMORY_UNIT)
        elif number == 0:
            yield from _fit_title(line, width)
        elif DOT in line:
            yield _first_parts(line, width)
        else:
            yield from _wrapped(line, width)


def _fit_title(line: str, width: int) -> Iterator[str]:
    """Yield the title: machine, label and sampler, and as many of the other parts as fit."""
    parts = line.split(DOT)
    while len(parts) > _TITLE_PARTS and text_width(DOT.join(parts)) > width:
        del parts[-2 if len(parts) == _TITLE_PARTS + 1 else -3]
    yield from _wrapped(DOT.join(parts), width)


def _widths(rows: Sequence[GpuRow], width: int) -> dict[str, int]:
    """Return the widths of the columns that fit, by key."""
    needed = {}
    for column in _COLUMNS:  # most columns of a GPU that cannot be read are empty
        widest = max((text_width(row.cells.get(column.key, "").strip()) for row in rows), default=0)
        if widest:
            needed[column.key] = min(widest, _MAX_WIDTHS.get(column.key, widest))
    needed["gpu"] = max(needed.get("gpu", 0), 3)
    widths: dict[str, int] = {}
    for column in sorted(_COLUMNS, key=lambda column: -column.keep):
        wide = needed.get(column.key, 0)
        if wide and (column.keep >= _ALWAYS or sum(widths.values()) + wide + len(_GAP) * len(widths) <= width):
            widths[column.key] = wide
    return widths


def _row(row: GpuRow, widths: dict[str, int], width: int) -> str:
    number, who = row.cells["gpu"], row.cells.get("who", "")
    if row.reason:
        model = f"{row.cells['name']:<{widths['name']}}{_GAP}" if "name" in widths else ""
        full = f"{number:>3}{_GAP}{model}{row.reason}"
        return full if text_width(full) <= width else cut(f"{number:>3}{_GAP}{row.reason}", width)
    cells = []
    for column in _COLUMNS:
        if column.key not in widths:
            continue
        text = row.cells[column.key].strip()
        if column.key == "who":
            cells.append(text)
            continue
        text = cut(text, widths[column.key])
        padding = " " * (widths[column.key] - text_width(text))
        cells.append(padding + text if column.is_number or column.key == "gpu" else text + padding)
    line = _GAP.join(cells)
    if "who" not in widths and who:
        line = f"{line.rstrip()}{_GAP}{who}" if text_width(line.rstrip()) + 8 <= width else line
    return cut(line.rstrip(), width)


def _first_parts(line: str, width: int, end: str = "") -> str:
    """Return as many of the first parts of a line as fit, but at least one.

    `end`: text after the parts, such as a unit.
    """
    parts = line.split(DOT)
    end = _MORE + end
    while len(parts) > 1 and text_width(DOT.join(parts)) + len(end) > width:
        parts.pop()
    return cut(DOT.join(parts) + end, width)


def _fit_run(line: RunLine, width: int) -> Iterator[str]:
    """Yield the line of a run, fitted to `width`.

    The parts in `line.kept` are always shown, on as many lines as needed. Other parts are added from first to last
    while everything fits on one line.
    """
    shown = list(line.kept)
    for part in line.parts:
        more = [other for other in line.parts if other in shown or other == part]
        if text_width(line.head + DOT.join(more)) + len(_MORE) <= width:
            shown = more
    current = line.head + shown[0]
    for part in shown[1:]:
        is_last = part == shown[-1] and len(shown) < len(line.parts)
        dot = DOT if len(shown) > len(line.kept) else _NARROW_DOT
        if text_width(current + dot + part) + len(_MORE) * is_last > width:
            yield cut(current, width)
            current = BELOW + part
        else:
            current += dot + part
    yield cut(current + _MORE * (len(shown) < len(line.parts)), width)


def _wrapped(line: str, width: int) -> Iterator[str]:
    """Yield a sentence wrapped between words. All lines but the first are indented."""
    words = line.split()
    current = line[: len(line) - len(line.lstrip())] + words[0]
    for word in words[1:]:
        gap = _GAP if f"{current.strip()}{_GAP}{word}" in line else " "
        if text_width(current) + len(gap) + text_width(word) > width:
            yield cut(current, width)
            current = BELOW + word
        else:
            current += gap + word
    yield cut(current, width)
