"""`gpumon history accounts`: the users' time as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.common.clock import SECOND
from gpumon.model.frame import Sample, Tick
from gpumon.model.metrics import Availability
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.period_totals import GROUPINGS, PERIODS, summary
from gpumon.storage.usage.query import read_accounts
from tests.activity import keep
from tests.builders import device, process, sample, tick
from tests.unit.conftest import Printed

HOUR = 3600
GIB = 2.0**30


@pytest.fixture
def path(history_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return history_path


def gpu(index: int, utilization: float, used: float, **values: float) -> Sample:
    return sample(index, utilization=utilization, memory_used=used * GIB, memory_total=80 * GIB, power=360.0, **values)


@pytest.fixture
def filled(path: Path) -> float:
    """Two hours that end with the last whole one: alice and bob share GPU 0, GPU 1 is free and then lost."""
    end = time.time() // HOUR * HOUR
    both = [process(1, sm_utilization=0.6), process(2, user="bob", sm_utilization=0.2)]

    def ticks() -> Iterator[Tick]:
        for second in range(0, 7201, 20):
            samples = [gpu(0, 0.8, 20), gpu(1, 0.0, 0) if second < 3600 else sample(1, Availability.LOST)]
            yield tick(
                1, samples, both, time_ns=round((end - 7200 + second) * SECOND),
                monotonic_ns=(50 + second) * SECOND, interval_ns=20 * SECOND,
            )  # fmt: skip

    keep(path, ticks())
    return end


def test_users_stand_above_the_time_that_nobody_held_or_saw(filled: float, printed: Printed) -> None:
    window, head, *rows = [line.split("  ") for line in printed("accounts", "--since", "3h").splitlines()]
    assert window[0].startswith("from 2")
    assert " ".join("  ".join(head).split()) == "USER GPU-HOURS BUSY ALLOCATED, IDLE ENERGY"
    cells = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows}
    assert cells["alice"] == ["2.0 h", "1.5 h", "0 s", "540.0 Wh"]
    assert cells["bob"] == ["2.0 h", "30 min", "0 s", "180.0 Wh"]
    assert cells["(free)"] == ["1.0 h", "360.0 Wh"]
    assert cells["(not seen)"][0].startswith(("3.", "4.", "5.")), (
        "of both an hour before, and since; one was lost for another"
    )
    assert cells["total seen"] == ["3.0 h", "2.0 h", "0 s", "1.08 kWh"]


def test_a_window_is_rounded_out_to_whole_hours_and_says_so(filled: float, printed: Printed) -> None:
    since, until = (str(datetime.fromtimestamp(filled - back, UTC).isoformat()) for back in (7200 - 600, 7200 - 1200))
    head, *_ = printed("accounts", "--since", since, "--until", until).splitlines()
    begin, end = (time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(filled - back)) for back in (7200, 3600))
    assert head == f"from {begin} to {end}, by whole hours"
    assert json.loads(printed("accounts", "--since", since, "--until", until, "--json"))["end"] == filled - 3600


def test_nothing_is_said_of_the_time_to_come(filled: float, printed: Printed) -> None:
    later = datetime.fromtimestamp(filled + 365 * 86400, UTC).isoformat()
    found = json.loads(printed("accounts", "--since", "3h", "--until", later, "--json"))
    assert found["end"] == pytest.approx(time.time(), abs=60)
    assert found["groups"][0]["unseen"] <= 5 * HOUR


def test_the_overview_counts_gpus_of_which_there_are_accounts_alone(
    filled: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["accounts", "events"]
    assert head.endswith("  2 GPUs")


def test_each_gpu_has_its_own_users(filled: float, printed: Printed) -> None:
    rows = printed("accounts", "--by", "device").splitlines()
    assert [row for row in rows if row.startswith("GPU 0  NVIDIA H100  alice")]
    assert [row for row in rows if row.startswith("GPU 1  NVIDIA H100  (free)")]
    assert len([row for row in rows if "total seen" in row]) == 2


def test_each_hour_has_its_own_users(filled: float, printed: Printed) -> None:
    rows = printed("accounts", "--by", "hour", "--since", "3h").splitlines()
    begins = [row[:16] for row in rows if row.startswith("20")][:3]  # nobody watches since, nor did before
    assert begins == [time.strftime("%Y-%m-%d %H:%M", time.gmtime(filled - back)) for back in (10800, 7200, 3600)]


def test_time_that_nobody_watched_is_not_seen_however_it_is_grouped(path: Path) -> None:
    begin = 1_774_000_000 // 86400 * 86400
    watched = (0, HOUR, 5 * HOUR, 50 * HOUR)
    keep(
        path,
        (
            tick(
                1, [gpu(0, 0.8, 20)], time_ns=round((begin + hour + second) * SECOND),
                monotonic_ns=(50 + hour + second) * SECOND, interval_ns=20 * SECOND,
            )
            for hour in watched for second in range(0, HOUR - 20, 20)
        ),
    )  # fmt: skip
    kept = read_accounts(str(path), begin, begin + 72 * HOUR)
    unseen = {by: sum(group.unseen for group in summary(kept, begin, begin + 72 * HOUR, by)) for by in GROUPINGS}
    assert unseen["user"] == pytest.approx(68 * HOUR, abs=5 * 60)
    assert {by for by, seconds in unseen.items() if abs(seconds - unseen["user"]) > 5 * 60} == set()
    hours = summary(kept, begin, begin + 72 * HOUR, "hour")
    assert (hours[2].begin, hours[2].unseen, hours[2].accounts) == (begin + 2 * HOUR, HOUR, [])
    for by in GROUPINGS:
        groups = summary(kept, begin - 48 * HOUR, begin + 72 * HOUR, by)
        assert sum(group.unseen for group in groups) == pytest.approx(unseen["user"] + 48 * HOUR, abs=5 * 60), by
        assert by in ("user", "device") or groups[0].begin == begin - 48 * HOUR, by


def test_json_says_null_for_what_is_not_known(filled: float, printed: Printed) -> None:
    found = json.loads(printed("accounts", "--by", "device", "--json"))
    assert (found["schema"], found["by"]) == (1, "device")
    first, second = found["groups"]
    assert first["device"] == {"uuid": device().uuid, "number": 0, "name": "NVIDIA H100"}
    alice, bob = first["accounts"]
    assert (alice["user"], alice["held"], alice["busy"]) == ("alice", 7200, pytest.approx(5400))
    assert bob["energy"] == pytest.approx(7200 * 90)
    assert second["free"] == {"seconds": 3600, "energy": 3600 * 360}
    assert second["unseen"] >= 3600
    assert second["accounts"] == []


def test_csv_has_a_row_for_each_user_and_for_what_nobody_held(filled: float, printed: Printed) -> None:
    rows = list(csv.DictReader(io.StringIO(printed("accounts", "--by", "hour", "--csv", "--since", "3h"))))
    kinds = [row["kind"] for row in rows if float(row["begin_seconds"]) == filled - 7200]
    assert kinds == ["user", "user", "free", "total"]
    assert sum(float(row["held_seconds"]) for row in rows if row["user"] == "alice") == 7200


def test_a_sum_of_which_a_part_is_not_known_is_no_less_than_it(path: Path, printed: Printed) -> None:
    now = time.time() // HOUR * HOUR - HOUR
    others = [process(2, user="bob")]
    on = [process(1, sm_utilization=0.6)]
    keep(
        path,
        (
            tick(50 + s, [gpu(0, 0.8, 20)], on + others if s > 600 else on, time_ns=round((now + s) * SECOND))
            for s in range(1201)
        ),
    )
    alice, bob, unknown, *_ = printed("accounts").splitlines()[2:]
    assert "≥ 10 min" in alice
    assert bob.split() == ["bob", "10", "min", "–", "–", "–"]
    assert unknown.split()[0] == "(unknown)"


@pytest.mark.parametrize("by", GROUPINGS)
def test_without_anything_it_says_so(path: Path, printed: Printed, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "accounts", "--by", by]) == 1
    assert "gpumon daemon" in capsys.readouterr().err
    keep(path, [tick(1)])
    assert "no daemon sampled" in printed("accounts", "--by", by)


def test_days_weeks_and_months_are_those_of_the_calendar(filled: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    switch = 1_774_746_000  # 2026-03-29, 02:00 becomes 03:00
    begin, end = PERIODS["day"](switch)
    assert (time.strftime("%d %H:%M", time.localtime(begin)), end - begin) == ("29 00:00", 23 * HOUR)
    begin, end = PERIODS["week"](switch)
    assert (time.strftime("%a %d", time.localtime(begin)), end - begin) == ("Mon 23", 7 * 24 * HOUR - HOUR)
    begin, end = PERIODS["month"](switch)
    assert (time.strftime("%d", time.localtime(begin)), end - begin) == ("01", 31 * 24 * HOUR - HOUR)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_the_sums_of_all_days_are_those_of_the_window(filled: float, path: Path) -> None:
    begin, end = filled - 48 * HOUR, filled
    kept = read_accounts(str(path), begin, end)
    (whole,) = summary(kept, begin, end, "user")
    for by in GROUPINGS:
        groups = summary(kept, begin, end, by)
        assert sum(group.use.observed for group in groups) == whole.use.observed
        held = sum(one.held for group in groups for one in group.accounts if one.user == "alice")
        assert held == pytest.approx(next(one.held for one in whole.accounts if one.user == "alice"))
    assert whole.rest == Account("")
    assert whole.unseen == pytest.approx(HOUR + 2 * 46 * HOUR, abs=60), "a GPU was lost; before, nobody watched"
