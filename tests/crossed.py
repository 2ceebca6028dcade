"""Two lists of values crossed: a few combinations in which each value occurs, and all others, which are slow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def crossed(firsts: Sequence[object], seconds: Sequence[object]) -> list[Any]:
    """Parameters: the first of one list with the last of the other, and so on; the others run in `make test-all`."""
    longer = max(len(firsts), len(seconds))
    chosen = {(n % len(firsts), -1 - n % len(seconds) + len(seconds)) for n in range(longer)}
    return [
        pytest.param(firsts[a], seconds[b], marks=() if (a, b) in chosen else (pytest.mark.slow,))
        for a, b in product(range(len(firsts)), range(len(seconds)))
    ]
