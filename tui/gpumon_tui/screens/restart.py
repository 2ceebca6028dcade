"""The question before the daemon is restarted; the answer is No unless somebody says Yes."""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment
from textual import events

from gpumon_tui import theme
from gpumon_tui.renderables.attention import wrapped
from gpumon_tui.renderables.text_width import Line, safe
from gpumon_tui.screens.scrolled import Scrolled, Text
from gpumon_tui.view import View

TELLS = (
    "Runs and history that are on disk stay. Until the new one has begun, nothing is sampled.",
    "Trainings go on undisturbed.",
)

OPTIONS_LOST = "The one that ran is gone, and its options with it: the new one gets those of this environment."


class RestartQuestion(Text):
    """The state of the daemon, and what a restart leads to."""

    def told(self, cells: int) -> list[Line]:
        state = wrapped(safe(self.view.state.text), cells)
        texts = TELLS if self.view.state.stale else (*TELLS, OPTIONS_LOST)
        tells = (part for text in texts for part in wrapped(text, cells))
        return [
            [Segment("Restart the daemon?", theme.STRONG)], *([Segment(part, theme.WARN)] for part in state), [],
            *([Segment(part, theme.PLAIN)] for part in tells), [],
            [Segment("y", theme.TITLE), Segment(" restart it   ", theme.DIM), Segment("any other key", theme.TITLE),
             Segment(" no", theme.DIM)],
        ]  # fmt: skip


class Restart(Scrolled):
    """Above the main screen; `do` is called where the answer is Yes."""

    def __init__(self, view: View, *, do: Callable[[], object]) -> None:
        super().__init__(RestartQuestion(view))
        self._do = do

    def on_key(self, event: events.Key) -> None:
        """Restart on `y`; close on every key."""
        if self.is_closed:
            return
        event.stop()
        event.prevent_default()
        self.close()
        if event.key == "y":
            self._do()
