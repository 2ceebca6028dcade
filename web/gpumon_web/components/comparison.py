"""Dash components of a comparison of runs: its runs, best values, tables and choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

from gpumon.reports.compare import letters
from gpumon.reports.figures.plotly_figure import last_value, title, write
from gpumon.reports.figures.run_chart import ROLES
from gpumon_web.components import levels
from gpumon_web.components.compare_rows import MAX_RUNS, MIN_RUNS, PICK_ARG, Row, comparison_address
from gpumon_web.components.layout import aria, data
from gpumon_web.components.tokens import run_address

Address = Callable[..., str]
"""Returns the address of the page with other runs, or with changed arguments."""


def choice(words: str, href: str, *, is_on: bool) -> Component:
    """Return a link to the page with another choice."""
    return html.A(words, href=href, **(aria(current="true") if is_on else {}))


def panel_choices(panels: Sequence[Mapping[str, Any]], shown: Sequence[str], address: Address) -> list[Component]:
    """Return a link for each panel that shows or hides it; the last one cannot be hidden."""
    choices = []
    for panel in panels:
        keys = [other["key"] for other in panels if (other["key"] in shown) != (other is panel)] or shown
        choices.append(choice(panel["title"], address(panels=",".join(keys)), is_on=panel["key"] in shown))
    return choices


def run_lines(runs: Sequence[Mapping[str, Any]], address: Address) -> list[Component]:
    """Return a line for each run: letter in its color, name, and links to reorder or remove it."""
    ids = [run["id"] for run in runs]
    lines: list[Component] = []
    for index, (letter, run) in enumerate(zip(letters(len(runs)), runs, strict=True)):
        others = [other for other in ids if other != run["id"]]
        label = f"{letter}, {run['name']}"
        baseline: Component = html.Span("baseline", className="tag")
        if index:
            href = address([run["id"], *others])
            baseline = html.A("as baseline", href=href, className="mut", **aria(label=f"Compare with {label}"))
        parts = [
            _badge(index, letter),
            html.A(run["name"], href=run_address(run["id"]), className="mono name"),
            html.Span(run["user"], className="mut"),
            *_state(run["state"]),
            html.Span(run["counts"], className="mut"),
            baseline,
        ]
        if len(ids) > MIN_RUNS:
            parts.append(html.A("×", href=address(others), className="out", **aria(label=f"Leave out {label}")))
        lines.append(html.Div(parts, className="one"))
    if len(ids) < MAX_RUNS:
        href = comparison_address(ids, page="runs", arg=PICK_ARG)
        more = html.A("+ Run", href=href, className="button", **aria(label="Choose more runs"))
        lines.append(html.Div(more, className="add"))
    return lines


def _badge(index: int, letter: str) -> Component:
    return html.Span(letter, className=f"badge {ROLES[index % len(ROLES)]}")


def _state(state: str) -> list[Component]:
    """Return the tag of a run's state. A running run has one for each state of the data; styles show one of them."""
    level = levels.RUN_LEVELS.get(state, "")
    if state != "running":
        return [html.Span(state or "–", className=f"tag {level}")]
    texts = {"live-only": "running", "old-only": "last seen running", "ended-only": "running at the end"}
    return [html.Span(text, className=f"tag {level} {css}") for css, text in texts.items()]


def headline(best: Mapping[str, Any]) -> Component:
    """Return the card of the lowest value of a measure."""
    number, _, unit = best["text"].partition(" ")
    chips = [_badge(best["run"], letters(best["run"] + 1)[-1])] if best["run"] is not None else []
    parts = [
        html.Span(best["title"], className="what"),
        html.Span([number, html.Small(f" {unit}")] if unit else number, className="value"),
        html.Span(chips, className="chips"),
        html.Span(best["others"], className="below"),
    ]
    return html.Div(parts, className="headline", role="group", **aria(label=best["title"]))


def notes(texts: Sequence[str], about: str = "") -> list[Component]:
    """Return the items of a list of notes; `about` is a tag before each."""
    if about:
        return [html.Li([html.Span(about, className="tag warn"), html.Span(text)]) for text in texts]
    return [html.Li(html.Span(text, className="mut")) for text in texts]


def table(caption: str, heading: str, names: Sequence[str], rows: Sequence[Row], empty: str) -> Component:
    """Return a table with a column for each run; the text `empty` without rows."""
    if not rows:
        return html.P(empty, className="empty")
    body = []
    for row in rows:
        cells = []
        for name, cell in zip(names, row["cells"], strict=True):
            level = f" {cell['level']}" if cell["level"] and not cell["note"] else ""
            parts = [html.Span(cell["text"], className=f"num{level}")]
            if cell["note"]:
                parts.append(html.Span(cell["note"], className=cell["level"]))
            cells.append(html.Td(html.Div(parts), **data(label=name)))
        body.append(html.Tr([html.Th(row["title"], scope="row"), *cells]))
    return _table(caption, [heading, *names], body)


def values_table(chart: Mapping[str, Any], keys: Sequence[str]) -> Component:
    """Return the last, lowest and highest value of each line: what the figure shows, for those who cannot see it."""
    heads = ("Course", "Run", "Last", "Lowest", "Highest")
    body = []
    for panel in chart["panels"]:
        for line in panel["lines"] if panel["key"] in keys else ():
            values = [value for value in line["mean"] if value is not None]
            texts = [
                line["label"],
                last_value(panel, line),
                write(min(values), panel["unit"]),
                write(max(values), panel["unit"]),
            ]
            if line.get("lost"):
                texts[1] = line["lost"]["text"]
            cells = [html.Td(text, **data(label=head)) for head, text in zip(heads[1:], texts, strict=True)]
            body.append(html.Tr([html.Th(title(panel), scope="row"), *cells]))
    return _table("Last, lowest and highest values", heads, body)


def _table(caption: str, heads: Sequence[str], body: Sequence[Component]) -> Component:
    head = html.Tr([html.Th(text, scope="col") for text in heads])
    parts = [html.Caption(caption, className="sr"), html.Thead(head), html.Tbody(list(body))]
    return html.Table(parts, className="stack compared")
