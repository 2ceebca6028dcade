"""A row that tells apart the lines that are laid over the large chart, where no panel beside it does."""

from __future__ import annotations

from string import ascii_lowercase

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon_tui import palette, theme
from gpumon_tui.look import Depth
from gpumon_tui.pages.chart.state import UNKNOWN, ChartState, Overlay, ReadOut
from gpumon_tui.renderables.text_width import Line, length
from gpumon_tui.renderables.value_axis import shown

_LINE = "⠒⠒"
_PEERS, _OWN = "o", "#"
"""Letters on the line of the run's other GPUs, and on that of a GPU whose number has several digits."""
_ROOMY = 60
"""Cells of a page that has room for words."""


def mark_of(state: ChartState, place: int) -> str:
    """Return the letter on an overlaid line where lines have no colors; empty elsewhere, and for one of many others.

    It is the GPU's own number where all numbers are of one digit.
    """
    if state.view.look.depth is not Depth.NONE:
        return ""
    if state.overlay is Overlay.PEERS:
        return _PEERS
    if state.role_at(place) == "faint":
        return ""
    labels = {one.device.uuid: one.device.label for one in state.view.samples}
    if all(len(label) == 1 for label in labels.values()):
        return labels.get(state.overlaid[place], "")
    return ascii_lowercase[place % len(ascii_lowercase)]


def mark_of_own(state: ChartState) -> str:
    """Return the letter on the line of the chart's own GPU, where others are laid over it and none has a color."""
    sample = state.view.sample
    if not state.overlaid or sample is None or state.view.look.depth is not Depth.NONE:
        return ""
    return sample.device.label if len(sample.device.label) == 1 else _OWN


def joined(values: list[ReadOut]) -> ReadOut:
    """Return the lowest, the mean and the highest of several."""
    known = [value for value in values if is_known(value.mean)]
    if not known:
        return UNKNOWN
    mean = sum(value.mean for value in known) / len(known)
    return ReadOut(min(value.low for value in known), mean, max(value.high for value in known))


def values_of(state: ChartState) -> list[ReadOut]:
    """Return the values of the overlaid GPUs at the cursor, or those of now."""
    name, read = state.metric.name, state.read_out()
    if read:
        return [read.get(uuid, {}).get(name, UNKNOWN) for uuid in state.overlaid]
    return [UNKNOWN._replace(mean=state.now(uuid, name)) for uuid in state.overlaid]


def peers_line(state: ChartState, cells: int) -> Line:
    """Return what the line of the run's other GPUs is, and its value; empty where there is none."""
    if state.overlay is not Overlay.PEERS or not state.overlaid:
        return []
    values = [value for value in values_of(state) if is_known(value.mean)]
    mean = joined(values).mean
    how = shown(state.metric, mean if is_known(mean) else 0.0)
    several = f" {'mean of ' if cells >= _ROOMY else ''}{len(values)} peers " if values else " its peers "
    text = " its peer " if len(values) == 1 else several
    line = f"{_LINE[0]}{_PEERS}{_LINE[1]}" if mark_of(state, 0) else _LINE
    return [Segment(f"  {line}", theme.FAINT), Segment(text, theme.DIM), Segment(f"{how.text(mean)} {how.unit}")]


def legend_row(state: ChartState, cells: int) -> Line:
    """Return each overlaid GPU in the color of its line, with its value where all have room."""
    margin = " " if cells < 100 else "  "
    labels = {one.device.uuid: one.device.label for one in state.view.samples}
    values = values_of(state)
    how = shown(state.metric, max((one.mean for one in values if is_known(one.mean)), default=0.0))
    told: list[tuple[str, str, str]] = [
        (state.role_at(place), _named(mark_of(state, place), labels.get(uuid, "")), how.text(value.mean))
        for place, (uuid, value) in enumerate(zip(state.overlaid, values, strict=True))
    ]
    colored = [one for one in told if one[0] != "faint"]
    rest = len(told) - len(colored)
    head = [Segment(margin), Segment(f"{_LINE} GPU ", theme.DIM)]
    unit = [Segment(how.unit if how.unit == "%" else f" {how.unit}", theme.FAINT)] if how.unit else []
    others: Line = [Segment(f"  {_LINE} {rest} others", theme.FAINT)] if rest else []
    for line in (
        [*head, *_each(colored, "  ", has_values=True), *unit, *others],
        [*head, *_each(colored, "  ", has_values=False), *others],
    ):
        if length(line) <= cells:
            return line
    return [Segment(margin), *_each(colored, " ", has_values=False), *others]


def _named(mark: str, label: str) -> str:
    """The number of a GPU, with the letter on its line where that is another one."""
    return f"{mark}={label}" if mark not in ("", label) else label


def _each(told: list[tuple[str, str, str]], gap: str, *, has_values: bool) -> Line:
    line: Line = []
    for role, label, value in told:
        line.append(Segment(f"{gap if line else ''}{label}", palette.ink(role, bold=True)))
        if has_values:
            line.append(Segment(f" {value}", theme.PLAIN))
    return line
