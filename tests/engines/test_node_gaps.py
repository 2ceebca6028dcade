"""A node that is not seen for two days of a week, while another one is: no sum of the week is told as all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing

import pytest

from gpumon.cluster import facts
from gpumon.cluster.engine import Engine
from gpumon.cluster.polling import ClusterPoller
from gpumon.cluster.priced import charges, cost_questions
from gpumon.cluster.questions import Period, of_users
from gpumon.prices import read_prices
from tests.engines.past import BEGIN, prometheus_of, victoria_metrics_of
from tests.engines.programs import Backend
from tests.engines.test_cost import added_up_by_the_hour, recorded_by_prometheus

pytestmark = pytest.mark.engine
HOUR, DAY, EVERY, POWER = 3600, 86400, 150, 360.0
END = BEGIN // DAY * DAY
START = END - 8 * DAY
GAP = (END - 4 * DAY, END - 2 * DAY + 12 * HOUR)
"""Its end is in an hour of the higher price."""
PRICES = read_prices({
    "currency": "EUR", "gpu-hour": {"H100": 2.0},
    "kwh": [{"from": 6, "to": 22, "price": 0.40}, {"from": 22, "to": 6, "price": 0.10}],
})  # fmt: skip
TRUE_COST = 7 * POWER * (16 * 0.40 + 8 * 0.10) / 1000
ENGINES: Mapping[str, Callable[..., AbstractContextManager[Backend]]] = {
    "prometheus": prometheus_of, "its recorded series": recorded_by_prometheus,
    "its sums by hour": added_up_by_the_hour, "victoria-metrics": victoria_metrics_of,
}  # fmt: skip


def scrapes(gap: tuple[float, float] = GAP) -> Iterator[tuple[str, float]]:
    """Two nodes; of each somebody holds its GPU all the time, and the second one is not seen in the gap."""
    for step in range(round((END - START) / EVERY) + 1):
        passed = step * EVERY
        for node, user in (("gn1", "ada"), ("gn2", "bob")):
            at, gpu = START + passed, f'instance="{node}",uuid="GPU-{node}"'
            if node == "gn2" and gap[0] <= at < gap[1]:
                continue
            yield f'gpumon_up{{instance="{node}"}} 1', at
            yield f'gpumon_gpus{{instance="{node}",state="free"}} 0', at
            yield f'gpumon_gpu_info{{{gpu},gpu="0",model="H100"}} 1', at
            yield f'gpumon_gpu_power_watts{{{gpu},gpu="0"}} {POWER}', at
            for counter, value in (("held", passed), ("idle_held", 0), ("judged", passed), ("busy", passed)):
                yield f'gpumon_user_{counter}_seconds_total{{{gpu},user="{user}"}} {value}', at
            yield f'gpumon_user_energy_joules_total{{{gpu},user="{user}"}} {POWER * passed!r}', at


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], facts.Answers]:
    """What each engine answers about the week; each is started once."""
    known: dict[str, facts.Answers] = {}
    wanted = (*of_users(Period.WEEK), *cost_questions(PRICES, 0.0, [Period.WEEK]))

    def answers(name: str) -> facts.Answers:
        if name not in known:
            with ExitStack() as stack:
                running = stack.enter_context(ENGINES[name](tmp_path_factory.mktemp("engine"), list(scrapes())))
                client = stack.enter_context(closing(Engine(running.url, patience=60.0)))
                poller = stack.enter_context(closing(ClusterPoller(client, wanted, now=lambda: END)))
                picture = poller.round()
            assert picture.problems() == {}
            assert picture.by_hour == (name == "its sums by hour")
            known[name] = picture.answers()
        return known[name]

    return answers


@pytest.mark.parametrize("name", ENGINES)
def test_a_week_in_which_one_node_was_not_seen_all_the_time_is_not_whole(
    told: Callable[[str], facts.Answers], name: str
) -> None:
    answers = told(name)
    assert facts.has_all(answers, Period.WEEK), "the other node was seen"
    assert not facts.is_whole(answers, Period.WEEK)
    ((seconds, nodes),) = (facts.unseen(answers, Period.WEEK) or {}).items()
    assert (seconds, nodes) == (pytest.approx(GAP[1] - GAP[0], abs=900), 1)
    assert facts.gap(answers, Period.WEEK).startswith("1 node was not seen for 2 d")
    found = charges(answers, PRICES, Period.WEEK)
    assert found["bob"].held.value <= 7 * 24 * 2.0 * 1.001
    assert not any(found[user].held.complete or found[user].energy.complete for user in ("ada", "bob"))


@pytest.mark.parametrize("name", ENGINES)
def test_energy_of_a_time_in_which_a_node_was_not_seen_costs_no_more_than_it_can(
    told: Callable[[str], facts.Answers], name: str
) -> None:
    """An engine may count all of it in the first minutes behind, whatever they cost."""
    found = charges(told(name), PRICES, Period.WEEK)
    ada, bob = found["ada"].energy, found["bob"].energy
    assert ada.value == pytest.approx(TRUE_COST, rel=0.01)
    assert not bob.about
    assert bob.value <= TRUE_COST * 0.99
