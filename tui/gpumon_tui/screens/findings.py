"""Window that lists the findings with the recommended actions."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment

from gpumon_tui import theme
from gpumon_tui.render.findings import attention_lines
from gpumon_tui.render.text_width import Line
from gpumon_tui.screens.window import ModalWindow, TextWidget
from gpumon_tui.state import View


class FindingsText(TextWidget):
    """All findings of the frame on screen; findings of the selected GPU and run come first."""

    dims = False

    def text_lines(self, cells: int) -> list[Line]:
        view = self.view
        return [
            [Segment("Attention", theme.TITLE)],
            *attention_lines(
                view.findings.all(), view.selected, cells, is_old=view.age > 0, unknown=view.unknown_values(),
                is_read=not view.is_loading,
            ),
            [],
            [Segment("press any key to close", theme.DIM)],
        ]  # fmt: skip


class FindingsWindow(ModalWindow):
    """The window, opened above the main screen."""

    follows: ClassVar[bool] = True

    def __init__(self, view: View) -> None:
        super().__init__(FindingsText(view))
