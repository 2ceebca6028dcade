"""Layout components with `data-*` attributes, which the scripts fill with values.

`data-bind=NAME data-kind=KIND` shows a value; `data-old=TEXT` replaces it when data stops coming.
`data-show=NAME` is hidden while a value is empty, `data-unless=NAME` while it is not; `data-dim=NAME` is dimmed while
it is true. `table[data-rows=NAME]` shows rows, with columns from `th[data-col=CELL data-kind=KIND data-by=CELL]`; a
`th` with `data-columns=NAME` becomes one column for each name in that value.
`[data-figure=ADDRESS data-subject=NAME data-outline=NAME]` becomes a live chart, `[data-kept-figure=NAME]` a chart that
is part of the stored values.
`[data-search=NAME]` becomes a field that filters the rows of a table, `[data-csv=NAME]` a button that saves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

from gpumon_web.components.page import KINDS, NUMBER_KINDS, Column

_STRIPS = (("held", "held"), ("used", "used"), ("unseen", "not seen"))


def bound(
    name: str, kind: str = "text", element: type[Component] = html.Span, old: str | None = None, **props: Any
) -> Component:
    """Create an element that shows the value `name`."""
    attributes = data(bind=name, kind=check_kind(kind), **({} if old is None else {"old": old}))
    return element(**attributes, **props)


def headline(
    title: str, name: str, kind: str, below: str = "", chips: str = "", extra: str = "", *, titled: str = "",
    is_first: bool = False, old: str | None = None, old_below: str | None = None,
) -> Component:  # fmt: skip
    """Create a card with one number: the value `name`, with `chips` and `extra` next to it and `below` under it.

    `titled` names a value that replaces the title. When data stops coming, `old` replaces the value, and `old_below`
    the text under it.
    """
    heading = bound(titled, "text", className="what") if titled else html.Span(title, className="what")
    parts = [heading, bound(name, kind, className="value", old=old, **data(unit="unit"))]
    old_text = old_below if old is None else ""
    if chips:
        parts.append(bound(chips, "rich", className="chips", old=old_text))
    if extra:
        parts.append(bound(extra, "rich", className="extra"))
    if below:
        parts.append(bound(below, "text", className="below", old=old_text))
    css = "headline first" if is_first else "headline"
    return html.Div(parts, className=css, role="group", **aria(label=title))


def headlines(*cards: Component, css: str = "", dims: str = "") -> Component:
    """Put headlines side by side; they are dimmed while the value `dims` is true."""
    return html.Div(list(cards), className=f"headlines {css}".strip(), **(data(dim=dims) if dims else {}))


def card(
    title: str, *children: Component, tools: Sequence[Component] = (), has_head: bool = True, titled: str = ""
) -> Component:
    """Create a framed part of a page with `tools` in its head. `titled` names a value that replaces the title."""
    if not has_head:
        return html.Section(list(children), className="card", **aria(label=title))
    head = html.Div([bound(titled, "text", html.H2) if titled else html.H2(title), *tools], className="cardhead")
    return html.Section([head, *children], className="card", **aria(label=title))


def shown_if(name: str, component: Component) -> Component:
    """Hide `component` while the value `name` is empty or missing."""
    setattr(component, "data-show", name)
    return component


def hidden_if(name: str, component: Component) -> Component:
    """Hide `component` while the value `name` is neither empty nor missing."""
    setattr(component, "data-unless", name)
    return component


def choice(arg: str, label: str, options: Sequence[tuple[str, str]], usual: str) -> Component:
    """Create buttons for the argument `arg` of the address. The button of its value is pressed; default: `usual`."""
    buttons = [html.Button(words, type="button", **data(arg=arg, value=value)) for value, words in options]
    return html.Div(buttons, className="seg", role="group", **aria(label=label), **data(usual=usual))


def figure(
    address: str, subject: str, outline: str, label: str, panels: Sequence[str], state: str = ""
) -> Component:  # fmt: skip
    """Create the element of a live chart, for a card with a choice of windows.

    The chart is loaded from `address` followed by the value `subject`, and reloaded when the value `outline` changes;
    the page's live lines extend it. `panels` are shown until the viewer selects others. `silent` in the value `state`
    explains why there are no present values.
    """
    attributes = data(figure=address, subject=subject, outline=outline, state=state, panels=" ".join(panels))
    return html.Div(className="plot", role="group", **aria(label=label), **attributes)


def kept_figure(name: str, label: str, *, loading: str, empty: str, whole: str) -> Component:
    """Create the element of the stored chart `name`, for a card; the zoom is kept when it is reloaded.

    `loading` and `empty` are shown before it has arrived and if there is none; `whole` labels the button that resets
    the zoom.
    """
    attributes = data(kept_figure=name, loading=loading, empty=empty, whole=whole)
    return html.Div(className="plot", role="group", **aria(label=label), **attributes)


def table(
    name: str, caption: str, columns: Sequence[Column], order: str, *, css: str = "",
    empty: str = "", empty_from: str = "", loading: str = "", no_match: str = "", dense_beyond: int = 0,
    within: str = "", folds: str = "", few: int = 0, searched: str = "",
) -> Component:  # fmt: skip
    """Create the head of a table of the rows `name`, sorted by the column `order` at first; scripts fill its body.

    `empty` (or the value `empty_from`), `loading` and `no_match` are shown without rows, before they have arrived, and
    if a search has no match. `within` names rows of groups whose members are rows of this table; `folds` names rows
    that replace the rows from ordinal `first` to `last` until expanded. `few`: rows shown before the viewer asks for
    more. `searched` names the value with the text that the server has searched for, if it does not send all rows.
    """
    is_down = any(column.key == order and is_descending(column) for column in columns)
    head = html.Tr([_heading(column) for column in columns], role="row")
    attributes = data(
        rows=name, order=order, down="1" if is_down else "", empty=empty, loading=loading, no_match=no_match,
        dense=str(dense_beyond or ""), empty_from=empty_from, within=within, folds=folds, few=str(few or ""),
        searched=searched,
    )  # fmt: skip
    parts = [
        html.Caption(caption, className="sr"),
        html.Thead(head, role="rowgroup"),
        html.Tbody(role="rowgroup"),
    ]
    element = html.Table(parts, className=f"stack {css}".strip(), role="table", **attributes)
    return html.Div(element, className="tablebox")


def strip_key(css: str = "key") -> Component:
    """Create the legend of strips of held time."""
    marks = [(html.I(className=f"k-{mark}"), words) for mark, words in _STRIPS]
    return html.Span([part for pair in marks for part in pair], className=css)


def search(table_name: str, words: str, label: str) -> Component:
    """Create the element of a field that filters the rows of a table; `words` is its placeholder text."""
    return html.Span(**data(search=table_name, words=words, label=label))


def download(table_name: str, title: str, key: str = "", rows: str = "", period: str = "") -> Component:
    """Create the element of a button that saves the visible rows of a table as CSV; `title` describes them.

    `key` names an added column with the key of each row, such as a run's id, if no other column has it. `rows` names a
    value with the rows of the file, if the table only has formatted text. `period` names a value with the time range
    for the file name; without it the time of the data is used.
    """
    return html.Span(**data(csv=table_name, title=title, key=key, ready=rows, period=period))


def data(**values: str) -> dict[str, Any]:
    """Return `data-*` attributes for our scripts."""
    return {f"data-{name.replace('_', '-')}": text for name, text in values.items()}


def aria(**values: str) -> dict[str, Any]:
    """Return `aria-*` attributes for screen readers."""
    return {f"aria-{name}": text for name, text in values.items()}


def check_kind(kind: str) -> str:
    """Return `kind`. Raises ValueError if the scripts cannot show it."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind of values {kind!r}: must be one of {', '.join(sorted(KINDS))}")
    return kind


def is_number(column: Column) -> bool:
    """Whether the cells of a column are right-aligned."""
    return column.is_number or column.kind in NUMBER_KINDS


def is_descending(column: Column) -> bool:
    """Whether a column sorts in descending order first."""
    return is_number(column) if column.falls is None else column.falls


def _heading(column: Column) -> Component:
    css = ["num"] if is_number(column) else []
    attributes = data(
        col=column.key, kind=check_kind(column.kind), by=column.sorts_by or column.key, unit=column.small_unit,
        head="1" if column.is_head else "", most=column.most, columns=column.each_of, sort="1" if column.sort else "",
        falls="1" if is_descending(column) else "",
        help=column.help, titled=column.titled, needs=column.needs, saved=column.csv, listed=column.csv_list,
    )  # fmt: skip
    classes = " ".join((*css, column.css)).strip()
    title = html.Span(column.title, className="sr") if column.kind == "tick" else column.title  # no room for it
    return html.Th(title, scope="col", role="columnheader", className=classes, **attributes)
