"""Times blocks of a training with and without a callback in turn, for as long as was asked."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from statistics import fmean, median
from typing import Any

from benchmarks.tags import STEP_US
from benchmarks.trainings import TRAININGS
from benchmarks.trainings.case import EMPTY, EPOCHS, TWO_CLOCKS, Case, Loader, Train

AGAIN = "no callback, again"
"""A second block without a callback in each round: its difference from the first is noise alone."""
_LONG = 20
"""Steps in a block that come after 10 ms of other work."""
_SHARE = 0.6
"""Of the time for short steps."""
_MEASURED: dict[str, Callable[[Loader], float]] = {
    "cpu": lambda loader: median(loader.steps(0)),
    "mean": lambda loader: fmean(loader.steps(0)),
    "wall": lambda loader: median(loader.steps(1)),
    "epoch": lambda loader: median(loader.turns(0)),
}
"""Of a block with short steps, µs."""


def measure(framework: str, seconds: float) -> dict[str, Any]:
    """For each callback ('': none) a list by block; blocks of one round follow each other in random order."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    case: Case = import_module(f"benchmarks.trainings.{TRAININGS[framework].module}").prepare()
    failed = _failing(case)
    names = ["", AGAIN, *(name for name in case.names if name not in failed)]
    short: dict[str, dict[str, list[float]]] = {name: {what: [] for what in _MEASURED} for name in names}
    for name in _in_turn(names, seconds * _SHARE):
        loader = Loader(case.batches)
        _train(case.train, name, loader, EPOCHS)
        for what, value in _MEASURED.items():
            short[name][what].append(value(loader))
    work = _other_work()
    long: dict[str, list[float]] = {name: [] for name in names if name in ("", AGAIN, "gpumon", EMPTY, TWO_CLOCKS)}
    for name in _in_turn(long, seconds * (1 - _SHARE)):
        loader = Loader(case.batches[:_LONG], work)
        _train(case.train, name, loader, 1)
        long[name].append(fmean(loader.away))
    return {"found": short, "long": long, "failed": failed}


def _in_turn(names: Collection[str], seconds: float) -> Iterator[str]:
    """All names again and again, each time in another order, until the time is over; at least one whole round."""
    chance, end = random.Random(1), time.monotonic() + seconds
    while True:
        yield from chance.sample([*names], len(names))
        if time.monotonic() >= end:
            return


def _failing(case: Case) -> dict[str, str]:
    """Train with each once, which warms up; why a peer cannot be measured here, such as one that lacks a GPU."""
    failed = {}
    for name in case.names:
        try:
            _train(case.train, name, Loader(case.batches), 1)
        except Exception as error:
            if name == "gpumon":
                raise
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


def _train(train: Train, name: str, loader: Loader, epochs: int) -> None:
    train("" if name == AGAIN else name, loader, epochs)


def _other_work() -> Callable[[], None]:
    """10 ms of steps of another network, which drive all else out of the caches."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(64, 256)

    def work() -> None:
        end = time.perf_counter_ns() + STEP_US * 1000
        while time.perf_counter_ns() < end:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    return work
