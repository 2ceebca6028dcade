"""Trainings by Ignite and with Accelerate, one run of gpumon for each case; prints as JSON what the hooks saw.

Beside each `GpuMonitor` stand neighbors that take the time: Ignite calls one just before it and one just after it.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from ignite.engine import Engine, Events  # noqa: E402
from ignite.handlers import Checkpoint  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from gpumon.callbacks.accelerate import GpuMonitorTracker  # noqa: E402
from gpumon.callbacks.ignite import GpuMonitor  # noqa: E402

HOOKS = (Events.STARTED, Events.EPOCH_STARTED, Events.EPOCH_COMPLETED, Events.COMPLETED)
told: dict[str, dict[str, Any]] = {}


class Slow:
    """Batches that take a while to read."""

    def __init__(self, count: int, pause: float = 0.01) -> None:
        self.count = count
        self.pause = pause
        self.slept = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for batch in range(self.count):
            began = time.monotonic_ns()
            time.sleep(self.pause)
            self.slept += time.monotonic_ns() - began
            yield batch


def neighbor(engine: Any) -> list[tuple[str, int]]:
    """The times of the hooks of `engine`, taken by handlers that are attached now."""
    times: list[tuple[str, int]] = []

    def note(engine: Any, hook: str) -> None:
        times.append((hook, time.monotonic_ns()))

    for event in HOOKS:
        engine.add_event_handler(event, note, event.name)
    return times


def engines(case: str, *, first: bool = True, fail: int = 0, error: Any = ValueError, **more: Any) -> tuple[Any, Any]:
    """A trainer and its evaluator, which runs at the end of each epoch: before the monitor's handler, or after it."""

    def step(engine: Any, batch: Any) -> float:
        if engine.state.iteration == fail:
            raise error("boom")
        time.sleep(0.005)
        return 0.5

    trainer, evaluator = Engine(step), Engine(lambda engine, batch: time.sleep(0.005))
    reads = Slow(2)

    @evaluator.on(Events.EPOCH_COMPLETED)
    def measure() -> None:
        evaluator.state.metrics["accuracy"] = torch.tensor(0.25 * trainer.state.epoch)
        evaluator.state.metrics["matrix"] = torch.ones(2, 2)

    def evaluate() -> None:
        evaluator.run(reads)

    def train(engine: Any) -> None:
        engine.state.metrics["loss"] = 1 / engine.state.epoch

    before = neighbor(trainer)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, train)
    if first:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, evaluate)
    GpuMonitor(case).attach(trainer, validate=evaluator, **more)
    if not first:
        trainer.add_event_handler(Events.EPOCH_COMPLETED, evaluate)
    told[case] = {"before": before, "after": neighbor(trainer)}
    return trainer, evaluator


def by_ignite() -> None:
    tester = Engine(lambda engine, batch: None)
    tester.add_event_handler(Events.COMPLETED, lambda: tester.state.metrics.update(accuracy=0.75))
    trainer, _ = engines("ignite", test=tester)
    reads = Slow(3)
    trainer.run(reads, max_epochs=2)
    told["ignite"]["slept"] = reads.slept
    tester.run([0, 1])

    engines("ignite, between", first=False)[0].run([0, 1, 2], max_epochs=2)
    engines("ignite, iterations")[0].run([0, 1, 2], max_iters=5)
    loader = DataLoader(torch.zeros(12, 1), batch_size=4)
    engines("ignite, loader")[0].run(loader, max_epochs=1)

    resumed, _ = engines("ignite, resumed")
    resumed.load_state_dict({"epoch": 1, "max_epochs": 3, "epoch_length": 3})
    resumed.run([0, 1, 2])

    with suppress(ValueError):
        engines("ignite, failed", fail=2)[0].run([0, 1, 2], max_epochs=2)
    with suppress(KeyboardInterrupt):
        engines("ignite, interrupted", fail=5, error=KeyboardInterrupt)[0].run([0, 1, 2], max_epochs=2)
    handled, _ = engines("ignite, handled", fail=2)
    handled.add_event_handler(Events.EXCEPTION_RAISED, lambda engine, error: None)
    handled.run([0, 1, 2], max_epochs=2)
    for skip in (False, True):
        stopped, _ = engines(f"ignite, stopped {skip}")
        stopped.add_event_handler(Events.ITERATION_COMPLETED(once=4), lambda engine: engine.terminate(skip))  # noqa: B023
        stopped.run([0, 1, 2], max_epochs=2)

    saving, evaluator = engines("ignite, saving", first=False)
    score = iter((1, 3, 2))
    best = Checkpoint(
        {"model": torch.nn.Linear(1, 1)}, lambda *_: time.sleep(0.05), n_saved=1, score_function=lambda _: next(score)
    )
    evaluator.add_event_handler(Events.COMPLETED, best)
    saving.run([0, 1, 2], max_epochs=3)

    alone = Engine(lambda engine, batch: None)
    GpuMonitor("ignite, alone").attach(Engine(lambda engine, batch: None), validate=alone)
    alone.run([0, 1])


def by_accelerate() -> None:
    for case, log_with in (("by name", "gpumon"), ("accelerate", [GpuMonitorTracker("accelerate")])):
        accelerator = Accelerator(cpu=True, log_with=log_with)
        accelerator.init_trackers("my_project", config={"learning_rate": 0.001, "api_key": "k-123"})
        run = accelerator.get_tracker("gpumon", unwrap=True)
        model = torch.nn.Linear(2, 1)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
        for epoch in run.epochs(2) if case == "accelerate" else range(2):
            for batch in run.steps(torch.ones(3, 4, 2)) if case == "accelerate" else torch.ones(3, 4, 2):
                loss = model(batch).pow(2).mean()
                accelerator.backward(loss)
                optimizer.step()
            accelerator.log({"loss": loss.item(), "epoch": epoch}, step=epoch)
        told[case] = {"loss": loss.item()}
        accelerator.end_training()


if __name__ == "__main__":
    by_ignite()
    by_accelerate()
    print(json.dumps(told))
