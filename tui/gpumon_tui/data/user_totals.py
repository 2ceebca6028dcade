"""Totals by user: current processes, and hours and charges of this calendar month from the daemon's accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.model.process import Process
from gpumon_tui.background_queries import BackgroundQueries

if TYPE_CHECKING:
    from gpumon.common.config import Prices
    from gpumon.cost import Charge
    from gpumon.storage.usage.query import StoredAccounts


_VALID = 60.0
"""Seconds for which the accounts stay valid; the daemon updates the current hour once a minute."""
Read = Callable[[str, float, float], "StoredAccounts"]


class UserMonth(NamedTuple):
    """A user's share of a month."""

    held: float
    """GPU-seconds held."""
    charge: Charge


NO_MONTHS: Mapping[str, UserMonth] = {}


class MonthReader:
    """Reads the accounts in a background thread, in which `on_answer` is called after each read."""

    def __init__(self, on_answer: Callable[[], object], read: Read | None = None) -> None:
        self.asked = BackgroundQueries(on_answer)
        self._read = read

    def by_user(self, path: str, now: float, prices: Prices) -> Mapping[str, UserMonth]:
        """Return the month of `now` (s since 1970) by user; empty until it has been read, or if there are no
        accounts.
        """
        if not path:
            return NO_MONTHS
        return self.asked.get(("month", path), lambda: self._read_month(path, now, prices), _VALID).result or NO_MONTHS

    def _read_month(self, path: str, now: float, prices: Prices) -> dict[str, UserMonth]:
        from gpumon.cost import NO_CHARGE, price_hours
        from gpumon.storage.usage.period_totals import PERIODS
        from gpumon.storage.usage.query import by_user, read_accounts

        begin, _ = PERIODS["month"](now, None)
        stored = (self._read or read_accounts)(path, begin, now)
        charges = price_hours(stored.hours, stored.devices, prices).users
        return {
            account.user: UserMonth(account.held, charges.get(account.user, NO_CHARGE))
            for account in by_user(stored.hours)
        }


class KnownSum(NamedTuple):
    """A sum over known values."""

    value: float = NAN
    """NaN if no part is available."""
    is_whole: bool = True
    """Whether every part is available; if not, the value is a lower bound."""


class UserTotal(NamedTuple):
    """Totals over the processes of a user."""

    user: str
    """Empty if the user is unknown."""
    processes: int
    gpus: frozenset[str]
    """UUIDs."""
    memory: KnownSum
    """GPU memory in bytes."""
    sm: KnownSum
    """SM utilization summed over all GPUs: 2.0 means two fully busy GPUs."""
    cpu: KnownSum
    host_memory: KnownSum
    """Host memory in bytes."""
    month: UserMonth | None = None
    """Totals of this calendar month; None if unknown."""


def user_totals(processes: Iterable[Process]) -> list[UserTotal]:
    """Return the totals of each user, most GPU memory first."""
    totals = [_total(user, user_processes) for user, user_processes in _by_user(processes).items()]
    return sorted(totals, key=lambda total: _most_first(total.user, total.memory))


def memory_by_user(processes: Iterable[Process]) -> list[tuple[str, KnownSum]]:
    """Return each user with the GPU memory of their processes (bytes), largest first."""
    sums = [
        (user, _sum([process.memory_used for process in user_processes]))
        for user, user_processes in _by_user(processes).items()
    ]
    return sorted(sums, key=lambda user_sum: _most_first(*user_sum))


def _by_user(processes: Iterable[Process]) -> dict[str, list[Process]]:
    by_user: dict[str, list[Process]] = {}
    for process in processes:
        by_user.setdefault(process.user, []).append(process)
    return by_user


def _most_first(user: str, memory: KnownSum) -> tuple[float, str]:
    return -memory.value if is_known(memory.value) else 1.0, user


def _total(user: str, processes: Sequence[Process]) -> UserTotal:
    # A process has a row per GPU, each with the same CPU time and host memory.
    distinct = {process.pid: process for process in processes}.values()
    return UserTotal(
        user=user,
        processes=len(distinct),
        gpus=frozenset(process.uuid for process in processes),
        memory=_sum([process.memory_used for process in processes]),
        sm=_sum([process.sm_utilization for process in processes]),
        cpu=_sum([process.cpu_utilization for process in distinct]),
        host_memory=_sum([process.host_memory for process in distinct]),
    )


def _sum(values: Sequence[float]) -> KnownSum:
    known_values = [value for value in values if is_known(value)]
    return KnownSum(sum(known_values), len(known_values) == len(values)) if known_values else KnownSum(is_whole=False)
