"""What belongs together is of one moment, every question comes to its turn, and rules are judged by who answers now."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpumon.cluster.client import PrometheusAnswer, PrometheusError, PrometheusSeries, PrometheusTimeoutError
from gpumon.cluster.cost import charges, cost_queries
from gpumon.cluster.model import users
from gpumon.cluster.period_queries import PHASE_QUERY
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import QUERIES, SERIES_QUERY, Period, user_sum_queries
from gpumon.cluster.rules import RULE_FILES
from gpumon.cluster.snapshot import ClusterSnapshot
from gpumon.common.config import Prices
from gpumon.reports.cluster_text import lines
from tests.unit.test_cluster import NOW, FakeEngine, HandClock

PRICES = Prices("EUR", {"H100": 2.0}, (0.1,) * 8 + (0.3,) * 16, 1.0)
WANTED = {one.name for one in QUERIES if one.needs_whole in (None, Period.WEEK)}
"""Names of questions to a Prometheus server that has all of a week, and of no other period."""
WEEK = (*user_sum_queries(Period.WEEK), *cost_queries(PRICES, 0.0, [Period.WEEK]))
TEXTS = {one.promql: one.name for one in WEEK}


class GrowingEngine:
    """A Prometheus server whose sums grow by the second: each user holds one GPU. Questions in `broken` fail."""

    name = "http://prom:9090"

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.asked: list[str] = []

    def clock_offset(self) -> float:
        return 0.0

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        if expression == SERIES_QUERY:
            return PrometheusAnswer(
                [PrometheusSeries({"__name__": name}, 1.0) for name in ("gpumon_gpus", *RULE_FILES)]
            )
        if expression == PHASE_QUERY:
            return PrometheusAnswer([])  # nothing is recorded by the hour
        name = TEXTS[expression]
        self.asked.append(name)
        if name in self.broken:
            raise PrometheusError("Prometheus says: out of memory (422)")
        held = at - NOW + 360_000.0
        if name.startswith("covered"):
            return PrometheusAnswer([PrometheusSeries({}, Period.WEEK.seconds)])
        return PrometheusAnswer(
            [PrometheusSeries({"user": user, "model": "H100"}, held) for user in ("ada", "bob")]
            if "energy_at_0" not in name and "idle" not in name
            else []
        )


def hours_and_costs(snapshot: ClusterSnapshot) -> set[tuple[float, float]]:
    """The pairs of held hours and their cost in EUR that the rows show."""
    found = charges(snapshot.answers(), PRICES, Period.WEEK)
    return {(one.held_seconds / 3600, found[one.name].held.value) for one in users(snapshot.answers(), Period.WEEK)}


def test_hours_and_their_cost_are_of_one_moment_while_some_questions_fail() -> None:
    engine, clock = GrowingEngine(), HandClock()
    poller = ClusterPoller(engine, WEEK, clock=clock.steady, now=clock.wall)
    assert hours_and_costs(poller.round()) == {(100.0, 200.0)}
    for passed, broken in ((300.0, "held_week"), (600.0, "held_by_model_week"), (615.0, "held_by_model_week")):
        clock.passed, engine.broken = passed, {broken}
        snapshot = poller.round()
        assert hours_and_costs(snapshot) == {(100.0, 200.0)}
        assert (snapshot.cached["held_week"].at, snapshot.cached["held_by_model_week"].at) == (NOW, NOW)
        assert all(snapshot.cached[name].problem for name in ("held_week", "held_by_model_week")), "both are old"
        assert not snapshot.cached["energy_week"].problem, "another part, which fails alone"
    clock.passed, engine.broken = 720.0, set()
    ((hours, cost),) = hours_and_costs(poller.round())
    assert (hours, cost) == (pytest.approx(100.2), pytest.approx(200.4))


def test_an_empty_answer_has_nothing_asked_more_often_than_what_belongs_to_it() -> None:
    engine, clock = GrowingEngine(), HandClock()
    poller = ClusterPoller(engine, WEEK, clock=clock.steady, now=clock.wall)
    poller.round()
    engine.asked.clear()
    clock.passed = 60.0
    poller.round()
    assert engine.asked == [], "that nobody is idle is an answer"
    clock.passed = 300.0
    poller.round()
    assert set(engine.asked) == {one.name for one in WEEK}


def test_a_part_that_never_comes_keeps_the_rest_from_being_of_now_for_an_hour_at_most() -> None:
    engine, clock = GrowingEngine(), HandClock()
    poller = ClusterPoller(engine, WEEK, clock=clock.steady, now=clock.wall)
    poller.round()
    engine.broken = {"held_by_model_week"}
    for clock.passed in (3600.0, 3660.0):
        snapshot = poller.round()
    assert [one.held_seconds for one in users(snapshot.answers(), Period.WEEK)] == [363_660.0] * 2
    assert "held_by_model_week" not in snapshot.answers(), "its last answer is of another moment"
    engine.broken = {one.name for one in WEEK}
    clock.passed = 3720.0
    assert "held_week" in poller.round().answers(), "a Prometheus server that answers nothing takes nothing away"


class LateEngine(FakeEngine):
    """Answers no question whose name `is_late` says to be late."""

    def __init__(self, is_late: Callable[[str], bool]) -> None:
        super().__init__()
        self.is_late = is_late
        self.seen: list[str] = []

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        names = {one.name for one in QUERIES if one.promql == expression}
        with self._lock:
            self.seen += names
        if any(self.is_late(name) for name in names):
            raise PrometheusTimeoutError("did not answer within 4 s")
        return super().query(expression, at)


def test_every_question_comes_to_its_turn_though_those_before_it_are_late_each_time() -> None:
    quick = {one.name for one in QUERIES if one.every <= 60.0 and not one.batch}
    engine, clock = LateEngine(quick.__contains__), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    for number in range(3 * len(QUERIES)):
        clock.passed = 15.0 * number
        snapshot = poller.round()
    assert WANTED - quick <= snapshot.answers().keys()
    assert quick <= set(engine.seen)


def test_a_round_with_an_engine_that_is_always_late_asks_few_questions_and_others_each_time() -> None:
    engine, clock = LateEngine(lambda name: True), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    first = set(engine.seen)
    assert len(first) < len(QUERIES) / 4
    rounds = 0
    while not set(engine.seen) >= {one.name for one in QUERIES if one.needs_whole is None}:
        rounds += 1
        assert rounds < len(QUERIES), "each has its turn"
        clock.passed += 15.0
        asked = len(engine.seen)
        poller.round()
        assert len(engine.seen) - asked < len(QUERIES) / 2


class OtherEngine(FakeEngine):
    """One that can be down as a whole."""

    down = False

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        if self.down:
            raise PrometheusError("cannot query http://prom:9090: connection refused")
        return super().query(expression, at)


def test_an_engine_that_comes_back_without_the_rules_says_so_at_once() -> None:
    engine, clock = OtherEngine(), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    assert not poller.round().missing_files
    for clock.passed, engine.down in ((15.0, True), (30.0, True)):
        poller.round()
    engine.down, engine.names = False, ["gpumon_gpus"]
    engine.asked.clear()
    clock.passed = 45.0
    back = poller.round()
    assert back.missing_files == ["rules.yml", "cluster.yml"]
    assert not any(":gpumon_" in expression for expression, _ in engine.asked if expression != SERIES_QUERY)
    assert "rules.yml" in next(iter(lines(back, engine.name, Period.WEEK)))
    assert "gpus" in back.unanswered or back.cached["gpus"].at == NOW, "what stands there is of then"


def test_answers_that_become_empty_have_the_rules_looked_for_anew() -> None:
    engine, clock = FakeEngine(), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    engine.names, engine.answers = ["gpumon_gpus"], {}
    for clock.passed in (15.0, 30.0):
        snapshot = poller.round()
    assert snapshot.missing_files
