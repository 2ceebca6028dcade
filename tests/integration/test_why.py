"""Trainings that are slow on purpose: `gpumon why` names the cause first, and mending it saves what was predicted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.programs import PATIENCE, environment, gpumon, until
from tests.trainings import need

SCRIPT = ROOT / "examples" / "slow_trainings.py"
CAUSES = {
    "no-workers": "input_bound",
    "restarting-workers": "worker_start",
    "long-validation": "slow_validation",
    "many-checkpoints": "slow_checkpoints",
    "between-epochs": "between_epochs",
    "one-slow-epoch": "epoch_outlier",
    "slower-epochs": "slower_epochs",
}
QUICK = ("no-workers", "long-validation")
"""Cases that are also run by `make test`; each takes some ten seconds."""
MENDED = ("no-workers", "long-validation", "many-checkpoints", "between-epochs")
"""Cases of which the action is one change, so that its gain can be measured."""
NOISE = 0.08
"""By which the time of an epoch may vary on a busy machine, as a share."""


def trained(live_dir: Path, case: str, *arguments: object) -> None:
    """Run a training of the examples to its end, and wait until the ledger has all of it."""
    words = [sys.executable, SCRIPT, case, *arguments]
    done = subprocess.run(
        [*map(str, words)], env=environment(live_dir), capture_output=True, text=True, timeout=5 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    name = f"{case}-fixed" if "--fixed" in arguments else case
    until(lambda: is_settled(live_dir, name))


def is_settled(live_dir: Path, name: str) -> bool:
    """Whether the ledger has enough of the epochs of a run."""
    told = why(live_dir, name)
    return told is not None and told["run"]["state"] == "finished" and not has_too_few(told)


def has_too_few(told: dict[str, Any]) -> bool:
    return any(one["what"] == "time of the epochs" for one in told["not_judged"])


def why(live_dir: Path, name: str) -> dict[str, Any] | None:
    """What `gpumon why --json` says; None while the run is not in the ledger."""
    done = gpumon("why", name, "--json", env=environment(live_dir))
    told: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return told


@pytest.mark.parametrize("case", [
    pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in CAUSES
])  # fmt: skip
def test_the_first_finding_is_the_cause(case: str, watched: Path) -> None:
    need("torch")
    trained(watched, case)
    told = why(watched, case)
    assert told is not None
    assert told["findings"][0]["kind"] == CAUSES[case], told["findings"]


@pytest.mark.slow  # it measures times, which a busy machine changes
@pytest.mark.parametrize("case", MENDED)
def test_a_mended_training_saves_what_was_predicted(case: str, watched: Path) -> None:
    need("torch")
    trained(watched, case)
    trained(watched, case, "--fixed")
    done = gpumon("runs", "compare", case, f"{case}-fixed", "--json", env=environment(watched))
    (gain, *_) = json.loads(done.stdout)["gains"]
    assert gain["kind"] == CAUSES[case]
    (measured,), (low, high) = gain["measured"], gain["gain"]["time"]
    assert low - NOISE <= measured <= high + NOISE
