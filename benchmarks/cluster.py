"""The page of a cluster on a real Prometheus: what its questions cost, with our rules and without, and what it sends.

Simulated nodes of `benchmarks.nodes` are scraped for two minutes. Then everything that a page asks is asked one after
another, whether it is due or not, as when the first viewer comes; a tick of a page that somebody looks at has its part
of that. Prometheus lives for three minutes at most. First paint counts from the navigation to the frame in which free
GPUs have a number and the map of nodes is there, in a browser that was nowhere yet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks import browser, cluster_engine
from benchmarks.cluster_engine import INTERVAL, MEMORY, RunningEngine
from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Stage
from benchmarks.usage import Figures, cpu_seconds
from benchmarks.web import web
from gpumon.cluster.client import PrometheusAnswer, PrometheusClient
from gpumon.cluster.period_queries import PHASE_QUERY, insert_windows
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import GPU_QUERIES, HOURS_QUERY, QUERIES, SERIES_QUERY, Query, node_queries
from gpumon.cluster.rules import NODE_SERIES
from gpumon.cluster.snapshot import TICK
from gpumon_web.cluster.views import ClusterViews

NODES, GPUS = 1000, 8
FIRST_PAINT = 1.0
_SCRAPED = 120.0
"""Seconds for which nodes are scraped before anything is asked: a rate needs some scrapes, a rule its minute."""
_LONGER = 60.0
"""Seconds for which a busy machine may take longer, until rules have recorded most nodes."""
_MOST = 0.95
"""Share of nodes; some of the simulated ones are down."""
_PATIENCE = 60.0
_TIMES = 5
"""Times that each question is asked."""
_BETWEEN = 2.0
"""Seconds between two times."""
_LOADS = 3
NAMES = Query("names", SERIES_QUERY, every=300.0)
"""A question of the poller: whether there are rules."""
HOURS = (
    Query("phase", PHASE_QUERY, every=300.0),
    Query("hours", insert_windows(HOURS_QUERY, time.time(), 0.0), every=300.0),
)
"""Further ones: when sums by hour are recorded, and of which periods they know enough."""
LARGE = (NAMES, *HOURS, *(one for one in QUERIES if not one.is_small and one.needs_whole is None))
WHOLE = tuple(one for one in QUERIES if one.needs_whole)
"""Questions asked further of a Prometheus server that has all of a period."""
_SHOWN = (
    '/[0-9]/.test(document.querySelector("[data-bind=free]")?.textContent) && document.querySelector(".nodecanvas")'
)


class Asked(NamedTuple):
    """One question, asked some times."""

    question: Query
    seconds: float
    """From the question to its rows, the shortest of some times: the others waited for other work of the machine."""
    rows: int
    samples: int
    """That Prometheus read for it, which is the same however busy the machine is."""

    @property
    def of_a_tick(self) -> float:
        """Seconds that it takes of each tick, on average."""
        return self.seconds * TICK / self.question.interval(is_small=False)


class CountingEngine:
    """A Prometheus server that counts what is asked."""

    def __init__(self, engine: PrometheusClient) -> None:
        self._engine = engine
        self.name = engine.name
        self.count = 0

    def clock_offset(self) -> float:
        """Return the seconds by which its clock is ahead of ours. Raises PrometheusError."""
        return self._engine.clock_offset()

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        """Evaluate an expression at a moment. Raises PrometheusError."""
        self.count += 1
        return self._engine.query(expression, at)


class Hand:
    """A clock that is moved by hand."""

    passed = 0.0

    def __call__(self) -> float:
        return self.passed


def measure(stage: Stage, effort: Effort, nodes: int = NODES) -> Result:
    """Measure one cluster; every question takes minutes to prepare and seconds to ask, whatever the effort."""
    del effort
    result = Result("The page of a cluster", ("question", "ms", "samples", "rows"))
    if why := cluster_engine.missing():
        result.notes.append(f"Not measured: {why}.")
        return result
    with ExitStack() as stack:
        place = stage.place("cluster", gpus=1)
        simulated = stack.enter_context(cluster_engine.simulated(nodes, GPUS))
        scratch = stage.scratch / "engine"
        scratch.mkdir()
        running = stack.enter_context(cluster_engine.scraping(Path(scratch), simulated))
        _, port, token = stack.enter_context(web(place, "--prometheus", running.url))
        before = cpu_seconds(running.pid)
        time.sleep(_SCRAPED)
        load = (cpu_seconds(running.pid) - before) / _SCRAPED
        engine = PrometheusClient(running.url, timeout=_PATIENCE)
        stack.callback(engine.close)
        _until_recorded(engine, _MOST * nodes, result)
        asked = _asked(running, engine, LARGE)
        whole = _asked(running, engine, WHOLE)
        (node,) = _asked(running, engine, [_whole_node(engine)])
        sent, ratio = _pages(engine)
        painted = _painted(f"http://127.0.0.1:{port}/", token, result)
        memory, lived = running.memory_peak(), running.age()
    for one in sorted(asked, key=lambda one: -one.seconds):
        result.rows.append((one.question.name, number(1e3 * one.seconds), f"{one.samples:,}", f"{one.rows:,}"))
    result.budgets += [
        Budget("questions of a tick", 1e3 * sum(one.of_a_tick for one in asked), 150, " ms"),
        Budget("all questions at once", 1e3 * sum(one.seconds for one in asked), 150, " ms"),
        Budget("data of the page", sent / 1000, 300, " kB"),
        *([Budget("first paint, cold", Figures(painted).median, FIRST_PAINT, " s")] if painted else []),
        Budget("questions of 50 viewers beside those of one", ratio, 1, "×"),
        Budget("memory of Prometheus, at most", memory / 1e9, 2, " GB"),
    ]
    result.notes.append(
        f"{nodes:,} simulated nodes of {GPUS} GPUs, scraped every {INTERVAL} s; Prometheus "
        f"({', '.join(f'{name}={value}' for name, value in MEMORY.items())}) lived for {lived:.0f} s, and used "
        f"{number(load)} of a core for scrapes and rules. Of each of the {len(asked)} questions the shortest of "
        f"{_TIMES} times is taken: the machine has other work. A tick is {TICK:g} s: a question that is asked every "
        "minute counts for a quarter. Samples that Prometheus reads for all of them: "
        f"{sum(one.samples for one in asked):,}. A node: {number(1e3 * node.seconds)} ms. Prometheus has minutes of "
        "history: a sum over a month that it has in full "
        "reads more, and of each period that it has in full it is asked which nodes were seen least: "
        f"{', '.join(f'{one.question.needs_whole} {number(1e3 * one.seconds)} ms' for one in whole)} where it has "
        "minutes."
    )
    return result


def _asked(running: RunningEngine, engine: PrometheusClient, questions: Sequence[Query]) -> list[Asked]:
    """The time of each question. All are asked in turn, and a while later again: rules are recorded in a burst."""
    took: dict[str, list[float]] = {one.name: [] for one in questions}
    rows: dict[str, int] = {}
    for _ in range(_TIMES):
        for one in questions:
            begun = time.perf_counter()
            rows[one.name] = len(engine.query(one.promql, time.time()).rows)
            took[one.name].append(time.perf_counter() - begun)
        time.sleep(_BETWEEN)
    return [Asked(one, min(took[one.name]), rows[one.name], running.samples_read(one.promql)) for one in questions]


def _until_recorded(engine: PrometheusClient, enough: float, result: Result) -> None:
    """Wait until the rules have recorded rates of enough nodes; a note says where they did not."""
    expression = "count(instance:gpumon_gpu_utilization:ratio_rate5m)"
    deadline = time.monotonic() + _LONGER
    while True:
        rows = engine.query(expression, time.time()).rows
        if rows and rows[0].value >= enough:
            return
        if time.monotonic() > deadline:
            result.notes.append("The machine was too busy: rules had recorded few nodes when the questions were asked.")
            return
        time.sleep(2.0)


def _whole_node(engine: PrometheusClient) -> Query:
    node = engine.query(NODE_SERIES, time.time()).rows[0].labels["instance"]
    return node_queries(node)[0]


def _pages(engine: PrometheusClient) -> tuple[int, float]:
    """Bytes of the page as it opens, and how many times as many questions 50 viewers cause as one."""
    sent, counts = 0, []
    for viewers in (1, 50):
        counting, clock = CountingEngine(engine), Hand()
        poller = ClusterPoller(counting, (*QUERIES, *GPU_QUERIES), clock)
        views = ClusterViews(poller, engine.name)
        for _ in range(3):
            clock.passed += TICK
            poller.round()
            for _ in range(viewers):
                sent = max(sent, len(views.answer("cluster", {}, "", 0).plain))
        poller.close()
        counts.append(counting.count)
    return sent, counts[1] / counts[0]


def _painted(address: str, token: str, result: Result) -> list[float]:
    """Seconds of first paints; none without a browser, which a note then says."""
    if why := browser.missing():
        result.notes.append(f"First paint is not measured: {why}.")
        return []
    with browser.chromium() as chromium:
        found = []
        for _ in range(_LOADS + 1):
            with browser.visitor(chromium, _SHOWN) as context:
                found.append(browser.load(context, f"{address}?token={token}"))
        result.notes.append(
            f"First paint in Chromium {chromium.version}: {', '.join(number(one.painted) for one in found[1:])} s, "
            f"{found[-1].requests} requests, {found[-1].received / 1000:.0f} kB as they came. The first load of all "
            "starts parts of Chromium, and does not count."
        )
    return [one.painted for one in found[1:]]
