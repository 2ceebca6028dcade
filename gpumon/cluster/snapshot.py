"""Snapshots of a cluster (the answers to queries at one moment), selection of due queries, and formats of large
numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from gpumon.cluster import model
from gpumon.cluster.client import PrometheusAnswer, PrometheusSeries
from gpumon.cluster.problems import clock_distance
from gpumon.cluster.queries import Period, Query
from gpumon.cluster.rules import RULE_INTERVAL, SILENT
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.storage.history.tiers import HOUR

_KILO, _MEGA = 1e3, 1e6
_KWH = 3.6e6
_SMALL_KWH = 0.1
"""Below this energy in kWh, two decimals are not sufficient."""


def watts(value: float) -> str:
    """Format power, such as `4.62 MW`, `168 kW` or `650 W`."""
    if not is_known(value):
        return units.MISSING
    if abs(value) >= _MEGA:
        return f"{value / _MEGA:,.2f} MW"
    return f"{value / _KILO:,.0f} kW" if abs(value) >= 10 * _KILO else f"{value:,.0f} W"


def power_of_limit(value: float, limit: float) -> str:
    """Format power and its limit in the same unit, such as `168 / 224 kW`."""
    if not is_known(value) or not is_known(limit):
        return watts(value)
    scale, unit = (_MEGA, "MW") if limit >= _MEGA else (_KILO, "kW") if limit >= _KILO else (1.0, "W")
    digits = 2 if scale == _MEGA else 0
    return f"{value / scale:,.{digits}f} / {limit / scale:,.{digits}f} {unit}"


def energy(joules: float) -> str:
    """Format energy, such as `3.9 MWh` or `121 kWh`. Smaller amounts are formatted as in other views."""
    if not is_known(joules):
        return units.MISSING
    kwh = joules / _KWH
    if kwh >= 1000:
        return f"{kwh / 1000:,.1f} MWh"
    return f"{kwh:,.0f} kWh" if kwh >= 100 else units.number(joules, Unit.JOULES)


def kwh(joules: float) -> str:
    """Format energy for a column, such as `3,900 kWh` or `0.67 kWh`. Small amounts are in Wh, such as `4.2 Wh`."""
    if not is_known(joules):
        return units.MISSING
    value = joules / _KWH
    if 0 < value < _SMALL_KWH:
        return f"{1000 * value:.{1 if value >= 0.001 else 2}f} Wh"
    return f"{value:,.{0 if value >= 100 or value == 0 else 1 if value >= 10 else 2}f} kWh"


def hours(seconds: float) -> str:
    """Format GPU-hours, such as `118,400 h` or `14.2 h`."""
    if is_known(seconds) and seconds >= 100 * 3600:
        return f"{seconds / 3600:,.0f} h"
    return units.hours(seconds)


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """The newest answer to a query, and the reason of the failure if later attempts failed."""

    rows: Sequence[PrometheusSeries] | None = None
    """Rows of the answer. None before the first answer."""
    at: float = 0.0
    """Time for which the query was evaluated (s since 1970)."""
    problem: str = ""
    """Why there is no newer answer. Empty if this answer is current."""
    failing: float = 0.0
    """Time of the first failed attempt since the last answer (s since 1970), or 0 if no attempt failed."""
    warning: str = ""
    queried_at: float = -inf
    """Time at which the query last ran, by the monotonic clock. If -inf, the query is due."""


NOT_YET = CachedAnswer()


def update_answer(
    cached: CachedAnswer, answer: PrometheusAnswer | None, problem: str, queried_at: float, at: float
) -> CachedAnswer:
    """Return the answer to cache after a query.

    `cached`: the previously cached answer. `answer`: the new answer, or None if the query failed. If it failed, the
    previous answer is kept and `problem` is added to it. `queried_at`: monotonic time of the query. `at`: time for
    which the query was evaluated.
    """
    if answer is None:
        return replace(cached, queried_at=queried_at, problem=problem, failing=cached.failing or at)
    return CachedAnswer(answer.rows, at, "", 0.0, answer.warning, queried_at)


def keep_consistent(
    previous: Mapping[str, CachedAnswer], current: Mapping[str, CachedAnswer], at: float, interval: float
) -> Mapping[str, CachedAnswer]:
    """Return the answers of a batch, all for the same moment.

    `previous`, `current`: answers of the previous and of the current round, by query name. `at`: time of the current
    round (s since 1970). `interval`: seconds between two rounds.

    If only some queries failed, the previous answers of the whole batch are returned. But if those are incomplete, or
    older than both an hour and two intervals, the current answers are returned, without rows for the failed queries.
    """
    problem = next((answer.problem for answer in current.values() if answer.problem), "")
    if not problem or all(answer.problem for answer in current.values()):
        return current
    earlier = [previous.get(name, NOT_YET) for name in current]
    is_usable = all(answer.rows is not None for answer in earlier)
    if is_usable and at - min(answer.at for answer in earlier) <= max(HOUR, 2 * interval):
        return {
            name: replace(
                kept, queried_at=answer.queried_at, problem=answer.problem or problem, failing=kept.failing or at
            )
            for kept, (name, answer) in zip(earlier, current.items(), strict=True)
        }
    return {name: replace(answer, rows=None) if answer.problem else answer for name, answer in current.items()}


TICK = 15.0
"""Seconds between rounds. A round runs the queries that are due."""
RULES_MISSING = "series of the recording rules are missing"
NOT_ASKED = "not queried, because Prometheus did not answer other queries in time"
_SHORT_HISTORY = Period.DAY.seconds
_TOLERANCE = 1.0
"""A query may run this many seconds before it is due."""

Batch = tuple[Query, ...]
"""Queries that run together because their answers belong together. A batch usually has a single query."""


def batches(queries: Iterable[Query]) -> list[Batch]:
    """Group the queries into batches. The queries of a batch must be answered for the same moment."""
    by_name: dict[str, list[Query]] = {}
    for query in queries:
        by_name.setdefault(query.batch or f" {query.name}", []).append(query)
    return [tuple(members) for members in by_name.values()]


def due(
    batches: Sequence[Batch], cached: Mapping[str, CachedAnswer], intervals: Mapping[str, float], now: float
) -> list[Batch]:
    """Return the batches that are due.

    Batches with the shortest interval come first, so that they need not wait for a slow query over a month. Of batches
    with equal intervals, the one that has waited longest comes first. `intervals`: seconds between runs of each query,
    by name. `now`: monotonic time.
    """
    short = _short_periods(cached)
    result = [batch for batch in batches if _is_due(batch, cached, intervals, now, short)]
    return sorted(result, key=lambda batch: (min(query.every for query in batch), _last_asked(batch, cached)))


def longest_postponed(batches: Sequence[Batch], cached: Mapping[str, CachedAnswer]) -> Batch:
    """Return the batch that was left out for the longest time. It is sent even if Prometheus is late."""
    waiting = [
        batch for batch in batches if any(cached.get(query.name, NOT_YET).problem == NOT_ASKED for query in batch)
    ]
    return min(waiting, key=lambda batch: _last_asked(batch, cached), default=())


def _last_asked(batch: Batch, cached: Mapping[str, CachedAnswer]) -> float:
    return min(cached.get(query.name, NOT_YET).queried_at for query in batch)


def _short_periods(cached: Mapping[str, CachedAnswer]) -> set[str]:
    """Return the periods that have less than a day of samples.

    Sums over these samples grow quickly and are cheap to query.
    """
    covered = {period.value: cached.get(f"covered_{period}", NOT_YET).rows for period in Period}
    return {name for name, rows in covered.items() if rows and max(row.value for row in rows) < _SHORT_HISTORY}


def _is_due(
    batch: Batch, cached: Mapping[str, CachedAnswer], intervals: Mapping[str, float], now: float, short: set[str]
) -> bool:
    """Return True if a batch should run again.

    After a failure or an empty answer, a batch runs again soon, because recording rules may have been loaded since.
    `short`: result of `_short_periods`.
    """
    known = [cached.get(query.name, NOT_YET) for query in batch]
    interval = min(intervals[query.name] for query in batch)
    if any(answer.problem for answer in known):
        interval = min(interval, TICK)
    elif not any(answer.rows for answer in known) or batch[0].name.rpartition("_")[2] in short:
        interval = min(interval, RULE_INTERVAL)
    return _last_asked(batch, cached) + interval <= now + _TOLERANCE


NO_ANSWER = 3 * TICK
"""After this many seconds without any answer, no value counts as current."""
_CURRENT_STATE = ("seen", "gpus")
"""Queries about the current state. After a failure, they run in each round."""


def missing_rules(files: Sequence[str]) -> str:
    """Return a sentence, without a full stop, that says which rule files to load. Empty if `files` is empty.

    >>> missing_rules(["rules.yml"])
    'series of the recording rules are missing: load rules.yml from deploy/prometheus (again after an upgrade)'
    """
    if not files:
        return ""
    return f"{RULES_MISSING}: load {' and '.join(files)} from deploy/prometheus (again after an upgrade)"


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The state of a cluster at one moment: the answers to all queries."""

    at: float
    """Time of the last queries by Prometheus's clock (s since 1970), or 0 before the first query."""
    cached: Mapping[str, CachedAnswer]
    """The last answer to each query, by the name of the query."""
    took: float
    """Duration of the last round in seconds."""
    is_dcgm: bool = False
    """True if Prometheus has only data from NVIDIA's exporter."""
    clock_offset: float = 0.0
    """Seconds by which Prometheus's clock is ahead of this machine's clock, or 0 if the clocks agree. If they differ,
    all times are by Prometheus's clock."""
    answered: float = 0.0
    """Time of the last answer to any query by this machine's clock (s since 1970), or 0 if there was none."""
    by_hour: bool = True
    """True if Prometheus records hourly sums."""
    began: float = -inf
    """Start of the round of this snapshot, by the monotonic clock."""
    missing_files: Sequence[str] = ()
    """Rule files that Prometheus has not loaded."""
    last_answer: float = -inf
    """Time of the last answer to any query, by the monotonic clock; -inf if there was none."""

    def answers(self) -> dict[str, Sequence[PrometheusSeries]]:
        """Return the rows of the last answer to each query, by the name of the query.

        Queries without any answer are missing.
        """
        return {name: answer.rows for name, answer in self.cached.items() if answer.rows is not None}

    @property
    def is_answered(self) -> bool:
        """True if the last round had any answer, or if none of its queries about the current state failed."""
        state = [self.cached.get(name, NOT_YET) for name in _CURRENT_STATE]
        return self.last_answer >= self.began or not any(
            answer.problem and answer.queried_at >= self.began for answer in state
        )

    @property
    def is_old(self) -> bool:
        """True if Prometheus has not answered for so long that no value in this snapshot is current."""
        return self.began - self.last_answer > NO_ANSWER

    @property
    def newest_at(self) -> float:
        """Time of the newest answer, or of the last queries if there is no answer (s since 1970)."""
        return max((answer.at for answer in self.cached.values() if answer.rows is not None), default=0.0) or self.at

    @property
    def unanswered(self) -> Sequence[str]:
        """Names of the queries about the current state that have no current answer.

        If there are any, the state of GPUs is shown as unknown. Otherwise, a node that stopped reporting would count as
        free.
        """
        return [name for name in _CURRENT_STATE if self.is_old or not self._is_current(self.cached.get(name, NOT_YET))]

    def nodes(self) -> list[model.Node]:
        """Return the nodes as they last reported."""
        return model.nodes(self.answers(), self.seen_at)

    def nodes_now(self) -> list[model.Node]:
        """Return the nodes. If the current state of GPUs cannot be determined, `gpus` is None for each node."""
        nodes = self.nodes()
        return [replace(node, gpus=None, busy=NAN) for node in nodes] if self.unanswered else nodes

    def _is_current(self, answer: CachedAnswer) -> bool:
        return answer.rows is not None and (not answer.problem or self.at - answer.at <= SILENT)

    @property
    def seen_at(self) -> float:
        """Time (s since 1970) of the answer to the query for when each node last reported."""
        return self.cached.get("seen", NOT_YET).at or self.at

    @property
    def clocks(self) -> str:
        """A sentence about Prometheus's clock. It is empty if the clock agrees with this machine's clock."""
        if not self.clock_offset:
            return ""
        side = "ahead of" if self.clock_offset > 0 else "behind"
        return (
            f"Prometheus's clock is {clock_distance(self.clock_offset)} {side} this machine's; "
            "times shown are Prometheus's."
        )

    @property
    def missing_rules(self) -> str:
        """A sentence that says which rule files to load. It is empty if Prometheus has all of them."""
        return missing_rules(self.missing_files)

    def problems(self) -> dict[str, str]:
        """Return the reasons why answers are not current, by the name of the query."""
        return {name: answer.problem for name, answer in self.cached.items() if answer.problem}
