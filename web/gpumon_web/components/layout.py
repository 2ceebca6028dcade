"""The vocabulary of layouts: components with `data-*` attributes that the scripts fill by kind.

`data-bind=NAME data-kind=KIND` shows a value; `data-old=TEXT` stands in its place once nothing new comes.
`data-show=NAME` is hidden while a value is empty, `data-unless=NAME` while it is not; `data-dim=NAME` is dimmed while
it is true. `table[data-rows=NAME]` shows rows, by its `th[data-col=CELL data-kind=KIND data-by=CELL]`; one with
`data-columns=NAME` stands for a column for each name in that value.
`[data-figure=ADDRESS data-subject=NAME data-outline=NAME]` becomes a live figure, `[data-kept-figure=NAME]` one that
comes whole with what the ledger keeps.
`[data-search=NAME]` becomes a field that filters the rows of a table, `[data-csv=NAME]` a button that saves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

from gpumon_web.components.page import KINDS, NUMBERS, Column

_STRIPS = (("held", "held"), ("used", "used"), ("unseen", "not seen"))


def bound(
    name: str, kind: str = "text", element: type[Component] = html.Span, old: str | None = None, **props: Any
) -> Component:
    """An element whose content is the value `name`."""
    named = data(bind=name, kind=known_kind(kind), **({} if old is None else {"old": old}))
    return element(**named, **props)


def headline(
    title: str, name: str, kind: str, below: str = "", chips: str = "", extra: str = "", *, titled: str = "",
    is_first: bool = False, old: str | None = None, old_below: str | None = None,
) -> Component:  # fmt: skip
    """A card with one number: `name` its value, `chips`, `extra` and `below` names of what stands beside and under it.

    `titled` names a value that is its title instead. `old` stands for the value once nothing new comes, `old_below` for
    what stands under it.
    """
    what = bound(titled, "text", className="what") if titled else html.Span(title, className="what")
    parts = [what, bound(name, kind, className="value", old=old, **data(unit="unit"))]
    emptied = old_below if old is None else ""
    if chips:
        parts.append(bound(chips, "rich", className="chips", old=emptied))
    if extra:
        parts.append(bound(extra, "rich", className="extra"))
    if below:
        parts.append(bound(below, "text", className="below", old=emptied))
    css = "headline first" if is_first else "headline"
    return html.Div(parts, className=css, role="group", **aria(label=title))


def headlines(*cards: Component, css: str = "", dims: str = "") -> Component:
    """Headlines beside each other; they are dimmed while the value `dims` is true."""
    return html.Div(list(cards), className=f"headlines {css}".strip(), **(data(dim=dims) if dims else {}))


def card(
    title: str, *children: Component, tools: Sequence[Component] = (), has_head: bool = True, titled: str = ""
) -> Component:
    """A framed part of a page; `tools` stand in its head. `titled` names a value that is its title instead."""
    if not has_head:
        return html.Section(list(children), className="card", **aria(label=title))
    head = html.Div([bound(titled, "text", html.H2) if titled else html.H2(title), *tools], className="cardhead")
    return html.Section([head, *children], className="card", **aria(label=title))


def shown_if(name: str, component: Component) -> Component:
    """`component`, hidden while the value `name` is empty or missing."""
    setattr(component, "data-show", name)
    return component


def hidden_if(name: str, component: Component) -> Component:
    """`component`, hidden while the value `name` is neither empty nor missing."""
    setattr(component, "data-unless", name)
    return component


def choice(arg: str, label: str, options: Sequence[tuple[str, str]], usual: str) -> Component:
    """Buttons of which one is pressed: the argument `arg` of the address, `usual` where it does not say."""
    buttons = [html.Button(words, type="button", **data(arg=arg, value=value)) for value, words in options]
    return html.Div(buttons, className="seg", role="group", **aria(label=label), **data(usual=usual))


def figure(
    address: str, subject: str, outline: str, label: str, panels: Sequence[str], state: str = ""
) -> Component:  # fmt: skip
    """The place of a live chart, inside of a card with a choice of windows.

    It comes from `address` followed by the value `subject`, anew when the value `outline` changes, and grows by the
    page's lines of the names of its panels; `panels` are shown until the viewer chooses others. The value `state` says
    in `silent` why there are no values of now.
    """
    named = data(figure=address, subject=subject, outline=outline, state=state, panels=" ".join(panels))
    return html.Div(className="plot", role="group", **aria(label=label), **named)


def kept_figure(name: str, label: str, *, loading: str, empty: str, whole: str) -> Component:
    """The place of the figure `name` of what the ledger keeps, inside of a card: zooms stay while it comes anew.

    `loading` and `empty` stand in its place before it came and where there is none; `whole` is the button to all of it.
    """
    named = data(kept_figure=name, loading=loading, empty=empty, whole=whole)
    return html.Div(className="plot", role="group", **aria(label=label), **named)


def table(
    name: str, caption: str, columns: Sequence[Column], order: str, *, css: str = "",
    empty: str = "", empty_from: str = "", loading: str = "", no_match: str = "", dense_beyond: int = 0,
    within: str = "", folds: str = "", few: int = 0, searched: str = "",
) -> Component:  # fmt: skip
    """A table of the rows `name`, ordered by the column `order` as that begins: its head; the scripts own its body.

    `empty` (or the value `empty_from`), `loading` and `no_match` stand in its place without rows, before they came, and
    where a search finds none. `within` names the rows of groups, whose members are rows of this table;
    `folds` names rows that stand for neighbors, from the ordinal `first` to `last`, until they are opened.
    `few`: so many rows are shown until somebody wants more. `searched` names the value with the words for which the
    server has searched, where it has more rows than it sends.
    """
    is_down = any(column.key == order and falls(column) for column in columns)
    head = html.Tr([_heading(column) for column in columns], role="row")
    named = data(
        rows=name, order=order, down="1" if is_down else "", empty=empty, loading=loading, no_match=no_match,
        dense=str(dense_beyond or ""), empty_from=empty_from, within=within, folds=folds, few=str(few or ""),
        searched=searched,
    )  # fmt: skip
    parts = [
        html.Caption(caption, className="sr"),
        html.Thead(head, role="rowgroup"),
        html.Tbody(role="rowgroup"),
    ]
    return html.Div(html.Table(parts, className=f"stack {css}".strip(), role="table", **named), className="tablebox")


def strip_key(css: str = "key") -> Component:
    """Words for what strips of held time show."""
    marks = [(html.I(className=f"k-{mark}"), words) for mark, words in _STRIPS]
    return html.Span([part for pair in marks for part in pair], className=css)


def search(table_name: str, words: str, label: str) -> Component:
    """The place of a field that filters the rows of a table; `words` stand in it while it is empty."""
    return html.Span(**data(search=table_name, words=words, label=label))


def download(table_name: str, title: str, key: str = "", rows: str = "", period: str = "") -> Component:
    """The place of a button that saves the rows in view of a table as CSV; `title` says of what they are.

    `key` names the column of what tells rows apart, such as the id of a run, where no other column has it. `rows`: the
    value with the rows of the file, where the table has them in words: each a number or a text by column. `period`: the
    value that says of which time they are, for the name of the file; without it that is the time of the data.
    """
    return html.Span(**data(csv=table_name, title=title, key=key, ready=rows, period=period))


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


def is_number(column: Column) -> bool:
    """Whether its cells stand at the right."""
    return column.is_number or column.kind in NUMBERS


def falls(column: Column) -> bool:
    """Whether the largest stand first when somebody sorts by it."""
    return is_number(column) if column.falls is None else column.falls


def _heading(column: Column) -> Component:
    css = ["num"] if is_number(column) else []
    named = data(
        col=column.key, kind=known_kind(column.kind), by=column.sorts_by or column.key, unit=column.small_unit,
        head="1" if column.is_head else "", most=column.most, columns=column.each_of, sort="1" if column.sort else "",
        falls="1" if falls(column) else "",
        help=column.help, titled=column.titled, needs=column.needs, saved=column.csv, listed=column.csv_list,
    )  # fmt: skip
    classes = " ".join((*css, column.css)).strip()
    title = html.Span(column.title, className="sr") if column.kind == "tick" else column.title  # boxes have no room
    return html.Th(title, scope="col", role="columnheader", className=classes, **named)
