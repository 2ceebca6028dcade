"""gpumon where no framework is installed, or one that is too old."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.nvml import Stub
from tests.programs import PATIENCE, environment, until
from tests.trainings.beside import finished

FRAMEWORKS = (
    "torch", "keras", "tensorflow", "jax", "lightning", "pytorch_lightning", "transformers", "accelerate", "xgboost",
    "lightgbm", "sklearn", "ignite",
)  # fmt: skip
OLDEST = {
    "keras": "3.0",
    "lightning": "2.0",
    "transformers": "5.0",
    "xgboost": "2.0",
    "lightgbm": "4.0",
    "accelerate": "1.0",
}
"""Least version that each hook requires."""
TRAINING = """
import gpumon
with gpumon.run("plain", epochs=3) as run:
    assert run.on
    for epoch in run.epochs():
        for batch in run.steps(range(4)):
            pass
        run.log(loss=1 / (epoch + 1))
print(run.id)
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has what this one has, but no framework."""
    root = tmp_path_factory.mktemp("bare")
    venv.create(root, symlinks=True)
    there = Path(sysconfig.get_path("purelib", "venv", {"base": str(root)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name.partition("-")[0].lower().removesuffix(".py") not in FRAMEWORKS:
            (there / entry.name).symlink_to(entry)
    return root / "bin" / "python"


def run(
    python: Path, *words: object, live_dir: Path, base: Mapping[str, str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python in that environment; `first` is looked through for modules before all else."""
    env = {**environment(live_dir, base), "PYTHONPATH": os.pathsep.join(filter(None, (first, str(ROOT))))}
    return subprocess.run(
        [python, *map(str, words)], env=env, cwd=live_dir, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_the_environment_has_none(live_dir: Path, bare: Path) -> None:
    script = f"from importlib.util import find_spec; print([name for name in {FRAMEWORKS} if find_spec(name)])"
    assert run(bare, "-c", script, live_dir=live_dir).stdout == "[]\n"


def test_a_loop_by_hand_status_and_the_ledger_work(watched: Path, bare: Path) -> None:
    trained = run(bare, "-c", TRAINING, live_dir=watched)
    assert (trained.returncode, trained.stderr) == (0, "")
    (ended,), _ = finished(watched)
    assert (ended.name, ended.framework, ended.id, ended.epoch) == ("plain", "", trained.stdout.strip(), 2)

    looked = run(bare, "-m", "gpumon", "status", "--json", live_dir=watched)
    assert looked.returncode == 0, looked.stderr
    assert [row["name"] for row in json.loads(looked.stdout)["runs"]] == ["plain"]

    def listed() -> bool:
        done = run(bare, "-m", "gpumon", "runs", live_dir=watched)
        return done.returncode == 0 and "plain" in done.stdout

    until(listed)
    told = run(bare, "-m", "gpumon", "runs", "show", ended.id, "--json", live_dir=watched)
    assert told.returncode == 0, told.stderr
    assert [epoch["epoch"] for epoch in json.loads(told.stdout)["epochs"]] == [0, 1, 2]


@pytest.mark.parametrize("options", [(), ("--auto",)])
def test_a_command_runs_beside_a_sampler(live_dir: Path, bare: Path, stub: Stub, options: tuple[str, ...]) -> None:
    words = ("-m", "gpumon", "run", *options, "--", bare, "-c", "print('came through')")
    done = run(bare, *words, live_dir=live_dir, base=stub.env())
    assert (done.returncode, done.stdout) == (0, "came through\n"), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("hook", "least"), OLDEST.items())
@pytest.mark.parametrize("version", ["", "0.9.5"])
def test_a_hook_without_its_framework_says_in_a_line_what_is_needed(
    live_dir: Path, bare: Path, hook: str, least: str, version: str
) -> None:
    if version:
        for name in ("__init__", "pytorch"):
            path = live_dir / hook / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'__version__ = "{version}"\nclass Callback: ...\n')
    script = f"from gpumon.callbacks.{hook} import GpuMonitor\nGpuMonitor()"
    done = run(bare, "-c", script, live_dir=live_dir, first=str(live_dir))
    line = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert line.startswith("gpumon.common.errors.FrameworkError: "), done.stderr
    assert f"{least} or newer" in line
    assert (f"{version} is installed" if version else f"pip install {hook}") in line


@pytest.mark.parametrize(
    ("hook", "version", "said"),
    [
        ("ignite", "", "-m pip install pytorch-ignite'"),
        ("sklearn", "", "-m pip install scikit-learn' (1.9 or newer)"),
        (
            "sklearn",
            "1.5.2",
            "requires scikit-learn 1.9 or newer; 1.5.2 is installed. With it, write 'with gpumon.run(",
        ),
    ],
)
def test_a_hook_of_a_framework_with_another_name_says_what_to_install(
    live_dir: Path, bare: Path, hook: str, version: str, said: str
) -> None:
    if version:
        (live_dir / hook).mkdir()
        (live_dir / hook / "__init__.py").write_text(f'__version__ = "{version}"\n')
    done = run(bare, "-c", f"import gpumon.callbacks.{hook}", live_dir=live_dir, first=str(live_dir))
    assert said in done.stderr.splitlines()[-1]
