"""The dialog that sends a signal to processes: its consequences in sentences, the question, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.frame import Run, RunState
from gpumon.model.origin import Capability
from gpumon.model.process import Process
from gpumon_tui import theme
from gpumon_tui.data.processes import ProcessFacts
from gpumon_tui.data.signals import CHOICES, TERMINATE, SignalChoice, SignalRefused, SignalTarget
from gpumon_tui.render.text_width import ClickRange, Line, fit, length, safe, wrap_words
from gpumon_tui.screens.window import ModalWindow, TextWidget
from gpumon_tui.state import View

Sentence = tuple[str, bool]
"""A sentence, and whether it is a serious warning."""


def consequence_sentences(processes: Sequence[Process], facts: ProcessFacts) -> list[Sentence]:
    """Return the consequences of sending a signal to these processes."""
    if not processes:
        return []
    runs = {process.pid: run for process in processes if (run := facts.run(process))}
    without_run = [process for process in processes if process.pid not in runs]
    sentences = _other_users_sentences(processes, facts)
    by_id: dict[str, list[Run]] = {}
    for run in runs.values():
        by_id.setdefault(run.id or run.key, []).append(run)
    for ranks in by_id.values():
        sentences += _run_sentences(ranks, is_only=len(processes) == 1)
    if without_run:
        sentences += _memory_sentences(without_run, facts, is_only=len(processes) == 1, is_all=not runs)
    return sentences


def describe_process(process: Process, facts: ProcessFacts) -> str:
    """Return a short description of a process: `train.py, GPU 0, yours`."""
    owner = "yours" if process.user == facts.me else safe(process.user)
    parts = safe(facts.program(process)), f"GPU {facts.label(process) or units.MISSING}", owner
    return ", ".join(part for part in parts if part)


def _other_users_sentences(processes: Sequence[Process], facts: ProcessFacts) -> list[Sentence]:
    others = [process for process in processes if not facts.is_own(process)]
    users = ", ".join(sorted({safe(process.user) or "an unknown user" for process in others}))
    if not others:
        return []
    if len(processes) == 1:
        return [(f"It belongs to {users}, not to you.", True)]
    return [(f"{len(others)} of them {'belongs' if len(others) == 1 else 'belong'} to {users}, not to you.", True)]


def _run_sentences(ranks: Sequence[Run], *, is_only: bool) -> list[Sentence]:
    run = ranks[0]
    name = safe(run.name)
    if run.world_size < 2:
        lead = f"It is the run {name}" if is_only else f"The run {name} is among them"
        end = "the whole run will fail" if is_only else "it will fail"
    else:
        rank_text = (
            f"{len(ranks)} of {run.world_size} ranks" if len(ranks) > 1 else f"rank {run.rank} of {run.world_size}"
        )
        lead = f"It is {rank_text} of {name}" if is_only else f"{rank_text[0].upper()}{rank_text[1:]} of {name}"
        end = "the whole run will fail"
    sentences: list[Sentence] = [(f"{lead}: {end}.", True)]
    if is_only and run.epoch >= 0:
        epoch = run.epoch_text
        sentences.append((f"Epoch {epoch.replace('/', ' of ')}, {safe(run.phase)}.".replace(", .", "."), False))
    return sentences


def _memory_sentences(
    processes: Sequence[Process], facts: ProcessFacts, *, is_only: bool, is_all: bool
) -> list[Sentence]:
    sizes = [process.memory_used for process in processes if is_known(process.memory_used)]
    at_least = "" if len(sizes) == len(processes) else "at least "
    holds = f"{at_least}{units.bytes_binary(sum(sizes))}" if sizes else "memory"
    if not is_only:
        subject = "They hold" if is_all else "The rest holds"
        return [(f"{subject} {holds}; work that is not saved is lost.", False)]
    sentences: list[Sentence] = [(f"It holds {holds}; work that it has not saved is lost.", False)]
    if facts.idle.get(processes[0].uuid):
        sentences.append((f"Its GPU is {GpuState.HELD.title}.", False))
    return sentences


RUNNING_AFTER = 10.0
"""Seconds after which a process that is still running is reported."""
NOT_THIS_MACHINE = "no processes of this machine now: no signal can be sent"
READ_ONLY = "started with --readonly: no signal can be sent"
FIXED_ROWS = 12
"""Rows of the dialog in addition to the list of processes."""


def not_on_page(tagged: int, *, is_by_user: bool) -> str:
    """Return the message for the case that no tagged process is on the page, because it is filtered or shows totals
    by user.
    """
    subject = "the tagged process is" if tagged == 1 else f"all {tagged} tagged processes are"
    return f"{subject} not on this page: {'u shows processes' if is_by_user else 'Esc takes the filter away'}, U untags"


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
        self.message = ""
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
        self._question_processes: Sequence[Process] = ()
        """All processes the question was asked for, including refused ones."""
        self._hidden_tags = 0
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
        self._question_processes, self._hidden_tags = processes, unseen
        view = self.view
        if view.is_readonly:
            self.message = READ_ONLY
        elif Capability.LIVE not in view.origin.capabilities:
            self.message = NOT_THIS_MACHINE
        elif unseen and not processes:
            self.message = not_on_page(unseen, is_by_user=is_by_user)
        elif processes:
            self._refused = []
            for process in processes:
                try:
                    self._targets.append(self._aim(process))
                except SignalRefused as refused:
                    self._refused.append(str(refused))
            self.processes = [target.process for target in self._targets]
            if not self._targets:
                suffix = f" ({len(self._refused) - 1} more are refused)" if len(self._refused) > 1 else ""
                self.message = f"{self._refused[0]}{suffix}"
                return
            if len(processes) == 1:
                for rank in self._other_ranks(processes[0]):
                    with suppress(SignalRefused):  # a refused process is not counted as a recipient
                        self._targets.append(self._aim(rank))
            self.is_open, self.choice, self.is_yes, self.message = True, 0, False, ""

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
        description = f"to all {len(self._targets)} ranks here"
        return (*CHOICES, SignalChoice("r", "Whole run", TERMINATE.number, description))

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
        return f"End process {process.pid}?", describe_process(process, self.view.process_facts())

    def sentences(self, rows: int) -> list[Sentence]:
        """Return the text below the title within the given rows: recipients, refused processes with reasons, and
        consequences.
        """
        facts = self.view.process_facts()
        sentences = consequence_sentences(self.processes, facts)
        if self._hidden_tags:
            sentences.append(
                (f"{units.counted(self._hidden_tags, 'tagged process')} elsewhere will not get the signal.", False)
            )
        if len(self.processes) + len(self._refused) < 2:
            return sentences
        room = max(2, rows - FIXED_ROWS - len(sentences))
        listed = [(f"{process.pid}  {describe_process(process, facts)}", False) for process in self.processes]
        listed += [(f"not sent: {text}", True) for text in self._refused]
        if len(listed) > room:
            count = len(listed) - room + 1
            listed = [*listed[: room - 1], (f"and {count} more", False)]
        return [*listed, *sentences]

    def handle(self, key: str) -> bool:
        """Handle a key; while the question is open, all keys are handled here."""
        letters = {choice.key: index for index, choice in enumerate(self.choices)}
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
            self._on_sent(self._question_processes)
            self._forget_sent()
            self._sent, self._sent_at = sent, self._clock()
            self._sent_text = self._names(sent, "ranks" if choice.key == "r" else "processes")
            self._sent_signal = choice.number.name
            self.message = f"{choice.number.name} sent to {self._sent_text}{f'; {refused}' if refused else ''}"
        else:
            self.message = refused

    def watch(self) -> None:
        """Report once that the processes have ended, or that they are still running after some time."""
        if not self._sent:
            return
        seconds = self._clock() - self._sent_at
        if all(target.is_over for target in self._sent):
            self.message = f"{self._sent_text} ended {units.fine_duration(seconds)} after {self._sent_signal}"
            self._forget_sent()
        elif seconds >= RUNNING_AFTER:
            running = sum(not target.is_over for target in self._sent)
            subject = (
                f"{running} of {self._sent_text} still run" if len(self._sent) > 1 else f"{self._sent_text} still runs"
            )
            self.message = f"{subject} {units.long_duration(seconds)} after {self._sent_signal}"

    def forget(self) -> None:
        """Close the question and stop watching."""
        self.close()
        self._forget_sent()
        self.message = ""

    def _forget_sent(self) -> None:
        for target in self._sent:
            target.close()
        self._sent = []

    def _names(self, sent: Sequence[SignalTarget], plural: str) -> str:
        facts, first = self.view.process_facts(), sent[0].process
        name = safe(facts.program(first))
        return f"{len(sent)} {plural}" if len(sent) > 1 else f"{first.pid} {name}".rstrip()

    def _other_ranks(self, process: Process) -> list[Process]:
        """Return the processes of the other ranks of its run on this machine's GPUs, without duplicates."""
        facts = self.view.process_facts()
        run = facts.run(process)
        if run is None:
            return []
        keys = {
            other_run.key
            for other_run in self.view.runs
            if other_run.id == run.id and other_run.state is RunState.RUNNING
        }
        ranks = {
            candidate.pid: candidate
            for candidate in self.view.processes
            if candidate.run in keys and candidate.pid != process.pid
        }
        return list(ranks.values())


_STRONG, _TEXT, _DIM = theme.ink("strong", bold=True), theme.ink("text"), theme.ink("dim")
_KEY, _CRIT = theme.ink("key", bold=True), theme.ink("crit")
_SELECTED, _SELECTED_DIM = theme.ink("strong", "select", bold=True), theme.ink("dim", "select")
_SELECTED_KEY = theme.ink("key", "select", bold=True)
_FOCUS, _FOCUS_CRIT = theme.ink("ground", "key", bold=True), theme.ink("ground", "crit", bold=True)
_NO_STYLE, _YES_STYLE = theme.ink("text", "select"), theme.ink("crit", "select", bold=True)
NAME = 11
"""Width of the name of a signal."""


def dialog_lines(
    title: str, about: str, consequences: Sequence[tuple[str, bool]], choices: Sequence[SignalChoice], *,
    chosen: int, is_yes: bool, cells: int, rows: int,
) -> tuple[list[Line], list[ClickRange]]:  # fmt: skip
    """Return the lines and the clickable areas (row and cells) of `choice N`, `no` and `yes`.

    `cells` and `rows` are the available size; if it is small, blank lines and explanations are dropped first.
    """
    ranges: list[ClickRange] = []
    has_few_rows = rows < len(consequences) + len(choices) + 8
    blank: list[Line] = [] if has_few_rows else [[]]
    lines: list[Line] = [[Segment(title, _STRONG), Segment(f"   {about}" if about else "", _DIM)], *blank]
    for text, is_critical in consequences:
        parts = [text] if length([Segment(text)]) <= cells else wrap_words(text, cells)
        lines += [[Segment(part, _CRIT if is_critical else _TEXT)] for part in parts]
    lines += blank
    effect_cells = max((len(choice.effect) + len(choice.number.name) + 2 for choice in choices), default=0)
    choice_cells = min(cells, 4 + NAME + effect_cells + 2)
    for index, (key, name, number, effect) in enumerate(choices):
        description = fit(f"{number.name}: {effect}", choice_cells - 4 - NAME)
        key_style, name_style, effect_style = (
            (_SELECTED_KEY, _SELECTED, _SELECTED_DIM) if index == chosen else (_KEY, _TEXT, _DIM)
        )
        ranges.append(ClickRange(0, choice_cells, f"choice {index}", len(lines)))
        lines.append(
            [Segment(f" {key}  ", key_style), Segment(fit(name, NAME), name_style), Segment(description, effect_style)]
        )
    lines += blank
    verb = choices[chosen].name.lower() if choices[chosen].key != "r" else "terminate all"
    no, yes = " No, keep it ", f" Yes, {verb} "
    buttons: Line = [
        Segment(no, _NO_STYLE if is_yes else _FOCUS), Segment("   "),
        Segment(yes, _FOCUS_CRIT if is_yes else _YES_STYLE),
    ]  # fmt: skip
    ranges += [
        ClickRange(0, len(no), "no", len(lines)),
        ClickRange(len(no) + 3, len(no) + 3 + len(yes), "yes", len(lines)),
    ]
    hint: Line = [Segment("   Tab", _KEY), Segment(" choose  ", _DIM), Segment("Esc", _KEY), Segment(" close", _DIM)]
    lines.append([*buttons, *hint] if length(buttons) + length(hint) <= cells else buttons)
    return lines, ranges


class SignalText(TextWidget):
    """The question, its consequences, the signals to choose from, and the answers."""

    dims = False
    border_role = "crit"

    def __init__(self, view: View, question: SignalQuestion) -> None:
        super().__init__(view)
        self._question = question

    def text_lines(self, cells: int) -> list[Line]:
        question, rows = self._question, self.app.size.height - 2
        lines, self.click_ranges = dialog_lines(
            *question.title, question.sentences(rows), question.choices, chosen=question.choice,
            is_yes=question.is_yes, cells=cells, rows=rows,
        )  # fmt: skip
        return lines

    def on_click(self, event: events.Click) -> None:
        """Run the clicked choice or button."""
        event.stop()
        if action := self.action_at(event.x - 2, event.y - 1):
            self.post_message(self.Pressed(action))

    class Pressed(Message):
        """Posted when a choice or an answer was clicked; `action` is `choice N`, `no` or `yes`."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action


class SignalWindow(ModalWindow):
    """The window of the question; while it is open, it handles all keys."""

    DEFAULT_CSS = "SignalWindow > VerticalScroll { width: 72; }"
    follows: ClassVar[bool] = True

    def __init__(self, view: View, question: SignalQuestion) -> None:
        super().__init__(SignalText(view, question))
        self._question = question

    def take_key(self, press: events.Key) -> bool:
        self._question.handle(press.key)
        return True

    def show(self) -> None:
        """Redraw the question, or close the window if it has been answered."""
        if self._question.is_open:
            super().show()
        else:
            self.close()

    def close(self) -> None:
        """Close the window without sending a signal."""
        self._question.close()
        super().close()

    async def on_signal_text_pressed(self, message: SignalText.Pressed) -> None:
        """Handle a click on a choice or an answer."""
        await self.run_action(f"press({message.action!r})")

    def action_press(self, button: str) -> None:
        """Select a signal, or answer the question."""
        name, _, number = button.partition(" ")
        if name == "choice":
            self._question.choice = int(number)
        else:
            self._question.answer(name == "yes")
