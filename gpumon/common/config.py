"""Reads the settings file, with its tables of user groups and prices.

A user can be in only one group, so that the sum over all groups equals the sum over all users.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from gpumon.common.paths import read_regular

NO_GROUP = "(no group)"
"""Group name that is shown for users without a group."""
_MAX_GROUPS, _MAX_USERS = 1000, 100_000
MAX_GROUP_LETTERS = 64


class UserGroups(NamedTuple):
    """The configured groups of users."""

    of_user: Mapping[str, str]
    """Name of each user's group, by user."""

    def name(self, user: str) -> str:
        """Return the name of the user's group; `NO_GROUP` if the user is in no group."""
        return self.of_user.get(user, NO_GROUP)

    def shared_out(self, users: Iterable[str]) -> dict[str, Sequence[str]]:
        """Return the users of each group by group, in the order in which they were passed.

        Users without a group come last.
        """
        groups: dict[str, list[str]] = {}
        for user in users:
            groups.setdefault(self.name(user), []).append(user)
        without = groups.pop(NO_GROUP, None)
        return {**groups, **({NO_GROUP: without} if without else {})}


def read_groups(table: Any) -> UserGroups:
    """Read the table `[groups]`. Raises ValueError, whose message names the invalid entry."""
    if not isinstance(table, Mapping) or len(table) > _MAX_GROUPS:
        raise ValueError('groups must be a table, such as [groups] with lines such as vision = ["ann", "bob"]')
    group_of: dict[str, str] = {}
    for group, users in table.items():
        if not _is_name(group) or group == NO_GROUP:
            raise ValueError(f"a group in [groups] must have a name of at most {MAX_GROUP_LETTERS} letters")
        if not isinstance(users, list) or not all(map(_is_name, users)):
            raise ValueError(f'{group} in [groups] must be a list of users, such as {group} = ["ann", "bob"]')
        for user in users:
            if group_of.setdefault(user, group) != group:
                raise ValueError(f"[groups] has {user} in {group_of[user]} and in {group}: a user has one group")
    if len(group_of) > _MAX_USERS:
        raise ValueError(f"[groups] has more than {_MAX_USERS} users")
    return UserGroups(group_of)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_GROUP_LETTERS and value.isprintable()


NAN = float("nan")
DEFAULT = "default"
"""Name in the `gpu-hour` table that applies to models without a match."""
HOURS = 24
MAX_CURRENCY_LETTERS = 8
_MAX_NAMES = 100
_LARGEST = 1e6


class Tariff(NamedTuple):
    """The price of electricity for some hours of the day."""

    begin: int
    """First hour of the day; greater than `end` if the tariff spans midnight."""
    end: int
    price: float
    """Price per kWh, in the configured currency."""

    def covers(self, hour: int) -> bool:
        """Return whether the tariff applies in this hour of the day."""
        if self.begin < self.end:
            return self.begin <= hour < self.end
        return hour >= self.begin or hour < self.end


class Prices(NamedTuple):
    """The configured prices. A price that is not configured is NaN, and so are amounts computed from it."""

    currency: str
    """Currency, such as EUR. It is chosen by the admin and only displayed."""
    gpu_hour: Mapping[str, float] = {}
    """Price of a GPU hour by model. A key is a substring of the model's name, or `default`."""
    kwh: tuple[float, ...] = (NAN,) * HOURS
    """Price per kWh in each hour of the day, in the configured currency."""
    pue: float = 1.0
    """Power usage effectiveness: energy of the whole site divided by the energy of its computers."""
    co2: float = NAN
    """Grams of CO2 per kWh; NaN if not configured."""
    country: str = ""
    """Code of the country whose electricity has `co2`; empty if the number itself is configured."""

    def of_model(self, model: str) -> float:
        """Return the price of a GPU hour for a model.

        If the model's name contains several configured names, the longest of them is used.
        """
        name = model.casefold()
        matches = [part for part in self.gpu_hour if part != DEFAULT and part.casefold() in name]
        return self.gpu_hour.get(max(matches, key=len) if matches else DEFAULT, NAN)

    @property
    def has_energy(self) -> bool:
        """Whether a price of electricity is configured for any hour."""
        return any(isfinite(price) for price in self.kwh)


def read_prices(table: Any) -> Prices:
    """Read the table `[cost]`. Raises ValueError, whose message names the invalid entry."""
    if not isinstance(table, Mapping):
        raise ValueError('cost must be a table: write [cost], and below it lines such as currency = "EUR"')  # noqa: TRY004
    unknown = sorted(set(table) - _READERS.keys())
    if unknown:
        raise ValueError(f"unknown name '{unknown[0]}' in [cost]. Names: {', '.join(_READERS)}")
    if "currency" not in table:
        raise ValueError('[cost] needs a currency, such as currency = "EUR"')
    values: dict[str, Any] = {name: _READERS[name](name, value) for name, value in table.items()}
    if isinstance(table.get("co2"), str):
        values["country"] = table["co2"].upper()
    return Prices(**{name.replace("-", "_"): value for name, value in values.items()})


def _currency(name: str, value: Any) -> str:
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= MAX_CURRENCY_LETTERS
        or not value.isprintable()
        or " " in value
    ):
        raise ValueError(f"{name} in [cost] must be a word of at most {MAX_CURRENCY_LETTERS} letters, such as EUR")
    return value


def _amount(name: str, value: Any, minimum: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= _LARGEST:
        raise ValueError(f"{name} in [cost] must be a number from {minimum:g} to {_LARGEST:g}")
    return float(value)


def _pue(name: str, value: Any) -> float:
    return _amount(name, value, 1.0)


def _grams(name: str, value: Any) -> float:
    """Parse grams of CO2 per kWh, or the code of a country."""
    if not isinstance(value, str):
        return _amount(name, value)
    from gpumon.common.grid_intensity import find_grid  # only this setting uses it

    grid = find_grid(value)
    if grid is None:
        raise ValueError(f"{name} in [cost]: no country {value!r} is known. Give a code such as FR, or grams per kWh")
    return grid.grams


def _by_model(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        value = {DEFAULT: value}
    if len(value) > _MAX_NAMES:
        raise ValueError(f"{name} in [cost] has more than {_MAX_NAMES} models")
    if "" in value:
        raise ValueError(f"{name} in [cost] has a model without a name")
    return {model: _amount(f"{name} of {model!r}", price) for model, price in value.items()}


def _by_hour(name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        return (_amount(name, value),) * HOURS
    prices = [NAN] * HOURS
    for tariff in [_tariff(name, entry) for entry in value]:
        for hour in filter(tariff.covers, range(HOURS)):
            if isfinite(prices[hour]):
                raise ValueError(f"{name} in [cost] has two prices for {hour:02}:00")
            prices[hour] = tariff.price
    return tuple(prices)


def _tariff(name: str, value: Any) -> Tariff:
    if not isinstance(value, Mapping) or set(value) != {"from", "to", "price"}:
        raise ValueError(f'{name} in [cost] must have tariffs such as {{from = "22:00", to = "06:00", price = 0.21}}')
    return Tariff(_hour(name, value["from"]), _hour(name, value["to"]) % HOURS, _amount(name, value["price"]))


def _hour(name: str, value: Any) -> int:
    """Parse a full hour, such as `22:00` or 22."""
    digits = str(value).removesuffix(":00")
    if isinstance(value, bool) or len(digits) > 2 or not (digits.isascii() and digits.isdigit()) or int(digits) > HOURS:
        raise ValueError(f"{name} in [cost]: a tariff begins and ends at a full hour, such as 22:00, not {value!r}")
    return int(digits)


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "currency": _currency,
    "gpu-hour": _by_model,
    "kwh": _by_hour,
    "pue": _pue,
    "co2": _grams,
}


MAX_BYTES = 64 * 1024
"""Maximum size of a settings file."""


def settings_path(env: Mapping[str, str], name: str) -> str:
    """Return the path of the file `name` in `~/.config/gpumon`; empty if there is no home directory."""
    base = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    return f"{base}/gpumon/{name}" if base else ""


def read_settings(path: str) -> bytes:
    """Return the content of the file. Raises OSError if it cannot be read, is not a regular file, or is too large."""
    content = read_regular(path, MAX_BYTES + 1, follow=True)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES // 1024} KiB", path)
    return content


def is_absent(path: str) -> bool:
    """Return whether there is no file at `path`.

    Also True if this user may not search the directory, because HOME in containers is often root's home directory.
    False for a broken link or a loop of links: reading the file then fails.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return True
    except OSError:
        return False
    return False


def read_toml(path: str) -> dict[str, Any]:
    """Read and parse the file. Raises OSError if it cannot be read, ValueError if it is not valid TOML."""
    import tomllib

    try:
        return tomllib.loads(read_settings(path).decode())
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
