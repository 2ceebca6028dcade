"""A node that is not seen for two days of a week, one that came in it, and one that was always there.

Sums of who was on either of the first two are at least so much; those of who was on the third alone are known in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing

import pytest

from gpumon.cluster import coverage
from gpumon.cluster.client import Answers, PrometheusClient
from gpumon.cluster.cost import charges, cost_queries
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import Period, user_sum_queries
from gpumon.common.config import read_prices
from tests.engines.past import BEGIN
from tests.engines.programs import Backend
from tests.engines.test_cost import added_up_by_the_hour, recorded_by_prometheus, recorded_in_victoria_metrics

pytestmark = pytest.mark.engine
HOUR, DAY, EVERY, POWER = 3600, 86400, 150, 360.0
END = BEGIN // DAY * DAY
START = END - 8 * DAY
GAP = (END - 4 * DAY, END - 2 * DAY + 12 * HOUR)
"""Its end is in an hour of the higher price."""
WEEK, JOINED = END - 7 * DAY, END - 6 * DAY
"""Since when the third node is there."""
PRICES = read_prices({
    "currency": "EUR", "gpu-hour": {"H100": 2.0},
    "kwh": [{"from": 6, "to": 22, "price": 0.40}, {"from": 22, "to": 6, "price": 0.10}],
})  # fmt: skip
TRUE_COST = 7 * POWER * (16 * 0.40 + 8 * 0.10) / 1000
ENGINES: Mapping[str, Callable[..., AbstractContextManager[Backend]]] = {
    "prometheus": recorded_by_prometheus, "its sums by hour": added_up_by_the_hour,
    "victoria-metrics": recorded_in_victoria_metrics,
}  # fmt: skip


def scrapes(gap: tuple[float, float] = GAP) -> Iterator[tuple[str, float]]:
    """Three nodes, of each of which somebody holds the GPU all the time; ada did so on the second one weeks ago."""
    for step in range(round((END - START) / EVERY) + 1):
        passed = step * EVERY
        for node, user in (("gn1", "ada"), ("gn2", "bob"), ("gn3", "eve")):
            at, gpu = START + passed, f'instance="{node}",uuid="GPU-{node}"'
            if (node == "gn2" and gap[0] <= at < gap[1]) or (node == "gn3" and at < JOINED):
                continue
            if node == "gn2":
                yield f'gpumon_user_held_seconds_total{{{gpu},user="ada"}} 7200', at
            yield f'gpumon_up{{instance="{node}"}} 1', at
            yield f'gpumon_gpus{{instance="{node}",state="free"}} 0', at
            yield f'gpumon_gpu_info{{{gpu},gpu="0",model="H100"}} 1', at
            yield f'gpumon_gpu_power_watts{{{gpu},gpu="0"}} {POWER}', at
            for counter, value in (("held", passed), ("idle_held", 0), ("judged", passed), ("busy", passed)):
                yield f'gpumon_user_{counter}_seconds_total{{{gpu},user="{user}"}} {value}', at
            yield f'gpumon_user_energy_joules_total{{{gpu},user="{user}"}} {POWER * passed!r}', at


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Answers]:
    """What each engine answers about the week; each is started once."""
    known: dict[str, Answers] = {}
    wanted = (*user_sum_queries(Period.WEEK), *cost_queries(PRICES, 0.0, [Period.WEEK]))

    def answers(name: str) -> Answers:
        if name not in known:
            with ExitStack() as stack:
                running = stack.enter_context(ENGINES[name](tmp_path_factory.mktemp("engine"), list(scrapes())))
                client = stack.enter_context(closing(PrometheusClient(running.url, timeout=60.0)))
                poller = stack.enter_context(closing(ClusterPoller(client, wanted, now=lambda: END)))
                snapshot = poller.round()
            assert snapshot.problems() == {}
            assert snapshot.by_hour == (name == "its sums by hour")
            known[name] = snapshot.answers()
        return known[name]

    return answers


@pytest.mark.parametrize("name", ENGINES)
def test_sums_of_a_week_are_at_least_so_much_for_who_was_on_a_node_that_was_not_seen_all_of_it(
    told: Callable[[str], Answers], name: str
) -> None:
    answers = told(name)
    assert coverage.has_all_samples(answers, Period.WEEK), "the other node was seen"
    assert not coverage.is_complete(answers, Period.WEEK)
    missing = coverage.absences(answers, Period.WEEK) or {}
    assert missing == {"gn2": pytest.approx(GAP[1] - GAP[0], abs=900), "gn3": pytest.approx(JOINED - WEEK, abs=900)}
    expected = coverage.Uncertainty(False, {"bob": ["gn2"], "eve": ["gn3"]})
    assert coverage.uncertainty(answers, Period.WEEK) == expected, "ada was on neither"
    times = {(row.labels["instance"], row.labels["what"]): row.value
             for row in answers[coverage.absence_times_name(Period.WEEK, missing)]}  # fmt: skip
    assert times == {
        ("gn2", "left"): pytest.approx(GAP[0], abs=1800), ("gn2", "gaps"): 1,
        ("gn3", "came"): pytest.approx(JOINED - 450, abs=450.001),
    }, "nobody saw the node before it came"  # fmt: skip
    found = charges(answers, PRICES, Period.WEEK)
    assert found["bob"].held.value <= 7 * 24 * 2.0 * 1.001
    assert [user for user in ("ada", "bob", "eve") if found[user].held.complete] == ["ada"]
    assert [user for user in ("ada", "bob", "eve") if found[user].energy.complete] == ["ada"]


@pytest.mark.parametrize("name", ENGINES)
def test_energy_of_a_time_in_which_a_node_was_not_seen_costs_no_more_than_it_can(
    told: Callable[[str], Answers], name: str
) -> None:
    """A Prometheus server may count all of it in the first minutes behind, whatever they cost."""
    found = charges(told(name), PRICES, Period.WEEK)
    ada, bob = found["ada"].energy, found["bob"].energy
    assert ada.value == pytest.approx(TRUE_COST, rel=0.01)
    assert not bob.about
    assert bob.value <= TRUE_COST * 0.99
