"""The lines of a GPU's row: why it does not answer, its runs, other holders, and since when it does nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.gpu_state import GpuState
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon_web import levels
from gpumon_web.holders import holder_of, idle_for, of_no_run
from gpumon_web.page import Cells, Gpu, Now
from gpumon_web.tokens import gpu_address, line, link, person, place, progress, run_address, run_name, tag, text

RUNS = 4
"""Runs in a row; the page of the GPU has all."""
HOLDERS = 2
"""Holders in a row beside those of runs."""
SILENT = frozenset(("stale", "lost", "unreadable", "asleep"))
"""States without values of now; a reason says why."""
_TAGGED = frozenset((GpuState.HELD.value, GpuState.FREE.value, GpuState.ALLOCATED.value))
"""States that a row has in words."""


def who(about: Cells, runs: Sequence[Cells], time: float) -> list[Cells]:
    """The lines of a row: why it does not answer, its runs, other holders, and since when it does nothing."""
    state, lines = about["state"], []
    if state in SILENT:
        said = tag(silence(about), levels.OF_GPU[GpuState(state)])
        # Once nobody looks, its age is of the last look: it would stand still.
        lines.append(line({**said, "old": GpuState.STALE.title, "ended": said["tag"]} if state == "stale" else said))
    for run in runs[:RUNS]:
        phase = run["phase"] if run["phase"] != "train" else ""
        name = link(run_name(run), run_address(run["id"]), "name")
        lines.append(line(person(run["user"]), name, tag(phase) if phase else None, css="who"))
        if far := place(run):
            lines.append(progress(run, far))
    if len(runs) > RUNS:
        lines.append(_more(about, f"and {units.counted(len(runs) - RUNS, 'more run')}"))
    holders = of_no_run(about["holders"], {run["id"] for run in runs})
    lines += [_holder(holder) for holder in holders[:HOLDERS]]
    if rest := sum(holder["count"] for holder in holders[HOLDERS:]):
        lines.append(_more(about, f"and {rest} more {'process' if rest == 1 else 'processes'}"))
    if state == GpuState.DIVIDED.value:
        lines.append(line(text(GpuState.DIVIDED.title, "mut")))
    elif about["processes_unknown"]:
        lines.append(line(text(f"processes unknown: {about['processes_unknown']}"), css="mut"))
    elif (about["unlisted"] or not (about["empty"] or state in SILENT)) and not runs and not about["holders"]:
        # While nothing answers, nothing is listed either.
        why = about["reason"] or "the GPU does not answer"
        words = f"processes unknown: {why}" if state in SILENT else "unknown: the driver lists no process"
        lines.append(line(text(words), css="mut"))
    if state in _TAGGED:
        for_long = "" if state == GpuState.ALLOCATED.value else idle_for(about, time)
        lines.append(line(tag(f"{GpuState(state).title}{for_long}", levels.OF_GPU[GpuState(state)], is_now=True)))
    elif not lines:
        lines.append(line(text(units.MISSING if state == "stale" else "no process", "mut")))
    if wrong := about["fault"]:
        said = tag(units.counted(wrong["count"], "fault"), wrong["level"], is_now=True)
        lines.append(line(said, text(wrong["text"], "mut", is_now=True), css="who fault"))
    return lines


def silence(about: Cells) -> str:
    """Why a GPU has no values of now, and for how long."""
    reason = about["reason"] or GpuState(about["state"]).title
    if about["state"] == GpuState.ASLEEP.value:
        return f"{GpuState.ASLEEP.title}: {reason}"
    age = about["age"]
    return (
        f"stale {units.long_duration(age)}: {reason}" if about["state"] == "stale" and age and age >= 1 else str(reason)
    )


def power_text(power: float | None, limit: float | None, *, is_sum: bool = False) -> str:
    """`300 / 700 W`; of a sum beyond a kilowatt `4.21 / 5.6 kW`."""
    if power is None and not (limit and not is_sum):
        return units.MISSING
    watts = units.MISSING if power is None else GPU_BY_KEY["power"].write(power).removesuffix(" W")
    if is_sum and power is not None and limit is not None and limit > 1000:
        return f"{power / 1000:.2f} / {limit / 1000:.1f} kW"
    return f"{watts} / {GPU_BY_KEY['power'].write(limit)}" if limit else f"{watts} W"


def _holder(holder: Cells) -> Cells:
    """A holder of memory without a run, or how many others there are."""
    if holder["user"] is None:
        return line(text(f"and {holder['count']} more processes"), css="mut")
    return line(*holder_of(holder), css="who")


def _more(about: Cells, words: str) -> Cells:
    return line(link(words, gpu_address(about["label"]), "mut"))


def users_of(gpu: Gpu, now: Now) -> list[str]:
    """Users of a GPU whose names are known, by the alphabet."""
    users = {run["user"] for run in now.runs_of(gpu)} | {one["user"] for one in gpu.about["holders"]}
    return sorted(user for user in users if user)


def words_of(gpu: Gpu, now: Now) -> str:
    """Words that a search looks in."""
    runs = [word for run in now.runs_of(gpu) for word in (run["name"], run["framework"])]
    names = [name for one in gpu.about["holders"] for name in one["names"]]
    about = gpu.about
    states = (GpuState(about["state"]).title, about["word"])
    return " ".join((f"gpu {about['label']}", about["name"], *states, *users_of(gpu, now), *runs, *names)).lower()
