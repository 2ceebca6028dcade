"""The figures of a report, as the plain dicts that Plotly draws. Pure: no Plotly here.

Times are milliseconds since 1970, as Plotly takes them: it draws a number in the viewer's time zone.
A colour is a name of `report.css` behind an @ (`@u0`, `@u0/0.2` with an opacity): the page puts in
those of the viewer's theme. Text of strangers is escaped, because Plotly takes `<b>` and `<a>` in any text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gpumon.analysis.epochs import Span
from gpumon.analysis.memory import OF, PARTS, Split, divide, titles
from gpumon.figures.axes import instant, numbers_of, placed, plain_text
from gpumon.figures.logged import Diverged, logged_lines
from gpumon.figures.run_series import RunSeries, diverged_points
from gpumon.frame import NAN, Mark
from gpumon.ledger.aggregate import EpochSummary
from gpumon.ledger.records import DeviceRow, MarkRow
from gpumon.metrics import BY_NAME

BANDS = 120
"""Epoch bands that are drawn; with more epochs, several are one band."""
SHADES = 200
"""Phases that are drawn."""
NUMBERS = 14
"""Bands that are numbered."""
GAPS = 50
"""Stretches between gaps that are drawn with all that is theirs: the longest."""
LOGGED = 6
"""Logged metrics that get a panel."""
_PANEL = 132
_MARGIN = 64
"""Heights of a panel, and of what is above all of them, in pixels."""
_NAMED = 0.08
"""Share of the width from which on a gap has room for its name."""
_GIB = 2.0**30

_UNDIVIDED = Split(NAN, NAN, NAN, NAN, NAN, NAN)

Figure = dict[str, Any]
Line = dict[str, Any]


COLOURS = ("@u0/0.85", "@u0/0.4", "@u4/0.6", "@u1/0.65", "@u7/0.1", "@u7/0.35")
"""Of the parts of the device's memory, in the order of `memory.PARTS`."""


def figure(
    course: RunSeries,
    logged: RunSeries,
    device: DeviceRow | None,
    epochs: Sequence[EpochSummary],
    marks: Sequence[MarkRow],
    spans: Sequence[Span] = (),
    diverged: Diverged | None = None,
) -> Figure:
    """Utilization, memory, power, temperature and what was logged, on one time axis with the epochs behind.

    `spans`: the phases that are no training, which are shaded. `diverged`: what was logged and is no number,
    else as `logged` has it.
    """
    panels = [
        panel for panel in _panels(course, logged, device, epochs, diverged or diverged_points(logged)) if panel[1]
    ]
    height = 1 / max(1, len(panels))
    data: list[Line] = []
    layout: dict[str, Any] = {
        "height": _MARGIN + 40 + _PANEL * max(1, len(panels)),
        "margin": {"l": 58, "r": 18, "t": _MARGIN - 20, "b": 40},
        "hovermode": "x unified", "hoversubplots": "axis", "dragmode": "zoom", "showlegend": True,
        "paper_bgcolor": "@card/0", "plot_bgcolor": "@card/0", "font": {"color": "@mut", "size": 11},
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@line", "font": {"color": "@ink", "size": 11}},
        "xaxis": {
            "type": "date", "range": _range(course, epochs), "gridcolor": "@line/0", "linecolor": "@line",
            "zeroline": False,
            "showspikes": True, "spikemode": "across", "spikesnap": "cursor", "spikethickness": 1, "spikedash": "solid",
            "spikecolor": "@mut/0.5", "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
            "hoverformat": "%Y-%m-%d %H:%M:%S",
        },
        "shapes": [*_bands(epochs), *_shades(spans), *_gaps(course), *_deaths(marks)],
        "annotations": [*_numbers(epochs), *_captions(marks)],
    }  # fmt: skip
    for place, (title, lines, axis) in enumerate(panels):
        name = "" if place == 0 else str(place + 1)
        top = 1 - place * height
        layout[f"yaxis{name}"] = {
            "domain": [top - height + 0.015, top - height * 0.2], "gridcolor": "@line/0.7", "zeroline": False,
            "nticks": 4, "fixedrange": True, **axis,
        }  # fmt: skip
        layout["annotations"].append(
            _note(title, 0, top - height * 0.2, xanchor="left", yanchor="bottom", colour="@ink")
        )
        if any(line.get("showlegend") for line in lines):
            layout["legend"] = {
                "orientation": "h", "x": 1, "xanchor": "right", "y": top - height * 0.2, "yanchor": "bottom",
                "traceorder": "normal", "font": {"size": 11}, "bgcolor": "@card/0",
            }  # fmt: skip
        data += [{"xaxis": "x", "yaxis": f"y{name}", "showlegend": False, **line} for line in lines]
    if course.points and data:
        data.append(_where(course, epochs, spans))
    return {"data": data, "layout": layout}


def _panels(
    course: RunSeries, logged: RunSeries, device: DeviceRow | None, epochs: Sequence[EpochSummary], diverged: Diverged
) -> Iterator[tuple[str, list[Line], dict[str, Any]]]:
    columns = course.columns
    if "gpu.utilization" in columns:
        axis = {"range": [0, 103], "tickvals": [0, 50, 100], "ticktext": ["0 %", "50 %", "100 %"]}
        yield BY_NAME["gpu.utilization"].title, _banded(course, "gpu.utilization", 100.0, 1, "@u2", " %"), axis
    yield BY_NAME["gpu.memory_used"].title, _memory(course, device), {
        "rangemode": "tozero", "ticksuffix": " GiB",
        **({"range": [0, device.memory_total / _GIB]} if device and device.memory_total > 0 else {}),
    }  # fmt: skip
    for name, colour, suffix in (("gpu.power", "@u1", " W"), ("gpu.temperature", "@u5", " °C")):
        if name in columns:
            lines = _banded(course, name, 1.0, 1, colour, suffix)
            axis = {"ticksuffix": suffix}
            if name == "gpu.power":
                axis["rangemode"] = "tozero"
            yield BY_NAME[name].title, lines, axis
    for i, (name, lines) in enumerate(logged_lines(logged, epochs, _unsampled(course), diverged)[:LOGGED]):
        look = {"color": f"@u{(3, 6, 4, 0, 2, 1)[i % 6]}"}
        drawn = [
            {**line, "line": {**look, "width": 1.6}, "marker": {**look, **line.get("marker", {})}} for line in lines
        ]
        yield plain_text(name), drawn, {}


def _banded(course: RunSeries, name: str, scale: float, digits: int, colour: str, suffix: str) -> list[Line]:
    """The mean as a line, and behind it from the smallest to the largest."""
    found = course.columns[name]
    low, mean, high = (numbers_of(part, scale, digits) for part in found)
    if not any(value is not None for value in mean):
        return []
    lines: list[Line] = []
    # Plotly would fill across a gap: each stretch without one is a pair of edges by itself.
    for begin, end in _longest(_whole_stretches(mean)) if low != high else ():
        edge = {
            "mode": "lines", "line": {"width": 0, "color": colour}, "hoverinfo": "skip", "name": "",
            **placed(course, begin),
        }  # fmt: skip
        lines += [
            {**edge, "y": high[begin:end]},
            {**edge, "y": low[begin:end], "fill": "tonexty", "fillcolor": f"{colour}/0.2"},
        ]
    lines.append({
        "mode": "lines", "line": {"width": 1.4, "color": colour}, "y": mean, "name": BY_NAME[name].title,
        "hovertemplate": f"%{{y}}{suffix}", **placed(course),
    })  # fmt: skip
    return lines


def _whole_stretches(values: Sequence[float | None]) -> list[tuple[int, int]]:
    """Where values are, without a gap: from each first to behind each last place."""
    found = []
    begin = -1
    for i, value in enumerate([*values, None]):
        if value is not None:
            begin = i if begin < 0 else begin
        elif begin >= 0:
            found.append((begin, i))
            begin = -1
    return found


def _longest(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest `GAPS` of some stretches, in their order."""
    return sorted(sorted(stretches, key=lambda stretch: stretch[0] - stretch[1])[:GAPS])


def _memory(course: RunSeries, device: DeviceRow | None) -> list[Line]:
    """What the device's memory holds, part on part; a stack for each stretch between gaps, as it has no gaps itself."""
    total = device.memory_total if device else NAN
    given = {**{name: [NAN] * course.points for name in OF}, "gpu.memory_total": [total] * course.points}
    given |= {name: list(found.mean) for name, found in course.columns.items() if name in given}
    divided = [divide(*amounts) or _UNDIVIDED for amounts in zip(*(given[name] for name in OF), strict=True)]
    names = titles(divided)
    stretches = _longest(_whole_stretches(numbers_of(given["gpu.memory_used"], 1, None)))
    lines: list[Line] = []
    for part, colour, values in zip(
        PARTS, COLOURS, zip(*divided, strict=True) if divided else (), strict=bool(divided)
    ):
        cells = numbers_of(values, 1 / _GIB, 2)
        name = names[part.name]
        drawn = [(begin, end) for begin, end in stretches if any(cells[begin:end])]
        lines += [
            {
                "mode": "lines", "line": {"width": 0, "color": colour}, "fillcolor": colour, "y": cells[begin:end],
                "stackgroup": f"memory{begin}", "stackgaps": "infer zero", "name": name, "legendgroup": name,
                "showlegend": place == 0, "hovertemplate": "%{y} GiB", **placed(course, begin),
            }
            for place, (begin, end) in enumerate(drawn)
        ]  # fmt: skip
    return lines


def _where(course: RunSeries, epochs: Sequence[EpochSummary], spans: Sequence[Span]) -> Line:
    """An invisible line that tells the epoch and phase under the pointer."""
    texts = []
    place = phase = 0
    for point in range(course.points):
        time = course.begun + (point + 0.5) * course.step
        while place + 1 < len(epochs) and epochs[place + 1].begun <= time:
            place += 1
        inside = epochs and epochs[place].begun <= time and not time > epochs[place].ended
        while phase < len(spans) and spans[phase].end <= time:
            phase += 1
        within = f", {plain_text(spans[phase].phase)}" if phase < len(spans) and spans[phase].begin <= time else ""
        texts.append(f"epoch {epochs[place].epoch}{within}" if inside else "between epochs")
    return {
        "mode": "lines", "line": {"width": 0, "color": "@mut"}, "y": [0] * course.points, "text": texts, "name": "",
        "hovertemplate": "%{text}<extra></extra>", "xaxis": "x", "yaxis": "y", "showlegend": False, **placed(course),
    }  # fmt: skip


def _grouped(epochs: Sequence[EpochSummary]) -> list[tuple[float, float, str]]:
    """Bands: where they begin and end, and which epochs they are."""
    known = [epoch for epoch in epochs if not math.isnan(epoch.begun)]
    every = next(step for step in _steps() if len(known) <= BANDS * step)
    bands = []
    for i in range(0, len(known), every):
        group = known[i : i + every]
        bands.append((group[0].begun, max(_end(epoch) for epoch in group), str(group[0].epoch)))
    return bands


def _end(epoch: EpochSummary) -> float:
    """Where an epoch ended, or how far it was seen."""
    if epoch.ended == epoch.ended:
        return epoch.ended
    return epoch.begun + (epoch.seconds if epoch.seconds > 0 else 0.0)


def _steps() -> Iterator[int]:
    step = 1
    while True:
        yield from (step, 2 * step, 5 * step)
        step *= 10


def _bands(epochs: Sequence[EpochSummary]) -> Iterator[Line]:
    for i, (begun, ended, _) in enumerate(_grouped(epochs)):
        if i % 2 == 0:
            yield _band(begun, ended, "@u3/0.09")


def _shades(spans: Sequence[Span]) -> Iterator[Line]:
    """Phases that are no training; so many of them would only be a haze."""
    for span in spans if len(spans) <= SHADES else ():
        yield _band(span.begin, span.end, "@u4/0.16")


def _numbers(epochs: Sequence[EpochSummary]) -> Iterator[Line]:
    bands = _grouped(epochs)
    every = next(step for step in _steps() if len(bands) <= NUMBERS * step)
    for begun, ended, text in bands[::every]:
        yield _note(
            text, instant((begun + ended) / 2 if every == 1 else begun), 1, xref="x", yanchor="bottom", yshift=2
        )
    if bands:
        yield _note("epoch", 0, 1, xanchor="right", yanchor="bottom", xshift=-8, yshift=2)


def _unsampled(course: RunSeries) -> list[tuple[float, float]]:
    """Where nothing was sampled: from and to, in seconds since 1970."""
    used = course.columns.get("gpu.memory_used") or course.columns.get("gpu.utilization")
    missing = [None if value == value else 0.0 for value in used.mean] if used else []
    return [
        (course.begun + begin * course.step, course.begun + end * course.step)
        for begin, end in _longest(_whole_stretches(missing))
    ]


def _gaps(course: RunSeries) -> Iterator[Line]:
    """A shade and, where there is room, a word for each stretch that was not sampled."""
    for begin, end in _unsampled(course):
        wide = end - begin > course.points * course.step * _NAMED
        yield _band(begin, end, "@u7/0.16") | (
            {"label": {"text": "not sampled", "textposition": "top center", "font": {"color": "@mut", "size": 11}}}
            if wide
            else {}
        )


def _deaths(marks: Sequence[MarkRow]) -> Iterator[Line]:
    for mark in marks:
        if mark.mark is Mark.OUT_OF_MEMORY:
            at = instant(mark.time)
            yield {
                "type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1,
                "line": {"color": "@bad", "width": 1.5, "dash": "dot"},
            }  # fmt: skip


def _captions(marks: Sequence[MarkRow]) -> Iterator[Line]:
    for mark in marks[:NUMBERS]:
        if mark.mark is Mark.OUT_OF_MEMORY:
            yield _note(
                "out of memory",
                instant(mark.time),
                0,
                xref="x",
                yanchor="bottom",
                xanchor="left",
                xshift=3,
                colour="@bad",
            )


def _band(begun: float, ended: float, colour: str) -> Line:
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": instant(begun), "x1": instant(ended), "y0": 0, "y1": 1,
        "fillcolor": colour, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def _note(text: str, x: float | str, y: float, colour: str = "@mut", **place: Any) -> Line:
    return {
        "text": text, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False,
        "font": {"color": colour, "size": 11}, **place,
    }  # fmt: skip


def _range(course: RunSeries, epochs: Sequence[EpochSummary]) -> list[int] | None:
    begins = [epoch.begun for epoch in epochs if epoch.begun == epoch.begun]
    ends = [_end(epoch) for epoch in epochs if epoch.begun == epoch.begun]
    if course.points:
        begins.append(course.begun)
        ends.append(course.begun + course.points * course.step)
    return [instant(min(begins)), instant(max(ends))] if begins and ends else None
