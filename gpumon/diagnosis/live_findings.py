"""Findings about the GPUs and runs in the newest frame."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.gpu_state import Activity, GpuState, Load
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.progress import progress, seconds_since_begin
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.analysis.thresholds import JUDGED_FROM, JUDGED_OVER, PAUSE, RECENT, WHOLE
from gpumon.analysis.throttling import THERMAL
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import GpuContext, LinkUnderLoad, RunContext, diagnose, has_slow_link
from gpumon.diagnosis.finding import Finding, Subject
from gpumon.diagnosis.gpu import GPU_RULES
from gpumon.model.frame import ENDED_BADLY, Frame, RunState
from gpumon.model.metrics import IDLE, Availability
from gpumon.storage.history.query import Query

if TYPE_CHECKING:
    from gpumon.analysis.progress import Progress
    from gpumon.analysis.run_epochs import Epochs
    from gpumon.live import Live
    from gpumon.storage.history.recent import RecentHistory


_UTILIZATION = "gpu.utilization"
_THROTTLED = ("gpu.throttled_sw_thermal", "gpu.throttled_hw_thermal", "gpu.throttled_hw_power_brake")
"""Counters whose sum is `throttled_share`, as in the ledger."""
_ALL_POINTS = 1 << 20
"""A number of points so large that a query returns every sample as a separate point."""


class Shares(NamedTuple):
    """Shares of time (0 to 1), averaged over GPUs; NaN if there are too few samples."""

    throttled: float = NAN
    """Share of the time in which heat or a power brake lowered the clocks."""
    idle: float = NAN
    """Share of the time in which no kernel ran."""


def rates(history: RecentHistory, uuid: str, now: float) -> Mapping[str, float]:
    """Return the growth per second of the thermal counters at `now` (s since 1970), by metric."""
    return {metric.name: history.last(uuid, metric.name, now) for metric in THERMAL}


def shares(history: RecentHistory, uuids: Iterable[str], begin: float, end: float) -> Shares:
    """Return the shares of the time from `begin` to `end` (s since 1970).

    If the history starts later than `begin`, only the time that it covers is used.
    """
    by_gpu = [_shares_of_gpu(history, uuid, begin, end) for uuid in uuids]
    return Shares(_mean([gpu.throttled for gpu in by_gpu]), _mean([gpu.idle for gpu in by_gpu]))


def _shares_of_gpu(history: RecentHistory, uuid: str, begin: float, end: float) -> Shares:
    result = history.query(Query(uuid, (_UTILIZATION, *_THROTTLED), begin, end, _ALL_POINTS))
    series = result[_UTILIZATION]
    times = [time for time, value in zip(series.times, series.mean, strict=True) if value == value]
    if not times or times[-1] - times[0] < JUDGED_FROM:
        return Shares()
    utilization = _known(series.mean)
    counters = [values for name in _THROTTLED if (values := _known(result[name].mean))]
    throttled = min(1.0, sum(sum(values) / len(values) for values in counters)) if counters else NAN
    return Shares(throttled, sum(value < IDLE for value in utilization) / len(utilization))


def _known(values: Iterable[float]) -> list[float]:
    # NaN != NaN; no call of is_known, because thousands of calls would take longer than the rest of the function.
    return [value for value in values if value == value]


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
    """Return all findings about the GPUs and runs of a frame, most severe first.

    `epochs`: epochs computed from all available boundaries; None if there are no runs. `now`: time of the frame (s
    since 1970). `monotonic_ns`: the same time by CLOCK_MONOTONIC, 0 if unknown. `history`: source of the rates of
    counters and the shares of time. Without a history, the caller passes `rates` (by UUID and metric) and `loaded`
    (links by UUID).
    """
    contexts = [_gpu_context(status, now, history, rates, loaded) for status in statuses]
    lost = {status.sample.device.uuid for status in statuses if status.sample.state is Availability.LOST}
    if lost:
        contexts = list(_mark_lost(contexts, lost))
    result = diagnose(GPU_RULES, [_add_peer_links(context, statuses) for context in contexts])
    if runs and epochs is not None:
        from gpumon.diagnosis.runs import RUN_RULES  # not imported by `status` without a run

        result += diagnose(RUN_RULES, [live_run(ranks, epochs, now, history, monotonic_ns) for ranks in runs])
    return sorted(result, key=lambda finding: -finding.severity)


def is_recent(finding: Finding) -> bool:
    """Return whether a finding is about the current state, or about an event in the last `RECENT` seconds."""
    return "age" not in finding.evidence or finding.evidence["age"] < RECENT


def _gpu_context(
    status: GpuStatus,
    now: float,
    history: RecentHistory | None,
    known_rates: Mapping[str, Mapping[str, float]],
    loaded: Mapping[str, LinkUnderLoad],
) -> GpuContext:
    uuid = status.sample.device.uuid
    if history is None or status.sample.state is not Availability.OK:
        return GpuContext(status, now, known_rates.get(uuid, {}), loaded.get(uuid, LinkUnderLoad()))
    from gpumon.diagnosis.link_under_load import link_series_from_history, link_under_load

    link = (
        link_under_load(link_series_from_history(history, uuid, now), now) if has_slow_link(status) else LinkUnderLoad()
    )
    return GpuContext(status, now, rates(history, uuid, now), link)


def _mark_lost(contexts: Sequence[GpuContext], lost: Collection[str]) -> Iterator[GpuContext]:
    """Set `is_lost_with_gpu` and `is_replaced` of each context. `lost`: UUIDs of the lost GPUs."""
    devices = [context.device for context in contexts]
    present_labels = {device.label for device in devices if device.uuid not in lost}
    for context, device in zip(contexts, devices, strict=True):
        is_replaced = device.uuid in lost and device.label in present_labels
        yield context._replace(is_lost_with_gpu=device.parent in lost, is_replaced=is_replaced)


def _add_peer_links(context: GpuContext, statuses: Sequence[GpuStatus]) -> GpuContext:
    """Set `peer_links` to the highest number of active NVLink links on another GPU of the same model."""
    if not is_known(context.value(_LINKS)):
        return context
    own = context.device
    others = [status.sample for status in statuses]
    links = [
        sample.value(_LINKS)
        for sample in others
        if sample.device.name == own.name and sample.device != own and sample.state is Availability.OK
    ]
    return context._replace(peer_links=max((count for count in links if is_known(count)), default=NAN))


def live_run(
    ranks: Ranks, epochs: Epochs, now: float, history: RecentHistory | None = None, monotonic_ns: int = 0
) -> RunContext:
    """Return the facts about a run in the newest frame.

    `now`: time of the frame, s since 1970. `history`: source of the shares of time. Without a history, they are NaN.
    `monotonic_ns`: the same time by CLOCK_MONOTONIC, 0 if unknown.
    """
    from gpumon.diagnosis.runs import diverged_names  # not imported by `status` without a run

    run = ranks.first
    running = ranks.state is RunState.RUNNING
    faults = epochs.faults([rank.key for rank in ranks.all])
    ended = max((rank.updated for rank in ranks.all if is_known(rank.updated)), default=NAN)
    # The first epoch of a run does not count, because the training compiles and fills caches.
    duration = seconds_since_begin(run, now, monotonic_ns)
    settled = running and run.epoch > run.first_epoch and duration > 0
    wait = epochs.data_wait(run.key, now, monotonic_ns)
    throttled, idle = NAN, NAN
    if settled and history is not None:
        throttled, idle = shares(history, ranks.gpus, max(run.started, now - JUDGED_OVER), now)
    limit, left = min((rank.facts.time_limit for rank in ranks.all if rank.facts.time_limit), default=NAN), NAN
    if settled and is_known(limit):
        left = progress(ranks, epochs, now, monotonic_ns).left
    return RunContext(
        subject=Subject("run", run.id, run.name.strip() or run.id),
        state=ranks.state,
        epoch=ranks.worst.epoch_text if ranks.worst.epoch >= 0 else "",
        since_end=NAN if running else now - ended,
        exit_code=ranks.worst.facts.exit_code,
        exit_signal=ranks.worst.facts.exit_signal,
        ooms=float(len(faults)) if faults else ranks.ooms,
        since_oom=now - faults[-1].time_ns / SECOND if faults else NAN,
        asked=faults[-1].asked if faults else NAN,
        free=faults[-1].free if faults else NAN,
        # The phases in which waits are measured are known only from boundaries. Without boundaries, the board gives the
        # share of the whole time.
        wait_share=NAN if not settled else wait.share if wait.measured > 0 else run.wait / duration,
        waits_in_part=duration > WHOLE * wait.measured > 0,
        throttled_share=throttled,
        idle_share=idle,
        # Earlier values are not known, so only losses count: other metrics may be NaN by design.
        diverged=sorted({name for rank in ranks.all for name in diverged_names([rank.metrics])}),
        claimed=sum(int(rank.facts.claimed) for rank in ranks.all) if running else 0,
        left=left,
        limit_in=limit - now,
        silent=max(0.0, now - ranks.stalled_since),
        phase=ranks.slowest.phase,
    )


LOOK_BACK = 605
"""Number of frames that are searched for events of runs and for idle times. This is ten minutes at one frame per
second, and a few more frames so that "at least 10 min" is reached."""
_RATE_FRAMES = 2
"""Number of frames needed for the rate of a counter."""
_SPARE_FRAMES = 3
"""Number of frames added to the frames of one minute, because ticks may be early."""


class JudgedFrame:
    """A frame with the states of its GPUs, its runs and its findings, computed from this and earlier frames.

    Modules that concern only runs are imported only if there is a run, to keep `gpumon status` fast.
    """

    def __init__(
        self, frame: Frame, earlier: Sequence[Frame] = (), live: bool = True, epochs: Epochs | None = None
    ) -> None:
        """Judge a frame.

        `earlier`: frames before this frame, oldest first. `live`: False if the source has stopped sampling. `epochs`:
        epochs computed from more boundaries than `earlier` contains; if None, they are computed from `earlier`.
        """
        self._frame = frame
        self._earlier = [other for other in earlier if other.number < frame.number]
        self._epochs: Epochs | None = None
        self._known_epochs = epochs
        self.runs = ranks_of(frame.runs)
        self.gpus: tuple[GpuStatus, ...] = gpu_statuses(frame, self.runs, None, live)
        """Status of each GPU, in the order of the frame's samples."""
        if self._earlier and needs_earlier_frames(self.gpus):
            activity = Activity()
            for added in (*self._earlier, frame):
                activity.add(added)
            self.gpus = gpu_statuses(frame, self.runs, activity, live)

    @property
    def epochs(self) -> Epochs:
        """The epochs of the runs in the frame."""
        if self._epochs is None:
            from gpumon.analysis.run_epochs import Epochs

            self._epochs = self._known_epochs or Epochs()
            for frame in self._earlier:
                self._epochs.add_boundaries(frame.boundaries)
            self._epochs.add(self._frame)
        return self._epochs

    def progress(self, ranks: Ranks) -> Progress:
        """Return the progress of one of the runs in the frame."""
        return progress(ranks, self.epochs, self._frame.time, self._frame.monotonic_ns)

    def findings(self) -> list[Finding]:
        """Return all findings, most severe first."""
        from gpumon.storage.history.counters import rates_between

        frame, names = self._frame, [metric.name for metric in THERMAL]
        rates = rates_between(self._earlier[-1], frame, names) if self._earlier else {}
        epochs, now = self.epochs if self.runs else None, frame.monotonic_ns
        loaded = self._loaded_links()
        return findings(self.gpus, self.runs, epochs, frame.time, rates=rates, loaded=loaded, monotonic_ns=now)

    def _loaded_links(self) -> dict[str, LinkUnderLoad]:
        """Return the state under load of each link that is currently slow, by UUID of the GPU."""
        slow = [status.sample.device.uuid for status in self.gpus if has_slow_link(status)]
        if not slow or not self._earlier:
            return {}
        from gpumon.diagnosis.link_under_load import link_series_from_frames, link_under_load

        frames, now = (*self._earlier, self._frame), self._frame.time
        return {uuid: link_under_load(link_series_from_frames(frames, uuid), now) for uuid in slow}


def needs_earlier_frames(statuses: Sequence[GpuStatus]) -> bool:
    """Return whether earlier frames could change the state or the load of a GPU.

    A single frame cannot distinguish an idle GPU from a pause, or a light load from a sample between two steps.
    """
    return any(
        status.state is GpuState.ALLOCATED or (status.state is GpuState.BUSY and status.load is not Load.BUSY)
        for status in statuses
    )


def earlier_frames(live: Live, newest: Frame) -> list[Frame]:
    """Return the frames before `newest` that can change the output of `gpumon status`, and no others.

    Two frames are needed for rates of counters, and one minute to distinguish idleness from a pause. Ten minutes are
    needed for idle times, for out-of-memory errors and other events of runs, and to see whether a slow link was under
    load.
    """
    ended_badly = any(run.memory.ooms > 0 or run.state in ENDED_BADLY for run in newest.runs)
    statuses = gpu_statuses(newest, ranks_of(newest.runs))
    if not ended_badly and not any(map(has_slow_link, statuses)):
        if not needs_earlier_frames(statuses):
            return live.since(max(0, newest.number - _RATE_FRAMES))
        count = min(LOOK_BACK, ceil(PAUSE / max(newest.interval, 0.01)) + _SPARE_FRAMES)
        minute = live.since(max(0, newest.number - count))
        if not any(status.state is GpuState.HELD for status in JudgedFrame(newest, minute).gpus):
            return minute
    return live.since(max(0, newest.number - LOOK_BACK))


def epochs_from_boundaries(live: Live, newest: Frame) -> Epochs | None:
    """Return the epochs computed from all boundaries in the ring, or None if no running run has epochs.

    All boundaries are used so that the remaining time is the same as in views that have read all frames.
    """
    if not any(run.state is RunState.RUNNING and run.epoch >= 0 for run in newest.runs):
        return None
    from gpumon.analysis.run_epochs import Epochs

    epochs = Epochs()
    epochs.add_boundaries(live.boundaries())
    return epochs
