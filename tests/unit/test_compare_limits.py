"""`gpumon runs compare --fail-if`: which differences break a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.common.errors import EXIT_LIMIT, EXIT_OK, EXIT_USAGE, UsageError
from gpumon.reports import compare
from gpumon.reports.compare_limits import broken_limits, parse_limit
from gpumon.storage.ledger.reader import Ledger
from tests.runs import Book, training


@pytest.fixture
def book(tmp_path: Path) -> Book:
    book = Book(tmp_path / "state")
    training(book, "base-1", epochs=8, seconds=10.0, utilization=0.9)
    training(book, "same-1", epochs=8, seconds=10.0, utilization=0.9, seed=2)
    training(book, "slow-1", epochs=8, seconds=12.0, utilization=0.7)
    training(book, "short-1", epochs=2, seconds=20.0, utilization=0.2)
    return book


def broken(book: Book, other: str, *limits: str) -> list[str]:
    with Ledger(str(book.path)) as ledger:
        comparison = compare.compare([ledger.record(run) for run in ("base-1", other)])
    return list(broken_limits(comparison, [parse_limit(limit) for limit in limits]))


@pytest.mark.parametrize(
    ("other", "limit", "is_broken"),
    [
        ("slow-1", "seconds>+5%", True), ("slow-1", "seconds>+50%", False), ("slow-1", "seconds<-5%", False),
        ("slow-1", "steps_per_second<-5%", True), ("slow-1", "utilization_mean<-5%", True),
        ("slow-1", "utilization_mean<-25%", False), ("same-1", "seconds>+0%", False),
        ("same-1", "utilization_mean<-0%", False), ("short-1", "seconds>+5%", True),
        ("slow-1", "samples_per_second<-1%", True),
    ],
)  # fmt: skip
def test_a_limit_is_broken_by_a_clear_difference_or_if_it_cannot_be_checked(
    book: Book, other: str, limit: str, is_broken: bool
) -> None:
    assert bool(broken(book, other, limit)) == is_broken


def test_a_baseline_of_zero_cannot_be_checked(book: Book) -> None:
    book.db.execute("UPDATE usage SET memory_used_peak = 0 WHERE rank LIKE '%base-1'")
    assert broken(book, "slow-1", "memory_used_peak>+5%")


@pytest.mark.parametrize(
    "text",
    [
        "", "seconds", "seconds>5", "seconds>>5%", "nonsense>5%", "seconds>-5%", "utilization_mean<5%", "name>5%",
        "seconds<-200%", "utilization_mean<-100%",
    ],
)  # fmt: skip
def test_other_texts_are_no_limits(text: str) -> None:
    with pytest.raises(UsageError):
        parse_limit(text)


def test_the_exit_code_is_that_of_a_check(book: Book, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--dir", str(tmp_path / "none"), "--state-dir", str(tmp_path / "state")]
    words = ["runs", "compare", "base-1"]
    assert main([*words, "same-1", "--fail-if", "seconds>+5%", *places]) == EXIT_OK
    capsys.readouterr()
    assert main([*words, "slow-1", "--fail-if", "seconds>+5%", "--json", *places]) == EXIT_LIMIT
    out, err = capsys.readouterr()
    assert out.startswith("{"), "the comparison is printed all the same"
    assert len(err.splitlines()) == 1
    assert main([*words, "same-1", "--fail-if", "seconds", *places]) == EXIT_USAGE
