"""The confirmation dialog before a signal, as lines of a box."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from gpumon_tui import palette
from gpumon_tui.data.signals import SignalChoice
from gpumon_tui.render.process_head import ClickRange
from gpumon_tui.render.text_width import Line, fit, length

_STRONG, _TEXT, _DIM = palette.ink("strong", bold=True), palette.ink("text"), palette.ink("dim")
_KEY, _CRIT = palette.ink("key", bold=True), palette.ink("crit")
_SELECTED, _SELECTED_DIM = palette.ink("strong", "select", bold=True), palette.ink("dim", "select")
_SELECTED_KEY = palette.ink("key", "select", bold=True)
_FOCUS, _FOCUS_CRIT = palette.ink("ground", "key", bold=True), palette.ink("ground", "crit", bold=True)
_NO_STYLE, _YES_STYLE = palette.ink("text", "select"), palette.ink("crit", "select", bold=True)
NAME = 11
"""Width of the name of a signal."""


def dialog_lines(
    title: str, about: str, consequences: Sequence[tuple[str, bool]], choices: Sequence[SignalChoice], *,
    chosen: int, is_yes: bool, cells: int, rows: int,
) -> tuple[list[Line], list[tuple[int, ClickRange]]]:  # fmt: skip
    """Return the lines and the clickable areas (row and cells) of `choice N`, `no` and `yes`.

    `cells` and `rows` are the available size; if it is small, blank lines and explanations are dropped first.
    """
    ranges: list[tuple[int, ClickRange]] = []
    has_few_rows = rows < len(consequences) + len(choices) + 8
    blank: list[Line] = [] if has_few_rows else [[]]
    lines: list[Line] = [[Segment(title, _STRONG), Segment(f"   {about}" if about else "", _DIM)], *blank]
    for text, is_critical in consequences:
        lines += [[Segment(part, _CRIT if is_critical else _TEXT)] for part in _wrapped(text, cells)]
    lines += blank
    effect_cells = max((len(choice.effect) + len(choice.number.name) + 2 for choice in choices), default=0)
    choice_cells = min(cells, 4 + NAME + effect_cells + 2)
    for index, (key, name, number, effect) in enumerate(choices):
        description = fit(f"{number.name}: {effect}", choice_cells - 4 - NAME)
        key_style, name_style, effect_style = (
            (_SELECTED_KEY, _SELECTED, _SELECTED_DIM) if index == chosen else (_KEY, _TEXT, _DIM)
        )
        ranges.append((len(lines), ClickRange(0, choice_cells, f"choice {index}")))
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
        (len(lines), ClickRange(0, len(no), "no")),
        (len(lines), ClickRange(len(no) + 3, len(no) + 3 + len(yes), "yes")),
    ]
    hint: Line = [Segment("   Tab", _KEY), Segment(" choose  ", _DIM), Segment("Esc", _KEY), Segment(" close", _DIM)]
    lines.append([*buttons, *hint] if length(buttons) + length(hint) <= cells else buttons)
    return lines, ranges


def _wrapped(text: str, cells: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > cells:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".lstrip()
    return [*lines, line]
