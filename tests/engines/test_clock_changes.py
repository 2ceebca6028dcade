"""The cost of a month in which the clock is changed: by hand, and by real engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gpumon.cluster.client import PrometheusClient
from gpumon.cluster.cost import charges, cost_queries
from gpumon.cluster.period_queries import LAST_MONTH, month_bounds
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import Period, user_sum_queries
from gpumon.common.config import read_prices
from tests.engines.programs import Backend
from tests.engines.test_cost import added_up_by_the_hour

pytestmark = pytest.mark.engine
BERLIN = ZoneInfo("Europe/Berlin")
EVERY, HOUR = 150, 3600
PRICES = read_prices({
    "currency": "EUR", "pue": 1.35,
    "kwh": [{"from": 6, "to": 22, "price": 0.34}, {"from": 22, "to": 6, "price": 0.21}],
})  # fmt: skip


def is_by_day(moment: float) -> bool:
    return 6 <= datetime.fromtimestamp(moment, BERLIN).hour < 22


def watts(moment: float) -> float:
    return 2000.0 if is_by_day(moment) else 500.0


def by_hand(begin: float, end: float) -> float:
    """Return what each hour of the month cost, added up."""
    hours = range(round(begin), round(end), HOUR)
    return sum(1.35 * watts(one) / 1000 * (0.34 if is_by_day(one) else 0.21) for one in hours)


def scrapes(begin: float, end: float) -> Iterator[tuple[str, float]]:
    energy = 0.0
    for step in range(round((end - begin) / EVERY) + 1):
        moment = begin + step * EVERY
        yield 'gpumon_up{instance="gn1"} 1', moment
        yield 'gpumon_gpus{instance="gn1",state="free"} 0', moment
        yield 'gpumon_gpu_power_watts{instance="gn1",gpu="0",uuid="GPU-h"} 100', moment
        yield f'gpumon_user_energy_joules_total{{instance="gn1",uuid="GPU-h",user="alice"}} {energy!r}', moment
        energy += watts(moment) * EVERY


@pytest.mark.parametrize("changed", ["2025-10", "2025-03"])
@pytest.mark.parametrize("engine", [added_up_by_the_hour])
def test_each_hour_of_a_month_costs_what_it_did_by_the_clock_of_then(
    engine: Callable[..., AbstractContextManager[Backend]], changed: str, tmp_path: Path
) -> None:
    at = datetime.fromisoformat(f"{changed}-25").timestamp() + 30 * 24 * HOUR
    begin, end = month_bounds(LAST_MONTH, at, BERLIN)
    wanted = (*user_sum_queries(Period.LAST_MONTH), *cost_queries(PRICES, periods=[Period.LAST_MONTH]))
    told = list(scrapes(begin, end))
    told += [(line, at - ago) for ago in (120, 60, 0) for line, _ in told[-4:]]  # what is there now
    with (
        engine(tmp_path, told) as running,
        closing(PrometheusClient(running.url, timeout=60.0)) as client,
        closing(ClusterPoller(client, wanted, now=lambda: at, zone=BERLIN)) as poller,
    ):
        snapshot = poller.round()
    assert snapshot.problems() == {}
    value, complete, _ = charges(snapshot.answers(), PRICES, Period.LAST_MONTH)["alice"].energy
    assert value == pytest.approx(by_hand(begin, end), rel=0.01)
    assert complete
