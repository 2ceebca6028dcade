"""A hang report as text and JSON, for `gpumon hang`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gpumon.common.numbers import is_known
from gpumon.common.text import wrap_words
from gpumon.hang.process_state import ProcessState
from gpumon.hang.report import HangReport, RankReport, WorkerReport
from gpumon.hang.stacks import Frame, Stacks
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports.text_table import TextColumn, draw

SCHEMA = 1
SHOWN_FRAMES = 6
"""Number of innermost calls that are printed for each process."""
_COLUMNS = (
    TextColumn("RANK", 100),
    TextColumn("PID", 90),
    TextColumn("STATE", 80, right=False),
    TextColumn("CPU", 60),
    TextColumn("STEP", 70),
    TextColumn("SILENT", 65),
    TextColumn("WHERE", 95, right=False, max_width=90, min_width=16),
)


def lines(report: HangReport, width: int = 0) -> Iterator[str]:
    """Yield a report as lines of at most `width` columns (0: unlimited)."""
    yield from wrap_words(report.sentence, width)
    yield f"{report.run.id}: {_progress_text(report)}"
    yield from report.events
    yield ""
    yield from draw(_COLUMNS, [_row(rank) for rank in report.ranks], width)
    for rank in report.ranks:
        if rank.pid:
            yield ""
            yield f"Rank {rank.run.rank}, process {rank.pid}:"
            yield from _stack_lines(rank.stacks)
        for worker in rank.workers:
            if worker.is_suspect:
                yield f"Child process {worker.state.pid} of rank {rank.run.rank}, {worker.state.state_text}:"
                yield from _stack_lines(worker.stacks)


def _progress_text(report: HangReport) -> str:
    silent = units.long_duration(report.silent)
    if report.is_stalled:
        return f"stalled, no progress for {silent}"
    if not any(rank.run.state is RunState.RUNNING for rank in report.ranks):
        return f"not running any more, last progress {silent} ago"
    return f"not stalled, last progress {silent} ago"


def _row(rank: RankReport) -> Sequence[str]:
    run, state = rank.run, rank.state
    is_running = run.state is RunState.RUNNING
    return (
        str(run.rank),
        str(rank.pid or ""),
        _state_text(state) if state is not None and is_running else run.state.name.lower(),
        f"{state.cpu * 100:.0f} %" if state is not None and is_known(state.cpu) else "",
        units.count(run.step),
        units.duration(rank.silent),
        rank.place.text.replace("`", "") if rank.state is not None else "",
    )


def _state_text(state: ProcessState) -> str:
    wait = state.syscall or state.wait_channel
    return f"{state.state} {wait}".strip()


def _stack_lines(stacks: Stacks) -> Iterator[str]:
    frames = stacks.main
    if not frames:
        yield f"  {stacks.problem or 'no Python stack'}"
    for frame in frames[:SHOWN_FRAMES]:
        yield f"  {frame.function}  {frame.file}:{frame.line}"
    if len(frames) > SHOWN_FRAMES:
        yield f"  … {units.counted(len(frames) - SHOWN_FRAMES, 'more call')}"


def as_json(report: HangReport) -> dict[str, Any]:
    """Return a report as JSON. Unknown values are null."""
    return {
        "schema": SCHEMA,
        "run": report.run.id,
        "name": report.run.name,
        "stalled": report.is_stalled,
        "silent": _known(report.silent),
        "culprits": list(report.culprits),
        "sentence": report.sentence,
        "missing_ranks": list(report.missing),
        "driver_events": list(report.events),
        "ranks": [_rank_json(rank) for rank in report.ranks],
    }


def _rank_json(rank: RankReport) -> dict[str, Any]:
    return {
        "rank": rank.run.rank,
        "run_state": rank.run.state.name.lower(),
        "epoch": rank.run.epoch if rank.run.epoch >= 0 else None,
        "step": rank.run.step,
        "phase": rank.run.phase or None,
        "silent": _known(rank.silent),
        "place": rank.place.text,
        "process": _process_json(rank.state, rank.stacks),
        "children": [_worker_json(worker) for worker in rank.workers],
    }


def _worker_json(worker: WorkerReport) -> dict[str, Any]:
    return {"suspect": worker.is_suspect, "process": _process_json(worker.state, worker.stacks)}


def _process_json(state: ProcessState | None, stacks: Stacks) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "pid": state.pid,
        "name": state.name,
        "state": state.state,
        "wait_channel": state.wait_channel or None,
        "syscall": state.syscall or None,
        "path": state.path or None,
        "cpu": _known(state.cpu),
        "threads": state.threads,
        "threads_in_d": state.threads_in_d,
        "stacks_problem": stacks.problem or None,
        "stacks": [
            {
                "main": thread.is_main,
                "name": thread.name or None,
                "frames": [_frame_json(frame) for frame in thread.frames],
            }
            for thread in stacks.threads
        ],
    }


def _frame_json(frame: Frame) -> dict[str, Any]:
    return {"function": frame.function, "file": frame.file, "line": frame.line or None}


def _known(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
