"""The values of pages from the ledger and the history, compressed for sending, and why there may be none.

The functions that read files run in the worker process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.common.config import Prices, UserGroups
from gpumon.common.numbers import NAN, is_known
from gpumon.common.privacy import SHOWN, current_policy
from gpumon.model.origin import Capability, Origin
from gpumon.reports import run_json
from gpumon.reports.missing_history import NO_HARDWARE
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import RunRow
from gpumon_web.components.page import Cells, Rows, StoredValues
from gpumon_web.components.user_rows import GROUP, USER
from gpumon_web.jobs import UNCHANGED, Packed, compressed, packed
from gpumon_web.pages import PAGES
from gpumon_web.stored.comparison import comparison_document
from gpumon_web.stored.events import count_new_events, events_document
from gpumon_web.stored.holder_strips import day_document
from gpumon_web.stored.run_list import Live, RunFilter, run_list_document
from gpumon_web.stored.run_page import Ring, all_rows, ledger_answer, read_epochs, run_document
from gpumon_web.stored.user_hours import Holding, users_csv, users_document


def list_values(
    paths: Sequence[str], live: Mapping[str, Live], now: float, known: Any, page: str, missing: str,
    not_kept: str, label: str, none: str, *chosen: str,
) -> Packed | str:  # fmt: skip
    """Values of `page` from the list of runs selected by `chosen`; `missing`: why past runs are missing.

    `not_kept`: why present runs are not stored; `label`: label of the current source; `none`: text for an empty list of
    a recording.
    """
    document, version = run_list_document(paths, live, now, known, RunFilter(*chosen))
    if document is None:
        return UNCHANGED
    found = {**document, "missing": missing, "not_kept": missing or not_kept, "label": label, "none": none}
    return packed(_body(page, found, found["runs"]), version)


def run_values(
    paths: Sequence[str], run: str, device: str, live: Live | None, ring: Ring | None, now: float, known: Any,
    page: str, missing: str, not_kept: str, label: str, prices: Prices | None = None, is_awaited: bool = False,
) -> Packed | str:  # fmt: skip
    """Values of `page` from one run. The page itself reports an unknown run, with the reason `missing`.

    `not_kept`: why only the ring has data of the run; `label`: label of the current source; `is_awaited`: no frame has
    arrived yet, so the run may still appear.
    """
    document, version = run_document(paths, run, device, live, ring, now, known, prices)
    if document is None:
        return UNCHANGED
    why = missing or ("" if "total" in document else not_kept)
    found = {"run": None, **document, "id": run, "now": now, "missing": why, "label": label, "is_awaited": is_awaited}
    return packed(_body(page, found, [found["run"]] if found["run"] else []), version)


def comparison_values(paths: Sequence[str], asked: str, by: str, now: float, page: str, missing: str) -> Packed:
    """Values of `page` from the runs to compare. The page itself reports unknown ones."""
    found = comparison_document(paths, asked, by, now)
    return packed(_body(page, {**found, "missing": missing if found["gone"] else ""}, found["runs"]))


def account_values(
    paths: Sequence[str], period: str, day: str, zone: str, user: str, by: str, now: float, page: str,
    holding: Holding, missing: str | Cells, prices: Prices | None = None, groups: UserGroups | None = None,
) -> Packed:  # fmt: skip
    """Values of `page` from the accounts of a window; `missing` explains why there are none, or is empty.

    Groups are not shown unless the policy shows names: a small group would reveal its members.
    """
    groups = groups if current_policy().way == SHOWN and not user else None
    chosen = groups if by == GROUP else None
    found = {**users_document(paths, period, day, zone, user, now, holding, chosen), "missing": missing,
             "prices": prices, "groups": groups, "by": GROUP if chosen else USER}  # fmt: skip
    group = found["group"]
    users = [{"user": one.user} for one in group.accounts] if group else []
    return packed(_body(page, found, [*users, *({"user": user} for user in found["holding"])]))


def event_values(
    paths: Sequence[str], window: str, group: str, gpu: str, user: str, words: str, now: float, page: str,
    missing: str | Cells,
) -> Packed:  # fmt: skip
    """Values of `page` from the events of a window; `missing` explains why there are none, or is empty."""
    found = events_document(paths, window, now)
    users = [{"user": part[1]} for strip in found["strips"] for part in strip["parts"]]
    users += [{"user": one.event.subject.user} for one in found["events"]]
    return packed(
        _body(page, {**found, "group": group, "gpu": gpu, "user": user, "q": words, "missing": missing}, users)
    )


def day_values(paths: Sequence[str], now: float, page: str) -> Packed:
    """Values of `page` from the last 24 hours of each GPU, and the `people` that a viewer can choose as themselves."""
    document = day_document(paths, now)
    users = [{"user": part[1]} for strip in document["strips"] for part in strip["parts"]]
    return packed({**_body(page, document, users), "people": document["people"]})


def new_events(paths: Sequence[str], since: str, now: float) -> Packed:
    """The number of events since `since` (s since 1970) that need attention."""
    return packed({"count": count_new_events(paths, float(since or "inf"), now)})


def accounts_csv(
    paths: Sequence[str], period: str, day: str, zone: str, user: str, now: float, prices: Prices | None = None
) -> Packed:
    """The accounts of a window as CSV: of all users, or of `user`."""
    return Packed(compressed(users_csv(paths, period, day, zone, user, now, prices)))


def remaining_run_values(
    paths: Sequence[str], run: str, known: Any, page: str, prices: Prices | None = None
) -> Packed | str:
    """All rows of the tables of which `of_run` has the newest; a long run has rows for some of its epochs only."""

    def made(ledger: Ledger, row: RunRow) -> Packed:
        read = read_epochs(ledger, row.id, is_each=prices is not None)
        run = run_json.run_to_json(read.record.run, row.updated)
        document = {"run": run, **all_rows(read.record, prices, read.long)}
        rest = PAGES[page].rest
        assert rest is not None
        return packed(_encode(rest(document), []))

    return ledger_answer(paths, run, known, made)


def _body(page: str, document: Cells, runs: Sequence[Cells]) -> Cells:
    kept = PAGES[page].kept
    assert kept is not None
    return _encode(kept(document), runs)


def _encode(found: StoredValues, runs: Sequence[Cells]) -> Cells:
    tables = {name: rows for name, rows in found.values.items() if isinstance(rows, Rows)}
    return {
        "values": {name: value for name, value in found.values.items() if name not in tables},
        "tables": {
            name: {
                "order": [row["key"] for row in rows],
                "cells": {row["key"]: row for row in rows},
                "total": max(found.totals.get(name, 0), len(rows)),
            }
            for name, rows in tables.items()
        },
        "figures": dict(found.figures),
        "users": sorted({run["user"] or "" for run in runs} - {""}),
        "again": found.again,
        **({"unread": found.unread} if found.unread else {}),
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
        return f"This recording does not tell of runs{' at this moment' if is_moment else ''}."
    if is_moment:
        return "No run at this moment of the recording."
    return "This recording has no runs." if origin.ended else "No runs in this recording so far."


def why_no_runs(origin: Origin) -> str:
    """Return why no run is stored when the daemon plays `origin`; empty if it is live hardware."""
    return "" if Capability.LIVE in origin.capabilities else "Its daemon has kept no run of this."
