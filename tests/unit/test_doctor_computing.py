"""`gpumon doctor --framework`: a framework computes in a process of its own, and its speed is judged by the card."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.cli.doctor import computing, product
from gpumon.cli.doctor.computing import FRAMEWORKS, Outcome, framework_checks, peak_of, run_products
from gpumon.common.check_result import Condition

FAKE_TORCH = """
import types
float16 = None
class Matrix: pass
def randn(*size, device, dtype): return Matrix()
def empty_like(other): return Matrix()
def matmul(a, b, out): pass
cuda = types.SimpleNamespace(
    is_available=lambda: True, device_count=lambda: 2, synchronize=lambda index: {wait},
    get_device_name=lambda index: "NVIDIA H100 80GB HBM3",
)
"""


def outcome(*results: tuple[str, float], errors: str = "", code: int = 0) -> Outcome:
    lines = [json.dumps({"name": name, "operations": speed * 1e12}) for name, speed in results]
    return Outcome("\n".join(lines), errors, code)


@pytest.mark.parametrize(
    ("result", "conditions"),
    [
        (outcome(("NVIDIA H100 80GB HBM3", 700.0), ("NVIDIA H100 80GB HBM3", 120.0)), ["OK", "WARNING"]),
        (outcome(("NVIDIA GeForce GT 1030", 1.0)), ["OK"]),
        (outcome(), ["FAULT"]),
        (outcome(errors="RuntimeError: CUDA error: no kernel image", code=1), ["FAULT"]),
        (outcome(("NVIDIA L4", 100.0), code=-11), ["OK", "FAULT"]),
        (Outcome("Segmentation\x1b[31m", "", 0), ["FAULT"]),
    ],
)
def test_judgment(result: Outcome, conditions: list[str]) -> None:
    checks = framework_checks("torch", lambda _: result)
    assert [check.condition.name for check in checks] == conditions
    assert "\x1b" not in "".join(check.text for check in checks)


def test_a_framework_that_hangs() -> None:
    def hang(framework: str) -> Outcome:
        raise subprocess.TimeoutExpired(framework, 1.0)

    assert [check.condition for check in framework_checks("jax", hang)] == [Condition.FAULT]


@pytest.mark.parametrize(
    ("model", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989), ("NVIDIA H100 PCIe", 756), ("NVIDIA H200", 989), ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA L40S", 362), ("NVIDIA L4", 121), ("Tesla T4", 65), ("Tesla V100-PCIE-16GB", 112),
        ("NVIDIA GeForce RTX 4090", 165), ("NVIDIA A10G", 0), ("NVIDIA GeForce RTX 4090 Laptop GPU", 0),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 0),
    ],
)  # fmt: skip
def test_peaks(model: str, tera: float) -> None:
    assert peak_of(model) == tera * 1e12


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory before all others on the path of the process that computes."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_each_gpu_is_measured(fake: Path) -> None:
    (fake / "torch.py").write_text(FAKE_TORCH.format(wait="__import__('time').sleep(0.05)"))
    done = run_products("torch")
    results = [json.loads(line) for line in done.output.splitlines()]
    assert done.code == 0, done.errors
    assert len(results) == 2
    expected = 2.0 * product.SIZE**3 * 8 / 0.05
    assert [result["operations"] for result in results] == pytest.approx([expected] * 2, rel=0.3)


def test_an_error_is_named(fake: Path) -> None:
    (fake / "torch.py").write_text("raise ImportError('libcudnn.so.9: cannot open shared object file')")
    (check,) = framework_checks("torch")
    assert check.condition is Condition.FAULT
    assert "libcudnn.so.9" in check.text


@pytest.mark.parametrize(
    "framework", [name if name == "torch" else pytest.param(name, marks=pytest.mark.slow) for name in FRAMEWORKS]
)
def test_real_frameworks_without_a_gpu(framework: str) -> None:
    pytest.importorskip(framework)
    (check,) = framework_checks(framework)
    assert check.condition is Condition.FAULT
    assert "sees no GPU" in check.text


def test_the_script_imports_nothing_of_gpumon() -> None:
    code = f"import runpy, sys; runpy.run_path({product.__file__!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert "gpumon" not in {name.partition(".")[0] for name in done.stdout.split()}
    assert computing.FRAMEWORKS == ("torch", "tensorflow", "jax")
