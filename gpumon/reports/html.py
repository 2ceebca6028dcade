"""A run as an HTML report, for `gpumon runs report`.

The report is a single file that contains Plotly, so it can be opened without a network. Its Content-Security-Policy
allows only its own two scripts and no network requests. All texts are escaped.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files

from gpumon import __version__
from gpumon.analysis.rank_epochs import Span
from gpumon.common.config import Prices
from gpumon.common.errors import MissingPackage
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import BY_KEY
from gpumon.model.frame import Mark
from gpumon.model.metrics import Unit
from gpumon.reports import epoch_text, run_notes, run_tables, run_text
from gpumon.reports.figures.document import PLAIN
from gpumon.reports.figures.plotly_figure import SHADES, Document, Figure, Look, in_local_time, plotly_figure
from gpumon.reports.figures.run_chart import RunDrawing, run_chart
from gpumon.reports.figures.run_gpus import DeviceCourse
from gpumon.reports.figures.run_series import FineHistory, refine, run_series
from gpumon.reports.run_list import state
from gpumon.reports.run_tables import config_table
from gpumon.reports.text_table import TextColumn
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import DeviceRow, Record, RunTrace
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochSummary

PHASES_UP_TO = 500
"""Maximum number of epochs with which the table also shows phases."""
_NOTHING = "No daemon recorded the timeline of this run."
_NO_NUMBERS = frozenset(map(units.logged_number, (NAN, math.inf, -math.inf)))
"""Strings that stand for NaN and infinity. A diverged training logs such values."""
_BAD = ' class="bad"'
_COLORS = {"gpu.utilization": "u2", "gpu.power": "u1", "gpu.temperature": "u5"}
_LOGGED_COLORS = ("u3", "u6", "u4", "u0", "u2", "u1")
"""Colors of the panels of logged metrics, in their order."""


def page(
    record: Record, traces: Sequence[RunTrace], now: float, history: FineHistory | None = None,
    prices: Prices | None = None,
) -> str:  # fmt: skip
    """Return the report as HTML.

    `history`: if not None, figures contain its points, which are closer together than in `traces`. `prices`: add the
    cost of the run if not None. Raises MissingPackage if Plotly is not installed.
    """
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    devices = _drawn_devices(record, traces)
    spans = aggregate.phase_spans(record)
    charts = [chart for device in devices if (chart := chart_of(record, traces, epochs, device, history))]
    scripts = [_plotly(), _package_file("report.js")]
    policy = (
        f"default-src 'none'; script-src {' '.join(_script_hash(script) for script in scripts)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    figures = [_compact(in_local_time(figure_of(chart))) for chart in charts]
    title = f"{record.run.name} · {record.run.id}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_package_file('report.css')}</style></head><body><main>",
        *_head(record, epochs, now),
        *_cards(record, epochs, total),
        *_notes(record, epochs, total, prices),
        '<section class="card"><h2>Timeline</h2>',
        *_tabs(devices),
        f'<div id="timeline"></div>{_legend(charts[0], spans)}</section>' if charts else f"<p>{_NOTHING}</p></section>",
        *_epochs(record, epochs, total),
        *_ranks(record),
        *_config(record),
        f"<footer>Times are in the time zone of the machine that wrote this report, {escape(units.moment(now))}. "
        f"gpumon {escape(__version__)}.</footer>",
        f'</main><script type="application/json" id="figures">{_json(figures)}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _drawn_devices(record: Record, traces: Sequence[RunTrace]) -> list[DeviceRow | None]:
    """Return the devices that have a figure: the devices with a trace, or [None] if no device has one."""
    seen = {trace.uuid for trace in traces}
    devices = [device for device in record.devices if device.uuid in seen]
    return [*devices] or [None]


def chart_of(
    record: Record, traces: Sequence[RunTrace], epochs: Sequence[EpochSummary], device: DeviceRow | None,
    history: FineHistory | None = None,
) -> Document | None:  # fmt: skip
    """Return the chart of a run on a device at the finest stored resolution; None if there is nothing to draw."""
    gpus = []
    if device is not None:
        series = run_series(record, traces, device.uuid)
        gpus.append(DeviceCourse(device, refine(series, history, device.uuid) if history else series))
    phases = [(span.begin, span.end, span.phase) for span in aggregate.phase_spans(record)]
    drawing = RunDrawing(
        record.run, gpus, run_series(record, traces, ""), epochs, record.marks, phases, phases_in_all=len(phases),
        verdicts={}, has_memory_parts=True,
    )  # fmt: skip
    return run_chart(drawing)


def figure_of(chart: Document) -> Figure:
    """Return the figure of a chart. Each panel has its color."""
    logged = [panel["key"] for panel in chart["panels"] if panel["unit"] == PLAIN]
    colors = _COLORS | {key: _LOGGED_COLORS[index % len(_LOGGED_COLORS)] for index, key in enumerate(logged)}
    return plotly_figure(chart, Look(colors=colors, has_labels=True))


def _head(record: Record, epochs: Sequence[EpochSummary], now: float) -> Iterator[str]:
    run = record.run
    word = state(run, now)
    label = f'<span class="tag">{escape(run.label)}</span>' if run.label else ""
    yield f'<h1>{escape(run.name)}<span class="tag {word}">{word}</span>{label}</h1>'
    lines = [*run_text.head(record, epochs, now)][1:]
    yield f'<p class="facts">run <b>{escape(run.id)}</b><br>{"<br>".join(escape(line) for line in lines)}</p>'


def _cards(record: Record, epochs: Sequence[EpochSummary], total: EpochSummary) -> Iterator[str]:
    def text(key: str) -> str:
        return epoch_text.cell(BY_KEY[key], total, {}, is_narrow=False)

    ended = sorted(epoch.seconds for epoch in epochs if is_known(epoch.ended))
    gpus = max(1, len(record.devices))
    memory = max((device.memory_total for device in record.devices if device.memory_total > 0), default=NAN)
    cards = (
        ("seconds", text("seconds"), f"{units.three_digits(total.seconds * gpus / 3600)} GPU hours"),
        *_count_card(record, ended, total),
        ("utilization_mean", text("utilization_mean"), f"idle {text('idle_share')} of the time"),
        ("wait_share", text("wait_share"), text("wait")),
        ("memory_used_peak", text("memory_used_peak"),
         f"of {units.number(memory, Unit.BYTES)}; tensors {text('framework_peak')}"),
        ("energy", text("energy"),
         f"{text('energy_per_step')} per step, {text('power_mean')}" if total.steps else text("power_mean")),
    )  # fmt: skip
    yield '<div class="sums">'
    for key, value, more in cards:
        if not any(letter.isdigit() for letter in value + more):
            continue  # there is no value; the notes explain why
        title = BY_KEY[key].title if key in BY_KEY else key
        yield (
            f'<div class="sum"><div class="what">{escape(title)}</div><div class="value">{escape(value)}</div>'
            f'<div class="more">{escape(more)}</div></div>'
        )
    yield "</div>"


def _count_card(record: Record, ended: Sequence[float], total: EpochSummary) -> Iterator[tuple[str, str, str]]:
    """Yield the card with the number of epochs, or with the number of steps if the run has no epochs.

    `ended`: sorted durations of the finished epochs, in seconds.
    """
    if ended or record.epochs or record.run.epochs:
        middle = ended[len(ended) // 2] if ended else NAN
        done = None if record.done is None else record.done + record.run.epochs_before
        yield "Epochs", units.count(done), f"{units.fine_duration(middle)} each (median)"
    elif total.steps is not None:
        rate = epoch_text.cell(BY_KEY["steps_per_second"], total, {})
        yield "steps", units.count(total.steps), f"{rate} per second"


def _notes(record: Record, epochs: Sequence[EpochSummary], total: EpochSummary, prices: Prices | None) -> Iterator[str]:
    bad = {run_notes.out_of_memory(record, mark) for mark in record.marks if mark.mark is Mark.OUT_OF_MEMORY}
    bad |= set(run_notes.diverged(epochs))
    yield '<ul class="notes">'
    for note in run_notes.notes(record, epochs, total, prices):
        yield f"<li{' class=bad' if note in bad else ''}>{escape(note)}</li>"
    yield "</ul>"


def _legend(chart: Document, spans: Sequence[Span]) -> str:
    """Return the names of the phases that are shaded, and what the chart leaves out."""
    names = dict.fromkeys(span.phase for span in spans) if len(spans) <= SHADES else ()
    phases = f'<p class="key"><span></span>{escape(", ".join(names))}</p>' if names else ""
    return phases + (f"<p>Shown: {escape(chart['cut'])}.</p>" if "cut" in chart else "")


def _tabs(devices: Sequence[DeviceRow | None]) -> Iterator[str]:
    if len(devices) < 2:
        return
    yield '<div class="tabs">'
    for i, device in enumerate(devices):
        if device is not None:
            pressed = "true" if i == 0 else "false"
            yield f'<button type="button" aria-pressed="{pressed}">GPU {device.number}</button>'
    yield "</div>"


def _epochs(record: Record, epochs: Sequence[EpochSummary], total: EpochSummary) -> Iterator[str]:
    has_phases = len(epochs) <= PHASES_UP_TO
    outside = run_tables.outside_rows(record, epochs, total, phases=has_phases)
    phases = aggregate.phase_summaries(record) if has_phases else {}
    columns, rows = run_tables.epoch_table(epochs, phases, total, outside)
    by_steps = any(row.ordinal <= STEP_ROWS for _, row in outside)
    yield from _table("Epochs" if epochs else "Steps" if by_steps else "Whole run", columns, rows, last_is_total=True)


def _ranks(record: Record) -> Iterator[str]:
    if len(record.ranks) > 1:
        columns, rows = run_tables.rank_table(record)
        yield from _table("Ranks", columns, rows)


def _config(record: Record) -> Iterator[str]:
    if record.about.config:
        yield from _table("Config", *config_table(record.about))


def _table(
    title: str, columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], *, last_is_total: bool = False
) -> Iterator[str]:
    kept = [i for i in range(len(columns)) if any(row[i] not in ("", units.MISSING) for row in rows)]
    kinds = ["" if columns[i].right else ' class="word"' for i in range(len(columns))]
    yield f'<section class="card"><h2>{title}</h2><div class="scroll"><table><thead><tr>'
    for i in kept:
        tip = f' title="{escape(columns[i].help)}"' if columns[i].help else ""
        yield f"<th{kinds[i]}{tip}>{escape(columns[i].title or columns[i].heading)}</th>"
    yield "</tr></thead><tbody>"
    for index, row in enumerate(rows):
        kind = " class=phase" if row[0].startswith(" ") else ""
        if last_is_total and index == len(rows) - 1:
            kind = " class=total"
        cells = (f"<td{_BAD if row[i] in _NO_NUMBERS else kinds[i]}>{escape(row[i].strip())}</td>" for i in kept)
        yield f"<tr{kind}>{''.join(cells)}</tr>"
    yield "</tbody></table></div></section>"


def _compact(figure: Figure) -> Figure:
    """Return a figure in which lines refer to equal x coordinates by their index in `times`, with rounded values."""
    times: dict[tuple[int, ...], int] = {}
    data = []
    for line in figure["data"]:
        y = [None if value is None else float(f"{value:.6g}") for value in line["y"]]
        data.append({**line, "x": times.setdefault(tuple(line["x"]), len(times)), "y": y})
    return {**figure, "data": data, "times": list(times)}


def _json(figures: Sequence[Figure]) -> str:
    """Return the figures as JSON, escaped so that no text can close the script element."""
    return json.dumps(figures, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _script_hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def _package_file(name: str) -> str:
    return (files("gpumon.reports") / name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Return the source of plotly.js from the installed Plotly package.

    It is the smallest bundle in the package (4.8 MB).
    """
    try:
        text = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except (ImportError, OSError) as error:
        raise MissingPackage("the report", "plotly") from error
    # The source must not close the script element, nor open a comment that would hide the closing tag.
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
