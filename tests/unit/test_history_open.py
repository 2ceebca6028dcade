"""A month of kept history behind the last frames, as views open it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import nan
from pathlib import Path

import pytest

from gpumon.storage.history.buckets import LIVE_WINDOW, SHORT_WINDOWS, WINDOWS, available_windows
from gpumon.storage.history.open import open_history
from gpumon.storage.history.query import Query
from gpumon.storage.history.tiered_history import TieredHistory
from gpumon.storage.history.tiers import SHAPES
from tests.builders import TIME, device, frame_of, sample, tick
from tests.months import fill

GPU, NAME = device().uuid, "gpu.utilization"
NOW = TIME / 1e9 // 19200 * 19200
DAY = 86400
STALL = NOW - 28 * DAY


def one_stall(subject: str, name: str, at: float) -> tuple[float, float, float]:
    """Always 0.9, but for a second on the third day."""
    if name != NAME or not subject:
        return nan, nan, nan
    return (0.0 if at <= STALL < at + 300 else 0.9), 0.9, 0.9


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "history.sqlite"
    path.parent.chmod(0o700)
    fill(str(path), [GPU], NOW, one_stall, shapes=SHAPES[2:])
    return path


@pytest.fixture
def history(month: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TieredHistory]:
    monkeypatch.setattr("time.time", lambda: NOW + 60)
    found = open_history()
    found.set_path(str(month))
    for second in range(60):
        one = tick(second + 1, samples=(sample(0, utilization=0.9),))
        found.add(frame_of(one._replace(time_ns=round((NOW + second) * 1e9))))
    yield found
    found.set_path("")


@pytest.mark.parametrize("points", [200, 1000, 2000])
def test_a_stall_of_a_second_on_the_third_day_is_seen_in_the_month(history: TieredHistory, points: int) -> None:
    found = history.query(Query(GPU, (NAME,), NOW - 31 * DAY, NOW + 60, points))[NAME]
    assert len(found.times) <= points
    (stalled,) = [at for at, low in zip(found.times, found.low, strict=True) if low == 0.0]
    assert abs(stalled - STALL) <= found.step
    assert min(mean for mean in found.mean if mean == mean) > 0.8


def test_zooming_in_on_it_brings_finer_cells_and_out_again_the_same(history: TieredHistory) -> None:
    month = history.query(Query(GPU, (NAME,), NOW - 31 * DAY, NOW))[NAME]
    hour = history.query(Query(GPU, (NAME,), STALL - 1800, STALL + 1800))[NAME]
    assert hour.step == 300 < month.step
    assert [low for low in hour.low if low == 0.0] == [0.0]
    again = history.query(Query(GPU, (NAME,), NOW - 31 * DAY, NOW))[NAME]
    assert repr(again) == repr(month)


def test_a_line_that_moves_on_keeps_its_buckets(history: TieredHistory) -> None:
    windows = [
        history.query(Query(GPU, (NAME,), NOW - 20 * DAY + moved, NOW - DAY + moved))[NAME] for moved in (0, 300, 4000)
    ]
    for before, after in pairwise(windows):
        shared = set(before.times) & set(after.times)
        assert len(shared) > len(before.times) - 10


def test_another_file_is_another_history(history: TieredHistory, tmp_path: Path) -> None:
    assert history.begin < NOW - 30 * DAY
    history.set_path(str(tmp_path / "none"))
    assert history.begin == NOW
    assert history.query(Query(GPU, (NAME,), NOW - DAY, NOW + 60))[NAME].times[0] == NOW


def test_windows_are_offered_as_far_as_there_is_history() -> None:
    assert available_windows(nan)[-1] == available_windows(60.0)[-1] == LIVE_WINDOW
    assert available_windows(2 * 3600)[-1].seconds == 3 * 3600
    assert available_windows(31 * DAY) == [*SHORT_WINDOWS, *WINDOWS]
    assert available_windows(6.5 * DAY)[-1].seconds == 7 * DAY
    assert available_windows(60.0, whole=700.0)[-1].seconds == 900, "all of a recording, and no more than that"
    assert available_windows(700.0, whole=700.0)[-1].seconds == 900
    assert available_windows(600.0, whole=6.5 * DAY)[-1] == LIVE_WINDOW, "as much of a long one as there is"
    assert available_windows(1.0, whole=3.0)[-1] == WINDOWS[0]
