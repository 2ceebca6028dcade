"""Terminal title and desktop notifications: run ends and free GPUs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_state import FREE_OR_NOT, GpuState
from gpumon.common.text import clean, cut
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.model.origin import Capability

if TYPE_CHECKING:
    from gpumon_tui.state import View

SAVE, RESTORE = "\x1b[22;2t", "\x1b[23;2t"
"""Escape sequences that push the current title on the terminal's stack, and pop it (xterm)."""
_END = "\x1b\\"
MAX_TITLE = 60
"""Maximum width of the title in cells."""
_NO_TITLE = ("", "dumb", "linux", "unknown", "vt100")
_END_TEXTS = {
    RunState.FINISHED: "finished", RunState.FAILED: "failed", RunState.INTERRUPTED: "was interrupted",
    RunState.STOPPED: "was stopped", RunState.DIED: "died",
}  # fmt: skip


class TerminalNotifier:
    """Writes the title when it changes, and one notification per event."""

    def __init__(self, env: Mapping[str, str], write: Callable[[str], object], *, notifies: bool = False) -> None:
        self._write = write
        self._has_title = env.get("TERM", "") not in _NO_TITLE
        self._in_tmux = bool(env.get("TMUX"))
        self.is_enabled = notifies
        self._title = ""
        self.forget()

    def forget(self) -> None:
        """Reset, so that the state found next is not reported as a change."""
        self._runs: dict[str, RunState] = {}
        self._free: frozenset[str] | None = None

    def update(self, view: View) -> None:
        """Update the title, and send notifications for changes since the last call."""
        if not self._has_title:
            return
        title = window_title(view)
        if title != self._title:
            self._write(f"{SAVE if not self._title else ''}\x1b]2;{title}{_END}")
            self._title = title
        if view.age or view.frame is None or view.is_loading:
            return
        for text in self._changes(view):
            if self.is_enabled and Capability.LIVE in view.origin.capabilities:
                self._notify(text)

    def end(self, write: Callable[[str], object]) -> None:
        """Restore the previous title by calling `write`; called after the view has ended."""
        if self._title:
            self._title = ""
            write(f"\x1b]2;{_END}{RESTORE}")

    def _changes(self, view: View) -> list[str]:
        texts = []
        is_first = self._free is None
        previous, self._runs = self._runs, {}
        for ranks in view.ranks:
            run = ranks.first
            key, state = run.id or run.key, ranks.state
            self._runs[key] = state
            if previous.get(key) is RunState.RUNNING and state in _END_TEXTS:
                texts.append(f"{_name(run.name) or _name(run.id)} {_END_TEXTS[state]}")
        statuses = view.statuses
        free = frozenset(status.sample.device.uuid for status in statuses if status.state is GpuState.FREE)
        in_use = frozenset(status.sample.device.uuid for status in statuses if status.state in _IN_USE)
        if self._free is None:
            self._free = free
        newly_free = free - self._free
        if not is_first and newly_free:
            labels = [status.sample.device.label for status in statuses if status.sample.device.uuid in newly_free]
            texts.append(f"GPU {', '.join(labels)} free")
        self._free = (self._free | free) - in_use  # keep unknown ones: free again is no news
        return texts

    def _notify(self, text: str) -> None:
        """Send a notification as OSC 9 and OSC 777; terminals ignore the sequences they do not support."""
        for sequence in (f"\x1b]9;gpumon: {text}{_END}", f"\x1b]777;notify;gpumon;{text.replace(';', ',')}{_END}"):
            self._write(through_tmux(sequence) if self._in_tmux else sequence)


_IN_USE = (GpuState.BUSY, GpuState.ALLOCATED, GpuState.HELD)


def through_tmux(sequence: str) -> str:
    """Wrap a sequence for tmux, which forwards it if its option allow-passthrough is on and discards it otherwise."""
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}{_END}"


def window_title(view: View) -> str:
    """Return the title: number of free GPUs and progress of the selected or first run, or "paused", "ended" or
    "stale".
    """
    parts = ["gpumon", *([view.origin.label.lower()] if view.origin.label else [])]
    if view.paused:
        parts.append("paused")
    elif view.origin.ended:
        parts.append("ended")
    elif view.age:
        parts.append(f"{view.hostname} stale" if view.hostname else "stale")
    elif view.samples:
        states = [status.state for status in view.statuses]
        free = states.count(GpuState.FREE)
        if free or FREE_OR_NOT.issuperset(states):
            parts.append(f"{free} free")
        running = [ranks for ranks in view.ranks if ranks.state is RunState.RUNNING]
        selected = next((ranks for ranks in running if ranks.first.id == view.selected_run), None)
        for ranks in ([selected] if selected else running)[:1]:
            run = ranks.slowest
            epoch = f" {units.epoch_position(run.epoch, run.epochs, run.base)}" if run.epoch >= 0 else ""
            parts.append(f"{_name(ranks.first.name)}{epoch}")
    return cut(" · ".join(clean(part, MAX_TITLE) for part in parts), MAX_TITLE)


def _name(text: str) -> str:
    """Return a name from another process without characters that could end the sequence or control the terminal."""
    return clean(text, 40)


def to_terminal(text: str) -> None:
    """Write to the terminal after the view has ended, if it still exists."""
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        with suppress(OSError, ValueError):
            sys.__stderr__.write(text)
            sys.__stderr__.flush()
