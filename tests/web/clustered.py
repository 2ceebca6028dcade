"""The app of a cluster over a Prometheus server of our own making, asked without a browser."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from dash import Dash

from gpumon.cluster import period_queries
from gpumon.cluster.client import PrometheusAnswer, PrometheusError, PrometheusSeries
from gpumon.cluster.cost import cost_queries
from gpumon.cluster.period_queries import insert_months
from gpumon.cluster.poller import ClusterPoller, QueryClient
from gpumon.cluster.queries import (
    GPU_QUERIES,
    MONTHS,
    QUERIES,
    SERIES_QUERY,
    Query,
    node_queries,
    user_queries,
    user_sum_queries,
)
from gpumon.cluster.rules import RULE_FILES
from gpumon.common.config import Prices, UserGroups
from gpumon_web.app import make_cluster_app
from gpumon_web.auth.gate import Gate
from gpumon_web.cluster.views import CLUSTER_PAGES, ClusterViews
from tests.web.asked import Client

NOW = 1_800_000_000.0
HOST = "127.0.0.1:8050"
ENGINE = "http://prom:9090"
PRICES = Prices("EUR", {"H100": 2.0, "L40S": 0.5}, (0.1,) * 8 + (0.3,) * 12 + (0.1,) * 4, 1.2, 400.0)
"""Two models, and electricity that is dear by day."""
ALL_ASKED = (*QUERIES, *GPU_QUERIES, *cost_queries(PRICES, 3600.0))
MONTHLY = (*(one for month in MONTHS for one in user_sum_queries(month)), *cost_queries(PRICES, periods=MONTHS))


def row(value: float, **labels: str) -> PrometheusSeries:
    return PrometheusSeries(labels, value)


def of_gpus(node: str) -> dict[str, list[PrometheusSeries]]:
    """A node of eight GPUs: three busy, two idle, one lost, two free."""

    def each(value: float, *gpus: int, **labels: str) -> list[PrometheusSeries]:
        return [row(value, instance=node, gpu=str(gpu), **labels) for gpu in gpus]

    return {
        "info": each(1.0, *range(8), model="NVIDIA H100"),
        "users": each(1.0, 0, 1, 2, user="ada") + each(1.0, 3, 4, user="bob"),
        "used": each(0.9, 0, 1, 2) + each(0.0, 3, 4, 6, 7),
        "idle": each(7200.0, 3, 4, 6, 7),
        "held_idle": each(300.0, 3, 4),
        "silent": each(1.0, 5, reason="lost"),
        "memory": each(2.0**35, 0, 1, 2, 3, 4),
        "size": each(2.0**36, *range(5)),
        "power": each(650.0, 0, 1, 2),
        "temperature": each(66.0, 0, 1, 2),
        "throttled": each(0.4, 1, cause="heat"),
        "runs": each(1.0, 0, 1, 2, run="r1", name="moe", user="ada"),
    }  # fmt: skip


def cluster(nodes: int) -> dict[str, list[PrometheusSeries]]:
    """Answers of a cluster of so many such nodes, the last of which is silent, with users and runs."""
    names = [f"gn{number:03}" for number in range(1, nodes + 1)]
    found: dict[str, list[PrometheusSeries]] = {
        "seen": [row(NOW - (600 if name == names[-1] else 3), instance=name) for name in names],
        "gpus": [row(count, instance=name, state=state) for name in names
                 for state, count in (("free", 2), ("busy", 3), ("held_idle", 2), ("lost", 1))],
        "models": [row(8, instance=name, model="NVIDIA H100 80GB HBM3") for name in names],
        "busy": [row(0.41234, instance=name) for name in names],
        "power": [row(2345.678 * (nodes - 1))],
        "runs": [row(3.0 * (nodes - 1), run="r1", name="moe", user="ada", slurm_job="88")],
        "run_nodes": [row(nodes - 1.0, run="r1")],
        "epochs": [row(4.0, run="r1")],
        "planned": [row(40.0, run="r1")],
        "idle_holders": [row(7200.0, instance=name, gpu=gpu, user="bob") for name in names[:100] for gpu in "34"],
        "held_now": [row(3.0, user="ada"), row(2.0, user="bob")],
        "idle_now": [row(0.0, user="ada"), row(2.0, user="bob")],
        "xids": [row(NOW - 60, instance=names[0], gpu="5", xid="79")],
        "throttled": [row(0.4, instance=names[0], cause="heat")],
        "limit": [row(5600.0 * nodes)],
        "energy_of_day": [row(2e8 * nodes)],
        "busy_of_day": [row(0.5)],
        "user_places ada": [row(3.0, instance=names[0])],
        "user_jobs ada": [row(3.0, run="r1", name="moe", slurm_job="88", instance=names[0])],
        "user_epochs ada": [row(4.0, run="r1")],
        "user_planned ada": [row(40.0, run="r1")],
    }  # fmt: skip
    lengths = {"day": 24.0, "week": 168.0, "month": 720.0, "this-month": 340.0, "last-month": 744.0}
    for period, hours in lengths.items():
        found[f"held_{period}"] = [row(3600 * hours * 3, user="ada"), row(3600 * hours * 2, user="bob")]
        found[f"covered_{period}"] = [row(3600 * hours, **({"of": f"{3600 * hours:.0f}"} if "-" in period else {}))]
        found[f"covered_by_node_{period}"] = [row(3600 * hours, instance=name) for name in names[:33]]
        found[f"judged_{period}"] = found[f"held_{period}"]
        found[f"busy_{period}"] = [row(3600 * hours * 2.7, user="ada")]
        found[f"idle_held_{period}"] = [row(0.0, user="ada"), row(3600 * hours * 2, user="bob")]
        found[f"held_by_model_{period}"] = [
            row(3600 * hours * 2, user="ada", model="NVIDIA H100 80GB HBM3"),
            row(3600 * hours, user="ada", model="NVIDIA L40S"),
            row(3600 * hours * 2, user="bob", model="Tesla T4"),
        ]
        found[f"idle_held_by_model_{period}"] = [row(3600 * hours, user="ada", model="NVIDIA L40S")]
        found[f"energy_at_0_{period}"] = [row(3600 * hours * 900, user="ada")]
        found[f"energy_at_1_{period}"] = [row(3600 * hours * 900, user="ada")]
        found[f"energy_{period}"] = [row(3600 * hours * 1800, user="ada")]
    for what, rows in of_gpus(names[0]).items():
        found[f"node_{what} {names[0]}"] = rows
    if nodes <= 64:
        for what in ("info", "users", "used", "idle", "silent"):
            found[f"gpu_{what}"] = [one for name in names for one in of_gpus(name)[what]]
            found["run_places"] = [row(3.0, run="r1", instance=name) for name in names[:-1]]
    return found


class TableEngine:
    """Answers from a table by the names of questions; those in `broken` fail, and `down` fails all."""

    name = ENGINE

    def __init__(self, answers: dict[str, list[PrometheusSeries]], names: Iterable[str] | None = None) -> None:
        self.answers = answers
        self.names = ["gpumon_gpus", *RULE_FILES] if names is None else list(names)
        self.broken: set[str] = set()
        self.down = ""
        self.asked: list[str] = []
        self.clock = 0.0
        """Seconds by which its clock is ahead."""
        seen = [one.labels["instance"] for one in answers.get("seen", ())][:1]
        known = [
            *ALL_ASKED,
            *(one for name in seen for one in node_queries(name)),
            *user_queries("ada"),
            *user_queries("bob"),
        ]
        self._by_text = {text: one.name for one in known for text in (one.promql, one.by_hour) if text}
        self._dated = [(one.name, text) for one in MONTHLY for text in (one.promql, one.by_hour) if text]

    def clock_offset(self) -> float:
        return self.clock

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        self.asked.append(expression)
        months = (
            name for name, text in self._dated if period_queries.insert_clock(insert_months(text, at), at) == expression
        )
        name = self._by_text.get(expression) or next(months, "")
        if self.down or name in self.broken:
            raise PrometheusError(self.down or "Prometheus says: out of memory (422)")
        if expression == SERIES_QUERY:
            return PrometheusAnswer([row(1.0, __name__=one) for one in self.names])
        return PrometheusAnswer(self.answers.get(name, []))


class Cluster:
    """An app of a cluster, whose poller asks when a test says so."""

    def __init__(
        self, engine: QueryClient, prices: Prices | None = None, node_page: str = "", groups: UserGroups | None = None,
        asked: Sequence[Query] = ALL_ASKED,
    ) -> None:  # fmt: skip
        self.engine = engine
        self.passed = 0.0
        self.poller = ClusterPoller(engine, asked, lambda: self.passed, lambda: NOW + self.passed)
        self.views = ClusterViews(self.poller, engine.name, prices, node_page, groups)
        self.app: Dash = make_cluster_app(self.views, CLUSTER_PAGES, Gate(None, port=8050))

    def after(self, seconds: float) -> Cluster:
        """Let time pass, and ask what is due then."""
        self.passed += seconds
        self.poller.snapshot()
        self.poller.round()
        return self

    @property
    def client(self) -> Client:
        return Client(self.app.server)

    def raw(self, page: str = "cluster", **args: str) -> bytes:
        """The bytes that a browser gets that opens a page."""
        query = {"page": page, "boot": "", "since": "0", **args}
        answer = self.client.get("/api/delta", query_string=query, headers={"Host": HOST})
        assert answer.status_code == 200, answer.data
        return bytes(answer.data)

    def page(self, page: str = "cluster", **args: str) -> dict[str, Any]:
        """What is in them."""
        found: dict[str, Any] = json.loads(self.raw(page, **args))
        return found

    def values(self, page: str = "cluster", **args: str) -> dict[str, Any]:
        found: dict[str, Any] = self.page(page, **args)["values"]
        return found

    def rows(self, table: str, page: str = "cluster", **args: str) -> list[dict[str, Any]]:
        found = self.page(page, **args)["tables"][table]
        return [found["cells"][key] for key in found["order"]]
