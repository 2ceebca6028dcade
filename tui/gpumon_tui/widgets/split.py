"""Memory breakdown of the selected GPU."""

from __future__ import annotations

from gpumon_tui.renderables.split import strip
from gpumon_tui.renderables.text_width import Line
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines


class SplitBar(Lines):
    """One bar of all its parts, and what they are."""

    def __init__(self, view: View) -> None:
        super().__init__(view, id="split")

    def lines(self) -> list[Line]:
        sample = self.view.sample
        if sample is None:
            return []
        run = self.view.epochs.run(sample.run) if sample.run else None
        return strip(sample, run, *self.size)
