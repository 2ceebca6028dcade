"""GPU usage by user as text, JSON and CSV.

Cells and headlines are the same in the command, in the browser and in the terminal view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gpumon.common.config import Prices
from gpumon.cost import WHOLE, Charge, HourlyCharges, price_hours, sum_charges
from gpumon.model import units
from gpumon.model.columns import USER_BY_KEY
from gpumon.model.vendors import gpu_label
from gpumon.reports import charges
from gpumon.reports.csv import Cell, csv_line, utc
from gpumon.reports.history import NOT_YET
from gpumon.reports.text_table import TextColumn, draw, text_column
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.period_totals import AccountGroup, UserWindow, find_account, named_use
from gpumon.storage.usage.query import StoredDevice

MOSTLY_IDLE = 0.5
"""A user's idle share gets a note if it is at least this large. The idle time must also be at least `NOTED` seconds."""
NOTED = 3600.0
_ROUNDING = 0.5
"""Times of fewer seconds are not shown."""

ratio_text, hours_text, energy_text = (USER_BY_KEY[key].write for key in ("used", "held", "energy"))
"""Functions that format a share, a time and an energy in the same way as the columns of users."""

_Six = tuple[str, str, str, str, str, str]


class Headlines(NamedTuple):
    """The sums over a time window as texts, and the text below each sum."""

    held: str
    held_below: str
    used: str
    used_below: str
    idle: str
    idle_below: str
    unseen: str
    unseen_below: str


def sum_text(value: float, to_text: Callable[[float], str], known_seconds: float, seconds: float) -> str:
    """Return a sum over `seconds` as text. `to_text`: function that formats the value.

    The text begins with `≥` if the value was measured for only `known_seconds` of this time. If the text would be `≥
    0`, it is `–` instead.
    """
    if known_seconds >= WHOLE * seconds and known_seconds:
        return to_text(value)
    return f"≥ {to_text(value)}" if known_seconds and value else units.MISSING


def used_text(account: Account) -> str:
    """Return the fraction of the held time in which a user's GPUs were busy, as text."""
    if not account.judged:
        return units.MISSING
    return sum_text(account.busy / account.held, ratio_text, account.judged, account.held)


def idle_text(account: Account) -> str:
    """Return text: for how long a user held GPUs that were idle."""
    return sum_text(account.idle_held, hours_text, account.judged, account.held)


def account_energy(account: Account) -> str:
    """Return the energy of an account as text."""
    return sum_text(account.energy, energy_text, account.metered, account.held)


def idle_note(account: Account) -> str:
    """Return a note if a user's GPUs were idle for most of the time, otherwise an empty string."""
    idle = account.idle_held / account.judged if account.judged > 0 else 0.0
    is_idle = idle >= MOSTLY_IDLE and account.idle_held >= NOTED
    return f"idle for {ratio_text(idle)} of the held time" if is_idle else ""


def unjudged(account: Account) -> str:
    """Return a note about held time that counts neither as busy nor as idle. Empty if there is no such time.

    A GPU without work counts as idle only after a minute, because a training may just be starting.
    """
    used = account.busy + account.idle_held
    if not account.judged or units.hours(account.held) == units.hours(used):
        return ""
    return f"{units.hours(account.held - used)} not classified: idle for less than a minute, or not measured"


def unknown_work(rest: Account) -> str:
    """Return a note about the work of unknown users, and about shared work that cannot be divided among known users."""
    if rest.busy <= rest.held + _ROUNDING:
        return f"{units.hours(rest.busy)} busy" if rest.busy else ""
    shared = f"{units.hours(rest.busy - rest.held)} not divided"
    return f"{units.hours(rest.held)} busy, {shared}" if rest.held else f"{shared} among users"


def device_name(device: StoredDevice) -> str:
    """Return the label of a GPU, or its UUID if it has no index."""
    return gpu_label(device.uuid, device.number) if device.number >= 0 else device.uuid


def seen(group: AccountGroup | None) -> AccountGroup | None:
    """Return the sums, or None if they are missing or cover less than half a second.

    Just after the start of the daemon, they may cover such a short time.
    """
    return group if group and max(group.use.observed, group.use.metered) >= _ROUNDING else None


def no_rows_text(group: AccountGroup | None, user: str = "") -> str:
    """Return the text to show if a window has no rows. `user`: the user to whom the window is restricted, if any."""
    if seen(group) is None:
        return NOT_YET if group else "No data was recorded in this window."
    return f"{user} held no GPU." if user else "No user held a GPU."


def unreadable(problem: str) -> str:
    """Return the text to show if the history file exists but cannot be read. `problem`: the reason."""
    return f"The history cannot be read now: {problem}."


def headlines(
    group: AccountGroup,
    before: AccountGroup | None,
    devices: Sequence[StoredDevice],
    window: UserWindow,
    user: str = "",
) -> Headlines:
    """Return the headlines of a time window, for all users or only for `user`.

    `group`: sums over the window. `before`: sums over the previous window, for comparison.
    """
    unseen = (
        (units.hours(group.unseen), _missing_reason(devices, window))
        if group.unseen
        else ("none", "every GPU was sampled")
    )
    if user:
        own, past = find_account(group, user), find_account(before, user)
        return Headlines(*_user_headlines(own, past, window, group.use.held), *unseen)
    return Headlines(*_all_headlines(group, before, window), *unseen)


def _all_headlines(group: AccountGroup, before: AccountGroup | None, window: UserWindow) -> _Six:
    use = group.use
    earlier = before.use.held / before.use.observed if before and before.use.observed else None
    idle = max(group.accounts, key=lambda account: account.idle_held, default=None)
    share_held = f"{ratio_text(use.held / use.observed)} of {units.hours(use.observed)} sampled" if use.observed else ""
    named, most = named_use(group.hours), f"most: {idle.user}, {units.hours(idle.idle_held)}" if idle else ""
    nameless = use.held - named.held
    left_out = f"excluding {units.hours(nameless)} of unknown users" if nameless > _ROUNDING else ""
    past = f"previous {window.period}: {ratio_text(earlier)}" if earlier is not None else ""
    return (
        units.hours(use.held),
        "; ".join(filter(None, (share_held, past))),
        sum_text(named.busy / named.held, ratio_text, named.judged, named.held) if named.held else units.MISSING,
        "; ".join(filter(None, (f"busy for {units.hours(named.busy)}", unjudged(named), left_out)))
        if named.judged
        else left_out or "unknown",
        sum_text(named.idle_held, units.hours, named.judged, named.held),
        "; ".join(filter(None, (most if idle and idle.idle_held >= NOTED else "", left_out))),
    )


def _user_headlines(account: Account, before: Account, window: UserWindow, all_held: float) -> _Six:
    share_held = f"{ratio_text(account.held / all_held)} of all held time" if all_held else ""
    past = f"previous {window.period}: {units.hours(before.held)}" if before.held else ""
    judged, idle = account.judged, idle_text(account)
    return (
        units.hours(account.held),
        "; ".join(filter(None, (share_held, past))),
        used_text(account),
        "; ".join(filter(None, (f"busy for {units.hours(account.busy)}", unjudged(account)))) if judged else "unknown",
        idle,
        f"{ratio_text(account.idle_held / judged)} of the held time" if idle != units.MISSING else "",
    )


def _missing_reason(devices: Sequence[StoredDevice], window: UserWindow) -> str:
    """Return text that says why time is missing. If the first stored hour is within the window, the text names it."""
    first = min((device.first for device in devices), default=window.begin)
    why = "no daemon was running, or a GPU did not answer"
    day = window.local_time(first) if window.begin < first < window.end else None
    return f"{why}; recorded since {day:%a} {day.day} {day:%b %H:%M}" if day else why


SCHEMA = 1
FIELDS = (
    "begin_seconds", "begin_utc", "end_seconds", "device", "user", "kind", "held_seconds", "judged_seconds",
    "busy_seconds", "idle_held_seconds", "metered_seconds", "energy_joules",
)  # fmt: skip
"""CSV columns. The cell of a missing value is empty. The `kind` of a row is one of these: `user`, or `group` if users
are summed by group, with the name of the user or group in the column `user`; `unknown` for unknown users, and for work
that cannot be divided among users; `free` for time without users; `unseen` for time that was not sampled; `total` for
all sampled time."""
TOTAL_KEYS = tuple(name for name in DeviceUse._fields if not name.startswith("free"))
"""Keys of the total in JSON. Free time has an object of its own."""
COLUMNS = (
    TextColumn("", 90, right=False, max_width=32),
    text_column(USER_BY_KEY["user"], max_width=24),
    *(text_column(USER_BY_KEY[key]) for key in ("held", "busy", "idle_held", "energy")),
)
USER, GROUP = "user", "group"
"""The two kinds of accounts: of a user, and of a group of users."""
UNKNOWN_USER, NOT_DIVIDED, FREE, NOT_SEEN, TOTAL = "(unknown)", "(not divided)", "(free)", "(not seen)", "total seen"
"""Names of rows without a user. `NOT_DIVIDED` is shared work that cannot be divided among known users."""


def lines(
    groups: Sequence[AccountGroup], by: str, width: int = 0, devices: Sequence[StoredDevice] = (),
    prices: Prices | None = None, holder: str = USER,
) -> Iterator[str]:  # fmt: skip
    """Yield a table with the users of each group, time that was free or not sampled, and totals.

    `groups`: sums for each interval or GPU. `by`: how the groups are formed, such as `day`. `devices`: stored GPUs,
    needed to compute costs. `prices`: add costs if not None. `holder`: heading of the column of users, `USER` or
    `GROUP`.
    """
    if groups:
        yield f"from {units.moment(groups[0].begin)} to {units.moment(groups[-1].end)}, by whole hours"
    rows: list[Sequence[str]] = []
    for group in groups:
        labels = iter([_label(group, by)])
        cost = price_hours(group.hours, devices, prices) if prices else None
        for user, *cells in _rows(group):
            rows.append((next(labels, ""), user, *cells, *_cost_cells(user, cost, prices)))
    columns = (COLUMNS[0], replace(COLUMNS[1], heading=holder.upper()), *COLUMNS[2:])
    yield from draw((*columns, *(charges.columns(prices) if prices else ())), rows, width)


def _cost_cells(user: str, cost: HourlyCharges | None, prices: Prices | None) -> Sequence[str]:
    if prices is None or cost is None:
        return ()
    if user in (NOT_SEEN, NOT_DIVIDED):
        return ("",) * len(charges.columns(prices))
    return charges.cells(_charge(user, cost), prices)


def _charge(user: str, cost: HourlyCharges) -> Charge:
    """Return the charge of a row of the table."""
    if user == FREE:
        return cost.free
    if user == TOTAL:
        return sum_charges([cost.free, *cost.users.values()])
    return cost.users.get("" if user == UNKNOWN_USER else user, Charge())


def as_json(
    groups: Sequence[AccountGroup], by: str, begin: float, end: float, devices: Sequence[StoredDevice] = (),
    prices: Prices | None = None, holder: str = USER,
) -> dict[str, Any]:  # fmt: skip
    """Return the groups as JSON, in seconds and joules. Missing values are null. With `prices`, each row has a `cost`.

    The parameters are described at `lines`. `begin`, `end`: the time window (s since 1970).
    """
    rows = [_group_json(group, holder) for group in groups]
    if prices is not None:
        for row, group in zip(rows, groups, strict=True):
            cost = price_hours(group.hours, devices, prices)
            for account in row["accounts"]:
                account["cost"] = charges.as_json(_charge(account[holder], cost), prices)
            for key, name in (("unknown", UNKNOWN_USER), ("free", FREE), ("total", TOTAL)):
                row[key]["cost"] = charges.as_json(_charge(name, cost), prices)
    return {"schema": SCHEMA, "begin": begin, "end": end, "by": by, "groups": rows}


def csv(
    groups: Sequence[AccountGroup], devices: Sequence[StoredDevice] = (), prices: Prices | None = None,
    holder: str = USER, only: str = "",
) -> Iterator[str]:  # fmt: skip
    """Yield a heading and the groups as lines of CSV. With `prices`, rows end with their cost.

    `only`: if not empty, yield only the rows of this user (or group of users) and of time that was not sampled. The
    other parameters are described at `lines`.
    """
    yield csv_line((*FIELDS, *(charges.FIELDS if prices else ())))
    for group in groups:
        cost = price_hours(group.hours, devices, prices) if prices else None
        for name, row in _csv_rows(group, holder):
            if only and name not in (only, NOT_SEEN):
                continue
            costs = charges.csv_cells(_charge(name, cost), prices) if cost and prices and name != NOT_SEEN else ()
            yield csv_line((*row, *costs))


def _csv_rows(group: AccountGroup, holder: str) -> Iterator[tuple[str, Sequence[Cell]]]:
    """Yield the CSV rows of a group, each with the name that its row has in the text table."""
    use, interval = group.use, _interval(group)
    for account in group.accounts:
        yield account.user, _line(interval, account.user, holder, account.held, account.judged, *_known_values(account))
    rest = group.rest
    if any(rest[1:]):
        yield UNKNOWN_USER, _line(interval, "", "unknown", rest.held, None, rest.busy, None, None, rest.energy)
    if use.free:
        yield FREE, _line(interval, "", "free", use.free, None, None, None, None, use.free_energy)
    if group.unseen:
        yield NOT_SEEN, _line(interval, "", "unseen", group.unseen, None, None, None, None, None)
    whole = use.observed, use.judged, use.busy, use.idle_held, use.metered, use.energy
    yield TOTAL, _line(interval, "", "total", *whole)


def _line(interval: Sequence[Cell], user: str, kind: str, *sums: Cell) -> Sequence[Cell]:
    return (*interval, user, kind, *(round(value, 3) if isinstance(value, float) else value for value in sums))


def _interval(group: AccountGroup) -> tuple[Cell, ...]:
    return group.begin, utc(group.begin), group.end, group.device.uuid if group.device else ""


def _known_values(account: Account) -> tuple[Cell, ...]:
    judged, metered = account.judged > 0, account.metered > 0
    return (
        account.busy if judged else None, account.idle_held if judged else None,
        account.metered, account.energy if metered else None,
    )  # fmt: skip


def _group_json(group: AccountGroup, holder: str) -> dict[str, Any]:
    use, device = group.use, group.device
    return {
        "begin": group.begin,
        "end": group.end,
        "device": {"uuid": device.uuid, "number": device.number, "name": device.name} if device else None,
        "accounts": [_account_json(account, holder) for account in group.accounts],
        "unknown": {"held": group.rest.held, "busy": group.rest.busy, "energy": group.rest.energy},
        "free": {"seconds": use.free, "energy": use.free_energy},
        "unseen": group.unseen,
        "total": {name: getattr(use, name) for name in TOTAL_KEYS},
    }  # fmt: skip


def _account_json(account: Account, holder: str) -> dict[str, Any]:
    busy, idle_held, metered, energy = _known_values(account)
    return {
        holder: account.user, "held": account.held, "judged": account.judged, "busy": busy, "idle_held": idle_held,
        "metered": metered, "energy": energy,
    }  # fmt: skip


def _rows(group: AccountGroup) -> Iterator[Sequence[str]]:
    use, rest = group.use, group.rest
    for account in group.accounts:
        yield _row(account.user, account, account.held)
    if rest.held or rest.busy or rest.energy:
        busy = min(rest.busy, rest.held)
        yield (
            UNKNOWN_USER, hours_text(rest.held) if rest.held else "", hours_text(busy) if busy else "", "",
            energy_text(rest.energy) if rest.energy else "",
        )  # fmt: skip
    if rest.busy > rest.held + _ROUNDING:  # work of known users that cannot be divided among them
        yield NOT_DIVIDED, "", hours_text(rest.busy - rest.held), "", ""
    if use.free:
        yield FREE, hours_text(use.free), "", "", energy_text(use.free_energy)
    if group.unseen:
        yield NOT_SEEN, hours_text(group.unseen), "", "", ""
    whole = Account("", use.observed, use.judged, use.busy, use.idle_held, use.metered, use.energy)
    yield _row(TOTAL, whole, use.observed)


def _row(label: str, account: Account, seconds: float) -> Sequence[str]:
    judged, metered = account.judged, account.metered
    return (
        label, hours_text(seconds), sum_text(account.busy, hours_text, judged, seconds),
        sum_text(account.idle_held, hours_text, judged, seconds),
        sum_text(account.energy, energy_text, metered, seconds),
    )  # fmt: skip


def _label(group: AccountGroup, by: str) -> str:
    device = group.device
    if device is not None:
        return f"{gpu_label(device.uuid, device.number)}  {device.name}" if device.number >= 0 else device.uuid
    if by == "user":
        return ""
    text = units.moment(group.begin)
    return text[:16] if by == "hour" else text[:10]
