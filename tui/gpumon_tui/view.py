"""The state of the view: the frame on screen, and the selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from gpumon.analysis.epochs import Drawn, Epochs
from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.diagnosis.finding import Finding, Severity
from gpumon.diagnosis.live import findings, is_news
from gpumon.frame import NAN, Driver, Frame, Origin, Process, Run, Sample
from gpumon.history.open import open_history
from gpumon.history.query import HOST
from gpumon.history.windows import USUAL, WINDOWS
from gpumon.live import WAITING, LiveState
from gpumon.metrics import HOST_INDEX, Metric
from gpumon.missing import is_known
from gpumon.needs import why_missing
from gpumon.origin import Capability
from gpumon_tui.freshness import freshness
from gpumon_tui.happened import Happened
from gpumon_tui.kept_runs import KeptRuns
from gpumon_tui.look import TerminalLook
from gpumon_tui.memo import Memo
from gpumon_tui.process_list.facts import ProcessFacts, facts_of
from gpumon_tui.process_list.programs import OwnPrograms
from gpumon_tui.remembered import Remembered
from gpumon_tui.renderables.text_width import safe
from gpumon_tui.shown_time import ShownTime

if TYPE_CHECKING:
    from gpumon.ledger.records import RunSummary


SAID_FOR = 4.0
"""Seconds for which a line for the user stands at the foot."""
FINDINGS_EVERY = 5.0
"""Seconds after which findings are judged anew; at once when a GPU or a run has another state."""


class View:
    """Everything the widgets draw from; it knows no widget."""

    def __init__(self, interval: float = 1.0) -> None:
        self.look = TerminalLook()
        """The way in which pictures become cells of this terminal; pages need not know it."""
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
        self.history_file = ""
        """The file of history of the daemon that is shown; empty where there is none."""
        self.has_simulation = False
        """Whether a key shows a simulation in the place of this machine."""
        self.selected_run = ""
        """Id of the run under the cursor of the table."""
        self.selected_process: tuple[int, str] | None = None
        """PID and device of the process under the cursor of the table."""
        self.shown = ShownTime()
        """The time that the charts show; everything else is of the frame on screen."""
        self.recent: Callable[[], Sequence[Frame]] = list
        """Gives the newest full frames: the history of a process is in no other."""
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
        self.activity = Activity()
        self.origin = Origin("")
        self.driver = Driver()
        self.hostname = ""
        self.state = LiveState(False, WAITING, self._interval)
        self.frame: Frame | None = None
        self.freshness = freshness(self.state, self.origin, None, False, 0.0)
        self.paused = False
        self.filling = False
        """The history is still being taken in."""
        self._joined: list[Ranks] = []
        self._joined_of: Frame | None = None
        self._judged: tuple[GpuStatus, ...] = ()
        self._states: dict[str, GpuState] = {}
        self._states_of: tuple[Frame | None, bool, bool] = None, False, False
        self._findings: Memo[list[Finding]] = Memo()
        self._subject: str | None = None

    def say(self, text: str, now: float | None = None) -> None:
        """Tell the user something at the foot, such as what a key did, for some seconds."""
        self.said, self._said_until = text, (monotonic() if now is None else now) + SAID_FOR

    def forget_said(self, now: float) -> bool:
        """Leave the foot to the keys again once what was said has stood there for long enough; whether that is now."""
        is_over = bool(self.said) and now > self._said_until
        if is_over:
            self.said = ""
        return is_over

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

    def process_facts(self) -> ProcessFacts:
        """Return what the rows of processes say besides what the driver tells of each."""

        def found() -> ProcessFacts:
            is_here = Capability.LIVE in self.origin.capabilities
            held = [sample.device.uuid for sample in self.samples if self.judged(sample) is GpuState.HELD]
            idle = {uuid: self.activity.observed(uuid).idle for uuid in held}
            if not is_here:  # a pid of a recording or a simulation is another process on this machine
                return facts_of(self.samples, self.runs, self.now, idle=idle)
            me, script = self.programs.user, self.programs.name
            return facts_of(self.samples, self.runs, self.now, idle=idle, me=me, script=script)

        return self._facts.get(0, (self.frame, self.age > 0, self.filling), found)

    def judged(self, sample: Sample) -> GpuState:
        """The state of a GPU of the frame on screen."""
        self._judge()
        return self._states.get(sample.device.uuid, GpuState.UNKNOWN)

    @property
    def statuses(self) -> tuple[GpuStatus, ...]:
        """The GPUs of the frame on screen, judged."""
        self._judge()
        return self._judged if self.frame else ()

    def _judge(self) -> None:
        frame, live = self.frame, not self.age
        if frame is not None and self._states_of != (frame, live, self.filling):
            self._judged = gpu_statuses(frame, self.ranks, self.activity, live)
            self._states = {status.sample.device.uuid: status.state for status in self._judged}
            self._states_of = frame, live, self.filling

    def findings(self) -> list[Finding]:
        """Return what needs attention in the frame on screen; that a GPU is free is shown beside it."""
        frame = self.frame
        if frame is None:
            return []

        def found() -> list[Finding]:
            all_found = findings(
                self._judged, self.ranks, self.epochs, frame.time, self.history, monotonic_ns=frame.monotonic_ns
            )
            return [one for one in all_found if one.severity is not Severity.INFO and is_news(one)]

        self._judge()
        runs = tuple((run.key, run.state, run.memory.ooms) for run in frame.runs)
        states = tuple(status.state for status in self._judged)
        return self._findings.get(0, (frame.time // FINDINGS_EVERY, states, runs, self.age > 0, self.filling), found)

    @property
    def selected(self) -> frozenset[str]:
        """The UUID of the selected GPU and the id of the selected run."""
        return frozenset((self.subject, self.selected_run)) - {""}

    @property
    def age(self) -> float:
        """Seconds since the frame on screen was true, where no newer one comes; 0 while all is well."""
        return self.freshness.age

    @property
    def runs(self) -> tuple[Run, ...]:
        """Of the frame on screen."""
        return self.frame.runs if self.frame else ()

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

    def host(self, metric: str) -> float:
        """A host metric of the frame on screen."""
        return self.frame.host[HOST_INDEX[metric]] if self.frame else NAN

    @property
    def subject(self) -> str:
        """The device whose history is shown; `HOST` for the machine."""
        subjects = self._subjects()
        return self._subject if self._subject in subjects else subjects[0]

    def select(self, subject: str) -> None:
        """Show the history of a device."""
        self._subject = subject

    def step_subject(self, step: int) -> None:
        """The next or the previous GPU; the host comes after the last."""
        subjects = self._subjects()
        self.select(subjects[(subjects.index(self.subject) + step) % len(subjects)])

    @property
    def window(self) -> int:
        """Seconds that charts show: what the user chose, else as much as there is, up to ten minutes."""
        if self.shown.chosen:
            return self.shown.chosen
        known = self.now - self.history.begin
        wanted = min(known, USUAL.seconds) if is_known(known) else 0.0
        return next((window.seconds for window in WINDOWS if window.seconds >= wanted), USUAL.seconds)

    def zoom(self, step: int) -> None:
        """A shorter or a longer window."""
        self.shown.zoom(step, self.window, self.history.begin, self.now)

    def pan(self, halves: int) -> None:
        """Move the charts' window by so many halves of it."""
        self.shown.pan(halves, self.window, self.history.begin, self.now)

    def point(self, time: float) -> None:
        """Put the cursor of the charts at a moment (s since 1970), and show a window that holds it."""
        self.shown.point(time, self.window, self.history.begin, self.now)

    def epochs_drawn(self) -> tuple[Drawn, str]:
        """Epochs for the charts of the subject, of one run at a time; and its name where several could be meant.

        On the host they are those of the run that is selected in the table; on a GPU that several runs share too,
        if it is one of them. Runs that were there before, and over when it began, are left on the chart.
        """
        subject = self.subject
        groups: dict[str, list[str]] = {}
        for key in self.epochs.runs_on(subject):
            run = self.epochs.run(key)
            groups.setdefault(run.id if run else key, []).append(key)
        chosen = self.selected_run if self.selected_run in groups else ""
        if subject == HOST:
            groups = {chosen: groups[chosen]} if chosen else {}
        elif len(groups) > 1:
            sample = self.sample
            run = self.epochs.run(sample.run) if sample and sample.run else None
            return self._one_at_a_time(groups, chosen or (run.id if run else list(groups)[-1]))
        keys = [key for group in groups.values() for key in group]
        return self.epochs.drawn(keys), self._name_of(chosen, groups) if subject == HOST else ""

    def _one_at_a_time(self, groups: dict[str, list[str]], chosen: str) -> tuple[Drawn, str]:
        """The chosen run, and of the others those that were over before the next began."""
        taken = [self.epochs.lasted(groups[chosen])]
        kept = list(groups[chosen])
        for name, keys in reversed(groups.items()):
            begin, end = self.epochs.lasted(keys)
            if name != chosen and all(end <= other[0] or begin >= other[1] for other in taken):
                taken.append((begin, end))
                kept += keys
        is_shared = len(taken) < len(groups)
        return self.epochs.drawn(kept), self._name_of(chosen, groups) if is_shared else ""

    def _name_of(self, chosen: str, groups: dict[str, list[str]]) -> str:
        run = self.epochs.run(groups[chosen][0]) if chosen else None
        return safe(run.name) if run else ""

    def _subjects(self) -> list[str]:
        return [*(sample.device.uuid for sample in self.samples), HOST]

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
