"""All-pairs: each pair of values that can occur does, in far fewer combinations than all."""

from __future__ import annotations

from itertools import combinations

from tests.web.pairs import Case, every, pairs

PARAMETERS = {"a": "12345", "b": "123", "c": "1234", "d": "12"}


def unlike(case: Case) -> bool:
    return case["a"] != case["b"]


def test_each_possible_pair_occurs_and_no_impossible_combination() -> None:
    def of(cases: list[Case]) -> set[frozenset[tuple[str, str]]]:
        return {frozenset(pair) for case in cases for pair in combinations(case.items(), 2)}

    found = pairs(PARAMETERS, unlike)
    assert of(found) == of(every(PARAMETERS, unlike))
    assert all(map(unlike, found))
    assert len(found) < len(every(PARAMETERS, unlike)) / 3


def test_they_are_the_same_each_time() -> None:
    assert pairs(PARAMETERS, unlike) == pairs(PARAMETERS, unlike)
