"""Sums by the hour beside those by the minute, on real engines: the same at every moment, of fewer samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import chain
from math import ceil

import httpx
import pytest

from gpumon.cluster.client import PrometheusAnswer, PrometheusClient
from gpumon.cluster.period_queries import PHASE_QUERY, PROOF, hourly_series, insert_windows, parse_phase
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import HOURS_QUERY, Period, user_sum_queries
from gpumon.cluster.rules import GPUMON, RULE_FILES
from tests.conftest import ROOT
from tests.engines.past import BEGIN, prometheus_of, victoria_metrics_of
from tests.engines.programs import Backend

pytestmark = pytest.mark.engine
HOUR, DAYS = 3600, 8
END = BEGIN
"""Of the newest sample; a Prometheus server refuses what is to come."""
START = END - DAYS * 24 * HOUR
HELD = "user:gpumon_gpus_held:rate5m"
PHASE = 1234.0
"""Seconds into the hour at which hours are recorded; minutes are at 17 s."""
MOMENTS = (0.0, 30.0, 600.0, PHASE + 20, PHASE + 100, 3599.0)
"""Seconds before the end at which somebody asks."""


def gpus(user: str, minute: int) -> float | None:
    """GPUs of a user: of ada all the time, of bob by day alone, of eve for 20 minutes alone, an hour before the end."""
    if user == "eve":
        return 8.0 if DAYS * 1440 - 80 <= minute < DAYS * 1440 - 60 else None
    return 2.0 + minute % 7 if user == "ada" else 4.5 if minute // 60 % 24 >= 8 else None


def minutes() -> Iterator[tuple[float, dict[str, float]]]:
    for minute in range(DAYS * 1440):
        found = {user: gpus(user, minute) for user in ("ada", "bob", "eve")}
        yield START + 60 * minute + 17, {user: value for user, value in found.items() if value is not None}


def by_minute() -> Iterator[tuple[str, float]]:
    for at, users in minutes():
        yield "cluster:gpumon_gpu_power_watts:sum 900", at
        yield from ((f'{HELD}{{user="{user}"}} {value}', at) for user, value in users.items())
        if at > END - 600:
            yield from ((f"{name} 1", at) for name in RULE_FILES)
            yield f'{GPUMON}{{instance="n",state="free"}} 1', at


def by_hour() -> Iterator[tuple[str, float]]:
    """What the rules record of these, here by the definition of a sum."""
    hours: dict[int, dict[str, float]] = {}
    for at, users in minutes():
        hour = hours.setdefault(ceil((at + 30 - PHASE - START) / HOUR), {PROOF: 0.0})
        hour[PROOF] += 60
        for user, value in users.items():
            name = f'{hourly_series(HELD)}{{user="{user}"}}'
            hour[name] = hour.get(name, 0.0) + 60 * value
    for number, sums in hours.items():
        at = START + number * HOUR + PHASE
        if at <= END:
            yield from ((f"{name} {value}", at) for name, value in sums.items())


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Backend]]:
    told = [*by_minute(), *by_hour()]
    with ExitStack() as stack:
        yield {
            "prometheus": stack.enter_context(prometheus_of(tmp_path_factory.mktemp("p"), told)),
            "victoria-metrics": stack.enter_context(victoria_metrics_of(tmp_path_factory.mktemp("v"), told)),
        }


def held(period: Period) -> tuple[str, str]:
    (question,) = (one for one in user_sum_queries(period) if one.name == f"held_{period}")
    return question.promql, question.by_hour


def users(answer: PrometheusAnswer) -> dict[str, float]:
    return {row.labels["user"]: row.value for row in answer.rows}


@pytest.mark.parametrize("engine", ["prometheus", "victoria-metrics"])
@pytest.mark.parametrize("before", MOMENTS)
def test_sums_by_hour_are_those_by_minute_at_any_moment(
    engines: dict[str, Backend], engine: str, before: float
) -> None:
    at = END - before
    recorded, hours = held(Period.WEEK)
    with closing(PrometheusClient(engines[engine].url, timeout=60.0)) as client:
        assert parse_phase(client.query(PHASE_QUERY, at).rows) == PHASE
        assert "168h" in {row.labels["of"] for row in client.query(insert_windows(HOURS_QUERY, at, PHASE), at).rows}
        expected = users(client.query(recorded, at))
        assert users(client.query(insert_windows(hours, at, PHASE), at)) == pytest.approx(expected)
    assert expected["eve"] == pytest.approx(8 * 20 * 60)


def test_an_engine_reads_a_fraction_of_the_samples(engines: dict[str, Backend]) -> None:
    def read(expression: str) -> int:
        form = {"query": expression, "time": f"{END}", "stats": "all"}
        answer = httpx.post(f"{engines['prometheus'].url}/api/v1/query", data=form, timeout=60.0)
        return int(answer.raise_for_status().json()["data"]["stats"]["samples"]["totalQueryableSamples"])

    recorded, hours = held(Period.WEEK)
    assert read(insert_windows(hours, END, PHASE)) < read(recorded) / 20


@pytest.mark.parametrize("engine", ["prometheus", "victoria-metrics"])
def test_a_page_asks_by_the_hour_where_hours_are_known(engines: dict[str, Backend], engine: str) -> None:
    spy = Spy(engines[engine].url)
    with closing(spy), closing(ClusterPoller(spy, user_sum_queries(Period.WEEK), now=lambda: END)) as poller:
        snapshot = poller.round()
    assert snapshot.problems() == {}
    assert (snapshot.missing_files, snapshot.by_hour) == ([], True)
    assert any(f"{hourly_series(HELD)}[" in one for one in spy.asked)
    assert users(PrometheusAnswer(snapshot.answers()["held_week"]))["eve"] == pytest.approx(8 * 20 * 60)


class Spy(PrometheusClient):
    """A Prometheus server, and what it was asked."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout=60.0)
        self.asked: list[str] = []

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        self.asked.append(expression)
        return super().query(expression, at)


def test_hours_that_are_younger_than_the_minutes_are_not_asked(tmp_path_factory: pytest.TempPathFactory) -> None:
    young = [(line, at) for line, at in by_hour() if at > END - 2 * 24 * HOUR]
    told = list(chain(by_minute(), young))
    with prometheus_of(tmp_path_factory.mktemp("p"), told) as backend:
        spy = Spy(backend.url)
        with closing(spy), closing(ClusterPoller(spy, user_sum_queries(Period.WEEK), now=lambda: END)) as poller:
            snapshot = poller.round()
    assert snapshot.by_hour
    assert not any(f"{hourly_series(HELD)}[" in one for one in spy.asked)
    assert users(PrometheusAnswer(snapshot.answers()["held_week"]))["ada"] > 0


def test_the_rules_record_these_sums(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("p")
    with prometheus_of(directory, list(by_minute()), [ROOT / "deploy" / "prometheus" / "hours.yml"]) as backend:
        with closing(PrometheusClient(backend.url, timeout=60.0)) as client:
            phase = parse_phase(client.query(PHASE_QUERY, END).rows)
            recorded, hours = held(Period.WEEK)
            found, expected = (users(client.query(insert_windows(one, END, phase), END)) for one in (hours, recorded))
            assert found == pytest.approx(expected)
            whole = client.query(f"sum_over_time({PROOF}[24h]) / 86400", END).rows
        assert [row.value for row in whole] == [1.0]
