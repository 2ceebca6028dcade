"""Directories of boards that need no scan, because they have not changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.tracking.board_directory import UnchangedDirectories


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A directory that has not changed for an hour."""
    os.utime(tmp_path, (1_000_000, 1_000_000))
    return str(tmp_path)


def settled(directory: str, now: int = 0) -> UnchangedDirectories:
    unchanged = UnchangedDirectories()
    assert not unchanged.is_unchanged(directory, now)
    unchanged.settle(directory, now)
    return unchanged


def test_a_directory_is_scanned_until_it_is_settled(old: str) -> None:
    unchanged = UnchangedDirectories()
    assert [unchanged.is_unchanged(old, 0), unchanged.is_unchanged(old, 0)] == [False, False]


def test_a_settled_directory_is_scanned_after_a_change(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.tracking.board_directory.time_ns", lambda: os.stat(old).st_ctime_ns + 60 * SECOND)
    unchanged = settled(old)
    assert unchanged.is_unchanged(old, SECOND)
    Path(old, "new").touch()
    assert not unchanged.is_unchanged(old, SECOND)


def test_a_directory_that_has_just_changed_is_not_settled(tmp_path: Path) -> None:
    assert not settled(str(tmp_path)).is_unchanged(str(tmp_path), 0)


def test_a_settled_directory_is_scanned_every_10_seconds(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.tracking.board_directory.time_ns", lambda: os.stat(old).st_ctime_ns + 60 * SECOND)
    unchanged = settled(old)
    assert [unchanged.is_unchanged(old, 9 * SECOND), unchanged.is_unchanged(old, 10 * SECOND)] == [True, False]


def test_a_directory_is_scanned_after_a_board_was_dropped(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.tracking.board_directory.time_ns", lambda: os.stat(old).st_ctime_ns + 60 * SECOND)
    unchanged = settled(old)
    unchanged.forget(old)
    assert not unchanged.is_unchanged(old, SECOND)


def test_a_removed_directory_counts_as_changed(old: str) -> None:
    unchanged = settled(old)
    os.rmdir(old)
    assert not unchanged.is_unchanged(old, 0)
