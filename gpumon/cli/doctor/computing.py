"""The checks of `gpumon doctor --framework`: a framework computes on each GPU, compared with the card's peak."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpumon.cli.doctor import product
from gpumon.common.check_result import Check, Condition
from gpumon.common.text import clean
from gpumon.model.units import percent

FRAMEWORKS = tuple(product.FRAMEWORKS)
_TIMEOUT = 180.0
"""Maximum seconds for all GPUs. A framework may load for a minute on a cold disk."""
_SLOW = 0.4
"""A GPU that reaches less than this share of its peak is slowed down by something. Products of this size usually reach
60 to 90 %."""
_MODELS: Sequence[tuple[str, float]] = (
    (r"\bG?B200\b", 2250), (r"\bH200 NVL\b", 835), (r"\bH200\b", 989), (r"\bH100 PCIe\b", 756), (r"\bH100 NVL\b", 835),
    (r"\bGH200\b", 989), (r"\bH100\b", 989), (r"\bA100\b", 312), (r"\bA30\b", 165), (r"\bA40\b", 150),
    (r"\bA10\b", 125), (r"\bL40S\b", 362), (r"\bL40\b", 181), (r"\bL4\b", 121), (r"\bT4\b", 65),
    (r"\bV100-PCIE\b", 112), (r"\bV100\b", 125), (r"\bRTX A6000\b", 155), (r"\bRTX 4090$", 165),
    (r"\bRTX 3090$", 71),
)  # fmt: skip
"""Dense peak of FP16 tensor cores by model, in 10^12 operations per second. The first pattern that matches counts.

Sources: NVIDIA's data sheets, whose numbers with sparsity are twice as large; for GeForce and RTX A6000 the white
papers of GA102 and AD102, with accumulation in FP32.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the process that computed."""

    output: str
    """A line of JSON for each GPU."""
    errors: str
    """The last line of stderr."""
    code: int
    """Exit code, or minus the signal; 0 if the process finished."""


def framework_checks(framework: str, compute: Callable[[str], Outcome] | None = None) -> list[Check]:
    """Return a check for each GPU that the framework uses.

    `compute`: function that runs the products in a process of its own.
    """
    try:
        outcome = (compute or run_products)(framework)
    except subprocess.TimeoutExpired:
        text = f"{framework} did not finish a product within {_TIMEOUT:.0f} s"
        return [Check(framework, Condition.FAULT, text, "check 'dmesg' for errors of the driver")]
    checks = [_speed(framework, number, line) for number, line in enumerate(outcome.output.splitlines())]
    if outcome.code:
        why = f"signal {-outcome.code}" if outcome.code < 0 else clean(outcome.errors, 300) or "no message"
        checks.append(Check(framework, Condition.FAULT, f"{framework} cannot compute: {why}"))
    elif not checks:
        text = f"{framework} sees no GPU"
        remedy = "see Environment and Packages: they say whether GPUs are hidden, or the build cannot use them"
        checks.append(Check(framework, Condition.FAULT, text, remedy))
    return checks


def run_products(framework: str) -> Outcome:
    """Run `product.py` in a process of its own. Raises TimeoutExpired."""
    done = subprocess.run(
        # Without the directory of the script on sys.path, whose modules have names that others have, too.
        [sys.executable, "-P", os.path.abspath(product.__file__), framework],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False,
    )  # fmt: skip
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    return Outcome(done.stdout, errors[-1] if errors else "", done.returncode)


def peak_of(model: str) -> float:
    """Return the dense peak of a model in operations per second; 0 if it is not in the table.

    A MIG instance has only a part of the peak, which is not in the table.
    """
    if "MIG" in model:
        return 0.0
    return next((peak * 1e12 for pattern, peak in _MODELS if re.search(pattern, model)), 0.0)


def _speed(framework: str, number: int, line: str) -> Check:
    try:
        result = json.loads(line)
        name, operations = str(result["name"]), float(result["operations"])
    except (ValueError, KeyError, TypeError):
        return Check(framework, Condition.FAULT, f"{framework} printed {clean(line, 80)!r} instead of a result")
    peak = peak_of(name)
    speed = f"{operations / 1e12:.3g} TFLOP/s in FP16 on {clean(name, 80) or 'a GPU'} ({framework} device {number})"
    if not peak:
        return Check(framework, Condition.OK, speed)
    text = f"{speed}, {percent(operations / peak)} of its dense peak"
    if operations >= _SLOW * peak:
        return Check(framework, Condition.OK, text)
    remedy = "'gpumon status' shows whether heat, a power limit or another process slows it down"
    return Check(framework, Condition.WARNING, text, remedy)
