"""The state of the view: the frame on screen, and the selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from gpumon.analysis.epochs import EpochMarks, Epochs
from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.logged_epochs import LoggedEpochs
from gpumon.analysis.ranks import Ranks, ranks_of
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
from gpumon_tui.data.events import Happened
from gpumon_tui.data.process_facts import ProcessFacts, facts_of
from gpumon_tui.data.programs import OwnPrograms
from gpumon_tui.data.run_ledger import KeptRuns
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
"""Seconds for which a line for the user stands at the foot."""
TAKES = 0.02
"""Seconds for which reading history may hold up the keys."""
RECENT = 120
"""Frames, some minutes, that a feed has with their processes."""
GLANCE = WINDOWS[0].seconds
"""Seconds that the overview shows at least: single samples are for charts."""
WINDOW = "window"
"""Name of the choice that is kept for the next time."""


class View:
    """Everything the widgets draw from; it knows no widget."""

    def __init__(self, interval: float = 1.0) -> None:
        self.look = TerminalLook()
        """The way in which pictures become cells of this terminal; pages need not know it."""
        self.painter = Painter()
        """The way of changed cells to the terminal; pages need not know it."""
        self.remembered = Remembered()
        """Choices that outlast the view: `keep(name, value)`, `get(name, default)`."""
        self.said = ""
        """A line for the user at the foot, for some seconds."""
        self._said_until = 0.0
        self.past: Sequence[RunSummary] = ()
        """Runs of the ledger, where that is asked for: on a machine without a GPU."""
        self.kept = KeptRuns()
        """Runs as the ledgers tell of them."""
        self.happened = Happened(self.kept.asked)
        """Events of the log, and since the view began."""
        self.has_simulation = False
        """Whether a key shows a simulation in the place of this machine."""
        self.selected_run = ""
        """Id of the run under the cursor of the table."""
        self.selected_process: tuple[int, str] | None = None
        """PID and device of the process under the cursor of the table."""
        self.shown = ShownTime()
        """The time that the charts show; everything else is of the frame on screen."""
        self.may_show_past = False
        """Whether the page on screen is one of such charts."""
        self.way_back: WayBack | None = None
        """Where Escape leads to from a chart that another page has opened for a run."""
        self.recent: Callable[[], Sequence[Frame]] = list
        """Gives the newest full frames: no others have processes."""
        self.player: Player | None = None
        """The controls of a recording that this process plays."""
        self.history_path = ""
        """The file of kept history; empty where there is none."""
        self.is_readonly = False
        """Whether nothing outside is changed from here: no signal is sent to a process."""
        self.programs = OwnPrograms()
        """Scripts of this user's own processes."""
        self._facts: Memo[ProcessFacts] = Memo()
        self._interval = interval
        self.forget()

    def forget(self) -> None:
        """Begin anew, as with frames of another source; what the user chose to see stays, but for its time."""
        self.shown.to_now()
        self.happened.forget()
        self.history = open_history()
        self.epochs = Epochs()
        self.logged = LoggedEpochs()
        self.activity = Activity()
        self.last_minutes = LastMinutes()
        self.looks = RecentSnapshots()
        """Processes of the time before `recent`, where there is no such file."""
        self.origin, self.driver, self.hostname = Origin(""), Driver(), ""
        self.state = LiveState(False, WAITING, self._interval)
        self.frame: Frame | None = None
        self.freshness = freshness(self.state, self.origin, None, False, 0.0)
        self.paused = self.filling = False
        """While `filling`, the history is still being taken in."""
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
        """Tell the user something at the foot, such as what a key did, for some seconds."""
        self.said, self._said_until = text, (monotonic() if now is None else now) + SAID_FOR

    def forget_said(self, now: float) -> bool:
        """Leave the foot to the keys again once what was said has stood there for long enough; whether that is now."""
        is_over = bool(self.said) and now > self._said_until
        self.said = "" if is_over else self.said
        return is_over

    def add(self, frame: Frame) -> None:
        """Take a frame into what is known of the time before the one on screen."""
        self.history.add(frame)
        self.epochs.add(frame)
        self.logged.add(frame)
        self.activity.add(frame)
        if not self.history_path:  # else a daemon keeps them
            self.looks.add(frame)

    def run_on(self, sample: Sample) -> Run | None:
        """The run of a GPU as the frame on screen has it; the one known last where that frame tells of none."""
        if not sample.run:
            return None
        runs = self.frame.runs if self.frame else ()
        return next((run for run in runs if run.key == sample.run), None) or self.epochs.run(sample.run)

    @property
    def played(self) -> tuple[float, float]:
        """The first and the last moment of the recording that is played (s since 1970), as far as they are known."""
        player, seen = self.player, self.happened.since or NAN
        return (player.begin if player and is_known(player.begin) else seen), player.end if player else NAN

    @property
    def plays(self) -> bool:
        """Whether a recording plays in this process."""
        return self.player is not None and self.player.can_pause

    @property
    def may_seek(self) -> bool:
        """Whether a recording plays here that can be taken elsewhere: a log only plays on, and nothing live does."""
        return self.player is not None and self.player.can_seek

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Of the frame on screen."""
        return self.frame.samples if self.frame else ()

    @property
    def processes(self) -> tuple[Process, ...]:
        """Of the frame on screen."""
        return self.frame.processes if self.frame else ()

    @property
    def tells_processes(self) -> bool:
        """Whether the source knows processes and runs at all; a log of nvidia-smi does not."""
        return Capability.PROCESSES in self.origin.capabilities

    @property
    def tells_holders(self) -> bool:
        """Whether anything can be known of who has a GPU."""
        return self.tells_processes or bool(self.ranks or self.processes)

    @property
    def is_recorded(self) -> bool:
        """Whether a daemon keeps runs of what is on screen: of a simulation and of a recording it does not."""
        return Capability.LIVE in self.origin.capabilities

    @property
    def can_signal(self) -> bool:
        """Whether processes on screen can be sent a signal: those of a recording or a simulation are not here."""
        return self.is_recorded and not self.is_readonly

    def process_facts(self) -> ProcessFacts:
        """Return what the rows of processes say besides what the driver tells of each."""

        def found() -> ProcessFacts:
            is_here = self.is_recorded
            held = [status for status in self.statuses if status.state is GpuState.HELD]
            idle = {status.sample.device.uuid: status.since for status in held if status.since}
            if not is_here:  # a pid of a recording or a simulation is another process on this machine
                return facts_of(self.samples, self.runs, self.now, idle=idle)
            me, script = self.programs.user, self.programs.name
            return facts_of(self.samples, self.runs, self.now, idle=idle, me=me, script=script)

        return self._facts.get(0, (self.frame, self.age > 0, self.filling), found)

    @property
    def statuses(self) -> tuple[GpuStatus, ...]:
        """The GPUs of the frame on screen, judged."""
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
        """The GPUs as the header counts them: what changes within a second is held for some, while frames come."""
        if self.paused or self.freshness.edge != NOW:
            return self.statuses
        if self._counted_of is not self.statuses:
            self._counted_of = self.statuses
            self._counted = self._steady.take(self.statuses, self.now)
        return self._counted

    def rate(self, uuid: str, metric: str) -> float:
        """Return the rate of a counter of a GPU at the frame on screen, or NaN while that frame is not taken in."""
        return self.history.last(uuid, metric, self.now)

    def label(self, status: GpuStatus) -> GpuLabel:
        """Return the state of a GPU as it is shown with the frame on screen."""
        return gpu_status(status, self.history, self.freshness.frame_age, self.now)

    @property
    def has_read(self) -> bool:
        """Whether all that the source has of before is known here: only then is a moment without values a gap."""
        return self.frame is not None and not self.filling

    def not_judged(self) -> list[str]:
        """Return what is not known of any GPU on screen, so that no finding about it can be."""
        return not_judged(self.samples, tells_processes=self.tells_processes)

    @property
    def selected(self) -> frozenset[str]:
        """The UUID of the selected GPU and the id of the selected run."""
        return frozenset((self.subject, self.selected_run)) - {""}

    @property
    def shows_past(self) -> bool:
        """Whether what is on screen is not of now, because somebody looks back."""
        return self.may_show_past and self.shown.is_past

    @property
    def age(self) -> float:
        """Seconds since the frame on screen was true, where no newer one comes; 0 while all is well."""
        return self.freshness.age

    @property
    def runs(self) -> tuple[Run, ...]:
        """Of the frame on screen."""
        return self.frame.runs if self.frame else ()

    @property
    def running(self) -> str:
        """The word for runs that go on in the frame on screen: where that is of before, nobody knows of now."""
        return "last seen running" if self.age > 0 else "running at the end" if self.origin.ended else "running"

    @property
    def no_runs(self) -> str:
        """Words for a place of runs that has none; of what is of before, nobody knows what has begun since."""
        if self.age > 0:
            return f"unknown since {units.clock(self.now)}"
        return "no training reports epochs now: see gpumon.run"

    @property
    def ranks(self) -> list[Ranks]:
        """The same, all ranks of a run as one: those that go on first."""
        frame = self.frame
        if frame is not self._joined_of:
            self._joined, self._joined_of = ranks_of(self.runs), frame
        return self._joined

    @property
    def now(self) -> float:
        """The time of the frame on screen."""
        return self.frame.time if self.frame else 0.0

    @property
    def monotonic_ns(self) -> int:
        """The same by CLOCK_MONOTONIC."""
        return self.frame.monotonic_ns if self.frame else 0

    @property
    def interval(self) -> float:
        """Seconds between samples by their own times: a recording that plays faster has them no closer together."""
        return self.frame.interval if self.frame else self.state.interval

    def host(self, metric: str) -> float:
        """A host metric of the frame on screen."""
        return self.frame.host[HOST_INDEX[metric]] if self.frame else NAN

    @property
    def subject(self) -> str:
        """The device whose history is shown; `HOST` for the machine."""
        subjects = self.subjects
        return self._subject if self._subject in subjects else subjects[0]

    @property
    def chosen_subject(self) -> str | None:
        """The device that the user chose; None where none was chosen."""
        return self._subject

    def select(self, subject: str | None) -> None:
        """Show the history of a device; None: of the first one that there is."""
        self._subject = subject

    def step_subject(self, step: int) -> None:
        """The next or the previous GPU; the host comes after the last."""
        subjects = self.subjects
        self.select(subjects[(subjects.index(self.subject) + step) % len(subjects)])

    @property
    def window(self) -> int:
        """Seconds that charts show: what the user chose, else as much as there is, up to the choice of last time."""
        if self.shown.chosen:
            chosen = self.shown.chosen  # that of another time may have been longer than there is anything to show
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
        """Seconds that all parts of the overview show."""
        return max(self.window, GLANCE)

    def zoom(self, step: int, shortest: int = 0) -> None:
        """Take a shorter or a longer window than that, or than `shortest`, and keep it; say where there is none."""
        before = max(self.window, shortest)
        self.shown.zoom(step, before, self._windows, self.history.begin, self.now)
        if self.window == before:
            is_short = step > 0 and before < WINDOWS[-1].seconds
            self.say("no shorter window" if step < 0 else f"no longer window{': history begins here' * is_short}")
        self.remembered.keep(WINDOW, str(self.shown.chosen))

    def step_window(self, step: int) -> None:
        """The next longer or shorter of the windows that have a button, or the longest; after that the first."""
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
        """Begin with the window that was chosen last time, as far as there is anything to show in it."""
        kept = self.remembered.get(WINDOW)
        self.shown.chosen_before = next(
            (one.seconds for one in (*SHORT_WINDOWS, *WINDOWS) if str(one.seconds) == kept), 0
        )

    def pan(self, halves: float) -> None:
        """Move the charts' window by so many halves of it."""
        self.shown.pan(halves, self.window, self.history.begin, self.now)

    def point(self, time: float) -> None:
        """Put the cursor of the charts at a moment (s since 1970), and show a window that holds it."""
        self.shown.point(time, self.window, self.history.begin, self.now)

    def epochs_drawn(self) -> tuple[EpochMarks, str]:
        """As `told_epochs`; those of the run that the chart was opened for, where frames tell of none of it."""
        sample, led = self.sample, self.way_back
        drawn, name = told_epochs(self.epochs, self.subject, self.selected_run, sample.run if sample else "")
        if led is None or self.subject not in led.devices or any(mark.run == led.run for mark in drawn.marks):
            return drawn, name
        return EpochMarks(led.marks, [], []), led.what

    @property
    def subjects(self) -> list[str]:
        """All whose history can be shown: UUIDs of the devices, and the machine where anything is known of it."""
        gpus = [sample.device.uuid for sample in self.samples]
        return [*gpus, HOST] if self._tells_host() or not gpus else gpus

    def _tells_host(self) -> bool:
        """Whether a frame has told anything of the machine; a log of nvidia-smi does not."""
        if not self._knows_host and self.frame is not self._host_of:
            self._host_of = self.frame
            self._knows_host = self.frame is not None and any(map(is_known, self.frame.host))
        return self._knows_host

    def limit_of(self, metric: Metric) -> float:
        """Return the full scale of a metric of the subject, or NaN."""
        if not metric.limit:
            return NAN
        if self.subject == HOST:
            return self.host(metric.limit)
        sample = self.sample
        return sample.value(metric.limit) if sample else NAN

    @property
    def sample(self) -> Sample | None:
        """Of the device whose history is shown; None for the host."""
        subject = self.subject
        return next((sample for sample in self.samples if sample.device.uuid == subject), None)

    def why_missing(self, metric: Metric) -> str:
        """Return why the subject has no values of a metric, for people; empty where that is not known."""
        sample = self.sample
        reason = sample.device.missing.get(metric.name) if sample else None
        return f"not available: {why_missing(metric.name, reason)}" if reason is not None else ""
