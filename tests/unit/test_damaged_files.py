"""Damaged files of each kind: no traceback, no wait, and nothing that the file never held."""

from __future__ import annotations

import pytest

from tests.damaged import KINDS, attempt

FEW, MANY = 16, 2000


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_ends_no_reader(kind: str) -> None:
    assert attempt(kind, FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_damaged_files_end_no_reader(kind: str) -> None:
    assert attempt(kind, MANY, FEW + 1) == []
