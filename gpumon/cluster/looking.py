"""A look at the engine itself: which series it has, whether it adds up hours, and how far its clock is from ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpumon.cluster.asking import AskedEngine
from gpumon.cluster.by_hour import PHASE_ASKED, Hours, phase_of, placed
from gpumon.cluster.engine import EngineError
from gpumon.cluster.questions import GPUS_OF_NODE, HOURS_ASKED, SMALL, THERE, Question
from gpumon.cluster.recorded import DCGM, OWN
from gpumon.cluster.turns import TICK
from gpumon.common.numbers import is_known

_CLOCKS_APART = 10.0
"""Seconds by which the engine's clock may differ from ours before we take its time."""
_LOOK_FOR_RULES = 300.0
_LOOK_AGAIN = 2 * TICK
"""The same, while some are missing."""


class EngineLook:
    """Looks at what an engine has; it is asked again from time to time, and after a question that failed."""

    def __init__(self, engine: AskedEngine, questions: Sequence[Question], clock: Callable[[], float]) -> None:
        self._engine = engine
        self._questions = questions
        self._clock = clock
        self._due = 0.0
        self.there: Mapping[str, float] = {}
        """Names that the engine has, with the number of series of each."""
        self.has_looked = False
        """Whether it told them, when asked last."""
        self.hours = Hours()

    @property
    def is_dcgm(self) -> bool:
        """Whether it has nothing but NVIDIA's exporters."""
        return DCGM in self.there and OWN not in self.there

    @property
    def is_small(self) -> bool:
        """Whether the cluster is known to be one in which each GPU can be asked for."""
        return 0 < self.there.get(OWN, self.there.get(DCGM, 0.0) / GPUS_OF_NODE) <= SMALL

    def apart(self, before: float) -> float:
        """Return the seconds by which its clock is ahead, where it is another; what it was where nobody says."""
        try:
            ahead = self._engine.ahead()
        except EngineError:
            return before  # the questions will say why
        return round(ahead) if abs(ahead) > _CLOCKS_APART else 0.0

    def look(self, at: float) -> bool:
        """Look what it has of our rules and of exporters, where that is due; return whether it has others now."""
        if self._clock() < self._due:
            return False
        before = self.there.keys(), self.is_small
        try:
            self.there = {row.labels.get("__name__", ""): row.value for row in self._engine.ask(THERE, at).rows}
        except EngineError:
            self.has_looked = False
            return False  # the questions will say why
        self.has_looked = True
        all_there = all(one.asks_recorded(self.there, is_small=False) for one in self._questions)
        self._due = self._clock() + (_LOOK_FOR_RULES if all_there else _LOOK_AGAIN)
        self.hours = self._hours_at(at) if all_there else Hours()
        return before != (self.there.keys(), self.is_small)

    def look_soon(self) -> None:
        """Look again in the next round: it may be another engine that answers then, or one without its rules."""
        self._due = 0.0

    def _hours_at(self, at: float) -> Hours:
        """Return what the engine has of sums by the hour; what it had where it does not say."""
        try:
            phase = phase_of(self._engine.ask(PHASE_ASKED, at).rows)
            if not is_known(phase):
                return Hours()
            rows = self._engine.ask(placed(HOURS_ASKED, at, phase), at).rows
        except EngineError:
            return self.hours
        return Hours(phase, frozenset(row.labels.get("of", "") for row in rows))
