"""The web view under 10,000 hostile requests: what somebody notices who only looks at the fleet.

A daemon on the stub driver samples 8 GPUs at 1 Hz; bystanders ask for ticks, as the page does. Beside them one client
after the other connects, sends something random, malformed or meant to hurt, and goes; most have a token.
The requests are those of `tests/web/test_hostile.py`, of another seed.
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack
from threading import Event, Thread

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Stage
from benchmarks.usage import memory
from benchmarks.viewers import Load, watch
from benchmarks.web import question, web
from tests.builders import tick
from tests.programs import daemon
from tests.web.served import Served
from tests.web.test_hostile import request

BYSTANDERS, REQUESTS = 20, 10_000
_PATIENCE = 10.0
"""Seconds that an answer may take before the client goes."""
_ALONE = 12.0
"""Seconds for which bystanders are watched before."""
_SEED = 4711


class Attack:
    """The requests, one after the other, and what came of them."""

    def __init__(self, port: int, token: str, count: int) -> None:
        self.done = 0
        self.errors = 0
        self.silent = 0
        self.over = Event()
        self._port, self._token, self._count = port, token, count

    def run(self) -> None:
        """Send all of them."""
        chance, paths = random.Random(_SEED), Served([tick(1)]).paths()
        try:
            for _ in range(self._count):
                answer = self._ask(request(chance, paths, self._token))
                self.done += 1
                self.silent += not answer
                self.errors += answer[9:10] == b"5"
        finally:
            self.over.set()

    def _ask(self, sent: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port), timeout=_PATIENCE) as one:
            try:
                one.sendall(sent)
                one.shutdown(socket.SHUT_WR)
                return one.recv(64)
            except OSError:
                return b""


def measure(stage: Stage, effort: Effort) -> Result:
    """Ticks alone, and beside all of the requests."""
    place = stage.place("hostile")
    count = effort.times(REQUESTS)
    result = Result(
        f"{count:,} hostile requests", ("beside", "ticks", "p50, ms", "p99, ms", "max, ms", "failed", "RSS MB")
    )
    with ExitStack() as stack:
        stack.enter_context(daemon("--interval", "1", env=place.env))
        pid, port, token = stack.enter_context(web(place))

        def ticks(seconds: float) -> Load:
            return watch(port, BYSTANDERS, seconds, lambda last: question(port, token, last))

        _row(result, "nobody", [ticks(_ALONE)], memory(pid)[0])
        attack = Attack(port, token, count)
        thread = Thread(target=attack.run)
        begun = time.monotonic()
        thread.start()
        beside = []
        while not attack.over.is_set():
            beside.append(ticks(_ALONE / 2))
        passed = time.monotonic() - begun
        thread.join()
        _row(result, "the requests", beside, memory(pid)[0])
    took = sorted(value for load in beside for value in load.took.values)
    result.budgets.append(Budget("a bystander's tick beside them, p99", _quantile(took, 0.99) * 1000, 100, " ms"))
    result.budgets.append(Budget("a bystander's ticks that failed", sum(load.failed for load in beside), 0))
    result.budgets.append(Budget("requests that met an error of ours", attack.errors, 0))
    result.notes.append(
        f"{attack.done:,} requests in {passed:.0f} s, {number(attack.done / passed)} a second; {attack.silent:,} were "
        "cut off without an answer."
    )
    return result


def _row(result: Result, name: str, loads: list[Load], rss: float) -> None:
    took = sorted(value for load in loads for value in load.took.values)
    result.rows.append((
        name, str(len(took)), number(_quantile(took, 0.5) * 1000), number(_quantile(took, 0.99) * 1000),
        number(took[-1] * 1000), str(sum(load.failed for load in loads)), f"{rss:.0f}",
    ))  # fmt: skip


def _quantile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]
