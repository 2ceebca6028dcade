"""Words for accounts of users, the same in the command, the browser and the terminal: cells of a row, and headlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.cost import WHOLE
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.model.vendors import numbered
from gpumon.reports.not_kept import NOT_YET
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.query import KnownDevice
from gpumon.storage.usage.summary import AccountGroup, UserWindow, account_of, named_use

MOSTLY_IDLE = 0.5
"""The idle share of somebody's hours from which on it is said, of `NOTED` seconds or more."""
NOTED = 3600.0
_ROUNDING = 0.5
"""Seconds that are shown as none: less is not worth telling."""

_Six = tuple[str, str, str, str, str, str]


class Headlines(NamedTuple):
    """Sums of a window, each with the words below it."""

    held: str
    held_below: str
    used: str
    used_below: str
    idle: str
    idle_below: str
    unseen: str
    unseen_below: str


def sum_text(value: float, said: Callable[[float], str], known: float, of: float) -> str:
    """A sum as `said`, marked where a part `of` the time is not known; at least nothing is not known, as of a cost."""
    if known >= WHOLE * of and known:
        return said(value)
    return f"≥ {said(value)}" if known and value else units.MISSING


def ratio_text(share: float) -> str:
    """A share in percent."""
    return units.number(share, Unit.RATIO)


def energy_text(joules: float) -> str:
    """An energy in a unit that suits it."""
    return units.number(joules, Unit.JOULES)


def used_text(account: Account) -> str:
    """The part of the time held that was used."""
    if not account.judged:
        return units.MISSING
    return sum_text(account.busy / account.held, ratio_text, account.judged, account.held)


def idle_text(account: Account) -> str:
    """The time held in which nothing was computed."""
    return sum_text(account.idle_held, units.hours, account.judged, account.held)


def account_energy(account: Account) -> str:
    """The energy of an account."""
    return sum_text(account.energy, energy_text, account.metered, account.held)


def idle_note(account: Account) -> str:
    """Words for somebody whose GPUs were idle for the most part; empty for others."""
    idle = account.idle_held / account.judged if account.judged > 0 else 0.0
    is_idle = idle >= MOSTLY_IDLE and account.idle_held >= NOTED
    return f"idle {ratio_text(idle)} of these hours" if is_idle else ""


def unjudged(account: Account) -> str:
    """Hours held that are neither used nor idle, in words; empty where those two add up to what is shown as held.

    A GPU that does nothing is idle after a minute: before, it may be that its training only begins.
    """
    used = account.busy + account.idle_held
    if not account.judged or units.hours(account.held) == units.hours(used):
        return ""
    return f"{units.hours(account.held - used)} neither: without work for less than a minute, or not known"


def unknown_work(rest: Account) -> str:
    """Work that is in nobody's account, in words; what known holders did of it is told apart."""
    if rest.busy <= rest.held + _ROUNDING:
        return f"{units.hours(rest.busy)} of work" if rest.busy else ""
    undivided = f"{units.hours(rest.busy - rest.held)} not divided"
    return f"{units.hours(rest.held)} of work, {undivided}" if rest.held else f"{undivided} among users"


def device_name(device: KnownDevice) -> str:
    """Name of a GPU as people call it; its UUID where its number is not known."""
    return numbered(device.uuid, device.number) if device.number >= 0 else device.uuid


def seen(group: AccountGroup | None) -> AccountGroup | None:
    """The sums, but those of a daemon that only just began: of what rounds to no time, nothing has a share."""
    return group if group and max(group.use.observed, group.use.metered) >= _ROUNDING else None


def why_nobody(group: AccountGroup | None, user: str = "") -> str:
    """Words in the place of rows: of a window that has none, of everybody or of one user."""
    if seen(group) is None:
        return NOT_YET if group else "Nothing is known of this window."
    return f"{user} held no GPU." if user else "Nobody held a GPU."


def unreadable(problem: str) -> str:
    """Words for a file that is there and cannot be read."""
    return f"The history cannot be read now: {problem}."


def headlines(
    group: AccountGroup, before: AccountGroup | None, devices: Sequence[KnownDevice], window: UserWindow, user: str = ""
) -> Headlines:  # fmt: skip
    """The headlines of a window, beside the one `before` it: of everybody, or of one user."""
    unseen = (units.hours(group.unseen), _since(devices, window)) if group.unseen else ("none", "every GPU was watched")
    if user:
        own, past = account_of(group, user), account_of(before, user)
        return Headlines(*_of_user(own, past, window, group.use.held), *unseen)
    return Headlines(*_of_all(group, before, window), *unseen)


def _of_all(group: AccountGroup, before: AccountGroup | None, window: UserWindow) -> _Six:
    use = group.use
    earlier = before.use.held / before.use.observed if before and before.use.observed else None
    idle = max(group.accounts, key=lambda one: one.idle_held, default=None)
    share_held = f"{ratio_text(use.held / use.observed)} of {units.hours(use.observed)} seen" if use.observed else ""
    named, most = named_use(group.hours), f"the most: {idle.user}, {units.hours(idle.idle_held)}" if idle else ""
    nameless = use.held - named.held
    left_out = f"without {units.hours(nameless)} of unknown holders" if nameless > _ROUNDING else ""
    past = f"the {window.period} before: {ratio_text(earlier)}" if earlier is not None else ""
    return (
        units.hours(use.held),
        "; ".join(filter(None, (share_held, past))),
        sum_text(named.busy / named.held, ratio_text, named.judged, named.held) if named.held else units.MISSING,
        "; ".join(filter(None, (f"of held: {units.hours(named.busy)} of work", unjudged(named), left_out)))
        if named.judged
        else left_out or "not known",
        sum_text(named.idle_held, units.hours, named.judged, named.held),
        "; ".join(filter(None, (most if idle and idle.idle_held >= NOTED else "", left_out))),
    )


def _of_user(account: Account, before: Account, window: UserWindow, all_held: float) -> _Six:
    share_held = f"{ratio_text(account.held / all_held)} of what all held" if all_held else ""
    past = f"the {window.period} before: {units.hours(before.held)}" if before.held else ""
    judged, idle = account.judged, idle_text(account)
    return (
        units.hours(account.held),
        "; ".join(filter(None, (share_held, past))),
        used_text(account),
        "; ".join(filter(None, (f"of held: {units.hours(account.busy)} of work", unjudged(account))))
        if judged
        else "not known",
        idle,
        f"{ratio_text(account.idle_held / judged)} of these hours" if idle != units.MISSING else "",
    )


def _since(devices: Sequence[KnownDevice], window: UserWindow) -> str:
    """Why time was not seen: accounts may begin within the window."""
    first = min((device.first for device in devices), default=window.begin)
    why = "no daemon watched, or a GPU did not answer"
    day = window.day(first) if window.begin < first < window.end else None
    return f"{why}; the first kept hour is {day:%a} {day.day} {day:%b %H:%M}" if day else why
