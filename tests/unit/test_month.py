"""A month of kept history as a chart shows it, where it is narrower than the cells that are kept of it."""

from __future__ import annotations

import pytest

from gpumon.storage.history.open import open_history
from gpumon.storage.history.query import Query, Series
from gpumon.storage.history.tiers import SHAPES
from tests.months import fill, training

GPU = "GPU-0000"
NAME = "gpu.utilization"
NOW = 1_790_000_100.0  # five minutes
STALL = NOW - 28 * 86400
"""On day 3: one second of the five minutes around it."""
COARSE = SHAPES[-1]


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of the last 31 days of one GPU, in cells of five minutes."""
    path = str(tmp_path_factory.mktemp("month") / "history.sqlite")
    fill(path, [GPU], NOW, training(NOW), [COARSE])
    return path


@pytest.fixture(autouse=True)
def then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it the end of that month."""
    monkeypatch.setattr("time.time", lambda: NOW + 60)


def asked(month: str, begin: float, end: float, points: int = 900) -> Series:
    history = open_history()
    history.set_path(month)
    found = history.query(Query(GPU, (NAME,), begin, end, points))[NAME]
    history.close()
    return found


@pytest.mark.parametrize("seconds", [86400, 3600, 299, 60, 10, 1, 0.1])
def test_a_window_inside_of_a_cell_shows_the_cell(month: str, seconds: float) -> None:
    found = asked(month, STALL - seconds / 2, STALL + seconds / 2)
    at = [place for place, time in enumerate(found.times) if abs(time - STALL) <= found.step]
    assert at
    assert any(found.low[place] == 0.0 and found.mean[place] > 0.9 for place in at)
    cut = STALL + seconds / 2
    assert all(mean == mean for time, mean in zip(found.times, found.mean, strict=True) if time - found.step / 2 < cut)


def test_a_night_without_a_daemon_is_a_gap_at_any_zoom(month: str) -> None:
    middle = NOW - 10.25 * 86400
    for seconds in (31 * 86400, 86400, 3600, 60, 1):
        found = asked(month, middle - seconds / 2, min(middle + seconds / 2, NOW))
        (place,) = [n for n, time in enumerate(found.times) if time - found.step / 2 <= middle < time + found.step / 2]
        assert found.mean[place] != found.mean[place]
