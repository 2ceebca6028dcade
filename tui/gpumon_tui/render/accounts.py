"""Lines and columns of the accounts screen: GPU hours by user, GPU, day or hour, with costs if prices are
configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rich.segment import Segment

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN
from gpumon.cost import UNKNOWN, Amount
from gpumon.model import units
from gpumon.model.columns import USER_BY_KEY
from gpumon.reports import charges
from gpumon.reports.usage import (
    Headlines,
    account_energy,
    energy_text,
    hours_text,
    idle_note,
    idle_text,
    unknown_work,
    used_text,
)
from gpumon.storage.usage.period_totals import WINDOW_PERIODS
from gpumon_tui import theme
from gpumon_tui.appearance import spell_keys
from gpumon_tui.data.accounts import AccountRow
from gpumon_tui.render.process_columns import BAR_CELLS, WIDE, ProcessColumn, table_column_of
from gpumon_tui.render.table import Cell
from gpumon_tui.render.text_width import ClickRange, Line, cut, fit, length, safe, wrap_words

_PLAIN, _DIM, _FAINT, _STRONG, _WARN = (
    theme.ink("text"), theme.ink("dim"), theme.ink("faint"), theme.ink("strong"), theme.ink("warn"),
)  # fmt: skip
_BAR = theme.tint("text", 0.4)
HELD = "held"
"""Default sort column."""
PLACE = "name"


class AccountLine(NamedTuple):
    """A row on screen."""

    row: AccountRow
    share: float
    """Hours relative to the largest row."""
    now: str
    """GPUs held now, as text."""
    gpus: float
    """Number of GPUs held now; NaN if unknown."""


AccountColumn = ProcessColumn[AccountLine]


def columns(group: str, prices: Prices | None, *, has_now: bool, has_times: bool) -> tuple[AccountColumn, ...]:
    """Return the columns for rows of a `group`: user, gpu, day or hour.

    `has_now`: include the GPUs held now; `has_times`: include the time without data of each row.
    """
    return tuple(_columns(group, prices, has_now, has_times))


def _columns(group: str, prices: Prices | None, has_now: bool, has_times: bool) -> Iterator[AccountColumn]:
    yield AccountColumn(
        PLACE, group, 16, 12,
        (lambda a, f: a.row.name.casefold()) if group == "user" else (lambda a, f: a.row.position),
        lambda a, f: Cell(safe(a.row.name), _PLAIN) if a.row.name else Cell("unknown", _DIM),
        right=False, falls=False, brief_cells=11, wide_cells=24,
    )  # fmt: skip
    if has_now:
        now = _column(
            "now", "now", 10, 4, lambda a, f: a.gpus, lambda a, f: Cell(a.now, _PLAIN if a.gpus > 0 else _FAINT),
            right=False, brief_cells=8,
        )  # fmt: skip
        yield now if group == "user" else now._replace(title="now")
    yield AccountColumn("bar", "", BAR_CELLS, 0, None, _bar, right=False, from_cells=WIDE)
    yield _column(HELD, "held", 10, 11, lambda a, f: a.row.account.held, _held, brief_cells=9)
    yield _column("used", "used", 6, 10, _used, lambda a, f: _number(used_text(a.row.account)))
    yield _column(
        "idle", "idle_held", 15, 9, lambda a, f: a.row.account.idle_held if a.row.account.judged else NAN,
        lambda a, f: _number(idle_text(a.row.account)), brief="idle", brief_cells=11,
    )  # fmt: skip
    yield _column(
        "energy", "energy", 12, 8, lambda a, f: a.row.account.energy if _has_energy(a) else NAN, _energy, brief_cells=11
    )
    if prices is not None:
        for index, column in enumerate(charges.priced(prices)):
            yield _cost(column.short, column.key, 7.0 - index, prices)
    if has_times:
        yield _column(
            "unseen", "unseen", 9, 7.5, lambda a, f: a.row.unseen,
            lambda a, f: _number(hours_text(a.row.unseen) if a.row.unseen else ""),
        )  # fmt: skip
    yield AccountColumn("note", USER_BY_KEY["note"].short, 0, 1, None, _note, right=False)


def _column(
    sort_name: str, key: str, cells: int, keep: float, order: Callable[[AccountLine, object], float],
    cell: Callable[[AccountLine, object], Cell], **layout: Any,
) -> AccountColumn:  # fmt: skip
    return table_column_of(sort_name, USER_BY_KEY[key], cells, keep, order, cell, has_units=True, **layout)


def _number(text: str) -> Cell:
    return Cell(text, _FAINT if text == units.MISSING else _PLAIN)


def _bar(line: AccountLine, facts: object) -> Cell:
    return Cell("▆" * round(line.share * BAR_CELLS), _BAR)


def _held(line: AccountLine, facts: object) -> Cell:
    """Return the time held: zero only if the time was fully observed, otherwise unknown."""
    row = line.row
    if not row.account.held and (row.unseen or not row.is_of_window):
        return Cell(units.MISSING, _FAINT)
    return Cell(hours_text(row.account.held), _STRONG)


def _used(line: AccountLine, facts: object) -> float:
    account = line.row.account
    return account.busy / account.held if account.judged else NAN


def _has_energy(line: AccountLine) -> bool:
    return bool(line.row.account.metered or line.row.account.energy)


def _energy(line: AccountLine, facts: object) -> Cell:
    """Return the energy; for unknown users it is not compared with a measured time, because there is none."""
    account = line.row.account
    is_rest = not line.row.name and account.energy
    return _number(energy_text(account.energy) if is_rest else account_energy(account))


def _note(line: AccountLine, facts: object) -> Cell:
    account = line.row.account
    if not line.row.name:
        return Cell(unknown_work(account), _DIM)
    return Cell(idle_note(account), _WARN)


def _cost(title: str, name: str, keep: float, prices: Prices) -> AccountColumn:
    """Return the column of a named amount of a charge."""

    def amount(line: AccountLine) -> Amount:
        charge_amount: Amount = getattr(line.row.charge, name) if line.row.charge else UNKNOWN
        return charge_amount

    return AccountColumn(
        f"{name} cost", title, 14, keep, lambda a, f: amount(a).value if amount(a).is_meaningful else NAN,
        lambda a, f: _number(charges.text(amount(a), name, prices)), brief_cells=12,
    )  # fmt: skip


TITLES = ("GPU-hours held", "Used", "Allocated, idle", "Not seen")
"""Titles of the headlines."""
NARROW = 60
"""Width below which headlines are only numbers, and the period selection has its own line."""
_LABEL, _VALUE = 17, 12
"""Width of a headline's title and number."""


class Choice(NamedTuple):
    """An option chosen by a key."""

    key: str
    """Displayed name; empty if it shares the key of its neighbor."""
    name: str
    textual_key: str
    """Textual's name of the key."""
    is_chosen: bool = False


def window_lines(
    user: str, period: str, title: str, cells: int, *, is_newest: bool
) -> tuple[list[Line], list[ClickRange]]:
    """Return the first lines: user, period selection, and the window with arrows to its neighbors."""
    head: Line = [Segment(" Accounts ", theme.BAR_STRONG)]
    if user:
        head.append(Segment(f"› {safe(user)} ", theme.BAR_STRONG))
    choices = [Choice(name[0], name.title(), name[0], name == period) for name in WINDOW_PERIODS]
    arrows: Line = [
        Segment("‹ ", theme.KEY), Segment(title, theme.BAR_STRONG),
        Segment(" › ", theme.BAR_DIM if is_newest else theme.KEY),
    ]  # fmt: skip
    arrows_begin = cells - length(arrows)
    arrow_buttons = [
        ClickRange(arrows_begin, arrows_begin + 2, "left"),
        ClickRange(cells - 3, cells, "right"),
    ]
    if cells >= NARROW:
        period_line, period_buttons = _buttons(choices, length(head) + 2, 0)
        head = [*head, Segment("  ", theme.BAR), *period_line]
        if length(head) < arrows_begin:
            return [_filled([*head, Segment(" " * (arrows_begin - length(head)), theme.BAR), *arrows], cells)], [
                *period_buttons,
                *arrow_buttons,
            ]
        head = head[: 1 + bool(user)]
    period_line, period_buttons = _buttons(choices, 0, 1)
    head_cells = max(0, arrows_begin)
    first_line = [
        *cut(head, head_cells),
        Segment(" " * (head_cells - min(head_cells, length(head))), theme.BAR),
        *arrows,
    ]
    return [_filled(cut(first_line, cells), cells), _filled(period_line, cells)], [*arrow_buttons, *period_buttons]


def choice_line(choices: Sequence[Choice], row: int, cells: int) -> tuple[Line, list[ClickRange]]:
    """Return a line of options."""
    line, buttons = _buttons(choices, 1, row, on_bar=False)
    return cut([Segment(" "), *line], cells), buttons


def _buttons(
    choices: Sequence[Choice], begin_cell: int, row: int, *, on_bar: bool = True
) -> tuple[Line, list[ClickRange]]:  # fmt: skip
    line: Line = []
    buttons = []
    key_style, name_style = (theme.KEY, theme.BAR_DIM) if on_bar else (theme.TITLE, theme.DIM)
    for choice in choices:
        key, name = f" {choice.key}" if choice.key else "", f" {choice.name} "
        begin = begin_cell + length(line)
        line += [Segment(key, theme.PAGE if choice.is_chosen else key_style),
                 Segment(name, theme.PAGE if choice.is_chosen else name_style)]  # fmt: skip
        buttons.append(ClickRange(begin, begin_cell + length(line), choice.textual_key, row))
    return line, buttons


def headline_lines(headlines: Headlines, cells: int) -> list[Line]:
    """Return the totals of a window, with descriptions if there is room."""
    lines: list[Line] = []
    for title, value, description in zip(TITLES, headlines[::2], headlines[1::2], strict=True):
        head: Line = [Segment(f" {title:<{_LABEL}}", theme.DIM), Segment(fit(value, _VALUE), theme.STRONG)]
        room = cells - length(head) - 1
        words = list(wrap_words(safe(description, cells * 4), room)) if cells >= NARROW else []
        indent = Segment(" " * length(head))
        for row, part in enumerate(words or [""]):
            lines.append([*(head if row == 0 else [indent]), Segment(part, theme.DIM)])
    return lines


def key_line(keys: Sequence[Choice], cells: int, *, is_ascii: bool) -> tuple[Line, list[ClickRange]]:
    """Return the last line with as many keys as fit; the last key is always included."""
    texts = [(choice, f" {spell_keys(choice.key) if is_ascii else choice.key}", f" {choice.name} ") for choice in keys]
    room = cells - sum(len(part) for part in texts[-1][1:])
    line: Line = []
    buttons = []
    for choice, key, name in texts:
        if choice is not keys[-1] and length(line) + len(key) + len(name) > room:
            continue
        begin = length(line)
        line += [Segment(key, theme.KEY), Segment(name, theme.BAR_DIM)]
        buttons.append(ClickRange(begin, length(line), choice.textual_key))
    return _filled(cut(line, cells), cells), buttons


def message_line(message: str, cells: int) -> Line:
    """Return the last line while it shows a message."""
    return _filled(cut([Segment(f" {message} ", theme.BAR_STRONG)], cells), cells)


def _filled(line: Line, cells: int) -> Line:
    return [*line, Segment(" " * max(0, cells - length(line)), theme.BAR)]
