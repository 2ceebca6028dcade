"""Answers of the engine as facts of a cluster: nodes, users and runs. A fact without an answer is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from gpumon.cluster.client import Answers, EngineSeries, node_of, single
from gpumon.cluster.coverage import is_whole
from gpumon.cluster.queries import Period
from gpumon.cluster.rules import BEHIND, RULE_INTERVAL, SAME, SILENT, STANDS
from gpumon.common.config import NO_GROUP, UserGroups
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units

_MOST = 0.95
"""Share of a user's held time of which it must be known whether it was used, before a share is told."""
MOST_GPUS = 1024
"""Of a node in one state: a larger number counts no GPUs, whatever told it."""
STATES = ("free", "busy", "held_idle", "lost", "unknown")
"""Of GPUs, as `gpumon_gpus` counts them."""


class Node(NamedTuple):
    """A node as its exporter told it last."""

    name: str
    """Its `instance`."""
    seen: float = NAN
    """When its newest sample was taken, s since 1970, where that is long ago."""
    silent: float = 0.0
    """Seconds without a sample, where nothing is claimed of it any more; else 0."""
    gpus: Mapping[str, int] | None = None
    """GPUs by state; None where the engine did not say."""
    models: Sequence[str] = ()
    busy: float = NAN
    """Share of the last five minutes in which its GPUs were busy."""
    ahead: float = 0.0
    """Seconds by which its clock is ahead of the engine's, where it is another."""
    is_undated: bool = False
    """Whether nobody knows for how much longer it has been silent: by its own clock its newest sample is new."""

    @property
    def total(self) -> int:
        """GPUs that it tells of."""
        return sum(self.gpus.values()) if self.gpus else 0

    def count(self, state: str) -> int:
        """GPUs in a state; none of a node that is silent."""
        return 0 if self.silent or self.gpus is None else self.gpus.get(state, 0)


class ClusterUser(NamedTuple):
    """A user's GPUs."""

    name: str
    held: float = NAN
    """GPUs now."""
    idle: float = NAN
    """GPUs of these that compute nothing, for a minute and longer."""
    held_seconds: float = NAN
    """In the period."""
    judged_seconds: float = NAN
    """Of these: for which it is known whether they were used."""
    busy_seconds: float = NAN
    idle_seconds: float = NAN
    energy: float = NAN

    @property
    def used(self) -> float:
        """The share of held time that was used; NaN where that is not known of nearly all of it."""
        is_known_of_most = self.judged_seconds > 0 and self.judged_seconds >= _MOST * self.held_seconds
        return self.busy_seconds / self.judged_seconds if is_known_of_most else NAN


class UserGroup(NamedTuple):
    """The users of a group together."""

    sums: ClusterUser
    """By the name of the group; a part that is not known of anybody is missing."""
    users: Sequence[str]
    """Those of its users of whom anything is known, the most held seconds first."""


class IdleHolder(NamedTuple):
    """A GPU that somebody holds and does not use."""

    node: str
    gpu: str
    user: str
    seconds: float


class ClusterRun(NamedTuple):
    """A run on its node."""

    name: str
    run: str
    user: str
    job: str
    nodes: Sequence[str]
    """Names of its nodes, where they are known: in a large cluster nobody asks."""
    gpus: int
    epoch: float = NAN
    planned: float = NAN
    """Epochs that it plans."""
    node_count: float = NAN
    tells_epochs: bool = True
    """Whether it is known that it has no epoch, where it has none."""


class FreeGpus(NamedTuple):
    """Free GPUs that are together on one node."""

    model: str
    together: int
    whole: bool
    """Whether all of their nodes is free."""
    nodes: Sequence[str]

    @property
    def gpus(self) -> int:
        return self.together * len(self.nodes)


def nodes(answers: Answers, now: float) -> list[Node]:
    """Return the nodes by name; `now` is when the engine was asked."""
    gpus: dict[str, dict[str, int]] = {}
    models: dict[str, set[str]] = {}
    doors = _newest_doors(answers)
    for row in answers.get("gpus", ()):
        if doors[node_of(row)][1] != row.labels.get("job", "") or not 0 <= row.value <= MOST_GPUS:
            continue
        state = row.labels.get("state", "")
        by_state = gpus.setdefault(node_of(row), {})
        by_state[state if state in STATES else "unknown"] = int(row.value)
        if "model" in row.labels:
            models.setdefault(node_of(row), set()).add(row.labels["model"])
    for row in answers.get("models", ()):
        models.setdefault(node_of(row), set()).add(row.labels.get("model", ""))
    late = _late(answers)
    before, now_seen, busy, ahead, was_ahead = (
        _by_node(rows) for rows in (
            answers.get("seen_before", ()), late,
            *(answers.get(name, ()) for name in ("busy", "clocks", "clocks_before")),
        )
    )  # fmt: skip
    # Of a node that tells its GPUs by a door with a new sample nothing is late, whatever another door of it says.
    seen = before | now_seen | {name: told for name, (told, _) in doors.items()}
    # A sample alone is no node of its own: another exporter of one, such as in NVIDIA's dialect, tells that, too.
    names = {*before, *gpus} if "seen_before" in answers else {*seen, *gpus}
    stood, same, behind = (
        {_door(row) for row in answers.get("seen", ()) if row.labels.get("newest") == word}
        for word in (STANDS, SAME, BEHIND)
    )
    found = []
    for name in sorted(names, key=in_order):
        told, door, is_gone = seen.get(name, NAN), (name, doors.get(name, (NAN, ""))[1]), name not in doors
        stands = not is_gone and door in stood
        apart = ahead.get(name, told - now if not is_gone and door in behind - stood - same else 0.0)
        if stands or is_gone:  # what its clock is ahead by is that of its newest sample: it shrinks since that came
            apart = was_ahead.get(name, apart)
        age = now - (told - apart)
        found.append(
            Node(
                name, told if isfinite(told) else NAN, max(age, SILENT) if stands or age > SILENT else 0.0,
                gpus.get(name) if "gpus" in answers else None, sorted(models.get(name, ())), busy.get(name, NAN),
                apart, stands and age < SILENT,
            )
        )  # fmt: skip
    return found


NO_SERIES = "The engine has no series of gpumon's exporters: scrape 'gpumon export' on the nodes."


def has_no_series(answers: Answers) -> bool:
    """Whether the engine answered, and knows no node at all: then nothing is known of any, such as what is free."""
    return all(name in answers and not answers[name] for name in ("gpus", "seen", "seen_before"))


def in_order(name: str) -> tuple[object, ...]:
    """Sort names with numbers as people do: gn2 before gn10."""
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


def free(found: Iterable[Node]) -> list[FreeGpus]:
    """Return free GPUs, those with the most together first."""
    groups: dict[tuple[bool, int, str], list[str]] = {}
    for node in found:
        count = node.count("free")
        if count:
            model = ", ".join(node.models) or "unknown model"
            groups.setdefault((count == node.total, count, model), []).append(node.name)
    ordered = sorted(groups.items(), key=lambda one: (-one[0][1], one[0][2], not one[0][0]))
    return [FreeGpus(model, count, whole, names) for (whole, count, model), names in ordered]


def users(answers: Answers, period: Period) -> list[ClusterUser]:
    """Return the users, by held seconds of the period, the most first."""
    fields = {
        "held": "held_now", "idle": "idle_now", "held_seconds": f"held_{period}",
        "judged_seconds": f"judged_{period}", "busy_seconds": f"busy_{period}",
        "idle_seconds": f"idle_held_{period}", "energy": f"energy_{period}",
    }  # fmt: skip
    found: dict[str, dict[str, float]] = {}
    for field, question in fields.items():
        for row in answers.get(question, ()):
            found.setdefault(row.labels.get("user", ""), {})[field] = row.value
    for name in without_use(answers, period):
        found[name] |= dict.fromkeys(("held_seconds", "idle_seconds", "energy"), 0.0)
    told = [ClusterUser(name, **values) for name, values in found.items()]
    shown = [one for one in told if any(is_known(value) and value > 0 for value in (one.held, one.held_seconds))]
    return sorted(shown, key=lambda one: (-_or_none(one.held_seconds), -_or_none(one.held), one.name))


def without_use(answers: Answers, period: Period) -> set[str]:
    """Return users who hold GPUs now, and held none in the month before, of which all is known."""
    held = f"held_{period}"
    if period is not Period.LAST_MONTH or held not in answers or not is_whole(answers, period):
        return set()  # of a period up to now the answer may be older than their first minute
    now = {row.labels.get("user", "") for name in ("held_now", "idle_now") for row in answers.get(name, ())}
    return now - {row.labels.get("user", "") for row in answers[held] if row.value > 0}


def groups(found: Sequence[ClusterUser], named: UserGroups) -> list[UserGroup]:
    """Return the groups of these users, by held seconds of the period, the most first; last who is in none."""
    by_name = {one.name: one for one in found}
    told = []
    for group, members in named.shared_out(by_name).items():
        of = [by_name[name] for name in members]
        sums = [_sum(getattr(one, field) for one in of) for field in ClusterUser._fields[1:]]
        told.append(UserGroup(ClusterUser(group, *sums), members))
    return sorted(told, key=lambda one: (one.sums.name == NO_GROUP, -_or_none(one.sums.held_seconds), one.sums.name))


def idle_holders(answers: Answers) -> list[IdleHolder]:
    """Return who holds GPUs without using them, the longest first."""
    found = [
        IdleHolder(node_of(row), row.labels.get("gpu", ""), row.labels.get("user", ""), row.value)
        for row in answers.get("idle_holders", ())
    ]
    return sorted(found, key=lambda one: (-one.seconds, in_order(one.node), one.gpu))


def runs(answers: Answers) -> list[ClusterRun]:
    """Return the runs, those on the most GPUs first."""
    places: dict[str, list[str]] = {}
    for row in answers.get("run_places", ()):
        places.setdefault(row.labels.get("run", ""), []).append(node_of(row))
    epochs, planned, counts = (_by(answers, name, "run") for name in ("epochs", "planned", "run_nodes"))
    found = []
    for row in answers.get("runs", ()):
        labels = row.labels
        run = labels.get("run", "")
        found.append(
            ClusterRun(
                labels.get("name", ""), run, labels.get("user", ""), labels.get("slurm_job", ""),
                sorted(places.get(run, ()), key=in_order), round(row.value), epochs.get(run, NAN),
                planned.get(run, NAN), counts.get(run, NAN), "epochs" in answers,
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: (-one.gpus, one.name, one.run))


def unreal(answers: Answers) -> int:
    """Return the number of nodes whose numbers are of no real machine."""
    value = single(answers, "unreal")
    return round(value) if is_known(value) else 0


def dcgm_alone(answers: Answers) -> int:
    """Return the number of hosts that only NVIDIA's exporter tells of, where others have ours: nothing shows them."""
    value = single(answers, "dcgm_alone")
    return round(value) if is_known(value) else 0


def _by(answers: Answers, name: str, label: str) -> dict[str, float]:
    return {row.labels.get(label, ""): row.value for row in answers.get(name, ())}


def _by_node(rows: Sequence[EngineSeries]) -> dict[str, float]:
    """The value of each node; of one that is scraped by several doors the largest, which is of the newest sample."""
    found: dict[str, float] = {}
    for row in rows:
        found[node_of(row)] = max(row.value, found.get(node_of(row), row.value))
    return found


def _late(answers: Answers) -> list[EngineSeries]:
    """Newest samples that are late, or stand, with their times."""
    return [row for row in answers.get("seen", ()) if row.labels.get("newest") != SAME]


def _door(row: EngineSeries) -> tuple[str, str]:
    """By which node and `job` something is told."""
    return node_of(row), row.labels.get("job", "")


def _newest_doors(answers: Answers) -> dict[str, tuple[float, str]]:
    """When each node that tells its GPUs told its newest sample, and by which `job`: two tell of the same GPUs.

    Infinite for one that is not late.
    """
    late = {_door(row): row.value for row in _late(answers)}
    newest: dict[str, tuple[float, str]] = {}
    for row in answers.get("gpus", ()):
        node, job = node_of(row), row.labels.get("job", "")
        told = late.get((node, job), inf), job
        newest[node] = max(told, newest.get(node, told))
    return newest


def _sum(values: Iterable[float]) -> float:
    """The sum of what is known: who has no row in an answer has nothing of it."""
    known = [value for value in values if is_known(value)]
    return sum(known) if known else NAN


def _or_none(value: float) -> float:
    return value if is_known(value) else 0.0


_LOOKBACK = 300.0
"""Seconds for which an engine tells a value that has no successor."""
_LINGERS = SILENT + _LOOKBACK + RULE_INTERVAL
"""Seconds since its newest sample after which nothing of a node is left in a sum, which may be recorded late."""
_CURRENT = (
    "busy", "power", "limit", "held_now", "idle_now", "idle_holders", "runs", "run_nodes", "epochs", "planned",
    "run_places", "throttled",
)  # fmt: skip
_OF_SUBJECT = ("user_places ", "user_jobs ")


def of_now(answers: Answers, nodes: Sequence[Node]) -> Answers:
    """Return answers without what is told of silent nodes alone; where every node is silent, with nothing of now."""
    silent = {node.name for node in nodes if node.silent}
    if not silent:
        return answers
    current = {name for name in answers if name in _CURRENT or name.startswith(_OF_SUBJECT)}
    if len(silent) == len(nodes):
        return {name: rows for name, rows in answers.items() if name not in current}
    gone = _gone(answers, silent)
    return {
        name: [row for row in rows if row.labels.get("instance") not in silent and row.labels.get("run") not in gone]
        if name in current else rows
        for name, rows in answers.items()
    }  # fmt: skip


def _is_told(node: Node) -> bool:
    return any(count for state, count in (node.gpus or {}).items() if state != "unknown")


def _gone(answers: Answers, silent: set[str]) -> set[str]:
    """Runs that are on silent nodes alone, as far as it is known where they are."""
    on: dict[str, set[str]] = {}
    for row in answers.get("run_places", ()):
        on.setdefault(row.labels.get("run", ""), set()).add(row.labels.get("instance", ""))
    return {run for run, places in on.items() if places <= silent}


def may_include(nodes: Sequence[Node]) -> str:
    """Words on a sum that may hold last values of nodes that fell silent just now; empty where it has none.

    Most engines forget a node that does not answer; of one that nobody asks any more they tell GPUs and power alike.
    """
    lately = sum(1 for node in nodes if 0 < node.silent <= _LINGERS and _is_told(node))
    return f"may include {units.counted(lately, 'silent node')}" if lately else ""
