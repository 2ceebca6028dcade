"""The web view while a crowd opens one run of 5,000 epochs: what those notice who only look at the fleet.

A daemon on the stub driver samples 8 GPUs at 1 Hz; bystanders ask for ticks, as the page does. Beside them, every five
seconds, twenty viewers open the run, on either of its two GPUs, and six download its table, all at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Stage
from benchmarks.usage import Figures, memory
from benchmarks.viewers import Load, watch
from benchmarks.web import question, web
from tests.programs import daemon
from tests.runs import Book, training, uuid_of

EPOCHS, GPUS = 5000, 2
BYSTANDERS, OPENING, DOWNLOADING = 20, 20, 6
EVERY = 5.0
"""Seconds from one crowd to the next."""
_RUN = "long-1a2b"


def measure(stage: Stage, effort: Effort) -> Result:
    """Ticks without the crowd, and beside it."""
    place = stage.place("crowd")
    seconds = max(20.0, effort.seconds / 2)
    with Book(Path(place.env["GPUMON_STATE_DIR"])) as book:
        training(book, _RUN, EPOCHS, gpus=GPUS)
    result = Result(
        f"A run of {EPOCHS} epochs, opened by {OPENING} and downloaded by {DOWNLOADING} at once",
        ("beside", "ticks", "p50, ms", "p99, ms", "max, ms", "failed", "RSS MB"),
    )
    with ExitStack() as stack:
        stack.enter_context(daemon("--interval", "1", env=place.env))
        pid, port, token = stack.enter_context(web(place))

        def ticks() -> Load:
            return watch(port, BYSTANDERS, seconds, lambda last: question(port, token, last))

        alone = ticks()
        _row(result, "nobody", alone, pid)
        answers: dict[str, Figures] = {}
        with _crowd(port, token, answers):
            beside = ticks()
        _row(result, "the crowd", beside, pid)
    result.budgets.append(
        Budget("a bystander's tick beside the crowd, p99", beside.took.quantile(0.99) * 1000, 100, " ms")
    )
    result.budgets.append(Budget("requests that failed", beside.failed + ("failed" in answers), 0))
    result.notes.append(
        "The crowd waited: " + ", ".join(
            f"{number(took.quantile(0.5) * 1000)} ms (p50), {number(max(took.values) * 1000)} ms (max) for {what}"
            for what, took in sorted(answers.items())
        ) + "."
    )  # fmt: skip
    return result


def _row(result: Result, name: str, load: Load, pid: int) -> None:
    took = load.took
    result.rows.append((
        name, str(len(took.values)), number(took.quantile(0.5) * 1000), number(took.quantile(0.99) * 1000),
        number(max(took.values) * 1000), str(load.failed), f"{memory(pid)[0]:.0f}",
    ))  # fmt: skip


@contextmanager
def _crowd(port: int, token: str, answers: dict[str, Figures]) -> Iterator[None]:
    over = Event()
    opened = [f"/api/kept?page=run&id={_RUN}&gpu={uuid_of(i % GPUS)}" for i in range(OPENING)]
    loaded = [f"/api/run.csv?id={_RUN}"] * DOWNLOADING

    def ask(path: str) -> None:
        begun = time.monotonic()
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        what = "failed" if answer.status != 200 else path.partition("?")[0]
        answers.setdefault(what, Figures()).add(time.monotonic() - begun)

    def come() -> None:
        with ThreadPoolExecutor(OPENING + DOWNLOADING) as everybody:
            while not over.is_set():
                list(everybody.map(ask, [*opened, *loaded]))
                over.wait(EVERY)

    thread = Thread(target=come)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
