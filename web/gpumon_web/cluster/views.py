"""The pages of a cluster, computed from the snapshots of one poller for all viewers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from gpumon.cluster import model
from gpumon.cluster.client import NO_SERIES, advice
from gpumon.cluster.cost import cost_queries
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import MONTHS, Period, Query, node_queries, user_queries, user_sum_queries
from gpumon.cluster.snapshot import NO_ANSWER, TICK, ClusterSnapshot
from gpumon.common.config import Prices, UserGroups
from gpumon.model import units
from gpumon_web.cluster.known import NOTHING, ClusterNow
from gpumon_web.cluster.pages import CLUSTER_PAGES
from gpumon_web.cluster.person import NAMING
from gpumon_web.components.page import Args, Cells, Now, Page
from gpumon_web.feed import JsonBody
from gpumon_web.live.values import PageViews

_SOON = 1.0
"""Seconds between requests of a browser that waits for a first answer."""


class ClusterFeed:
    """The poller's snapshots as ticks (`live.values.PagedFeed`)."""

    def __init__(self, poller: ClusterPoller) -> None:
        self.lock = Lock()
        self.snapshot: ClusterSnapshot = NOTHING
        self.is_awaited = False
        """Whether the viewer is waiting for the answer to a pending query."""
        self._poller = poller
        self._boot = secrets.token_hex(4)
        self._newest = 0

    @property
    def boot(self) -> str:
        """Changes with each start of the server."""
        return self._boot

    @property
    def newest(self) -> int:
        """The number of the newest snapshot."""
        return self._newest

    def refresh(self) -> None:
        """Read the newest snapshot. The caller holds `lock`."""
        found = self._poller.snapshot()
        if found is not self.snapshot and found.cached:
            self.snapshot = found
            self._newest += 1

    def head(self) -> dict[str, Any]:
        """Return the state shown at the top of every page. The caller holds `lock`."""
        snapshot = self.snapshot
        age = self._poller.silence(snapshot)
        is_empty = model.has_no_series(snapshot.answers()) and not snapshot.is_dcgm
        answers_now = not snapshot.cached or age <= NO_ANSWER
        is_live = answers_now and not is_empty
        is_waking = not answers_now and self._poller.is_waking(snapshot)
        nothing = NO_SERIES if answers_now else "no answer"
        found = next(iter(snapshot.problems().values()), nothing)
        problem = "asking Prometheus" if is_waking else found
        is_answered = not is_live or snapshot.is_answered
        return {
            "boot": self._boot,
            "seq": self._newest,
            "live": is_live,
            "state": "live" if is_live and is_answered else problem,
            "answered": is_answered,
            "step": "" if is_live or is_waking else advice(found, self._poller.server_name),
            "interval": _SOON if self.is_awaited or is_waking or not snapshot.cached else TICK,
            "age": None if answers_now or not snapshot.answered else int(age),
            "ended": False,
            "label": _unreal(snapshot),
            "problem": "",
            "left_out": "",
        }

    def lines(self, named: Mapping[str, tuple[str, str]], since: int, has_past: bool) -> dict[str, Any]:
        """Return no lines: pages of a cluster have no live charts."""
        del named, since, has_past
        return {"t": [], "lines": {}, "whole": True}


class ClusterViews(PageViews):
    """The pages of a cluster. Thread-safe."""

    def __init__(
        self, poller: ClusterPoller, server_name: str, prices: Prices | None = None, node_page: str = "",
        groups: UserGroups | None = None,
    ) -> None:  # fmt: skip
        self._cluster = ClusterFeed(poller)
        super().__init__(self._cluster, CLUSTER_PAGES)
        self._poller = poller
        self._known = ClusterNow(NOTHING, server_name, prices, node_page, groups)

    def now(self) -> Now:
        """Return the live data of the newest snapshot. The caller holds the feed's lock."""
        snapshot = self._cluster.snapshot
        return Now(snapshot.answered, cluster=self._known._replace(snapshot=snapshot))

    def delta(self, page: Page, args: Args, boot: str, since: int) -> JsonBody:
        """Return the changes for a viewer, and have the poller query the node or user of the page."""
        questions = _SUBJECTS.get(page.name)
        months = MONTHS if page.name == "person" else [one for one in MONTHS if one == args.get("period")]
        for month in months:
            self._poller.watch(month, self._of_month)
        cluster = self._cluster
        with cluster.lock:
            cluster.refresh()
            name = args.get("id", "")
            told = _told(page.name, cluster.snapshot).get(name) if questions else None
            asked = [f"held_{month}" for month in months]
            asked += [one.name for one in questions(name, told)] if questions and told is not None else []
            cluster.is_awaited = not cluster.snapshot.is_dcgm and any(
                one not in cluster.snapshot.cached for one in asked
            )
        if questions and told is not None:
            self._poller.watch(f"{page.name} {name}", lambda _: questions(name, told))
        return super().delta(page, args, boot, since)

    def _of_month(self, month: str) -> Sequence[Query]:
        period = Period(month)
        return (*user_sum_queries(period), *cost_queries(self._known.prices, periods=(period,)))

    def server(self, now: Now) -> Cells:
        """Return the values common to all pages."""
        known = now.cluster or ClusterNow()
        users = {one.name for one in model.users(known.answers, Period.WEEK)}
        users |= {row.labels.get("user", "") for row in known.answers.get("runs", ())}
        return {
            "hostname": known.server_name, "users": sorted(users - {""}), "places": self.colors.styles(users),
            "home": "", "has_gpus": True, "runs": [],
        }  # fmt: skip


_SUBJECTS: Mapping[str, Callable[[str, str], Sequence[Query]]] = {"node": node_queries, "person": user_queries}
"""Queries about the subject of a page, by the name of the page."""


def _unreal(snapshot: ClusterSnapshot) -> str:
    """Return the label for nodes with simulated or replayed data; empty if there are none."""
    count = model.simulated_nodes(snapshot.answers())
    return f"SIMULATED or REPLAY: {units.counted(count, 'node')}" if count else ""


def _told(page: str, snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Return Prometheus's names of nodes or users by displayed name; no other name is queried."""
    asked, label = (("seen", "seen_before", "gpus"), "instance") if page == "node" else (NAMING, "user")
    answers = snapshot.answers()
    rows = (row for name in asked for row in answers.get(name, ()))
    return {(shown := row.labels.get(label, "")): row.raw.get(label, shown) for row in rows}
