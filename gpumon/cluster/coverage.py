"""Parts of a period that an engine knows: those of which it has samples, and nodes that it did not see in all of it.

Sums of a period are at least so much where a part is missing. Where that is a part of some nodes, those of the users
who are known to have been on one of these in that period are; of who was on one only while it was not seen, and never
told behind, nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from gpumon.cluster.client import Answers, node_of, single
from gpumon.cluster.period_queries import COUNTED, NODES, PER_USER, month
from gpumon.cluster.queries import AWAY, AWAY_EVERY, COARSE, STEP, Period, Question, quoted, seldom
from gpumon.common.config import NO_GROUP, UserGroups
from gpumon.common.numbers import NAN, is_known
from gpumon.cost import WHOLE
from gpumon.model import units
from gpumon.storage.history.tiers import HOUR

_NAMED = 3
"""Nodes that a sentence names."""


class Doubt(NamedTuple):
    """Doubt about sums of a period: users whose sums may be more."""

    everyone: bool
    nodes: Mapping[str, Sequence[str]]
    """Nodes that were not seen all the time, by the users who were on them."""

    def is_whole(self, user: str) -> bool:
        """Whether the sums of a user are known in full."""
        return not self.everyone and user not in self.nodes

    def is_whole_of(self, group: str, groups: UserGroups) -> bool:
        """Whether those of a group are, of which a user may be in no table."""
        return not self.everyone and all(groups.of_user.get(user, NO_GROUP) != group for user in self.nodes)


def covered(answers: Answers, period: Period) -> float:
    """Return the seconds of a period of which the engine has samples; NaN where it did not say."""
    return single(answers, f"covered_{period}")


def length(answers: Answers, period: Period) -> float:
    """Return the seconds of a period; of a month of the calendar of that which was asked for."""
    told = next((row.labels["of"] for row in answers.get(f"covered_{period}", ()) if "of" in row.labels), "")
    return float(told) if told.isdecimal() else period.seconds


def is_whole(answers: Answers, period: Period) -> bool:
    """Whether the engine is known to have samples of each node of all of a period: else sums are at least so much.

    Of a node that came or went for good it is not known what it did before or after.
    """
    return has_all(answers, period) and unseen(answers, period) == {}


def has_all(answers: Answers, period: Period) -> bool:
    """Whether the engine has samples of all of a period, of whatever node."""
    return covered(answers, period) >= WHOLE * length(answers, period)


def unseen(answers: Answers, period: Period) -> Mapping[str, float] | None:
    """Return the seconds of a period in which nodes were not seen, the longest first; None where nobody told.

    It has no more than one node beyond those whose users are asked for.
    """
    rows, whole = answers.get(f"covered_by_node_{period}", ()), length(answers, period)
    missing = {node_of(row): whole - row.value for row in rows if whole - row.value > (1 - WHOLE) * whole}
    return dict(sorted(missing.items(), key=lambda one: (-one[1], one[0]))) if rows else None


def doubt(answers: Answers, period: Period) -> Doubt:
    """Return whose sums of a period are at least so much."""
    if is_whole(answers, period):
        return Doubt(False, {})
    missing = unseen(answers, period)
    told = answers.get(users_of(period, missing or {}))
    if told is None or not has_all(answers, period):
        return Doubt(True, {})
    nodes: dict[str, list[str]] = {}
    for row in told:
        nodes.setdefault(row.labels.get("user", ""), []).append(node_of(row))
    return Doubt(False, nodes)


def users_of(period: Period, nodes: Mapping[str, float]) -> str:
    """Return the name of the question who was on these nodes: of others it is another question."""
    return " ".join((f"away_users_{period}", *sorted(nodes)))


def times_of(period: Period, nodes: Mapping[str, float]) -> str:
    """Return the name of the question when the first of these nodes were away."""
    return " ".join((f"away_times_{period}", *sorted(named(nodes))))


def named(nodes: Mapping[str, float]) -> Sequence[str]:
    """Return those of the nodes that a sentence names."""
    return list(nodes)[:_NAMED]


def at_least(value: float, said: Callable[[float], str], *, is_whole: bool) -> str:
    """The text of a sum, marked where it may be more: at least nothing is not known, as of a cost."""
    if is_whole or not is_known(value):
        return said(value)
    return f"≥ {said(value)}" if value else units.MISSING


def gap(answers: Answers, period: Period) -> str:
    """Return a sentence on a period of which the engine has only a part; empty where it has all."""
    if has_all(answers, period):
        return _gap_of_nodes(answers, period)
    known = covered(answers, period)
    of = f"samples of {units.words(known)} of" if is_known(known) else "not told that it has all of"
    if not is_known(known) and f"covered_{period}" in answers:
        if not answers.get(f"held_{period}"):
            return f"The engine has no samples of {period.words}."
        of = f"samples of less than {units.words(STEP)} of"  # it is looked at in such steps
    return f"The engine has {of} {period.words}: sums are at least so much."


def missing_part(answers: Answers, period: Period, user: str) -> str:
    """Return a few words on what of a user's period is not known; empty where nothing is."""
    found, missing = doubt(answers, period), unseen(answers, period)
    if found.is_whole(user):
        return ""
    if not has_all(answers, period):
        known = covered(answers, period)
        if is_known(known):
            return f"{units.words(known)} of it known"
        return "no samples of it" if f"covered_{period}" in answers and f"held_{period}" in answers else ""
    away = [node for node in missing or {} if node in found.nodes.get(user, ())]
    if not missing or not away:
        return "not every node seen"
    if len(away) > 1:
        return f"{away[0]} and {len(away) - 1} more not seen in all of it"
    times = _times(answers, period, missing)
    if is_known(came := times.get((away[0], "came"), NAN)) and not times.get((away[0], "gaps")):
        return f"{away[0]} not seen before {_moment(came)}"  # it was not away: it was not there yet
    return f"{away[0]} not seen for {units.words(missing[away[0]])}"


def _gap_of_nodes(answers: Answers, period: Period) -> str:
    missing = unseen(answers, period)
    if missing is None:
        return f"Whether every node was seen in all of {period.words} is not known: sums are at least so much."
    if not missing:
        return ""
    first, more = named(missing), len(missing) - len(named(missing))
    times = _times(answers, period, missing)
    told = [f"{node} for {_how_long(node, missing[node], times)}" for node in first]
    if more:
        told.append(f"more than {AWAY - len(first)} others" if len(missing) > AWAY else f"{more} more")
    nodes = told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
    return f"Not seen in all of {period.words}: {nodes}. {_whose(doubt(answers, period), it=len(missing) == 1)}"


def _times(answers: Answers, period: Period, missing: Mapping[str, float]) -> Mapping[tuple[str, str], float]:
    """When the first of these nodes left and came, and how often they were away, as far as that is known."""
    rows = answers.get(times_of(period, missing), ())
    return {(node_of(row), row.labels.get("what", "")): row.value for row in rows}


def _how_long(node: str, seconds: float, times: Mapping[tuple[str, str], float]) -> str:
    """Time for which a node was not seen, and since or until when, as far as that is known."""
    left, came = (times.get((node, what), NAN) for what in ("left", "came"))
    text = units.words(seconds)
    if times.get((node, "gaps"), 0.0) + is_known(came) > 1:
        text += " in all"
    if is_known(came):
        return f"{text} (not before {_moment(came)})"
    return f"{text} (from {_moment(left)})" if is_known(left) else text


def _moment(at: float) -> str:
    """A time with its zone: those beside it on a page are in the zone of the viewer."""
    return f"{units.moment(at)[:-3]} {datetime.fromtimestamp(at).astimezone():%Z}"


def _whose(found: Doubt, *, it: bool) -> str:
    nodes = "it" if it else "one of them"
    if found.everyone:
        return f"Who was on {'it' if it else 'them'} is not known, so all sums are at least so much (≥)."
    if not found.nodes:
        return f"Nobody is known to have been on {nodes} in this time."
    return f"Sums of who was on {nodes} in this time are at least so much (≥)."


_BEFORE = 2 * HOUR
"""Seconds before a period in which a counter counts as there at its beginning."""
_LATELY = HOUR + 600.0
"""Seconds of which hours may not know yet."""


def away_questions(answers: Answers, at: float) -> tuple[Question, ...]:
    """Return the questions about nodes that were not seen, by the answers which these are."""
    found: list[Question] = []
    for period in Period:
        missing = unseen(answers, period)
        if not missing or not has_all(answers, period):  # or all sums are at least so much
            continue
        told = {node_of(row): row.told.get("instance", node_of(row)) for row in answers[f"covered_by_node_{period}"]}
        begin, end = month(period.value, at) if period.is_dated else (at - period.seconds, at)
        every, some = (_only([told[node] for node in nodes]) for nodes in (missing, named(missing)))
        if len(missing) <= AWAY:
            found.append(_users(users_of(period, missing), every, period, begin, end))
        found.append(_absence_times(times_of(period, missing), some, period, begin, end))
    return tuple(found)


def _only(nodes: Sequence[str]) -> str:
    """A matcher of these nodes, by the names that the engine has."""
    return f"instance=~{quoted('|'.join(re.escape(node) for node in nodes))}"


def _users(name: str, only: str, period: Period, begin: float, end: float) -> Question:
    """Ask who was on nodes, by counters in steps, or by those that are recorded once an hour."""
    counter, recorded = f"{COUNTED}{{{only}}}", f"{PER_USER}{{{only}}}"
    steps = f"({_per_user(counter)})[{end - begin:.0f}s:{_step(period)}s] @ {end:.3f}"
    there = _per_user(f"last_over_time({counter}[{_BEFORE:.0f}s] @ {begin:.3f})")
    hours = f"{recorded}[{end - begin + HOUR:.0f}s] @ {end:.3f}"
    were = f"last_over_time({recorded}[{_BEFORE:.0f}s] @ {begin:.3f})"
    now = _per_user(f"last_over_time({counter}[{_LATELY:.0f}s] @ {end:.3f})")
    lately = f"{now} unless on (instance, user) ({now} == on (instance, user) last_over_time({hours}))"
    return Question(
        name, f"group by (instance, user) ({_grown(steps, there)})", every=max(seldom(period), AWAY_EVERY),
        by_hour=f"group by (instance, user) ({_grown(hours, were)} or {lately})", selector=period.selector,
        is_of_one=True,
    )  # fmt: skip


def _grown(samples: str, before: str) -> str:
    """Counters that grew, or began anew, in these samples, or that were not there before."""
    return (
        f"max_over_time({samples}) > min_over_time({samples})"
        f" or (last_over_time({samples}) > 0) unless on (instance, user) {before}"
    )


def _per_user(counter: str) -> str:
    return f"sum by (instance, user) (max by (instance, uuid, user) ({counter}))"


def _absence_times(name: str, only: str, period: Period, begin: float, end: float) -> Question:
    """Ask when nodes went first, how often, and when they came, where they were not there at the beginning."""
    query = _of_times(f"{NODES}{{{only}}}", period, begin, end)
    return Question(name, query, max(seldom(period), AWAY_EVERY), is_of_one=True)


def _of_times(series: str, period: Period, begin: float, end: float) -> str:
    step = _step(period)
    window = f"[{end - begin:.0f}s:{step}s] @ {end:.3f}"
    there, before = (f"max by (instance) ({one})" for one in (series, f"{series} offset {step}s"))
    left = f"(({before} unless on (instance) {there}) * 0 + time()){window}"
    came = f"(min_over_time(({there} * 0 + time()){window}) > {begin + 2 * step:.3f}) - {step}"
    parts: Mapping[str, str] = {
        "left": f"min_over_time({left}) - {step}", "gaps": f"count_over_time({left})", "came": came,
    }  # fmt: skip
    return " or ".join(f'label_replace({part}, "what", "{what}", "", "")' for what, part in parts.items())


def _step(period: Period) -> int:
    return STEP if period is Period.DAY else COARSE
