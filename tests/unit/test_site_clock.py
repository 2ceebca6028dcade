"""The local clock in a question: as it was at each moment of the period, also where it was changed in it."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gpumon.cluster.client import PrometheusAnswer
from gpumon.cluster.cost import cost_queries
from gpumon.cluster.period_queries import (
    LAST_MONTH,
    THIS_MONTH,
    HourlySums,
    clock_placeholder,
    insert_clock,
    month_bounds,
)
from gpumon.cluster.poller import QueryRunner
from gpumon.cluster.queries import Period
from gpumon.common.config import read_prices

BERLIN, NEW_YORK, KOLKATA = (ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Asia/Kolkata"))
NOVEMBER, AUGUST = 1763938800.0, 1754000000.0
DAY = 86400


def seconds_of(expression: str, moment: float) -> float:
    """Evaluate the arithmetic of an expression as a Prometheus server would."""
    return float(eval(expression.replace("time()", str(moment)).replace(" bool ", " "), {"__builtins__": {}}))


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, KOLKATA], ids=str)
@pytest.mark.parametrize("at", [NOVEMBER, AUGUST, 1745000000.0])
@pytest.mark.parametrize("later", [0, -150])
@pytest.mark.parametrize("selector", ["24h", "720h", LAST_MONTH, THIS_MONTH])
def test_it_is_that_of_the_place_at_each_moment(zone: ZoneInfo, at: float, later: int, selector: str) -> None:
    expression = insert_clock(clock_placeholder(later, selector), at, zone)
    begin, end = month_bounds(selector, at, zone) if "month" in selector else (at - int(selector[:-1]) * 3600, at)
    for moment in range(round(begin), round(end) + 1, 1700):
        local = datetime.fromtimestamp(moment + later, zone)
        expected = local.replace(tzinfo=ZoneInfo("UTC")).timestamp()
        assert seconds_of(expression, moment) == expected


def test_a_change_out_of_the_period_costs_nothing() -> None:
    assert insert_clock(clock_placeholder(0, "168h"), NOVEMBER, BERLIN) == "time() + 3600"


def test_a_clock_that_is_not_changed_costs_nothing_more() -> None:
    assert insert_clock(clock_placeholder(-150, "720h"), AUGUST, BERLIN) == "time() + 7050"


def test_a_poller_that_began_in_summer_asks_in_winter_by_the_clock_of_then() -> None:
    asked = []

    class PrometheusClient:
        name = "engine"

        def clock_offset(self) -> float:
            return 0.0

        def query(self, expression: str, at: float) -> PrometheusAnswer:
            asked.append(expression)
            return PrometheusAnswer(())

    prices = read_prices({"currency": "EUR", "kwh": [{"from": 6, "to": 22, "price": 0.4}]})
    turn = cost_queries(prices, periods=(Period.DAY,))
    asking = QueryRunner(PrometheusClient(), BERLIN)
    for at in (AUGUST, AUGUST + 180 * DAY):
        asking.answers([turn], turn, at, HourlySums())
    asking.close()
    assert ["+ 7050" in asked[0], "+ 3450" in asked[0]] == [True, False]
    assert ["+ 7050" in asked[len(turn)], "+ 3450" in asked[len(turn)]] == [False, True]
