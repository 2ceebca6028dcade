"""Rules about the course of a recorded training: single slow epochs, epochs that grow, and memory that grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import median, median_low

from gpumon.analysis import thresholds
from gpumon.common.numbers import is_known
from gpumon.diagnosis import advice
from gpumon.diagnosis.context import Rule
from gpumon.diagnosis.finding import Certainty, Finding, Gain, Severity
from gpumon.diagnosis.training import Training, Window
from gpumon.model import units
from gpumon.model.metrics import Unit

_MIN_EXCESS = 1.0
"""A single epoch is reported only if it took at least this many seconds longer than usual."""
_FEW = 6
"""With fewer epochs than this, an outlier is compared with the longest of the other epochs instead of their median."""
_MOST = 0.5
"""A part of an epoch is named as the cause if it explains at least this share of the excess."""
_TO_SIGMA = 1.4826
"""Factor from the median absolute deviation of normally distributed values to their standard deviation."""
_TREND_OVER = 20
"""Number of newest epochs in which a trend is searched."""
_MIN_TREND = 4
"""Number of epochs that a trend needs. The first epoch of the run does not count."""
_AGREEMENT, _AGREEMENT_OF_FEW = 0.6, 0.8
"""Values count as growing from this Kendall's tau on: for ten or more values, and for fewer values."""
_MOST_PAIRED = 60
"""Maximum number of epochs whose pairs are compared."""
_RESAMPLES = 200
"""Resamples of the bootstrap for the interval of a forecast."""
_GROWTH_COLUMNS = ("run_allocated_mean", "run_allocated_peak", "run_used_peak", "memory_used_mean")
"""Columns in which growth is searched. The first column with a value in every epoch is used. Columns that are read
between steps come first, because activations have been freed by then."""


def epoch_outlier(training: Training) -> Iterator[Finding]:
    """A single epoch took much longer than the others."""
    windows = _comparable(training.ended)
    if not training.has_epochs or len(windows) < 3:
        return
    outliers = _outliers(windows)
    if not 0 < len(outliers) <= max(1, len(windows) // 10):
        return
    ordinals = {window.summary.ordinal for window in outliers}
    usual_windows = [window for window in windows if window.summary.ordinal not in ordinals]
    usual = median(window.summary.seconds for window in usual_windows)
    excess = sum(window.summary.seconds - usual for window in outliers)
    whole = sum(window.seconds for window in training.ended)
    if excess < thresholds.OUTLIER_SHARE * whole:
        return
    longest = max(outliers, key=lambda window: window.summary.seconds)
    cause, certainty = _cause_of_outlier(longest, usual_windows)
    seconds = longest.summary.seconds
    yield Finding(
        "epoch_outlier",
        Severity.WARNING,
        training.subject,
        f"took {units.fine_duration(seconds)} for epoch {longest.summary.epoch}, "
        f"{units.fine_duration(usual)} for the others",
        f"See 'gpumon runs show {training.subject.id} --phases' and the log of that time.",
        {"ratio": seconds / usual, "epoch": float(longest.summary.epoch), "longest": seconds, "usual": usual,
         "outliers": float(len(outliers))},
        cause=cause,
        certainty=certainty,
        gain=Gain(0.0, excess / whole),
        window=f"epochs {windows[0].summary.epoch}–{windows[-1].summary.epoch}",
        threshold=thresholds.OUTLIER,
    )  # fmt: skip


def _outliers(windows: Sequence[Window]) -> list[Window]:
    """Return the epochs that took much longer than the others. The first epoch is never returned."""
    lengths = [window.summary.seconds for window in windows]
    usual = sorted(lengths)[-2] if len(windows) < _FEW else median(lengths)
    spread = _TO_SIGMA * median(abs(seconds - usual) for seconds in lengths) if len(windows) >= _FEW else 0.0
    shortest = max(thresholds.OUTLIER * usual, usual + max(_MIN_EXCESS, 3 * spread))
    return [window for window in windows[1:] if window.summary.seconds >= shortest]


def _comparable(windows: Sequence[Window]) -> list[Window]:
    """Return the windows without the usual time of phases that only some epochs have, such as a validation in each
    tenth epoch.

    A phase counts as such if at least two epochs and at most half of them have it.
    """
    lengths: dict[str, list[float]] = {}
    for window in windows:
        for name, seconds in window.phases.items():
            if seconds > 0:
                lengths.setdefault(name, []).append(seconds)
    usual = {name: median_low(times) for name, times in lengths.items() if 2 <= len(times) <= len(windows) / 2}
    return [_without(window, usual) for window in windows]


def _without(window: Window, usual: Mapping[str, float]) -> Window:
    """Return a window without these seconds of its phases, or the window itself if it has none of them."""
    removed = {name: min(seconds, usual[name]) for name, seconds in window.phases.items() if name in usual}
    if not any(removed.values()):
        return window
    phases = {name: seconds - removed.get(name, 0.0) for name, seconds in window.phases.items()}
    seconds = max(0.0, window.summary.seconds - sum(removed.values()))
    return window._replace(summary=replace(window.summary, seconds=seconds), phases=phases)


def _parts(window: Window) -> dict[str, float]:
    """Return the seconds of an epoch by part: waiting for data, each phase, and the rest, which has the key `""`."""
    wait = window.summary.wait if is_known(window.summary.wait) else 0.0
    rest = window.summary.seconds - wait - sum(window.phases.values())
    return {"waiting for data": wait, **{f"phase {name}": seconds for name, seconds in window.phases.items()},
            "": max(0.0, rest)}  # fmt: skip


def _largest_growth(window: Window, others: Sequence[Window]) -> tuple[str, float]:
    """Return the part of an epoch that took longest compared with its median in `others`, and the excess in seconds.

    An epoch that does not have a phase counts as 0 s of it.
    """
    usual = [_parts(other) for other in others]
    growth = {
        name: seconds - median(parts.get(name, 0.0) for parts in usual) for name, seconds in _parts(window).items()
    }
    name = max(growth, key=lambda part: growth[part])
    return name, growth[name]


def _excess(window: Window, others: Sequence[Window]) -> float:
    """Return by how many seconds an epoch is longer than the median of others."""
    return window.summary.seconds - median(other.summary.seconds for other in others)


def _cause_of_outlier(window: Window, others: Sequence[Window]) -> tuple[str, Certainty]:
    name, growth = _largest_growth(window, others)
    if growth < _MOST * _excess(window, others):
        return "Several parts of the epoch took longer.", Certainty.POSSIBLE
    if name:
        return f"The time went to {name}: {units.fine_duration(growth)} more than usual.", Certainty.MEASURED
    if _is_throttled_longer(window, others):
        share = units.number(window.summary.value("throttled_share"), Unit.RATIO)
        return f"The driver lowered the clocks during {share} of this epoch.", Certainty.LIKELY
    return "The steps themselves took longer: the process, a rank or the machine was held up.", Certainty.POSSIBLE


def _is_throttled_longer(window: Window, others: Sequence[Window]) -> bool:
    """Return whether lower clocks can explain the excess of an epoch.

    Work at lower clocks cannot lose more time than it takes, so the clocks must have been lowered longer than in the
    other epochs by at least the excess.
    """
    throttled = [_throttled_seconds(other) for other in others]
    if window.summary.value("throttled_share") < thresholds.THROTTLED or not all(map(is_known, throttled)):
        return False
    return _throttled_seconds(window) - median(throttled) >= _excess(window, others)


def _throttled_seconds(window: Window) -> float:
    return window.summary.value("throttled_share") * window.summary.seconds


def first_epoch(training: Training) -> Iterator[Finding]:
    """The first epoch takes much longer than the others, and is a large part of the run."""
    windows = _comparable(training.ended)
    if not training.has_epochs or len(windows) < 3:
        return
    first, rest = windows[0], windows[1:]
    usual = median(window.summary.seconds for window in rest)
    excess = first.summary.seconds - usual
    whole = excess + usual * max(len(windows), training.planned)
    is_long = first.summary.seconds >= thresholds.FIRST_EPOCH * usual and excess >= _MIN_EXCESS
    if not is_long or excess < thresholds.FIRST_EPOCH_SHARE * whole:
        return
    name, growth = _largest_growth(first, rest)
    name = name if growth >= _MOST * excess else ""
    cause = f"Most of it is {name}: {units.fine_duration(growth)} more." if name else (
        "The training compiles code and reads files for the first time."
    )  # fmt: skip
    yield Finding(
        "first_epoch",
        Severity.INFO,
        training.subject,
        f"took {units.fine_duration(first.summary.seconds)} for the first epoch, "
        f"{units.fine_duration(usual)} for the others",
        advice.choose(advice.SHORTEN_FIRST_EPOCH, training.framework),
        {"ratio": first.summary.seconds / usual, "longest": first.summary.seconds, "usual": usual},
        cause=cause,
        certainty=Certainty.MEASURED if name else Certainty.POSSIBLE,
        gain=Gain(0.0, excess / whole),
        window=f"epochs {first.summary.epoch}–{windows[-1].summary.epoch}",
        threshold=thresholds.FIRST_EPOCH,
    )


def slower_epochs(training: Training) -> Iterator[Finding]:
    """Each epoch takes longer than the one before."""
    comparable = _comparable(training.ended)
    windows = comparable[-_TREND_OVER:] if training.is_running else _spread(comparable)
    if not training.has_epochs or len(windows) < 3:
        return
    pace = _pace(windows)
    if len(windows) <= _MIN_TREND:
        # The first epoch usually takes longest. If it is the shortest, three epochs are enough.
        is_growing = all(later >= 1.05 * earlier for earlier, later in pairwise(pace))
        growth = pace[-1] / pace[0] - 1 if pace[0] > 0 else 0.0
    else:
        windows, pace = windows[1:], pace[1:]
        is_growing = _grows(pace)
        usual = median(pace)
        growth = _slope(pace) * (len(pace) - 1) / usual if usual > 0 else 0.0
    if not is_growing or growth < thresholds.SLOWER:
        return
    name, _ = _largest_growth(windows[-1], windows[: max(1, len(windows) // 2)])
    cause, action = _CAUSES_OF_GROWTH.get(
        name, (f"The time of {name} grows.", "Look at what grows in it from epoch to epoch.")
    )
    shortest = min(_pace(comparable))
    lost = 1 - shortest * len(pace) / sum(pace)
    yield Finding(
        "slower_epochs",
        Severity.WARNING,
        training.subject,
        f"gets slower with each epoch: {units.fine_duration(windows[0].summary.seconds)}, "
        f"then {units.fine_duration(windows[-1].summary.seconds)}",
        action,
        {
            "growth": growth,
            "shortest": min(window.summary.seconds for window in windows),
            "newest": windows[-1].summary.seconds,
        },
        cause=cause,
        certainty=Certainty.LIKELY if name else Certainty.POSSIBLE,
        gain=Gain(0.3 * lost, lost),
        window=f"epochs {windows[0].summary.epoch}–{windows[-1].summary.epoch}",
        threshold=thresholds.SLOWER,
    )


_CAUSES_OF_GROWTH: Mapping[str, tuple[str, str]] = {
    "waiting for data": (
        "The waits for data grow.",
        "Look at what grows in the loader from epoch to epoch: open files, caches, the number of samples.",
    ),
    "": (
        "The steps themselves get slower.",
        "Look for lists, logs or graphs that grow with each step, and for clocks that fall.",
    ),
}


def _spread(windows: Sequence[Window]) -> Sequence[Window]:
    """Return at most `_MOST_PAIRED` evenly spaced windows."""
    return windows[:: -(-len(windows) // _MOST_PAIRED) or 1]


def _pace(windows: Sequence[Window]) -> list[float]:
    """Return the seconds per step of each epoch, or the seconds of each epoch if steps were not counted in all."""
    if all(window.summary.steps for window in windows):
        return [window.summary.seconds / (window.summary.steps or 1) for window in windows]
    return [window.summary.seconds for window in windows]


def memory_growth(training: Training) -> Iterator[Finding]:
    """The memory of the training grows from epoch to epoch."""
    windows = training.ended[1:][-_TREND_OVER:]
    if not training.has_epochs or len(windows) < _MIN_TREND:
        return
    sizes = next((values for column in _GROWTH_COLUMNS if (values := _values(windows, column))), [])
    if not sizes:
        return
    slope = _slope(sizes)
    steps = [later - earlier for earlier, later in pairwise(sizes)]
    # A cache grows and then stays. The newest epochs must grow like the others.
    is_growing = all(step >= 0.25 * slope > 0 for step in steps[-3:]) and _grows(sizes)
    growth = slope * (len(sizes) - 1)
    limit = min(thresholds.GROWTH, thresholds.GROWTH_SHARE * training.memory_total)
    if not is_growing or not growth >= limit:
        return
    evidence = {"growth_bytes": growth, "per_epoch": slope}
    free = training.memory_total - training.highest("memory_used_peak")
    summary = f"needs {units.number(slope, Unit.BYTES)} more device memory with each epoch"
    if is_known(free) and free > 0:
        soon, late = _epochs_until(sizes, free)
        last = windows[-1].summary.epoch
        evidence |= {"full_from": last + soon, "full_until": last + late}
        summary += f": full between epoch {last + soon:.0f} and {last + late:.0f}"
    yield Finding(
        "memory_growth",
        Severity.WARNING,
        training.subject,
        summary,
        advice.choose(advice.FREE_TENSORS, training.framework),
        evidence,
        cause="Tensors of earlier steps are still referenced.",
        certainty=Certainty.LIKELY,
        window=f"epochs {windows[0].summary.epoch}–{windows[-1].summary.epoch}",
        threshold=limit,
    )


def _values(windows: Sequence[Window], column: str) -> list[float]:
    """Return a measured column of all windows; empty if one has no value."""
    values = [window.summary.value(column) for window in windows]
    return values if all(map(is_known, values)) else []


def _slope(values: Sequence[float], indexes: Sequence[int] | None = None) -> float:
    """Return the Theil–Sen slope: the median growth per epoch over all pairs of epochs."""
    points = sorted(indexes) if indexes else range(len(values))
    slopes = [
        (values[later] - values[earlier]) / (later - earlier)
        for position, earlier in enumerate(points)
        for later in points[position + 1 :]
        if later > earlier
    ]
    return median(slopes) if slopes else 0.0


def _agreement(values: Sequence[float]) -> float:
    """Return Kendall's tau of the values and their order: 1 if they only grow, -1 if they only fall."""
    signs = [
        (later > earlier) - (later < earlier)
        for position, earlier in enumerate(values)
        for later in values[position + 1 :]
    ]
    return sum(signs) / len(signs) if signs else 0.0


def _grows(values: Sequence[float]) -> bool:
    return _agreement(values) >= (_AGREEMENT if len(values) >= 10 else _AGREEMENT_OF_FEW)


def _epochs_until(sizes: Sequence[float], free: float) -> tuple[float, float]:
    """Return how many epochs it takes to fill `free` bytes: the 5th and 95th percentile of a bootstrap."""
    random, usual = Random(0), _slope(sizes)
    slopes = sorted(
        slope if (slope := _slope(sizes, random.choices(range(len(sizes)), k=len(sizes)))) > 0 else usual
        for _ in range(_RESAMPLES)
    )
    low, high = slopes[_RESAMPLES // 20], slopes[-_RESAMPLES // 20 - 1]
    return free / high, free / low


def shared_gpu(training: Training) -> Iterator[Finding]:
    """Another program holds memory on a GPU of the training."""
    if not training.lasts(_is_shared):
        return
    held = max(window.others for window in training.windows if _is_shared(window))
    yield Finding(
        "shared_gpu",
        Severity.WARNING,
        training.subject,
        f"shares a GPU with another program, which held up to {units.number(held, Unit.BYTES)}",
        "See who it is with 'gpumon history processes', and train on a GPU that is free.",
        {"others_memory": held},
        cause="Both programs take turns on the GPU.",
        certainty=Certainty.POSSIBLE,
        window=training.window_text,
        threshold=thresholds.OTHERS_HOLD,
    )


def _is_shared(window: Window) -> bool:
    return window.others > thresholds.OTHERS_HOLD


def allocator_retries(training: Training) -> Iterator[Finding]:
    """The framework's allocator had to free its cache to find room."""
    if not training.retries >= thresholds.RETRIES:
        return
    yield Finding(
        "allocator_retries",
        Severity.WARNING,
        training.subject,
        f"freed the allocator's cache {units.counted(round(training.retries), 'time')} to find room",
        advice.choose(advice.AVOID_FRAGMENTS, training.framework),
        {"retries": training.retries},
        cause="The memory is nearly full or fragmented, and each retry waits for the GPU.",
        certainty=Certainty.MEASURED,
        window="the whole run",
        threshold=thresholds.RETRIES,
    )


def fragments(training: Training) -> Iterator[Finding]:
    """The framework holds much more memory than its tensors ever needed."""
    reserved = training.highest("run_reserved_peak")
    peaks = [window.summary.framework_peak for window in training.windows]
    peak = max((value for value in peaks if is_known(value)), default=0.0)
    if not peak > 0 or not reserved >= thresholds.FRAGMENTED * peak:
        return
    if not reserved >= thresholds.FRAGMENTED_SHARE * training.memory_total:
        return
    yield Finding(
        "fragments",
        Severity.INFO,
        training.subject,
        f"holds {units.number(reserved, Unit.BYTES)} for at most {units.number(peak, Unit.BYTES)} of tensors",
        advice.choose(advice.AVOID_FRAGMENTS, training.framework),
        {"held_ratio": reserved / peak, "run_reserved_peak": reserved, "framework_peak": peak},
        cause="Batches of different sizes leave blocks in the allocator that fit no later request.",
        certainty=Certainty.LIKELY,
        window=training.window_text,
        threshold=thresholds.FRAGMENTED,
    )


TREND_RULES: tuple[Rule[Training], ...] = (
    epoch_outlier, first_epoch, slower_epochs, memory_growth, shared_gpu, fragments,
)  # fmt: skip
"""Rules about the course and the memory of recorded trainings. They are applied only if `Training.is_judged`."""
COUNTER_RULES: tuple[Rule[Training], ...] = (allocator_retries,)
"""Rules about counters of the whole run. They need no ended epoch."""
