"""A cluster's nodes, users, runs and free GPUs, computed from the answers of a Prometheus server.

Without an answer, they are unknown.
"""

from __future__ import annotations

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
"""Share of a user's held time for which usage must be known before the used share is shown."""
MAX_GPUS = 1024
"""Plausible number of a node's GPUs in one state; rows with larger numbers are ignored."""
STATES = ("free", "busy", "held_idle", "lost", "unknown")
"""States of GPUs in the series `gpumon_gpus`."""


class Node(NamedTuple):
    """A node, as its exporter last reported it."""

    name: str
    """Its `instance`."""
    seen: float = NAN
    """Time of its newest sample, s since 1970, if that is late."""
    silent: float = 0.0
    """Seconds without a sample once nothing is known of it any more; else 0."""
    gpus: Mapping[str, int] | None = None
    """GPUs by state; None if Prometheus did not answer."""
    models: Sequence[str] = ()
    busy: float = NAN
    """Share of the last five minutes in which its GPUs were busy."""
    clock_offset: float = 0.0
    """Seconds by which its clock is ahead of Prometheus's, if they differ."""
    is_undated: bool = False
    """Whether it may be silent for longer: its newest sample does not change, but is new according to its own clock."""

    @property
    def total(self) -> int:
        """Number of the node's GPUs."""
        return sum(self.gpus.values()) if self.gpus else 0

    def count(self, state: str) -> int:
        """Return how many of the node's GPUs are in a state; 0 for a node that does not report any more."""
        return 0 if self.silent or self.gpus is None else self.gpus.get(state, 0)


class ClusterUser(NamedTuple):
    """A user or a group of users: the GPUs they hold now, and their usage in a period."""

    name: str
    held: float = NAN
    """GPUs now."""
    idle: float = NAN
    """GPUs of these that have computed nothing for a minute or longer."""
    held_seconds: float = NAN
    """GPU time in the period, as are the following."""
    judged_seconds: float = NAN
    """Part of the held time for which usage is known."""
    busy_seconds: float = NAN
    idle_seconds: float = NAN
    energy: float = NAN
    """Joules in the period."""

    @property
    def used(self) -> float:
        """Share of the held time in which GPUs were busy (0 to 1); NaN if that is unknown for a notable part of it."""
        is_judged = self.judged_seconds > 0 and self.judged_seconds >= _NEARLY_ALL * self.held_seconds
        return self.busy_seconds / self.judged_seconds if is_judged else NAN


@dataclass(frozen=True, slots=True)
class UserGroup:
    """A group of users, with their sums."""

    sums: ClusterUser
    """Sums of the known values of its users, under the group's name."""
    users: Sequence[str]
    """Its users with any known value, by held seconds, the most first."""


@dataclass(frozen=True, slots=True)
class IdleHolder:
    """A GPU that a user holds without using it."""

    node: str
    gpu: str
    user: str
    seconds: float


class ClusterRun(NamedTuple):
    """A run in the cluster."""

    name: str
    run: str
    """Its id."""
    user: str
    job: str
    nodes: Sequence[str]
    """Its nodes, if known: they are not queried in a large cluster."""
    gpus: int
    epoch: float = NAN
    planned: float = NAN
    """Planned number of epochs."""
    node_count: float = NAN
    has_epoch_info: bool = True
    """Whether epochs were queried, so that a run without one has logged none."""


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """The nodes that have the same number of free GPUs of the same model."""

    model: str
    together: int
    """Free GPUs on each node."""
    is_whole: bool
    """Whether all GPUs of these nodes are free."""
    nodes: Sequence[str]

    @property
    def gpus(self) -> int:
        """Number of free GPUs on all of these nodes together."""
        return self.together * len(self.nodes)


def nodes(answers: Answers, now: float) -> list[Node]:
    """Return the nodes sorted by name. `now`: time of the queries, s since 1970."""
    jobs = _newest_jobs(answers)
    gpus, models = _gpus_and_models(answers, jobs)
    # A node with a new sample in one of its scrape jobs is not late, whatever its other jobs report.
    before = _values_by_node(answers.get("seen_before", ()))
    seen = before | _values_by_node(_late_samples(answers)) | {name: time for name, (time, _) in jobs.items()}
    # A series of a sample alone does not make a node: another exporter of it, such as one in DCGM's names, has one too.
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
        if has_stopped or is_gone:  # the current offset shrinks with time: the one when the newest sample came counts
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
    """Return GPUs by node and state, and models by node; `jobs` are the scrape jobs of `_newest_jobs`."""
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
    """Return whether Prometheus answered, but has no data of any node."""
    return all(name in answers and not answers[name] for name in ("gpus", "seen", "seen_before"))


def natural_key(name: str) -> tuple[object, ...]:
    """Return a sort key that compares numbers in names by value, so that gn2 comes before gn10."""
    parts: list[tuple[bool, int, str]] = []
    digits = text = ""
    for letter in f"{name}\0":
        if letter.isascii() and letter.isdigit():
            digits += letter
            continue
        if digits:
            parts.append((False, int(digits[:18]), text))
            digits = text = ""
        text += letter
    return (*parts, (True, 0, text))


def free_gpus(nodes: Iterable[Node]) -> list[FreeGpus]:
    """Return the free GPUs, grouped; nodes with the most free GPUs first."""
    groups: dict[tuple[int, str, bool], list[str]] = {}
    for node in nodes:
        count = node.count("free")
        if count:
            model = ", ".join(node.models) or "unknown model"
            groups.setdefault((count, model, count == node.total), []).append(node.name)
    ordered = sorted(groups.items(), key=lambda group: (-group[0][0], group[0][1], not group[0][2]))
    return [FreeGpus(model, count, is_whole, names) for (count, model, is_whole), names in ordered]


def users(answers: Answers, period: Period) -> list[ClusterUser]:
    """Return the users sorted by held time in the period, the most first."""
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
    """Return the users who hold GPUs now but held none in the last month.

    Empty if the month is not known completely.
    """
    held = f"held_{period}"
    if period is not Period.LAST_MONTH or held not in answers or not is_complete(answers, period):
        return set()  # in a period up to now, the answer may be older than their first minute
    now = {row.labels.get("user", "") for name in ("held_now", "idle_now") for row in answers.get(name, ())}
    return now - {row.labels.get("user", "") for row in answers[held] if row.value > 0}


def groups(users: Sequence[ClusterUser], named: UserGroups) -> list[UserGroup]:
    """Return the groups sorted by held time in the period, the most first. Users without a group come last.

    `named`: which user is in which group.
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
    """Return GPUs that are held but not used, sorted by how long this has lasted, the longest first."""
    holders = [
        IdleHolder(row.node, row.labels.get("gpu", ""), row.labels.get("user", ""), row.value)
        for row in answers.get("idle_holders", ())
    ]
    return sorted(holders, key=lambda holder: (-holder.seconds, natural_key(holder.node), holder.gpu))


def runs(answers: Answers) -> list[ClusterRun]:
    """Return the runs sorted by their number of GPUs, the most first."""
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
    """Return how many nodes report a simulation or a played recording."""
    return _count(answers, "unreal")


def dcgm_only_hosts(answers: Answers) -> int:
    """Return how many hosts run only NVIDIA's exporter, although others run gpumon's. Such hosts are not shown."""
    return _count(answers, "dcgm_alone")


def _count(answers: Answers, name: str) -> int:
    value = single(answers, name)
    return round(value) if is_known(value) else 0


def _values_by_run(answers: Answers, name: str) -> dict[str, float]:
    return {row.labels.get("run", ""): row.value for row in answers.get(name, ())}


def _values_by_node(rows: Sequence[PrometheusSeries]) -> dict[str, float]:
    """Return values by node; the largest of several scrape jobs, which belongs to the newest sample."""
    values: dict[str, float] = {}
    for row in rows:
        values[row.node] = max(row.value, values.get(row.node, row.value))
    return values


def _late_samples(answers: Answers) -> list[PrometheusSeries]:
    """Return the newest samples that are late or do not change, with their times."""
    return [row for row in answers.get("seen", ()) if row.labels.get("newest") != SAME]


def _target(row: PrometheusSeries) -> tuple[str, str]:
    """Return the node and the scrape job that a row comes from."""
    return row.node, row.labels.get("job", "")


def _newest_jobs(answers: Answers) -> dict[str, tuple[float, str]]:
    """Return the scrape job with the newest sample of each node and the time of that, infinite if it is not late.

    A node that two jobs scrape reports the same GPUs twice.
    """
    late = {_target(row): row.value for row in _late_samples(answers)}
    newest: dict[str, tuple[float, str]] = {}
    for row in answers.get("gpus", ()):
        sample = late.get(_target(row), inf), row.labels.get("job", "")
        newest[row.node] = max(sample, newest.get(row.node, sample))
    return newest


def _sum_known(values: Iterable[float]) -> float:
    """Return the sum of the known values: a user without a row in an answer used nothing."""
    known = [value for value in values if is_known(value)]
    return sum(known) if known else NAN


def _or_zero(value: float) -> float:
    return value if is_known(value) else 0.0


_LOOKBACK = 300.0
"""Seconds for which a Prometheus server returns the last value of a series that ended."""
_LINGER = SILENT + _LOOKBACK + RULE_INTERVAL
"""Seconds after a node's newest sample in which sums may still include it; a sum may be recorded late."""
_CURRENT = (
    "busy", "power", "limit", "held_now", "idle_now", "idle_holders", "runs", "run_nodes", "epochs", "planned",
    "run_places", "throttled",
)  # fmt: skip
_SUBJECT_PREFIXES = ("user_places ", "user_jobs ")


def drop_stale(answers: Answers, nodes: Sequence[Node]) -> Answers:
    """Return the answers without the current values of nodes that do not report any more.

    If no node reports any more, no current values are left.
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
    """Return the runs that are on these nodes alone, as far as the nodes of runs are known."""
    by_run: dict[str, set[str]] = {}
    for row in answers.get("run_places", ()):
        by_run.setdefault(row.labels.get("run", ""), set()).add(row.node)
    return {run for run, names in by_run.items() if names <= nodes}


def staleness_note(nodes: Sequence[Node]) -> str:
    """Return a note that a sum may include nodes that stopped reporting a moment ago; empty if there are none.

    Most servers drop the series of a node that does not answer. If a node is no longer scraped at all, its last values
    remain for a while.
    """
    count = sum(1 for node in nodes if 0 < node.silent <= _LINGER and _has_known_gpus(node))
    return f"may include {units.counted(count, 'silent node')}" if count else ""


def _has_known_gpus(node: Node) -> bool:
    return any(count for state, count in (node.gpus or {}).items() if state != "unknown")
