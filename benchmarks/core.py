"""Speed of a core of this machine now: CPU of `python -c pass`, against the core that budgets are meant for.

Absolute budgets (µs, ms, s) are promised for a core on which `python -c pass` takes 10 ms of CPU. The same
command is timed before and after each program, so that a figure is scaled by the core it was measured on.
"""

from __future__ import annotations

import os
import sys

from benchmarks.usage import Figures, run_once

REFERENCE = 0.010
"""Seconds of CPU that `python -c pass` takes on the core that budgets are meant for."""
_ROUNDS = 7


def pass_cpu(rounds: int = _ROUNDS) -> float:
    """Return the median CPU seconds of `python -c pass`, without site packages' start-up hooks."""
    figures = Figures()
    for turn in range(rounds + 1):
        once = run_once([sys.executable, "-I", "-c", "pass"], os.environ)
        if turn:  # the first warms the caches
            figures.add(once.cpu)
    return figures.median


def scale(before: float, after: float) -> float:
    """Return what to multiply a time with to get that of the reference core."""
    return REFERENCE / ((before + after) / 2)


def note(before: float, after: float) -> str:
    """Return the sentence below a table."""
    return (
        f"`python -c pass` took {1000 * before:.1f} ms of CPU before this program and {1000 * after:.1f} ms after it."
    )
