"""Caps on usage: the table `[caps]`, what is used of each, and when it will be reached."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gpumon.caps import MIN_SEEN, CapState, cap_states, cap_window, states_of
from gpumon.cli.options import resolve_options
from gpumon.common.caps import Caps, read_caps
from gpumon.common.config import UserGroups, read_groups, read_prices
from gpumon.common.errors import UsageError
from gpumon.common.numbers import is_known
from gpumon.common.privacy import HASHED, HIDDEN, People, use_policy
from gpumon.reports import caps as report
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.query import HourUse, StoredAccounts, StoredDevice

HOUR, DAY = 3600.0, 86400.0
NOON = 1_764_590_400.0
"""2025-12-01 12:00 UTC, a Monday, and the first day of a month."""
GROUPS = read_groups({"vision": ["ada", "eve"]})
PRICES = read_prices({"currency": "EUR", "gpu-hour": 2.0})


def kept(*used: tuple[int, str, float], judged: float = 1.0, unseen: bool = False) -> StoredAccounts:
    """Accounts of one GPU: (hour before `NOON`, user, held hours), with 100 W and no idle time."""
    hours = []
    for ago in range(36, 0, -1):
        accounts = [
            Account(user, held * HOUR, judged * held * HOUR, judged * held * HOUR, 0.0, held * HOUR, held * 3.6e5)
            for hour, user, held in used if hour == ago
        ]  # fmt: skip
        seen = 0.0 if unseen else HOUR
        hours.append(
            HourUse(NOON - ago * HOUR, "GPU-a", DeviceUse(observed=seen, identified=seen, judged=seen), accounts)
        )
    return StoredAccounts(hours, [StoredDevice("GPU-a", 0, "NVIDIA H100", NOON - 36 * HOUR)])


def states(stored: StoredAccounts, caps: dict[str, Any], groups: UserGroups | None = None) -> list[CapState]:
    return cap_states(stored, read_caps(caps), groups, PRICES, NOON, UTC)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ([], "must be a table"), ({"perod": "day"}, "'perod'"), ({"period": "year"}, "day, week, month"),
        ({"users": ["ada"]}, "[caps.users]"), ({"users": {"ada": 5}}, "ada"), ({"users": {"ada": {}}}, "ada"),
        ({"users": {"ada": {"days": 5}}}, "'days'"), ({"users": {"ada": {"hours": 0}}}, "hours of ada"),
        ({"users": {"ada": {"hours": True}}}, "hours of ada"),
        ({"users": {"ada": {"kwh": float("nan")}}}, "kwh of ada"),
        ({"users": {"": {"hours": 5}}}, "name"), ({"groups": {"a\nb": {"hours": 5}}}, "name"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_table_is_named(table: Any, named: str) -> None:
    with pytest.raises(ValueError, match="caps") as raised:
        read_caps(table)
    assert named in str(raised.value)


def test_the_settings_file_has_them_and_a_mistake_is_named_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "gpumon" / "config.toml"
    file.parent.mkdir()

    def read() -> Any:
        env = {"XDG_CONFIG_HOME": str(tmp_path)}
        return resolve_options(argparse.Namespace(dir=None, state_dir=None), env)[1].caps

    file.write_text('[caps]\nperiod = "week"\n[caps.users]\nada = {hours = 2, kwh = 1}\n')
    assert read() == Caps("week", {"ada": {"hours": 7200.0, "kwh": 3.6e6}})
    file.write_text("[caps]\nusers = 3\n")
    with pytest.raises(UsageError, match=str(file)):
        read()


def test_what_is_used_counts_from_the_start_of_the_period() -> None:
    stored = kept((13, "ada", 1.0), (12, "ada", 1.0), (1, "ada", 0.5))  # the day began 12 hours ago
    (state,) = states(stored, {"period": "day", "users": {"ada": {"hours": 10}}})
    assert (state.used.value, state.used.complete, state.limit) == (1.5 * HOUR, True, 10 * HOUR)
    assert (state.begin, state.end) == (NOON - 12 * HOUR, NOON + 12 * HOUR)


@pytest.mark.parametrize(
    ("limit", "reached", "forecast"),
    [
        (2.0, NOON - 4 * HOUR, float("nan")),  # in the hour that began four hours ago
        (2.5, float("nan"), NOON + 0.5 * HOUR / (3 / 24)),  # 3 h in the last 24 h, 2 of them in this period
        (4.0, float("nan"), float("nan")),  # not within the period
    ],
)
def test_a_cap_was_reached_or_will_be_at_the_rate_of_the_last_day(
    limit: float, reached: float, forecast: float
) -> None:
    stored = kept((20, "ada", 1.0), (10, "ada", 1.0), (4, "ada", 1.0))
    (state,) = states(stored, {"period": "day", "users": {"ada": {"hours": limit}}})
    assert (state.reached, state.forecast) == pytest.approx((reached, forecast), nan_ok=True)


def test_a_forecast_is_by_the_time_that_was_sampled() -> None:
    """A daemon that began an hour ago has seen one hour of the last 24."""
    hour = HourUse(NOON - HOUR, "GPU-a", DeviceUse(observed=0.5 * HOUR), [Account("ada", 0.5 * HOUR)])
    table = {"period": "day", "users": {"ada": {"hours": 2.5}}}
    stored = StoredAccounts([hour], [StoredDevice("GPU-a", 0, "NVIDIA H100", NOON - HOUR)])
    (state,) = states(stored, table)
    assert state.forecast == NOON + 2 * HOUR
    few = replace(hour, use=DeviceUse(observed=MIN_SEEN - 1))
    assert not is_known(states(replace(stored, hours=[few]), table)[0].forecast)


def test_an_hour_of_two_days_is_left_out_and_the_sum_is_a_lower_bound() -> None:
    """In India, days begin in the middle of an hour of UTC."""
    india = timezone(timedelta(hours=5, minutes=30))
    table = read_caps({"period": "day", "users": {"ada": {"hours": 5}}})
    stored = kept((18, "ada", 1.0), (17, "ada", 1.0), (1, "ada", 1.0))  # the day began 17.5 hours ago
    (state,) = cap_states(stored, table, None, None, NOON, india)
    assert (state.used.value, state.used.complete) == (2 * HOUR, False)


def test_each_measure_in_its_unit_and_what_was_not_measured_is_a_lower_bound() -> None:
    limits = {"hours": 8, "idle-hours": 1, "kwh": 1, "cost": 10}
    table = {"period": "day", "users": {"ada": limits}}
    measured = {state.measure: state for state in states(kept((3, "ada", 1.0), (2, "ada", 1.0)), table)}
    assert {name: state.used.value for name, state in measured.items()} == {
        "hours": 2 * HOUR, "idle-hours": 0.0, "kwh": 7.2e5, "cost": 4.0,
    }  # fmt: skip
    assert all(state.used.complete for state in measured.values())
    partly = {state.measure: state.used.complete for state in states(kept((3, "ada", 1.0), judged=0.5), table)}
    assert partly == {"hours": True, "idle-hours": False, "kwh": True, "cost": True}
    assert not any(state.used.complete for state in states(kept((3, "ada", 1.0), unseen=True), table))


def test_default_applies_to_users_without_a_cap_of_their_own_and_groups_add_up() -> None:
    table = {
        "period": "day",
        "users": {"ada": {"hours": 5}, "default": {"hours": 1}},
        "groups": {"vision": {"hours": 4}},
    }
    stored = kept((3, "ada", 1.0), (3, "eve", 1.0), (2, "dan", 0.5))
    found = {(state.holder, state.is_group): (state.used.value, state.limit) for state in states(stored, table, GROUPS)}
    assert found == {
        ("ada", False): (HOUR, 5 * HOUR), ("eve", False): (HOUR, HOUR), ("dan", False): (0.5 * HOUR, HOUR),
        ("vision", True): (2 * HOUR, 4 * HOUR),
    }  # fmt: skip
    assert [(state.holder) for state in states_of(states(stored, table, GROUPS), "eve", GROUPS)] == ["eve", "vision"]


def test_a_user_without_usage_has_used_nothing_of_a_named_cap() -> None:
    (state,) = states(kept((3, "ada", 1.0)), {"period": "day", "users": {"bob": {"hours": 5}}})
    assert (state.holder, state.used.value, state.share) == ("bob", 0.0, 0.0)


def test_a_cap_on_cost_without_prices_is_unknown() -> None:
    caps = read_caps({"period": "day", "users": {"ada": {"cost": 5}}})
    (state,) = cap_states(kept((3, "ada", 1.0)), caps, None, None, NOON, UTC)
    assert not state.used.complete
    (shown,) = report.as_json([state], None)["caps"]
    json.dumps(shown, allow_nan=False)


def test_hidden_names_hide_the_names_of_caps() -> None:
    table = {"period": "day", "users": {"bob": {"hours": 5}}, "groups": {"vision": {"hours": 5}}}
    with use_policy(People(HASHED, b"salt")):
        (state,) = states(kept((3, "bob", 1.0)), table, GROUPS)
        assert (state.holder, state.is_group) == (People(HASHED, b"salt").name("bob"), False)
    with use_policy(People(HIDDEN)):
        assert states(kept((3, "bob", 1.0)), table, GROUPS) == []


def test_the_window_covers_the_period_and_the_last_day() -> None:
    assert cap_window(read_caps({"period": "day"}), NOON, UTC) == (NOON - DAY, NOON)
    assert cap_window(read_caps({"period": "week"}), NOON + 3 * DAY, UTC) == (NOON - 12 * HOUR, NOON + 3 * DAY)


def test_at_least_nothing_is_unknown() -> None:
    table = {"period": "day", "users": {"ada": {"idle-hours": 1}, "bob": {"hours": 1}}}
    states_by_user = {state.holder: state for state in states(kept((3, "ada", 1.0), judged=0.0, unseen=True), table)}
    assert all(not is_known(state.used.value) for state in states_by_user.values())
    assert all(cap["used"] is None for cap in report.as_json([*states_by_user.values()], None)["caps"])
