"""A cluster's nodes, users, runs and free GPUs, computed from the answers of a Prometheus server.

Numbers that depend on a missing answer are NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import NamedTuple

from gpumon.cluster.client import Answers, PrometheusSeries, single
from gpumon.cluster.coverage import is_complete
from gpumon.cluster.queries import Period
from gpumon.cluster.rules import BEHIND, RULE_INTERVAL, SAME, SILENT, STANDS
from gpumon.common.config import NO_GROUP, UserGroups
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units

_NEARLY_ALL = 0.95
"""The used share is shown only if usage was measured for at least this fraction of a user's held time."""
MAX_GPUS = 1024
"""Largest plausible number of a node's GPUs in one state. Rows with larger numbers are ignored."""
STATES = ("free", "busy", "held_idle", "lost", "unknown")
"""States of GPUs in the series `gpumon_gpus`."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node, as its exporter last reported it."""

    name: str
    """Name of the node: the label `instance` of its series."""
    seen: float = NAN
    """Time of the node's newest sample (s since 1970) if the sample is late, otherwise NaN."""
    silent: float = 0.0
    """Seconds since the newest sample if the node counts as silent and its state is therefore unknown, otherwise 0."""
    gpus: Mapping[str, int] | None = None
    """Number of GPUs in each state. None if Prometheus did not answer."""
    models: Sequence[str] = ()
    busy: float = NAN
    """Fraction of the last five minutes in which the node's GPUs were busy."""
    clock_offset: float = 0.0
    """Number of seconds by which the node's clock is ahead of Prometheus's clock. 0 if they agree."""
    is_undated: bool = False
    """True if the node may have been silent for longer than `silent` says. This is so if its newest sample no longer
    changes although the sample's time, set by the node's clock, is recent."""

    @property
    def total(self) -> int:
        """Number of the node's GPUs."""
        return sum(self.gpus.values()) if self.gpus else 0

    def count(self, state: str) -> int:
        """Return how many of the node's GPUs are in a state, or 0 for a node that no longer reports."""
        return 0 if self.silent or self.gpus is None else self.gpus.get(state, 0)


class ClusterUser(NamedTuple):
    """The GPUs that a user or a group of users holds now, and their usage in a period."""

    name: str
    held: float = NAN
    """Number of GPUs held now."""
    idle: float = NAN
    """Number of held GPUs that have computed nothing for a minute or longer."""
    held_seconds: float = NAN
    """Held GPU time in the period. The following values are for the same period."""
    judged_seconds: float = NAN
    """Seconds of the held time for which usage was measured."""
    busy_seconds: float = NAN
    idle_seconds: float = NAN
    energy: float = NAN
    """Energy used in the period, in joules."""

    @property
    def used(self) -> float:
        """Fraction of the held time in which GPUs were busy (0 to 1).

        NaN if usage was not measured for more than a small share of the time.
        """
        is_judged = self.judged_seconds > 0 and self.judged_seconds >= _NEARLY_ALL * self.held_seconds
        return self.busy_seconds / self.judged_seconds if is_judged else NAN


@dataclass(frozen=True, slots=True)
class UserGroup:
    """A group of users, with sums over its users."""

    sums: ClusterUser
    """Sums over the users of the group, under the group's name. Missing values are ignored."""
    users: Sequence[str]
    """Users of the group that have any value, sorted by held seconds, most first."""


@dataclass(frozen=True, slots=True)
class IdleHolder:
    """A GPU that a user holds without using it."""

    node: str
    gpu: str
    user: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """A run in the cluster."""

    name: str
    run: str
    """Id of the run."""
    user: str
    job: str
    nodes: Sequence[str]
    """Nodes of the run. Empty in a large cluster, where they are not queried."""
    gpus: int
    epoch: float = NAN
    planned: float = NAN
    """Planned number of epochs."""
    node_count: float = NAN
    has_epoch_info: bool = True
    """True if epochs were queried. In this case, a run without an epoch has logged none."""


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """Nodes that have the same number of free GPUs of the same model."""

    model: str
    together: int
    """Number of free GPUs on each node."""
    is_whole: bool
    """True if all GPUs of these nodes are free."""
    nodes: Sequence[str]

    @property
    def gpus(self) -> int:
        """Total number of free GPUs on these nodes."""
        return self.together * len(self.nodes)


def nodes(answers: Answers, now: float) -> list[Node]:
    """Return the nodes, sorted by name. `now`: time of the queries (s since 1970)."""
    jobs = _newest_jobs(answers)
    gpus, models = _gpus_and_models(answers, jobs)
    # A node with a new sample in one of its scrape jobs is not late, even if its other jobs are.
    before = _values_by_node(answers.get("seen_before", ()))
    seen = before | _values_by_node(_late_samples(answers)) | {name: time for name, (time, _) in jobs.items()}
    # A newest sample is not sufficient to list a node: other exporters on the node have such series, too.
    names = {*before, *gpus} if "seen_before" in answers else {*seen, *gpus}
    busy, offsets, offsets_before = (
        _values_by_node(answers.get(query, ())) for query in ("busy", "clocks", "clocks_before")
    )
    stands, same, behind = (
        {_target(row) for row in answers.get("seen", ()) if row.labels.get("newest") == kind}
        for kind in (STANDS, SAME, BEHIND)
    )
    result = []
    for name in sorted(names, key=natural_key):
        newest, is_gone = seen.get(name, NAN), name not in jobs
        target = name, jobs.get(name, (NAN, ""))[1]
        has_stopped = not is_gone and target in stands
        is_behind = not is_gone and target in behind - stands - same
        offset = offsets.get(name, newest - now if is_behind else 0.0)
        if has_stopped or is_gone:  # the current offset shrinks while no newer sample arrives
            offset = offsets_before.get(name, offset)
        age = now - (newest - offset)
        result.append(
            Node(
                name, newest if isfinite(newest) else NAN, max(age, SILENT) if has_stopped or age > SILENT else 0.0,
                gpus.get(name) if "gpus" in answers else None, sorted(models.get(name, ())), busy.get(name, NAN),
                offset, has_stopped and age < SILENT,
            )
        )  # fmt: skip
    return result


def _gpus_and_models(
    answers: Answers, jobs: Mapping[str, tuple[float, str]]
) -> tuple[dict[str, dict[str, int]], dict[str, set[str]]]:
    """Return the number of GPUs by node and state, and the GPU models by node. `jobs`: result of `_newest_jobs`."""
    gpus: dict[str, dict[str, int]] = {}
    models: dict[str, set[str]] = {}
    for row in answers.get("gpus", ()):
        if jobs[row.node][1] != row.labels.get("job", "") or not 0 <= row.value <= MAX_GPUS:
            continue
        state = row.labels.get("state", "")
        by_state = gpus.setdefault(row.node, {})
        by_state[state if state in STATES else "unknown"] = int(row.value)
        if "model" in row.labels:
            models.setdefault(row.node, set()).add(row.labels["model"])
    for row in answers.get("models", ()):
        models.setdefault(row.node, set()).add(row.labels.get("model", ""))
    return gpus, models


NO_SERIES = "Prometheus has no series of gpumon's exporters: scrape 'gpumon export' on the nodes."


def has_no_series(answers: Answers) -> bool:
    """Return True if Prometheus answered, but has no data from any node."""
    return all(name in answers and not answers[name] for name in ("gpus", "seen", "seen_before"))


_NUMBER = re.compile(r"([0-9]{1,18})")


def natural_key(name: str) -> tuple[object, ...]:
    """Return a sort key that compares numbers in names by value, so that gn2 comes before gn10."""
    parts = _NUMBER.split(name)  # texts, with the number after each of them
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts))


def free_gpus(nodes: Iterable[Node]) -> list[FreeGpus]:
    """Return the free GPUs, grouped by model and number per node. Nodes with the most free GPUs come first."""
    groups: dict[tuple[int, str, bool], list[str]] = {}
    for node in nodes:
        count = node.count("free")
        if count:
            model = ", ".join(node.models) or "unknown model"
            groups.setdefault((count, model, count == node.total), []).append(node.name)
    ordered = sorted(groups.items(), key=lambda group: (-group[0][0], group[0][1], not group[0][2]))
    return [FreeGpus(model, count, is_whole, names) for (count, model, is_whole), names in ordered]


def users(answers: Answers, period: Period) -> list[ClusterUser]:
    """Return the users, sorted by held time in the period, most first."""
    fields = {
        "held": "held_now", "idle": "idle_now", "held_seconds": f"held_{period}",
        "judged_seconds": f"judged_{period}", "busy_seconds": f"busy_{period}",
        "idle_seconds": f"idle_held_{period}", "energy": f"energy_{period}",
    }  # fmt: skip
    by_name: dict[str, dict[str, float]] = {}
    for field, query in fields.items():
        for row in answers.get(query, ()):
            by_name.setdefault(row.labels.get("user", ""), {})[field] = row.value
    for name in users_without_use(answers, period):
        by_name[name] |= dict.fromkeys(("held_seconds", "idle_seconds", "energy"), 0.0)
    result = [ClusterUser(name, **values) for name, values in by_name.items()]
    shown = [user for user in result if any(is_known(value) and value > 0 for value in (user.held, user.held_seconds))]
    return sorted(shown, key=lambda user: (-_or_zero(user.held_seconds), -_or_zero(user.held), user.name))


def users_without_use(answers: Answers, period: Period) -> set[str]:
    """Return the users who hold GPUs now but held none in the last calendar month.

    The result is empty for other periods, or if some samples of the month are missing.
    """
    held = f"held_{period}"
    if period is not Period.LAST_MONTH or held not in answers or not is_complete(answers, period):
        return set()  # for a period that ends now, the answer may be older than the users' first minute
    now = {row.labels.get("user", "") for name in ("held_now", "idle_now") for row in answers.get(name, ())}
    return now - {row.labels.get("user", "") for row in answers[held] if row.value > 0}


def groups(users: Sequence[ClusterUser], named: UserGroups) -> list[UserGroup]:
    """Return the groups, sorted by held time in the period, most first. Users without a group come last.

    `named`: the configured groups, which assign users to groups.
    """
    by_name = {user.name: user for user in users}
    result = []
    for group, names in named.shared_out(by_name).items():
        members = [by_name[name] for name in names]
        sums = [_sum_known(getattr(user, field) for user in members) for field in ClusterUser._fields[1:]]
        result.append(UserGroup(ClusterUser(group, *sums), names))
    return sorted(
        result,
        key=lambda group: (group.sums.name == NO_GROUP, -_or_zero(group.sums.held_seconds), group.sums.name),
    )


def idle_holders(answers: Answers) -> list[IdleHolder]:
    """Return the GPUs that are held but not used, sorted by idle time, longest first."""
    holders = [
        IdleHolder(row.node, row.labels.get("gpu", ""), row.labels.get("user", ""), row.value)
        for row in answers.get("idle_holders", ())
    ]
    return sorted(holders, key=lambda holder: (-holder.seconds, natural_key(holder.node), holder.gpu))


def runs(answers: Answers) -> list[ClusterRun]:
    """Return the runs, sorted by their number of GPUs, most first."""
    nodes: dict[str, list[str]] = {}
    for row in answers.get("run_places", ()):
        nodes.setdefault(row.labels.get("run", ""), []).append(row.node)
    epochs, planned, counts = (_values_by_run(answers, name) for name in ("epochs", "planned", "run_nodes"))
    result = []
    for row in answers.get("runs", ()):
        labels = row.labels
        run = labels.get("run", "")
        result.append(
            ClusterRun(
                labels.get("name", ""), run, labels.get("user", ""), labels.get("slurm_job", ""),
                sorted(nodes.get(run, ()), key=natural_key), round(row.value), epochs.get(run, NAN),
                planned.get(run, NAN), counts.get(run, NAN), "epochs" in answers,
            )
        )  # fmt: skip
    return sorted(result, key=lambda run: (-run.gpus, run.name, run.run))


def simulated_nodes(answers: Answers) -> int:
    """Return the number of nodes that report a simulation or the playback of a recording."""
    return _count(answers, "unreal")


def dcgm_only_hosts(answers: Answers) -> int:
    """Return the number of hosts that run only NVIDIA's exporter, while others run gpumon's exporter.

    Such hosts are not shown.
    """
    return _count(answers, "dcgm_alone")


def _count(answers: Answers, name: str) -> int:
    value = single(answers, name)
    return round(value) if is_known(value) else 0


def _values_by_run(answers: Answers, name: str) -> dict[str, float]:
    return {row.labels.get("run", ""): row.value for row in answers.get(name, ())}


def _values_by_node(rows: Sequence[PrometheusSeries]) -> dict[str, float]:
    """Return the value of each node: the largest one if several scrape jobs report the node."""
    values: dict[str, float] = {}
    for row in rows:
        values[row.node] = max(row.value, values.get(row.node, row.value))
    return values


def _late_samples(answers: Answers) -> list[PrometheusSeries]:
    """Return the rows of nodes whose newest sample is late or no longer changes. A row's value is the sample's time."""
    return [row for row in answers.get("seen", ()) if row.labels.get("newest") != SAME]


def _target(row: PrometheusSeries) -> tuple[str, str]:
    """Return the node and the scrape job that a row comes from."""
    return row.node, row.labels.get("job", "")


def _newest_jobs(answers: Answers) -> dict[str, tuple[float, str]]:
    """Return, for each node, the time of its newest sample and the scrape job that the sample comes from.

    The time is infinite if the sample is not late. Only one job is used per node, because a node that two jobs scrape
    reports the same GPUs twice.
    """
    late = {_target(row): row.value for row in _late_samples(answers)}
    newest: dict[str, tuple[float, str]] = {}
    for row in answers.get("gpus", ()):
        sample = late.get(_target(row), inf), row.labels.get("job", "")
        newest[row.node] = max(sample, newest.get(row.node, sample))
    return newest


def _sum_known(values: Iterable[float]) -> float:
    """Return the sum of the values that are not NaN, or NaN if all are.

    NaN is skipped, because a user without a row in an answer used nothing.
    """
    known = [value for value in values if is_known(value)]
    return sum(known) if known else NAN


def _or_zero(value: float) -> float:
    return value if is_known(value) else 0.0


_LOOKBACK = 300.0
"""Seconds after the end of a series for which a Prometheus server still returns its last value."""
_LINGER = SILENT + _LOOKBACK + RULE_INTERVAL
"""Seconds after a node's newest sample for which sums may still include the node, because sums may be recorded late."""
_CURRENT = (
    "busy", "power", "limit", "held_now", "idle_now", "idle_holders", "runs", "run_nodes", "epochs", "planned",
    "run_places", "throttled",
)  # fmt: skip
_SUBJECT_PREFIXES = ("user_places ", "user_jobs ")


def drop_stale(answers: Answers, nodes: Sequence[Node]) -> Answers:
    """Return the answers without the current values of nodes that no longer report.

    If no node reports, the result has no current values at all.
    """
    silent = {node.name for node in nodes if node.silent}
    if not silent:
        return answers
    current = {name for name in answers if name in _CURRENT or name.startswith(_SUBJECT_PREFIXES)}
    if len(silent) == len(nodes):
        return {name: rows for name, rows in answers.items() if name not in current}
    silent_runs = _runs_only_on(answers, silent)
    return {
        name: [
            row for row in rows
            if row.labels.get("instance") not in silent and row.labels.get("run") not in silent_runs
        ]
        if name in current else rows
        for name, rows in answers.items()
    }  # fmt: skip


def _runs_only_on(answers: Answers, nodes: set[str]) -> set[str]:
    """Return the runs that are only on these nodes. Runs whose nodes were not queried are left out."""
    by_run: dict[str, set[str]] = {}
    for row in answers.get("run_places", ()):
        by_run.setdefault(row.labels.get("run", ""), set()).add(row.node)
    return {run for run, names in by_run.items() if names <= nodes}


def staleness_note(nodes: Sequence[Node]) -> str:
    """Return a note that sums may include nodes that have just stopped reporting. Empty if there are no such nodes.

    Most servers drop the series of a node that does not answer. If a node is no longer scraped at all, its last values
    remain for a while.
    """
    count = sum(1 for node in nodes if 0 < node.silent <= _LINGER and _has_known_gpus(node))
    return f"may include {units.counted(count, 'silent node')}" if count else ""


def _has_known_gpus(node: Node) -> bool:
    return any(count for state, count in (node.gpus or {}).items() if state != "unknown")
