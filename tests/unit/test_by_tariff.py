"""Energy by tariff comes to what its row shows, and is never told as more than it can be."""

from __future__ import annotations

from math import isnan

import pytest

from gpumon.cluster.client import PrometheusSeries
from gpumon.cluster.cost import charges, total_charge
from gpumon.cluster.model import users
from gpumon.cluster.period_queries import price_energy
from gpumon.cluster.queries import Period
from gpumon.common.config import Prices
from gpumon.cost import Amount
from gpumon.reports.charges import text

DEAR, CHEAP = 0.34, 0.10
PRICES = Prices("EUR", {}, (CHEAP,) * 6 + (DEAR,) * 16 + (CHEAP,) * 2, 1.35)
KWH = 3.6e6


def priced(
    energy: float, at: dict[int, float], lately: dict[int, float], covered: float, held: float = 86400.0
) -> tuple[float, bool, bool]:
    """The cost of a day in which ada used so many kWh in `held` GPU seconds; of tariffs the first is the cheap one."""

    def of(kwh: float) -> list[PrometheusSeries]:
        return [PrometheusSeries({"user": "ada"}, kwh * KWH)] if kwh else []

    answers = {"energy_day": of(energy), "held_day": [PrometheusSeries({"user": "ada"}, held)],
               "covered_day": [PrometheusSeries({}, covered)],
               "covered_by_node_day": [PrometheusSeries({"instance": "gn1"}, covered)]}  # fmt: skip
    for place in (0, 1):
        answers[f"energy_at_{place}_day"] = of(at.get(place, 0.0))
        answers[f"energy_lately_{place}_day"] = of(lately.get(place, 0.0))
    return charges(answers, PRICES, Period.DAY)["ada"].energy


def test_a_sample_that_is_counted_whole_costs_no_more_than_its_energy_can() -> None:
    assert priced(0.24, {1: 0.87}, {1: 0.87}, 300.0) == (pytest.approx(0.24 * 1.35 * DEAR), False, False)


def test_the_cost_of_a_short_usage_is_approximate() -> None:
    """A step of minutes may be counted at the wrong price."""
    assert priced(1.0, {1: 1.0}, {}, 86400.0, held=600.0) == (pytest.approx(1.35 * DEAR), True, True)
    assert priced(1.0, {1: 1.0}, {}, 86400.0) == (pytest.approx(1.35 * DEAR), True, False)


def test_energy_that_steps_do_not_have_yet_costs_what_it_does_now() -> None:
    value, *_ = priced(12.0, {1: 10.66}, {1: 2.0}, 2700.0)
    assert value == pytest.approx(12.0 * 1.35 * DEAR, rel=0.01)
    one, two = {1: 1.5}, {0: 1.5, 1: 1.5}
    assert priced(12.0, {0: 6.0, 1: 5.0}, one, 86400.0) == (pytest.approx(1.35 * (6 * CHEAP + 6 * DEAR)), True, True)
    middle = 1.35 * (6 * CHEAP + 5 * DEAR + (CHEAP + DEAR) / 2)
    assert priced(12.0, {0: 6.0, 1: 5.0}, two, 86400.0) == (pytest.approx(middle), True, True), "no bound"
    assert priced(0.1, {}, {1: 0.1}, 86400.0) == (pytest.approx(0.1 * 1.35 * DEAR), True, False)


@pytest.mark.parametrize("at", [{1: 6.0}, {0: 2.0, 1: 4.0}, {1: 13.0}])
def test_energy_of_an_unknown_hour_costs_at_least_the_cheapest_price(at: dict[int, float]) -> None:
    """A step may hold energy of the tariff beside it: what steps come to at the dear price is no bound."""
    value, complete, about = priced(12.0, at, {0: 0.5, 1: 0.5}, 86400.0)
    assert (value, complete, about) == (pytest.approx(12 * 1.35 * CHEAP), False, False)


def test_who_had_no_gpu_in_a_month_that_is_known_whole_had_no_hours_and_no_cost() -> None:
    ada, new = {"user": "ada"}, {"user": "new"}
    answers = {
        "held_now": [PrometheusSeries(new, 1.0)], "held_last-month": [PrometheusSeries(ada, 3600.0)],
        "energy_last-month": [PrometheusSeries(ada, KWH)],
        "held_by_model_last-month": [PrometheusSeries(ada | {"model": "T4"}, 3600.0)],
        "idle_held_by_model_last-month": [PrometheusSeries(ada | {"model": "T4"}, 0.0)],
        "covered_last-month": [PrometheusSeries({"of": "2592000"}, 2592000.0)],
        "covered_by_node_last-month": [PrometheusSeries({"instance": "gn1"}, 2592000.0)],
    }  # fmt: skip
    prices = Prices("EUR", {"T4": 0.5}, (0.1,) * 24)
    found = charges(answers, prices, Period.LAST_MONTH)
    assert found["new"][:3] == ((0.0, True, False),) * 3
    assert total_charge(found, ["ada", "new"])[:3] == (
        (0.5, True, False),
        (0.0, True, False),
        (pytest.approx(0.1), True, False),
    )
    one = {one.name: one for one in users(answers, Period.LAST_MONTH)}["new"]
    assert (one.held_seconds, one.idle_seconds, one.energy) == (0.0, 0.0, 0.0)
    answers["covered_last-month"] = [PrometheusSeries({"of": "2592000"}, 2000.0)]
    assert not total_charge(charges(answers, prices, Period.LAST_MONTH), ["ada", "new"]).held.complete
    assert isnan({one.name: one for one in users(answers, Period.LAST_MONTH)}["new"].held_seconds)


def test_steps_that_come_to_nearly_all_are_stretched_to_it() -> None:
    for found in (0.995, 1.005):
        assert price_energy({DEAR: found / 2, CHEAP: found / 2}, {}, 1.0, all_priced=True) == (
            pytest.approx((DEAR + CHEAP) / 2), True, False
        )  # fmt: skip


def test_energy_of_hours_without_a_price_is_about_what_the_priced_hours_cost() -> None:
    """What steps have at a price may hold energy of the hour before, which has none."""
    assert price_energy({DEAR: 0.5}, {DEAR: 0.5}, 1.0, all_priced=False) == (0.5 * DEAR, False, True)
    assert price_energy({DEAR: 2.0}, {}, 1.0, all_priced=False) == (DEAR, False, True)
    assert text(Amount(3.0, about=True), "energy", PRICES) == "about 3.00 EUR"
    assert text(Amount(3.0, complete=False, about=True), "energy", PRICES) == "partly 3.00 EUR"
    assert (Amount(1.0) + Amount(2.0, about=True)).about
