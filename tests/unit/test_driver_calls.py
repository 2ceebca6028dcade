"""Costs of the driver's calls: counted, kept in a file that anybody may have damaged, and a slow call made seldom."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.driver_calls import FILE, SHARE, DriverCall, read_calls, write_calls
from gpumon.daemon.recorder import DriverCallFile, slow_call_message
from gpumon.sources.nvml.values import LONGEST_WAIT, CallCost, sum_calls
from tests.fakes import CostlyDriver, FakeClock

CALLS = [DriverCall("nvmlDeviceGetFieldValues", 12, 0.001, 0.25), DriverCall("nvmlSlow", 3, 0.04, 0.04, every=0.8)]


def asked(cost: CallCost, seconds: float, times: int = 1) -> None:
    """Ask so often for something that takes so long."""
    clock = FakeClock()
    for _ in range(times):
        cost.measure(clock, clock.advance, seconds)


def test_calls_are_counted_with_their_mean_and_their_worst_over_all_gpus() -> None:
    here, there, never = CallCost("f"), CallCost("f"), CallCost("g")
    asked(here, 0.001, times=3)
    asked(there, 0.005)
    (call,) = sum_calls([here, there, never], tick=1.0)
    assert call == DriverCall("f", 4, pytest.approx(0.002), pytest.approx(0.005), 0.0)


def test_the_dearest_in_all_comes_first() -> None:
    often, seldom = CallCost("often"), CallCost("seldom")
    asked(often, 0.001, times=100)
    asked(seldom, 0.05)
    assert [call.function for call in sum_calls([seldom, often], tick=1.0)] == ["often", "seldom"]


def test_a_call_that_is_slow_again_and_again_waits_until_it_takes_its_share_and_no_more() -> None:
    cost = CallCost("f")
    asked(cost, 0.02, times=100)
    assert cost.wait == pytest.approx(0.02 / SHARE, rel=0.01)
    assert sum_calls([cost], tick=1.0)[0].every == 0.0, "a tick is longer"
    assert sum_calls([cost], tick=0.1)[0].every == pytest.approx(0.4, rel=0.01)


def test_one_slow_call_or_a_few_are_no_reason_to_wait() -> None:
    cost = CallCost("f")
    asked(cost, 3600.0)
    asked(cost, 0.1, times=2)
    assert cost.wait == 0.0


def test_one_swift_call_ends_the_wait() -> None:
    cost = CallCost("f")
    asked(cost, 0.1, times=40)
    assert cost.wait == pytest.approx(2.0)
    asked(cost, 0.0001)
    assert cost.wait < 0.01


def test_a_call_that_is_very_slow_is_made_all_the_same() -> None:
    cost = CallCost("f")
    asked(cost, 3600.0, times=4)
    assert cost.wait == LONGEST_WAIT


def test_the_log_says_how_slow_a_call_is_for_the_gpu_where_it_is() -> None:
    here, there = CallCost("f"), CallCost("f")
    asked(here, 0.0001, times=1000)
    asked(there, 0.02, times=4)
    (call,) = sum_calls([here, there], tick=0.1)
    assert slow_call_message(call).startswith("f takes 20 ms or more per GPU: it is called only every 0.4 s")


def test_the_file_gives_what_was_written(tmp_path: Path) -> None:
    write_calls(str(tmp_path), CALLS)
    assert read_calls(str(tmp_path)) == tuple(CALLS)
    assert os.listdir(tmp_path) == [FILE]


def test_who_may_enter_the_directory_reads_the_file_whatever_the_umask_of_the_daemon(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_calls(str(tmp_path), CALLS)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o644


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\xff\xfe", b"[]", b"{}", b'{"schema": 2, "calls": []}', b'{"schema": 1}', b'{"schema": 1, "calls": 7}',
        b'{"schema": 1, "calls": [{}]}', b'{"schema": 1, "calls": [null]}', b"[" * 100_000,
        b'{"schema": 1, "calls": [{"function": "f", "calls": 1, "mean": NaN, "worst": 0, "every": 0}]}',
        b'{"schema": 1, "calls": [{"function": "f", "calls": 1, "mean": -1, "worst": 0, "every": 0}]}',
        b'{"schema": 1, "calls": [{"function": "f", "calls": 1e400, "mean": 0, "worst": 0, "every": 0}]}',
    ],
)  # fmt: skip
def test_a_file_that_is_not_ours_gives_no_costs(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE).write_bytes(text)
    assert read_calls(str(tmp_path)) == ()


def test_names_in_the_file_are_made_harmless(tmp_path: Path) -> None:
    write_calls(str(tmp_path), [DriverCall("\x1b[2Jevil" + "x" * 1000, 1, 0.0, 0.0)])
    (call,) = read_calls(str(tmp_path))
    assert "\x1b" not in call.function
    assert len(call.function) <= 80


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    write_calls(str(tmp_path), CALLS)
    (tmp_path / FILE).rename(tmp_path / "elsewhere")
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    assert read_calls(str(tmp_path)) == ()


def test_that_the_directory_is_gone_is_left_for_the_recorder_to_say(tmp_path: Path) -> None:
    told: list[str] = []
    kept = DriverCallFile(CostlyDriver(CALLS), str(tmp_path / "gone"), told.append)
    kept.update(0)
    assert told == [slow_call_message(CALLS[1])]


def test_that_the_costs_cannot_be_kept_is_said_once_until_they_can(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / f"{FILE}.new").mkdir()  # nobody may write this file, not even root
    kept = DriverCallFile(CostlyDriver(CALLS[:1]), str(tmp_path), told.append)
    for now in (0, 100 * SECOND):
        kept.update(now)
    assert told == ["the durations of driver calls cannot be written: Is a directory"]
    (tmp_path / f"{FILE}.new").rmdir()
    kept.update(200 * SECOND)
    assert read_calls(str(tmp_path)) == tuple(CALLS[:1])
