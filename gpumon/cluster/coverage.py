"""Determines how complete the samples of a period are.

Two things are determined: for how long Prometheus has any samples, and which nodes were absent for some of the time. If
samples of all nodes are missing, all sums are lower bounds. If only some nodes were absent, only the sums of users with
samples on these nodes in the period are lower bounds. A user who was on such a node only while it was absent does not
appear.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpumon.cluster.client import Answers, single
from gpumon.cluster.period_queries import HELD_COUNTER, HOURLY_HELD_COUNTER, NODE_SAMPLES, month_bounds
from gpumon.cluster.queries import (
    ABSENCE_INTERVAL,
    COARSE,
    MAX_ABSENT,
    STEP,
    Period,
    Query,
    quoted,
    refresh_interval,
)
from gpumon.common.config import NO_GROUP, UserGroups
from gpumon.common.numbers import NAN, is_known
from gpumon.cost import WHOLE
from gpumon.model import units
from gpumon.storage.history.tiers import HOUR

_MAX_NAMED = 3
"""Largest number of nodes that a sentence lists."""


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Users whose sums over a period are only lower bounds. `everyone`: True if this applies to all users."""

    everyone: bool
    nodes: Mapping[str, Sequence[str]]
    """By user: the absent nodes on which the user was. Only affected users are included."""

    def is_complete(self, user: str) -> bool:
        """Return True if the sums of this user are exact."""
        return not self.everyone and user not in self.nodes

    def is_group_complete(self, group: str, groups: UserGroups) -> bool:
        """Return True if the sums of a group of users are exact. Members of the group without any row count, too."""
        return not self.everyone and all(groups.of_user.get(user, NO_GROUP) != group for user in self.nodes)


def covered_seconds(answers: Answers, period: Period) -> float:
    """Return for how many seconds of the period Prometheus has samples, or NaN if the query was not answered."""
    return single(answers, f"covered_{period}")


def period_length(answers: Answers, period: Period) -> float:
    """Return the length of the period in seconds. For a calendar month, this is the length of the queried month."""
    length = next((row.labels["of"] for row in answers.get(f"covered_{period}", ()) if "of" in row.labels), "")
    return float(length) if length.isdecimal() else period.seconds


def is_complete(answers: Answers, period: Period) -> bool:
    """Return True if Prometheus certainly has samples of every node for the whole period.

    Otherwise, sums are lower bounds. A node counts as absent before it was added and after it was removed, because
    Prometheus has no usage of it for this time.
    """
    return has_all_samples(answers, period) and absences(answers, period) == {}


def has_all_samples(answers: Answers, period: Period) -> bool:
    """Return True if Prometheus has samples of at least one node at every time in the period."""
    return covered_seconds(answers, period) >= WHOLE * period_length(answers, period)


def absences(answers: Answers, period: Period) -> Mapping[str, float] | None:
    """Return how many seconds of the period each node was absent, longest first. None if the query was not answered.

    If more than `MAX_ABSENT` nodes were absent, `MAX_ABSENT` + 1 are included, so that the caller can tell that there
    are more.
    """
    rows, length = answers.get(f"covered_by_node_{period}", ()), period_length(answers, period)
    missing = {row.node: length - row.value for row in rows if length - row.value > (1 - WHOLE) * length}
    return dict(sorted(missing.items(), key=lambda item: (-item[1], item[0]))) if rows else None


def uncertainty(answers: Answers, period: Period) -> Uncertainty:
    """Return the users whose sums over the period are only lower bounds."""
    if is_complete(answers, period):
        return Uncertainty(False, {})
    missing = absences(answers, period)
    rows = answers.get(absent_users_name(period, missing or {}))
    if rows is None or not has_all_samples(answers, period):
        return Uncertainty(True, {})
    nodes: dict[str, list[str]] = {}
    for row in rows:
        nodes.setdefault(row.labels.get("user", ""), []).append(row.node)
    return Uncertainty(False, nodes)


def absent_users_name(period: Period, nodes: Mapping[str, float]) -> str:
    """Return the name of the query for the users who were on these absent nodes. It is different for other nodes."""
    return " ".join((f"away_users_{period}", *sorted(nodes)))


def absence_times_name(period: Period, nodes: Mapping[str, float]) -> str:
    """Return the name of the query for the times at which the first few of these nodes were absent.

    The name is different for other nodes.
    """
    return " ".join((f"away_times_{period}", *sorted(_first(nodes))))


def _first(nodes: Mapping[str, float]) -> Sequence[str]:
    """Return the first few nodes, which a sentence lists by name."""
    return list(nodes)[:_MAX_NAMED]


def format_sum(value: float, text: Callable[[float], str], *, is_complete: bool) -> str:
    """Return a sum as text, with a mark if it is a lower bound. A lower bound of 0 is shown as missing, as in costs.

    `text`: function that formats the value.
    """
    if is_complete or not is_known(value):
        return text(value)
    return f"≥ {text(value)}" if value else units.MISSING


def gap_sentence(answers: Answers, period: Period) -> str:
    """Return a sentence that says which samples of the period are missing. It is empty if none are missing."""
    if has_all_samples(answers, period):
        return _absence_sentence(answers, period)
    known = covered_seconds(answers, period)
    if is_known(known):
        return f"Prometheus has samples for only {units.long_duration(known)} of {period.words}: sums are lower bounds."
    if f"covered_{period}" not in answers:
        return f"It is unknown whether Prometheus has samples for all of {period.words}: sums are lower bounds."
    if not answers.get(f"held_{period}"):
        return f"Prometheus has no samples for {period.words}."
    # Coverage is counted in steps of `STEP` seconds.
    return f"Prometheus has samples for less than {units.long_duration(STEP)} of {period.words}: sums are lower bounds."


def missing_note(answers: Answers, period: Period, user: str) -> str:
    """Return a short text that says which samples of a user are missing. It is empty if none are missing."""
    known, missing = uncertainty(answers, period), absences(answers, period)
    if known.is_complete(user):
        return ""
    if not has_all_samples(answers, period):
        covered = covered_seconds(answers, period)
        if is_known(covered):
            return f"samples for only {units.long_duration(covered)}"
        return "no samples" if f"covered_{period}" in answers and f"held_{period}" in answers else ""
    absent = [node for node in missing or {} if node in known.nodes.get(user, ())]
    if not missing or not absent:
        return "samples of some nodes missing"
    if len(absent) > 1:
        return f"samples of {absent[0]} and {len(absent) - 1} more missing"
    times = _absence_times(answers, period, missing)
    if is_known(came := times.get((absent[0], "came"), NAN)) and not times.get((absent[0], "gaps")):
        return f"no samples of {absent[0]} before {_moment(came)}"  # the node was added at this time
    return f"no samples of {absent[0]} for {units.long_duration(missing[absent[0]])}"


def _absence_sentence(answers: Answers, period: Period) -> str:
    missing = absences(answers, period)
    if missing is None:
        return f"Some nodes may have no samples for part of {period.words}: sums are lower bounds."
    if not missing:
        return ""
    first = _first(missing)
    more = len(missing) - len(first)
    times = _absence_times(answers, period, missing)
    parts = [f"{node} for {_absence_text(node, missing[node], times)}" for node in first]
    if more:
        parts.append(f"more than {MAX_ABSENT - len(first)} others" if len(missing) > MAX_ABSENT else f"{more} more")
    nodes = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    affected = _affected_sentence(uncertainty(answers, period), is_one=len(missing) == 1)
    return f"Samples missing in {period.words}: {nodes}. {affected}"


def _absence_times(answers: Answers, period: Period, missing: Mapping[str, float]) -> Mapping[tuple[str, str], float]:
    """Return when the first few of these nodes disappeared and appeared, and how many gaps they had.

    Values that the answers do not contain are missing.

    The keys of the result are the node and `left`, `came` or `gaps`.
    """
    rows = answers.get(absence_times_name(period, missing), ())
    return {(row.node, row.labels.get("what", "")): row.value for row in rows}


def _absence_text(node: str, seconds: float, times: Mapping[tuple[str, str], float]) -> str:
    """Return text that says how long a node was absent, with the start or end of the absence if `times` has it."""
    left, came = (times.get((node, kind), NAN) for kind in ("left", "came"))
    text = units.long_duration(seconds)
    if times.get((node, "gaps"), 0.0) + is_known(came) > 1:
        text += " in all"
    if is_known(came):
        return f"{text} (first sample {_moment(came)})"
    return f"{text} (last sample {_moment(left)})" if is_known(left) else text


def _moment(at: float) -> str:
    """Return a time as text with its time zone, because other times on the same page are in the viewer's zone."""
    return f"{units.moment(at)[:-3]} {datetime.fromtimestamp(at).astimezone():%Z}"


def _affected_sentence(known: Uncertainty, *, is_one: bool) -> str:
    if known.everyone:
        return f"{'Its' if is_one else 'Their'} users are unknown, so all sums are lower bounds (≥)."
    nodes = "it" if is_one else "any of them"
    if not known.nodes:
        return f"No user is known to have used {nodes} in this period."
    return f"Sums of users who used {nodes} in this period are lower bounds (≥)."


_BEFORE = 2 * HOUR
"""A counter existed at the start of a period if it has a sample in this many seconds before the start."""
_RECENT = HOUR + 600.0
"""Hourly samples may not cover this many most recent seconds yet."""


def absence_queries(answers: Answers, at: float) -> tuple[Query, ...]:
    """Return queries about the nodes that were absent in a period according to earlier answers.

    `at`: time of the queries (s since 1970).
    """
    queries: list[Query] = []
    for period in Period:
        missing = absences(answers, period)
        if not missing or not has_all_samples(answers, period):  # in the second case, all sums are lower bounds
            continue
        raw = {row.node: row.raw.get("instance", row.node) for row in answers[f"covered_by_node_{period}"]}
        begin, end = month_bounds(period.value, at) if period.is_dated else (at - period.seconds, at)
        every, some = (_matcher([raw[node] for node in nodes]) for nodes in (missing, _first(missing)))
        if len(missing) <= MAX_ABSENT:
            queries.append(_users_query(absent_users_name(period, missing), every, period, begin, end))
        queries.append(_absence_times_query(absence_times_name(period, missing), some, period, begin, end))
    return tuple(queries)


def _matcher(nodes: Sequence[str]) -> str:
    """Return a PromQL label matcher for nodes.

    `nodes`: the names that Prometheus has, not the ones cleaned for display.
    """
    return f"instance=~{quoted('|'.join(re.escape(node) for node in nodes))}"


def _users_query(name: str, matcher: str, period: Period, begin: float, end: float) -> Query:
    """Return a query for the users who held GPUs of some nodes between `begin` and `end` (s since 1970).

    The query reads the users' counters in steps, or the hourly samples of the counters if there are any. `matcher`:
    label matcher for the nodes.
    """
    counter, hourly = f"{HELD_COUNTER}{{{matcher}}}", f"{HOURLY_HELD_COUNTER}{{{matcher}}}"
    steps = f"({_per_user(counter)})[{end - begin:.0f}s:{_step(period)}s] @ {end:.3f}"
    before = _per_user(f"last_over_time({counter}[{_BEFORE:.0f}s] @ {begin:.3f})")
    hours = f"{hourly}[{end - begin + HOUR:.0f}s] @ {end:.3f}"
    hours_before = f"last_over_time({hourly}[{_BEFORE:.0f}s] @ {begin:.3f})"
    now = _per_user(f"last_over_time({counter}[{_RECENT:.0f}s] @ {end:.3f})")
    recent = f"{now} unless on (instance, user) ({now} == on (instance, user) last_over_time({hours}))"
    return Query(
        name, f"group by (instance, user) ({_grown(steps, before)})",
        every=max(refresh_interval(period), ABSENCE_INTERVAL),
        by_hour=f"group by (instance, user) ({_grown(hours, hours_before)} or {recent})", selector=period.selector,
        is_single=True,
    )  # fmt: skip


def _grown(samples: str, before: str) -> str:
    """Return an expression that selects the counters that grew, were reset, or were created in the period.

    `samples`: samples of the counters in the period. `before`: the counters just before the period.
    """
    return (
        f"max_over_time({samples}) > min_over_time({samples})"
        f" or (last_over_time({samples}) > 0) unless on (instance, user) {before}"
    )


def _per_user(counter: str) -> str:
    return f"sum by (instance, user) (max by (instance, uuid, user) ({counter}))"


def _absence_times_query(name: str, matcher: str, period: Period, begin: float, end: float) -> Query:
    """Return a query for when nodes first disappeared and how often.

    For nodes that were absent at the start of the period, it also returns when they appeared.

    `begin`, `end`: the period (s since 1970). `matcher`: label matcher for the nodes.
    """
    step = _step(period)
    series = f"{NODE_SAMPLES}{{{matcher}}}"
    window = f"[{end - begin:.0f}s:{step}s] @ {end:.3f}"
    present, before = (f"max by (instance) ({samples})" for samples in (series, f"{series} offset {step}s"))
    left = f"(({before} unless on (instance) {present}) * 0 + time()){window}"
    came = f"(min_over_time(({present} * 0 + time()){window}) > {begin + 2 * step:.3f}) - {step}"
    parts: Mapping[str, str] = {
        "left": f"min_over_time({left}) - {step}", "gaps": f"count_over_time({left})", "came": came,
    }  # fmt: skip
    promql = " or ".join(f'label_replace({part}, "what", "{kind}", "", "")' for kind, part in parts.items())
    return Query(name, promql, max(refresh_interval(period), ABSENCE_INTERVAL), is_single=True)


def _step(period: Period) -> int:
    return STEP if period is Period.DAY else COARSE
