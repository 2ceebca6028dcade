"""The background of a run's lines: bands of epochs, phases, times without samples, errors of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpumon.analysis.rank_epochs import Span
from gpumon.common.numbers import is_known
from gpumon.figures.axes import instant, longest, whole_stretches
from gpumon.figures.bands import band_shape
from gpumon.figures.marks import note, out_of_memory_caption, out_of_memory_line
from gpumon.figures.run_series import RunSeries
from gpumon.model.frame import Mark
from gpumon.storage.ledger.records import MarkRow
from gpumon.storage.ledger.summary import EpochSummary

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
