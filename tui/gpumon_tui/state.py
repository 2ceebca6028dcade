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
from gpumon.live import WAITING, LiveState
from gpumon.model import units
from gpumon.model.frame import Frame, Run, Sample
from gpumon.model.metrics import HOST_INDEX, Metric, why_missing
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.process import Process
from gpumon.storage.history.buckets import DEFAULT_WINDOW, SHORT_WINDOWS, WINDOWS, ChartWindow, available_windows
from gpumon.storage.history.open import open_history
from gpumon.storage.history.query import HOST
from gpumon.storage.processes.in_memory import RecentSnapshots
from gpumon_tui.data.events import EventHistory
from gpumon_tui.data.process_facts import ProcessFacts, frame_facts
from gpumon_tui.data.programs import OwnPrograms
from gpumon_tui.data.run_ledger import LedgerRuns
from gpumon_tui.feed import Player
from gpumon_tui.findings import ToldFindings
from gpumon_tui.freshness import NOW, freshness
from gpumon_tui.look import TerminalLook
from gpumon_tui.memo import Memo
from gpumon_tui.preferences import Remembered
from gpumon_tui.render.gpu_status import GpuLabel, SteadyStatuses, gpu_status
from gpumon_tui.shown_epochs import told_epochs
from gpumon_tui.textual_private.painter import Painter
from gpumon_tui.time_window import LastMinutes, ShownTime
from gpumon_tui.way_back import WayBack

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunSummary


SAID_FOR = 4.0
"""Seconds for which a message stays in the footer."""
TAKES = 0.02
"""Maximum seconds per step of loading history, so that keys stay responsive."""
RECENT = 120
"""Number of frames that a feed buffers with their processes; some minutes."""
GLANCE = WINDOWS[0].seconds
"""Minimum seconds shown in the overview; single samples are left to the charts."""
WINDOW = "window"
"""Name under which the chosen window is stored in the preferences."""


class View:
    """Everything that widgets draw from; independent of the widgets."""

    def __init__(self, interval: float = 1.0) -> None:
        self.look = TerminalLook()
        """Conversion of pictures to cells of this terminal; pages do not depend on it."""
        self.painter = Painter()
        """Writes changed cells to the terminal; pages do not depend on it."""
        self.remembered = Remembered()
        """Choices that are kept between sessions: `keep(name, value)`, `get(name, default)`."""
        self.said = ""
        """Message in the footer, shown for some seconds."""
        self._said_until = 0.0
        self.past: Sequence[RunSummary] = ()
        """Runs of the ledger, loaded only on a machine without a GPU."""
        self.kept = LedgerRuns()
        """Runs recorded in the ledgers."""
        self.happened = EventHistory(self.kept.asked)
        """Events from the log and since the view started."""
        self.has_simulation = False
        """Whether a key switches to a simulation."""
        self.selected_run = ""
        """Id of the run under the cursor of the table."""
        self.selected_process: tuple[int, str] | None = None
        """PID and device of the process under the cursor of the table."""
        self.shown = ShownTime()
        """Time window of the charts; everything else shows the frame on screen."""
        self.may_show_past = False
        """Whether the current page has charts that can show the past."""
        self.way_back: WayBack | None = None
        """Where Escape leads from a chart that another page opened; None for a chart opened directly."""
        self.recent: Callable[[], Sequence[Frame]] = list
        """Returns the newest full frames; older frames have no processes."""
        self.player: Player | None = None
        """Controls of the recording that this process plays; None for other sources."""
        self.history_path = ""
        """Path of the history file; empty if there is none."""
        self.is_readonly = False
        """Whether the view must not affect other processes: no signals are sent."""
        self.programs = OwnPrograms()
        """Script names of this user's own processes."""
        self._facts: Memo[ProcessFacts] = Memo()
        self._interval = interval
        self.forget()

    def forget(self) -> None:
        """Reset for frames of another source. The user's choices are kept, except for the time shown."""
        self.shown.to_now()
        self.happened.forget()
        self.history = open_history()
        self.epochs = Epochs()
        self.logged = LoggedEpochs()
        self.activity = Activity()
        self.last_minutes = LastMinutes()
        self.looks = RecentSnapshots()
        """Processes before the frames of `recent`, used if there is no history file."""
        self.origin, self.driver, self.hostname = Origin(""), Driver(), ""
        self.state = LiveState(False, WAITING, self._interval)
        self.frame: Frame | None = None
        self.freshness = freshness(self.state, self.origin, None, False, 0.0)
        self.paused = self.filling = False
        """`filling` is True while history is still being loaded."""
        self._joined: list[Ranks] = []
        self._joined_of: Frame | None = None
        self._knows_host = False
        self._host_of: Frame | None = None
        self._judged: tuple[GpuStatus, ...] = ()
        self._judged_of: tuple[Frame | None, bool, bool] = None, False, False
        self._steady = SteadyStatuses()
        self._counted: Sequence[GpuStatus] = ()
        self._counted_of: tuple[GpuStatus, ...] = ()
        self.found = ToldFindings(self)
        self._subject: str | None = None

    def say(self, text: str, now: float | None = None) -> None:
        """Show a message in the footer for some seconds."""
        self.said, self._said_until = text, (monotonic() if now is None else now) + SAID_FOR

    def forget_said(self, now: float) -> bool:
        """Remove an expired message from the footer; return whether one was removed."""
        is_over = bool(self.said) and now > self._said_until
        self.said = "" if is_over else self.said
        return is_over

    def add(self, frame: Frame) -> None:
        """Add a frame to the histories."""
        self.history.add(frame)
        self.epochs.add(frame)
        self.logged.add(frame)
        self.activity.add(frame)
        if not self.history_path:  # with a history file, a daemon stores them
            self.looks.add(frame)

    def run_on(self, sample: Sample) -> Run | None:
        """Return the run of a GPU in the frame on screen, or its last known state if the frame does not contain it."""
        if not sample.run:
            return None
        runs = self.frame.runs if self.frame else ()
        return next((run for run in runs if run.key == sample.run), None) or self.epochs.run(sample.run)

    @property
    def played(self) -> tuple[float, float]:
        """Start and end of the recording being played (s since 1970); NaN where unknown."""
        player, seen = self.player, self.happened.since or NAN
        return (player.begin if player and is_known(player.begin) else seen), player.end if player else NAN

    @property
    def plays(self) -> bool:
        """Whether this process plays a recording."""
        return self.player is not None and self.player.can_pause

    @property
    def may_seek(self) -> bool:
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
    def tells_processes(self) -> bool:
        """Whether the source reports processes and runs; a log of nvidia-smi does not."""
        return Capability.PROCESSES in self.origin.capabilities

    @property
    def tells_holders(self) -> bool:
        """Whether the users of a GPU can be known."""
        return self.tells_processes or bool(self.ranks or self.processes)

    @property
    def is_recorded(self) -> bool:
        """Whether a daemon records the runs on screen; it does not for a simulation or a recording."""
        return Capability.LIVE in self.origin.capabilities

    @property
    def can_signal(self) -> bool:
        """Whether signals can be sent to processes on screen; the processes of a recording or a simulation do not
        run here.
        """
        return self.is_recorded and not self.is_readonly

    def process_facts(self) -> ProcessFacts:
        """Return facts for the rows of processes that the driver does not report."""

        def found() -> ProcessFacts:
            is_here = self.is_recorded
            held = [status for status in self.statuses if status.state is GpuState.HELD]
            idle = {status.sample.device.uuid: status.since for status in held if status.since}
            if not is_here:  # a PID of a recording or a simulation belongs to another process on this machine
                return frame_facts(self.samples, self.runs, self.now, idle=idle)
            me, script = self.programs.user, self.programs.name
            return frame_facts(self.samples, self.runs, self.now, idle=idle, me=me, script=script)

        return self._facts.get(0, (self.frame, self.age > 0, self.filling), found)

    @property
    def statuses(self) -> tuple[GpuStatus, ...]:
        """Status of each GPU in the frame on screen."""
        frame, live = self.frame, not self.age
        if frame is None:
            return ()
        if self._judged_of != (frame, live, self.filling):
            activity = self.last_minutes.judged_by(self.activity, filling=self.filling)
            self._judged = gpu_statuses(frame, self.ranks, activity, live)
            self._judged_of = frame, live, self.filling
        return self._judged

    @property
    def countable_statuses(self) -> Sequence[GpuStatus]:
        """GPU statuses as counted by the header: short-lived changes are delayed while live data arrive, to avoid
        flicker.
        """
        if self.paused or self.freshness.edge != NOW:
            return self.statuses
        if self._counted_of is not self.statuses:
            self._counted_of = self.statuses
            self._counted = self._steady.update(self.statuses, self.now)
        return self._counted

    def rate(self, uuid: str, metric: str) -> float:
        """Return the rate of a GPU counter at the frame on screen, or NaN while that frame is not yet processed."""
        return self.history.last(uuid, metric, self.now)

    def label(self, status: GpuStatus) -> GpuLabel:
        """Return the displayed state of a GPU."""
        return gpu_status(status, self.history, self.freshness.frame_age, self.now)

    @property
    def has_read(self) -> bool:
        """Whether the source's history is completely loaded; only then does a missing value mean a gap."""
        return self.frame is not None and not self.filling

    def not_judged(self) -> list[str]:
        """Return what is unknown for every GPU on screen and thus cannot produce findings."""
        return not_judged(self.samples, tells_processes=self.tells_processes)

    @property
    def selected(self) -> frozenset[str]:
        """UUID of the selected GPU and id of the selected run."""
        return frozenset((self.subject, self.selected_run)) - {""}

    @property
    def shows_past(self) -> bool:
        """Whether the charts show the past because the user moved the window."""
        return self.may_show_past and self.shown.is_past

    @property
    def age(self) -> float:
        """Seconds since the data on screen were last current; 0 while newer data arrive."""
        return self.freshness.age

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs of the frame on screen."""
        return self.frame.runs if self.frame else ()

    @property
    def running(self) -> str:
        """Word for active runs; outdated frames do not show whether a run is still active."""
        return "last seen running" if self.age > 0 else "running at the end" if self.origin.ended else "running"

    @property
    def no_runs(self) -> str:
        """Text for an empty list of runs; outdated frames do not show whether one has started since."""
        if self.age > 0:
            return f"unknown since {units.clock(self.now)}"
        return "no training reports epochs now: see gpumon.run"

    @property
    def ranks(self) -> list[Ranks]:
        """Runs of the frame on screen with all ranks of a run joined; active runs first."""
        frame = self.frame
        if frame is not self._joined_of:
            self._joined, self._joined_of = ranks_of(self.runs), frame
        return self._joined

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
        if self.shown.chosen:
            chosen = self.shown.chosen  # may exceed the history after a change of source
            return chosen if self.shown.is_past else min(chosen, self._windows[-1].seconds)
        known, longest = self.now - self.history.begin, self.shown.chosen_before or DEFAULT_WINDOW.seconds
        wanted = known if is_known(known) else 0.0
        return min(longest, next((one.seconds for one in WINDOWS if one.seconds >= wanted), longest))

    @property
    def _windows(self) -> Sequence[ChartWindow]:
        begin, end = self.played
        return available_windows(self.now - self.history.begin, end - begin)

    @property
    def glance(self) -> int:
        """Seconds shown by all parts of the overview."""
        return max(self.window, GLANCE)

    def zoom(self, step: int, shortest: int = 0) -> None:
        """Choose a shorter or longer window than the current one (or `shortest`, if longer) and store it; show a
        message if there is none.
        """
        before = max(self.window, shortest)
        self.shown.zoom(step, before, self._windows, self.history.begin, self.now)
        if self.window == before:
            is_short = step > 0 and before < WINDOWS[-1].seconds
            self.say("no shorter window" if step < 0 else f"no longer window{': history begins here' * is_short}")
        self.remembered.keep(WINDOW, str(self.shown.chosen))

    def step_window(self, step: int) -> None:
        """Choose the next longer or shorter window among those with a button and the longest one, wrapping around."""
        windows = self._windows
        known = [one.seconds for one in windows if one.has_button or one is windows[-1]]
        beyond = [one for one in known if one > self.window] if step > 0 else [
            one for one in reversed(known) if one < self.window
        ]  # fmt: skip
        if not beyond and step > 0 and windows[-1].seconds < WINDOWS[-1].seconds:
            self.say("no longer window: history begins here")
        self.shown.take((beyond or known[:: 1 if step > 0 else -1])[0], self.window, self.history.begin, self.now)
        self.remembered.keep(WINDOW, str(self.shown.chosen))

    def begin_as_before(self) -> None:
        """Start with the window of the last session, as far as there is history to fill it."""
        kept = self.remembered.get(WINDOW)
        self.shown.chosen_before = next(
            (one.seconds for one in (*SHORT_WINDOWS, *WINDOWS) if str(one.seconds) == kept), 0
        )

    def pan(self, halves: float) -> None:
        """Move the window by half windows."""
        self.shown.pan(halves, self.window, self.history.begin, self.now)

    def point(self, time: float) -> None:
        """Set the cursor of the charts to a time (s since 1970), and show a window that contains it."""
        self.shown.point(time, self.window, self.history.begin, self.now)

    def epochs_drawn(self) -> tuple[EpochMarks, str]:
        """Return the result of `told_epochs`, or the epochs of the run that the chart was opened for if frames no
        longer contain them.
        """
        sample, led = self.sample, self.way_back
        drawn, name = told_epochs(self.epochs, self.subject, self.selected_run, sample.run if sample else "")
        if led is None or self.subject not in led.devices or any(mark.run == led.run for mark in drawn.marks):
            return drawn, name
        return EpochMarks(led.marks, [], []), led.what

    @property
    def subjects(self) -> list[str]:
        """Subjects whose history can be shown: UUIDs of the devices, and `HOST` if host metrics are known."""
        gpus = [sample.device.uuid for sample in self.samples]
        return [*gpus, HOST] if self._tells_host() or not gpus else gpus

    def _tells_host(self) -> bool:
        """Whether any frame contained host metrics; a log of nvidia-smi does not."""
        if not self._knows_host and self.frame is not self._host_of:
            self._host_of = self.frame
            self._knows_host = self.frame is not None and any(map(is_known, self.frame.host))
        return self._knows_host

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
        reason = sample.device.missing.get(metric.name) if sample else None
        return f"not available: {why_missing(metric.name, reason)}" if reason is not None else ""
