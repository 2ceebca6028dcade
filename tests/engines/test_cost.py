"""The cost of a month with day tariffs and three models: by hand, by accounts and runs, and by real engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
import yaml

from gpumon.cluster.client import PrometheusClient
from gpumon.cluster.cost import charges, cost_queries
from gpumon.cluster.period_queries import LAST_MONTH, month_bounds
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import Period, user_sum_queries
from gpumon.cluster.rules import RULE_FILES
from gpumon.common.clock import SECOND
from gpumon.common.config import read_prices
from gpumon.cost import Charge, price_hours, price_run
from gpumon.model.frame import RunState
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.row_keys import WHOLE_RUN
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.query import HourUse, StoredDevice
from tests.engines.lab import RULES
from tests.engines.past import prometheus_of, recorded_by_both
from tests.engines.programs import Backend
from tests.runs import Book, measured

pytestmark = pytest.mark.engine
HOUR, DAY, KWH = 3600, 86400, 3.6e6
EVERY = 150
"""Seconds between scrapes; two of them make a rate of five minutes."""
BEGIN, END = month_bounds(LAST_MONTH, time.time())
DAYS = round((END - BEGIN) / DAY)
EAST = 3600.0
"""Seconds by which the site's clock is ahead of UTC."""
PRICES = read_prices({
    "currency": "EUR", "gpu-hour": {"H100": 2.0, "A100": 1.0, "T4": 0.25}, "pue": 1.5, "co2": 400,
    "kwh": [{"from": 6, "to": 22, "price": 0.40}, {"from": 22, "to": 6, "price": 0.10}],
})  # fmt: skip
MODELS = {"GPU-h": "NVIDIA H100 80GB", "GPU-a": "NVIDIA A100", "GPU-t": "Tesla T4"}


def local_hour(moment: float) -> int:
    return int((moment + EAST) // HOUR) % 24


@pytest.fixture(autouse=True)
def site_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.cost.local_hour", local_hour)


def watts(uuid: str, user: str, moment: float) -> float:
    """Return the power of a user: ada's H100 works from 8 to 20 and her T4 at night, bob's A100 is idle all day."""
    hour = local_hour(moment)
    if (uuid, user) == ("GPU-h", "ada"):
        return 600.0 if 8 <= hour < 20 else 0.0
    if (uuid, user) == ("GPU-a", "bob"):
        return 100.0
    return 70.0 if hour < 4 else 0.0


HOLDERS = (("GPU-h", "ada"), ("GPU-a", "bob"), ("GPU-t", "ada"))


def by_hand(days: int = DAYS) -> dict[str, Charge]:
    """Return the month as one would reckon it with a pencil: each day is as the others."""
    ada_kwh_by_day, ada_kwh_at_night = 12 * 0.6 * days, 4 * 0.07 * days
    ada = Charge()._replace(held=amount((12 * 2.0 + 4 * 0.25) * days), idle_held=amount(0.0),
                            energy=amount(1.5 * (ada_kwh_by_day * 0.40 + ada_kwh_at_night * 0.10)),
                            co2=amount(1.5 * 400 * (ada_kwh_by_day + ada_kwh_at_night)))  # fmt: skip
    bob = Charge()._replace(held=amount(24 * days), idle_held=amount(24 * days),
                            energy=amount(1.5 * days * (16 * 0.1 * 0.40 + 8 * 0.1 * 0.10)),
                            co2=amount(1.5 * 400 * days * 24 * 0.1))  # fmt: skip
    return {"ada": ada, "bob": bob}


def amount(value: float) -> object:
    return pytest.approx(value, rel=0.01, abs=1e-9)


def by_accounts() -> dict[str, Charge]:
    """The same by the hours that a daemon's history keeps."""
    hours = []
    for number in range(DAYS * 24):
        begin = BEGIN + number * HOUR
        for uuid, user in HOLDERS:
            power = watts(uuid, user, begin)
            if power:
                idle = HOUR if user == "bob" else 0.0
                account = Account(user, HOUR, HOUR, HOUR - idle, idle, HOUR, power * HOUR)
                hours.append(HourUse(begin, uuid, DeviceUse(observed=HOUR, held=HOUR), [account]))
    devices = [StoredDevice(uuid, number, name) for number, (uuid, name) in enumerate(MODELS.items())]
    return dict(price_hours(hours, devices, PRICES).users)


def by_runs(directory: Path) -> dict[str, Charge]:
    """The same by the ledger: a run of ada each day and each night, and one of bob that lasts all month."""
    found: dict[str, Charge] = {"ada": Charge(), "bob": Charge()}
    with Book(directory) as book:
        book.db.execute("BEGIN")
        for day in range(DAYS):
            midnight = BEGIN - EAST + day * DAY  # of the site's clock
            run_of(book, f"day-{day:04}", "ada", "GPU-h", midnight + 8 * HOUR, 12, HOUR, 600.0)
            run_of(book, f"night-{day:04}", "ada", "GPU-t", midnight, 4, HOUR, 70.0)
        run_of(book, "month-0000", "bob", "GPU-a", BEGIN, DAYS * 24 // 4, 4 * HOUR, 100.0, idle=1.0)
        book.db.execute("COMMIT")
    with Ledger(str(book.path)) as ledger:
        for one in ledger.candidates():
            record = ledger.record(one.id)
            epochs = aggregate.epoch_summaries(record)
            total = aggregate.run_total(record, epochs)
            charge = price_run(total, epochs, record.devices, PRICES)
            found[record.run.user] = found[record.run.user].plus(charge)
    return found


def run_of(
    book: Book, name: str, user: str, uuid: str, begun: float, epochs: int, seconds: float, power: float,
    idle: float = 0.0,
) -> None:  # fmt: skip
    """A run on one GPU, of epochs one behind the other."""
    end = begun + epochs * seconds
    times = {"started": round(begun * SECOND), "ended": round(end * SECOND)}
    book.run(name, user=user, epochs=epochs, updated=times["ended"], state=RunState.FINISHED, **times)
    key = book.rank(name, state=RunState.FINISHED, **times)
    book.device(key, uuid=uuid, name=MODELS[uuid])
    for place in range(epochs):
        at = begun + place * seconds
        book.epoch(key, place, begun=round(at * SECOND), ended=round((at + seconds) * SECOND), seconds=seconds)
        book.usage(key, place, uuid, **measured(seconds, idle_share=idle, energy=power * seconds))
    whole = epochs * seconds
    book.usage(key, WHOLE_RUN, uuid, **measured(whole, idle_share=idle, energy=power * whole))


def scrapes(days: int) -> Iterator[tuple[str, float]]:
    """The same as the counters of an exporter, scraped a month long."""
    sums = {holder: [0.0, 0.0, 0.0] for holder in HOLDERS}
    names = ("gpumon_user_held_seconds_total", "gpumon_user_idle_held_seconds_total", "gpumon_user_energy_joules_total")
    for step in range(days * DAY // EVERY + 1):
        moment = END - days * DAY + step * EVERY
        for place, (uuid, model) in enumerate(MODELS.items()):
            labels = f'instance="gn1",gpu="{place}",uuid="{uuid}"'
            if uuid != "GPU-a" or moment < END - 360:  # else longer gone than a Prometheus server looks back
                yield f'gpumon_gpu_info{{{labels},model="{model}"}} 1', moment
        yield 'gpumon_up{instance="gn1"} 1', moment
        yield 'gpumon_gpus{instance="gn1",state="busy"} 3', moment
        yield 'gpumon_gpus{instance="gn1",state="free"} 0', moment
        yield 'gpumon_gpu_power_watts{instance="gn1",gpu="0",uuid="GPU-h"} 100', moment
        for uuid, user in HOLDERS:
            for name, value in zip(names, sums[uuid, user], strict=True):
                yield f'{name}{{instance="gn1",uuid="{uuid}",user="{user}"}} {value!r}', moment
            power = watts(uuid, user, moment)
            held = EVERY if power else 0.0
            for place, more in enumerate((held, held if user == "bob" else 0.0, power * EVERY)):
                sums[uuid, user][place] += more


def values(found: dict[str, Charge], user: str) -> tuple[float, ...]:
    return tuple(one.value for one in found[user])


def test_accounts_come_to_what_it_is_by_hand() -> None:
    expected, found = by_hand(), by_accounts()
    for user, charge in expected.items():
        assert values(found, user) == tuple(charge)


def test_runs_of_the_ledger_come_to_what_it_is_by_hand(tmp_path: Path) -> None:
    expected, found = by_hand(), by_runs(tmp_path)
    for user, charge in expected.items():
        assert values(found, user) == tuple(charge)
        assert all(one.complete for one in found[user])


def recorded_by_prometheus(
    directory: Path, told: list[tuple[str, float]], more: Sequence[Path] = ()
) -> AbstractContextManager[Backend]:
    """A Prometheus whose rules, those that charges need, were evaluated all the time."""
    return prometheus_of(directory, told, [needed_rules(directory), *more])


def needed_rules(directory: Path) -> Path:
    """Write a file with the rules that charges need."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    needed = (
        "user:gpumon_power", "user:gpumon_gpus_", "user_model:", "cluster:gpumon_gpu_power_watts",
        "instance:gpumon_gpus_free", "job:gpumon_gpu_busy:",
    )  # fmt: skip
    rules = [rule for group in groups for rule in group["rules"] if rule["record"].startswith((*needed, *RULE_FILES))]
    file = directory / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "users", "interval": "60s", "rules": rules}]}))
    return file


@contextmanager
def recorded_in_victoria_metrics(directory: Path, told: list[tuple[str, float]]) -> Iterator[Backend]:
    """A VictoriaMetrics that has the series which these rules record."""
    with recorded_by_both(directory, told, [needed_rules(directory)]) as (_, second):
        yield second


def added_up_by_the_hour(directory: Path, told: list[tuple[str, float]]) -> AbstractContextManager[Backend]:
    """The same, with the rules that add up hours."""
    return recorded_by_prometheus(directory, told, [RULES[0].with_name("hours.yml")])


@pytest.mark.parametrize(
    ("engine", "days", "period"),
    [(recorded_by_prometheus, 1, Period.DAY), (recorded_in_victoria_metrics, 1, Period.DAY),
     pytest.param(recorded_by_prometheus, DAYS, Period.LAST_MONTH, marks=pytest.mark.slow),
     (added_up_by_the_hour, DAYS, Period.LAST_MONTH)],
    ids=["a day", "a day in victoria-metrics", "a month", "sums by hour of a month"],
)  # fmt: skip
def test_an_engine_comes_to_what_it_is_by_hand(
    engine: Callable[..., AbstractContextManager[Backend]], days: int, period: Period, tmp_path: Path
) -> None:
    wanted = (*user_sum_queries(period), *cost_queries(PRICES, EAST, [period]))
    with (
        engine(tmp_path, list(scrapes(days))) as running,
        closing(PrometheusClient(running.url, timeout=60.0)) as client,
        closing(ClusterPoller(client, wanted, now=lambda: END)) as poller,
    ):
        snapshot = poller.round()
    assert snapshot.problems() == {}
    assert not snapshot.missing_files
    assert snapshot.by_hour == (engine is added_up_by_the_hour)
    found, expected = charges(snapshot.answers(), PRICES, period), by_hand(days)
    for user, charge in expected.items():
        assert values(found, user) == tuple(charge)
        assert all(one.complete for one in found[user])
