"""Directories of boards that need no look."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.tracking.board_directory import UnchangedDirectories


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A directory that nobody has touched for an hour."""
    os.utime(tmp_path, (1_000_000, 1_000_000))
    return str(tmp_path)


def settled(directory: str, now: int = 0) -> UnchangedDirectories:
    unchanged = UnchangedDirectories()
    assert not unchanged.is_unchanged(directory, now)
    unchanged.settle(directory, now)
    return unchanged


def test_a_directory_is_looked_at_until_it_was_settled(old: str) -> None:
    unchanged = UnchangedDirectories()
    assert [unchanged.is_unchanged(old, 0), unchanged.is_unchanged(old, 0)] == [False, False]


def test_a_settled_directory_needs_no_look_until_something_comes(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.tracking.board_directory.time_ns", lambda: os.stat(old).st_ctime_ns + 60 * SECOND)
    unchanged = settled(old)
    assert unchanged.is_unchanged(old, SECOND)
    Path(old, "new").touch()
    assert not unchanged.is_unchanged(old, SECOND)


def test_a_directory_that_changed_just_now_may_change_again_at_the_same_time(tmp_path: Path) -> None:
    assert not settled(str(tmp_path)).is_unchanged(str(tmp_path), 0)


def test_a_settled_directory_is_looked_at_every_10_seconds_all_the_same(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.tracking.board_directory.time_ns", lambda: os.stat(old).st_ctime_ns + 60 * SECOND)
    unchanged = settled(old)
    assert [unchanged.is_unchanged(old, 9 * SECOND), unchanged.is_unchanged(old, 10 * SECOND)] == [True, False]


def test_a_directory_is_looked_at_again_when_one_of_its_boards_was_let_go(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.tracking.board_directory.time_ns", lambda: os.stat(old).st_ctime_ns + 60 * SECOND)
    unchanged = settled(old)
    unchanged.forget(old)
    assert not unchanged.is_unchanged(old, SECOND)


def test_a_directory_that_is_gone_is_not_unchanged(old: str) -> None:
    unchanged = settled(old)
    os.rmdir(old)
    assert not unchanged.is_unchanged(old, 0)
