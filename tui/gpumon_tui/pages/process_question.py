"""The question before a signal: to whom, which one, what it leads to; the answer is No until somebody says Yes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

from gpumon import units
from gpumon.analysis.gpu_state import GpuState
from gpumon.frame import Process, Run, RunState
from gpumon.missing import is_known
from gpumon.origin import Capability
from gpumon_tui.process_list.signals import CHOICES, TERMINATE, SignalChoice, SignalRefused, SignalTarget
from gpumon_tui.renderables.text_width import safe
from gpumon_tui.view import View

STILL = 10.0
"""Seconds after which a process that has not ended is named."""
NOT_HERE = "these are no processes of this machine now: no signal can be sent"
READ_ONLY = "started with --readonly: no signal can be sent"


class SignalQuestion:
    """Asks, sends, and watches the end. `aim` is of tests."""

    def __init__(
        self, view: View, aim: Callable[[Process], SignalTarget] = SignalTarget, clock: Callable[[], float] = monotonic
    ) -> None:
        self.view = view
        self.is_open = False
        self.process: Process | None = None
        self.choice = 0
        self.is_yes = False
        self.said = ""
        """The result, in one line."""
        self._aim = aim
        self._clock = clock
        self._targets: list[SignalTarget] = []
        """Those that a signal goes to: the process itself first, then the other ranks of its run."""
        self._sent: list[SignalTarget] = []
        self._sent_at = 0.0
        self._sent_text = self._sent_signal = ""

    def ask(self, process: Process) -> None:
        """Open the question, or say why it cannot be asked."""
        self.close()
        view = self.view
        if view.is_readonly:
            self.said = READ_ONLY
        elif Capability.LIVE not in view.origin.capabilities:
            self.said = NOT_HERE
        else:
            try:
                self._targets = [self._aim(process)]
            except SignalRefused as refused:
                self.said = str(refused)
                return
            for rank in self._other_ranks(process):
                with suppress(SignalRefused):  # it is not counted among those that will be sent the signal
                    self._targets.append(self._aim(rank))
            self.process, self.is_open, self.choice, self.is_yes, self.said = process, True, 0, False, ""

    def close(self) -> None:
        """Close it; nothing is sent."""
        for target in self._targets:
            target.close()
        self._targets, self.is_open = [], False

    @property
    def choices(self) -> Sequence[SignalChoice]:
        """The signals that can be chosen; for a run of several ranks also that to all of them."""
        if len(self._targets) < 2:
            return CHOICES
        says = f"to all {len(self._targets)} ranks here"
        return (*CHOICES, SignalChoice("r", "Whole run", TERMINATE.number, says))

    @property
    def chosen(self) -> SignalChoice:
        """The one under the cursor."""
        return self.choices[self.choice]

    @property
    def run(self) -> Run | None:
        """The run that the process is of, while it goes on."""
        run = self.view.process_facts().run(self.process) if self.process else None
        return run if run and run.state is RunState.RUNNING else None

    def consequences(self) -> list[tuple[str, bool]]:
        """Return what a signal leads to, in sentences, each with whether it is a grave one."""
        process, run, facts = self.process, self.run, self.view.process_facts()
        if process is None:
            return []
        said: list[tuple[str, bool]] = []
        if not facts.is_own(process):
            said.append((f"It belongs to {safe(process.user) or 'an unknown user'}, not to you.", True))
        if run is not None:
            name = safe(run.name)
            is_rank = run.world_size > 1
            lead = f"It is rank {run.rank} of {run.world_size} of {name}" if is_rank else f"It is the run {name}"
            said.append((f"{lead}: the whole run will fail.", True))
            if run.epoch >= 0:
                epoch = units.epoch_place(run.epoch, run.epochs, run.base)
                said.append((f"Epoch {epoch.replace('/', ' of ')}, {safe(run.phase)}.".replace(", .", "."), False))
            return said
        holds = units.bytes_binary(process.memory_used) if is_known(process.memory_used) else "memory"
        said.append((f"It holds {holds}; work that it has not saved is lost.", False))
        if facts.idle.get(process.uuid):
            said.append((f"Its GPU is {GpuState.HELD.title}.", False))
        return said

    def take(self, key: str) -> bool:
        """Take a key; all are taken while the question is open."""
        letters = {choice.key: place for place, choice in enumerate(self.choices)}
        if key in letters:
            self.choice = letters[key]
        elif key in ("up", "down"):
            self.choice = max(0, min(len(self.choices) - 1, self.choice + (1 if key == "down" else -1)))
        elif key in ("tab", "shift+tab", "left", "right"):
            self.is_yes = not self.is_yes
        elif key == "enter":
            self.answer(self.is_yes)
        elif key in ("escape", "n", "q"):
            self.answer(False)
        return True

    def answer(self, is_yes: bool) -> None:
        """Send the chosen signal, or nothing, and close the question."""
        if not is_yes:
            self.close()
            return
        choice = self.chosen
        targets = self._targets if choice.key == "r" else self._targets[:1]
        sent, refused = [], ""
        for target in targets:
            try:
                target.send(choice.number)
                sent.append(target)
            except SignalRefused as error:
                refused = str(error)
        self._targets = [target for target in self._targets if target not in sent]
        self.close()
        if sent:
            self._forget_sent()
            self._sent, self._sent_at = sent, self._clock()
            self._sent_text = self._names(sent)
            self._sent_signal = choice.number.name
            self.said = f"{choice.number.name} sent to {self._sent_text}{f'; {refused}' if refused else ''}"
        else:
            self.said = refused

    def watch(self) -> None:
        """Say once it has ended, or that it has not for a while."""
        if not self._sent:
            return
        seconds = self._clock() - self._sent_at
        if all(target.is_over for target in self._sent):
            self.said = f"{self._sent_text} ended {units.brief(seconds)} after {self._sent_signal}"
            self._forget_sent()
        elif seconds >= STILL:
            self.said = f"{self._sent_text} still runs {units.words(seconds)} after {self._sent_signal}"

    def forget(self) -> None:
        """Close the question, and watch nothing any more."""
        self.close()
        self._forget_sent()
        self.said = ""

    def _forget_sent(self) -> None:
        for target in self._sent:
            target.close()
        self._sent = []

    def _names(self, sent: Sequence[SignalTarget]) -> str:
        facts, first = self.view.process_facts(), sent[0].process
        name = safe(facts.program(first))
        return f"{len(sent)} ranks" if len(sent) > 1 else f"{first.pid} {name}".rstrip()

    def _other_ranks(self, process: Process) -> list[Process]:
        """The processes of the other ranks of its run, as far as they are on GPUs here; each once."""
        facts = self.view.process_facts()
        own = facts.run(process)
        if own is None:
            return []
        keys = {run.key for run in self.view.runs if run.id == own.id and run.state is RunState.RUNNING}
        ranks = {one.pid: one for one in self.view.processes if one.run in keys and one.pid != process.pid}
        return list(ranks.values())
