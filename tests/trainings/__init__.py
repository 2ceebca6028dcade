"""Trainings that tests run in separate processes, and the content of their boards."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.common.paths import Places
from gpumon.model.frame import Boundary, Mark, Run
from gpumon.model.run import NO_METADATA, PAUSED, Parameter
from gpumon.tracking.tag_reader import TagReader
from tests.conftest import ROOT, cannot
from tests.programs import environment


class Told(NamedTuple):
    """What the board of one process told of a run, from its begin to its end."""

    run: Run
    boundaries: list[Boundary]
    config: Mapping[str, Parameter] = {}

    def marks(self, *, pauses: bool = False) -> list[tuple[str, int, int, str]]:
        """Mark, epoch, step and phase of each boundary but those of logs and rows, and of pauses unless asked for."""
        found = [b for b in self.boundaries if b.mark not in (Mark.LOG, Mark.STEPS)]
        shown = [b for b in found if pauses or b.phase != PAUSED]
        return [(b.mark.name, b.epoch, b.step, b.phase) for b in shown]

    @property
    def phases(self) -> list[Boundary]:
        """Where phases begin, without checkpoints and pauses."""
        return [b for b in self.boundaries if b.mark == Mark.PHASE and b.phase != PAUSED]

    def logged(self, epoch: int) -> dict[str, float]:
        """What was logged last with `epoch`."""
        found: dict[str, float] = {}
        for boundary in self.boundaries:
            if boundary.epoch == epoch and boundary.mark in (Mark.EPOCH_END, Mark.LOG):
                found.update(boundary.metrics)
        return found

    @property
    def trained(self) -> int:
        """When (ns, monotonic) the training was over: a validation or test of the same run may have followed."""
        return next(b.monotonic_ns for b in self.boundaries if b.phase == PAUSED or b.mark is Mark.RUN_END)

    def times(self, mark: Mark, phase: str | None = None) -> list[int]:
        """When (ns, monotonic) the boundaries of `mark` were, of those into `phase` where it is given."""
        shown = [b for b in self.boundaries if b.mark == mark and b.phase != PAUSED]
        return [b.monotonic_ns for b in shown if phase in (None, b.phase)]


def need(*packages: str) -> None:
    """Skip where one of `packages` is not installed; fail in CI, unless pip has no wheel of it (tests/setup.sh)."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    told = Path(sys.prefix, "no-wheel")
    no_wheel = told.read_text().split() if told.exists() else []
    for package in missing:
        if package in no_wheel:
            pytest.skip(f"pip has no wheel of {package} for this Python")
        cannot(f"{package} is not installed: tests/setup.sh installs it")


def recipe(word: str) -> str:
    """The one example on the pages about trainings that contains `word`."""
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "train").glob("*.md")))
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (block,) = (block for block in blocks if word in block)
    return block


def train(command: Sequence[object], live_dir: Path, *, may_abort: bool = False, **more: str) -> str:
    """Run a training to its end, which gpumon has nothing to warn of; gives what it printed.

    `may_abort`: torch's gloo aborts now and then while it shuts down ("terminate called without an active
    exception", seen without gpumon too, in 1 of 21 runs of two ranks), when all that is of interest is over.
    """
    env = {
        **environment(live_dir), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "", **more,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *map(str, command)], env=env, cwd=live_dir, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    aborted = may_abort and "terminate called without an active exception" in done.stderr
    assert done.returncode == 0 or aborted, done.stdout[-3000:] + done.stderr[-3000:]
    warned = [line for line in done.stderr.splitlines() if line.startswith("gpumon:") or "GpuMonitor." in line]
    assert not warned, done.stderr
    return done.stdout


def told(live_dir: Path) -> list[Told]:
    """All runs that were tagged under `live_dir`, by rank and begin."""
    reader = TagReader(Places(explicit=str(live_dir), uid=os.getuid()))
    poll = reader.poll()
    reader.close()
    found = [
        Told(run, [b for b in poll.boundaries if b.run == run.key], poll.about.get(run.key, NO_METADATA).config)
        for run in poll.runs
    ]
    return sorted(found, key=lambda one: (one.run.rank, one.boundaries[0].monotonic_ns))


class Cases:
    """The runs of a module with many trainings, by case: what their boards have, and what the framework's hooks saw."""

    def __init__(self, module: str, live_dir: Path, *words: object, **more: str) -> None:
        printed = train(["-m", f"tests.trainings.{module}", *words], live_dir, **more)
        self.seen: dict[str, Any] = json.loads(printed.splitlines()[-1])
        self._told = told(live_dir)

    def all(self, case: str) -> list[Told]:
        return [one for one in self._told if one.run.name == case]

    def __getitem__(self, case: str) -> Told:
        return self.all(case)[0]
