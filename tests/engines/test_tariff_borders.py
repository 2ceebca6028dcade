"""A tariff that changes at half past an hour of UTC, or at ten past: Prometheus comes to what the ledger does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from gpumon.cluster.client import PrometheusClient
from gpumon.cluster.cost import charges, cost_queries
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import Period, user_sum_queries
from gpumon.common.config import read_prices
from gpumon.cost import price_hours, price_record
from gpumon.model.frame import RunState
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.query import HourUse, StoredDevice
from tests.engines.programs import Backend
from tests.engines.test_cost import DAY, END, HOUR, recorded_by_prometheus, recorded_in_victoria_metrics, run_of
from tests.runs import Book

pytestmark = pytest.mark.engine
EVERY = 30
POWER = 600.0
PRICES = read_prices({
    "currency": "EUR",
    "kwh": [{"from": 6, "to": 22, "price": 0.40}, {"from": 22, "to": 6, "price": 0.10}],
})  # fmt: skip
BY_HAND = pytest.approx(0.6 * (0.10 + 0.40), rel=0.01)
"""One hour before the tariff changes, and one behind it."""
ZONES = {"half past": 1800.0, "ten past": 3000.0}
"""Seconds by which the site is ahead of UTC, by when its tariff changes there."""


def begin_of_use(east: float) -> float:
    """When it is five in the morning at the site."""
    return END - DAY + (5 * HOUR - east)


def set_site_clock(monkeypatch: pytest.MonkeyPatch, east: float) -> None:
    monkeypatch.setattr("gpumon.cost.local_hour", lambda moment: int((moment + east) // HOUR) % 24)


def scrapes(east: float) -> Iterator[tuple[str, float]]:
    """A day of a GPU that ada uses from five to seven."""
    begin, energy = begin_of_use(east), 0.0
    for step in range(DAY // EVERY + 1):
        moment = END - DAY + step * EVERY
        yield 'gpumon_up{instance="gn1"} 1', moment
        yield 'gpumon_gpus{instance="gn1",state="free"} 0', moment
        yield 'gpumon_gpu_info{instance="gn1",uuid="GPU-h",model="H100"} 1', moment
        yield 'gpumon_gpu_power_watts{instance="gn1",gpu="0",uuid="GPU-h"} 100', moment
        yield f'gpumon_user_energy_joules_total{{instance="gn1",uuid="GPU-h",user="ada"}} {energy!r}', moment
        energy += POWER * EVERY if begin <= moment < begin + 2 * HOUR else 0.0


@pytest.mark.parametrize("zone", ZONES)
def test_the_ledger_comes_to_what_it_is_by_hand(zone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    east = ZONES[zone]
    set_site_clock(monkeypatch, east)
    with Book(tmp_path) as book:
        run_of(book, "run-0001", "ada", "GPU-h", begin_of_use(east), 1, 2 * HOUR, POWER)
    with Ledger(str(book.path)) as ledger:
        record = ledger.record("run-0001")
    assert record.run.state is RunState.FINISHED
    assert price_record(record, PRICES).energy == (BY_HAND, True, False)


def test_accounts_of_an_hour_with_two_prices_say_about(monkeypatch: pytest.MonkeyPatch) -> None:
    east = ZONES["half past"]
    set_site_clock(monkeypatch, east)
    begin = begin_of_use(east) // HOUR * HOUR
    hours = []
    for number, share in enumerate((0.5, 1.0, 0.5)):
        account = Account("ada", HOUR, HOUR, HOUR, 0.0, HOUR, share * POWER * HOUR)
        hours.append(HourUse(begin + number * HOUR, "GPU-h", DeviceUse(observed=HOUR, held=HOUR), [account]))
    found = price_hours(hours, [StoredDevice("GPU-h", 0, "H100")], PRICES).users["ada"]
    assert found.energy == (BY_HAND, True, True)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("engine", [recorded_by_prometheus, recorded_in_victoria_metrics])
def test_an_engine_comes_to_what_the_ledger_does(
    engine: Callable[..., AbstractContextManager[Backend]], zone: str, tmp_path: Path
) -> None:
    wanted = (*user_sum_queries(Period.DAY), *cost_queries(PRICES, ZONES[zone], [Period.DAY]))
    with (
        engine(tmp_path, list(scrapes(ZONES[zone]))) as running,
        closing(PrometheusClient(running.url, timeout=60.0)) as client,
        closing(ClusterPoller(client, wanted, now=lambda: END)) as poller,
    ):
        snapshot = poller.round()
    assert snapshot.problems() == {}
    assert charges(snapshot.answers(), PRICES, Period.DAY)["ada"].energy[:2] == (BY_HAND, True)


def short_use(before: int) -> Iterator[tuple[str, float]]:
    """The same day, in which the user's counter begins so many seconds before the tariff changes, for ten minutes."""
    border = begin_of_use(0.0) + HOUR
    for line, moment in scrapes(0.0):
        if "user_energy" not in line:
            yield line, moment
        elif moment >= border - before:
            energy = POWER * min(moment - border + before, 600.0)
            yield f'gpumon_user_energy_joules_total{{instance="gn1",uuid="GPU-h",user="ada"}} {energy!r}', moment


@pytest.mark.parametrize("before", [60, 90, 240])
@pytest.mark.parametrize("engine", [recorded_by_prometheus, recorded_in_victoria_metrics])
def test_a_bound_of_a_use_at_a_change_of_tariff_is_one(
    engine: Callable[..., AbstractContextManager[Backend]], before: int, tmp_path: Path
) -> None:
    """Of the seconds before the change Prometheus may make a whole step, at the lower price or at the higher one.

    From a minute on: of less, a recorded sample of each minute may have nothing.
    """
    wanted = (*user_sum_queries(Period.DAY), *cost_queries(PRICES, 0.0, [Period.DAY]))
    with (
        engine(tmp_path, list(short_use(before))) as running,
        closing(PrometheusClient(running.url, timeout=60.0)) as client,
        closing(ClusterPoller(client, wanted, now=lambda: END)) as poller,
    ):
        answers = poller.round().answers()
    value, complete, about = charges(answers, PRICES, Period.DAY)["ada"].energy
    true = POWER / 3.6e6 * (before * 0.10 + (600 - before) * 0.40)
    energy = sum(row.value for row in answers["energy_day"]) / (POWER * 600)
    assert about or value <= true * energy * 1.01, "at least so much is no more than it was"
    assert not complete or about or value == pytest.approx(true * energy, rel=0.05)
