"""Findings as lines with recommended actions; those about the selection come first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich.segment import Segment
from rich.style import Style

from gpumon.common.program import callable_commands
from gpumon.diagnosis.finding import Finding, FindingGroup, Severity, group_findings
from gpumon.diagnosis.gpu import nothing_found
from gpumon.model import units
from gpumon_tui import theme
from gpumon_tui.render.text_width import READING_HISTORY, Line, cut, safe, width

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


def wrap_words(text: str, cells: int) -> Iterator[str]:
    """Wrap `text` into lines of at most `cells` cells, at least one. Longer words, such as ids, are split."""
    cells = max(1, cells)
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and width(longer) > cells:
            yield line
            longer = word
        while width(longer) > cells:
            end = next(
                length
                for length in range(1, len(longer) + 1)
                if length == len(longer) or width(longer[: length + 1]) > cells
            )
            yield longer[:end]
            longer = longer[end:]
        line = longer
    if line:
        yield line


def wrap_limited(text: str, cells: int, max_lines: int) -> list[str]:
    """Wrap `text` into at most `max_lines` lines; an ellipsis marks truncated text."""
    lines = list(wrap_words(text, cells))
    if len(lines) <= max_lines:
        return lines
    last = lines[max_lines - 1]
    while last and width(last) > cells - 2:
        last = last.rpartition(" ")[0]
    return [*lines[: max_lines - 1], f"{last} …".lstrip()]


def count_text(groups: Sequence[FindingGroup]) -> str:
    """Return the number of findings as text: `2 findings`; empty for none."""
    return units.counted(len(groups), "finding") if groups else ""


def brief_count_text(groups: Sequence[FindingGroup]) -> str:
    """Return a short form: `△2`, or `▲2` if one of them is critical; empty for none."""
    is_critical = any(group.first.severity is Severity.CRITICAL for group in groups)
    return f"{'▲' if is_critical else '△'}{len(groups)}" if groups else ""
