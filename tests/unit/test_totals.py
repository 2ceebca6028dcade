"""Totals of a window: sums over cells of every length, and `gpumon history totals`."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpumon
from gpumon.cli import main
from gpumon.common.clock import point_in_time
from gpumon.common.errors import UsageError
from gpumon.common.numbers import UNKNOWN_MODEL
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.device import Device
from gpumon.ring.writer import RingWriter
from gpumon.storage.history.block import MetricCells
from gpumon.storage.history.buckets import resolve_window
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.metric_series import Line
from gpumon.storage.history.tiers import SHAPES
from gpumon.storage.history.window_totals import THROTTLED, TOTALS, gpu_totals, window_sum, window_totals
from tests.builders import TIME, device, frame_of, sample, tick
from tests.months import fill

SECOND = 1_000_000_000
GPU = device().uuid
NOW = 1_800_000_000.0


def line(step: int, first: int, values: list[float], seconds: float | None = None) -> Line:
    """Cells of one length; NaN is a gap."""
    found = Line(step, first, first + len(values))
    weights = [0.0 if value != value else seconds or float(step) for value in values]
    found.fill(first, MetricCells(values, values, values, values, weights))
    return found


ONES = line(1, 600, [float(n % 10) for n in range(300)])
"""From 600 to 900 s."""
TENS = line(10, 30, [4.5] * 60)
"""From 300 to 900 s."""
MINUTES = line(300, 0, [4.5] * 3)
"""From 0 to 900 s."""


def test_whole_cells_add_up_whatever_their_length() -> None:
    found = window_sum([ONES, TENS, MINUTES], 0, 900)
    assert (found.total, found.known, found.shared) == (pytest.approx(4.5 * 900), 900, 0)


def test_a_border_that_cuts_a_coarse_cell_takes_the_finer_ones_and_is_exact() -> None:
    found = window_sum([ONES, TENS, MINUTES], 607, 703)
    assert (found.total, found.known, found.shared) == (7 + 8 + 9 + 45 * 9 + 0 + 1 + 2, 96, 0)
    assert found.high == 9


def test_a_border_that_cuts_a_cell_without_finer_ones_takes_a_share_and_says_so() -> None:
    found = window_sum([ONES, TENS, MINUTES], 100, 605)
    assert found.known == pytest.approx(505)
    assert found.shared == pytest.approx(200)
    assert found.total == pytest.approx(4.5 * 200 + 4.5 * 300 + 0 + 1 + 2 + 3 + 4)


def test_errors_in_the_life_of_a_card_are_those_between_the_lowest_and_the_highest_count() -> None:
    counted = line(10, 30, [7.0] * 20 + [nan] * 20 + [9.0] * 19 + [12.0])
    of = {kind: gpu_totals({"gpu.ecc_corrected_lifetime": [counted]}, 300, end)["ecc_corrected"] for kind, end in
          {"whole": 900, "before": 500, "none": 0}.items()}  # fmt: skip
    assert (of["whole"].value, of["whole"].missing_seconds) == (5, 200), "two of them while nobody looked"
    assert (of["before"].value, of["before"].missing_seconds) == (0, 0)
    assert of["none"].value != of["none"].value
    assert window_sum([counted], 895, 900).low == 12


def test_cells_that_only_the_coarse_line_has_fill_the_holes_of_the_finer_one() -> None:
    holey = line(1, 600, [nan if 620 <= n < 640 else 4.5 for n in range(600, 900)])
    assert window_sum([holey], 600, 900).known == 280
    found = window_sum([holey, TENS, MINUTES], 600, 900)
    assert (found.known, found.total) == (300, pytest.approx(4.5 * 300))


def test_a_coarse_cell_counts_where_the_finer_ones_know_only_a_part_of_it() -> None:
    holey = line(1, 600, [nan if 625 <= n < 632 else 4.5 for n in range(600, 900)])
    for window in ((600, 900), (600, 627)):
        found = window_sum([holey, TENS, MINUTES], *window)
        assert (found.known, found.total) == (window[1] - window[0], pytest.approx(4.5 * found.known))


def test_what_nobody_saw_is_not_known() -> None:
    half = line(300, 0, [2.0, nan, 2.0])
    found = window_sum([half], 0, 900)
    assert (found.known, found.total) == (600, 1200)
    assert window_sum([half], 300, 600).known == 0
    assert window_sum([], 0, 900).known == 0


@given(st.lists(st.floats(0, 900), min_size=3, max_size=3))
def test_the_parts_of_a_window_add_up_to_it(borders: list[float]) -> None:
    begin, middle, end = sorted(borders)
    lines = [ONES, TENS, MINUTES]
    first, second, whole = (window_sum(lines, *part) for part in ((begin, middle), (middle, end), (begin, end)))
    assert first.total + second.total == pytest.approx(whole.total, abs=0.01)
    assert first.known + second.known == pytest.approx(whole.known, abs=0.01)
    assert whole.known == pytest.approx(end - begin, abs=0.01)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("7d", None, None), (NOW - 7 * 86400, NOW)),
        ((60, None, NOW - 100), (NOW - 160, NOW - 100)),
        ((None, "2h", "1h"), (NOW - 7200, NOW - 3600)),
        (("10m", NOW - 3600, None), (NOW - 3600, NOW - 3000)),
        ((None, datetime.fromtimestamp(NOW - 60, UTC), None), (NOW - 60, NOW)),
        ((None, datetime.fromtimestamp(NOW - 60).isoformat(), None), (NOW - 60, NOW)),
        ((None, "2027-01-15T07:00:00+00:00", None), (NOW - 3600, NOW)),
    ],
)
def test_a_window_is_asked_for_by_two_of_length_begin_and_end(
    asked: tuple[object, ...], found: tuple[float, float]
) -> None:
    assert resolve_window(*asked, NOW) == pytest.approx(found)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((None, None, None), "pass length"),
        (("1h", "2h", "1h"), "pass only two of"),
        ((0, None, None), "is empty"),
        ((None, "1h", "2h"), "is empty"),
        (("soon", None, None), "not a duration"),
        ((None, "yesterday", None), "not a time"),
        ((None, "2026-13-01", None), "not a time"),
        ((None, nan, None), "not a time"),
        ((inf, None, None), "a hundred years"),
        ((nan, None, None), "a hundred years"),
        (("infd", None, None), "a hundred years"),
        ((1e300, None, None), "a hundred years"),
        ((None, "1e9d", None), "a hundred years"),
        ((-60, None, None), "is empty"),
    ],
)
def test_a_window_that_makes_no_sense_is_one_line(asked: tuple[object, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve_window(*asked, NOW)  # type: ignore[arg-type]


def test_a_time_without_a_zone_is_local() -> None:
    assert point_in_time("2026-01-31T14:00", NOW) == datetime(2026, 1, 31, 14).timestamp()
    assert point_in_time("2026-01-31", NOW) == datetime(2026, 1, 31).timestamp()


def test_totals_of_frames_alone_and_of_a_gpu_that_was_away(tmp_path: Path) -> None:
    ring = RingWriter.create(str(tmp_path / "ring"), 2, SECOND)
    for number in range(1, 302):
        samples = [
            sample(0, utilization=0.5, energy=400.0 * number, memory_used=2.0**30 + number, pcie_sent=1e6 * number)
        ]
        if number <= 101 or number > 201:
            samples.append(sample(1, utilization=1.0, energy=100.0 * number, throttled_sw_power=0.25 * number))
        ring.append(tick(number, samples))
    live = gpumon.connect(str(tmp_path))
    found = live.totals(300)
    assert (found.begin, found.end) == (TIME / SECOND + 1, TIME / SECOND + 301)
    here, away = found.devices.values()
    assert here["energy"].value == pytest.approx(400 * 300)
    assert here["energy"].is_complete
    assert here["memory_peak"].value == pytest.approx(2.0**30 + 300)
    assert here["pcie_sent"].value == pytest.approx(3e8)
    assert here["pcie_received"].value != here["pcie_received"].value
    assert (here["pcie_received"].missing_share, here["pcie_received"].is_complete) == (1.0, False)
    assert away["energy"].value == pytest.approx(100 * 199)
    assert away["energy"].missing_seconds == pytest.approx(101, abs=1)
    assert not away["energy"].is_complete
    assert away["throttled_sw_power"].value == pytest.approx(0.25)
    assert away["utilization"].value == 1.0
    assert list(live.totals(300, devices=1).devices) == [device(1).uuid]
    assert list(live.totals(300, devices=[device(1)]).devices) == [device(1).uuid]
    with pytest.raises(UsageError, match=r"no such GPU: 7\. Indexes in the data: 0, 1"):
        live.totals("1m", devices=7)
    live.close()


def test_nothing_is_missing_of_a_window_that_begins_and_ends_within_seconds_of_many_samples(tmp_path: Path) -> None:
    tenth = SECOND // 10
    ring = RingWriter.create(str(tmp_path / "ring"), 1, tenth)
    for number in range(100, 401):
        ring.append(
            tick(
                number, [sample(0, utilization=0.5, energy=40.0 * number)], monotonic_ns=number * tenth,
                time_ns=TIME + number * tenth, interval_ns=tenth,
            )
        )  # fmt: skip
    live = gpumon.connect(str(tmp_path))
    (found,) = live.totals(begin=TIME / SECOND + 15.75, end=TIME / SECOND + 25.25).devices.values()
    for name in ("energy", "utilization"):
        assert found[name].missing_seconds == pytest.approx(0, abs=1e-3)
    assert found["energy"].value == pytest.approx(400 * 9.5)
    live.close()


@pytest.mark.parametrize("since", range(20, 32))
def test_nothing_is_missing_of_a_window_whose_borders_lie_between_late_readings(tmp_path: Path, since: int) -> None:
    ticks = [tick(s, [sample(0, energy=100.0 * s if s % 6 == 0 else nan)]) for s in range(61)]
    frames = [frame_of(one, number) for number, one in enumerate(ticks, 1)]
    totals = window_totals(HistoryFile(str(tmp_path / "none")), frames, frames[since].time, frames[since].time + 10.5)
    (found,) = totals.devices.values()
    assert found["energy"].missing_seconds == 0
    assert found["energy"].value == pytest.approx(1050.0)


def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
    if subject.endswith("1") and at % 86400 < 43200:
        return nan, nan, nan
    known = {"gpu.utilization": 0.5, "gpu.energy": 400.0, "gpu.memory_used": 2.0**30, "gpu.throttled_sw_power": 0.25}
    return (known.get(name, nan),) * 3


@pytest.fixture
def filled(history_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of two GPUs, one of which is away half of each day; its end, as --until takes it."""
    monkeypatch.setenv("COLUMNS", "200")
    end = time.time() // 300 * 300
    fill(
        str(history_path),
        [GPU, device(1).uuid],
        end,
        values,
        shapes=[SHAPES[2]._replace(keep=5 * 86400)],
    )
    return datetime.fromtimestamp(end, UTC).isoformat()


def test_the_table_has_a_line_for_each_gpu_and_says_what_is_missing(
    filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "totals", "--since", "4d", "--until", filled]) == 0
    head, columns, here, away, *notes = capsys.readouterr().out.splitlines()
    assert "4 d 0 h" in head or "3 d 23 h" in head
    assert columns.split() == ["UUID", "ENERGY", "UTIL", "T-POW", "MEM", "PEAK", "MISSING"]
    assert here.split()[0] == GPU
    assert "50 %" in here
    assert "25.0 %" in here
    assert "1.0 GiB" in here
    assert "*" not in here
    assert "*" in away
    assert "(50.0 %)" in away or "(49.9 %)" in away or "(50.1 %)" in away
    assert any(note.startswith("* incomplete") for note in notes)


def test_gpus_that_are_not_there_any_more_have_the_index_and_the_name_that_they_had(
    filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "state" / "history.sqlite")) as connection, connection:
        connection.execute("INSERT INTO device VALUES (?, 3, 'NVIDIA H100')", (GPU,))
    assert main(["history", "totals", "--since", "4d", "--until", filled]) == 0
    _, columns, here, *_ = capsys.readouterr().out.splitlines()
    assert columns.split()[:2] == ["GPU", "UUID"]
    assert here.split()[:2] == ["3", GPU]
    assert main(["history", "totals", "--since", "2d", "--until", filled, "--gpu", "3", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["devices"]
    assert (only["uuid"], only["index"]) == (GPU, 3)
    assert main(["history", "totals", "--gpu", "0"]) == 2
    assert "no such GPU: 0. Indexes in the data: 3" in capsys.readouterr().err
    with closing(follow(Places(explicit=str(tmp_path / "live"), state=str(tmp_path / "state")))) as live:
        assert list(live.totals("2d").gpus) == [device(0)._replace(index=3), Device(device(1).uuid, -1, UNKNOWN_MODEL)]


def test_a_narrow_table_explains_no_column_that_it_lacks(
    filled: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert main(["history", "totals", "--since", "4d", "--until", filled]) == 0
    out = capsys.readouterr().out
    assert " ".join(out.split()).endswith("* incomplete: total of only the sampled time")
    assert "MISSING" not in out


def test_programs_get_json_and_csv(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "totals", "--since", "2d", "--until", filled, "--gpu", GPU, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (only,) = found["devices"]
    assert (only["uuid"], only["index"]) == (GPU, None)
    assert set(only["totals"]) == {kind.name for kind in TOTALS}
    energy = only["totals"]["energy"]
    assert energy["value"] == pytest.approx(400 * found["seconds"], rel=0.003)
    assert (energy["unit"], energy["complete"]) == ("joules", True)
    assert only["totals"]["pcie_sent"]["value"] is None
    assert found["problem"] is None
    assert only["totals"]["pcie_sent"]["missing_share"] == 1.0
    assert main(["history", "totals", "--since", "2d", "--until", filled, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2 * len(TOTALS)
    assert {row["device"] for row in rows} == {GPU, device(1).uuid}
    away = next(row for row in rows if row["device"] != GPU and row["total"] == "energy")
    assert float(away["missing_share"]) == pytest.approx(0.5, abs=0.01)
    assert away["complete"] == "false"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--since", "soon"], 2, "not a time"),
        (["--since", "1h", "--until", "2h"], 2, "is empty"),
        (["--gpu", "0"], 2, "no such GPU: 0"),
        (["--gpu", "77"], 2, "no such GPU: 77"),
        (["--gpu=-1"], 2, "no such GPU: '-1'"),
        (["--gpu", ""], 2, "no such GPU: ''"),
        (["--gpu", "GPU-x"], 2, f"no such GPU: 'GPU-x'. GPUs in the data: {GPU}, {device(1).uuid}"),
        (["--since", "2001-01-01", "--until", "2001-01-02"], 1, "no GPU was sampled"),
    ],
)
def test_what_cannot_be_totaled_is_one_line(
    filled: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    assert main(["history", "totals", *words]) == code
    (told,) = capsys.readouterr().err.splitlines()
    assert said in told


def test_every_cause_of_throttling_is_totaled() -> None:
    assert len(THROTTLED) == 5
    assert {kind.metric for kind in TOTALS} >= set(THROTTLED)
