"""Temporary directories of views go when the view ends."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from gpumon.common.paths import LEDGER
from gpumon.common.scratch import scratch_directory


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_directory_goes_with_its_ledger_and_stays_with_a_file_of_somebody_else(parent: Path) -> None:
    with scratch_directory("tui") as path:
        Path(path, LEDGER).touch()
        assert list(parent.iterdir()) == [Path(path)]
    assert list(parent.iterdir()) == []
    with scratch_directory("tui") as path:
        Path(path, "mine").touch()
    assert [file.name for file in Path(path).iterdir()] == ["mine"]


def test_a_file_that_a_thread_writes_during_the_removal_goes_as_well(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, written = os.rmdir, list[Path]()

    def remove_late(path: str) -> None:
        if not written:
            written.append(Path(path, f"{LEDGER}-journal"))
            written[0].touch()
        remove(path)

    monkeypatch.setattr(os, "rmdir", remove_late)
    with scratch_directory("tui"):
        pass
    assert written
    assert list(parent.iterdir()) == []
