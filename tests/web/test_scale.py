"""Work of the server where there is much: it is counted in calls, as seconds depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.clock import SECOND
from gpumon.frame import RunState
from tests.builders import TIME, boundary, device, process, run, sample, tick
from tests.runs import Book
from tests.web.served import Served

RUN = run(gpus=(device().uuid,), state=RunState.RUNNING)
PAGES = {"fleet": {}, "gpu": {"id": device().uuid}, "runs": {}, "run": {"id": RUN.id}, "users": {}, "events": {}}
MARGIN = 1.1


def calls(do: Callable[[], object]) -> int:
    """Functions that are called while something is done, in Python and below it."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def going(epoch: int) -> Any:
    """The run, in an epoch that its board tells of."""
    return RUN._replace(epoch=epoch, epochs=100_000, epoch_started=TIME / SECOND + 99, updated=TIME / SECOND + 99)


def lab(directory: Path, times: int) -> Served:
    """A run with epochs, runs in the ledger, and processes: `times` as many of each."""
    with Book(directory) as book:
        for number in range(20 * times):
            book.run(f"net{number}-1a2b", name=f"net{number}", state=RunState.FINISHED)
        path = str(book.path)
    ticks = [
        tick(
            number,
            [sample(0, utilization=0.5)],
            [process(5000 + at, user=f"user{at % 4}") for at in range(20 * times)],
            [going(99 * times)],
            [boundary(number * times + at, number * times + at) for at in range(times)],
        )
        for number in range(1, 100)
    ]
    return Served(ticks, [path])


@pytest.mark.parametrize("page", PAGES)
def test_a_tick_costs_the_same_with_ten_times_as_many_epochs_and_runs(tmp_path: Path, page: str) -> None:
    found = []
    for times in (1, 10):
        served = lab(tmp_path / str(times), times)
        seen = served.told(page, **PAGES[page])
        new = tick(100, [sample(0, utilization=0.6)], [process(1)], [going(99_999)], [boundary(99_999, 99_999)])
        served.writer.append(new)

        def answer(served: Served = served, seen: dict[str, Any] = seen) -> object:
            return served.pages.answer(page, PAGES[page], seen["boot"], seen["seq"])

        found.append(calls(answer))
    few, many = found
    assert many <= MARGIN * few
