"""Queries about a cluster: their PromQL, the interval at which they are sent, and which answers must be replaced
together.

`QUERIES` are for a Prometheus server that scrapes gpumon's exporters. `DCGM_QUERIES` are for a server that scrapes only
NVIDIA's exporter (dcgm-exporter, metric names up to version 4.8). Both use the same query names. NVIDIA's exporter does
not report who uses a GPU. An idle GPU may therefore be free or held, so its state is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpumon.cluster import period_queries
from gpumon.cluster.period_queries import NODE_SAMPLES, hourly_coverage_query, seen_by_hour, summed_by_hour
from gpumon.cluster.rules import (
    CLOCKS,
    CLOCKS_BEFORE,
    DCGM,
    LATE_SAMPLES,
    LISTED,
    NODE_SERIES,
    RULE_FILES,
    RULE_INTERVAL,
    throttled,
)
from gpumon.model.metrics import IDLE
from gpumon.storage.history.tiers import HOUR

STEP = 300
"""Seconds between the samples of subqueries. An hour must be a multiple of this step."""
COARSE = 900
"""Seconds between the samples of subqueries of nodes over a week or longer, if there are no hourly sums. The step is
long because a thousand nodes have many samples."""
_COARSEST = 3600
"""Seconds between the samples of subqueries of nodes over a month. A step of an hour is exact enough, because one
percent of a month is seven hours."""
ABSENCE_INTERVAL = 300.0
"""Queries for the time that nodes were seen are at least this many seconds apart."""
MAX_ABSENT = 32
"""Maximum number of absent nodes whose users are queried. If more nodes are absent, no users are queried."""
_SCRAPES = 30.0
"""Scrape interval of a large cluster in seconds. Values do not change more often."""
_DAY = 24 * HOUR
SMALL = 64
"""Maximum number of nodes of a small cluster, in which each GPU is queried."""
GPUS_PER_NODE = 8
"""If Prometheus has data of GPUs but not of nodes, this many GPUs count as one node."""
MIN_THROTTLED = 0.01
"""Throttling is reported if it lasts for at least this share of the time."""


_RECORD = re.compile(r"\w+:gpumon_\w+:\w+")


class Period(StrEnum):
    """A period over which usage is summed: a time span that ends now, or a calendar month."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    THIS_MONTH = period_queries.THIS_MONTH
    LAST_MONTH = period_queries.LAST_MONTH

    @property
    def is_dated(self) -> bool:
        """True for a calendar month, whose length depends on the date."""
        return self in (Period.THIS_MONTH, Period.LAST_MONTH)

    @property
    def seconds(self) -> float:
        """Length in seconds. A calendar month counts as 30 days."""
        return {Period.DAY: _DAY, Period.WEEK: 7 * _DAY}.get(self, 30 * _DAY)

    @property
    def selector(self) -> str:
        """Length in PromQL. For a calendar month, it is a placeholder that `insert_months` replaces."""
        return self.value if self.is_dated else f"{round(self.seconds / HOUR)}h"

    @property
    def words(self) -> str:
        """Name of the period in a sentence."""
        return {
            Period.MONTH: "the last 30 days", Period.THIS_MONTH: "this month",
            Period.LAST_MONTH: "last month",
        }.get(self, f"the last {self}")  # fmt: skip

    @property
    def heading(self) -> str:
        """Label of the button that selects the period."""
        return "30 days" if self is Period.MONTH else self.value.replace("-", " ").capitalize()


ROLLING = (Period.DAY, Period.WEEK, Period.MONTH)
"""Periods that end now. They are always queried. Calendar months are queried only while someone views them."""
MONTHS = (Period.THIS_MONTH, Period.LAST_MONTH)
BY_HOUR = (Period.WEEK, Period.MONTH, *MONTHS)
"""Periods whose sums may use hourly sums."""
HOURS_QUERY = hourly_coverage_query([period.selector for period in BY_HOUR])
"""Query whose answer has a row for each period that hourly sums cover."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query whose PromQL is fixed, apart from placeholders."""

    name: str
    promql: str
    """The PromQL expression. It reads recorded series where suitable ones exist."""
    every: float = 15.0
    """Seconds between queries in a small cluster while someone views it."""
    is_small: bool = False
    """True if the query is only for small clusters, because the answer has a row for each GPU."""
    by_hour: str = ""
    """The same query over hourly sums, in PromQL. Empty if there are no such sums."""
    selector: str = ""
    """Selector of the query's period, if it can use hourly sums."""
    is_single: bool = False
    """True if the query contains the name of a node or user, and no placeholders."""
    batch: str = ""
    """Name of the query's batch; empty if it has none. The queries of a batch run at the same moment, and their answers
    are replaced together."""
    needs_whole: Period | None = None
    """If Prometheus's samples do not cover this period, the query is skipped."""

    @property
    def needs_rules(self) -> bool:
        """True if the query reads series that recording rules create."""
        return _RECORD.search(self.promql) is not None

    def interval(self, *, is_small: bool) -> float:
        """Return the seconds between two runs of the query.

        In a large cluster, the query runs no more often than its answer can change.
        """
        if is_small:
            return self.every
        return max(self.every, RULE_INTERVAL if self.needs_rules else _SCRAPES)

    def expression(self, hours: Container[str] = ()) -> str:
        """Return the PromQL of the query. `hours`: selectors of the periods for which there are hourly sums."""
        return self.by_hour if self.by_hour and self.selector in hours else self.promql


def hours_batch(period: Period) -> str:
    """Return the name of the batch of queries about held time in a period."""
    return f"hours of {period}"


def energy_batch(period: Period) -> str:
    """Return the name of the batch of queries about energy in a period."""
    return f"energy of {period}"


def refresh_interval(period: Period) -> float:
    """Return the seconds between two runs of queries about a period.

    Queries for sums over a month run less often, because they are the most expensive and the sums change slowly.
    """
    return {Period.DAY: 60.0, Period.WEEK: 300.0, Period.LAST_MONTH: 3600.0}.get(period, 900.0)


def sum_expression(series: str, period: Period) -> str:
    """Return an expression that sums a recorded rate over a period."""
    return f"sum_over_time({series}[{period.selector}]) * {RULE_INTERVAL:g}"


def sum_query(name: str, series: str, period: Period, batch: str, by: str = "user") -> Query:
    """Return a query that sums the recorded rate `series` over a period, by the labels `by`.

    For a period of a day, the query uses no hourly sums.
    """
    by_hour = summed_by_hour(series, by, period.selector) if period in BY_HOUR else ""
    return Query(
        f"{name}_{period}", sum_expression(series, period), refresh_interval(period), by_hour=by_hour,
        selector=period.selector, batch=batch,
    )  # fmt: skip


def _coverage_query(period: Period) -> Query:
    """Return a query for the number of seconds of a period that have samples: the lower number of both rule files."""
    window = period.selector
    first = f"max(count_over_time(job:gpumon_gpu_busy:ratio_rate5m[{window}])) * {RULE_INTERVAL:g}"
    second = f"count_over_time(cluster:gpumon_gpu_power_watts:sum[{window}]) * {RULE_INTERVAL:g}"
    promql = f"{first} < {second} or {second} or {first}"
    if period.is_dated:  # the label has the length of the month
        promql = f'label_replace({promql}, "of", "{period}", "", "")'
    return Query(f"covered_{period}", promql, refresh_interval(period), batch=_coverage_batch(period))


def _coverage_batch(period: Period) -> str:
    """Return the name of the batch of coverage queries of a calendar month. Empty for other periods."""
    return f"known of {period}" if period.is_dated else ""


def _node_coverage_query(period: Period) -> Query:
    """Return a query for the number of seconds of a period in which a node was seen, for the nodes seen least.

    For a period that ends now, the query runs only if Prometheus has samples for the whole period, because it reads the
    samples of every node. For a calendar month, both coverage queries are in one batch.
    """
    window, step = period.selector, {Period.DAY: STEP, Period.WEEK: COARSE}.get(period, _COARSEST)

    def keep_smallest(seconds: str) -> str:
        return f"bottomk({MAX_ABSENT + 1}, {seconds})"

    return Query(
        f"covered_by_node_{period}", keep_smallest(f"count_over_time({NODE_SAMPLES}[{window}:{step}s]) * {step}"),
        max(refresh_interval(period), ABSENCE_INTERVAL),
        by_hour=keep_smallest(seen_by_hour(window)) if period in BY_HOUR else "", selector=window,
        batch=_coverage_batch(period), needs_whole=None if period.is_dated else period,
    )  # fmt: skip


def user_sum_queries(period: Period) -> tuple[Query, ...]:
    """Return the queries for the usage of users in a period."""
    return (
        _coverage_query(period),
        _node_coverage_query(period),
        *(
            sum_query(what, f"user:gpumon_gpus_{what}:rate5m", period, hours_batch(period))
            for what in ("held", "judged", "busy", "idle_held")
        ),
        sum_query("energy", "user:gpumon_power_watts:rate5m", period, energy_batch(period)),
    )


QUERIES: tuple[Query, ...] = (
    # Only nodes that reported nothing new have a row.
    Query("seen", LATE_SAMPLES),
    Query("seen_before", "instance:gpumon_last_sample_timestamp_seconds:gone"),
    Query("clocks", CLOCKS, 60.0),
    # If a node's newest sample no longer changes, the node's current clock offset is wrong.
    Query("clocks_before", CLOCKS_BEFORE, 60.0),
    Query("gpus", "instance_model_state:gpumon_gpus:count"),
    Query("models", "instance_model:gpumon_gpus:several", 60.0),
    Query("down", "instance:gpumon_exporter_down:group", 60.0),
    Query("dcgm_alone", "cluster:gpumon_dcgm_alone:count", 300.0),
    Query("without_daemon", "instance:gpumon_without_daemon:max", 60.0),
    Query("unreal", "cluster:gpumon_unreal_nodes:count", 60.0),
    Query("busy", "instance:gpumon_gpu_utilization:ratio_rate5m", 30.0),
    Query("power", "cluster:gpumon_gpu_power_watts:sum", 30.0),
    Query("held_now", "user:gpumon_gpus_held:count", 30.0),
    Query("idle_now", "user:gpumon_gpus_idle_held:count", 30.0),
    Query("idle_holders", f"topk({LISTED}, instance_gpu_user:gpumon_gpu_idle_held:seconds)", 60.0),
    Query("runs", "run:gpumon_gpus:listed", 30.0),
    Query("run_nodes", "run:gpumon_nodes:listed", 30.0),
    Query("epochs", "run:gpumon_epoch:listed", 30.0),
    Query("planned", "run:gpumon_epochs:listed", 30.0),
    Query(
        "run_places",
        "count by (run, instance) (max by (run, instance, uuid) (gpumon_run_info))",
        every=30.0,
        is_small=True,
    ),
    Query("xids", "max by (instance, gpu, xid) (gpumon_gpu_xid_last_timestamp_seconds > time() - 3600)", every=60.0),
    Query("throttled", f"instance_cause:gpumon_gpu_throttled:ratio_rate5m > {MIN_THROTTLED:g}", 60.0),
    Query("limit", "cluster:gpumon_gpu_power_limit_watts:sum", 30.0),
    Query("energy_of_day", sum_expression("cluster:gpumon_gpu_power_watts:sum", Period.DAY), 300.0),
    Query("busy_of_day", f"avg_over_time(cluster:gpumon_gpu_utilization:ratio_rate5m[{Period.DAY.selector}])", 300.0),
    *(question for period in ROLLING for question in user_sum_queries(period)),
)
SERIES_QUERY = f'count by (__name__) ({{__name__=~"{"|".join((DCGM, *RULE_FILES))}"}} or {NODE_SERIES})'
"""Query for the series of rules and exporters that exist in Prometheus. The values are numbers of GPUs (for DCGM) or of
nodes (for gpumon)."""


def select_period(queries: Sequence[Query], period: Period) -> tuple[Query, ...]:
    """Return the queries, except those that are about other periods than `period`."""
    others = tuple(f"_{other}" for other in Period if other is not period)
    return tuple(query for query in queries if not query.name.endswith(others) or query.name.endswith("_of_day"))


_IDLE_PERCENT = 100 * IDLE
DCGM_ONLY = (
    "Prometheus has only series of NVIDIA's dcgm-exporter, which does not report the users of a GPU: users, runs, "
    "GPU-hours and free GPUs are unknown. Run 'gpumon export' on the nodes to show them."
)
DCGM_QUERIES: tuple[Query, ...] = (
    Query("seen", f"max by (instance) (max_over_time(timestamp({DCGM})[1h:1m]))"),
    Query(
        "gpus",
        f'label_replace(count by (instance) ({DCGM} > {_IDLE_PERCENT:g}), "state", "busy", "", "")'
        f' or label_replace(count by (instance) ({DCGM} <= {_IDLE_PERCENT:g}), "state", "unknown", "", "")',
    ),
    Query(
        "models", f'count by (instance, model) (label_replace({DCGM}, "model", "$1", "modelName", "(.+)"))', every=60.0
    ),
    Query("busy", f"avg by (instance) ({DCGM}) / 100"),
    Query("power", "sum(DCGM_FI_DEV_POWER_USAGE)"),
    Query("last_xid", "max by (instance, gpu) (DCGM_FI_DEV_XID_ERRORS) > 0", every=60.0),
    # Only targets of jobs in which other targets answer, because a target that has never answered has no series but
    # `up`.
    Query(
        "down", f"group by (instance) (up == 0 and on (job) count by (job) (last_over_time({DCGM}[1h])))", every=60.0
    ),
    Query(
        "energy_of_day",
        f"sum(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[{Period.DAY.selector}])) / 1000",
        every=300.0,
    ),
    Query(
        f"covered_{Period.DAY}",
        f"count_over_time((count({DCGM}))[{Period.DAY.selector}:{STEP}s]) * {STEP}",
        every=300.0,
    ),
)


_GPU_EXPRESSIONS = {
    "info": "max by (instance, gpu, model) (gpumon_gpu_info{})",
    "users": "max by (instance, gpu, user) (gpumon_gpu_user_info{})",
    "used": (
        "max by (instance, gpu) (rate(gpumon_gpu_utilization_seconds_total{}[5m])"
        " / rate(gpumon_gpu_utilization_observed_seconds_total{}[5m]))"
    ),
    "idle": "max by (instance, gpu) (gpumon_gpu_idle_seconds{})",
    "silent": "max by (instance, gpu, reason) (gpumon_gpu_unavailable{all})",
}
_NODE_EXPRESSIONS = {
    "newest": "max(gpumon_last_sample_timestamp_seconds{})",
    "memory": "max by (gpu) (gpumon_gpu_memory_used_bytes{})",
    "size": "max by (gpu) (gpumon_gpu_memory_total_bytes{})",
    "power": "max by (gpu) (gpumon_gpu_power_watts{})",
    "temperature": "max by (gpu) (gpumon_gpu_temperature_celsius{})",
    "throttled": f"{throttled('gpu', '{}')} > {MIN_THROTTLED:g}",
    "held_idle": "max by (gpu) (gpumon_gpu_user_idle_seconds{})",
    "runs": (
        "max by (gpu, run, name, user) (max by (instance, uuid, gpu) (gpumon_gpu_info{})"
        " * on (instance, uuid) group_right (gpu) max by (instance, uuid, run, name, user) (gpumon_run_info{}))"
    ),
}
_RUN_GPUS = "max by (run) (gpumon_run_{} and on (instance, run) max by (instance, run) (gpumon_run_info{{}}))"
_USER_EXPRESSIONS = {
    "places": "count by (instance) (max by (instance, uuid) (gpumon_gpu_user_info{}))",
    "jobs": (
        "count by (run, name, slurm_job, instance) (max by (run, name, slurm_job, instance, uuid) (gpumon_run_info{}))"
    ),
    # The queries for all users cover only the listed runs, so runs on few GPUs need these queries.
    "epochs": _RUN_GPUS.format("epoch"),
    "planned": _RUN_GPUS.format("epochs"),
}
_SELECTOR = re.compile(r"\{(all)?\}")
"""Placeholder for label matchers. The placeholder `{all}` also restricts the series to whole GPUs."""


def _select(text: str, matcher: str = "") -> str:
    """Replace the placeholders in an expression by a label matcher.

    All placeholders are replaced in one pass, because the name in a matcher may look like a placeholder.
    """

    def selector(match: re.Match[str]) -> str:
        matchers = ",".join(filter(None, ('metric="all"' if match[1] else "", matcher)))
        return f"{{{matchers}}}" if matchers else ""

    return _SELECTOR.sub(selector, text)


GPU_QUERIES = tuple(
    Query(f"gpu_{name}", _select(text), every=30.0, is_small=True) for name, text in _GPU_EXPRESSIONS.items()
)
"""Queries whose answers have a row for each GPU."""


def node_queries(node: str, raw: str = "") -> tuple[Query, ...]:
    """Return the queries about the GPUs of one node.

    `raw`: name of the node in Prometheus, if `node` is a version cleaned for display.
    """
    matcher = f"instance={quoted(raw or node)}"
    return tuple(
        Query(f"node_{name} {node}", _select(text, matcher), is_single=True)
        for name, text in (_GPU_EXPRESSIONS | _NODE_EXPRESSIONS).items()
    )


def user_queries(user: str, raw: str = "") -> tuple[Query, ...]:
    """Return the queries about one user's nodes and runs.

    `raw`: name of the user in Prometheus, if it differs from `user`.
    """
    matcher = f"user={quoted(raw or user)}"
    return tuple(
        Query(f"user_{name} {user}", f"topk({LISTED}, {_select(text, matcher)})", every=30.0, is_single=True)
        for name, text in _USER_EXPRESSIONS.items()
    )


def quoted(text: str) -> str:
    """Return `text` as a PromQL string literal.

    >>> quoted('a"b')
    '"a\\\\"b"'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
