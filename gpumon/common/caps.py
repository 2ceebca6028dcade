"""The table `[caps]` of the settings file: what users and groups may use per day, week or month."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpumon.common.config import MAX_GROUP_LETTERS

MEASURES: Mapping[str, float] = {"hours": 3600.0, "idle-hours": 3600.0, "kwh": 3.6e6, "cost": 1.0}
"""What a cap can limit, with the factor from the unit in the settings to seconds, joules, or the currency: time for
which GPUs are held, the part of it without work, energy, and the price of the held GPUs (of the energy, if GPUs have no
price)."""
CAP_PERIODS = ("day", "week", "month")
_MAX_NAMES = 10_000
_LARGEST = 1e9

Limits = Mapping[str, float]
"""Limits by measure, in base units."""


class Caps(NamedTuple):
    """The configured caps, from the table `[caps]` of the settings file."""

    period: str
    """`day`, `week` or `month`, in the time zone of this machine."""
    users: Mapping[str, Limits] = {}
    """Limits by user. `default` applies to users who are not named."""
    groups: Mapping[str, Limits] = {}
    """Limits by group. `default` applies to groups that are not named."""


def read_caps(table: Any) -> Caps:
    """Read the table `[caps]`. Raises ValueError, whose message names the invalid entry."""
    if not isinstance(table, Mapping):
        raise ValueError('caps must be a table: write [caps], and below it lines such as period = "month"')  # noqa: TRY004
    unknown = sorted(set(table) - {"period", "users", "groups"})
    if unknown:
        raise ValueError(f"unknown name '{unknown[0]}' in [caps]. Names: period, users, groups")
    period = table.get("period", "month")
    if period not in CAP_PERIODS:
        raise ValueError(f"period in [caps] must be one of {', '.join(CAP_PERIODS)}")
    return Caps(period, _read_holders("users", table), _read_holders("groups", table))


def _read_holders(kind: str, table: Mapping[str, Any]) -> dict[str, Limits]:
    holders = table.get(kind, {})
    if not isinstance(holders, Mapping) or len(holders) > _MAX_NAMES:
        raise ValueError(f"[caps.{kind}] must be a table of at most {_MAX_NAMES} lines such as ann = {{hours = 100}}")
    return {_checked_name(kind, name): dict(_read_limits(kind, name, limits)) for name, limits in holders.items()}


def _checked_name(kind: str, name: str) -> str:
    if not (0 < len(name) <= MAX_GROUP_LETTERS and name.isprintable()):
        raise ValueError(f"a name in [caps.{kind}] must have 1 to {MAX_GROUP_LETTERS} letters")
    return name


def _read_limits(kind: str, holder: str, limits: Any) -> Iterator[tuple[str, float]]:
    if not isinstance(limits, Mapping) or not limits:
        raise ValueError(f"{holder} in [caps.{kind}] must have limits, such as {{hours = 100, kwh = 50}}")
    for measure, limit in limits.items():
        if measure not in MEASURES:
            raise ValueError(f"{holder} in [caps.{kind}] limits '{measure}'. Measures: {', '.join(MEASURES)}")
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= _LARGEST:
            raise ValueError(f"{measure} of {holder} in [caps.{kind}] must be a number above 0, up to {_LARGEST:g}")
        yield measure, limit * MEASURES[measure]
