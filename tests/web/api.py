"""A server with a bit of everything for programs to ask: GPUs, processes, runs, a ledger, a month of history."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpumon.common.caps import read_caps
from gpumon.common.clock import SECOND
from gpumon.daemon.followers import ActivityRecorder
from gpumon.model.frame import RunState, Sample, Tick
from gpumon.model.metrics import Availability
from gpumon.storage.history.recorder import HistoryRecorder
from gpumon.storage.history.tiers import SHAPES
from tests.builders import device, process, run, sample, tick
from tests.months import fill, training
from tests.programs import PATIENCE
from tests.runs import HOSTILE, Book
from tests.runs import training as kept_run
from tests.unknowns import any_tick
from tests.web.served import Served

GIB = 2.0**30
NOW = time.time() // 300 * 300
KEY = "tag.1000.4711.abcd"
RUN = "resnet50-1a2b"


def at(second: int) -> Tick:
    """A tick: one GPU that trains, one that is held and idle, one that is lost for a while, one of a stranger."""
    gone = 60 <= second < 90
    gpus: list[Sample] = [
        sample(
            0, utilization=0.9, memory_used=8 * GIB, memory_total=80 * GIB, power=612.0, energy=600.0 * second, run=KEY
        ),
        sample(1, utilization=0.0, memory_used=8 * GIB, memory_total=80 * GIB),
        sample(2, Availability.LOST) if gone else sample(2, utilization=0.5, memory_used=0.0, memory_total=80 * GIB),
        sample(3, utilization=0.4, memory_used=9 * GIB, memory_total=80 * GIB),
    ]
    return tick(
        second, gpus,
        [process(1, 1, user="bob"), process(2, 0, run=KEY), process(3, 0, user="", name="", memory_used=float("nan"))],
        [run(KEY, id=RUN, gpus=(device().uuid,), epoch=3, step=7, metrics={"loss": float("nan"), HOSTILE[:20]: 1.5})],
        time_ns=round((NOW + second) * SECOND), monotonic_ns=(100 + second) * SECOND,
    )  # fmt: skip


def make(directory: Path, days: int = 32, **more: Any) -> Served:
    """The server: ticks from `NOW` on, with a pause of ten seconds behind second 30; history of `days` before."""
    ticks = [at(second) for second in range(1, 121) if not 30 < second <= 40]
    with Book(directory) as book:
        kept_run(book, RUN, 12, state=RunState.RUNNING)
        kept_run(book, "vit-2b3c", 3, gpus=2, user="bob", framework="keras")
        kept_run(book, "evil-3c4d", 1, name=HOSTILE, user=HOSTILE[:20], state=RunState.DIED)
        book.out_of_memory(f"tag.1000.4711.{RUN}")
        book.run("bare-4d5e", state=RunState.FAILED)
    path = str(directory / "history.sqlite")
    recorder = HistoryRecorder(
        path, os.getuid(), pytest.fail, plugins=[ActivityRecorder(lambda: round((NOW + 120) * SECOND))]
    ).start()
    for one in ticks:
        recorder.add(one)
    recorder.close(PATIENCE)
    fill(path, [device().uuid], NOW, training(NOW), [SHAPES[-1]._replace(keep=days * 86400)])
    caps = read_caps({"period": "day", "users": {"alice": {"hours": 1}}})
    served = Served(ticks, [str(book.path)], devices=4, histories=[path], caps=caps, **more)
    served.now = NOW + 120
    served.feed.history.set_path(path)
    served.live.history_file = lambda: path  # type: ignore[method-assign]
    return served


def hostile(seed: int) -> Served:
    """A server whose newest frame is made of whatever may come."""
    chance = random.Random(seed)
    return Served([any_tick(chance, number, 8) for number in range(1, 4)], devices=8)


def validator(document: Mapping[str, Any], schema: Mapping[str, Any]) -> jsonschema.Draft202012Validator:
    """A check of a schema that stands in an OpenAPI document."""
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})
