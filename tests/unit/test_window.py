"""`live.window`: any window as arrays, from the ring's frames and from kept history."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from sqlite3 import connect

import numpy as np
import pytest

from gpumon.cli import main
from gpumon.common.errors import MissingPackage, UsageError
from gpumon.common.numbers import UNKNOWN_MODEL
from gpumon.common.paths import Places
from gpumon.live import Live, follow
from gpumon.model.device import Device
from gpumon.model.metrics import METRICS
from gpumon.ring.writer import RingWriter
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.recent import known_seconds
from gpumon.storage.history.tiers import SHAPES
from tests.builders import device, sample, tick
from tests.months import fill

SECOND = 1_000_000_000
GPU, OTHER = device(0).uuid, device(1).uuid
HOUR, DAY = 3600, 86400


def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
    """A GPU at half load and 400 W, and another one that is only there on even days."""
    if subject == OTHER and at // DAY % 2:
        return nan, nan, nan
    known = {"gpu.utilization": (0.25, 0.5, 0.75), "gpu.energy": (400.0, 400.0, 400.0), "host.load": (1.0, 1.0, 1.0)}
    return known.get(name, (nan, nan, nan))


@pytest.fixture
def now() -> float:
    return time.time() // 300 * 300


@pytest.fixture
def live(tmp_path: Path, now: float) -> Iterator[Live]:
    """A ring of the last 100 s, behind history of 10 s for four hours and of 5 min for four days."""
    (tmp_path / "live").mkdir(mode=0o700)
    shapes = [SHAPES[1]._replace(keep=4 * HOUR), SHAPES[2]._replace(keep=4 * DAY)]
    fill(str(tmp_path / "state" / "history.sqlite"), [GPU, OTHER], now - 100, values, shapes=shapes)
    ring = RingWriter.create(str(tmp_path / "live" / "ring"), 1, SECOND)
    for number in range(1, 101):
        if 40 <= number < 50:
            continue
        one = tick(number, [sample(0, utilization=0.9, energy=300.0 * number, clock_sm=1e9)])
        ring.append(one._replace(time_ns=round((now - 100 + number) * SECOND)))
    found = follow(Places(explicit=str(tmp_path / "live"), state=str(tmp_path / "state")))
    yield found
    found.close()
    ring.close()


def test_a_window_of_the_ring_has_each_sample_and_a_gap_is_a_row_without_values(live: Live, now: float) -> None:
    window = live.window(90)
    assert window.step == 0
    assert len(window.frames) == 80
    assert len(window) == 81
    assert (window.time[0], window.time[-1]) == (now - 89, now)
    assert [one.uuid for one in window.devices] == [GPU]
    power = window["gpu.energy"][:, 0]
    assert power[0] == 300
    gap = np.isnan(window["gpu.utilization"][:, 0])
    assert gap.sum() == 1
    assert now - 61 < window.time[gap] < now - 50
    assert np.isnan(power).sum() == 2, "no rate over the gap"
    assert np.array_equal(window.low("gpu.clock_sm"), window["gpu.clock_sm"], equal_nan=True)
    assert window.seen("gpu.utilization").sum() == 80
    assert np.isnan(window["gpu.fan"]).all()


def test_a_longer_window_comes_from_the_tiers_and_the_ring(live: Live, now: float) -> None:
    window = live.window("3h")
    assert window.step == 10
    assert np.allclose(np.diff(window.time), 10)
    assert (window.time % 10 == 5).all(), "stretches are at fixed places"
    busy = window["gpu.utilization"][:, 0]
    old = window.time < now - 110
    assert np.allclose(busy[old], 0.5)
    assert np.allclose(window.low("gpu.utilization")[old, 0], 0.25)
    assert np.allclose(window.high("gpu.utilization")[old, 0], 0.75)
    assert np.allclose(busy[(window.time > now - 90) & (window.time < now - 65)], 0.9, atol=1e-6)
    seen = window.seen("gpu.utilization")[:, 0]
    assert np.allclose(seen[old], 1, atol=0.01)
    assert seen[(window.time > now - 60) & (window.time < now - 50)] == pytest.approx(0, abs=0.2)
    assert window["host.load"].shape == window.time.shape
    assert window["gpu.utilization"].shape == (len(window), len(window.devices))


def test_a_window_of_days_has_at_most_so_many_stretches_and_gaps_are_nan(live: Live, now: float) -> None:
    window = live.window("4d", points=300)
    assert 150 < len(window) <= 300
    assert window.step % 300 == 0
    place = [one.uuid for one in window.devices].index(OTHER)
    there = window["gpu.utilization"][:, place]
    even = (window.time - window.step / 2) // DAY % 2 == (window.time + window.step / 2) // DAY % 2
    odd = (window.time // DAY % 2).astype(bool)
    inner = even & (window.time < now - HOUR)
    assert np.isnan(there[inner & odd]).all()
    assert np.allclose(there[inner & ~odd], 0.5)
    assert (window.seen("gpu.utilization")[inner & odd, place] == 0).all()
    assert window.devices[place] == Device(OTHER, -1, UNKNOWN_MODEL)


def test_a_gpu_that_is_not_there_any_more_has_the_index_and_the_name_that_it_had(live: Live, tmp_path: Path) -> None:
    with closing(connect(tmp_path / "state" / "history.sqlite")) as connection, connection:
        connection.execute("INSERT INTO device VALUES (?, 4, 'NVIDIA B200')", (OTHER,))
    assert [one[:3] for one in live.window("4d").devices] == [device()[:3], (OTHER, 4, "NVIDIA B200")]
    assert [one.uuid for one in live.window("4d", devices=4).devices] == [OTHER]


def test_a_window_of_the_past_and_fewer_devices_and_metrics(live: Live, now: float) -> None:
    begin, end = datetime.fromtimestamp(now - 3 * HOUR, UTC), now - 2 * HOUR
    window = live.window(begin=begin, end=end, metrics=["gpu.energy"], devices=GPU)
    assert window.time[0] >= now - 3 * HOUR - 10
    assert window.time[-1] <= end + 10
    assert np.allclose(window["gpu.energy"][1:-1], 400)
    assert window.metrics == ("gpu.energy",)
    assert [one.uuid for one in live.window("1m", devices=0).devices] == [GPU]
    assert not len(live.window(begin="2001-01-01", end="2001-01-02"))
    assert live.window("2h", end=now - HOUR)["gpu.utilization"].shape[0] > 300


def test_without_a_daemon_history_is_there_and_a_window_ends_now(live: Live, now: float, tmp_path: Path) -> None:
    alone = follow(Places(explicit=str(tmp_path / "nobody"), state=str(tmp_path / "state")))
    window = alone.window("3h")
    assert np.nanmax(window["gpu.utilization"]) == pytest.approx(0.5)
    assert window.span.end == pytest.approx(time.time(), abs=60)
    assert window.frames == []
    assert alone.totals("2d").devices[GPU]["energy"].value == pytest.approx(400 * 2 * DAY, rel=0.02)
    alone.close()


def test_history_that_cannot_be_read_is_missing_and_the_reason_is_there(live: Live, tmp_path: Path) -> None:
    assert (live.window("3h").problem, live.totals("3h").problem) == ("", "")
    with closing(connect(tmp_path / "state" / "history.sqlite")) as newer:
        newer.execute("PRAGMA user_version = 99")
    assert "format 99" in live.window("3h").problem
    (tmp_path / "state" / "history.sqlite").write_bytes(b"not a database" * 1000)
    for suffix in ("-wal", "-shm"):
        (tmp_path / "state" / f"history.sqlite{suffix}").unlink(missing_ok=True)
    window, totals = live.window("3h"), live.totals("3h")
    assert "history.sqlite is damaged" in window.problem
    assert "history.sqlite is damaged" in totals.problem
    assert list(totals.devices) == [GPU]
    assert live.window(90).problem == "", "the ring has all of it"


def test_totals_of_a_daemon_whose_history_cannot_be_read_say_so_beside_the_table(
    live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state" / "history.sqlite").write_bytes(b"not a database" * 1000)
    words = ["--dir", str(tmp_path / "live"), "--state-dir", str(tmp_path / "state")]
    assert main(["history", "totals", "--since", "3h", *words]) == 0
    out, err = capsys.readouterr()
    assert "MISSING" in out
    (line,) = err.splitlines()
    assert "the output lacks the stored history" in line
    assert "history.sqlite is damaged" in line


def test_all_metrics_that_have_values_are_known(live: Live) -> None:
    found = live.window("3h").metrics
    assert {"gpu.utilization", "gpu.energy", "gpu.clock_sm", "host.load"} <= set(found)
    assert "gpu.fan" not in found
    assert list(found) == [metric.name for metric in METRICS if metric.name in found]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"metrics": ["gpu.speed"]}, r"gpu\.speed"),
        ({"points": 0}, "points must be at least 1"),
        ({"devices": 5}, "no such GPU: 5"),
        ({"devices": "GPU-x"}, rf"no such GPU: 'GPU-x'\. GPUs in the data: {GPU}"),
        ({"devices": [0, ""]}, "no such GPU: ''"),
        ({"end": "2001-01-01", "begin": "1h"}, "two of length, begin and end"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(live: Live, asked: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        live.window("1h", **asked)  # type: ignore[arg-type]


def test_one_metric_is_asked_for_by_its_name_alone(live: Live) -> None:
    assert live.window("5m", metrics="gpu.energy").metrics == ("gpu.energy",)


def test_an_arrow_table_has_a_row_for_each_time_device_and_metric(live: Live, now: float) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = live.to_arrow("3h", end=now, metrics=["gpu.utilization", "host.load"])
    window = live.window("3h", end=now, metrics=["gpu.utilization", "host.load"])
    assert table.num_rows == len(window) * (len(window.devices) + 1)
    rows = table.to_pylist()
    assert rows[5]["time"].timestamp() == window.time[5]
    assert (rows[5]["device"], rows[5]["metric"], rows[5]["unit"], rows[5]["step_seconds"]) == (
        window.devices[0].uuid, "gpu.utilization", "ratio", 10.0,
    )  # fmt: skip
    assert (rows[5]["low"], rows[5]["mean"], rows[5]["high"]) == pytest.approx((0.25, 0.5, 0.75))
    assert rows[-5]["device"] == ""
    away = [row["mean"] for row in rows if row["device"] == GPU and now - 60 < row["time"].timestamp() < now - 50]
    assert None in away or not away
    assert live.to_arrow(begin="2001-01-01", end="2001-01-02").num_rows == 0


def test_a_pandas_frame_has_times_as_rows_and_metrics_by_device_as_columns(live: Live, now: float) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = live.to_pandas("3h", end=now, metrics=["gpu.utilization", "host.load"])
    window = live.window("3h", end=now)
    assert frame.index.equals(pandas.to_datetime(window.time, unit="s", utc=True))
    assert frame.columns.names == ["metric", "device"]
    assert np.array_equal(frame["gpu.utilization"][GPU], window["gpu.utilization"][:, 0], equal_nan=True)
    assert np.array_equal(frame["host.load", ""], window["host.load"], equal_nan=True)
    low = live.to_pandas("3h", end=now, value="low", metrics=["gpu.utilization"])
    assert low["gpu.utilization", GPU].iloc[5] == pytest.approx(0.25)
    with pytest.raises(UsageError, match="no such value"):
        window.to_pandas("median")


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_a_package_that_is_missing_is_named_in_one_line(
    live: Live, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    ask = live.to_pandas if package == "pandas" else live.to_arrow
    with pytest.raises(MissingPackage, match=f"requires {package}: install it with '.* -m pip install {package}'"):
        ask("1m")


def test_seconds_of_buckets_are_those_in_which_samples_hold() -> None:
    times = [0.0, 1.0, 2.0, 6.0, 10.0, 11.0, 12.0]
    sampled = [1.0, 1.0, 1.0, nan, 1.0, 1.0, 1.0]
    assert known_seconds(times, sampled, Grid(0, 5.0, 3), {6.0}) == [3.0, 0.0, 3.0]
    assert known_seconds(times[:3], sampled[:3], Grid(0, 0.5, 6)) == [0.5] * 6
    assert known_seconds([], [], Grid(0, 5.0, 3)) == [0.0] * 3
