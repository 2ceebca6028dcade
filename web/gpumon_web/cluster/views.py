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
from gpumon_web.cluster import node, overview, person
from gpumon_web.cluster.data import NOTHING, ClusterNow
from gpumon_web.cluster.person import NAMING
from gpumon_web.components.machine import Now
from gpumon_web.components.page import Args, Cells, Page
from gpumon_web.feed import JsonBody
from gpumon_web.live.values import PageViews

CLUSTER_PAGES: dict[str, Page] = {page.name: page for page in (overview.PAGE, node.PAGE, person.PAGE)}
"""The pages of a cluster in the order of their tabs."""
_WAITING_INTERVAL = 1.0
"""Seconds between requests of a browser that waits for a first answer."""


class ClusterFeed:
    """Provides the poller's snapshots as the ticks of a `live.values.PagedFeed`."""

    def __init__(self, poller: ClusterPoller) -> None:
        self.lock = Lock()
        self.snapshot: ClusterSnapshot = NOTHING
        self.is_awaited = False
        """True while the viewer waits for the first answer to a query of the page."""
        self._poller = poller
        self._boot = secrets.token_hex(4)
        self._newest = 0

    @property
    def boot(self) -> str:
        """Random id of this start of the server, in hexadecimal."""
        return self._boot

    @property
    def newest(self) -> int:
        """The number of the newest snapshot."""
        return self._newest

    def refresh(self) -> None:
        """Read the newest snapshot. The caller holds `lock`."""
        snapshot = self._poller.snapshot()
        if snapshot is not self.snapshot and snapshot.cached:
            self.snapshot = snapshot
            self._newest += 1

    def head(self) -> dict[str, Any]:
        """Return the fields shown at the top of every page, such as `live`, `state` and `age` (s).

        The caller holds `lock`.
        """
        snapshot = self.snapshot
        age = self._poller.silence(snapshot)
        is_empty = model.has_no_series(snapshot.answers()) and not snapshot.is_dcgm
        answers_now = not snapshot.cached or age <= NO_ANSWER
        is_live = answers_now and not is_empty
        is_waking = not answers_now and self._poller.is_waking(snapshot)
        fallback = NO_SERIES if answers_now else "no answer"
        reason = next(iter(snapshot.problems().values()), fallback)
        problem = "querying Prometheus" if is_waking else reason
        is_answered = not is_live or snapshot.is_answered
        return {
            "boot": self._boot,
            "seq": self._newest,
            "live": is_live,
            "state": "live" if is_live and is_answered else problem,
            "answered": is_answered,
            "step": "" if is_live or is_waking else advice(reason, self._poller.server_name),
            "interval": _WAITING_INTERVAL if self.is_awaited or is_waking or not snapshot.cached else TICK,
            "age": None if answers_now or not snapshot.answered else int(age),
            "ended": False,
            "label": _simulation_label(snapshot),
            "problem": "",
            "left_out": "",
        }

    def lines(self, metrics: Mapping[str, tuple[str, str]], since: int, has_past: bool) -> dict[str, Any]:
        """Return no lines: pages of a cluster have no live charts."""
        del metrics, since, has_past
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
        self._settings = ClusterNow(NOTHING, server_name, prices, node_page, groups)

    def now(self) -> Now:
        """Return the live data of the newest snapshot. The caller holds the feed's lock."""
        snapshot = self._cluster.snapshot
        return Now(snapshot.answered, cluster=self._settings._replace(snapshot=snapshot))

    def delta(self, page: Page, args: Args, boot: str, since: int) -> JsonBody:
        """Return the changes for a viewer, and have the poller query the node or user of the page."""
        queries = _SUBJECT_QUERIES.get(page.name)
        months = MONTHS if page.name == "person" else [month for month in MONTHS if month == args.get("period")]
        for month in months:
            self._poller.watch(month, self._month_queries)
        cluster = self._cluster
        with cluster.lock:
            cluster.refresh()
            name = args.get("id", "")
            raw_name = _raw_names(page.name, cluster.snapshot).get(name) if queries else None
            query_names = [f"held_{month}" for month in months]
            query_names += [query.name for query in queries(name, raw_name)] if queries and raw_name is not None else []
            cluster.is_awaited = not cluster.snapshot.is_dcgm and any(
                query_name not in cluster.snapshot.cached for query_name in query_names
            )
        if queries and raw_name is not None:
            self._poller.watch(f"{page.name} {name}", lambda _: queries(name, raw_name))
        return super().delta(page, args, boot, since)

    def _month_queries(self, month: str) -> Sequence[Query]:
        period = Period(month)
        return (*user_sum_queries(period), *cost_queries(self._settings.prices, periods=(period,)))

    def server(self, now: Now) -> Cells:
        """Return the values common to all pages."""
        cluster = now.cluster or ClusterNow()
        users = {user.name for user in model.users(cluster.answers, Period.WEEK)}
        users |= {row.labels.get("user", "") for row in cluster.answers.get("runs", ())}
        return {
            "hostname": cluster.server_name, "users": sorted(users - {""}), "places": self.colors.styles(users),
            "home": "", "has_gpus": True, "runs": [],
        }  # fmt: skip


_SUBJECT_QUERIES: Mapping[str, Callable[[str, str], Sequence[Query]]] = {"node": node_queries, "person": user_queries}
"""Queries about the subject of a page, by the name of the page."""


def _simulation_label(snapshot: ClusterSnapshot) -> str:
    """Return the label for nodes with simulated or replayed data; empty if there are none."""
    count = model.simulated_nodes(snapshot.answers())
    return f"SIMULATED or REPLAY: {units.counted(count, 'node')}" if count else ""


def _raw_names(page: str, snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Return Prometheus's names of nodes or users by displayed name; no other name is queried."""
    query_names, label = (("seen", "seen_before", "gpus"), "instance") if page == "node" else (NAMING, "user")
    answers = snapshot.answers()
    rows = (row for name in query_names for row in answers.get(name, ()))
    return {(display_name := row.labels.get(label, "")): row.raw.get(label, display_name) for row in rows}
