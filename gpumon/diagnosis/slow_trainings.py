"""Rules about recorded trainings: what takes the time, why, what to change, and what the change is expected to save.

The rules in `runs` detect, for every view, that a run waits for data, is idle or is throttled. `explain` adds the cause
and the expected gain to their findings. The rules of this module need the epochs of a recorded run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil
from statistics import median

from gpumon.analysis import thresholds
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis import advice
from gpumon.diagnosis.context import Rule
from gpumon.diagnosis.finding import Certainty, Finding, Gain, Severity
from gpumon.diagnosis.training import CHECKPOINTS, Loader, Training, Window
from gpumon.model import units
from gpumon.model.frame import EVALUATION
from gpumon.model.metrics import Unit
from gpumon.model.run import IN_PROCESS, STARTED_WORKERS

_UNSURE = 0.5
"""Smallest part of a wait that an action is expected to save if its cause is only `POSSIBLE`."""
_SLOWED = (0.1, 0.5)
"""Time lost while the clocks are lowered, as a share of the throttled time: lowest and highest of common cards."""
_CHECKPOINT_GOAL = 0.1
"""The advice to save less often aims at this share of the training time. The factor is at most `_MOST_TIMES`."""
_MOST_TIMES = 10
_HALVED = (0.35, 0.55)
"""Time saved by half as many validations, as a share of their time. The number of epochs may be odd."""
_MOST_WORKERS = 8
_FASTER = (0.2, 0.6)
"""Time saved by tensor cores, as a share of the time in which the multiprocessors are busy. Mixed precision makes
trainings 1.3 to 3 times as fast, depending on the share of matrix products."""
_SHORT_STEP = 0.1
"""Seconds. The driver samples about every 0.2 s. Within steps shorter than this, no pause lasts for a whole sample."""


def explain(finding: Finding, training: Training) -> Finding | None:
    """Return a finding of `runs.RUN_RULES` with cause, action and gain; None if another finding is more exact."""
    if finding.kind == "input_bound":
        return None if any(straggler(training)) else _explain_wait(finding, training)
    if finding.kind == "mostly_idle":
        return _explain_idleness(finding, training)
    if finding.kind == "throttled":
        share = finding.evidence["throttled_share"]
        gain = Gain(_SLOWED[0] * share, _SLOWED[1] * share)
        cause = "The driver lowers the clocks because of heat or a power brake."
        return finding._replace(
            cause=cause, certainty=Certainty.MEASURED, gain=gain, threshold=thresholds.THROTTLED, window="the whole run"
        )
    return finding


def _explain_wait(finding: Finding, training: Training) -> Finding | None:
    share, loader = training.wait_share, training.loader
    if not training.lasts(lambda window: window.summary.wait_share >= thresholds.INPUT_BOUND):
        return None  # a single epoch waited, which has a finding as an outlier
    start = _start_share(training)
    if start >= thresholds.WORKER_START and start >= 0.5 * share:
        return None  # most of the wait is the start of the workers, which has a finding
    evidence = dict(finding.evidence)
    gain = training.saves(_UNSURE * share, share) if is_known(share) else None
    cause, certainty = "The loader prepares batches more slowly than the training uses them.", Certainty.MEASURED
    action = advice.choose(advice.MORE_WORKERS, training.framework)
    if training.steps:
        evidence["wait_per_step"] = training.wait / training.steps
        evidence["step"] = training.trained / training.steps
    if loader.loading == IN_PROCESS:
        evidence["workers"] = 0.0
        cause = "The DataLoader has no workers: each batch is loaded in the process of the training."
        if training.steps:
            action, gain = _with_workers(training)
    elif loader.workers:
        evidence |= {"workers": float(loader.workers), "busy_share": loader.busy_share}
        if loader.busy_share >= thresholds.BUSY_WORKERS:
            cause = f"{_processes(loader)} of the DataLoader: busy all the time."
            action = advice.choose(advice.FASTER_WORKERS, training.framework, workers=2 * loader.workers)
        elif loader.busy_share < thresholds.WAITING_WORKERS:
            cause = f"{_processes(loader)} of the DataLoader: most of the time they wait for a disk or a network."
            action = advice.choose(advice.FASTER_STORAGE, training.framework, workers=2 * loader.workers)
            certainty = Certainty.LIKELY
    return finding._replace(
        action=action,
        evidence=evidence,
        cause=cause,
        certainty=certainty,
        gain=gain,
        threshold=thresholds.INPUT_BOUND,
        window=training.window_text,
    )


def _processes(loader: Loader) -> str:
    return units.counted(loader.workers, "worker")


def _with_workers(training: Training) -> tuple[str, Gain]:
    """Return the advice to load in worker processes, and its gain: from the gain with two workers to that with all."""
    load = training.wait / training.steps
    compute = max(1e-6, training.trained / training.steps - load)
    workers = min(_MOST_WORKERS, max(2, ceil(load / compute) + 1))
    if is_known(training.cpus):
        workers = min(workers, int(training.cpus))
    part = training.trained / training.seconds
    step = load + compute
    least = max(0.0, 1 - 1.1 * max(compute, load / min(2, workers)) / step) * part
    most = (1 - max(compute, load / workers) / step) * part
    return advice.choose(advice.ADD_WORKERS, training.framework, workers=workers), training.saves(
        min(least, 0.8 * most), most
    )


def _start_share(training: Training) -> float:
    """Return the share of the judged time that the training waits for workers to start in each epoch."""
    if training.loader.loading != STARTED_WORKERS or not is_known(training.loader.pass_wait):
        return 0.0
    return training.loader.pass_wait * len(training.windows) / training.seconds


def worker_start(training: Training) -> Iterator[Finding]:
    """The workers of the DataLoader start again in each epoch, and the training waits for them."""
    share = _start_share(training)
    if not training.has_epochs or not share >= thresholds.WORKER_START:
        return
    yield Finding(
        "worker_start",
        Severity.WARNING,
        training.subject,
        f"waits {units.fine_duration(training.loader.pass_wait)} until the workers start and stop in each epoch",
        advice.choose(advice.KEEP_WORKERS, training.framework),
        {"share": share, "pass_wait": training.loader.pass_wait, "workers": float(training.loader.workers)},
        cause="The DataLoader starts new workers in each epoch.",
        certainty=Certainty.MEASURED,
        gain=training.saves(0.3 * share, share),
        window="the whole run",
        threshold=thresholds.WORKER_START,
    )


def _explain_idleness(finding: Finding, training: Training) -> Finding | None:
    idle = finding.evidence["idle_share"]
    waits = training.wait_share if is_known(training.wait_share) else 0.0
    known = waits + training.share(EVALUATION | CHECKPOINTS) + training.unnamed_gap
    if known >= thresholds.EXPLAINED * idle:
        return None  # the waits, the phases or the time between epochs have a finding
    step = training.trained / training.steps if training.steps else NAN
    if not is_known(training.wait_share):
        cause = "Waits for data were not measured, so the time may go to the loader or to other work on the CPU."
        action = "Iterate over run.steps(loader) to see the waits, and name phases with run.phase('validate')."
    elif step < _SHORT_STEP:
        cause = "The pauses are longer than a step, so they are not within steps: something else runs on the CPU."
        action = "Name validation, saving and logging with run.phase('validate') to see which of them takes the time."
    else:
        cause = "Each step does work on the CPU, or waits for results of the GPU."
        action = "Look for .item(), print and CPU transforms in the loop; log every 50 steps."
    evidence = {**finding.evidence, "explained_share": known, **({"step": step} if is_known(step) else {})}
    return finding._replace(
        action=action,
        evidence=evidence,
        cause=cause,
        certainty=Certainty.POSSIBLE,
        gain=training.saves(0.3 * (idle - known), idle - known),
        threshold=thresholds.MOSTLY_IDLE,
        window="the whole run",
    )


def straggler(training: Training) -> Iterator[Finding]:
    """One rank waits for its data longer than the others, or uses its GPU less. All other ranks wait for it."""
    ranks = training.ranks
    if len(ranks) < 2:
        return
    if all(is_known(rank.wait) for rank in ranks):
        slow = max(ranks, key=lambda rank: rank.wait)
        share = slow.wait / training.seconds
        usual = median(rank.wait for rank in ranks if rank is not slow) / training.seconds
        lost = share - usual
        if lost >= thresholds.STRAGGLER:
            yield Finding(
                "straggler",
                Severity.WARNING,
                training.subject,
                f"waits for rank {slow.rank}, which waits for its data {_percent(share)} of the time, "
                f"the other ranks {_percent(usual)}",
                f"Compare the files, the disk and the CPU cores of rank {slow.rank} with the other ranks.",
                {"excess": lost, "rank": float(slow.rank), "wait_share": share, "others": usual},
                cause=f"The loader of rank {slow.rank} is slower, and all ranks wait for it in each step.",
                certainty=Certainty.MEASURED,
                gain=training.saves(0.7 * lost, lost),
                window=training.window_text,
                threshold=thresholds.STRAGGLER,
            )
            return
    if all(is_known(rank.utilization) for rank in ranks):
        slow = min(ranks, key=lambda rank: rank.utilization)
        usual = median(rank.utilization for rank in ranks if rank is not slow)
        if slow.utilization < thresholds.SLOWER_RANK * usual:
            yield Finding(
                "straggler",
                Severity.WARNING,
                training.subject,
                f"rank {slow.rank} uses its GPU {_percent(slow.utilization)}, the other ranks {_percent(usual)}",
                f"Compare the data, the CPU cores and the clocks of rank {slow.rank} with the other ranks.",
                {"ratio": slow.utilization / usual, "rank": float(slow.rank), "utilization": slow.utilization,
                 "others": usual},
                cause=f"Rank {slow.rank} does more work on the CPU. While the other ranks wait for it, their GPUs run "
                "the waiting kernel of a collective.",
                certainty=Certainty.POSSIBLE,
                window="the whole run",
                threshold=thresholds.SLOWER_RANK,
            )  # fmt: skip


def slow_validation(training: Training) -> Iterator[Finding]:
    """Validation takes a large part of the time."""
    share, limit = training.share(EVALUATION), thresholds.VALIDATION_SHARE
    if not _is_lasting(training, EVALUATION, limit):
        return
    seconds, epochs = training.in_phases(EVALUATION), len(training.windows)
    evidence = {"share": share, "epoch_seconds": seconds / epochs}
    validated = _epochs_with(training, EVALUATION)
    if validated:
        evidence["validated"] = float(len(validated))
    gain: Gain | None = Gain(_HALVED[0] * share, _HALVED[1] * share)
    every = 2 * round(median(later - earlier for earlier, later in pairwise(validated))) if len(validated) > 1 else "…"
    action = advice.choose(advice.VALIDATE_LESS, training.framework, every=every)
    if _is_entered_once(training, EVALUATION):
        action, gain = advice.choose(advice.VALIDATE_FASTER, training.framework), None
    yield Finding(
        "slow_validation",
        Severity.WARNING,
        training.subject,
        f"spends {_percent(share)} of the time in validation",
        action,
        evidence,
        cause=_times_of_validation(training, len(validated)),
        certainty=Certainty.MEASURED,
        gain=gain,
        window=training.window_text,
        threshold=limit,
    )


def _times_of_validation(training: Training, validated: int) -> str:
    """Return how long the training trains and validates. `validated`: epochs with validation; 0 if unknown."""
    seconds, epochs = training.in_phases(EVALUATION), len(training.windows)
    trained = units.fine_duration(training.trained / epochs)
    if not validated:
        return (
            f"It trains for {units.fine_duration(training.trained)} and validates for {units.fine_duration(seconds)}."
        )
    each = units.fine_duration(seconds / validated)
    if validated == epochs:
        return f"Each epoch trains for {trained} and validates for {each}."
    return f"It validates in {validated} of {epochs} epochs, for {each} each. An epoch trains for {trained}."


def _epochs_with(training: Training, names: frozenset[str]) -> list[int]:
    """Return the ordinals of the judged epochs that have one of these phases.

    The list is empty if the ledger does not say it: the phases were outside epochs, or a row has several epochs.
    """
    is_merged = any(window.summary.merged > 1 for window in training.windows)
    if not training.has_epochs or is_merged or not names.isdisjoint(training.outside):
        return []
    return [window.summary.ordinal for window in training.windows if window.in_phases(names) > 0]


def _is_entered_once(training: Training, names: frozenset[str]) -> bool:
    """Return whether these phases were only entered once, outside epochs, so that they cannot be entered less often."""
    entered = sum(times for phase, times in training.times_outside.items() if phase in names)
    return entered == 1 and not any(window.in_phases(names) for window in training.ended)


def slow_checkpoints(training: Training) -> Iterator[Finding]:
    """Saving checkpoints takes a large part of the time."""
    share, limit = training.share(CHECKPOINTS), thresholds.CHECKPOINT_SHARE
    if not _is_lasting(training, CHECKPOINTS, limit) or _is_entered_once(training, CHECKPOINTS):
        return
    times = min(_MOST_TIMES, max(2, ceil(share / (1 - share) / _CHECKPOINT_GOAL))) if share < 1 else _MOST_TIMES
    saved = share * (1 - 1 / times)
    yield Finding(
        "slow_checkpoints",
        Severity.WARNING,
        training.subject,
        f"spends {_percent(share)} of the time saving checkpoints",
        advice.choose(advice.SAVE_LESS, training.framework, times=times),
        {"share": share, "epoch_seconds": training.in_phases(CHECKPOINTS) / len(training.windows)},
        cause="The training stands still while each checkpoint is written.",
        certainty=Certainty.MEASURED,
        gain=training.saves(0.85 * saved, share),
        window=training.window_text,
        threshold=limit,
    )


def between_epochs(training: Training) -> Iterator[Finding]:
    """Much time passes between the epochs, in no named phase."""
    share, limit = training.unnamed_gap, thresholds.BETWEEN_SHARE
    if not share >= limit or not training.lasts(lambda window: _gap(window) >= limit):
        return
    yield Finding(
        "between_epochs",
        Severity.WARNING,
        training.subject,
        f"spends {_percent(share)} of the time between epochs",
        "Look at what runs there: evaluation, saving, logging. A name shows it: with run.phase('validate').",
        {"share": share, "epoch_seconds": share * training.seconds / len(training.windows)},
        cause="The code between two epochs is not part of the training loop, and the GPU waits for it.",
        certainty=Certainty.POSSIBLE,
        gain=training.saves(_UNSURE * share, share),
        window=training.window_text,
        threshold=limit,
    )


def low_utilization(training: Training) -> Iterator[Finding]:
    """The GPU never reaches a high utilization, although the training does not wait for data."""
    high, mean = training.highest("utilization_p95"), training.mean("utilization_mean")
    is_waiting = not training.wait_share < thresholds.HIDDEN_WAIT
    is_idle = not training.mean("idle_share") < thresholds.MOSTLY_IDLE
    if is_waiting or is_idle or not high < thresholds.LOW_UTILIZATION:
        return
    if training.share(EVALUATION) + training.share(CHECKPOINTS) + training.unnamed_gap >= 1 - high:
        return
    used = training.highest("memory_used_peak") / training.memory_total
    evidence = {"utilization_p95": high, "utilization_mean": mean, "memory_share": used}
    if training.steps:
        evidence["step"] = training.trained / training.steps
    action = advice.choose(advice.FILL_STEPS, training.framework)
    if used < thresholds.BATCH_MEMORY and training.batch > 0:
        # Weights do not grow with the batch. They are counted as if they did, so this batch certainly fits.
        batch = int(training.batch * 0.9 / used)
        action = advice.choose(advice.RAISE_BATCH, training.framework, batch=batch)
    lost = max(0.0, 1 - mean / 0.95)
    yield Finding(
        "low_utilization",
        Severity.WARNING,
        training.subject,
        f"keeps the GPU busy only {_percent(mean)} of the time without waiting for data",
        action,
        evidence,
        cause="A step has too little work: the CPU starts kernels more slowly than the GPU runs them.",
        certainty=Certainty.LIKELY,
        gain=Gain(0.3 * lost, lost),
        window=training.window_text,
        threshold=thresholds.LOW_UTILIZATION,
    )


def no_tensor_cores(training: Training) -> Iterator[Finding]:
    """The multiprocessors are busy, but not their tensor cores."""
    tensor, multiprocessors, fp32 = (
        training.mean(f"{name}_mean") for name in ("tensor_throughput", "sm_activity", "fp32_activity")
    )
    is_busy = multiprocessors >= thresholds.SM_BUSY and fp32 > tensor
    if not is_busy or not tensor < thresholds.TENSOR_IDLE:
        return
    yield Finding(
        "no_tensor_cores",
        Severity.WARNING,
        training.subject,
        f"uses {_percent(tensor)} of the tensor cores while the multiprocessors are busy {_percent(multiprocessors)} "
        "of the time",
        advice.choose(advice.LOWER_PRECISION, training.framework),
        {"tensor_throughput": tensor, "sm_activity": multiprocessors, "fp32_activity": fp32},
        cause="The training calculates in FP32 outside the tensor cores.",
        certainty=Certainty.LIKELY,
        gain=Gain(_FASTER[0] * multiprocessors, _FASTER[1] * multiprocessors),
        window=training.window_text,
        threshold=thresholds.TENSOR_IDLE,
    )


SLOW_RULES: tuple[Rule[Training], ...] = (
    worker_start, straggler, slow_validation, slow_checkpoints, between_epochs, low_utilization,
    no_tensor_cores,
)  # fmt: skip
"""Rules about the time of recorded trainings. They are applied only if `Training.is_judged`."""


def _is_lasting(training: Training, names: frozenset[str], limit: float) -> bool:
    """Return whether phases take at least `limit` of the time, and not only in one window."""
    if not names.isdisjoint(training.outside):
        return training.share(names) >= limit  # the ledger does not say between which epochs these phases were
    if not training.is_running and not training.share(names) >= limit:
        return False
    return training.lasts(lambda window: window.in_phases(names) >= limit * window.seconds > 0)


def _gap(window: Window) -> float:
    return window.gap / window.seconds if window.seconds > 0 else 0.0


def _percent(share: float) -> str:
    return units.number(share, Unit.RATIO)
