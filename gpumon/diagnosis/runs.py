"""Rules about running runs, past runs and epochs, and notes on the runs of the newest frame."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import isfinite

from gpumon.analysis import thresholds
from gpumon.analysis.ranks import Ranks
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import Rule, RunContext
from gpumon.diagnosis.finding import Finding, Severity, Subject
from gpumon.model import units
from gpumon.model.frame import TRAINING, Boundary, Run, RunState
from gpumon.model.metrics import Unit
from gpumon.model.run import exit_text

_STAYS = 2
"""Number of newest values that must be NaN or infinite if a metric is no loss."""


def notes(ranks: Ranks, faults: Sequence[Boundary]) -> list[Finding]:
    """Return the findings below a run of the newest frame: out-of-memory errors, and whether it was resumed.

    `faults`: boundaries of the out-of-memory errors.
    """
    subject = Subject("run", ranks.first.id, ranks.first.name.strip() or ranks.first.id)
    return [*_out_of_memory(ranks.ooms, faults, subject), *_resumed(ranks.slowest, subject)]


def _out_of_memory(ooms: float, faults: Sequence[Boundary], subject: Subject) -> Iterator[Finding]:
    """Yield a finding that describes the last error if it has a boundary, or else counts the errors."""
    if faults:
        last = max(faults, key=lambda fault: fault.time_ns)
        times = f" ({len(faults)} times)" if len(faults) > 1 else ""
        sizes = f"requested {units.bytes_binary(last.asked)}, {units.bytes_binary(last.free)} free"
        summary = f"out of memory: {sizes}, at {units.clock(last.time_ns / SECOND)}{times}"
    elif ooms > 0:
        summary = f"out of memory {units.rounded(ooms)} times" if ooms > 1 else "out of memory once"
    else:
        return
    yield Finding("out_of_memory", Severity.CRITICAL, subject, summary, "", {"ooms": float(len(faults)) or ooms})


def _resumed(run: Run, subject: Subject) -> Iterator[Finding]:
    if run.resumed:
        evidence = {"epoch": float(run.first_epoch)}
        yield Finding("resumed", Severity.INFO, subject, f"resumed at epoch {run.first_epoch}", "", evidence)


def run_out_of_memory(run: RunContext) -> Iterator[Finding]:
    """An allocation of device memory failed in the run."""
    if not run.ooms > 0:
        return
    summary = "out of memory"
    if is_known(run.asked):
        summary += f": requested {units.number(run.asked, Unit.BYTES)}"
        if is_known(run.free):
            summary += f", {units.number(run.free, Unit.BYTES)} free"
    evidence = {"ooms": run.ooms, "asked": run.asked, "free": run.free, "age": run.since_oom}
    action = "Reduce the batch size, or train in lower precision."
    yield Finding("out_of_memory", Severity.CRITICAL, run.subject, summary, action, evidence)


def ended_badly(run: RunContext) -> Iterator[Finding]:
    """The code of the run raised an exception, or its process was killed."""
    if run.state in (RunState.DIED, RunState.FAILED):
        kind = run.state.name.lower()
        summary = f"{kind} in epoch {run.epoch}" if run.epoch else kind
        if is_known(run.failed_rank):
            summary += f", rank {run.failed_rank:.0f} first"
        if ending := exit_text(run.exit_code, run.exit_signal):
            summary += f": {ending}"
        was_killed = run.state is RunState.DIED or run.exit_signal
        action = "Check the output of the run and 'dmesg'." if was_killed else "Check the output of the run."
        evidence = {
            "age": run.since_end,
            "exit_code": run.exit_code or NAN,
            "exit_signal": run.exit_signal or NAN,
            "rank": run.failed_rank,
        }
        yield Finding(kind, Severity.CRITICAL, run.subject, summary, action, evidence)


def diverged(run: RunContext) -> Iterator[Finding]:
    """The run logged a value that has become NaN or infinite and stays so."""
    if run.diverged:
        *others, last = run.diverged
        are = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        summary = f"diverged: {are} NaN or infinite"
        action = "Lower the learning rate, or check the batch before the first such value."
        if not run.was_finite:
            action = "Check the inputs and the loss of the first batch: no finite value was logged."
        yield Finding("diverged", Severity.CRITICAL, run.subject, summary, action)


_LOSSES = ("loss", "losses", "nll", "perplexity", "ppl")
"""Last parts of the words in the name of a metric that training minimizes."""
_NOT_LOSSES = frozenset(("best", "min", "lowest", "scale", "scaler"))
"""Words in the names of metrics that may be infinite by design, such as `best_loss` and `loss_scale`."""


def is_loss(name: str) -> bool:
    """Return whether a metric is a loss by its name, so that it is finite unless the training has diverged."""
    words = re.split(r"[\W_]+", name.casefold())
    return any(word.endswith(_LOSSES) for word in words) and _NOT_LOSSES.isdisjoint(words)


def diverged_names(logged: Iterable[Mapping[str, float]]) -> dict[str, bool]:
    """Return the metrics that have diverged, by name, with whether they were finite before.

    `logged`: values by name, oldest first. A metric has diverged if its newest values are NaN or infinite, and it never
    recovered from so many such values before. A metric that is no loss may be NaN by design: it must have been finite
    before, and its newest `_STAYS` values must not be.
    """
    values: dict[str, list[float]] = {}
    for metrics in logged:
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
    result = {}
    for name, course in values.items():
        streaks = [(finite, len([*group])) for finite, group in groupby(course, isfinite)]
        earlier = max((length for finite, length in streaks[:-1] if not finite), default=0)
        was_finite = len(streaks) > 1
        is_finite, length = streaks[-1]
        if not is_finite and length > earlier and (is_loss(name) or (was_finite and length >= _STAYS)):
            result[name] = was_finite
    return result


def stalled(run: RunContext) -> Iterator[Finding]:
    """No rank of the run makes steps any more, for much longer than its steps usually take."""
    if run.silent > 0:
        doing = f" in phase {run.phase}" if run.phase not in ("", TRAINING) else ""
        place = f" (epoch {run.epoch})" if run.epoch else ""
        summary = f"stalled: no progress{doing} for {units.duration(run.silent)}{place}"
        action = f"Its user can run 'gpumon hang {run.subject.id}' to see where each process waits."
        yield Finding("stalled", Severity.CRITICAL, run.subject, summary, action, {"silent": run.silent})


def beyond_time_limit(run: RunContext) -> Iterator[Finding]:
    """The run will be ended before it is done, or is past its limit and still running.

    The time by which it exceeds the limit must be greater than the error of the estimate.
    """
    if run.state is RunState.RUNNING and run.limit_in <= 0:
        summary = f"is past its time limit by {units.duration(-run.limit_in)}, and still runs"
        action = "Save a checkpoint now: it may be ended at any moment."
        yield Finding("time_limit", Severity.WARNING, run.subject, summary, action, {"limit_in": run.limit_in})
    excess = run.left - run.limit_in
    if run.limit_in > 0 and excess > max(thresholds.LIMIT_MARGIN, thresholds.LIMIT_SHARE * run.left):
        summary = f"needs {units.duration(run.left)} more, but will be ended in {units.duration(run.limit_in)}"
        action = "Save a checkpoint before that, and ask for more time or plan fewer epochs."
        evidence = {"left": run.left, "limit_in": run.limit_in}
        yield Finding("time_limit", Severity.WARNING, run.subject, summary, action, evidence)


def input_bound(run: RunContext) -> Iterator[Finding]:
    """The GPU waits while batches are loaded."""
    if run.wait_share >= thresholds.INPUT_BOUND:
        whole = "the training time" if run.waits_in_part else "the time"
        summary = f"waits for data {units.number(run.wait_share, Unit.RATIO)} of {whole}"
        action = "Add DataLoader workers, or move decoding off the CPU."
        yield Finding("input_bound", Severity.WARNING, run.subject, summary, action, {"wait_share": run.wait_share})


def throttled(run: RunContext) -> Iterator[Finding]:
    """The driver lowers the clocks for a large share of the time."""
    share = run.throttled_share
    if share >= thresholds.THROTTLED:
        summary = f"throttled {units.number(share, Unit.RATIO)} of the time"
        action = "Check the cooling and the power limit of the run's GPUs."
        yield Finding("throttled", Severity.WARNING, run.subject, summary, action, {"throttled_share": share})


def mostly_idle(run: RunContext) -> Iterator[Finding]:
    """No kernel runs for most of the time."""
    if run.idle_share >= thresholds.MOSTLY_IDLE:
        summary = f"idle {units.number(run.idle_share, Unit.RATIO)} of the time"
        action = "Look for work on the CPU between steps, or train with larger batches."
        yield Finding("mostly_idle", Severity.WARNING, run.subject, summary, action, {"idle_share": run.idle_share})


def claimed(run: RunContext) -> Iterator[Finding]:
    """The run claims GPUs on which its user has no process."""
    if run.claimed:
        summary = f"claims {units.counted(run.claimed, 'GPU')} on which its user has no process"
        action = (
            "Check that the run trains there: it counts as using a GPU once the driver lists a process of its user."
        )
        yield Finding("claimed", Severity.WARNING, run.subject, summary, action, {"gpus": float(run.claimed)})


RUN_RULES: tuple[Rule[RunContext], ...] = (
    run_out_of_memory,
    ended_badly,
    diverged,
    stalled,
    beyond_time_limit,
    claimed,
    input_bound,
    throttled,
    mostly_idle,
)
