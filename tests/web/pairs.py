"""Pairs: few combinations in which each pair of values of two parameters occurs (all-pairs testing)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

Case = Mapping[str, str]
"""A value for each parameter."""


def every(parameters: Mapping[str, Sequence[str]], is_possible: Callable[[Case], bool]) -> list[Case]:
    """All combinations that are possible."""
    cases = [dict(zip(parameters, values, strict=True)) for values in product(*parameters.values())]
    return [case for case in cases if is_possible(case)]


def pairs(parameters: Mapping[str, Sequence[str]], is_possible: Callable[[Case], bool]) -> list[Case]:
    """Some of these, in which each pair of values occurs that occurs in any; the same ones each time.

    Greedy: always the combination with the most pairs that are still missing.
    """
    cases = every(parameters, is_possible)
    of = {id(case): frozenset(combinations(sorted(case.items()), 2)) for case in cases}
    missing = set().union(*of.values())
    found = []
    while missing:
        best = max(cases, key=lambda case: len(of[id(case)] & missing))
        missing -= of[id(best)]
        found.append(best)
    return found
