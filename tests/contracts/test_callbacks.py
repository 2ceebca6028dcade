"""Each callback in `gpumon/callbacks` has a page, a benchmark, and one line for users without its framework."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLBACKS = sorted(
    path.stem
    for path in (ROOT / "gpumon" / "callbacks").glob("*.py")
    if re.search(r"^class GpuMonitor\b", path.read_text(encoding="utf-8"), re.MULTILINE)
)


def test_there_are_callbacks() -> None:
    assert len(CALLBACKS) > 5


@pytest.mark.parametrize("name", CALLBACKS)
@pytest.mark.parametrize("pages", ["docs/train/*.md", "benchmarks/trainings/*.py"])
def test_each_callback_is_named_by_a_page_and_by_a_benchmark(name: str, pages: str) -> None:
    module = re.compile(rf"\bgpumon\.callbacks\.{name}\b")
    assert any(module.search(path.read_text(encoding="utf-8")) for path in ROOT.glob(pages))


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_missing_framework_is_an_error_for_users(name: str) -> None:
    """Without `site`, Python has no installed package."""
    script = f"""
from gpumon.common.errors import FrameworkError
try:
    from gpumon.callbacks.{name} import GpuMonitor
    GpuMonitor()
except FrameworkError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert "pip install" in done.stdout
