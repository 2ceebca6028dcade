"""What newer Pythons, where this machine has them, say of the sources: the suite itself runs on one of them."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("gpumon", "tui", "web")
VERSIONS = ("3.12", "3.13", "3.14")

COMPILE = """
import sys
for path in sys.stdin.read().split("\\0"):
    with open(path, encoding="utf-8") as file:
        compile(file.read(), path, "exec")
"""
TRAINING = """
import sys
import gpumon
with gpumon.run("net", epochs=2, directory=sys.argv[1]) as run:
    for _ in run.epochs():
        for _ in run.steps(range(3)):
            pass
        run.log(loss=0.5)
    print(run.on)
"""


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter of that version, which need not have any package."""
    wanted: str = request.param
    found = shutil.which(f"python{wanted}")
    if found is None or ran(found, "import sys").returncode:  # a shim may stand for what is not installed
        pytest.skip(f"there is no python{wanted} on PATH")
    return found


def ran(python: str, script: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    words = [python, "-I", "-W", "error", "-X", "dev", "-B", "-c", script, *arguments]
    return subprocess.run(words, cwd=ROOT, input=given, capture_output=True, text=True)


def test_every_source_compiles_without_a_warning(python: str) -> None:
    paths = [str(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    done = ran(python, COMPILE, given="\0".join(paths))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_training_reports_without_a_warning(python: str, tmp_path: Path) -> None:
    here = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    done = ran(python, here + TRAINING, str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_package_indexes_are_told_of_the_oldest_version_that_the_project_takes_and_of_later_ones() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, prefix = settings["project"], "Programming Language :: Python :: 3."
    minors = [int(line.removeprefix(prefix)) for line in project["classifiers"] if line.startswith(prefix)]
    assert minors == list(range(minors[0], minors[-1] + 1))
    oldest = f"3.{minors[0]}"
    assert (project["requires-python"], settings["tool"]["mypy"]["python_version"]) == (f">={oldest}", oldest)
    assert settings["tool"]["ruff"]["target-version"] == oldest.replace("3.", "py3")
