"""What tests of `gpumon history` share: directories of their own, and what the command prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.cli import main

Printed = Callable[..., str]


@pytest.fixture
def history_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands of this process look for kept history; there is none yet."""
    monkeypatch.setenv("GPUMON_DIR", str(tmp_path / "live"))
    monkeypatch.setenv("GPUMON_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "state" / "history.sqlite"


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Run `gpumon history` with some words, which must succeed; gives what it printed."""

    def run(*words: str) -> str:
        assert main(["history", *words]) == 0
        return capsys.readouterr().out

    return run
