"""The page of a cluster on a real Prometheus: what its questions cost, with our rules and without, and what it sends.

Simulated nodes of `benchmarks.nodes` are scraped for three minutes; each round then asks everything that the page asks,
whether it is due or not, which is more than any round of a page that somebody looks at.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort
from benchmarks.usage import ROOT, cpu_seconds
from gpumon.cluster.engine import Engine, EngineAnswer
from gpumon.cluster.gpus import OF_GPUS, of_node
from gpumon.cluster.polling import TICK, ClusterPoller
from gpumon.cluster.questions import QUESTIONS, Question
from gpumon_web.cluster.views import ClusterViews

NODES, GPUS = 1000, 8
_SCRAPED = 180.0
"""Seconds for which nodes are scraped before anything is asked: rates need a while."""
_INTERVAL = 30
"""Seconds between scrapes."""
_PATIENCE = 60.0
_GOGC = "50"
"""Garbage collection of the engine: less memory for some more CPU; by default Go waits until it has doubled."""
LARGE = tuple(one for one in QUESTIONS if not one.is_small)
_RULES = ("rules.yml", "cluster.yml")
_CONFIG = """\
global: {{scrape_interval: {interval}s, scrape_timeout: 10s, evaluation_interval: 60s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: gpumon
    http_sd_configs: [{{url: "http://127.0.0.1:{port}/targets"}}]
"""


class Asked(NamedTuple):
    """One question, asked some times."""

    name: str
    seconds: float
    """From the question to its rows, the shortest of some times: the others waited for other work of the machine."""
    rows: int


class TimedEngine:
    """An engine that notes how long each answer took, and what the page has asked."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name, self.ahead = engine.name, 0.0
        self.count = 0

    def ask(self, expression: str, at: float) -> EngineAnswer:
        """Evaluate an expression at a moment. Raises EngineError."""
        self.count += 1
        return self._engine.ask(expression, at)


class Hand:
    """A clock that is moved by hand."""

    passed = 0.0

    def __call__(self) -> float:
        return self.passed


def measure(here: object, effort: Effort, nodes: int = NODES) -> Result:
    """Measure one cluster; `here` is of programs that need a driver."""
    del here
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        return Result("The page of a cluster", (), notes=["Not measured: apt-get install prometheus."])
    wait = _SCRAPED if effort.seconds >= 60 else _SCRAPED / 2
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="gpumon-cluster-")))
        simulated = stack.enter_context(_simulated(nodes))
        server, url = stack.enter_context(_scraping(scratch, simulated))
        before = cpu_seconds(server.pid)
        time.sleep(wait)
        load = (cpu_seconds(server.pid) - before) / wait
        engine = Engine(url, patience=_PATIENCE)
        stack.callback(engine.close)
        recorded = _asked(engine, effort, recorded=True)
        (first,) = _asked(engine, effort, recorded=True, questions=[_whole_node(engine)])
        sent, asked = _pages(engine)
        memory = psutil.Process(server.pid).memory_info().rss
        raw = _asked(engine, effort, recorded=False)
    columns = ("question", "with rules, ms", "without, ms", "rows")
    without = {one.name: one for one in raw}
    rows: list[Sequence[str]] = [
        (one.name, number(1e3 * one.seconds), number(1e3 * without[one.name].seconds), str(one.rows))
        for one in _longest(recorded)
    ]
    budgets = [
        Budget("questions of a tick, with rules", 1e3 * _tick(recorded), 100, " ms"),
        Budget("the same without rules", 1e3 * _tick(raw), 3000, " ms"),
        Budget("data of the page", sent / 1000, 300, " kB"),
        Budget("questions of 50 viewers beside those of one", asked, 1, "×"),
        Budget("memory of the engine", memory / 1e9, 2, " GB"),
    ]
    wall = [number(1e3 * sum(one.seconds for one in some)) for some in (recorded, raw)]
    notes = [
        f"{nodes:,} simulated nodes of {GPUS} GPUs, scraped every {_INTERVAL} s for {wait:.0f} s. In a tick of "
        f"{TICK:g} s a question that is asked every minute counts for a quarter. Of each the shortest of several "
        f"times is taken: the machine has other work. All {len(recorded)} one after another: {wall[0]} ms with rules, "
        f"{wall[1]} ms without. The 12 that take the longest are shown. A node's GPUs: "
        f"{number(1e3 * first.seconds)} ms. The engine (GOGC={_GOGC}) used {number(load)} of a core for scrapes and "
        "rules.",
    ]
    return Result("The page of a cluster", columns, rows, budgets, notes)


def _tick(found: Sequence[Asked]) -> float:
    """Seconds for what is asked in a tick, on average."""
    every = {one.name: one.every for one in LARGE}
    return sum(one.seconds * TICK / every[one.name] for one in found)


def _longest(found: Sequence[Asked]) -> list[Asked]:
    return sorted(found, key=lambda one: -one.seconds)[:12]


def _asked(
    engine: Engine, effort: Effort, *, recorded: bool, questions: Sequence[Question] = LARGE
) -> list[Asked]:  # fmt: skip
    """The time of each question."""
    found = []
    for question in questions:
        took, rows = [], 0
        for _ in range(max(5, effort.rounds)):
            begun = time.perf_counter()
            rows = len(engine.ask(question.expression(recorded=recorded), time.time()).rows)
            took.append(time.perf_counter() - begun)
        found.append(Asked(question.name, min(took), rows))
    return found


def _whole_node(engine: Engine) -> Question:
    node = engine.ask(QUESTIONS[0].recorded, time.time()).rows[0].labels["instance"]
    return of_node(node)[0]


def _pages(engine: Engine) -> tuple[int, float]:
    """Bytes of the page as it opens, and how many times as many questions 50 viewers cause as one."""
    sent, counts = 0, []
    for viewers in (1, 50):
        timed = TimedEngine(engine)
        clock = Hand()
        poller = ClusterPoller(timed, (*QUESTIONS, *OF_GPUS), clock)
        views = ClusterViews(poller, engine.name)
        for _ in range(3):
            clock.passed += TICK
            poller.round()
            for _ in range(viewers):
                sent = max(sent, len(views.answer("cluster", {}, "", 0).plain))
        poller.close()
        counts.append(timed.count)
    return sent, counts[1] / counts[0]


@contextmanager
def _simulated(nodes: int) -> Iterator[int]:
    """The simulated nodes, and their port."""
    words = [
        sys.executable,
        "-m",
        "benchmarks.nodes",
        "--nodes",
        str(nodes),
        "--gpus",
        str(GPUS),
        "--listen",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().partition("127.0.0.1:")[2].partition("/")[0])
    finally:
        process.terminate()
        process.wait(_PATIENCE)


@contextmanager
def _scraping(scratch: Path, simulated: int) -> Iterator[tuple[subprocess.Popen[Any], str]]:
    """A Prometheus that scrapes them, with our rules."""
    rules = ", ".join(str(ROOT / "deploy" / "prometheus" / name) for name in _RULES)
    (scratch / "prometheus.yml").write_text(_CONFIG.format(interval=_INTERVAL, rules=rules, port=simulated))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([
        "prometheus", f"--config.file={scratch}/prometheus.yml", f"--storage.tsdb.path={scratch}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ], env={**os.environ, "GOGC": _GOGC})  # fmt: skip
    try:
        deadline = time.monotonic() + _PATIENCE
        while server.poll() is None and time.monotonic() < deadline and not _is_ready(port):
            time.sleep(0.2)
        yield server, f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(_PATIENCE)


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(OSError):
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == 200
    return False
