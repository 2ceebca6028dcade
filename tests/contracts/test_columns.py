"""Columns of rows are described once, in `gpumon/model/columns.py`: every view shows their titles, units and digits."""

from __future__ import annotations

import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpumon.model.columns import TABLES, Column

ROOT = Path(__file__).parents[2]
ALL = [pytest.param(column, id=f"{title}: {column.key}") for title, columns in TABLES.items() for column in columns]


def repeated(texts: Iterable[str]) -> set[str]:
    every = [text for text in texts if text]
    return {text for text in every if every.count(text) > 1}


@pytest.mark.parametrize("title", TABLES)
def test_columns_of_a_table_are_told_apart(title: str) -> None:
    columns = TABLES[title]
    assert repeated(column.key for column in columns) == set()
    assert repeated(column.title for column in columns) == set()


@pytest.mark.parametrize("column", ALL)
def test_a_column_says_what_it_is(column: Column) -> None:
    assert column.title
    assert column.title[:1] == column.title[:1].upper()
    assert column.help.endswith(".")
    assert column.short == column.short.lower() or any(word.isupper() for word in column.short.split()) or (
        column.short in ("GPUs", "OOMs")
    )  # fmt: skip
    assert column.keep >= 0


def test_the_page_on_columns_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "generate.py"))["columns_page"]()
    page = (ROOT / "docs" / "columns.md").read_text(encoding="utf-8")
    assert page == made, "docs/columns.md is not what the tables say: run 'python docs/generate.py'"
