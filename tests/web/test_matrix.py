"""Pages of every source: whole, accessible, and with the numbers of `gpumon status`, at some width, theme and zone."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from gpumon_web.pages import PAGES
from tests.web.matrix import ALL, WIDTHS, cases_of, check, opening
from tests.web.sources import MADE, REAL


@pytest.mark.parametrize("name", [source.name for source in (*REAL, *MADE)])
def test_pages_are_whole_and_accessible(browser: Browser, tmp_path: Path, name: str) -> None:
    with opening(tmp_path) as sources:
        check(browser, sources.source(name), cases_of(ALL[name]))


def test_each_page_is_seen_at_each_width_and_theme() -> None:
    cases = [case for source in (*REAL, *MADE) for case in cases_of(source)]
    for page in PAGES.keys() - {"none"}:
        looks = [case for case in cases if case.page == page]
        assert len(looks) >= min(3, len(WIDTHS)), page
    assert {(case.width, case.theme) for case in cases} == {*product(WIDTHS, ("dark", "light"))}
