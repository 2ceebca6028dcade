"""Converts a chart document into the figure that Plotly draws.

A document has panels of lines in base units (`document`). The figure shows the panels below each other, over one x
axis. Missing values stay gaps: lines end there, and no area is filled.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from time import localtime
from typing import Any

from gpumon.common.text import clean, cut
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.reports.figures.document import PLAIN
from gpumon.reports.figures.run_chart import STACKED
from gpumon.reports.figures.run_series import known_ranges, longest

Document = Mapping[str, Any]
Figure = dict[str, Any]
Line = dict[str, Any]

LONGEST = 80
"""Maximum width of a label, in terminal columns."""
BANDS = 120
"""Maximum number of epoch bands. If there are more epochs, a band covers several of them."""
SHADES = 200
"""Maximum number of phases that are shaded. If there are more, no phase is shaded."""
NUMBERS = 14
"""Maximum number of epochs and events that are labeled."""
_MIN_LABELED = 0.08
"""Minimum width of a gap with a label, as a fraction of the figure's width."""
LABELS = 16
"""In pixels: height of the epoch numbers above the first panel, and half of the room for a date at the left end."""
MISSED = 3
"""If two samples are more than this number of intervals apart, the time between them is a gap."""
TOP, HEAD, TALL, FOOT = 4, 30, 104, 44
"""Heights in pixels: above the first panel, of a panel's title, of its plot, and below the last panel."""
VALUE = "value"
"""Name of the annotations with the last value of a line. They are left out if there is no room."""
VALUE_WIDTH = 96
"""Width of an annotation with the last value of a line, in pixels."""
_AXIS_TITLES = {"epochs": "epochs done", "step": "step"}
_PLACES = {"epochs": "after %{x:.1f} epochs", "step": "step %{x:,.0f}"}
"""Template for the position under the pointer, for each kind of axis."""
_SECONDS_STEPS = ((7200.0, 1 / 3600, "hours"), (120.0, 1 / 60, "minutes"), (0.0, 1.0, "seconds"))
"""Units for times since the start: the longest time from which the unit is used, its factor, and its name."""
_MARKERS = 150
"""Maximum number of points that are drawn with markers."""
_DECADES = 100
"""If a logarithmic axis has a larger range (largest/smallest value), it has ticks only at powers of ten. Otherwise it
also has ticks at 2 and 5 times these powers."""


@dataclass(frozen=True, slots=True)
class Look:
    """Options for drawing a document."""

    panels: Sequence[str] = ()
    """Keys of the panels to draw; empty for all panels."""
    is_log: bool = False
    """Whether panels of logged metrics have a logarithmic axis."""
    smoothing: float = 0.0
    """Smoothing of logged metrics: the weight of the previous values in the mean that is drawn, from 0 (no smoothing)
    to less than 1."""
    colors: Mapping[str, str] = field(default_factory=dict)
    """Colors of lines without a role, by the key of their panel. Other lines have the color of the holder."""
    has_labels: bool = False
    """Whether epochs, events and gaps have labels in the figure. Otherwise only the pointer shows their names."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Factor and texts for showing base units on an axis."""

    factor: float
    suffix: str
    """Unit after a number, including the space before the unit."""
    format: str
    """Format of a value under the pointer, in the notation of d3."""


def plotly_figure(document: Document, look: Look | None = None) -> Figure:
    """Return the figure of a document. Its x axis is in the unit of `x_factor`, which scripts find in `layout.meta`.

    Times are milliseconds since 1970. Scripts move them into the viewer's time zone. `@holderN` is the color of the
    user with index N in `layout.meta`.
    """
    look = look or Look()
    panels = [panel for panel in document["panels"] if not look.panels or panel["key"] in look.panels] or [
        *document["panels"]
    ]
    is_time = document["axis"] == "time"
    holders = [*dict.fromkeys(user for *_, user in document["held"])]
    factor, x_title = x_factor(document)
    height = TOP + FOOT + (HEAD + TALL) * len(panels)
    labels = LABELS if look.has_labels else 0
    data: list[Line] = []
    layout: dict[str, Any] = {
        "height": height + labels, "margin": {"l": 16 + 2 * labels, "r": 66, "t": TOP + labels, "b": FOOT},
        "hovermode": "x unified", "dragmode": "zoom", "showlegend": False,
        "paper_bgcolor": "@card", "plot_bgcolor": "@card", "font": {"color": "@mut", "size": 12},
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@line", "font": {"color": "@ink", "size": 12}},
        "xaxis": {
            "range": [document["begin"] * factor, document["end"] * factor], "gridcolor": "@line/0.5",
            "linecolor": "@line", "zeroline": False, "showspikes": True, "spikemode": "across",
            "spikesnap": "cursor", "spikethickness": 1, "spikedash": "solid", "spikecolor": "@mut/0.6",
            "anchor": _axis("y", len(panels) - 1), "title": {"text": x_title, "standoff": 6},
            "separatethousands": True, "unifiedhovertitle": {"text": _place(document, x_title)},
        },
        "meta": {"factor": factor, "axis": document["axis"], "holders": holders, "logged": []},
        "annotations": [*_labels(document)] if look.has_labels else [],
        "shapes": [*_background(document, has_labels=look.has_labels)] if is_time else [],
    }  # fmt: skip
    if is_time:
        layout["hoversubplots"] = "axis"  # one label shows the values of all panels
        layout["xaxis"] |= {"type": "date", "hoverformat": "%Y-%m-%d %H:%M:%S"}
        del layout["xaxis"]["unifiedhovertitle"], layout["xaxis"]["separatethousands"]
    plot_height = height - TOP - FOOT
    for index, panel in enumerate(panels):
        top = 1 - index * (HEAD + TALL) / plot_height
        ceiling = top - HEAD / plot_height
        is_log = look.is_log and _has_log(panel)
        scale = y_axis(panel, is_log=is_log)
        name = _axis("yaxis", index)
        layout[name] = {
            "domain": [max(0.0, ceiling - TALL / plot_height), ceiling], "side": "right", "gridcolor": "@line/0.7",
            "zeroline": False, "nticks": 4, "fixedrange": True, "ticksuffix": scale.suffix, "showticksuffix": "last",
            "exponentformat": "power" if is_log else "e", "separatethousands": True,
            **_y_range(panel, scale, is_log=is_log),
        }  # fmt: skip
        drawn = [
            line for entry in panel["lines"]
            for line in _lines(document, panel, entry, scale, look, is_log)
        ]  # fmt: skip
        stacked = [entry for entry in panel["lines"] if entry.get("look") == STACKED]
        if stacked:
            drawn += _stack(document, stacked, scale)
            layout |= {"showlegend": True, "legend": _legend(ceiling)}
        data += [{"xaxis": "x", "yaxis": _axis("y", index), "showlegend": False, **line} for line in drawn]
        layout["annotations"] += _head(panel, ceiling)
        layout["shapes"] += _limit_lines(panel, _axis("y", index), scale)
        layout["annotations"] += _limit_texts(panel, _axis("y", index), scale)
        if _has_log(panel):
            layout["meta"]["logged"].append(name)
        if is_time and index == 0:
            data += _pointer_lines(document, panel)
    return {"data": [_scaled(line, factor) for line in data], "layout": layout}


def x_factor(document: Document) -> tuple[float, str]:
    """Return the factor that converts positions of a document to positions of its figure, and the title of the axis."""
    if document["axis"] == "time":
        return 1000.0, ""
    if document["axis"] != "since":
        return 1.0, _AXIS_TITLES.get(document["axis"], "")
    factor, name = next((factor, name) for least, factor, name in _SECONDS_STEPS if document["end"] >= least)
    return factor, f"{name} since the start"


def _place(document: Document, x_title: str) -> str:
    """Return a Plotly template that shows the position under the pointer."""
    return f"%{{x:.1f}} {x_title}" if document["axis"] == "since" else _PLACES.get(document["axis"], "")


def y_axis(panel: Mapping[str, Any], *, is_log: bool = False) -> Axis:
    """Return the scale of a panel's axis that suits the panel's largest value."""
    unit = panel["unit"]
    top = max((abs(value) for line in panel["lines"] for value in line["mean"] if value is not None), default=0.0)
    top = max(top, panel.get("top") or 0.0)
    match unit:
        case "ratio" | "seconds_per_second":
            return Axis(100.0, " %", ".1f")
        case "bytes" | "bytes_per_second":
            power = min(4, int(math.log(max(top, 1.0), 1000)))
            return Axis(1024.0**-power, f" {units.BINARY[power]}{'/s' if unit != 'bytes' else ''}", ".1f")
        case "watts" | "joules_per_second":
            return Axis(1.0, " W", ",.0f")
        case "celsius":
            return Axis(1.0, " °C", ".0f")
        case "hertz":
            return Axis(1e-9, " GHz", ".2f")
        case "joules":
            return Axis(1 / 3.6e6, " kWh", ".3f") if top >= 3.6e6 else Axis(1 / 3600, " Wh", ".1f") if top >= 3600 \
                else Axis(1.0, " J", ".1f")  # fmt: skip
        case "seconds":
            return Axis(1 / 3600, " h", ".2f") if top >= 7200 else Axis(1 / 60, " min", ".1f") if top >= 120 \
                else Axis(1.0, " s", ".3~g")  # fmt: skip
    return Axis(1.0, "", ".4~g")


def write(value: float | None, unit: str) -> str:
    """Format a value in the unit of a panel, in the same way as tables."""
    if value is None:
        return units.MISSING
    if unit == PLAIN:
        return units.logged_number(value)
    base = unit.removesuffix("_per_second")
    if unit != base and unit != Unit.BYTES_PER_SECOND.value:
        return units.rate(value, Unit(base))
    return units.number(value, Unit(unit))


def last_value(panel: Mapping[str, Any], line: Line) -> str:
    """Return the last value of a line as text: `NaN` if it has diverged, a dash if the line has ended before."""
    if line.get("odd"):
        return str(line["odd"][1])
    if line.get("lost"):
        return units.MISSING
    return write(next((value for value in reversed(line["mean"]) if value is not None), None), panel["unit"])


def title(panel: Mapping[str, Any]) -> str:
    """Return the title of a panel, with the age of its values if they are older than those of other panels."""
    return f"{panel['title']}, {panel['late']}" if panel.get("late") else str(panel["title"])


def smoothed(values: Sequence[float | None], weight: float) -> list[float | None]:
    """Return the exponential moving mean of values, corrected for the bias of the first values.

    It restarts after a gap.
    """
    result: list[float | None] = []
    mean = share = 0.0
    for value in values:
        if value is None:
            mean = share = 0.0
            result.append(None)
            continue
        mean = mean * weight + value * (1 - weight)
        share = share * weight + (1 - weight)
        result.append(mean / share)
    return result


def _axis(kind: str, index: int) -> str:
    return kind if index == 0 else f"{kind}{index + 1}"


def _has_log(panel: Mapping[str, Any]) -> bool:
    """Whether a panel has values that a logarithmic axis can show."""
    return panel["unit"] == PLAIN and any(
        value is not None and value > 0 for line in panel["lines"] for value in line["mean"]
    )


def _few_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Return ticks of a logarithmic axis at 1, 2 and 5 times powers of ten."""
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return {"tickvals": ticks, "ticktext": [f"{tick:.3g}" for tick in ticks]}


def count_not_positive(document: Document, look: Look) -> int:
    """Return the number of values that a figure leaves out because a logarithmic axis cannot show them."""
    if not look.is_log:
        return 0
    panels = [panel for panel in document["panels"] if panel["key"] in look.panels and _has_log(panel)]
    lines = [line for panel in panels for line in panel["lines"]]
    return sum(value is not None and value <= 0 for line in lines for value in line["mean"])


def _y_range(panel: Mapping[str, Any], scale: Axis, *, is_log: bool) -> dict[str, Any]:
    if is_log:
        values = [value for line in panel["lines"] for value in line["mean"] if value is not None and value > 0]
        return {"type": "log", **({"dtick": 1} if max(values) > _DECADES * min(values) else _few_ticks(values))}
    top = panel.get("top")
    if panel["zero"] and top:
        values = [value for line in panel["lines"] for value in line["mean"] if value is not None]
        values += [limit["at"] for limit in panel["limits"]]
        return {"range": [0, max([top, *values]) * scale.factor * 1.04]}
    return {"rangemode": "tozero"} if panel["zero"] else {}


def _head(panel: Mapping[str, Any], y: float) -> Iterator[dict[str, Any]]:
    """Yield the title of a panel and, if it has several lines, the last value of each line."""
    yield _bold(note(literal(title(panel)), 0, y, "@ink", xanchor="left", yanchor="bottom", yshift=4))
    lines = [line for line in panel["lines"] if line.get("mark")]
    for place, line in enumerate(reversed(lines)):
        text = f"{literal(line['mark'])} {literal(last_value(panel, line))}"
        yield _bold(note(text, 1, y, f"@{line['role']}", xanchor="right", yanchor="bottom", yshift=4,
                         xshift=-VALUE_WIDTH * place, name=VALUE))  # fmt: skip


def _bold(text: dict[str, Any]) -> dict[str, Any]:
    """Return a text in a heavier font.

    A tag in the text would need an inline style, which the page's policy forbids.
    """
    return {**text, "font": {**text["font"], "weight": 600, "size": 12}}


def _lines(
    document: Document, panel: Mapping[str, Any], line: Line, scale: Axis, look: Look, is_log: bool
) -> Iterator[Line]:
    """Yield the traces of a line: range, values, markers for single values between gaps, and smoothed mean."""
    if line.get("look") == STACKED:
        return
    x, y = with_gaps(document, line)
    values = [None if value is None or (is_log and value <= 0) else value * scale.factor for value in y]
    name = literal(line.get("label") or panel["title"])
    hover = {"name": name, "hovertemplate": f"%{{y:{scale.format}}}{scale.suffix}"}
    role = line.get("role") or look.colors.get(panel["key"])
    parts = [(f"@{role}", values)] if role else _by_holder(document, x, values)
    for color, part in parts:
        if line.get("low") and not is_log:
            yield from _range(document, line, scale, color, part)
        is_smoothed = look.smoothing > 0 and panel["unit"] == PLAIN and line.get("look") != "dots"
        faint = {"line": {"color": f"{color}/0.3", "width": 1}, "hoverinfo": "skip", "hovertemplate": None}
        usual: Line = {
            "mode": "lines", "x": x, "y": part, "line": {"color": color, "width": 1 if line.get("look") else 1.6},
            "connectgaps": False, **hover,
        }  # fmt: skip
        if line.get("look") == "dots":
            usual["line"]["dash"] = "dot"
            if len(part) <= _MARKERS:
                usual |= {"mode": "lines+markers", "marker": {"color": color, "size": 5}}
        yield {**usual, **faint} if is_smoothed else usual
        if is_smoothed:
            raw = [units.MISSING if value is None else f"{value:.4g}" for value in part]
            yield {**usual, "y": smoothed(part, look.smoothing), "line": {"color": color, "width": 2},
                   "customdata": raw, "hovertemplate": f"%{{y:{scale.format}}} (%{{customdata}})"}  # fmt: skip
        lone = [begin for begin, end in known_ranges(part) if end - begin == 1]
        if lone and usual["mode"] == "lines":
            yield {"mode": "markers", "x": [x[index] for index in lone], "y": [part[index] for index in lone],
                   "marker": {"color": color, "size": 4}, "hoverinfo": "skip", "name": name}  # fmt: skip


def _by_holder(
    document: Document, x: Sequence[float], values: Sequence[float | None]
) -> list[tuple[str, list[float | None]]]:
    """Return a color and the values for each user who held the GPU. Values without a recorded holder are gray."""
    spans = sorted(document["held"])
    holders = [*dict.fromkeys(user for *_, user in document["held"])]
    begins = [begin for begin, *_ in spans]
    users = []
    for position in x:
        index = bisect_right(begins, position) - 1
        users.append(spans[index][2] if index >= 0 and position <= spans[index][1] else "")
    parts = []
    for user in dict.fromkeys(users):
        # Includes the point after the last one, because the line up to this point belongs to the same user.
        part = [value if user in users[max(0, index - 1) : index + 1] else None for index, value in enumerate(values)]
        if any(value is not None for value in part):
            parts.append((f"@holder{holders.index(user)}" if user in holders else "@mut", part))
    return parts


def _range(document: Document, line: Line, scale: Axis, color: str, part: Sequence[float | None]) -> Iterator[Line]:
    """For each range of points without a gap, yield an area from the lowest to the highest value."""
    if line["low"] == line["high"]:
        return
    x, low = with_gaps(document, {**line, "mean": line["low"]})
    _, high = with_gaps(document, {**line, "mean": line["high"]})
    # Plotly would fill across gaps, so each range without gaps has its own pair of edges.
    for begin, end in longest(known_ranges(part)):
        edge = {
            "mode": "lines",
            "x": x[begin:end],
            "line": {"width": 0, "color": color},
            "hoverinfo": "skip",
            "name": "",
        }
        for values, fill in ((high, {}), (low, {"fill": "tonexty", "fillcolor": f"{color}/0.2"})):
            y = [None if value is None else value * scale.factor for value in values[begin:end]]
            yield {**edge, "y": y, **fill}


def _stack(document: Document, lines: Sequence[Line], scale: Axis) -> Iterator[Line]:
    """Yield the areas of stacked lines. Plotly cannot draw stacks with gaps, so each range between gaps has its own."""
    x = document["times"][lines[0]["x"]]
    is_known = [0.0 if any(line["mean"][index] is not None for line in lines) else None for index in range(len(x))]
    ranges = longest(known_ranges(is_known))
    for line in lines:
        color, name = f"@{line['role']}", literal(line["label"])
        drawn = [(begin, end) for begin, end in ranges if any(line["mean"][begin:end])]
        for index, (begin, end) in enumerate(drawn):
            y = [None if value is None else value * scale.factor for value in line["mean"][begin:end]]
            yield {
                "mode": "lines", "line": {"width": 0, "color": color}, "fillcolor": color, "x": x[begin:end], "y": y,
                "stackgroup": f"memory{begin}", "stackgaps": "infer zero", "name": name, "legendgroup": name,
                "showlegend": index == 0, "hovertemplate": f"%{{y:{scale.format}}}{scale.suffix}",
            }  # fmt: skip


def _legend(y: float) -> dict[str, Any]:
    """Return the layout of a legend in the head of the panel whose upper edge is at `y`."""
    return {
        "orientation": "h", "x": 1, "xanchor": "right", "y": y, "yanchor": "bottom", "traceorder": "normal",
        "font": {"size": 11}, "bgcolor": "@card/0",
    }  # fmt: skip


def _labels(document: Document) -> Iterator[dict[str, Any]]:
    """Yield the numbers of as many epochs as there is room for, and the texts of the first events."""
    for run in document["runs"]:
        every = -(-len(run["bands"]) // NUMBERS)
        for index, (begin, end, number, *_) in enumerate(run["bands"][:: every or 1]):
            middle = (begin + end) / 2 if every == 1 else begin
            text = f"epoch {number}" if index == 0 else f"{number}"
            yield note(text, middle * 1000, 1, xref="x", yanchor="bottom", yshift=2)
    for event in document["events"][:NUMBERS]:
        yield note(literal(event["text"]), event["time"] * 1000, 0, f"@{event['level'] or 'mut'}",
                   xref="x", yanchor="bottom", xanchor="left", xshift=3)  # fmt: skip


def _background(document: Document, *, has_labels: bool) -> Iterator[dict[str, Any]]:
    """Yield shapes behind all panels: every second epoch, phases other than training, gaps, and events."""
    for run in document["runs"]:
        bands = run["bands"]
        every = -(-len(bands) // BANDS) if bands else 1
        for index in range(0, len(bands), 2 * every):
            group = bands[index : index + every]
            yield band_shape(group[0][0], group[-1][1], "@mut/0.06")
        for begin, end, _ in run["phases"] if len(run["phases"]) <= SHADES else ():
            yield band_shape(begin, document["end"] if end is None else end, "@mut/0.16")
    for begin, end in unseen_spans(document):
        is_wide = end - begin > (document["end"] - document["begin"]) * _MIN_LABELED
        yield band_shape(begin, end, "@warn/0.1") | (_GAP_LABEL if has_labels and is_wide else {})
    for event in document["events"]:
        if event["level"] in ("warn", "bad"):
            yield event_line(event["time"], f"@{event['level']}")


_GAP_LABEL = {"label": {"text": "not sampled", "textposition": "top center", "font": {"color": "@mut", "size": 11}}}


def unseen_spans(document: Document) -> list[tuple[float, float]]:
    """Return the longest times without samples: the document's own list, or else the gaps of its first sampled line."""
    if document.get("unseen"):
        return [(begin, end) for begin, end in longest([*map(tuple, document["unseen"])])]
    lines = [line for panel in document["panels"] for line in panel["lines"] if not line.get("joined")]
    if not lines:
        return []
    x, y = with_gaps(document, lines[0])
    gaps = known_ranges([0.0 if value is None else None for value in y])
    return longest([(x[max(0, begin - 1)], x[min(end, len(x) - 1)]) for begin, end in gaps])


def _limit_lines(panel: Mapping[str, Any], axis: str, scale: Axis) -> Iterator[dict[str, Any]]:
    """Yield a line for each threshold of a panel."""
    for limit in panel["limits"]:
        at = limit["at"] * scale.factor
        yield {"type": "line", "xref": "paper", "yref": axis, "x0": 0, "x1": 1, "y0": at, "y1": at,
               "line": {"color": "@warn", "width": 1, "dash": "dash"}}  # fmt: skip


def _limit_texts(panel: Mapping[str, Any], axis: str, scale: Axis) -> Iterator[dict[str, Any]]:
    for limit in panel["limits"]:
        at = limit["at"] * scale.factor
        yield note(literal(limit["text"]), 0, at, "@warn", yref=axis, xanchor="left", yanchor="bottom")


def _pointer_lines(document: Document, panel: Mapping[str, Any]) -> Iterator[Line]:
    """Yield invisible points. Under the pointer, they show the epoch and phase of a run, and events."""
    base: Line = {"xaxis": "x", "yaxis": "y", "name": "", "hovertemplate": "%{text}<extra></extra>"}
    x, values = with_gaps(document, panel["lines"][0])
    known = [value for value in values if value is not None]
    factor = y_axis(panel).factor
    low = 0.0 if panel["zero"] or not known else min(known) * factor
    for run in document["runs"]:
        name = f"{literal(run['name'], 24)}: " if len(document["runs"]) > 1 else ""
        yield {**base, "mode": "lines", "line": {"width": 0, "color": "@mut"}, "x": x, "y": [low] * len(x),
               "text": [name + text for text in _epoch_texts(run, x)]}  # fmt: skip
    events = document["events"]
    if events and known:
        colors = [f"@{event['level'] or 'mut'}" for event in events]
        yield {**base, "mode": "markers", "x": [event["time"] for event in events],
               "y": [max(known) * factor] * len(events), "text": [literal(event["text"]) for event in events],
               "marker": {"color": colors, "size": 7, "symbol": "diamond"}}  # fmt: skip


def _epoch_texts(run: Mapping[str, Any], times: Sequence[float]) -> Iterator[str]:
    """Yield the epoch and phase of a run at each time. If several epochs are drawn as one, yield their range."""
    bands, phases = run["bands"], run["phases"]
    band_begins, phase_begins = [band[0] for band in bands], [phase[0] for phase in phases]
    for time in times:
        index = bisect_right(band_begins, time) - 1
        if index < 0 or time > bands[index][1]:
            yield "between epochs"
            continue
        band = bands[index]
        text = f"epochs {band[2]} to {band[4]}" if len(band) > 4 and band[4] != band[2] else f"epoch {band[2]}"
        index = bisect_right(phase_begins, time) - 1
        is_within = index >= 0 and (phases[index][1] is None or time < phases[index][1])
        yield f"{text}, {literal(phases[index][2], 40)}" if is_within else text


def with_gaps(document: Document, line: Line) -> tuple[list[float], list[float | None]]:
    """Return the positions and values of a line, with a None where points are too far apart."""
    positions: Sequence[float] = document["times"][line["x"]]
    most = MISSED * max(line.get("step") or 0.0, document["interval"]) or math.inf
    if line.get("joined"):
        most = math.inf
    x: list[float] = []
    y: list[float | None] = []
    for position, value in zip(positions, line["mean"], strict=True):
        if x and position - x[-1] > most:
            x.append((x[-1] + position) / 2)
            y.append(None)
        x.append(position)
        y.append(value)
    return x, y


def _scaled(line: Line, factor: float) -> Line:
    return line if factor == 1.0 else {**line, "x": [position * factor for position in line["x"]]}


def literal(text: str, longest: int = LONGEST) -> str:
    """Escape `text` and cut it to `longest` columns.

    Plotly then shows the text unchanged on one line, and interprets no tags and no %{…} templates.
    """
    return escape(cut(clean(text), longest), quote=False)


def note(text: str, x: float | str, y: float, color: str = "@mut", **layout: Any) -> dict[str, Any]:
    """Return a Plotly text annotation. `x`, `y`: position as fractions of the figure. `layout`: other attributes."""
    return {
        "text": text, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False,
        "font": {"color": color, "size": 11}, **layout,
    }  # fmt: skip


def band_shape(begin: float, end: float, color: str) -> dict[str, Any]:
    """Return a shape over the full height of the figure, from `begin` to `end` (s since 1970)."""
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": begin * 1000, "x1": end * 1000, "y0": 0, "y1": 1,
        "fillcolor": color, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def event_line(at: float, color: str) -> dict[str, Any]:
    """Return a vertical line over all panels, such as for an out-of-memory error. `at`: time (s since 1970)."""
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": at * 1000, "x1": at * 1000, "y0": 0, "y1": 1,
        "line": {"color": color, "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def in_local_time(figure: Figure) -> Figure:
    """Return a figure over time with its times in this machine's time zone, because Plotly shows times as UTC.

    If daylight saving time starts or ends within the figure, all times use the UTC offset at the end of the figure, and
    the axis says so. With two offsets, one hour would be drawn twice or be missing.
    """
    layout = figure["layout"]
    begin, end = layout["xaxis"]["range"]
    offset = _utc_offset(end)

    def moved(part: dict[str, Any], *names: str) -> dict[str, Any]:
        return {**part, **{name: round(part[name] + offset * 1000) for name in names}}

    xaxis = {**layout["xaxis"], "range": [round(time + offset * 1000) for time in (begin, end)]}
    if _utc_offset(begin) != offset:
        xaxis["title"] = {"text": f"times in {_utc(offset)}: the clocks were changed"}
    return {
        "data": [{**line, "x": [round(time + offset * 1000) for time in line["x"]]} for line in figure["data"]],
        "layout": {
            **layout,
            "xaxis": xaxis,
            "shapes": [moved(shape, "x0", "x1") if shape["xref"] == "x" else shape for shape in layout["shapes"]],
            "annotations": [moved(text, "x") if text["xref"] == "x" else text for text in layout["annotations"]],
        },
    }


def _utc_offset(milliseconds: float) -> int:
    """Return the UTC offset of this machine's time zone, in seconds, at a time in ms since 1970."""
    try:
        return localtime(milliseconds / 1000).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        return 0


def _utc(offset: int) -> str:
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"UTC{'+' if offset >= 0 else '−'}{hours}{f':{minutes:02}' if minutes else ''}"
