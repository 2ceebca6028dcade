"""Pages of sources that a program serves: loads that have all pairs of values, and, slow, all combinations of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from playwright.sync_api import Browser

from tests.web.matrix import Open, check, loads, opening, tours
from tests.web.pairs import Case
from tests.web.sources import REAL


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    yield from opening(tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize("case", loads(REAL))
def test_page_is_whole_and_accessible_and_has_the_numbers_of_its_tick(
    browser: Browser, sources: Open, case: Case
) -> None:
    check(browser, sources.source(case["source"]), [case])


@pytest.mark.slow
@pytest.mark.parametrize("tour", tours(REAL))
def test_page_stays_so_in_every_width_and_theme_wherever_the_viewer_lives(
    browser: Browser, sources: Open, tour: Sequence[Case]
) -> None:
    check(browser, sources.source(tour[0]["source"]), tour)
