"""Pairs: few combinations in which each pair of values of two parameters occurs (all-pairs testing)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import combinations, product
from operator import or_

Case = Mapping[str, str]
"""A value for each parameter."""


def every(parameters: Mapping[str, Sequence[str]], is_possible: Callable[[Case], bool]) -> list[Case]:
    """All combinations that are possible."""
    cases = [dict(zip(parameters, values, strict=True)) for values in product(*parameters.values())]
    return [case for case in cases if is_possible(case)]


def pairs(
    parameters: Mapping[str, Sequence[str]], is_possible: Callable[[Case], bool], beside: Iterable[Case] = ()
) -> list[Case]:
    """Some of these, in which each pair of values occurs that occurs in any; the same ones each time.

    But for pairs that `beside` has. Greedy: always the combination with the most pairs that are still missing.
    """
    bits: dict[tuple[tuple[str, str], ...], int] = {}

    def held(case: Case) -> int:  # a bit for each of its pairs: all tests wait for this
        mine = combinations(sorted(case.items()), 2)
        return sum(1 << bits.setdefault(pair, len(bits)) for pair in mine)

    cases = [(case, held(case)) for case in every(parameters, is_possible)]
    missing = reduce(or_, (mask for _, mask in cases), 0)
    for case in beside:
        missing &= ~held(case)
    found = []
    while missing:
        best, mask = max(cases, key=lambda one: (one[1] & missing).bit_count())
        missing &= ~mask
        found.append(best)
    return found
