"""Questions of a round, asked a few at a time: an engine that answers late is not asked all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import tzinfo
from typing import Protocol

from gpumon.cluster import site_clock
from gpumon.cluster.by_hour import Hours, placed
from gpumon.cluster.calendar_month import dated
from gpumon.cluster.engine import EngineAnswer, EngineError, EngineLateError
from gpumon.cluster.questions import Question
from gpumon.cluster.turns import NOT_ASKED, Turn

_AT_ONCE = 4
_MOST_LATE = 4
"""Questions without an answer in time, one behind the other, after which a round asks no more, but for one turn."""


class AskedEngine(Protocol):
    """An engine, or a stand-in."""

    name: str

    def ahead(self) -> float:
        """Return the seconds by which its clock is ahead of ours. Raises EngineError."""

    def ask(self, expression: str, at: float) -> EngineAnswer:
        """Evaluate an expression at a moment. Raises EngineError."""


class Asking:
    """Asks an engine; of one round at a time."""

    def __init__(self, engine: AskedEngine, zone: tzinfo | None = None) -> None:
        """`zone`: that of the site's months and hours; else that of this process."""
        self._engine = engine
        self._zone = zone
        self._late = 0
        """Questions of this round that were not answered in time, since one was."""
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="gpumon-cluster")

    def close(self) -> None:
        """Ask no more."""
        self._pool.shutdown(cancel_futures=True)

    def answers(
        self, found: Sequence[Turn], in_turn: Turn, at: float, recorded: Mapping[str, bool], hours: Hours
    ) -> Mapping[str, tuple[EngineAnswer | None, str]]:
        """Ask all of these, and return answers and problems by question; `in_turn` is asked in any case."""
        self._late = 0
        wanted = [question for turn in found for question in turn]
        answers = self._pool.map(
            lambda one: self._ask(one, at, hours, recorded=recorded[one.name], in_turn=one in in_turn), wanted
        )
        return dict(zip((one.name for one in wanted), answers, strict=True))

    def _ask(
        self, question: Question, at: float, hours: Hours, *, recorded: bool, in_turn: bool
    ) -> tuple[EngineAnswer | None, str]:
        if self._late >= _MOST_LATE and not in_turn:
            return None, NOT_ASKED
        expression = question.expression(recorded=recorded, hours=hours.periods)
        if not question.is_of_one:  # a name may look like a window
            expression = dated(placed(expression, at, hours.phase, self._zone), at, self._zone)
            expression = site_clock.told(expression, at, self._zone)
        try:
            answer = self._engine.ask(expression, at)
        except EngineError as error:
            self._late += isinstance(error, EngineLateError) and not in_turn
            return None, str(error)
        self._late = 0
        return answer, ""
