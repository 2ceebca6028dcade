"""Answers that are kept until newer ones come: each alone, or all that belong together at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from gpumon.cluster.engine import EngineAnswer, EngineSeries
from gpumon.storage.history.tiers import HOUR


class KeptAnswer(NamedTuple):
    """The last answer to a question."""

    rows: Sequence[EngineSeries] | None = None
    """None until there was one."""
    at: float = 0.0
    """The moment that it is of, s since 1970."""
    problem: str = ""
    """Why there is no newer one; empty where there is."""
    failing: float = 0.0
    """Since when there is none, s since 1970; 0 where there is."""
    warning: str = ""
    asked: float = -inf
    """When it was last asked, by the steady clock; -inf: it is asked at once."""


NEVER = KeptAnswer()


def next_answer(known: KeptAnswer, answer: EngineAnswer | None, problem: str, asked: float, at: float) -> KeptAnswer:
    """Return an answer, or the one before with what keeps it from being of now."""
    if answer is None:
        return known._replace(asked=asked, problem=problem, failing=known.failing or at)
    return KeptAnswer(answer.rows, at, "", 0.0, answer.warning, asked)


def of_one_moment(
    before: Mapping[str, KeptAnswer], found: Mapping[str, KeptAnswer], at: float, interval: float
) -> Mapping[str, KeptAnswer]:
    """Return answers that belong together, never some of one moment and some of another.

    `before` and `found`: by question, those of the round before and of this one, asked for `at`. As long as one is not
    answered all stay as they were; after an hour, or where they never were all there, those of now take their place
    and what was not answered is missing.
    """
    problem = next((one.problem for one in found.values() if one.problem), "")
    if not problem or all(one.problem for one in found.values()):
        return found
    were = [before.get(name, NEVER) for name in found]
    if all(one.rows is not None for one in were) and at - min(one.at for one in were) <= max(HOUR, 2 * interval):
        return {
            name: was._replace(asked=one.asked, problem=one.problem or problem, failing=was.failing or at)
            for was, (name, one) in zip(were, found.items(), strict=True)
        }
    return {name: one._replace(rows=None) if one.problem else one for name, one in found.items()}
