"""The dialog that sends a signal to processes: its consequences in sentences, the question, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.frame import Run, RunState
from gpumon.model.origin import Capability
from gpumon.model.process import Process
from gpumon_tui.data.process_facts import ProcessFacts
from gpumon_tui.data.signals import CHOICES, TERMINATE, SignalChoice, SignalRefused, SignalTarget
from gpumon_tui.render.text_width import safe
from gpumon_tui.state import View

Told = tuple[str, bool]
"""A sentence, and whether it is a serious warning."""


def consequences(processes: Sequence[Process], facts: ProcessFacts) -> list[Told]:
    """Return the consequences of sending a signal to these processes."""
    if not processes:
        return []
    runs = {process.pid: run for process in processes if (run := facts.run(process))}
    rest = [process for process in processes if process.pid not in runs]
    said = _of_others(processes, facts)
    by_id: dict[str, list[Run]] = {}
    for run in runs.values():
        by_id.setdefault(run.id or run.key, []).append(run)
    for ranks in by_id.values():
        said += _of_run(ranks, is_alone=len(processes) == 1)
    if rest:
        said += _of_rest(rest, facts, is_alone=len(processes) == 1, is_all=not runs)
    return said


def named(process: Process, facts: ProcessFacts) -> str:
    """Return a short description of a process: `train.py, GPU 0, yours`."""
    owner = "yours" if process.user == facts.me else safe(process.user)
    parts = safe(facts.program(process)), f"GPU {facts.label(process) or units.MISSING}", owner
    return ", ".join(part for part in parts if part)


def _of_others(processes: Sequence[Process], facts: ProcessFacts) -> list[Told]:
    others = [process for process in processes if not facts.is_own(process)]
    users = ", ".join(sorted({safe(process.user) or "an unknown user" for process in others}))
    if not others:
        return []
    if len(processes) == 1:
        return [(f"It belongs to {users}, not to you.", True)]
    return [(f"{len(others)} of them {'belongs' if len(others) == 1 else 'belong'} to {users}, not to you.", True)]


def _of_run(ranks: Sequence[Run], *, is_alone: bool) -> list[Told]:
    run = ranks[0]
    name = safe(run.name)
    if run.world_size < 2:
        lead = f"It is the run {name}" if is_alone else f"The run {name} is among them"
        end = "the whole run will fail" if is_alone else "it will fail"
    else:
        which = f"{len(ranks)} of {run.world_size} ranks" if len(ranks) > 1 else f"rank {run.rank} of {run.world_size}"
        lead = f"It is {which} of {name}" if is_alone else f"{which[0].upper()}{which[1:]} of {name}"
        end = "the whole run will fail"
    said: list[Told] = [(f"{lead}: {end}.", True)]
    if is_alone and run.epoch >= 0:
        epoch = run.epoch_text
        said.append((f"Epoch {epoch.replace('/', ' of ')}, {safe(run.phase)}.".replace(", .", "."), False))
    return said


def _of_rest(processes: Sequence[Process], facts: ProcessFacts, *, is_alone: bool, is_all: bool) -> list[Told]:
    known = [process.memory_used for process in processes if is_known(process.memory_used)]
    at_least = "" if len(known) == len(processes) else "at least "
    holds = f"{at_least}{units.bytes_binary(sum(known))}" if known else "memory"
    if not is_alone:
        who = "They hold" if is_all else "The rest holds"
        return [(f"{who} {holds}; work that is not saved is lost.", False)]
    said: list[Told] = [(f"It holds {holds}; work that it has not saved is lost.", False)]
    if facts.idle.get(processes[0].uuid):
        said.append((f"Its GPU is {GpuState.HELD.title}.", False))
    return said


STILL = 10.0
"""Seconds after which a process that is still running is reported."""
NOT_HERE = "no processes of this machine now: no signal can be sent"
READ_ONLY = "started with --readonly: no signal can be sent"
FIXED_ROWS = 12
"""Rows of the dialog in addition to the list of processes."""


def not_on_page(tagged: int, *, is_by_user: bool) -> str:
    """Return the message for the case that no tagged process is on the page, because it is filtered or shows totals
    by user.
    """
    which = "the tagged process is" if tagged == 1 else f"all {tagged} tagged processes are"
    return f"{which} not on this page: {'u shows processes' if is_by_user else 'Esc takes the filter away'}, U untags"


class SignalQuestion:
    """Asks for confirmation, sends the signal, and watches for the exit.

    `on_sent` receives the processes after a signal was sent; `aim` is for tests.
    """

    def __init__(
        self, view: View, on_sent: Callable[[Sequence[Process]], object] = lambda processes: None, *,
        aim: Callable[[Process], SignalTarget] = SignalTarget, clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self.view = view
        self.is_open = False
        self.processes: Sequence[Process] = ()
        """Processes the question is about."""
        self.choice = 0
        self.is_yes = False
        self.said = ""
        """The result, in one line."""
        self._on_sent = on_sent
        self._aim = aim
        self._clock = clock
        self._targets: list[SignalTarget] = []
        """Recipients of the signal: the processes of the question, or for a single process also the other ranks of
        its run.
        """
        self._refused: list[str] = []
        """Why some of several processes will not receive the signal."""
        self._asked_for: Sequence[Process] = ()
        """All processes the question was asked for, including refused ones."""
        self._unseen = 0
        """Number of tagged processes that are not on the page; they receive no signal."""
        self._sent: list[SignalTarget] = []
        self._sent_at = 0.0
        self._sent_text = self._sent_signal = ""

    def ask(self, *processes: Process, unseen: int = 0, is_by_user: bool = False) -> None:
        """Open the question about the given processes, or show why it cannot be asked.

        `unseen`: number of further tagged processes that are not on the page; `is_by_user`: the page shows totals by
        user.
        """
        self.close()
        self._asked_for, self._unseen = processes, unseen
        view = self.view
        if view.is_readonly:
            self.said = READ_ONLY
        elif Capability.LIVE not in view.origin.capabilities:
            self.said = NOT_HERE
        elif unseen and not processes:
            self.said = not_on_page(unseen, is_by_user=is_by_user)
        elif processes:
            self._refused = []
            for process in processes:
                try:
                    self._targets.append(self._aim(process))
                except SignalRefused as refused:
                    self._refused.append(str(refused))
            self.processes = [target.process for target in self._targets]
            if not self._targets:
                more = f" ({len(self._refused) - 1} more are refused)" if len(self._refused) > 1 else ""
                self.said = f"{self._refused[0]}{more}"
                return
            if len(processes) == 1:
                for rank in self._other_ranks(processes[0]):
                    with suppress(SignalRefused):  # a refused process is not counted as a recipient
                        self._targets.append(self._aim(rank))
            self.is_open, self.choice, self.is_yes, self.said = True, 0, False, ""

    def close(self) -> None:
        """Close the dialog without sending a signal."""
        for target in self._targets:
            target.close()
        self._targets, self.is_open = [], False

    @property
    def choices(self) -> Sequence[SignalChoice]:
        """Signals to choose from; for one of several ranks of a run, also a signal to all of them."""
        if len(self._targets) == len(self.processes):
            return CHOICES
        says = f"to all {len(self._targets)} ranks here"
        return (*CHOICES, SignalChoice("r", "Whole run", TERMINATE.number, says))

    @property
    def chosen(self) -> SignalChoice:
        """The choice under the cursor."""
        return self.choices[self.choice]

    @property
    def title(self) -> tuple[str, str]:
        """The question, and the description of the process if there is only one."""
        if len(self.processes) != 1:
            return f"End {len(self.processes)} processes?", ""
        process = self.processes[0]
        return f"End process {process.pid}?", named(process, self.view.process_facts())

    def told(self, rows: int) -> list[Told]:
        """Return the text below the title within the given rows: recipients, refused processes with reasons, and
        consequences.
        """
        facts = self.view.process_facts()
        leads_to = consequences(self.processes, facts)
        if self._unseen:
            leads_to.append((f"{units.counted(self._unseen, 'tagged process')} not on this page: not sent.", False))
        if len(self.processes) + len(self._refused) < 2:
            return leads_to
        room = max(2, rows - FIXED_ROWS - len(leads_to))
        listed = [(f"{process.pid}  {named(process, facts)}", False) for process in self.processes]
        listed += [(f"not sent: {text}", True) for text in self._refused]
        if len(listed) > room:
            more = len(listed) - room + 1
            listed = [*listed[: room - 1], (f"and {more} more", False)]
        return [*listed, *leads_to]

    def take(self, key: str) -> bool:
        """Handle a key; while the question is open, all keys are handled here."""
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
        """Send the chosen signal if `is_yes`, and close the question."""
        if not is_yes:
            self.close()
            return
        choice = self.chosen
        targets = self._targets if choice.key == "r" else self._targets[: len(self.processes)]
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
            self._on_sent(self._asked_for)
            self._forget_sent()
            self._sent, self._sent_at = sent, self._clock()
            self._sent_text = self._names(sent, "ranks" if choice.key == "r" else "processes")
            self._sent_signal = choice.number.name
            self.said = f"{choice.number.name} sent to {self._sent_text}{f'; {refused}' if refused else ''}"
        else:
            self.said = refused

    def watch(self) -> None:
        """Report once that the processes have ended, or that they are still running after some time."""
        if not self._sent:
            return
        seconds = self._clock() - self._sent_at
        if all(target.is_over for target in self._sent):
            self.said = f"{self._sent_text} ended {units.fine_duration(seconds)} after {self._sent_signal}"
            self._forget_sent()
        elif seconds >= STILL:
            left = sum(not target.is_over for target in self._sent)
            who = f"{left} of {self._sent_text} still run" if len(self._sent) > 1 else f"{self._sent_text} still runs"
            self.said = f"{who} {units.long_duration(seconds)} after {self._sent_signal}"

    def forget(self) -> None:
        """Close the question and stop watching."""
        self.close()
        self._forget_sent()
        self.said = ""

    def _forget_sent(self) -> None:
        for target in self._sent:
            target.close()
        self._sent = []

    def _names(self, sent: Sequence[SignalTarget], several: str) -> str:
        facts, first = self.view.process_facts(), sent[0].process
        name = safe(facts.program(first))
        return f"{len(sent)} {several}" if len(sent) > 1 else f"{first.pid} {name}".rstrip()

    def _other_ranks(self, process: Process) -> list[Process]:
        """Return the processes of the other ranks of its run on this machine's GPUs, without duplicates."""
        facts = self.view.process_facts()
        own = facts.run(process)
        if own is None:
            return []
        keys = {run.key for run in self.view.runs if run.id == own.id and run.state is RunState.RUNNING}
        ranks = {one.pid: one for one in self.view.processes if one.run in keys and one.pid != process.pid}
        return list(ranks.values())
