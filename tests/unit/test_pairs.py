"""All-pairs: each pair of values that can occur does, in far fewer combinations than all."""

from __future__ import annotations

from itertools import combinations

from tests.web.pairs import Case, every, pairs

PARAMETERS = {"a": "12345", "b": "123", "c": "1234", "d": "12"}


def unlike(case: Case) -> bool:
    return case["a"] != case["b"]


def of(cases: list[Case]) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for case in cases for pair in combinations(case.items(), 2)}


def test_each_possible_pair_occurs_and_no_impossible_combination() -> None:
    found = pairs(PARAMETERS, unlike)
    assert of(found) == of(every(PARAMETERS, unlike))
    assert all(map(unlike, found))
    assert len(found) < len(every(PARAMETERS, unlike)) / 3


def test_they_are_the_same_each_time() -> None:
    assert pairs(PARAMETERS, unlike) == pairs(PARAMETERS, unlike)


def test_what_others_have_is_not_sought_again() -> None:
    others = pairs(PARAMETERS, lambda case: unlike(case) and case["a"] in "123")
    found = pairs(PARAMETERS, unlike, others)
    assert of([*others, *found]) == of(every(PARAMETERS, unlike))
    assert all(case["a"] in "45" for case in found)
