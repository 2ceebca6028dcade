"""Pages of sources that are made up: loads that have all pairs of values, and, slow, all combinations of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import pytest
from playwright.sync_api import Browser

from tests.web.matrix import ALL, PARAMETERS, Open, check, loads, opening, possible, tours
from tests.web.pairs import Case, every
from tests.web.sources import MADE


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    yield from opening(tmp_path_factory.mktemp("made"))


@pytest.mark.parametrize("case", loads(MADE))
def test_page_is_whole_and_accessible_and_has_the_numbers_of_its_tick(
    browser: Browser, sources: Open, case: Case
) -> None:
    check(browser, sources.source(case["source"]), [case])


@pytest.mark.slow
@pytest.mark.parametrize("tour", tours(MADE))
def test_page_stays_so_in_every_width_and_theme_wherever_the_viewer_lives(
    browser: Browser, sources: Open, tour: Sequence[Case]
) -> None:
    check(browser, sources.source(tour[0]["source"]), tour)


def pairs_of(cases: Iterable[Case]) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for case in cases for pair in combinations(case.items(), 2)}


def test_loads_leave_out_no_pair_of_source_page_width_theme_and_zone() -> None:
    cases = [load.values[0] for load in loads(tuple(ALL.values()))]
    assert all(possible(case) for case in cases)
    assert pairs_of(cases) == pairs_of(every(PARAMETERS, possible))


def test_loads_leave_out_no_pair_where_files_of_some_sources_are_missing() -> None:
    cases = [load.values[0] for load in loads([source for source in ALL.values() if source.needs is None])]
    assert pairs_of(cases) == pairs_of(case for case in every(PARAMETERS, possible) if not ALL[case["source"]].needs)


def test_tours_leave_out_no_page_width_theme_or_zone_of_any_source() -> None:
    seen = [case for tour in tours(tuple(ALL.values())) for case in tour.values[0]]
    assert len(seen) == len(every(PARAMETERS, possible))
    assert all(case in seen for case in every(PARAMETERS, possible))
