"""Questions to a site with NVIDIA's exporter alone (dcgm-exporter, names up to 4.8), by the names of our own.

It does not tell who holds a GPU: what does nothing may be free or held, and is neither here.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from enum import StrEnum
from typing import NamedTuple

from gpumon.cluster import period_queries
from gpumon.cluster.period_queries import NODES, looked_for, seen_by_hour, summed_by_hour
from gpumon.cluster.rules import (
    CLOCKS,
    CLOCKS_BEFORE,
    DCGM,
    LATE,
    LISTED,
    RULE_FILES,
    RULE_INTERVAL,
    TOLD,
    throttled,
)
from gpumon.model.metrics import IDLE
from gpumon.storage.history.tiers import HOUR

STEP = 300
"""Seconds between samples of what is summed up in steps; it divides an hour."""
COARSE = 900
"""The same of nodes in a week or longer, where sums by the hour know less: of a thousand there are many."""
_COARSEST = 3600
"""The same in a month, of which a hundredth is seven hours."""
AWAY_EVERY = 300.0
"""Seconds after which it is asked at the earliest how long nodes were seen."""
AWAY = 32
"""Nodes not seen in all of a period, up to which it is asked who was on them."""
_SCRAPES = 30.0
"""Seconds between scrapes of a large cluster: what its exporters tell changes no more often."""
_DAY = 24 * HOUR
SMALL = 64
"""Nodes up to which each GPU is asked for by itself."""
GPUS_OF_NODE = 8
"""GPUs that count as a node, where nothing but GPUs is told."""
THROTTLED = 0.01
"""Share of time from which on a throttled node is told."""


_RECORD = re.compile(r"\w+:gpumon_\w+:\w+")


class Period(StrEnum):
    """A window of users' hours: up to now, or a month of the calendar."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    THIS_MONTH = period_queries.THIS
    LAST_MONTH = period_queries.LAST

    @property
    def is_dated(self) -> bool:
        """Whether it is of the calendar: its length is known when it is asked for."""
        return self in (Period.THIS_MONTH, Period.LAST_MONTH)

    @property
    def seconds(self) -> float:
        """Its length; of a month of the calendar that which most have."""
        return {Period.DAY: _DAY, Period.WEEK: 7 * _DAY}.get(self, 30 * _DAY)

    @property
    def selector(self) -> str:
        """Its length in PromQL; a month of the calendar is put in by `dated`."""
        return self.value if self.is_dated else f"{round(self.seconds / HOUR)}h"

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return {
            Period.MONTH: "the last 30 days", Period.THIS_MONTH: "this month",
            Period.LAST_MONTH: "the month before this one",
        }.get(self, f"the last {self}")  # fmt: skip

    @property
    def heading(self) -> str:
        """Words of a button."""
        return "30 days" if self is Period.MONTH else self.value.replace("-", " ").capitalize()


ROLLING = (Period.DAY, Period.WEEK, Period.MONTH)
"""Periods up to now, which are asked for all the time; months of the calendar only while somebody looks at them."""
MONTHS = (Period.THIS_MONTH, Period.LAST_MONTH)
BY_HOUR = (Period.WEEK, Period.MONTH, *MONTHS)
"""Periods whose sums may be asked for by the hour."""
HOURS_ASKED = looked_for([one.selector for one in BY_HOUR])
"""Of which of them sums by the hour know enough."""


class Question(NamedTuple):
    """A fixed question."""

    name: str
    query: str
    """PromQL, over recorded series where there are any of it."""
    every: float = 15.0
    """Seconds after which it is asked again of a small cluster, while somebody looks."""
    is_small: bool = False
    """It is only asked of a cluster with few nodes, since it has a row for each GPU."""
    by_hour: str = ""
    """With sums that are recorded by the hour; empty where there are none."""
    selector: str = ""
    """Of its period, where it has sums by the hour."""
    is_of_one: bool = False
    """It has the name of a node or a user in it, and no window that is put in when it is asked."""
    together: str = ""
    """Name of what is asked for one moment, and kept of one moment, with all others of that name; empty for none."""
    where_whole: Period | None = None
    """A period of which the engine has to have all: of another one its answer would tell nothing."""

    @property
    def needs_rules(self) -> bool:
        """Whether it asks for a series that the rules record."""
        return _RECORD.search(self.query) is not None

    def interval(self, *, is_small: bool) -> float:
        """Seconds after which it is asked again: of a large cluster no more often than its answer changes."""
        if is_small:
            return self.every
        return max(self.every, RULE_INTERVAL if self.needs_rules else _SCRAPES)

    def expression(self, hours: Container[str] = ()) -> str:
        """The query; `hours`: selectors of periods of which sums by hour know enough."""
        return self.by_hour if self.by_hour and self.selector in hours else self.query


def hours_of(period: Period) -> str:
    """Return the name of what belongs together about the time that GPUs were held."""
    return f"hours of {period}"


def energy_of(period: Period) -> str:
    """Return the name of what belongs together about energy."""
    return f"energy of {period}"


def seldom(period: Period) -> float:
    """Seconds after which what is of a period is asked again: a month moves slowly, and costs the most."""
    return {Period.DAY: 60.0, Period.WEEK: 300.0, Period.LAST_MONTH: 3600.0}.get(period, 900.0)


def summed(series: str, period: Period) -> str:
    """A recorded series of so much a second, summed up over a period."""
    return f"sum_over_time({series}[{period.selector}]) * {RULE_INTERVAL:g}"


def sums(name: str, series: str, period: Period, together: str, by: str = "user") -> Question:
    """A question for what a recorded series comes to in a period; of a day there is no need for sums by hour."""
    by_hour = summed_by_hour(series, by, period.selector) if period in BY_HOUR else ""
    return Question(
        f"{name}_{period}", summed(series, period), seldom(period), by_hour=by_hour, selector=period.selector,
        together=together,
    )  # fmt: skip


def _covered(period: Period) -> Question:
    """Seconds of a period of which the engine has samples: those of the later of the two files of rules."""
    window = period.selector
    first = f"max(count_over_time(job:gpumon_gpu_busy:ratio_rate5m[{window}])) * {RULE_INTERVAL:g}"
    second = f"count_over_time(cluster:gpumon_gpu_power_watts:sum[{window}]) * {RULE_INTERVAL:g}"
    query = f"{first} < {second} or {second} or {first}"
    if period.is_dated:  # of how much, is told beside it
        query = f'label_replace({query}, "of", "{period}", "", "")'
    return Question(f"covered_{period}", query, seldom(period), together=_known_of(period))


def _known_of(period: Period) -> str:
    """The name of what is known of a month, whose length is of the moment; of others it is always the same."""
    return f"known of {period}" if period.is_dated else ""


def _covered_by_node(period: Period) -> Question:
    """Seconds of a period in which nodes were seen, of those that were seen least: of 1,000 that is a few rows.

    It reads each node, so a period up to now has to be there in full; of a month of the calendar both are one answer.
    """
    window, step = period.selector, {Period.DAY: STEP, Period.WEEK: COARSE}.get(period, _COARSEST)

    def least(seconds: str) -> str:
        return f"bottomk({AWAY + 1}, {seconds})"

    return Question(
        f"covered_by_node_{period}", least(f"count_over_time({NODES}[{window}:{step}s]) * {step}"),
        max(seldom(period), AWAY_EVERY), by_hour=least(seen_by_hour(window)) if period in BY_HOUR else "",
        selector=window, together=_known_of(period), where_whole=None if period.is_dated else period,
    )  # fmt: skip


def of_users(period: Period) -> tuple[Question, ...]:
    """Return the questions about what users had in a period."""
    return (
        _covered(period),
        _covered_by_node(period),
        *(
            sums(what, f"user:gpumon_gpus_{what}:rate5m", period, hours_of(period))
            for what in ("held", "judged", "busy", "idle_held")
        ),
        sums("energy", "user:gpumon_power_watts:rate5m", period, energy_of(period)),
    )


QUESTIONS: tuple[Question, ...] = (
    # Of nodes that told nothing new alone: of all others there is nothing to say.
    Question("seen", LATE),
    Question("seen_before", "instance:gpumon_last_sample_timestamp_seconds:gone"),
    Question("clocks", CLOCKS, 60.0),
    # Of a sample that stands, its node tells no more how far its clock is from the engine's.
    Question("clocks_before", CLOCKS_BEFORE, 60.0),
    Question("gpus", "instance_model_state:gpumon_gpus:count"),
    Question("models", "instance_model:gpumon_gpus:several", 60.0),
    Question("down", "instance:gpumon_exporter_down:group", 60.0),
    Question("dcgm_alone", "cluster:gpumon_dcgm_alone:count", 300.0),
    Question("without_daemon", "instance:gpumon_without_daemon:max", 60.0),
    Question("unreal", "cluster:gpumon_unreal_nodes:count", 60.0),
    Question("busy", "instance:gpumon_gpu_utilization:ratio_rate5m", 30.0),
    Question("power", "cluster:gpumon_gpu_power_watts:sum", 30.0),
    Question("held_now", "user:gpumon_gpus_held:count", 30.0),
    Question("idle_now", "user:gpumon_gpus_idle_held:count", 30.0),
    Question("idle_holders", f"topk({LISTED}, instance_gpu_user:gpumon_gpu_idle_held:seconds)", 60.0),
    Question("runs", "run:gpumon_gpus:listed", 30.0),
    Question("run_nodes", "run:gpumon_nodes:listed", 30.0),
    Question("epochs", "run:gpumon_epoch:listed", 30.0),
    Question("planned", "run:gpumon_epochs:listed", 30.0),
    Question(
        "run_places",
        "count by (run, instance) (max by (run, instance, uuid) (gpumon_run_info))",
        every=30.0,
        is_small=True,
    ),
    Question("xids", "max by (instance, gpu, xid) (gpumon_gpu_xid_last_timestamp_seconds > time() - 3600)", every=60.0),
    Question("throttled", f"instance_cause:gpumon_gpu_throttled:ratio_rate5m > {THROTTLED:g}", 60.0),
    Question("limit", "cluster:gpumon_gpu_power_limit_watts:sum", 30.0),
    Question("energy_of_day", summed("cluster:gpumon_gpu_power_watts:sum", Period.DAY), 300.0),
    Question(
        "busy_of_day", f"avg_over_time(cluster:gpumon_gpu_utilization:ratio_rate5m[{Period.DAY.selector}])", 300.0
    ),
    *(question for period in ROLLING for question in of_users(period)),
)
THERE = f'count by (__name__) ({{__name__=~"{"|".join((DCGM, *RULE_FILES))}"}} or {TOLD})'
"""Names that an engine has, of our rules and of exporters; of the last with their numbers of GPUs, and of nodes."""


def of_period(questions: Sequence[Question], period: Period) -> tuple[Question, ...]:
    """Return the questions without those about other periods."""
    others = tuple(f"_{other}" for other in Period if other is not period)
    return tuple(one for one in questions if not one.name.endswith(others) or one.name.endswith("_of_day"))


_UTIL = DCGM
_IDLE = 100 * IDLE
"""Percent."""

DCGM_ONLY = (
    "Only NVIDIA's exporter (dcgm-exporter) answers here. It does not tell who holds a GPU: users, runs, hours "
    "and what is free are unknown; 'gpumon export' on the nodes tells them."
)
DCGM_QUESTIONS: tuple[Question, ...] = (
    Question("seen", f"max by (instance) (max_over_time(timestamp({_UTIL})[1h:1m]))"),
    Question(
        "gpus",
        f'label_replace(count by (instance) ({_UTIL} > {_IDLE:g}), "state", "busy", "", "")'
        f' or label_replace(count by (instance) ({_UTIL} <= {_IDLE:g}), "state", "unknown", "", "")',
    ),
    Question(
        "models", f'count by (instance, model) (label_replace({_UTIL}, "model", "$1", "modelName", "(.+)"))', every=60.0
    ),
    Question("busy", f"avg by (instance) ({_UTIL}) / 100"),
    Question("power", "sum(DCGM_FI_DEV_POWER_USAGE)"),
    Question("last_xid", "max by (instance, gpu) (DCGM_FI_DEV_XID_ERRORS) > 0", every=60.0),
    # Targets of the jobs by which others of them answer: of those that never did there is nothing but `up`.
    Question(
        "down", f"group by (instance) (up == 0 and on (job) count by (job) (last_over_time({_UTIL}[1h])))", every=60.0
    ),
    Question(
        "energy_of_day",
        f"sum(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[{Period.DAY.selector}])) / 1000",
        every=300.0,
    ),
    Question(
        f"covered_{Period.DAY}",
        f"count_over_time((count({_UTIL}))[{Period.DAY.selector}:{STEP}s]) * {STEP}",
        every=300.0,
    ),
)


_OF_GPUS = {
    "info": "max by (instance, gpu, model) (gpumon_gpu_info{})",
    "users": "max by (instance, gpu, user) (gpumon_gpu_user_info{})",
    "used": (
        "max by (instance, gpu) (rate(gpumon_gpu_utilization_seconds_total{}[5m])"
        " / rate(gpumon_gpu_utilization_observed_seconds_total{}[5m]))"
    ),
    "idle": "max by (instance, gpu) (gpumon_gpu_idle_seconds{})",
    "silent": "max by (instance, gpu, reason) (gpumon_gpu_unavailable{all})",
}
_OF_NODE = {
    "newest": "max(gpumon_last_sample_timestamp_seconds{})",
    "memory": "max by (gpu) (gpumon_gpu_memory_used_bytes{})",
    "size": "max by (gpu) (gpumon_gpu_memory_total_bytes{})",
    "power": "max by (gpu) (gpumon_gpu_power_watts{})",
    "temperature": "max by (gpu) (gpumon_gpu_temperature_celsius{})",
    "throttled": f"{throttled('gpu', '{}')} > {THROTTLED:g}",
    "held_idle": "max by (gpu) (gpumon_gpu_user_idle_seconds{})",
    "runs": (
        "max by (gpu, run, name, user) (max by (instance, uuid, gpu) (gpumon_gpu_info{})"
        " * on (instance, uuid) group_right (gpu) max by (instance, uuid, run, name, user) (gpumon_run_info{}))"
    ),
}
_RUN_GPUS = "max by (run) (gpumon_run_{} and on (instance, run) max by (instance, run) (gpumon_run_info{{}}))"
_OF_USER = {
    "places": "count by (instance) (max by (instance, uuid) (gpumon_gpu_user_info{}))",
    "jobs": (
        "count by (run, name, slurm_job, instance) (max by (run, name, slurm_job, instance, uuid) (gpumon_run_info{}))"
    ),
    # Of those on few GPUs, too: what is asked of all is of the runs that are listed.
    "epochs": _RUN_GPUS.format("epoch"),
    "planned": _RUN_GPUS.format("epochs"),
}
_PLACE = re.compile(r"\{(all)?\}")
"""Where the series of a subject are chosen; with `all`, those that tell of a whole GPU."""


def _of(text: str, only: str = "") -> str:
    """The expression of these series alone. All places are filled at once: a name may look like one."""

    def chosen(found: re.Match[str]) -> str:
        matchers = ",".join(filter(None, ('metric="all"' if found[1] else "", only)))
        return f"{{{matchers}}}" if matchers else ""

    return _PLACE.sub(chosen, text)


OF_GPUS = tuple(Question(f"gpu_{name}", _of(text), every=30.0, is_small=True) for name, text in _OF_GPUS.items())
"""Questions with a row for each GPU."""


def of_node(node: str, told: str = "") -> tuple[Question, ...]:
    """Questions about the GPUs of one node; `told`: its name as the engine has it, where people see another text."""
    only = f"instance={quoted(told or node)}"
    return tuple(
        Question(f"node_{name} {node}", _of(text, only), is_of_one=True) for name, text in (_OF_GPUS | _OF_NODE).items()
    )


def of_user(user: str, told: str = "") -> tuple[Question, ...]:
    """Questions about one user: the nodes and runs of theirs; `told` as for a node."""
    only = f"user={quoted(told or user)}"
    return tuple(
        Question(f"user_{name} {user}", f"topk({LISTED}, {_of(text, only)})", every=30.0, is_of_one=True)
        for name, text in _OF_USER.items()
    )


def quoted(text: str) -> str:
    """A string of PromQL.

    >>> quoted('a"b')
    '"a\\\\"b"'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
