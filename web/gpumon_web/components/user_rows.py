"""Parts of the users page, some shared with other pages: accounts, held time by day, strips of holders."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from gpumon.common.config import UserGroups
from gpumon.model import units
from gpumon.reports.usage import account_energy, hours_text, idle_note, idle_text, used_text
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.period_totals import AccountGroup, UserWindow, find_account
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import bar, line, share, tag, text

USER, GROUP = "user", "group"
_TITLES = {USER: "Users", GROUP: "Groups"}


def holder_choice(groups: UserGroups | None, by: str) -> Cells:
    """Return the buttons that switch between users and groups, if there are groups, and the column's heading."""
    chosen = by if groups and by in _TITLES else USER
    return {
        "holders": [
            {"text": words, "title": "", "is_pressed": value == chosen, "arg": "by", "value": value}
            for value, words in _TITLES.items()
        ] if groups else [],
        "user_title": chosen.title(),
    }  # fmt: skip


MAX_TICKS = 8
"""Most day labels below the strips."""


def now_cells(held: tuple[str, int | None], none: str = "none") -> Cells:
    """Return the GPUs held now, as text, and their count; `none` is shown for no GPU, and "–" if unknown.

    A single number is prefixed with "GPU", because it would be taken for a count.
    """
    words, count = held
    if count:
        shown = line(tag(f"GPU {words}" if words.isdecimal() else words, is_now=True), css="labels")
    else:
        shown = line(text(units.MISSING if count is None else none, "mut", is_now=count is not None))
    return {"now": [shown], "count": count}


def account_cells(account: Account, strip: Cells, longest: float) -> Cells:
    """Return the cells of an account."""
    is_judged, idle = account.judged > 0, idle_text(account)
    note = idle_note(account)
    return {
        "held": bar_cells(account.user, account, longest) if account.held else [line(text(units.MISSING, "mut"))],
        "held_seconds": account.held,
        "course": strip,
        "used": used_text(account),
        "used_ratio": account.busy / account.held if is_judged else None,
        "idle": idle,
        "idle_held_seconds": account.idle_held if idle != units.MISSING else None,
        "energy": account_energy(account),
        "energy_joules": account.energy if account.metered else None,
        "note": [line(tag(note, "warn"))] if note else [],
    }


def bar_cells(user: str, account: Account, longest: float) -> list[Cells]:
    """Return hours as a number and a bar: used time solid, idle held time in a tint."""
    length = longest or inf
    solid, tint = share(account.busy / length, user=user), share((account.held - account.busy) / length, user=user)
    number = text(hours_text(account.held), "number")
    return [line(number, bar(solid, {**tint, "opacity": 0.25}, css="bar hours"), css="quantity")]


def held_course(user: str, days: Sequence[AccountGroup], tallest: float, window: UserWindow) -> Cells:
    """Return a user's hours per day, relative to `tallest`, the largest of all users."""
    begins = window.days()
    slots = round((window.end - window.begin) / 3600) if window.period == "day" else len(begins)
    parts = []
    for day in days:
        account = find_account(day, user)
        if not account.held:
            continue
        if window.period == "day":
            slot = int((day.begin - window.begin) // 3600)
        else:
            slot = bisect_right(begins, day.begin) - 1
        busy = round(100 * account.busy / tallest) if account.judged else None
        parts.append([max(slot, 0), user, max(1, round(100 * account.held / tallest)), busy])
    unit = "hours" if window.period == "day" else "days"
    label = f"{len(parts)} of {slots} {unit} with GPUs"
    return {"slots": slots, "parts": parts, "unseen": [], "until": 1, "is_bars": True, "label": label}


def _shares(window: UserWindow) -> list[float]:
    """Return the begins of days and the end of the window, as fractions of the window."""
    return [(edge - window.begin) / (window.end - window.begin) for edge in (*window.days(), window.end)]


def day_marks(window: UserWindow) -> list[float]:
    """Return the begins of days inside the window, as fractions of it."""
    return [round(edge, 5) for edge in _shares(window)[1:-1]]


def ticks(window: UserWindow) -> list[Cells]:
    """Return the labels below the strips: hours of a single day, else days, each centered on its day."""
    if window.period == "day":
        hours = range(0, round((window.end - window.begin) / 3600), 3)
        return [{"at": hour * 3600 / (window.end - window.begin),
                 "text": f"{window.local_time(window.begin + hour * 3600):%H:%M}"} for hour in hours]  # fmt: skip
    edges, begins = _shares(window), window.days()
    step = -(-len(begins) // MAX_TICKS)
    return [
        {"at": round((edges[index] + edges[index + 1]) / 2, 5), "text": f"{window.local_time(begins[index]):%a %-d}"}
        for index in range(0, len(begins), step)
    ]
