"""The picture of a cluster: everything that is known of it at a moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from gpumon.cluster import model
from gpumon.cluster.client import EngineAnswer, EngineSeries
from gpumon.cluster.problems import apart
from gpumon.cluster.queries import Period, Question
from gpumon.cluster.rules import RULE_INTERVAL, SILENT
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.storage.history.tiers import HOUR

_KILO, _MEGA = 1e3, 1e6
_KWH = 3.6e6
_LITTLE = 0.1
"""kWh below which two digits behind the point say too little."""


def watts(value: float) -> str:
    """Power: `4.62 MW`, `168 kW`, `650 W`."""
    return _scaled(value, "W") if is_known(value) else units.MISSING


def watts_of(value: float, limit: float) -> str:
    """Power beside its limit, in one unit: `168 / 224 kW`."""
    if not is_known(value) or not is_known(limit):
        return watts(value)
    scale, unit = (_MEGA, "MW") if limit >= _MEGA else (_KILO, "kW") if limit >= _KILO else (1.0, "W")
    digits = 2 if scale == _MEGA else 0
    return f"{value / scale:,.{digits}f} / {limit / scale:,.{digits}f} {unit}"


def energy(joules: float) -> str:
    """Energy: `3.9 MWh`, `121 kWh`; less as elsewhere."""
    if not is_known(joules):
        return units.MISSING
    kwh = joules / _KWH
    if kwh >= 1000:
        return f"{kwh / 1000:,.1f} MWh"
    return f"{kwh:,.0f} kWh" if kwh >= 100 else units.number(joules, Unit.JOULES)


def kwh(joules: float) -> str:
    """Energy as a column has it, in one unit but for what is little: `3,900 kWh`, `0.67 kWh`, `4.2 Wh`."""
    if not is_known(joules):
        return units.MISSING
    value = joules / _KWH
    if 0 < value < _LITTLE:
        return f"{1000 * value:.{1 if value >= 0.001 else 2}f} Wh"
    return f"{value:,.{0 if value >= 100 or value == 0 else 1 if value >= 10 else 2}f} kWh"


def hours(seconds: float) -> str:
    """GPU-hours: `118,400 h`, `14.2 h`."""
    if is_known(seconds) and seconds >= 100 * 3600:
        return f"{seconds / 3600:,.0f} h"
    return units.hours(seconds)


def _scaled(value: float, unit: str) -> str:
    if abs(value) >= _MEGA:
        return f"{value / _MEGA:,.2f} M{unit}"
    return f"{value / _KILO:,.0f} k{unit}" if abs(value) >= 10 * _KILO else f"{value:,.0f} {unit}"


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


TICK = 15.0
"""Seconds between two looks at what is due."""
RULES_MISSING = "series of the recording rules are missing"
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


NO_ANSWER = 3 * TICK
"""Seconds without any answer after which nothing is of now."""
_OF_NOW = ("seen", "gpus")
"""Questions about what is so now, which each round asks that found no answer before."""


def missing_rules(files: Sequence[str]) -> str:
    """Return a sentence on the files of rules to load, without a full stop; empty for none.

    >>> missing_rules(["rules.yml"])
    'series of the recording rules are missing: load rules.yml from deploy/prometheus (again after an upgrade)'
    """
    if not files:
        return ""
    return f"{RULES_MISSING}: load {' and '.join(files)} from deploy/prometheus (again after an upgrade)"


class ClusterPicture(NamedTuple):
    """Everything that is known at a moment."""

    at: float
    """When the engine was last asked, s since 1970; 0 before."""
    kept: Mapping[str, KeptAnswer]
    took: float
    """Seconds for all that was asked in the last round."""
    is_dcgm: bool = False
    """Whether the engine has nothing but NVIDIA's exporters."""
    ahead: float = 0.0
    """Seconds by which the engine's clock is ahead of ours, where it is another; its time is taken then."""
    answered: float = 0.0
    """When anything was last answered, s since 1970, by our clock; 0: never."""
    by_hour: bool = True
    """Whether the engine records sums by the hour."""
    began: float = -inf
    """When the round that made it began, by the steady clock."""
    missing_files: Sequence[str] = ()
    """Files of rules that the engine has not loaded."""
    heard: float = -inf
    """The same as `answered`, by the steady clock."""

    def answers(self) -> dict[str, Sequence[EngineSeries]]:
        """Return the rows of all that was ever answered."""
        return {name: one.rows for name, one in self.kept.items() if one.rows is not None}

    @property
    def is_answered(self) -> bool:
        """Whether the last round had any answer, or asked nothing of what changes from round to round."""
        asked = [one for name in _OF_NOW if (one := self.kept.get(name, NEVER)).problem and one.asked >= self.began]
        return self.heard >= self.began or not asked

    @property
    def is_old(self) -> bool:
        """Whether the engine has answered nothing for so long that nothing here is of now."""
        return self.began - self.heard > NO_ANSWER

    @property
    def told_at(self) -> float:
        """The moment that the newest answer is of; of when it was asked where there is none."""
        return max((one.at for one in self.kept.values() if one.rows is not None), default=0.0) or self.at

    @property
    def unanswered(self) -> Sequence[str]:
        """Questions without whose answer nobody knows what GPUs do now: a silent node would count as free."""
        return [name for name in _OF_NOW if self.is_old or not self._is_of_now(self.kept.get(name, NEVER))]

    def nodes(self) -> list[model.Node]:
        """Return the nodes as they were told last."""
        return model.nodes(self.answers(), self.seen_at)

    def nodes_now(self) -> list[model.Node]:
        """Return the nodes as they are now: without what their GPUs do, where that is not known."""
        found = self.nodes()
        return [one._replace(gpus=None, busy=NAN) for one in found] if self.unanswered else found

    def _is_of_now(self, one: KeptAnswer) -> bool:
        return one.rows is not None and (not one.problem or self.at - one.at <= SILENT)

    @property
    def seen_at(self) -> float:
        """The moment at which nodes were asked for their newest samples: whether one is silent is of then."""
        return self.kept.get("seen", NEVER).at or self.at

    @property
    def clocks(self) -> str:
        """A sentence on the engine's clock where it is another than ours; else empty."""
        if not self.ahead:
            return ""
        side = "ahead of" if self.ahead > 0 else "behind"
        return f"The engine's clock is {apart(self.ahead)} {side} this machine's; its time is shown."

    @property
    def missing_rules(self) -> str:
        """A sentence on the files of rules to load; empty where the engine has them."""
        return missing_rules(self.missing_files)

    def problems(self) -> dict[str, str]:
        """Return why some are not of now, by question."""
        return {name: one.problem for name, one in self.kept.items() if one.problem}
