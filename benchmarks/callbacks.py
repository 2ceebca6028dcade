"""Cost of a callback per step and per epoch, for each framework; also after 10 ms of other work.

Each framework is a process of its own that trains a tiny model again and again for a fixed time, in turn without a
callback, with gpumon's, and with a peer's; the order within a round is random, so that a slow spell falls on all.
A block gives the median step, and what counts is the median over rounds of its difference from the block
without a callback, with its 95 % interval. CPU is that of the whole process, with threads that a callback
starts. In each round there is a second block without a callback: what that one adds is noise, and what lies
within its interval was not told apart from it. A step of another network that lasts 10 ms drives gpumon's code and
data out of the caches: for the column after it the loader does such a step for each batch. Its own time does not count,
and the mean step of a block does, as only each fifth publishes. There 100 µs are a slowdown of 1 %.
A daemon reads the boards meanwhile. Beside each stands its floor: an empty callback of the framework, and
in the plain loop a generator that reads the clock before and after each fetch.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Place, Stage
from benchmarks.trainings import TRAININGS
from benchmarks.usage import ROOT, Figures
from tests.programs import daemon

_SHARE = 0.8
"""Of a window for each framework: all of them end within ten minutes, and within one with --quick."""
_FEWEST = 6
"""Of so many pairs the least and the largest difference are a 95 % interval of the median; fewer have none."""


def measure(stage: Stage, effort: Effort) -> Result:
    """Let each framework measure itself, one after the other."""
    result = Result(
        "Callbacks in a training",
        ("framework", "with", "pairs", "CPU µs of a step", "added: median", "95 %", "mean", "wall, median",
         "after 10 ms of other work: mean", "95 %", "CPU µs added by an epoch", "95 %"),
    )  # fmt: skip
    place = stage.place("callbacks")
    with daemon(env=place.env):
        for framework, training in TRAININGS.items():
            if find_spec(training.package) is None or find_spec("torch") is None:
                result.notes.append(f"{framework} is not measured: it is not installed.")
                continue
            _add(result, framework, _train(framework, place, effort))
    if find_spec("zeus") is None:
        result.notes.append("Zeus is not measured: it is not installed.")
    return result


def middle(differences: Sequence[float]) -> tuple[float, float, float]:
    """The median, and between which two it lies in 95 of 100 cases, whatever the distribution.

    Without an interval (NaN) if they are too few.
    """
    figures, half = Figures(list(differences)), 0.98 / math.sqrt(len(differences))
    if len(differences) < _FEWEST:
        return figures.median, math.nan, math.nan
    return figures.median, figures.quantile(max(0.0, 0.5 - half)), figures.quantile(min(1.0, 0.5 + half))


def _add(result: Result, framework: str, told: dict[str, Any]) -> None:
    without, long = told["found"][""], told["long"]
    result.rows.append((framework, "no callback", "", number(Figures(without["cpu"]).median), *[""] * 8))
    for name, blocks in told["found"].items():
        if not name:
            continue
        added = {
            what: middle([a - b for a, b in zip(values, without[what], strict=True)]) for what, values in blocks.items()
        }
        cpu, epoch = added["cpu"], added["epoch"]
        pairs, late = f"{len(blocks['cpu'])}", ("", "")
        if name in long:
            cold = middle([a - b for a, b in zip(long[name], long[""], strict=True)])
            pairs, late = f"{pairs}, {len(long[name])}", (number(cold[0]), between(cold))
        result.rows.append((
            framework, name, pairs, number(Figures(blocks["cpu"]).median), number(cpu[0]),
            between(cpu), number(added["mean"][0]), number(added["wall"][0]), *late,
            *((number(epoch[0]), between(epoch)) if TRAININGS[framework].has_epochs else ("–", "–")),
        ))  # fmt: skip
        if name == "gpumon" and framework == "plain loop":
            if math.isnan(cpu[1]):
                result.notes.append("The budget of a step (3 µs) is not judged: there are too few pairs.")
            else:
                result.budgets.append(Budget("a step of the plain loop, median CPU added", cpu[0], 3, " µs"))
    for name, why in told["failed"].items():
        result.notes.append(f"{name}, in the {framework}, is not measured: {why.partition(chr(10))[0]}")


def between(found: tuple[float, float, float]) -> str:
    """An interval for a table."""
    if math.isnan(found[1]):
        return "–"
    return f"{number(found[1])} to {number(found[2])}"


def _train(framework: str, place: Place, effort: Effort) -> dict[str, Any]:
    seconds = _SHARE * effort.seconds * effort.scale
    words = [sys.executable, "-m", "benchmarks.trainings", framework, str(seconds)]
    env = {**place.env, "KERAS_BACKEND": "torch", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # a framework may print before
    return told
