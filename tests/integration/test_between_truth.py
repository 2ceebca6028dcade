"""Trainings that evaluate and save at the end of each epoch: their rows add up, and are the truth of the driver's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.model.frame import Mark
from gpumon.model.run import PAUSED
from tests.nvml import Stub
from tests.programs import daemon, environment
from tests.trainings import Told, need, train
from tests.trainings.beside import shown, tagged

EPOCH = 1.05
"""Seconds: energy is known from one second on."""
FRAMEWORKS = ("transformers", "lightning", "keras")
CLOSE = 0.005
"""Share by which the rows of a run may differ from the whole."""


class Trained(NamedTuple):
    """What the ring and the ledger have of each training."""

    stub: Stub
    told: dict[str, Told]
    rows: dict[str, Any]


@pytest.fixture(scope="module")
def trained(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    need("torch", "keras", "lightning", "transformers", "accelerate")
    live_dir = tmp_path_factory.mktemp("between")
    with Stub(driver_library) as stub, daemon("--interval", "0.1", env=environment(live_dir, stub.env())):
        words = ["-m", "tests.trainings.evaluating", stub.uuid(0), EPOCH, live_dir]
        with ThreadPoolExecutor(1) as pool:
            training = pool.submit(train, words, live_dir, KERAS_BACKEND="torch")
            told = {one.run.name: one for one in tagged(live_dir, len(FRAMEWORKS), training)}
        yield Trained(stub, told, {name: shown(live_dir, one.run) for name, one in told.items()})


def stretches(one: Told) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Begin and end (ns, monotonic) of each epoch, and of each part between them that counts."""
    epochs: list[tuple[int, int]] = []
    outside: list[tuple[int, int]] = []
    since, counts, inside = 0, False, False
    for b in one.boundaries:
        if (
            since
            and b.mark in (Mark.EPOCH_END, Mark.EPOCH_BEGIN, Mark.RUN_END, Mark.PHASE)
            and not (inside and b.mark is Mark.PHASE)
        ):
            (epochs if inside else outside).extend([(since, b.monotonic_ns)] if inside or counts else [])
            since = 0
        if not since:
            since, counts = b.monotonic_ns, b.phase != PAUSED
            inside = b.mark is Mark.EPOCH_BEGIN
    return epochs, outside


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_epochs_and_what_lies_between_them_are_the_whole(trained: Trained, framework: str) -> None:
    rows = trained.rows[framework]
    parts = [*rows["epochs"], rows["between"]]
    for name in ("seconds", "energy"):
        assert sum(part[name] for part in parts) == pytest.approx(rows["total"][name], rel=CLOSE), name
    phases = rows["between"]["phases"]
    assert sum(phase["seconds"] for phase in phases) == pytest.approx(rows["between"]["seconds"], rel=CLOSE)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_is_what_the_boundaries_and_the_driver_say(trained: Trained, framework: str) -> None:
    rows, one = trained.rows[framework], trained.told[framework]

    def energy(parts: list[tuple[int, int]]) -> float:
        return sum(
            trained.stub.truth("gpu.energy", 0, end / 1e9) - trained.stub.truth("gpu.energy", 0, begin / 1e9)
            for begin, end in parts
        )

    epochs, outside = stretches(one)
    assert len(epochs) == 2
    for row, part in zip(rows["epochs"], epochs, strict=True):
        assert row["seconds"] == pytest.approx((part[1] - part[0]) / 1e9, abs=0.001)
        assert row["energy"] == pytest.approx(energy([part]), rel=0.02)
    assert rows["between"]["seconds"] == pytest.approx(sum(end - begin for begin, end in outside) / 1e9, abs=0.001)
    assert rows["between"]["energy"] == pytest.approx(energy(outside), rel=0.02)


@pytest.mark.parametrize(
    ("framework", "between"),
    [
        ("transformers", {"evaluate": 3, "checkpoint": 2}),
        ("lightning", {"sanity": 1, "checkpoint": 2, "validate": 1}),
        ("keras", {"checkpoint": 2, "evaluate": 1}),
    ],
)
def test_evaluations_and_checkpoints_have_their_phases(
    trained: Trained, framework: str, between: dict[str, int]
) -> None:
    rows = trained.rows[framework]
    assert {
        phase["phase"]: phase["times"] for phase in rows["between"]["phases"] if phase["phase"] != "other"
    } == between
    inside = [[phase["phase"] for phase in epoch["phases"]] for epoch in rows["epochs"]]
    assert inside == 2 * [["train"] if framework == "transformers" else ["train", "validate"]]


def test_what_is_logged_after_a_training_belongs_to_no_epoch(trained: Trained) -> None:
    """Keras evaluates with the same names: the loss of the last epoch stays that of its training."""
    rows = trained.rows["keras"]
    losses = [epoch["metrics"]["loss"] for epoch in rows["epochs"]]
    assert losses[0] > losses[1] > rows["total"]["metrics"]["loss"]
