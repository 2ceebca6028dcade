"""Consequences of the end of processes, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.frame import Run
from gpumon.model.process import Process
from gpumon_tui.process_list.facts import ProcessFacts
from gpumon_tui.renderables.text_width import safe

Told = tuple[str, bool]
"""A sentence, and whether it is a grave one."""


def consequences(processes: Sequence[Process], facts: ProcessFacts) -> list[Told]:
    """Return what a signal to these leads to."""
    if not processes:
        return []
    runs = {process.pid: run for process in processes if (run := facts.run(process))}
    rest = [process for process in processes if process.pid not in runs]
    said = _of_others(processes, facts)
    by_id: dict[str, list[Run]] = {}
    for run in runs.values():
        by_id.setdefault(run.id or run.key, []).append(run)
    for ranks in by_id.values():
        said += _of_run(ranks, is_alone=len(processes) == 1)
    if rest:
        said += _of_rest(rest, facts, is_alone=len(processes) == 1, is_all=not runs)
    return said


def named(process: Process, facts: ProcessFacts) -> str:
    """Return what a process is, where, and whose: `train.py, GPU 0, yours`."""
    owner = "yours" if process.user == facts.me else safe(process.user)
    parts = safe(facts.program(process)), f"GPU {facts.label(process) or units.MISSING}", owner
    return ", ".join(part for part in parts if part)


def _of_others(processes: Sequence[Process], facts: ProcessFacts) -> list[Told]:
    others = [process for process in processes if not facts.is_own(process)]
    users = ", ".join(sorted({safe(process.user) or "an unknown user" for process in others}))
    if not others:
        return []
    if len(processes) == 1:
        return [(f"It belongs to {users}, not to you.", True)]
    return [(f"{len(others)} of them {'belongs' if len(others) == 1 else 'belong'} to {users}, not to you.", True)]


def _of_run(ranks: Sequence[Run], *, is_alone: bool) -> list[Told]:
    run = ranks[0]
    name = safe(run.name)
    if run.world_size < 2:
        lead = f"It is the run {name}" if is_alone else f"The run {name} is among them"
        end = "the whole run will fail" if is_alone else "it will fail"
    else:
        which = f"{len(ranks)} of {run.world_size} ranks" if len(ranks) > 1 else f"rank {run.rank} of {run.world_size}"
        lead = f"It is {which} of {name}" if is_alone else f"{which[0].upper()}{which[1:]} of {name}"
        end = "the whole run will fail"
    said: list[Told] = [(f"{lead}: {end}.", True)]
    if is_alone and run.epoch >= 0:
        epoch = run.epoch_text
        said.append((f"Epoch {epoch.replace('/', ' of ')}, {safe(run.phase)}.".replace(", .", "."), False))
    return said


def _of_rest(processes: Sequence[Process], facts: ProcessFacts, *, is_alone: bool, is_all: bool) -> list[Told]:
    known = [process.memory_used for process in processes if is_known(process.memory_used)]
    at_least = "" if len(known) == len(processes) else "at least "
    holds = f"{at_least}{units.bytes_binary(sum(known))}" if known else "memory"
    if not is_alone:
        who = "They hold" if is_all else "The rest holds"
        return [(f"{who} {holds}; work that is not saved is lost.", False)]
    said: list[Told] = [(f"It holds {holds}; work that it has not saved is lost.", False)]
    if facts.idle.get(processes[0].uuid):
        said.append((f"Its GPU is {GpuState.HELD.title}.", False))
    return said
