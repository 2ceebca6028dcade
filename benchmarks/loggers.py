"""Cost of `log_to` to a training: on its own thread, and of the thread that reads the ledger.

A training of epochs of 0.3 s that only sleeps, beside a daemon, with each logger in a process of its own, and without
one. On the training's thread each call for the loggers is timed by the clock on the wall, whatever else the
machine does meanwhile; the CPU is that of the whole process, less what the training without a logger takes.
A function that does nothing shows what is gpumon's own; the others are with their own time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Place, Stage
from benchmarks.usage import ROOT, Figures
from tests.programs import daemon

LOGGERS = ("", "function", "csv", "tensorboard")
"""The first: without one."""
_EPOCHS, _SECONDS = 200, 0.3


class Timed:
    """The listener of a run, each of whose calls is timed."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self.by_epoch = [0.0]
        """Milliseconds, up to the end of each epoch."""

    def poll(self) -> None:
        """Time it."""
        self._time(self._own.poll)

    def epoch_ended(self, epoch: int, step: int) -> None:
        """Time it; what follows belongs to the next epoch."""
        self._time(lambda: self._own.epoch_ended(epoch, step))
        self.by_epoch.append(0.0)

    def run_paused(self, rows_to: int) -> None:
        """Pass it on."""
        self._own.run_paused(rows_to)

    def run_ended(self, rows_to: int, *, waits: bool) -> None:
        """Pass it on."""
        self._own.run_ended(rows_to, waits=waits)

    def _time(self, call: Any) -> None:
        begun = time.perf_counter()
        call()
        self.by_epoch[-1] += 1000 * (time.perf_counter() - begun)


def measure(stage: Stage, effort: Effort) -> Result:
    """Let a training with each logger measure itself, one after the other."""
    result = Result(
        "Values of epochs in a logger",
        ("log_to", "ms of an epoch on the training's thread", "p99", "CPU ms of an epoch, all threads", "s at the end"),
    )
    place = stage.place("loggers")
    found: dict[str, dict[str, Any]] = {}
    with daemon(env=place.env):
        for name in LOGGERS:
            if name == "tensorboard" and find_spec("torch") is None:
                result.notes.append("TensorBoard is not measured: torch is not installed.")
                continue
            found[name] = _train(name, place, effort.times(_EPOCHS))
    for name, told in found.items():
        if name:
            figures = Figures(told["thread"])
            cpu = told["cpu"] - found[""]["cpu"]
            cells = map(number, (figures.median, figures.quantile(0.99), cpu, told["end"]))
            result.rows.append(({"function": "a function that does nothing"}.get(name, name), *cells))
    mean = sum(found["function"]["thread"]) / len(found["function"]["thread"])
    result.budgets.append(Budget("log_to, mean of an epoch on the training's thread", mean, 1, " ms"))
    return result


def _train(name: str, place: Place, epochs: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.loggers", name, place.stub.uuid(0), str(epochs), str(place.live)]
    done = subprocess.run(words, env=place.env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _logger(name: str, directory: Path) -> object:
    if name == "tensorboard":
        sys.modules["tensorflow"] = None  # type: ignore[assignment]  # tensorboard would import it
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(directory / "tensorboard")
    return {"": None, "function": lambda values, epoch: None, "csv": directory / "values.csv"}[name]


def main(name: str, device: str, epochs: int, directory: Path) -> dict[str, Any]:
    """Train so many epochs; return what each call took."""
    import gpumon

    run = gpumon.run(f"log-{name}", epochs=epochs, devices=device, log_to=_logger(name, directory))
    timed = Timed(run.listener)
    if run.listener is not None:
        run.listener = timed
    begun = time.process_time()
    for _ in run.epochs():
        for _ in range(3):
            time.sleep(_SECONDS / 3)
            run.step()
    cpu = 1000 * (time.process_time() - begun) / epochs
    over = time.perf_counter()
    run.finish()
    return {"thread": timed.by_epoch[:epochs], "cpu": cpu, "end": time.perf_counter() - over}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))))
