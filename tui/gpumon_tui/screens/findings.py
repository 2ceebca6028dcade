"""Window that lists the findings with the recommended actions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style

from gpumon.common.program import callable_commands
from gpumon.diagnosis.finding import Finding, Severity, group_findings
from gpumon.diagnosis.gpu import nothing_found
from gpumon_tui import theme
from gpumon_tui.render.text_width import READING_HISTORY, Line, cut, safe, wrap_words
from gpumon_tui.screens.window import ModalWindow, TextWidget
from gpumon_tui.state import View

STYLES: dict[Severity, Style] = {
    Severity.INFO: theme.DIM, Severity.WARNING: theme.WARN, Severity.CRITICAL: theme.CRITICAL,
}  # fmt: skip
_INDENT = "  "
_MAX_TEXT = 4096
"""Maximum length of a finding's text. It must be long, because the advice for a group names every GPU."""
UNKNOWN = "The current state is unknown."
LAST_SEEN = "The current state is unknown; this is what was last seen."


def selected_first(findings: Sequence[Finding], selected: Collection[str]) -> list[Finding]:
    """Sort findings about `selected` (UUIDs of GPUs, ids of runs) first, each part by severity."""
    return sorted(findings, key=lambda finding: (finding.subject.id not in selected, -finding.severity))


def attention_lines(
    findings: Sequence[Finding], selected: Collection[str], cells: int, is_old: bool = False,
    unknown: Sequence[str] = (), *, is_read: bool = True,
) -> list[Line]:  # fmt: skip
    """Return a block of lines for each finding, none wider than `cells`; `is_old`: the data are outdated.

    `unknown` lists what could not be checked; until history `is_read`, no rule has seen all data.
    """
    lines: list[Line] = [cut([Segment(LAST_SEEN if findings else UNKNOWN, theme.WARN)], cells), []] if is_old else []
    summary = nothing_found(unknown) if is_read else READING_HISTORY
    if not is_old and all(finding.severity is Severity.INFO for finding in findings):
        lines += [[Segment(part, theme.PLAIN)] for part in wrap_words(summary, cells)]
    for group in group_findings(selected_first(findings, selected)):
        first = group.first
        style = STYLES[first.severity]
        head: Line = [
            Segment(safe(group.title), theme.STRONG if group.ids.isdisjoint(selected) else theme.TITLE),
            Segment(f"  {first.severity.name.lower()}", style),
        ]
        lines.append(cut(head, cells))
        for text, text_style in ((first.summary, theme.PLAIN), (callable_commands(group.action), theme.DIM)):
            lines += [
                [Segment(_INDENT + part, text_style)]
                for part in wrap_words(safe(text, _MAX_TEXT), cells - len(_INDENT))
            ]
    return lines


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
