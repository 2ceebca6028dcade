"""Logged numbers in JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.numbers import logged, parse_logged


@pytest.mark.parametrize(
    ("value", "word"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (2.0, 2), (0.5, 0.5)]
)
def test_a_number_that_json_lacks_is_a_word(value: float, word: object) -> None:
    said = logged(value)
    assert said == word
    assert type(said) is type(word)


@given(st.floats())
def test_every_logged_number_comes_back_from_strict_json(value: float) -> None:
    found = parse_logged(json.loads(json.dumps(logged(value), allow_nan=False)))
    assert found is not None
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize("cell", [None, True, "nan", "1", "", [], {}, 10**400])
def test_what_is_no_logged_number_is_none(cell: object) -> None:
    assert parse_logged(cell) is None
