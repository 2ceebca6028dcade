"""Contexts and findings of what a frame shows now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil, isfinite
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.gpu_state import Activity, GpuState, Load
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.progress import seconds_since_begin
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.analysis.thresholds import JUDGED_FROM, JUDGED_OVER, PAUSE, RECENT, WHOLE
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import GpuContext, LinkUnderLoad, RunContext, diagnose, has_slow_link
from gpumon.diagnosis.finding import Finding, Subject
from gpumon.diagnosis.gpu import GPU_RULES, THERMAL
from gpumon.model.frame import ENDED_BADLY, Frame, RunState
from gpumon.model.metrics import IDLE, Availability
from gpumon.storage.history.query import Query

if TYPE_CHECKING:
    from gpumon.analysis.epochs import Epochs
    from gpumon.analysis.progress import Progress
    from gpumon.live import Live
    from gpumon.storage.history.recent import RecentHistory


_UTILIZATION = "gpu.utilization"
_THROTTLED = ("gpu.throttled_sw_thermal", "gpu.throttled_hw_thermal", "gpu.throttled_hw_power_brake")
"""Counters whose sum is the `throttled_share` of the ledger too."""
_ALL = 1 << 20
"""Points: each sample by itself."""


class Shares(NamedTuple):
    """Shares of the time, as mean of the GPUs; NaN where it is unknown, or nobody has watched for long enough."""

    throttled: float = NAN
    """In which heat or a power brake held the clocks down."""
    idle: float = NAN
    """In which no kernel ran."""


def rates(history: RecentHistory, uuid: str, now: float) -> Mapping[str, float]:
    """Return the rates of the counters of heat at `now`, by metric."""
    return {metric.name: history.last(uuid, metric.name, now) for metric in THERMAL}


def shares(history: RecentHistory, uuids: Iterable[str], begin: float, end: float) -> Shares:
    """Return the shares of the time from `begin` to `end` (s since 1970), as far as the history goes back."""
    found = [_of_gpu(history, uuid, begin, end) for uuid in uuids]
    return Shares(_mean([one.throttled for one in found]), _mean([one.idle for one in found]))


def _of_gpu(history: RecentHistory, uuid: str, begin: float, end: float) -> Shares:
    found = history.query(Query(uuid, (_UTILIZATION, *_THROTTLED), begin, end, _ALL))
    series = found[_UTILIZATION]
    times = [time for time, value in zip(series.times, series.mean, strict=True) if is_known(value)]
    if not times or times[-1] - times[0] < JUDGED_FROM:
        return Shares()
    busy = _known(series.mean)
    counters = [values for name in _THROTTLED if (values := _known(found[name].mean))]
    throttled = sum(sum(values) / len(values) for values in counters) if counters else NAN
    return Shares(min(1.0, throttled) if counters else NAN, sum(value < IDLE for value in busy) / len(busy))


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if is_known(value)]


def _mean(values: Sequence[float]) -> float:
    known = _known(values)
    return sum(known) / len(known) if known else NAN


_LINKS = "gpu.nvlink_active"


def findings(
    statuses: Sequence[GpuStatus],
    runs: Sequence[Ranks],
    epochs: Epochs | None,
    now: float,
    history: RecentHistory | None = None,
    rates: Mapping[str, Mapping[str, float]] = {},
    loaded: Mapping[str, LinkUnderLoad] = {},
    monotonic_ns: int = 0,
) -> list[Finding]:
    """Return all findings about the GPUs and runs of a frame, the most severe first.

    `epochs` has taken in the boundaries that are known, and may be None without runs; `now` is the frame's time,
    `monotonic_ns` the same by the clock that nobody sets, 0 where it is unknown;
    `history` is that of the time before, where the caller has it: rates of counters and shares of the time need it.
    `rates` by UUID and metric, and links when they were last `loaded`, are for a caller that has no history.
    """
    contexts = [_gpu(one, now, history, rates, loaded) for one in statuses]
    lost = {one.sample.device.uuid for one in statuses if one.sample.state is Availability.LOST}
    if lost:
        contexts = list(_lost(contexts, lost))
    found = diagnose(GPU_RULES, [_among(context, statuses) for context in contexts])
    if runs and epochs is not None:
        from gpumon.diagnosis.runs import RUN_RULES  # without a run, `status` does without them

        found += diagnose(RUN_RULES, [live_run(ranks, epochs, now, history, monotonic_ns) for ranks in runs])
    return sorted(found, key=lambda finding: -finding.severity)


def is_recent(finding: Finding) -> bool:
    """Return whether what befell a run did so lately; other findings are about now."""
    return "age" not in finding.evidence or finding.evidence["age"] < RECENT


def _gpu(
    status: GpuStatus,
    now: float,
    history: RecentHistory | None,
    known: Mapping[str, Mapping[str, float]],
    loaded: Mapping[str, LinkUnderLoad],
) -> GpuContext:
    uuid = status.sample.device.uuid
    if history is None or status.sample.state is not Availability.OK:
        return GpuContext(status, now, known.get(uuid, {}), loaded.get(uuid, LinkUnderLoad()))
    from gpumon.diagnosis.pcie_link import link_series_from_history, link_under_load

    link = (
        link_under_load(link_series_from_history(history, uuid, now), now) if has_slow_link(status) else LinkUnderLoad()
    )
    return GpuContext(status, now, rates(history, uuid, now), link)


def _lost(contexts: Sequence[GpuContext], lost: Collection[str]) -> Iterator[GpuContext]:
    """The contexts of GPUs of which some, by their UUIDs, are lost."""
    devices = [one.status.sample.device for one in contexts]
    numbers = {device.label for device in devices if device.uuid not in lost}
    for context, device in zip(contexts, devices, strict=True):
        is_replaced = device.uuid in lost and device.label in numbers
        yield context._replace(is_lost_with_gpu=device.parent in lost, is_replaced=is_replaced)


def _among(context: GpuContext, statuses: Sequence[GpuStatus]) -> GpuContext:
    """The context of a GPU among the others of the machine."""
    if not is_known(context.value(_LINKS)):
        return context
    own = context.status.sample.device
    others = [one.sample for one in statuses if one.sample.device.name == own.name and one.sample.device != own]
    links = [sample.value(_LINKS) for sample in others if sample.state is Availability.OK]
    return context._replace(peer_links=max((one for one in links if is_known(one)), default=NAN))


def live_run(
    ranks: Ranks, epochs: Epochs, now: float, history: RecentHistory | None = None, monotonic_ns: int = 0
) -> RunContext:
    """Return the context of a run of the newest frame; shares of its time are known where there is a history.

    `now` and `monotonic_ns` as of `findings`.
    """
    run = ranks.first
    running = ranks.state is RunState.RUNNING
    faults = epochs.faults([one.key for one in ranks.all])
    ended = max((one.updated for one in ranks.all if is_known(one.updated)), default=NAN)
    # In its first epoch a training compiles and fills caches.
    lasted = seconds_since_begin(run, now, monotonic_ns)
    settled = running and run.epoch > run.first_epoch and lasted > 0
    waited = epochs.data_wait(run.key, now, monotonic_ns)
    throttled, idle = _shares(ranks, now, history) if settled and history is not None else (NAN, NAN)
    return RunContext(
        subject=Subject("run", run.id, run.name.strip() or run.id),
        state=ranks.state,
        epoch=run.epoch_text if run.epoch >= 0 else "",
        since_end=NAN if running else now - ended,
        ooms=float(len(faults)) if faults else ranks.ooms,
        since_oom=now - faults[-1].time_ns / SECOND if faults else NAN,
        asked=faults[-1].asked if faults else NAN,
        free=faults[-1].free if faults else NAN,
        # By the board alone, where no boundary is kept: then nobody knows what of the time was no training.
        wait_share=NAN if not settled else waited.share if waited.measured > 0 else run.wait / lasted,
        waits_in_part=lasted > WHOLE * waited.measured > 0,
        throttled_share=throttled,
        idle_share=idle,
        diverged=sorted({name for one in ranks.all for name, value in one.metrics.items() if not isfinite(value)}),
        claimed=sum(int(one.facts.claimed) for one in ranks.all) if running else 0,
    )


def _shares(ranks: Ranks, now: float, history: RecentHistory) -> tuple[float, float]:

    return shares(history, ranks.gpus, max(ranks.first.started, now - JUDGED_OVER), now)


LOOK_BACK = 605
"""Frames that are looked through for what befell a run, and for how long a GPU is idle: ten minutes at one a second,
and a few more, so that "at least 10 min" is reached."""
_RATE_OF = 2
"""Frames between which a counter grows: the newest and the one before."""
_SPARE = 3
"""More frames than a minute has: a tick may be early."""


class JudgedFrame:
    """A frame with what follows from it and from `before`, earlier frames as far as they are known, oldest first.

    What only concerns runs is imported once there is one: `gpumon status` is to be quick.
    """

    def __init__(
        self, frame: Frame, before: Sequence[Frame] = (), live: bool = True, epochs: Epochs | None = None
    ) -> None:
        """Judge a frame; `epochs` know boundaries of its runs, also those from before `before`."""
        self._frame = frame
        self._before = [one for one in before if one.number < frame.number]
        self._epochs: Epochs | None = None
        self._known_epochs = epochs
        self.runs = ranks_of(frame.runs)
        self.gpus: tuple[GpuStatus, ...] = gpu_statuses(frame, self.runs, None, live)
        """In the order of its samples."""
        if self._before and needs_earlier_frames(self.gpus):
            activity = Activity()
            for one in (*self._before, frame):
                activity.add(one)
            self.gpus = gpu_statuses(frame, self.runs, activity, live)

    @property
    def epochs(self) -> Epochs:
        """The epochs of its runs."""
        if self._epochs is None:
            from gpumon.analysis.epochs import Epochs

            self._epochs = self._known_epochs or Epochs()
            for one in self._before:
                self._epochs.add_boundaries(one.boundaries)
            self._epochs.add(self._frame)
        return self._epochs

    def progress(self, ranks: Ranks) -> Progress:
        """Return how far one of its runs is."""
        from gpumon.analysis.progress import progress

        return progress(ranks, self.epochs, self._frame.time, self._frame.monotonic_ns)

    def findings(self) -> list[Finding]:
        """Return what a person should know, the most severe first."""
        from gpumon.diagnosis.gpu import THERMAL
        from gpumon.storage.history.counters import rates_between

        frame, names = self._frame, [metric.name for metric in THERMAL]
        rates = rates_between(self._before[-1], frame, names) if self._before else {}
        epochs, now = self.epochs if self.runs else None, frame.monotonic_ns
        loaded = self._loaded_links()
        return findings(self.gpus, self.runs, epochs, frame.time, rates=rates, loaded=loaded, monotonic_ns=now)

    def _loaded_links(self) -> dict[str, LinkUnderLoad]:
        """The links that are slow now, when they were last under load."""
        slow = [status.sample.device.uuid for status in self.gpus if has_slow_link(status)]
        if not slow or not self._before:
            return {}
        from gpumon.diagnosis.pcie_link import link_series_from_frames, link_under_load

        frames, now = (*self._before, self._frame), self._frame.time
        return {uuid: link_under_load(link_series_from_frames(frames, uuid), now) for uuid in slow}


def needs_earlier_frames(statuses: Sequence[GpuStatus]) -> bool:
    """Return whether frames before this one may change what is judged, or the word for it.

    One alone cannot tell a pause from idleness, nor a sample between two steps from a light load.
    """
    return any(
        status.state is GpuState.ALLOCATED or (status.state is GpuState.BUSY and status.load is not Load.BUSY)
        for status in statuses
    )


def earlier_frames(live: Live, newest: Frame) -> list[Frame]:
    """Return the frames of the last while, where they may change what is reported: a look is to be quick.

    One of them tells how fast counters grow, a minute a pause from idleness; of what is idle, more of them tell for
    how long, and of a slow link whether it was loaded.
    """
    ended_badly = any(run.memory.ooms > 0 or run.state in ENDED_BADLY for run in newest.runs)
    statuses = gpu_statuses(newest, ranks_of(newest.runs))
    if not ended_badly and not any(map(has_slow_link, statuses)):
        if not needs_earlier_frames(statuses):
            return live.since(max(0, newest.number - _RATE_OF))
        few = min(LOOK_BACK, ceil(PAUSE / max(newest.interval, 0.01)) + _SPARE)
        minute = live.since(max(0, newest.number - few))
        if not any(status.state is GpuState.HELD for status in JudgedFrame(newest, minute).gpus):
            return minute
    return live.since(max(0, newest.number - LOOK_BACK))


def epochs_from_boundaries(live: Live, newest: Frame) -> Epochs | None:
    """Return the epochs by every boundary that is kept, where a run has any: what is left of it hangs on the last ones.

    So it is the time that a view tells, which has all frames. None without such a run.
    """
    if not any(run.state is RunState.RUNNING and run.epoch >= 0 for run in newest.runs):
        return None
    from gpumon.analysis.epochs import Epochs

    found = Epochs()
    found.add_boundaries(live.boundaries())
    return found
