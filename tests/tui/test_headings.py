"""Headings of columns: alike on all pages."""

from __future__ import annotations

import re

import pytest

from gpumon_tui.render import process_columns, run_list, table
from gpumon_tui.render.run_list import ORDERS
from gpumon_tui.render.text_width import Line

SIZES = (80, 120, 160, 200)
RUN_TITLES = [column.title for column in run_list.columns(200)]


def text_of(line: Line) -> str:
    return "".join(segment.text for segment in line)


def runs(cells: int, place: int, *, falls: bool = True) -> Line:
    side = table.margin(cells)
    key = run_list.columns(cells)[place].key if place >= 0 else ""
    return table.heading(table.fit_columns(run_list.columns(cells), side, cells - side), cells, key, falls=falls)


def processes(cells: int, name: str, *, falls: bool = True) -> Line:
    columns = process_columns.place_columns(process_columns.COLUMNS, cells, name)
    return table.heading(columns, cells, name, falls=falls)


@pytest.mark.parametrize("cells", SIZES)
def test_words_are_in_lower_case_and_only_abbreviations_are_not(cells: int) -> None:
    placed = process_columns.place_columns(process_columns.USER_COLUMNS, cells, "user")
    users = table.heading(placed, cells, "user")
    for line in (runs(cells, -1), processes(cells, ""), users):
        words = text_of(line).replace("▼", " ").split()
        assert len(words) > 4
        assert [word for word in words if len(word) > 3 and word == word.upper() and word.isalpha()] == []


@pytest.mark.parametrize("cells", SIZES)
@pytest.mark.parametrize("falls", [True, False])
def test_the_mark_of_the_order_stands_behind_the_heading_and_moves_nothing(cells: int, falls: bool) -> None:
    mark = "▼" if falls else "▲"
    for title in ("name", "started", "time", "energy"):
        if title not in text_of(runs(cells, -1)):
            continue
        line = text_of(runs(cells, RUN_TITLES.index(title), falls=falls))
        assert f"{title}{mark}" in line
        assert line.replace(mark, " ") == text_of(runs(cells, -1))
    for name, title in (("user", "user"), ("mem", "GiB")):
        line = text_of(processes(cells, name, falls=falls))
        assert f"{title}{mark}" in line
        assert line.replace(mark, " ") == text_of(processes(cells, ""))


@pytest.mark.parametrize("cells", SIZES)
@pytest.mark.parametrize("order", [column.name for column in process_columns.ORDERS])
def test_the_mark_of_the_order_touches_no_other_heading(cells: int, order: str) -> None:
    assert not re.search(r"[▼▲]\S", text_of(processes(cells, order)))


def test_the_mark_says_which_way_runs_are_sorted() -> None:
    assert {order.name: order.falls for order in ORDERS} == {
        "newest first": True, "by name": False, "by user": False, "longest first": True, "most energy first": True,
        "least utilized first": False, "worst end first": True,
    }  # fmt: skip
    assert {order.column for order in ORDERS} <= set(RUN_TITLES), "each has a column that can be clicked"
