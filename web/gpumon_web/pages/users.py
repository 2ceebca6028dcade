"""The users page: who held the GPUs in a day, a week or a month, what they used of it, and who held which GPU when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from gpumon.caps import CapState
from gpumon.cost import Charge, price_hours
from gpumon.model import units
from gpumon.model.columns import USER_BY_KEY
from gpumon.reports.caps import prospect, usage_text
from gpumon.reports.history import NOT_YET
from gpumon.reports.usage import (
    Headlines,
    device_name,
    energy_text,
    headlines,
    no_rows_text,
    seen,
    unknown_work,
    unreadable,
)
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.period_totals import WINDOW_PERIODS, AccountGroup, UserWindow, find_account
from gpumon_web.components.costs import COSTS, cost_cells, shown_costs
from gpumon_web.components.page import Cells, Column, Page, Rows, StoredSubject, StoredValues, table_column
from gpumon_web.components.tokens import line, link, person, tag, text
from gpumon_web.components.user_rows import (
    GROUP,
    USER,
    account_cells,
    bar_cells,
    day_marks,
    held_course,
    holder_choice,
    now_cells,
    ticks,
)
from gpumon_web.stored.holder_strips import Strip
from gpumon_web.stored.user_hours import Holding, UserHours

if TYPE_CHECKING:
    from dash.development.base_component import Component

FIRST_INTERVAL, CURRENT_INTERVAL, FINISHED_INTERVAL = 5.0, 60.0, 600.0
"""Seconds between requests: before the first hours, while the window is current, and once it is over."""

COLUMNS = (
    table_column(USER_BY_KEY["user"], "rich", css="c-user", sorts_by="name", is_head=True, titled="user_title"),
    table_column(USER_BY_KEY["now"], "rich", css="c-now", sorts_by="count", titled="now_title", csv="gpus_now",
              needs="has_now"),
    table_column(USER_BY_KEY["held"], "rich", css="c-held"),
    Column("course", "Course", "strip", css="c-course", sort=False, titled="course_title"),
    table_column(USER_BY_KEY["used"], "text", css="c-words"),
    table_column(USER_BY_KEY["idle_held"], key="idle", csv="idle_seconds", css=""),
    table_column(USER_BY_KEY["energy"], css=""),
    *COSTS,
    table_column(USER_BY_KEY["note"], "rich", css="c-note", sort=False),
)  # fmt: skip
_UNKNOWN_KEY = " unknown"
"""Key of the row of unknown holders."""
STRIPS = (
    Column("gpu", "GPU", "text", css="c-gpu", sorts_by="order", is_head=True),
    Column("strip", "Who held it", "strip", css="c-strip", sort=False),
)


def layout() -> Component:
    """Create the layout: window, four headlines, a row for each user, and a strip for each GPU."""
    from dash import html

    from gpumon_web.components.layout import (
        aria,
        bound,
        card,
        download,
        headline,
        headlines,
        hidden_if,
        shown_if,
        strip_key,
        table,
    )

    tools = [
        shown_if(
            "holders",
            bound("holders", "choices", html.Div, className="seg", role="group", **aria(label="By user or group")),
        ),
        bound("periods", "choices", html.Div, className="seg", role="group", **aria(label="Window")),
        bound("window", "rich", html.Nav, className="turn", **aria(label="Period")),
        bound("csv", "download", html.Span, className="end"),
        download("users", "Users", period="window_title"),
    ]
    numbers = headlines(
        headline("GPU-hours held", "held", "text", "held_below"),
        headline("Used", "used", "text", "used_below"),
        headline("Allocated, idle", "idle", "text", "idle_below"),
        headline("Not seen", "unseen", "text", "unseen_below"),
        css="four",
    )
    people = table("users", "Users", COLUMNS, "held", css="users", loading="Loading the hours …", empty_from="nobody")
    strips = table("strips", "Who held which GPU", STRIPS, "gpu", css="strips", empty=" ")
    return html.Div(
        [
            html.Div([bound("title", "text", html.H1), bound("everyone", "rich", className="facts")], className="head"),
            html.Div(tools, className="toolbar"),
            bound("problem", "text", html.P, className="empty"),
            shown_if("known", numbers),
            hidden_if("unread", card("Users", people, has_head=False)),
            shown_if(
                "known",
                card(
                    "Who held which GPU",
                    strips,
                    bound("ticks", "ticks", html.Div, className="ticks"),
                    tools=[strip_key()],
                ),
            ),
        ]
    )


def kept(hours: UserHours) -> StoredValues:
    """Compute the window, totals, rows of users and strips of GPUs."""
    window, user, now = hours.window, hours.user, hours.now
    group = seen(hours.group)
    is_over = window.end <= now
    holding = hours.holding if not is_over else {}
    by, problem = GROUP if hours.is_by_group else USER, _problem(hours)
    rows = _add_costs(
        _gpu_rows(hours.gpus if group else (), user, holding, window)
        if user
        else _user_rows(group, hours.days if group else (), holding, window, by),
        hours,
    )
    if not user and not is_over:
        _add_caps(rows, hours.caps, hours, by)
    is_observed = group is not None or hours.group is None
    tab = f"{user}, {window.title}"
    values = {
        **_window_links(window, user, by, now),
        "title": user or "Users",
        "tab": {"text": tab, "old": tab} if user else None,
        "everyone": _own_facts(hours) if user else [],
        **holder_choice(hours.groups, by),
        **({"user_title": "GPU"} if user else {}),
        "now_title": "Now" if user else "GPUs now",
        **({} if group else {"csv": None}),
        "has_now": not is_over,
        **({} if hours.has_history else {"periods": [], "window": [], "holders": []}),  # no windows
        "problem": problem or ("" if is_observed or not rows else NOT_YET),
        "unread": bool(hours.problem),
        "known": group is not None,
        **(
            headlines(group, hours.before, hours.known_devices, window, user)._asdict()
            if group
            else dict.fromkeys(Headlines._fields)
        ),
        "course_title": "By hour" if window.period == "day" else "By day",
        "nobody": _no_rows_text(hours),
        "users": rows,
        **shown_costs(hours.prices),
        "strips": Rows(_strip_row(strip, window, now, user) for strip in hours.strips),
        "ticks": ticks(window),
    }
    unread = problem if hours.problem else ""
    return StoredValues(
        values,
        again=FINISHED_INTERVAL if is_over else CURRENT_INTERVAL if is_observed else FIRST_INTERVAL,
        unread=unread,
    )


def _address(window: UserWindow, user: str, by: str = USER) -> str:
    selection = {"user": user} if user else {"by": by} if by != USER else {}
    return f"#/users?{urlencode({'period': window.period, 'day': window.first_day, **selection})}"


def _window_links(window: UserWindow, user: str, by: str, now: float) -> Cells:
    """Return the choice of windows, and links to the previous and the next one."""
    later, earlier = window.neighbor(1), _address(window.neighbor(-1), user, by)
    forward = link("›", _address(later, user, by), "step", "Later") if later.begin <= now else text("›", "step mut")
    arguments = urlencode({
        "period": window.period, "day": window.first_day, "zone": str(window.zone or ""),
        **({"user": user} if user else {}),
    })  # fmt: skip
    return {
        "periods": [
            {
                "text": period.title(),
                "title": "",
                "is_pressed": period == window.period,
                "arg": "period",
                "value": period,
            }
            for period in WINDOW_PERIODS
        ],
        "window": [line(link("‹", earlier, "step", "Earlier"), text(window.title), forward, css="turns")],
        "window_title": window.title,
        "csv": {"text": "CSV by day", "href": f"api/users.csv?{arguments}"},
    }


def _no_rows_text(hours: UserHours) -> str | Cells:
    if hours.problem:
        return ""
    if not hours.has_history:
        return hours.missing or NOT_YET
    return no_rows_text(hours.group, hours.user)


def _problem(hours: UserHours) -> str:
    if hours.problem:
        return unreadable(hours.problem)
    if hours.window.zone or not hours.has_history:
        return ""
    return "Days begin where the server is: it does not know the time zone of this browser."


def _user_rows(
    group: AccountGroup | None, days: Sequence[AccountGroup], holding: Holding, window: UserWindow, by: str
) -> Rows:  # fmt: skip
    accounts = list(group.accounts) if group else []
    missing = [Account(user) for user in sorted(holding) if user not in {"", *(account.user for account in accounts)}]
    longest = max((account.held for account in (*accounts, *([group.rest] if group else []))), default=0.0)
    tallest = max((account.held for day in days for account in day.accounts), default=0.0)
    rows = [
        {**account_cells(account, held_course(account.user, days, tallest, window), longest),
         **now_cells(_held_now(holding, account.user)), "key": account.user, "name": account.user,
         "user": [line(person(account.user, _address(window, account.user) if by == USER else ""), css="who")]}
        for account in (*accounts, *missing)
    ]  # fmt: skip
    if group and group.rest.held:
        rows.append({**_unknown_row(group.rest, longest), **now_cells(_held_now(holding, ""))})
    return Rows(rows)


def _add_costs(rows: Rows, hours: UserHours) -> Rows:
    """Add the costs of the held hours to the rows, which are users, or the GPUs of one user."""
    prices, user, charges = hours.prices, hours.user, dict[str, Charge]()
    if prices and user:
        for group, _ in hours.gpus:
            if group.device:
                users = price_hours(group.hours, hours.known_devices, prices).users
                charges[group.device.uuid] = users.get(user, Charge())
    elif prices and hours.group:
        charges.update(price_hours(hours.group.hours, hours.known_devices, prices).users)
    for row in rows:
        row.update(cost_cells(charges.get("" if row["key"] == _UNKNOWN_KEY else row["key"]), prices))
    return rows


def _add_caps(rows: Rows, caps: Sequence[CapState], hours: UserHours, by: str) -> None:
    """Add the state of their caps to the notes of users or groups."""
    for row in rows:
        states = [state for state in caps if state.holder == row["key"] and state.is_group == (by == GROUP)]
        row["note"] = [*row.get("note", ()), *(label for state in states for label in _cap_labels(state, hours))]


def _cap_labels(state: CapState, hours: UserHours) -> list[Cells]:
    """Return labels with the used part of a cap, and with the time at which it was or will be reached."""
    labels = [line(tag(usage_text(state, hours.prices)))]
    when = prospect(state, hours.window.zone)
    return [*labels, line(tag(when, "warn"))] if when else labels


def _own_facts(hours: UserHours) -> list[Cells]:
    """Return the link to all users, and the caps that apply to the user of the page."""
    states = hours.caps if hours.window.end > hours.now else ()
    return [
        line(link("everyone", _address(hours.window, ""), "")),
        *(label for state in states for label in _cap_labels(state, hours)),
    ]


def _unknown_row(rest: Account, longest: float) -> Cells:
    """Return the row of unknown holders, whose used time is unknown too."""
    return {
        "key": _UNKNOWN_KEY, "user": [line(text("unknown", "mut"))], "name": None,
        "held": bar_cells("", rest._replace(busy=0.0), longest), "held_seconds": rest.held,
        "used": unknown_work(rest) or units.MISSING, "idle": units.MISSING,
        "energy": energy_text(rest.energy) if rest.energy else units.MISSING, "energy_joules": rest.energy or None,
        "search": "unknown",
    }  # fmt: skip


def _held_now(holding: Holding, user: str) -> tuple[str, int | None]:
    label, uuids = holding.get(user, ("", ()))
    return label, len(uuids) if holding else None


def _is_held_now(holding: Holding, user: str, uuid: str) -> tuple[str, int | None]:
    """Return "held" and whether a user holds a GPU now; unknown if one of its holders is unknown."""
    holds, may_be = (uuid in holding.get(holder, ("", ()))[1] for holder in (user, ""))
    return "held", 1 if holds else None if may_be or not holding else 0


def _gpu_rows(
    groups: Sequence[tuple[AccountGroup, Sequence[AccountGroup]]], user: str, holding: Holding, window: UserWindow
) -> Rows:  # fmt: skip
    """Return a row for each GPU that a user held."""
    longest = max((find_account(group, user).held for group, _ in groups), default=0.0)
    tallest = max((find_account(day, user).held for _, days in groups for day in days), default=0.0)
    return Rows(
        {
            **account_cells(find_account(group, user), held_course(user, days, tallest, window), longest),
            **now_cells(_is_held_now(holding, user, group.device.uuid), "not held"),
            "key": group.device.uuid,
            "name": group.device.number,
            "user": [line(text(device_name(group.device)))],
        }
        for group, days in groups
        if group.device
    )


def _strip_row(strip: Strip, window: UserWindow, now: float, user: str) -> Cells:
    """Return the row with a GPU's holders over time; with a `user`, all others are anonymous."""
    parts = [(slot, holder if user in ("", holder) else "", *shares) for slot, holder, *shares in strip.parts]
    until = (now - window.begin) / (window.end - window.begin)
    return {
        "key": strip.device.uuid,
        "gpu": device_name(strip.device),
        "order": strip.device.number,
        "strip": {
            **strip.cells(), "parts": parts, "until": round(min(1.0, max(0.0, until)), 4), "label": strip.words(),
            "marks": day_marks(window),
        },
    }  # fmt: skip


PAGE = Page(
    "users", "Users", layout, kept=kept, kept_of=StoredSubject.ACCOUNTS,
    kept_args={"period": "", "day": "", "zone": "", "user": "", "by": ""},
)  # fmt: skip
