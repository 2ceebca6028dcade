"""Questions that follow from answers: who was on nodes that were not seen in all of a period, and when these went.

They cost nothing where every node was seen. A counter of held time that grew in a period, or was not there at its
beginning, is of a user who was on its node in it, also where it grew while nobody saw the node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpumon.cluster.by_hour import COUNTED, NODES, PER_USER
from gpumon.cluster.calendar_month import month
from gpumon.cluster.coverage import has_all, named, times_of, unseen, users_of
from gpumon.cluster.gpus import quoted
from gpumon.cluster.questions import AWAY, AWAY_EVERY, COARSE, STEP, Period, Question, seldom
from gpumon.cluster.recorded import TOLD
from gpumon.cluster.rows import Answers, node_of
from gpumon.storage.history.tiers import HOUR

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
        found.append(_times(times_of(period, missing), some, period, begin, end))
    return tuple(found)


def _only(nodes: Sequence[str]) -> str:
    """A matcher of these nodes, by the names that the engine has."""
    return f"instance=~{quoted('|'.join(re.escape(node) for node in nodes))}"


def _users(name: str, only: str, period: Period, begin: float, end: float) -> Question:
    """Ask who was on nodes, with counters of this period: without recorded ones in steps."""
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


def _times(name: str, only: str, period: Period, begin: float, end: float) -> Question:
    """Ask when nodes went first, how often, and when they came, where they were not there at the beginning."""
    free = TOLD.replace("{", "{" + only + ",")
    return Question(
        name, _of_times(f"{NODES}{{{only}}}", period, begin, end), _of_times(free, period, begin, end),
        max(seldom(period), AWAY_EVERY), is_of_one=True,
    )  # fmt: skip


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
