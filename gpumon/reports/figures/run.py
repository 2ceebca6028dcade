"""A run on one device: utilization, memory, power, temperature and what was logged, on one time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import gmtime, localtime, strftime
from typing import Any

from gpumon.analysis.memory import BREAKDOWN_METRICS, PARTS, MemoryBreakdown, memory_breakdown, titles
from gpumon.analysis.rank_epochs import Span
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Mark
from gpumon.model.metrics import BY_NAME, Unit
from gpumon.reports.figures.axes import (
    instant,
    literal,
    longest,
    note,
    numbers_of,
    out_of_memory_caption,
    out_of_memory_line,
    placed,
    scale_of,
    whole_stretches,
)
from gpumon.reports.figures.logged import NAME_CELLS, Diverged, logged_lines
from gpumon.reports.figures.run_series import RunSeries, diverged_points
from gpumon.storage.ledger.records import DeviceRow, MarkRow
from gpumon.storage.ledger.summary import EpochSummary


def band_shape(begin: float, end: float, color: str) -> dict[str, Any]:
    """Return one stretch (s since 1970) as a shape."""
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": instant(begin), "x1": instant(end), "y0": 0, "y1": 1,
        "fillcolor": color, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


COLORS = ("@u0/0.85", "@u0/0.4", "@u4/0.6", "@u1/0.65", "@u7/0.1", "@u7/0.35")
"""Of the parts of the device's memory, in the order of `memory.PARTS`."""
_UNDIVIDED = MemoryBreakdown(allocated=NAN, cached=NAN, context=NAN, others=NAN, free=NAN, driver=NAN)
_SCALE = scale_of(Unit.BYTES, rate=False)


def memory_parts(series: RunSeries, device: DeviceRow | None) -> list[dict[str, Any]]:
    """Return the parts of the device's memory, a stack for each stretch between gaps: a stack has no gaps itself."""
    total = device.memory_total if device else NAN
    given = {**{name: [NAN] * series.points for name in BREAKDOWN_METRICS}, "gpu.memory_total": [total] * series.points}
    given |= {name: list(found.mean) for name, found in series.columns.items() if name in given}
    divided = [
        memory_breakdown(*amounts) or _UNDIVIDED
        for amounts in zip(*(given[name] for name in BREAKDOWN_METRICS), strict=True)
    ]
    names = titles(divided)
    stretches = longest(whole_stretches(numbers_of(given["gpu.memory_used"], 1, None)))
    lines: list[dict[str, Any]] = []
    for part, color, values in zip(PARTS, COLORS, zip(*divided, strict=True) if divided else (), strict=bool(divided)):
        cells = numbers_of(values, _SCALE.factor, 2)
        name = names[part.name]
        drawn = [(begin, end) for begin, end in stretches if any(cells[begin:end])]
        lines += [
            {
                "mode": "lines", "line": {"width": 0, "color": color}, "fillcolor": color, "y": cells[begin:end],
                "stackgroup": f"memory{begin}", "stackgaps": "infer zero", "name": name, "legendgroup": name,
                "showlegend": place == 0, "hovertemplate": f"%{{y}}{_SCALE.suffix}", **placed(series, begin),
            }
            for place, (begin, end) in enumerate(drawn)
        ]  # fmt: skip
    return lines


BANDS = 120
"""Epoch bands that are drawn; with more epochs, several are one band."""
SHADES = 200
"""Phases that are drawn."""
NUMBERS = 14
"""Bands that are numbered."""
_NAMED = 0.08
"""Share of the width from which on a gap has room for its name."""


def _grouped(epochs: Sequence[EpochSummary]) -> list[tuple[float, float, str]]:
    """Bands: where they begin and end, and which epochs they are."""
    known = [epoch for epoch in epochs if is_known(epoch.begun)]
    every = next(step for step in _steps() if len(known) <= BANDS * step)
    bands = []
    for i in range(0, len(known), every):
        group = known[i : i + every]
        bands.append((group[0].begun, max(_end(epoch) for epoch in group), str(group[0].epoch)))
    return bands


def _end(epoch: EpochSummary) -> float:
    """Where an epoch ended, or how far it was seen."""
    if is_known(epoch.ended):
        return epoch.ended
    return epoch.begun + (epoch.seconds if epoch.seconds > 0 else 0.0)


def _steps() -> Iterator[int]:
    step = 1
    while True:
        yield from (step, 2 * step, 5 * step)
        step *= 10


def epoch_bands(epochs: Sequence[EpochSummary]) -> Iterator[dict[str, Any]]:
    """Yield a shape behind every second epoch; of many, several are one band."""
    for i, (begun, ended, _) in enumerate(_grouped(epochs)):
        if i % 2 == 0:
            yield band_shape(begun, ended, "@u3/0.09")


def phase_shades(spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """Phases that are no training; so many of them would only be a haze."""
    for span in spans if len(spans) <= SHADES else ():
        yield band_shape(span.begin, span.end, "@u4/0.16")


def epoch_numbers(epochs: Sequence[EpochSummary]) -> Iterator[dict[str, Any]]:
    """Yield the numbers of as many bands as have room, and the word for them."""
    bands = _grouped(epochs)
    every = next(step for step in _steps() if len(bands) <= NUMBERS * step)
    for begun, ended, text in bands[::every]:
        yield note(text, instant((begun + ended) / 2 if every == 1 else begun), 1, xref="x", yanchor="bottom", yshift=2)
    if bands:
        yield note("epoch", 0, 1, xanchor="right", yanchor="bottom", xshift=-8, yshift=2)


def unsampled(series: RunSeries) -> list[tuple[float, float]]:
    """Where nothing was sampled: from and to, in seconds since 1970."""
    used = series.columns.get("gpu.memory_used") or series.columns.get("gpu.utilization")
    missing = [None if is_known(value) else 0.0 for value in used.mean] if used else []
    return [
        (series.begun + begin * series.step, series.begun + end * series.step)
        for begin, end in longest(whole_stretches(missing))
    ]


def gap_shades(series: RunSeries) -> Iterator[dict[str, Any]]:
    """A shade and, where there is room, a word for each stretch that was not sampled."""
    for begin, end in unsampled(series):
        wide = end - begin > series.points * series.step * _NAMED
        yield band_shape(begin, end, "@u7/0.16") | (
            {"label": {"text": "not sampled", "textposition": "top center", "font": {"color": "@mut", "size": 11}}}
            if wide
            else {}
        )


def out_of_memory_lines(marks: Sequence[MarkRow]) -> Iterator[dict[str, Any]]:
    """Yield a line for each error."""
    yield from (out_of_memory_line(mark.time) for mark in marks if mark.mark is Mark.OUT_OF_MEMORY)


def out_of_memory_captions(marks: Sequence[MarkRow]) -> Iterator[dict[str, Any]]:
    """Yield what the first of these lines say."""
    yield from (out_of_memory_caption(mark.time) for mark in marks[:NUMBERS] if mark.mark is Mark.OUT_OF_MEMORY)


def time_range(series: RunSeries, epochs: Sequence[EpochSummary]) -> list[int] | None:
    """Return the begin and the end of all that is known, in ms since 1970; None where nothing is."""
    begins = [epoch.begun for epoch in epochs if is_known(epoch.begun)]
    ends = [_end(epoch) for epoch in epochs if is_known(epoch.begun)]
    if series.points:
        begins.append(series.begun)
        ends.append(series.begun + series.points * series.step)
    return [instant(min(begins)), instant(max(ends))] if begins and ends else None


LOGGED = 6
"""Logged metrics that get a panel."""
_PANEL = 132
_MARGIN = 64
"""Heights of a panel, and of what is above all of them, in pixels."""


Figure = dict[str, Any]
Line = dict[str, Any]


def figure(
    series: RunSeries,
    logged: RunSeries,
    device: DeviceRow | None,
    epochs: Sequence[EpochSummary],
    marks: Sequence[MarkRow],
    spans: Sequence[Span] = (),
    diverged: Diverged | None = None,
    whole: RunSeries | None = None,
    over: float = NAN,
) -> Figure:
    """Utilization, memory, power, temperature and what was logged, on one time axis with the epochs behind.

    `spans`: the phases that are no training, which are shaded. `diverged`: what was logged and is no number,
    else as `logged` has it. `whole`: the lines of the whole run, where `series` are those of a part of it: the figure
    has the same panels and the same axis. `over`: when the run ended, in s since 1970; NaN while it goes on.
    """
    diverged = diverged or diverged_points(logged)
    whole = whole or series
    panels = list(_panels(series, logged, device, epochs, diverged, over))
    of_whole = panels if whole is series else _panels(whole, logged, device, epochs, diverged, over)
    panels = [panel for panel, (_, lines, _) in zip(panels, of_whole, strict=True) if lines]
    height = 1 / max(1, len(panels))
    data: list[Line] = []
    layout: dict[str, Any] = {
        "height": _MARGIN + 40 + _PANEL * max(1, len(panels)),
        "margin": {"l": 58, "r": 18, "t": _MARGIN - 20, "b": 40},
        "hovermode": "x unified", "hoversubplots": "axis", "dragmode": "zoom", "showlegend": True,
        "paper_bgcolor": "@card/0", "plot_bgcolor": "@card/0", "font": {"color": "@mut", "size": 11},
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@line", "font": {"color": "@ink", "size": 11}},
        "xaxis": {
            "type": "date", "range": time_range(whole, epochs), "gridcolor": "@line/0", "linecolor": "@line",
            "zeroline": False,
            "showspikes": True, "spikemode": "across", "spikesnap": "cursor", "spikethickness": 1, "spikedash": "solid",
            "spikecolor": "@mut/0.5", "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
            "hoverformat": "%Y-%m-%d %H:%M:%S",
        },
        "shapes": [*epoch_bands(epochs), *phase_shades(spans), *gap_shades(series), *out_of_memory_lines(marks)],
        "annotations": [*epoch_numbers(epochs), *out_of_memory_captions(marks)],
    }  # fmt: skip
    for place, (title, lines, axis) in enumerate(panels):
        name = "" if place == 0 else str(place + 1)
        top = 1 - place * height
        layout[f"yaxis{name}"] = {
            "domain": [top - height + 0.015, top - height * 0.2], "gridcolor": "@line/0.7", "zeroline": False,
            "nticks": 4, "fixedrange": True, **axis,
        }  # fmt: skip
        layout["annotations"].append(note(title, 0, top - height * 0.2, xanchor="left", yanchor="bottom", color="@ink"))
        if any(line.get("showlegend") for line in lines):
            layout["legend"] = {
                "orientation": "h", "x": 1, "xanchor": "right", "y": top - height * 0.2, "yanchor": "bottom",
                "traceorder": "normal", "font": {"size": 11}, "bgcolor": "@card/0",
            }  # fmt: skip
        data += [{"xaxis": "x", "yaxis": f"y{name}", "showlegend": False, **line} for line in lines]
    if series.points and data:
        data.append(_where(series, epochs, spans))
    return {"data": data, "layout": layout}


def _panels(
    series: RunSeries,
    logged: RunSeries,
    device: DeviceRow | None,
    epochs: Sequence[EpochSummary],
    diverged: Diverged,
    over: float,
) -> Iterator[tuple[str, list[Line], dict[str, Any]]]:
    columns = series.columns
    if "gpu.utilization" in columns:
        axis = {"range": [0, 103], "tickvals": [0, 50, 100], "ticktext": ["0 %", "50 %", "100 %"]}
        yield BY_NAME["gpu.utilization"].title, _banded(series, "gpu.utilization", "@u2"), axis
    in_bytes = scale_of(Unit.BYTES, rate=False)
    yield BY_NAME["gpu.memory_used"].title, memory_parts(series, device), {
        "rangemode": "tozero", "ticksuffix": in_bytes.suffix,
        **({"range": [0, device.memory_total * in_bytes.factor]} if device and device.memory_total > 0 else {}),
    }  # fmt: skip
    for name, color in (("gpu.power", "@u1"), ("gpu.temperature", "@u5")):
        if name in columns:
            lines = _banded(series, name, color)
            axis = {"ticksuffix": scale_of(BY_NAME[name].unit, rate=False).suffix}
            if name == "gpu.power":
                axis["rangemode"] = "tozero"
            yield BY_NAME[name].title, lines, axis
    for i, (name, lines) in enumerate(logged_lines(logged, epochs, unsampled(series), diverged, over)[:LOGGED]):
        look = {"color": f"@u{(3, 6, 4, 0, 2, 1)[i % 6]}"}
        drawn = [
            {**line, "line": {**look, "width": 1.6}, "marker": {**look, **line.get("marker", {})}} for line in lines
        ]
        yield literal(name, NAME_CELLS), drawn, {}


def _banded(series: RunSeries, name: str, color: str) -> list[Line]:
    """The mean as a line, and behind it from the smallest to the largest."""
    found = series.columns[name]
    scale = scale_of(BY_NAME[name].unit, rate=False)
    low, mean, high = (numbers_of(part, scale.factor, 1) for part in found)
    if not any(value is not None for value in mean):
        return []
    lines: list[Line] = []
    # Plotly would fill across a gap: each stretch without one is a pair of edges by itself.
    for begin, end in longest(whole_stretches(mean)) if low != high else ():
        edge = {
            "mode": "lines", "line": {"width": 0, "color": color}, "hoverinfo": "skip", "name": "",
            **placed(series, begin),
        }  # fmt: skip
        lines += [
            {**edge, "y": high[begin:end]},
            {**edge, "y": low[begin:end], "fill": "tonexty", "fillcolor": f"{color}/0.2"},
        ]
    lines.append({
        "mode": "lines", "line": {"width": 1.4, "color": color}, "y": mean, "name": BY_NAME[name].title,
        "hovertemplate": f"%{{y}}{scale.suffix}", **placed(series),
    })  # fmt: skip
    return lines


def _where(series: RunSeries, epochs: Sequence[EpochSummary], spans: Sequence[Span]) -> Line:
    """An invisible line that tells the epoch and phase under the pointer."""
    texts = []
    place = phase = 0
    for point in range(series.points):
        time = series.begun + (point + 0.5) * series.step
        while place + 1 < len(epochs) and epochs[place + 1].begun <= time:
            place += 1
        inside = epochs and epochs[place].begun <= time and not time > epochs[place].ended
        while phase < len(spans) and spans[phase].end <= time:
            phase += 1
        within = (
            f", {literal(spans[phase].phase, NAME_CELLS)}" if phase < len(spans) and spans[phase].begin <= time else ""
        )
        texts.append(f"epoch {epochs[place].epoch}{within}" if inside else "between epochs")
    return {
        "mode": "lines", "line": {"width": 0, "color": "@mut"}, "y": [0] * series.points, "text": texts, "name": "",
        "hovertemplate": "%{text}<extra></extra>", "xaxis": "x", "yaxis": "y", "showlegend": False, **placed(series),
    }  # fmt: skip


def dated(figure: Figure) -> Figure:
    """`figure` with its times, milliseconds since 1970, as dates in this machine's time zone.

    Where the clocks are changed within it, all times are by those at its end, which the axis says: else an hour would
    lie over another one, or be missing.
    """
    layout = figure["layout"]
    axis = layout["xaxis"]
    # A damaged ledger may not know when its run was.
    known = axis.get("range") or [time for line in figure["data"] for time in line.get("x", ())] or [0.0]
    begin, end = known[0], known[-1]
    ahead = _ahead(end)
    title = {} if _ahead(begin) == ahead else {"title": {"text": _zone(ahead), "font": {"size": 11}}}
    return {
        **figure,
        "data": [_with_days(line, ahead, ("x0",), ("x",)) for line in figure["data"]],
        "layout": {
            **layout,
            "xaxis": {**_with_days(axis, ahead, (), ("range",)), **title},
            "shapes": [_with_days(shape, ahead, ("x0", "x1")) for shape in layout["shapes"]],
            "annotations": [
                _with_days(note, ahead, ("x",) if note["xref"] == "x" else ()) for note in layout["annotations"]
            ],
        },
    }


def _with_days(of: dict[str, Any], ahead: int, single: Sequence[str], many: Sequence[str] = ()) -> dict[str, Any]:
    found = {**of, **{name: _day(of[name], ahead) for name in single if of.get(name) is not None}}
    return {**found, **{name: [_day(time, ahead) for time in of[name]] for name in many if of.get(name) is not None}}


def _day(milliseconds: float, ahead: int) -> str:
    try:
        text = strftime("%Y-%m-%d %H:%M:%S", gmtime(milliseconds // 1000 + ahead))
    except (OverflowError, OSError, ValueError):
        return "1970-01-01"
    return f"{text}.{int(milliseconds % 1000):03}"


def _ahead(milliseconds: float) -> int:
    """Seconds by which this machine's time of day is ahead of UTC then."""
    try:
        return localtime(milliseconds / 1000).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        return 0


def _zone(ahead: int) -> str:
    hours, minutes = divmod(abs(ahead) // 60, 60)
    size = f"{hours}:{minutes:02}" if minutes else f"{hours}"
    return f"times in UTC{'+' if ahead >= 0 else '−'}{size}: the clocks were changed"
