"""Cost of a callback per step and per epoch, for each framework; and the slowdown of steps of 10 ms.

Each framework is a process of its own that trains a tiny model again and again, in turn without a callback,
with gpumon's, and with a peer's; the order within a round is random, so that a slow spell falls on all.
A block gives the median step, and what counts is the median over rounds of its difference from the block
without a callback, with its 95 % interval. CPU is that of the whole process, with threads that a callback
starts. For the slowdown the loader does 10 ms of work for each batch: a step of another network, and then nothing.
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
from benchmarks.usage import ROOT, Figures
from tests.programs import daemon

FRAMEWORKS = {
    "plain loop": "torch",
    "Keras on torch": "keras",
    "Lightning": "lightning",
    "Transformers": "transformers",
    "Ignite": "ignite",
    "Accelerate": "accelerate",
    "XGBoost": "xgboost",
    "LightGBM": "lightgbm",
}
"""Packages that each requires."""
_ROUNDS, _PAIRS = 80, 40


def measure(stage: Stage, effort: Effort) -> Result:
    """Let each framework measure itself, one after the other."""
    result = Result(
        "Callbacks in a training",
        ("framework", "with", "CPU µs of a step", "added: median", "95 %", "mean", "wall, median",
         "CPU µs added by an epoch", "95 %"),
    )  # fmt: skip
    place = stage.place("callbacks")
    with daemon(env=place.env):
        for framework, package in FRAMEWORKS.items():
            if find_spec(package) is None or find_spec("torch") is None:
                result.notes.append(f"{framework} is not measured: it is not installed.")
                continue
            _add(result, framework, _train(framework, place, effort))
    if find_spec("zeus") is None:
        result.notes.append("Zeus is not measured: it is not installed.")
    return result


def middle(differences: Sequence[float]) -> tuple[float, float, float]:
    """The median, and between which two it lies in 95 of 100 cases, whatever the distribution."""
    figures, half = Figures(list(differences)), 0.98 / math.sqrt(len(differences))
    return figures.median, figures.quantile(max(0.0, 0.5 - half)), figures.quantile(min(1.0, 0.5 + half))


def _add(result: Result, framework: str, told: dict[str, Any]) -> None:
    without = told["found"][""]
    result.rows.append((framework, "no callback", number(Figures(without["cpu"]).median), *[""] * 6))
    for name, blocks in told["found"].items():
        if not name:
            continue
        added = {
            what: middle([a - b for a, b in zip(values, without[what], strict=True)]) for what, values in blocks.items()
        }
        cpu, epoch = added["cpu"], added["epoch"]
        result.rows.append((
            framework, name, number(Figures(blocks["cpu"]).median), number(cpu[0]), between(cpu),
            number(added["mean"][0]), number(added["wall"][0]), number(epoch[0]), between(epoch),
        ))  # fmt: skip
        if name == "gpumon" and framework == "plain loop":
            result.budgets.append(Budget("a step of the plain loop, median CPU added", cpu[0], 3, " µs"))
    for name, why in told["failed"].items():
        result.notes.append(f"{name}, in the {framework}, is not measured: {why.partition(chr(10))[0]}")
    long = told["long"]
    plain = Figures(long[""]).median
    for name, blocks in long.items():
        if name:
            slower = middle([a - b for a, b in zip(blocks, long[""], strict=True)])
            share, low, high = (100 * value / plain for value in slower)
            result.notes.append(
                f"Slowdown of steps of {number(plain / 1000)} ms, {framework} with {name}: {share:+.3f} % of a median "
                f"step ({low:+.3f} to {high:+.3f}, {len(blocks)} pairs of blocks)."
            )


def between(found: tuple[float, float, float]) -> str:
    """An interval for a table."""
    return f"{number(found[1])} to {number(found[2])}"


def _train(framework: str, place: Place, effort: Effort) -> dict[str, Any]:
    rounds, pairs = effort.times(_ROUNDS), effort.times(_PAIRS)
    words = [sys.executable, "-m", "benchmarks.callback_trainings", framework, str(rounds), str(pairs)]
    env = {**place.env, "KERAS_BACKEND": "torch", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # a framework may print before
    return told
