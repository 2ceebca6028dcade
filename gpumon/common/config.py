"""Groups of users, as `[groups]` of the settings file names them: whose time is added up on one bill.

A user is in one group at most, so that the groups of a site add up to its users.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from gpumon.common.paths import read_regular

NO_GROUP = "(no group)"
"""In the place of a name, for users whom no group has."""
_MOST_GROUPS, _MOST_USERS = 1000, 100_000
MAX_GROUP_LETTERS = 64


class UserGroups(NamedTuple):
    """Groups by name."""

    of_user: Mapping[str, str]
    """The group of each user who has one."""

    def name(self, user: str) -> str:
        """The group of a user; `NO_GROUP` where there is none."""
        return self.of_user.get(user, NO_GROUP)

    def shared_out(self, users: Iterable[str]) -> dict[str, Sequence[str]]:
        """Return users by group, in the order given; those without one last."""
        found: dict[str, list[str]] = {}
        for user in users:
            found.setdefault(self.name(user), []).append(user)
        without = found.pop(NO_GROUP, None)
        return {**found, **({NO_GROUP: without} if without else {})}


def read_groups(table: Any) -> UserGroups:
    """Return the groups of a `[groups]` table. Raises ValueError, which says what is wrong with it."""
    if not isinstance(table, Mapping) or len(table) > _MOST_GROUPS:
        raise ValueError('groups must be a table, such as [groups] with lines such as vision = ["ann", "bob"]')
    found: dict[str, str] = {}
    for group, users in table.items():
        if not _is_name(group) or group == NO_GROUP:
            raise ValueError(f"a group in [groups] must have a name of at most {MAX_GROUP_LETTERS} letters")
        if not isinstance(users, list) or not all(map(_is_name, users)):
            raise ValueError(f'{group} in [groups] must be a list of users, such as {group} = ["ann", "bob"]')
        for user in users:
            if found.setdefault(user, group) != group:
                raise ValueError(f"[groups] has {user} in {found[user]} and in {group}: a user has one group")
    if len(found) > _MOST_USERS:
        raise ValueError(f"[groups] has more than {_MOST_USERS} users")
    return UserGroups(found)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_GROUP_LETTERS and value.isprintable()


NAN = float("nan")
DEFAULT = "default"
"""Name in `gpu-hour` of the price of all models that no other name fits."""
HOURS = 24
MAX_CURRENCY_LETTERS = 8
_MOST_NAMES = 100
_LARGEST = 1e6


class Tariff(NamedTuple):
    """A price of electricity for some hours of each day."""

    begin: int
    """Hour of the day; more than `end` where midnight lies between."""
    end: int
    price: float
    """Of a kWh."""

    def holds(self, hour: int) -> bool:
        """Whether it is the price in that hour of the day."""
        if self.begin < self.end:
            return self.begin <= hour < self.end
        return hour >= self.begin or hour < self.end


class Prices(NamedTuple):
    """Prices; NaN is not known, and no amount follows from it."""

    currency: str
    """Such as EUR; a word of the admin, which gpumon only repeats."""
    gpu_hour: Mapping[str, float] = {}
    """Price of an hour of a GPU, by a part of its model's name, or `default`."""
    kwh: tuple[float, ...] = (NAN,) * HOURS
    """Price of a kWh in each hour of the day."""
    pue: float = 1.0
    """Power usage effectiveness: energy of the whole site for each joule of its computers."""
    co2: float = NAN
    """Grams for each kWh."""

    def of_model(self, model: str) -> float:
        """Price of an hour of a GPU of that name: that of the longest name that is a part of it."""
        name = model.casefold()
        fitting = [part for part in self.gpu_hour if part != DEFAULT and part.casefold() in name]
        return self.gpu_hour.get(max(fitting, key=len) if fitting else DEFAULT, NAN)

    @property
    def has_energy(self) -> bool:
        """Whether electricity has a price in any hour."""
        return any(isfinite(price) for price in self.kwh)


def read_prices(table: Any) -> Prices:
    """Return the prices of a `[cost]` table. Raises ValueError, which says what is wrong with it."""
    if not isinstance(table, Mapping):
        raise ValueError("cost must be a table, such as [cost] with lines of its own")  # noqa: TRY004
    unknown = sorted(set(table) - _READERS.keys())
    if unknown:
        raise ValueError(f"unknown name '{unknown[0]}' in [cost]. Names: {', '.join(_READERS)}")
    if "currency" not in table:
        raise ValueError('[cost] needs a currency, such as currency = "EUR"')
    read: dict[str, Any] = {name: _READERS[name](name, value) for name, value in table.items()}
    return Prices(**{name.replace("-", "_"): value for name, value in read.items()})


def _currency(name: str, value: Any) -> str:
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= MAX_CURRENCY_LETTERS
        or not value.isprintable()
        or " " in value
    ):
        raise ValueError(f"{name} in [cost] must be a word of at most {MAX_CURRENCY_LETTERS} letters, such as EUR")
    return value


def _amount(name: str, value: Any, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _LARGEST:
        raise ValueError(f"{name} in [cost] must be a number from {least:g} to {_LARGEST:g}")
    return float(value)


def _pue(name: str, value: Any) -> float:
    return _amount(name, value, 1.0)


def _by_model(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        value = {DEFAULT: value}
    if len(value) > _MOST_NAMES:
        raise ValueError(f"{name} in [cost] has more than {_MOST_NAMES} models")
    if "" in value:
        raise ValueError(f"{name} in [cost] has a model without a name")
    return {model: _amount(f"{name} of {model!r}", price) for model, price in value.items()}


def _by_hour(name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        return (_amount(name, value),) * HOURS
    prices = [NAN] * HOURS
    for tariff in [_tariff(name, one) for one in value]:
        for hour in filter(tariff.holds, range(HOURS)):
            if isfinite(prices[hour]):
                raise ValueError(f"{name} in [cost] has two prices for {hour:02}:00")
            prices[hour] = tariff.price
    return tuple(prices)


def _tariff(name: str, value: Any) -> Tariff:
    if not isinstance(value, Mapping) or set(value) != {"from", "to", "price"}:
        raise ValueError(f'{name} in [cost] must have tariffs such as {{from = "22:00", to = "06:00", price = 0.21}}')
    return Tariff(_hour(name, value["from"]), _hour(name, value["to"]) % HOURS, _amount(name, value["price"]))


def _hour(name: str, value: Any) -> int:
    """A full hour: `22:00`, or 22."""
    digits = str(value).removesuffix(":00")
    if isinstance(value, bool) or len(digits) > 2 or not (digits.isascii() and digits.isdigit()) or int(digits) > HOURS:
        raise ValueError(f"{name} in [cost]: a tariff begins and ends at a full hour, such as 22:00, not {value!r}")
    return int(digits)


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "currency": _currency,
    "gpu-hour": _by_model,
    "kwh": _by_hour,
    "pue": _pue,
    "co2": _amount,
}


MOST_BYTES = 64 * 1024
"""Of a file; a larger one is none of ours."""


def settings_path(env: Mapping[str, str], name: str) -> str:
    """Return the path of the file of that name, `~/.config/gpumon/...`; empty where there is no home."""
    base = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    return f"{base}/gpumon/{name}" if base else ""


def read_settings(path: str) -> bytes:
    """Read the file, without waiting for what is no file. Raises OSError, also where it is too large."""
    content = read_regular(path, MOST_BYTES + 1, follow=True)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, "too large for a settings file", path)
    return content


def read_toml(path: str) -> dict[str, Any]:
    """Read and parse the file. Raises OSError where it cannot be read, ValueError for what is no TOML."""
    import tomllib

    try:
        return tomllib.loads(read_settings(path).decode())
    except UnicodeDecodeError:
        raise ValueError("not a text in UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
