"""The vocabulary of layouts: components with `data-*` attributes that the scripts fill by kind.

`data-bind=NAME data-kind=KIND` shows a value; `data-old=TEXT` stands in its place once nothing new comes.
`table[data-rows=NAME]` shows rows, by its `th[data-col=CELL data-kind=KIND data-by=CELL]`.
`[data-search=NAME]` becomes a field that filters the rows of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

from gpumon_web.page import KINDS, NUMBERS, Column


def bound(
    name: str, kind: str = "text", element: type[Component] = html.Span, old: str | None = None, **props: Any
) -> Component:
    """An element whose content is the value `name`."""
    named = data(bind=name, kind=known_kind(kind), **({} if old is None else {"old": old}))
    return element(**named, **props)


def headline(
    title: str, name: str, kind: str, below: str = "", chips: str = "", *, is_first: bool = False,
    old: str | None = None,
) -> Component:  # fmt: skip
    """A card with one number: `name` its value, `chips` and `below` names of what stands beside and under it.

    `old` stands for the value once nothing new comes; then nothing stands under it.
    """
    parts = [html.Span(title, className="what"), bound(name, kind, className="value", old=old, **data(unit="unit"))]
    emptied = None if old is None else ""
    if chips:
        parts.append(bound(chips, "rich", className="chips", old=emptied))
    if below:
        parts.append(bound(below, "text", className="below", old=emptied))
    css = "headline first" if is_first else "headline"
    return html.Div(parts, className=css, role="group", **aria(label=title))


def headlines(*cards: Component) -> Component:
    """Headlines beside each other."""
    return html.Div(list(cards), className="headlines")


def card(title: str, *children: Component, has_head: bool = True) -> Component:
    """A framed part of a page."""
    if not has_head:
        return html.Section(list(children), className="card", **aria(label=title))
    return html.Section([html.Div(html.H2(title), className="cardhead"), *children], className="card")


def table(
    name: str, caption: str, columns: Sequence[Column], order: str, *, down: bool = False, css: str = "",
    empty: str = "", loading: str = "", no_match: str = "", dense_beyond: int = 0,
) -> Component:  # fmt: skip
    """A table of the rows `name`, ordered by the column `order`: its head; the scripts own its body.

    `empty`, `loading` and `no_match` stand in its place without rows, before they came, and where a search finds none.
    """
    head = html.Tr([_heading(column) for column in columns], role="row")
    named = data(
        rows=name, order=order, down="1" if down else "", empty=empty, loading=loading, no_match=no_match,
        dense=str(dense_beyond or ""),
    )  # fmt: skip
    parts = [
        html.Caption(caption, className="sr"),
        html.Thead(head, role="rowgroup"),
        html.Tbody(role="rowgroup"),
    ]
    return html.Div(html.Table(parts, className=f"stack {css}".strip(), role="table", **named), className="tablebox")


def search(table_name: str, words: str, label: str) -> Component:
    """The place of a field that filters the rows of a table; `words` stand in it while it is empty."""
    return html.Span(**data(search=table_name, words=words, label=label))


def data(**known: str) -> dict[str, Any]:
    """`data-*` attributes for our scripts."""
    return {f"data-{name.replace('_', '-')}": text for name, text in known.items()}


def aria(**said: str) -> dict[str, Any]:
    """`aria-*` attributes for screen readers."""
    return {f"aria-{name}": text for name, text in said.items()}


def known_kind(kind: str) -> str:
    """`kind`; raises ValueError for one that the scripts cannot show."""
    if kind not in KINDS:
        raise ValueError(f"no kind {kind!r} of values: one of {', '.join(sorted(KINDS))}")
    return kind


def _heading(column: Column) -> Component:
    css = ["num"] if column.is_number or column.kind in NUMBERS else []
    named = data(
        col=column.key, kind=known_kind(column.kind), by=column.sorts_by or column.key, unit=column.small_unit,
        head="1" if column.is_head else "",
    )  # fmt: skip
    title = html.Button(column.title, type="button", className="sort", title=column.help or None)
    inside = title if column.sort else column.title
    classes = " ".join((*css, column.css)).strip()
    return html.Th(inside, scope="col", role="columnheader", className=classes, **named)
