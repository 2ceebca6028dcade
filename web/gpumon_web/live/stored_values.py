"""The values of pages from the ledger and the history, compressed for sending, and why there may be none.

The functions that read files run in the worker process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpumon.common.caps import Caps
from gpumon.common.config import Prices, UserGroups
from gpumon.common.numbers import NAN, is_known
from gpumon.common.privacy import SHOWN, current_policy
from gpumon.model.origin import Capability, Origin
from gpumon.reports import run_json
from gpumon.reports.caps import as_json as caps_json
from gpumon.reports.history import NO_HARDWARE
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import RunRow
from gpumon_web.components.page import Cells, Rows, StoredValues
from gpumon_web.components.user_rows import GROUP
from gpumon_web.jobs import UNCHANGED, Packed, compressed, packed
from gpumon_web.pages import PAGES
from gpumon_web.stored.comparison import comparison_document
from gpumon_web.stored.events import EventChoice, count_new_events, read_window
from gpumon_web.stored.holder_strips import Strip, read_last_day
from gpumon_web.stored.run_list import Live, RunFilter, run_list_document
from gpumon_web.stored.run_page import Ring, all_rows, ledger_answer, read_epochs, run_document
from gpumon_web.stored.user_hours import Holding, read_hours, user_caps, users_csv


def list_values(
    paths: Sequence[str], now: float, known_version: Any, page: str, missing: str, not_kept: str, label: str,
    none: str, choice: RunFilter, live: Mapping[str, Live],
) -> Packed | str:  # fmt: skip
    """Return the values of `page` from the list of runs that match `choice`; `missing`: why past runs are missing.

    `not_kept`: why present runs are not stored; `label`: label of the current source; `none`: text for an empty list of
    a recording.
    """
    document, version = run_list_document(paths, live, now, known_version, choice)
    if document is None:
        return UNCHANGED
    values = {**document, "missing": missing, "not_kept": missing or not_kept, "label": label, "none": none}
    return packed(_body(page, values, [run["user"] for run in values["runs"]]), version)


def run_values(
    paths: Sequence[str], now: float, known_version: Any, page: str, run: str, device: str, missing: str,
    not_kept: str, label: str, prices: Prices | None, live: Live | None, ring: Ring | None, is_awaited: bool,
) -> Packed | str:  # fmt: skip
    """Return the values of `page` from one run. The page itself reports an unknown run, with the reason `missing`.

    `not_kept`: why only the ring has data of the run; `label`: label of the current source; `is_awaited`: no frame has
    arrived yet, so the run may still appear.
    """
    document, version = run_document(paths, run, device, live, ring, now, known_version, prices)
    if document is None:
        return UNCHANGED
    values = {
        "run": None, **document, "id": run, "now": now, "label": label, "is_awaited": is_awaited,
        "missing": missing or ("" if "total" in document else not_kept),
    }  # fmt: skip
    return packed(_body(page, values, [values["run"]["user"]] if values["run"] else []), version)


def comparison_answer(
    paths: Sequence[str], now: float, known_version: Any, ids: str, by: str, missing: str
) -> Packed:  # fmt: skip
    """Return the comparison of runs as JSON; `missing` explains why past runs are missing."""
    del known_version  # a comparison has no version
    document = comparison_document(paths, ids, by, now)
    return packed({**document, "missing": missing if document["gone"] else ""})


def account_values(
    paths: Sequence[str], now: float, page: str, selection: Sequence[str], holding: Holding, missing: str | Cells,
    prices: Prices | None = None, groups: UserGroups | None = None, caps: Caps | None = None,
) -> Packed:  # fmt: skip
    """Return the values of `page` from the accounts of a window; `missing` explains why there are none, or is empty.

    `selection`: period, day, time zone, user, and whether rows are groups. Groups are not shown unless the policy shows
    names: a small group would reveal its members.
    """
    period, day, zone, user, by = selection
    own_caps = user_caps(paths, caps, groups, prices, user, now) if caps else []
    groups = groups if current_policy().way == SHOWN and not user else None
    is_by_group = groups is not None and by == GROUP
    hours = replace(
        read_hours(paths, period, day, zone, user, now, holding, groups if is_by_group else None),
        missing=missing, prices=prices, groups=groups, is_by_group=is_by_group, caps=own_caps,
    )  # fmt: skip
    users = [account.user for account in hours.group.accounts] if hours.group else []
    return packed(_body(page, hours, [*users, *hours.holding]))


def caps_answer(
    paths: Sequence[str], now: float, caps: Caps | None, groups: UserGroups | None, prices: Prices | None
) -> Packed:
    """Return the state of each cap on usage as JSON."""
    return packed(caps_json(user_caps(paths, caps, groups, prices, "", now) if caps else [], prices))


def event_values(
    paths: Sequence[str], now: float, page: str, choice: EventChoice, missing: str | Cells,
    running: frozenset[str] | None = None,
) -> Packed:  # fmt: skip
    """Return the values of `page` from the events of a window; `missing` explains why there are none, or is empty.

    `running`: ids of the runs that are running in the newest sample; None if there is none.
    """
    found = read_window(paths, choice, now, missing, running)
    return packed(_body(page, found, [*_holders(found.strips), *(event.event.subject.user for event in found.events)]))


def day_values(paths: Sequence[str], now: float, page: str) -> Packed:
    """Return the values of `page` from the last 24 hours, and the `people` that a viewer can choose as themselves."""
    day = read_last_day(paths, now)
    return packed({**_body(page, day, _holders(day.strips)), "people": day.people})


def _holders(strips: Sequence[Strip]) -> list[str]:
    return [holder for strip in strips for _, holder, *_ in strip.parts]


def new_events(paths: Sequence[str], now: float, since: float | None) -> Packed:
    """Return the number of events since `since` (s since 1970) that need attention; None: of no time."""
    return packed({"count": 0 if since is None else count_new_events(paths, since, now)})


def accounts_csv(paths: Sequence[str], now: float, selection: Sequence[str], prices: Prices | None = None) -> Packed:
    """Return the accounts of a window as CSV; `selection`: period, day, time zone and user, empty for all users."""
    period, day, zone, user = selection
    return Packed(compressed(users_csv(paths, period, day, zone, user, now, prices)))


def remaining_run_values(
    paths: Sequence[str], now: float, known_version: Any, page: str, run: str, prices: Prices | None
) -> Packed | str:
    """Return all rows of the tables for which `run_values` returns the newest ones.

    A long run has rows for some of its epochs only.
    """
    del now  # the rows are those of the newest write

    def make(ledger: Ledger, row: RunRow) -> Packed:
        run_epochs = read_epochs(ledger, row.id, reads_all=prices is not None)
        run = run_json.run_to_json(run_epochs.record.run, row.updated)
        document = {"run": run, **all_rows(run_epochs.record, prices, run_epochs.long)}
        rest = PAGES[page].rest
        assert rest is not None
        return packed(_encode(rest(document)))

    return ledger_answer(paths, run, known_version, make)


def _body(page: str, document: Any, users: Iterable[str | None]) -> Cells:
    compute = PAGES[page].kept
    assert compute is not None
    return _encode(compute(document), users)


def _encode(stored: StoredValues, users: Iterable[str | None] = ()) -> Cells:
    tables = {name: rows for name, rows in stored.values.items() if isinstance(rows, Rows)}
    return {
        "values": {name: value for name, value in stored.values.items() if name not in tables},
        "tables": {
            name: {
                "order": [row["key"] for row in rows],
                "cells": {row["key"]: row for row in rows},
                "total": max(stored.totals.get(name, 0), len(rows)),
            }
            for name, rows in tables.items()
        },
        "figures": dict(stored.figures),
        "users": sorted({user for user in users if user}),
        "again": stored.again,
        **({"unread": stored.unread} if stored.unread else {}),
    }


def why_no_history(origin: Origin, begun: float = NAN) -> str | dict[str, Any]:
    """Return the text that a daemon only stores history of hardware; empty if `origin` is hardware.

    `begun`: time of the first sample (s since 1970), which the scripts show in the viewer's time zone.
    """
    if Capability.LIVE in origin.capabilities:
        return ""
    return {"text": f"{NO_HARDWARE} Its charts go back to", "time": begun} if is_known(begun) else NO_HARDWARE


def why_none_listed(origin: Origin, *, is_moment: bool) -> str:
    """Return the text for an empty list of runs in a recording; empty for other origins.

    `is_moment`: the list only has the runs at one position of the recording.
    """
    if Capability.NOW in origin.capabilities:
        return ""
    if Capability.PROCESSES not in origin.capabilities:  # such as a log
        return f"This recording has no data about runs{' at this moment' if is_moment else ''}."
    if is_moment:
        return "No run at this moment of the recording."
    return "This recording has no runs." if origin.ended else "No runs in this recording so far."


def why_no_runs(origin: Origin) -> str:
    """Return why no run is stored when the daemon plays `origin`; empty if it is live hardware."""
    return "" if Capability.LIVE in origin.capabilities else "The daemon records no runs of a recording or simulation."
