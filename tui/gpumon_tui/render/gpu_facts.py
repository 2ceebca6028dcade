"""Facts about a GPU next to its curves: performance state, fan, video engines, and throttling reasons."""

from __future__ import annotations

from math import isfinite

from rich.segment import Segment

from gpumon.analysis.throttling import throttle_reasons
from gpumon.model import units
from gpumon.model.frame import Sample
from gpumon.model.metrics import BY_NAME
from gpumon.model.vendors import SHORT_CLOCK_EVENTS
from gpumon_tui import theme
from gpumon_tui.render.axis import number_format
from gpumon_tui.render.text_width import Line, cut, length

BETWEEN = 3
"""Cells between two facts."""


def throttled(sample: Sample, *, is_hot: bool, room: int = 0) -> str:
    """Return the throttling reasons of a GPU, `no` if there are none; empty if unknown.

    `is_hot`: counters since the previous sample show thermal throttling; the driver itself only reports the reasons at
    this moment. With `room` in cells, reasons are abbreviated, or only counted if they do not fit.
    """
    reasons = throttle_reasons(sample)
    if reasons is None:
        return "heat" if is_hot else ""
    if room:
        reasons = tuple(SHORT_CLOCK_EVENTS.get(reason, reason) for reason in reasons)
    text = ", ".join(reasons) or ("heat" if is_hot else "no")
    return text if not room or len(text) <= room else units.counted(len(reasons), "reason")


def facts(sample: Sample, *, charted: bool = True, is_hot: bool = False) -> list[tuple[str, str]]:
    """Return names and values of what the driver reports; values it does not report are left out.

    `charted`: temperature, power and clock have their own charts and are left out; `is_hot`: as in `throttled`.
    """
    pairs: list[tuple[str, str]] = []
    for metric in () if charted else (BY_NAME[name] for name in ("gpu.temperature", "gpu.power", "gpu.clock_sm")):
        if isfinite(value := sample.value(metric.name)):
            value_format = number_format(metric, value)
            pairs.append(("", f"{value_format.text(value)} {value_format.unit}"))
    state = sample.value("gpu.performance_state")
    pairs += [("", units.performance_state(state))] if isfinite(state) else []
    for name, metric_name in (("fan", "gpu.fan"), ("encoder", "gpu.encoder_utilization"),
                         ("decoder", "gpu.decoder_utilization")):  # fmt: skip
        if isfinite(value := sample.value(metric_name)):
            pairs.append((name, units.metric(value, BY_NAME[metric_name])))
    if reasons := throttled(sample, is_hot=is_hot):
        pairs.append(("throttled", reasons))
    return pairs


def facts_line(sample: Sample, cells: int, *, charted: bool = True, is_hot: bool = False) -> Line:
    """Return the facts in one line of at most `cells` cells; the last ones are dropped if they do not fit."""
    line: Line = []
    for name, value in facts(sample, charted=charted, is_hot=is_hot):
        part: Line = [Segment(f"{name} ", theme.DIM)] if name else []
        part.append(Segment(value, theme.PLAIN))
        if length(line) + BETWEEN + length(part) > cells:
            break
        line += [Segment(" " * BETWEEN), *part] if line else part
    return line


def card_head(
    sample: Sample, holder: Line, cells: int, left_margin: int, *, charted: bool, rows: int = 1, is_hot: bool = False
) -> list[Line]:  # fmt: skip
    """Return the first lines of a GPU's card: the GPU, its user and activity (`holder`), and facts at the right.

    With two `rows`, the second one has the facts.
    """
    head: Line = [Segment(" " * left_margin), Segment(f"GPU {sample.device.label}", theme.STRONG)]
    if holder:
        head += [Segment("  "), *holder]
    end = cells - left_margin
    if rows > 1:
        return [
            cut(head, end),
            [Segment(" " * left_margin), *facts_line(sample, end - left_margin, charted=charted, is_hot=is_hot)],
        ]
    facts_text = facts_line(sample, end - length(head) - BETWEEN, charted=charted, is_hot=is_hot)
    room = end - length(head) - length(facts_text)
    return [[*head, Segment(" " * room), *facts_text] if facts_text else cut(head, end)]
