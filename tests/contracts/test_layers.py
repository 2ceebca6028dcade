"""The import contracts in pyproject.toml bite: each forbidden import, made in a copy of the source, fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("gpumon", "tui", "web")
TRAINING = (
    "gpumon",
    "gpumon.tracking.board",
    "gpumon.tracking.active_run",
    "gpumon.callbacks.hook",
    "gpumon.auto.hook",
)
"""What a training imports, besides the callback of the framework that it has."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source and of the contracts on it."""
    folder = tmp_path_factory.mktemp("layers")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def restored(copy: Path) -> Iterator[Path]:
    """The copy, whose added imports and packages are gone after the test."""
    before = {path: path.read_bytes() for path in copy.rglob("*.py")}
    yield copy
    for path in copy.rglob("*.py"):
        if path not in before:
            path.unlink()
        elif path.read_bytes() != before[path]:
            path.write_bytes(before[path])


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """`lint-imports` on the packages in `folder`, not on the installed ones."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / name) for name in ("", "tui", "web"))}
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


def test_the_source_keeps_its_contracts(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("gpumon/ring/lock.py", "gpumon.storage.ledger.writer"),
        ("gpumon/reports/status_text.py", "gpumon.daemon.recorder"),
        ("gpumon/reports/status_json.py", "gpumon_tui.app"),
        ("gpumon/callbacks/hook.py", "numpy"),
    ],
)
def test_an_import_against_the_layers_is_found(restored: Path, module: str, imported: str) -> None:
    path = restored / module
    path.write_text(f"{path.read_text(encoding='utf-8')}\nimport {imported}  # noqa\n", encoding="utf-8")
    done = lint(restored)
    assert done.returncode != 0
    importer = module.removesuffix(".py").replace("/", ".")
    assert f"{importer} -> {imported}" in done.stdout.replace("\n", " "), done.stdout


@pytest.mark.parametrize("package", ["gpumon", "tui/gpumon_tui", "web/gpumon_web"])
def test_a_package_needs_a_layer(restored: Path, package: str) -> None:
    (restored / package / "newcomer.py").write_text('"""A module that has no layer yet."""\n', encoding="utf-8")
    done = lint(restored)
    assert done.returncode != 0
    assert "newcomer" in done.stdout


def test_a_training_imports_the_standard_library_alone() -> None:
    graph = grimp.build_graph(
        "gpumon", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    reached = set(TRAINING).union(*(graph.find_upstream_modules(module) for module in TRAINING))
    outside = {module for module in reached if module.partition(".")[0] not in {"gpumon", *sys.stdlib_module_names}}
    assert outside == set()
