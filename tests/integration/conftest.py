"""What integration tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml import Stub
from tests.programs import daemon, environment
from tests.trainings.terminal import Terminal


@pytest.fixture
def watched(stub: Stub, live_dir: Path) -> Iterator[Path]:
    """The live directory of a daemon on the stub driver."""
    with daemon("--interval", "0.1", env=environment(live_dir, stub.env())):
        yield live_dir


@pytest.fixture
def terminal(tmux: str, watched: Path, tmp_path: Path) -> Iterator[Terminal]:
    """The terminal view of that daemon."""
    terminal = Terminal(tmux, watched, tmp_path)
    yield terminal
    terminal.close()
