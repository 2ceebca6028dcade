"""Turns of questions: those that are due, in their order, those that belong together as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpumon.cluster.kept import NEVER, KeptAnswer
from gpumon.cluster.questions import Period, Question
from gpumon.cluster.recorded import RULE_INTERVAL

TICK = 15.0
"""Seconds between two looks at what is due."""
NOT_ASKED = "not asked, because the engine did not answer others in time"
_YOUNG = Period.DAY.seconds
_EARLY = 1.0
"""Seconds by which a question may be asked before it is due."""

Turn = tuple[Question, ...]
"""Questions that are asked and answered together; mostly one."""


def turns(asked: Iterable[Question]) -> list[Turn]:
    """Return questions by what belongs together."""
    found: dict[str, list[Question]] = {}
    for one in asked:
        found.setdefault(one.together or f" {one.name}", []).append(one)
    return [tuple(members) for members in found.values()]


def due(
    asked: Sequence[Turn], kept: Mapping[str, KeptAnswer], intervals: Mapping[str, float], now: float
) -> list[Turn]:
    """Return what is due. A month may keep an engine busy: what moves quickly goes first, of that the longest ago."""
    young = _young(kept)
    found = [turn for turn in asked if _is_due(turn, kept, intervals, now, young)]
    return sorted(found, key=lambda turn: (min(one.every for one in turn), _asked(turn, kept)))


def put_off_longest(found: Sequence[Turn], kept: Mapping[str, KeptAnswer]) -> Turn:
    """Return what no round had time for, since the longest; it is asked whatever others are late."""
    waiting = [turn for turn in found if any(kept.get(one.name, NEVER).problem == NOT_ASKED for one in turn)]
    return min(waiting, key=lambda turn: _asked(turn, kept), default=())


def _asked(turn: Turn, kept: Mapping[str, KeptAnswer]) -> float:
    return min(kept.get(one.name, NEVER).asked for one in turn)


def _young(kept: Mapping[str, KeptAnswer]) -> set[str]:
    """Periods of which the engine has less than a day: their sums grow quickly, and cost nothing yet."""
    covered = {period.value: kept.get(f"covered_{period}", NEVER).rows for period in Period}
    return {name for name, rows in covered.items() if rows and max(row.value for row in rows) < _YOUNG}


def _is_due(
    turn: Turn, kept: Mapping[str, KeptAnswer], intervals: Mapping[str, float], now: float, young: set[str]
) -> bool:
    """Whether to ask again, which is soon where there was no answer, or nothing in it: rules may just have come."""
    known = [kept.get(one.name, NEVER) for one in turn]
    interval = min(intervals[one.name] for one in turn)
    if any(one.problem for one in known):
        interval = min(interval, TICK)
    elif not any(one.rows for one in known) or turn[0].name.rpartition("_")[2] in young:
        interval = min(interval, RULE_INTERVAL)
    return _asked(turn, kept) + interval <= now + _EARLY
