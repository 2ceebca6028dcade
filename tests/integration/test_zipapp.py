"""`gpumon.pyz`, the file that runs without installation, as a user runs it: by a Python that has no gpumon."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.common.errors import EXIT_OK, EXIT_USAGE
from tests.nvml import Stub
from tests.programs import environment

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1_500_000
"""Largest size in bytes: what somebody downloads over a slow link without thinking about it."""


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("dist") / "gpumon.pyz"
    runpy.run_path(str(ROOT / "deploy/zipapp/build.py"))["build"](path)
    return path


@pytest.fixture
def env(stub: Stub, tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path / "live", stub.env())


def call(pyz: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run the file with the base Python, without the packages of the tests and outside the checkout."""
    python = [getattr(sys, "_base_executable", sys.executable), "-I"]
    return subprocess.run([*python, pyz, *words], env=env, cwd=pyz.parent, capture_output=True, text=True, timeout=60)


def test_two_builds_are_the_same_small_executable_file(pyz: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    runpy.run_path(str(ROOT / "deploy/zipapp/build.py"))["build"](again)
    assert again.read_bytes() == pyz.read_bytes()
    assert pyz.stat().st_size <= LIMIT
    assert os.access(pyz, os.X_OK)


def test_status_top_and_doctor_run_from_the_file(pyz: Path, env: dict[str, str]) -> None:
    status = call(pyz, env, "status", "--json")
    assert status.returncode == EXIT_OK, status.stderr
    assert json.loads(status.stdout)["gpus"]
    assert call(pyz, env, "top", "-n", "1").returncode == EXIT_OK
    assert json.loads(call(pyz, env, "doctor", "--json").stdout)["checks"]


def test_run_measures_a_command_and_keeps_it_as_a_run(pyz: Path, env: dict[str, str]) -> None:
    ran = call(pyz, env, "run", "--", sys.executable, "-c", "import time; time.sleep(1)")
    assert ran.returncode == EXIT_OK, ran.stderr
    assert [run["state"] for run in json.loads(call(pyz, env, "runs", "--json").stdout)["runs"]] == ["finished"]


@pytest.mark.parametrize("words", [("tui",), ("web",), ("run", "--auto", "--", "true")], ids=" ".join)
def test_what_the_file_lacks_is_refused_with_one_line(pyz: Path, env: dict[str, str], words: tuple[str, ...]) -> None:
    refused = call(pyz, env, *words)
    assert refused.returncode == EXIT_USAGE
    assert len(refused.stderr.splitlines()) == 1
    assert "pip" in refused.stderr


def test_hints_name_the_file_that_runs(pyz: Path, env: dict[str, str], tmp_path: Path) -> None:
    moved = tmp_path / "a b.pyz"
    shutil.copy2(pyz, moved)
    hint = call(moved, {**env, "PATH": "/usr/bin:/bin"}, "daemon", "status")
    assert f"'{moved}'" in hint.stdout + hint.stderr


def test_the_service_starts_the_file(pyz: Path, env: dict[str, str]) -> None:
    unit = call(pyz, env, "service", "install", "--print").stdout
    assert f"{pyz} daemon" in unit
