"""Figure of a run on one device. It shows utilization, memory, power, temperature and logged metrics over time."""

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
    band_shape,
    event_line,
    instant,
    json_numbers,
    known_ranges,
    literal,
    longest,
    note,
    out_of_memory_caption,
    scale_of,
    x_axis,
)
from gpumon.reports.figures.logged import NAME_CELLS, Diverged, logged_lines
from gpumon.reports.figures.run_series import RunSeries, diverged_points
from gpumon.storage.ledger.records import DeviceRow, MarkRow
from gpumon.storage.ledger.summary import EpochSummary

COLORS = ("@u0/0.85", "@u0/0.4", "@u4/0.6", "@u1/0.65", "@u7/0.1", "@u7/0.35")
"""Colors of the parts of device memory, in the order of `memory.PARTS`."""
_UNDIVIDED = MemoryBreakdown(allocated=NAN, cached=NAN, context=NAN, others=NAN, free=NAN, driver=NAN)
_SCALE = scale_of(Unit.BYTES, rate=False)


def memory_parts(series: RunSeries, device: DeviceRow | None) -> list[dict[str, Any]]:
    """Return the parts of the device's memory as stacked areas.

    Plotly cannot draw stacks with gaps, so there is a separate stack for each range between gaps.
    """
    total = device.memory_total if device else NAN
    inputs = {name: [NAN] * series.points for name in BREAKDOWN_METRICS}
    inputs["gpu.memory_total"] = [total] * series.points
    inputs |= {name: list(envelope.mean) for name, envelope in series.columns.items() if name in inputs}
    breakdowns = [
        memory_breakdown(*amounts) or _UNDIVIDED
        for amounts in zip(*(inputs[name] for name in BREAKDOWN_METRICS), strict=True)
    ]
    names = titles(breakdowns)
    ranges = longest(known_ranges(json_numbers(inputs["gpu.memory_used"], 1, None)))
    lines: list[dict[str, Any]] = []
    by_part = zip(*breakdowns, strict=True) if breakdowns else ()
    for part, color, values in zip(PARTS, COLORS, by_part, strict=bool(breakdowns)):
        cells = json_numbers(values, _SCALE.factor, 2)
        name = names[part.name]
        drawn = [(begin, end) for begin, end in ranges if any(cells[begin:end])]
        lines += [
            {
                "mode": "lines", "line": {"width": 0, "color": color}, "fillcolor": color, "y": cells[begin:end],
                "stackgroup": f"memory{begin}", "stackgaps": "infer zero", "name": name, "legendgroup": name,
                "showlegend": index == 0, "hovertemplate": f"%{{y}}{_SCALE.suffix}", **x_axis(series, begin),
            }
            for index, (begin, end) in enumerate(drawn)
        ]  # fmt: skip
    return lines


BANDS = 120
"""Largest number of epoch bands; with more epochs, a band covers several."""
SHADES = 200
"""Largest number of phases that are shaded. With more, none is shaded."""
NUMBERS = 14
"""Largest number of bands labeled with their epoch number."""
_MIN_LABELED = 0.08
"""Minimum width of a gap with a label, as a fraction of the figure's width."""


def _bands(epochs: Sequence[EpochSummary]) -> list[tuple[float, float, str]]:
    """Return the start and end of each band (s since 1970), and the number of its first epoch."""
    known = [epoch for epoch in epochs if is_known(epoch.begun)]
    every = next(step for step in _steps() if len(known) <= BANDS * step)
    bands = []
    for i in range(0, len(known), every):
        group = known[i : i + every]
        bands.append((group[0].begun, max(_end(epoch) for epoch in group), str(group[0].epoch)))
    return bands


def _end(epoch: EpochSummary) -> float:
    """Return the end of an epoch (s since 1970), or the time it was last seen if it has no recorded end."""
    if is_known(epoch.ended):
        return epoch.ended
    return epoch.begun + (epoch.seconds if epoch.seconds > 0 else 0.0)


def _steps() -> Iterator[int]:
    step = 1
    while True:
        yield from (step, 2 * step, 5 * step)
        step *= 10


def epoch_bands(epochs: Sequence[EpochSummary]) -> Iterator[dict[str, Any]]:
    """Yield a shaded rectangle for every second epoch, so that neighboring epochs can be distinguished."""
    for i, (begun, ended, _) in enumerate(_bands(epochs)):
        if i % 2 == 0:
            yield band_shape(begun, ended, "@u3/0.09")


def phase_shades(spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """Yield a shape for each phase other than training, or nothing if there are more than `SHADES`."""
    for span in spans if len(spans) <= SHADES else ():
        yield band_shape(span.begin, span.end, "@u4/0.16")


def epoch_numbers(epochs: Sequence[EpochSummary]) -> Iterator[dict[str, Any]]:
    """Yield a label for the epoch axis and the numbers of as many epochs as there is room for."""
    bands = _bands(epochs)
    every = next(step for step in _steps() if len(bands) <= NUMBERS * step)
    for begun, ended, text in bands[::every]:
        yield note(text, instant((begun + ended) / 2 if every == 1 else begun), 1, xref="x", yanchor="bottom", yshift=2)
    if bands:
        yield note("epoch", 0, 1, xanchor="right", yanchor="bottom", xshift=-8, yshift=2)


def unsampled_spans(series: RunSeries) -> list[tuple[float, float]]:
    """Return the start and end (s since 1970) of each interval without samples."""
    used = series.columns.get("gpu.memory_used") or series.columns.get("gpu.utilization")
    missing = [None if is_known(value) else 0.0 for value in used.mean] if used else []
    return [
        (series.begun + begin * series.step, series.begun + end * series.step)
        for begin, end in longest(known_ranges(missing))
    ]


def gap_shades(series: RunSeries) -> Iterator[dict[str, Any]]:
    """Yield a shape for each interval without samples, with a label if there is room for it."""
    for begin, end in unsampled_spans(series):
        wide = end - begin > series.points * series.step * _MIN_LABELED
        yield band_shape(begin, end, "@u7/0.16") | (
            {"label": {"text": "not sampled", "textposition": "top center", "font": {"color": "@mut", "size": 11}}}
            if wide
            else {}
        )


def out_of_memory_lines(marks: Sequence[MarkRow]) -> Iterator[dict[str, Any]]:
    """Yield a vertical line for each out-of-memory error."""
    yield from (event_line(mark.time) for mark in marks if mark.mark is Mark.OUT_OF_MEMORY)


def out_of_memory_captions(marks: Sequence[MarkRow]) -> Iterator[dict[str, Any]]:
    """Yield a caption for each of the first out-of-memory errors."""
    yield from (out_of_memory_caption(mark.time) for mark in marks[:NUMBERS] if mark.mark is Mark.OUT_OF_MEMORY)


def time_range(series: RunSeries, epochs: Sequence[EpochSummary]) -> list[int] | None:
    """Return the earliest and latest time of all data, in ms since 1970, or None if there is no data."""
    begins = [epoch.begun for epoch in epochs if is_known(epoch.begun)]
    ends = [_end(epoch) for epoch in epochs if is_known(epoch.begun)]
    if series.points:
        begins.append(series.begun)
        ends.append(series.begun + series.points * series.step)
    return [instant(min(begins)), instant(max(ends))] if begins and ends else None


LOGGED = 6
"""Largest number of logged metrics that get a panel."""
_PANEL = 132
_MARGIN = 64
"""Height of a panel, and of the space above the panels, in pixels."""


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
    """Return the figure of a run on `device`: panels over one time axis, with a band for every second epoch.

    `series`: metrics of the device. `logged`: logged metrics. `marks`: out-of-memory errors are shown as vertical
    lines. `spans`: phases other than training, which are shaded. `diverged`: logged values that are NaN or infinite, by
    default from `logged`. `whole`: the series of the whole run if `series` covers only some of its time; it determines
    the panels and the time axis. `over`: end of the run (s since 1970), NaN while it runs.
    """
    diverged = diverged or diverged_points(logged)
    whole = whole or series
    panels = list(_panels(series, logged, device, epochs, diverged, over))
    whole_panels = panels if whole is series else _panels(whole, logged, device, epochs, diverged, over)
    panels = [panel for panel, (_, lines, _) in zip(panels, whole_panels, strict=True) if lines]
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
    for index, (title, lines, axis) in enumerate(panels):
        name = "" if index == 0 else str(index + 1)
        top = 1 - index * height
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
        data.append(_pointer_texts(series, epochs, spans))
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
        yield BY_NAME["gpu.utilization"].title, _mean_and_range(series, "gpu.utilization", "@u2"), axis
    in_bytes = scale_of(Unit.BYTES, rate=False)
    yield BY_NAME["gpu.memory_used"].title, memory_parts(series, device), {
        "rangemode": "tozero", "ticksuffix": in_bytes.suffix,
        **({"range": [0, device.memory_total * in_bytes.factor]} if device and device.memory_total > 0 else {}),
    }  # fmt: skip
    for name, color in (("gpu.power", "@u1"), ("gpu.temperature", "@u5")):
        if name in columns:
            lines = _mean_and_range(series, name, color)
            axis = {"ticksuffix": scale_of(BY_NAME[name].unit, rate=False).suffix}
            if name == "gpu.power":
                axis["rangemode"] = "tozero"
            yield BY_NAME[name].title, lines, axis
    for i, (name, lines) in enumerate(logged_lines(logged, epochs, unsampled_spans(series), diverged, over)[:LOGGED]):
        color_of = {"color": f"@u{(3, 6, 4, 0, 2, 1)[i % 6]}"}
        colored = [
            {**line, "line": {**color_of, "width": 1.6}, "marker": {**color_of, **line.get("marker", {})}}
            for line in lines
        ]
        yield literal(name, NAME_CELLS), colored, {}


def _mean_and_range(series: RunSeries, name: str, color: str) -> list[Line]:
    """Return the mean as a line over an area from the lowest to the highest value."""
    scale = scale_of(BY_NAME[name].unit, rate=False)
    low, mean, high = (json_numbers(part, scale.factor, 1) for part in series.columns[name])
    if not any(value is not None for value in mean):
        return []
    lines: list[Line] = []
    # Plotly would fill across gaps, so each range without gaps has its own pair of edges.
    for begin, end in longest(known_ranges(mean)) if low != high else ():
        edge = {
            "mode": "lines", "line": {"width": 0, "color": color}, "hoverinfo": "skip", "name": "",
            **x_axis(series, begin),
        }  # fmt: skip
        lines += [
            {**edge, "y": high[begin:end]},
            {**edge, "y": low[begin:end], "fill": "tonexty", "fillcolor": f"{color}/0.2"},
        ]
    lines.append({
        "mode": "lines", "line": {"width": 1.4, "color": color}, "y": mean, "name": BY_NAME[name].title,
        "hovertemplate": f"%{{y}}{scale.suffix}", **x_axis(series),
    })  # fmt: skip
    return lines


def _pointer_texts(series: RunSeries, epochs: Sequence[EpochSummary], spans: Sequence[Span]) -> Line:
    """Return an invisible line that shows the epoch and phase under the pointer."""
    texts = []
    epoch = phase = 0
    for point in range(series.points):
        time = series.begun + (point + 0.5) * series.step
        while epoch + 1 < len(epochs) and epochs[epoch + 1].begun <= time:
            epoch += 1
        inside = epochs and epochs[epoch].begun <= time and not time > epochs[epoch].ended
        while phase < len(spans) and spans[phase].end <= time:
            phase += 1
        within = (
            f", {literal(spans[phase].phase, NAME_CELLS)}" if phase < len(spans) and spans[phase].begin <= time else ""
        )
        texts.append(f"epoch {epochs[epoch].epoch}{within}" if inside else "between epochs")
    return {
        "mode": "lines", "line": {"width": 0, "color": "@mut"}, "y": [0] * series.points, "text": texts, "name": "",
        "hovertemplate": "%{text}<extra></extra>", "xaxis": "x", "yaxis": "y", "showlegend": False, **x_axis(series),
    }  # fmt: skip


def with_local_dates(figure: Figure) -> Figure:
    """Return the figure with dates in this machine's time zone instead of milliseconds since 1970.

    If daylight saving time starts or ends within the figure, all dates use the UTC offset at its end, and the axis says
    so. Otherwise one hour would be drawn twice or be missing.
    """
    layout = figure["layout"]
    axis = layout["xaxis"]
    # A damaged ledger may have no times.
    known = axis.get("range") or [time for line in figure["data"] for time in line.get("x", ())] or [0.0]
    begin, end = known[0], known[-1]
    offset = _utc_offset(end)
    title = {} if _utc_offset(begin) == offset else {"title": {"text": _time_zone_note(offset), "font": {"size": 11}}}
    return {
        **figure,
        "data": [_with_dates(line, offset, ("x0",), ("x",)) for line in figure["data"]],
        "layout": {
            **layout,
            "xaxis": {**_with_dates(axis, offset, (), ("range",)), **title},
            "shapes": [_with_dates(shape, offset, ("x0", "x1")) for shape in layout["shapes"]],
            "annotations": [
                _with_dates(note, offset, ("x",) if note["xref"] == "x" else ()) for note in layout["annotations"]
            ],
        },
    }


def _with_dates(part: dict[str, Any], offset: int, single: Sequence[str], many: Sequence[str] = ()) -> dict[str, Any]:
    """Return a copy of a dictionary of a figure in which times are replaced by dates.

    `offset`: UTC offset of the dates in seconds. `single`: keys of times. `many`: keys of lists of times.
    """
    dates: dict[str, Any] = {name: _date(part[name], offset) for name in single if part.get(name) is not None}
    lists = {name: [_date(time, offset) for time in part[name]] for name in many if part.get(name) is not None}
    return {**part, **dates, **lists}


def _date(milliseconds: float, offset: int) -> str:
    try:
        text = strftime("%Y-%m-%d %H:%M:%S", gmtime(milliseconds // 1000 + offset))
    except (OverflowError, OSError, ValueError):
        return "1970-01-01"
    return f"{text}.{int(milliseconds % 1000):03}"


def _utc_offset(milliseconds: float) -> int:
    """Return the UTC offset of this machine's time zone, in seconds, at a time given in ms since 1970."""
    try:
        return localtime(milliseconds / 1000).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        return 0


def _time_zone_note(offset: int) -> str:
    hours, minutes = divmod(abs(offset) // 60, 60)
    size = f"{hours}:{minutes:02}" if minutes else f"{hours}"
    return f"times in UTC{'+' if offset >= 0 else '−'}{size}: the clocks were changed"
