"""State of the view: the frame on screen, histories and judgments derived from the frames, and the user's selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.logged_epochs import LoggedEpochs
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.analysis.run_epochs import EpochMarks, Epochs
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.gpu import not_judged
from gpumon.diagnosis.live_findings import LOOK_BACK
from gpumon.live import WAITING, LiveState
from gpumon.model import units
from gpumon.model.frame import Frame, Run, Sample
from gpumon.model.metrics import HOST_INDEX, Metric
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.process import Process
from gpumon.model.remedies import missing_reason
from gpumon.storage.history.buckets import DEFAULT_WINDOW, SHORT_WINDOWS, WINDOWS, ChartWindow, available_windows
from gpumon.storage.history.open import open_history
from gpumon.storage.history.query import HOST
from gpumon.storage.processes.in_memory import RecentSnapshots
from gpumon_tui.appearance import Appearance
from gpumon_tui.cache import Cache
from gpumon_tui.chart_window import ChartTime, ReturnTarget, chart_epochs
from gpumon_tui.data.events import EventHistory
from gpumon_tui.data.processes import ProcessFacts, frame_facts
from gpumon_tui.data.programs import OwnPrograms
from gpumon_tui.data.run_ledger import LedgerRuns
from gpumon_tui.feed import Player
from gpumon_tui.findings import FrameFindings
from gpumon_tui.freshness import NOW, freshness
from gpumon_tui.preferences import Preferences
from gpumon_tui.render.gpu_status import GpuLabel, SteadyStatuses, gpu_status

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunSummary


MESSAGE_SECONDS = 4.0
"""Seconds for which a message stays in the footer."""
MAX_STEP_SECONDS = 0.02
"""Maximum seconds per step of loading history, so that keys stay responsive."""
RECENT_FRAMES = 120
"""Number of frames that a feed buffers with their processes; some minutes."""
MIN_OVERVIEW_WINDOW = WINDOWS[0].seconds
"""Minimum seconds shown in the overview; single samples are left to the charts."""
WINDOW = "window"
"""Name under which the chosen window is stored in the preferences."""


class RecentActivity:
    """GPU activity of the newest frames, used while older frames are still loading."""

    def __init__(self) -> None:
        self._activity: Activity | None = None

    def add(self, frames: Sequence[Frame]) -> None:
        """Add the newest of these frames, up to the one on screen."""
        self._activity = self._activity or Activity()
        for frame in frames[-LOOK_BACK:]:
            self._activity.add(frame)

    def current(self, complete: Activity, *, is_loading: bool) -> Activity:
        """Return the activity of all frames once they are loaded; before that, the activity of the last minutes."""
        if not is_loading:
            self._activity = None
        return self._activity or complete


class View:
    """Everything that widgets draw from; independent of the widgets."""

    def __init__(self, interval: float = 1.0) -> None:
        self.appearance = Appearance()
        """Conversion of pictures to cells of this terminal; pages do not depend on it."""
        self.preferences = Preferences()
        """Choices that are kept between sessions: `set(name, value)`, `get(name, default)`."""
        self.message = ""
        """Message in the footer, shown for some seconds."""
        self._message_until = 0.0
        self.past_runs: Sequence[RunSummary] = ()
        """Runs of the ledger, loaded only on a machine without a GPU."""
        self.ledger_runs = LedgerRuns()
        """Runs recorded in the ledgers."""
        self.events = EventHistory(self.ledger_runs.queries)
        """Events from the log and since the view started."""
        self.has_simulation = False
        """Whether a key switches to a simulation."""
        self.selected_run = ""
        """Id of the run under the cursor of the table."""
        self.selected_process: tuple[int, str] | None = None
        """PID and device of the process under the cursor of the table."""
        self.chart_time = ChartTime()
        """Time window of the charts; everything else shows the frame on screen."""
        self.may_show_past = False
        """Whether the current page has charts that can show the past."""
        self.return_target: ReturnTarget | None = None
        """Where Escape leads from a chart that another page opened; None for a chart opened directly."""
        self.recent_frames: Callable[[], Sequence[Frame]] = list
        """Returns the newest full frames; older frames have no processes."""
        self.player: Player | None = None
        """Controls of the recording that this process plays; None for other sources."""
        self.history_path = ""
        """Path of the history file; empty if there is none."""
        self.is_readonly = False
        """Whether the view must not affect other processes: no signals are sent."""
        self.programs = OwnPrograms()
        """Script names of this user's own processes."""
        self._facts: Cache[ProcessFacts] = Cache()
        self._interval = interval
        self.forget()

    def forget(self) -> None:
        """Reset for frames of another source. The user's choices are kept, except for the time shown."""
        self.chart_time.follow_now()
        self.events.forget()
        self.history = open_history()
        self.epochs = Epochs()
        self.logged = LoggedEpochs()
        self.activity = Activity()
        self.recent_activity = RecentActivity()
        self.recent_snapshots = RecentSnapshots()
        """Processes before the frames of `recent_frames`, used if there is no history file."""
        self.origin, self.driver, self.hostname = Origin(""), Driver(), ""
        self.state = LiveState(False, WAITING, self._interval)
        self.frame: Frame | None = None
        self.freshness = freshness(self.state, self.origin, None, False, 0.0)
        self.paused = self.is_loading = False
        """`is_loading` is True while history is still being loaded."""
        self._ranks: list[Ranks] = []
        self._ranks_frame: Frame | None = None
        self._has_host = False
        self._host_frame: Frame | None = None
        self._statuses: tuple[GpuStatus, ...] = ()
        self._status_inputs: tuple[Frame | None, bool, bool] = None, False, False
        self._steady = SteadyStatuses()
        self._countable: Sequence[GpuStatus] = ()
        self._counted_statuses: tuple[GpuStatus, ...] = ()
        self.findings = FrameFindings(self)
        self._subject: str | None = None

    def show_message(self, text: str, now: float | None = None) -> None:
        """Show a message in the footer for some seconds."""
        self.message, self._message_until = text, (monotonic() if now is None else now) + MESSAGE_SECONDS

    def expire_message(self, now: float) -> bool:
        """Remove an expired message from the footer; return whether one was removed."""
        is_expired = bool(self.message) and now > self._message_until
        self.message = "" if is_expired else self.message
        return is_expired

    def add(self, frame: Frame) -> None:
        """Add a frame to the histories."""
        self.history.add(frame)
        self.epochs.add(frame)
        self.logged.add(frame)
        self.activity.add(frame)
        if not self.history_path:  # with a history file, a daemon stores them
            self.recent_snapshots.add(frame)

    def run_on(self, sample: Sample) -> Run | None:
        """Return the run of a GPU in the frame on screen, or its last known state if the frame does not contain it."""
        if not sample.run:
            return None
        runs = self.frame.runs if self.frame else ()
        return next((run for run in runs if run.key == sample.run), None) or self.epochs.run(sample.run)

    @property
    def recording_span(self) -> tuple[float, float]:
        """Start and end of the recording being played (s since 1970); NaN where unknown."""
        player, first_seen = self.player, self.events.since or NAN
        return (player.begin if player and is_known(player.begin) else first_seen), player.end if player else NAN

    @property
    def plays_recording(self) -> bool:
        """Whether this process plays a recording."""
        return self.player is not None and self.player.can_pause

    @property
    def can_seek(self) -> bool:
        """Whether this process plays a recording that supports seeking; a log can only be played forward."""
        return self.player is not None and self.player.can_seek

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Samples of the frame on screen."""
        return self.frame.samples if self.frame else ()

    @property
    def processes(self) -> tuple[Process, ...]:
        """Processes of the frame on screen."""
        return self.frame.processes if self.frame else ()

    @property
    def has_processes(self) -> bool:
        """Whether the source reports processes and runs; a log of nvidia-smi does not."""
        return Capability.PROCESSES in self.origin.capabilities

    @property
    def has_holders(self) -> bool:
        """Whether the users of a GPU can be known."""
        return self.has_processes or bool(self.ranks or self.processes)

    @property
    def is_recorded(self) -> bool:
        """Whether a daemon records the runs on screen; it does not for a simulation or a recording."""
        return Capability.LIVE in self.origin.capabilities

    @property
    def can_signal(self) -> bool:
        """Whether signals can be sent to the processes on screen. False for a recording or a simulation, because its
        processes do not run on this machine.
        """
        return self.is_recorded and not self.is_readonly

    def process_facts(self) -> ProcessFacts:
        """Return facts for the rows of processes that the driver does not report."""

        def compute() -> ProcessFacts:
            is_live = self.is_recorded
            idle_statuses = [status for status in self.statuses if status.state is GpuState.HELD]
            idle = {status.sample.device.uuid: status.since for status in idle_statuses if status.since}
            if not is_live:  # a PID of a recording or a simulation belongs to another process on this machine
                return frame_facts(self.samples, self.runs, self.now, idle=idle)
            own_user, script = self.programs.user, self.programs.name
            return frame_facts(self.samples, self.runs, self.now, idle=idle, me=own_user, script=script)

        return self._facts.get(0, (self.frame, self.age > 0, self.is_loading), compute)

    @property
    def statuses(self) -> tuple[GpuStatus, ...]:
        """Status of each GPU in the frame on screen."""
        frame, live = self.frame, not self.age
        if frame is None:
            return ()
        if self._status_inputs != (frame, live, self.is_loading):
            activity = self.recent_activity.current(self.activity, is_loading=self.is_loading)
            self._statuses = gpu_statuses(frame, self.ranks, activity, live)
            self._status_inputs = frame, live, self.is_loading
        return self._statuses

    @property
    def countable_statuses(self) -> Sequence[GpuStatus]:
        """GPU statuses as counted by the header: short-lived changes are delayed while live data arrive, to avoid
        flicker.
        """
        if self.paused or self.freshness.edge != NOW:
            return self.statuses
        if self._counted_statuses is not self.statuses:
            self._counted_statuses = self.statuses
            self._countable = self._steady.update(self.statuses, self.now)
        return self._countable

    def rate(self, uuid: str, metric: str) -> float:
        """Return the rate of a GPU counter at the frame on screen, or NaN while that frame is not yet processed."""
        return self.history.last(uuid, metric, self.now)

    def label(self, status: GpuStatus) -> GpuLabel:
        """Return the displayed state of a GPU."""
        return gpu_status(status, self.history, self.freshness.frame_age, self.now)

    @property
    def has_full_history(self) -> bool:
        """Whether the source's history is completely loaded; only then does a missing value mean a gap."""
        return self.frame is not None and not self.is_loading

    def unknown_values(self) -> list[str]:
        """Return the names of values that are unknown for every GPU on screen and thus cannot produce findings."""
        return not_judged(self.samples, tells_processes=self.has_processes)

    @property
    def selected(self) -> frozenset[str]:
        """UUID of the selected GPU and id of the selected run."""
        return frozenset((self.subject, self.selected_run)) - {""}

    @property
    def shows_past(self) -> bool:
        """Whether the charts show the past because the user moved the window."""
        return self.may_show_past and self.chart_time.is_past

    @property
    def age(self) -> float:
        """Seconds since the data on screen were last current; 0 while newer data arrive."""
        return self.freshness.age

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs of the frame on screen."""
        return self.frame.runs if self.frame else ()

    @property
    def running_text(self) -> str:
        """Word for active runs; outdated frames do not show whether a run is still active."""
        return "last seen running" if self.age > 0 else "running at the end" if self.origin.ended else "running"

    @property
    def no_runs_text(self) -> str:
        """Text for an empty list of runs; outdated frames do not show whether one has started since."""
        if self.age > 0:
            return f"unknown since {units.clock(self.now)}"
        return "no training reports epochs now: see gpumon.run"

    @property
    def ranks(self) -> list[Ranks]:
        """Runs of the frame on screen with all ranks of a run joined; active runs first."""
        frame = self.frame
        if frame is not self._ranks_frame:
            self._ranks, self._ranks_frame = ranks_of(self.runs), frame
        return self._ranks

    @property
    def now(self) -> float:
        """Time of the frame on screen (s since 1970); 0 without a frame."""
        return self.frame.time if self.frame else 0.0

    @property
    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC time of the frame on screen (ns); 0 without a frame."""
        return self.frame.monotonic_ns if self.frame else 0

    @property
    def interval(self) -> float:
        """Seconds between samples by their own timestamps, independent of the playback speed of a recording."""
        return self.frame.interval if self.frame else self.state.interval

    def host(self, metric: str) -> float:
        """Return a host metric of the frame on screen."""
        return self.frame.host[HOST_INDEX[metric]] if self.frame else NAN

    @property
    def subject(self) -> str:
        """UUID of the device whose history is shown, or `HOST`."""
        subjects = self.subjects
        return self._subject if self._subject in subjects else subjects[0]

    @property
    def chosen_subject(self) -> str | None:
        """Device chosen by the user; None if none was chosen."""
        return self._subject

    def select(self, subject: str | None) -> None:
        """Show the history of a device; None selects the first one."""
        self._subject = subject

    def step_subject(self, step: int) -> None:
        """Select the next or previous GPU; the host comes after the last GPU."""
        subjects = self.subjects
        self.select(subjects[(subjects.index(self.subject) + step) % len(subjects)])

    @property
    def window(self) -> int:
        """Length of the charts' window in seconds: the user's choice, else the length of the history, up to the
        choice of the last session.
        """
        if self.chart_time.length:
            length = self.chart_time.length  # may exceed the history after a change of source
            return length if self.chart_time.is_past else min(length, self._windows[-1].seconds)
        available, longest = self.now - self.history.begin, self.chart_time.previous_length or DEFAULT_WINDOW.seconds
        needed = available if is_known(available) else 0.0
        return min(
            longest, next((chart_window.seconds for chart_window in WINDOWS if chart_window.seconds >= needed), longest)
        )

    @property
    def _windows(self) -> Sequence[ChartWindow]:
        begin, end = self.recording_span
        return available_windows(self.now - self.history.begin, end - begin)

    @property
    def overview_window(self) -> int:
        """Seconds shown by all parts of the overview."""
        return max(self.window, MIN_OVERVIEW_WINDOW)

    def zoom(self, step: int, shortest: int = 0) -> None:
        """Choose a shorter or longer window than the current one (or `shortest`, if longer) and store it; show a
        message if there is none.
        """
        previous = max(self.window, shortest)
        self.chart_time.zoom(step, previous, self._windows, self.history.begin, self.now)
        if self.window == previous:
            is_short = step > 0 and previous < WINDOWS[-1].seconds
            self.show_message(
                "no shorter window" if step < 0 else f"no longer window{': history begins here' * is_short}"
            )
        self.preferences.set(WINDOW, str(self.chart_time.length))

    def step_window(self, step: int) -> None:
        """Choose the next longer or shorter window among those with a button and the longest one, wrapping around."""
        windows = self._windows
        lengths = [length.seconds for length in windows if length.has_button or length is windows[-1]]
        further = [length for length in lengths if length > self.window] if step > 0 else [
            length for length in reversed(lengths) if length < self.window
        ]  # fmt: skip
        if not further and step > 0 and windows[-1].seconds < WINDOWS[-1].seconds:
            self.show_message("no longer window: history begins here")
        self.chart_time.set_length(
            (further or lengths[:: 1 if step > 0 else -1])[0], self.window, self.history.begin, self.now
        )
        self.preferences.set(WINDOW, str(self.chart_time.length))

    def restore_window(self) -> None:
        """Start with the window of the last session, as far as there is history to fill it."""
        stored = self.preferences.get(WINDOW)
        self.chart_time.previous_length = next(
            (window.seconds for window in (*SHORT_WINDOWS, *WINDOWS) if str(window.seconds) == stored), 0
        )

    def pan(self, halves: float) -> None:
        """Move the window by half windows."""
        self.chart_time.pan(halves, self.window, self.history.begin, self.now)

    def point(self, time: float) -> None:
        """Set the cursor of the charts to a time (s since 1970), and show a window that contains it."""
        self.chart_time.set_cursor(time, self.window, self.history.begin, self.now)

    def chart_epochs(self) -> tuple[EpochMarks, str]:
        """Return the epochs of the subject, or the epochs of the run that the chart was opened for if frames no
        longer contain them.
        """
        sample, target = self.sample, self.return_target
        marks, name = chart_epochs(self.epochs, self.subject, self.selected_run, sample.run if sample else "")
        if target is None or self.subject not in target.devices or any(mark.run == target.run for mark in marks.marks):
            return marks, name
        return EpochMarks(target.marks, [], []), target.label

    @property
    def subjects(self) -> list[str]:
        """Subjects whose history can be shown: UUIDs of the devices, and `HOST` if host metrics are available."""
        gpus = [sample.device.uuid for sample in self.samples]
        return [*gpus, HOST] if self._has_host_metrics() or not gpus else gpus

    def _has_host_metrics(self) -> bool:
        """Whether any frame contained host metrics; a log of nvidia-smi does not."""
        if not self._has_host and self.frame is not self._host_frame:
            self._host_frame = self.frame
            self._has_host = self.frame is not None and any(map(is_known, self.frame.host))
        return self._has_host

    def limit_of(self, metric: Metric) -> float:
        """Return the full-scale value of a metric for the subject, or NaN."""
        if not metric.limit:
            return NAN
        if self.subject == HOST:
            return self.host(metric.limit)
        sample = self.sample
        return sample.value(metric.limit) if sample else NAN

    @property
    def sample(self) -> Sample | None:
        """Sample of the device whose history is shown; None for the host."""
        subject = self.subject
        return next((sample for sample in self.samples if sample.device.uuid == subject), None)

    def why_missing(self, metric: Metric) -> str:
        """Return why the subject has no values of a metric, as displayed; empty if the reason is unknown."""
        sample = self.sample
        if sample is None or metric.name not in sample.device.missing:
            return ""
        return f"not available: {missing_reason(sample.device, metric.name)}"
