"""Months of the calendar in a question: of the moment at which it is asked, where the one who asks lives."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gpumon.cluster.period_queries import LAST_MONTH, THIS_MONTH, insert_months, month_bounds, month_dates

BERLIN = ZoneInfo("Europe/Berlin")


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


@pytest.mark.parametrize(
    ("at", "which", "begin", "end"),
    [
        ("2026-11-23 22:00", LAST_MONTH, "2026-10-01 00:00", "2026-11-01 00:00"),
        ("2026-11-23 22:00", THIS_MONTH, "2026-11-01 00:00", "2026-11-23 22:00"),
        ("2026-03-01 00:00", LAST_MONTH, "2026-02-01 00:00", "2026-03-01 00:00"),
        ("2026-01-31 23:59", LAST_MONTH, "2025-12-01 00:00", "2026-01-01 00:00"),
    ],
)
def test_a_month_begins_on_the_first_of_a_place(at: str, which: str, begin: str, end: str) -> None:
    assert month_bounds(which, moment(at), BERLIN) == (moment(begin), moment(end))


def test_a_month_in_which_the_clock_changes_is_an_hour_longer() -> None:
    begin, end = month_bounds(LAST_MONTH, moment("2026-11-23 22:00"), BERLIN)
    assert end - begin == 31 * 86400 + 3600
    assert f"[{31 * 86400 + 3600}s] @ {end:.0f}" in insert_months(
        "increase(x[last-month])", moment("2026-11-23 22:00"), BERLIN
    )
    assert month_dates(LAST_MONTH, moment("2026-11-23 22:00"), BERLIN) == "2026-10-01 to 2026-10-31"


def test_the_range_of_a_month_that_has_just_begun_is_not_empty() -> None:
    begin, end = month_bounds(THIS_MONTH, moment("2026-11-01 00:00"), BERLIN)
    assert end - begin == 60.0


def test_its_length_is_told_beside_what_is_known_of_it() -> None:
    at = moment("2026-11-23 22:00")
    assert insert_months('label_replace(x, "of", "last-month", "", "")', at, BERLIN) == (
        f'label_replace(x, "of", "{31 * 86400 + 3600}", "", "")'
    )
    assert insert_months("sum_over_time(x[24h])", at, BERLIN) == "sum_over_time(x[24h])"
