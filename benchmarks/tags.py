"""Cost of a tag to a training: CPU of one tag, and the slowdown of steps of 10 ms.

Each trainer is a process of its own; a daemon reads the boards meanwhile. A tag is timed with the
thread's CPU clock, less what an empty pair of readings takes: back to back; with about 200 µs of other
work between; and after a whole step, which drives it out of all caches. A step is a forward and
backward pass and an optimizer step of a small network in torch on one core, and where torch is not
installed checksums over a megabyte. For the slowdown, steps with and without a tag alternate in pairs, in
random order, so that every second tagged step publishes, twice as many as in a training; what counts is the
median of their differences, with its 95 % interval. There a step is one of some 7 ms, filled up to 10 ms: what
a step takes differs by far more than what a tag costs. Epochs of 1 ms, each with a logged loss, run in blocks
with and without a run, in random order.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from itertools import repeat
from typing import Any

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Place, Stage, tool
from benchmarks.usage import ROOT, Figures
from tests.programs import daemon

STEP_US, FILLED_US, OTHER_US = 10_000, 7_000, 200
"""Of a whole step; of the training in a step that is filled up; of other work between two tags."""
_PAIRS = 4000
_EPOCHS, _EPOCH_US, _BLOCK = 20_000, 1000, 100
"""Short epochs, their duration, and the number of them that run with or without gpumon at a time."""
Found = dict[str, Any]


def measure(stage: Stage, effort: Effort) -> Result:
    """Let each trainer measure itself, one after the other."""
    place = stage.place("training")
    with daemon(env=place.env):
        ours = _train("gpumon", place, effort)
        theirs = _train("nvitop", place, effort) if tool("nvitop") else {"tags": {}, "slower": []}
    columns = ("CPU µs: 200 µs of other work between", "p99", "back to back", "p99", "after a step of 10 ms", "p99")
    result = Result(f"Tags in a training (steps: {ours['step']})", ("tag", *columns))
    for name, cells in {**ours["tags"], **theirs["tags"]}.items():
        result.rows.append((name, *map(number, cells)))
    for name, slower in (("gpumon, run.step()", ours["slower"]), ("nvitop, with collector(tag)", theirs["slower"])):
        if slower:
            result.notes.append(
                f"Slowdown of steps of {number(slower[0])} ms by {name}: {slower[1]:+.3f} % of wall time "
                f"({slower[2]:+.3f} to {slower[3]:+.3f}, {slower[4]} pairs of steps); the quartiles of the pairs are "
                f"{slower[5]:+.2f} and {slower[6]:+.2f} %."
            )
    ratio, milliseconds, count = ours["epochs"]
    result.notes.append(
        f"{count} epochs of {number(milliseconds)} ms with a logged loss take {ratio:.3f} times as long with gpumon."
    )
    step = max(ours["tags"]["gpumon: run.step()"][0], ours["tags"]["gpumon: a batch of run.steps()"][0])
    result.budgets.append(Budget("one tag, median CPU", step, 3, " µs"))
    result.budgets.append(Budget("slowdown of 10 ms steps", ours["slower"][1], 0.1, " %"))
    return result


def cost(tag: Callable[[], object], count: int, between: Callable[[], object] | None) -> Figures:
    """CPU of one call of `tag`, µs, each measured by itself."""
    clock, found, empty = time.thread_time_ns, Figures(), Figures()
    for _ in range(count):
        if between:
            between()
        begun = clock()
        done = clock()
        tag()
        ended = clock()
        empty.add(done - begun)
        found.add(ended - done)
    nothing = empty.median
    return Figures([(value - nothing) / 1000 for value in found.values])


def slowdown(step: Callable[[], object], tagged: Callable[[], object], pairs: int) -> list[float]:
    """Step in ms; then percent: the median difference of pairs, its 95 % interval, pairs, quartiles."""

    def plainly() -> None:
        step()

    chance, plain, differences = random.Random(1), Figures(), Figures()
    for _ in range(pairs):
        walls = {}
        for with_tag in chance.sample((True, False), 2):
            work = tagged if with_tag else plainly
            begun = time.perf_counter_ns()
            work()
            walls[with_tag] = (time.perf_counter_ns() - begun) / 1e6
        plain.add(walls[False])
        differences.add(walls[True] - walls[False])
    # Order statistics: the median of n lies between these two in 95 of 100 cases, whatever the distribution.
    half = 0.98 / math.sqrt(pairs)
    shares = (differences.median, differences.quantile(0.5 - half), differences.quantile(0.5 + half))
    low, middle, high, *quartiles = (
        100 * value / plain.median
        for value in (shares[1], shares[0], shares[2], differences.quantile(0.25), differences.quantile(0.75))
    )
    return [plain.median, middle, low, high, pairs, *quartiles]


def short_epochs(count: int) -> list[float]:
    """Time of epochs with a run divided by that of as many without; duration of one without, ms; their number."""
    import gpumon

    work, chance, seconds = work_of(_EPOCH_US), random.Random(3), {True: 0.0, False: 0.0}
    blocks = max(1, count // _BLOCK)
    with gpumon.run("short epochs", epochs=blocks * _BLOCK) as run:
        epochs = run.epochs()
        for _ in range(blocks):
            for is_tagged in chance.sample((True, False), 2):
                begun = time.perf_counter()
                for _ in range(_BLOCK):
                    if is_tagged:
                        next(epochs)
                    work()
                    if is_tagged:
                        run.log(loss=0.5)
                seconds[is_tagged] += time.perf_counter() - begun
    return [seconds[True] / seconds[False], 1000 * seconds[False] / (blocks * _BLOCK), blocks * _BLOCK]


def work_of(microseconds: float) -> Callable[[], object]:
    """Work that takes about so long: checksums over a megabyte, and objects of Python."""
    data = random.Random(2).randbytes(1 << 20)

    def work(times: int) -> None:
        for i in range(times):
            zlib.crc32(data[: 1 << 16] if i % 16 else data)
            {str(key): key for key in range(8)}

    timed = Figures()
    for _ in range(30):
        begun = time.perf_counter_ns()
        work(64)
        timed.add((time.perf_counter_ns() - begun) / 1000)
    count = max(1, round(64 * microseconds / timed.median))
    return lambda: work(count)


def steady(step: Callable[[], object]) -> Callable[[], object]:
    """`step`, then looks at the clock until 10 ms are over: how long steps take differs by more than a tag costs."""

    def work() -> None:
        end = time.perf_counter_ns() + STEP_US * 1000
        step()
        while time.perf_counter_ns() < end:
            pass

    return work


def training_step(microseconds: float = STEP_US) -> tuple[str, Callable[[], object]]:
    """Work of a training between two tags, of about this duration."""
    try:
        import torch
    except ImportError:
        return "checksums, torch is not installed", work_of(microseconds)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters())

    def step_with(batch: Any) -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def size_of(size: int) -> float:
        batch, timed = torch.randn(size, 256), Figures()
        for _ in range(20):
            begun = time.perf_counter_ns()
            step_with(batch)
            timed.add((time.perf_counter_ns() - begun) / 1000)
        return timed.median

    small, large = size_of(64), size_of(256)
    slope = max((large - small) / 192, 1e-3)
    batch = torch.randn(max(1, round(64 + (microseconds - small) / slope)), 256)
    return f"torch {torch.__version__}, one core", lambda: step_with(batch)


def _train(who: str, place: Place, effort: Effort) -> Found:
    words = [sys.executable, "-m", "benchmarks.tags", who]
    words += [str(effort.times(times)) for times in (5000, _PAIRS, _EPOCHS)]
    done = subprocess.run(words, env=place.env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    found: Found = json.loads(done.stdout)
    return found


def _costs(tag: Callable[[], object], count: int, step: Callable[[], object]) -> list[float]:
    found = cost(tag, count, work_of(OTHER_US)), cost(tag, count, None), cost(tag, max(10, count // 20), step)
    return [value for figures in found for value in (figures.median, figures.quantile(0.99))]


def gpumon_trainer(count: int, pairs: int, epochs: int) -> Found:
    """A run with a board, as a training script has it."""
    import gpumon

    kind, step = training_step()
    with gpumon.run("benchmark", epochs=1_000_000) as run:
        if not run.on:
            raise RuntimeError("no board could be made")
        batches, numbers = iter(run.steps(repeat(None))), run.epochs()
        tags = {
            "gpumon: run.step()": _costs(run.step, count, step),
            "gpumon: a batch of run.steps()": _costs(lambda: next(batches), count, step),
            "gpumon: run.log(loss=, accuracy=)": _costs(lambda: run.log(loss=0.5, accuracy=0.9), count // 4, step),
            "gpumon: an epoch's end and the next one's begin": _costs(lambda: next(numbers), count // 4, step),
        }

        filled = steady(training_step(FILLED_US)[1])

        def tagged() -> None:
            filled()
            run.step()

        slower = slowdown(filled, tagged, pairs)
    return {"step": kind, "tags": tags, "slower": slower, "epochs": short_epochs(epochs)}


def nvitop_trainer(count: int, pairs: int, _: int) -> Found:
    """nvitop's collector. Its sampling thread runs beside the steps without a tag too, in its favor."""
    from nvitop import ResourceMetricCollector

    collector, (kind, step) = ResourceMetricCollector(), training_step()

    def tag() -> None:
        with collector(tag="batch"):
            pass

    filled = steady(training_step(FILLED_US)[1])

    def tagged() -> None:
        with collector(tag="batch"):
            filled()

    with collector(tag="train"):
        tags = {
            "nvitop: with collector(tag=)": _costs(tag, max(10, count // 40), step),
            "nvitop: collector.collect()": _costs(collector.collect, max(10, count // 40), step),
        }
        return {"step": kind, "tags": tags, "slower": slowdown(filled, tagged, max(10, pairs // 4))}


if __name__ == "__main__":
    trainer = {"gpumon": gpumon_trainer, "nvitop": nvitop_trainer}[sys.argv[1]]
    print(json.dumps(trainer(*map(int, sys.argv[2:]))))
