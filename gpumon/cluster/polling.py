"""One poller for all who look: asks each question in its turn, and keeps its last answer with its age.

Each question fails alone. All that are due are asked for the same moment, so that one picture shows one time. What
only some look at, such as one node, is asked while they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from threading import Event, Lock, Thread
from time import monotonic
from time import time as wall_clock
from typing import NamedTuple, Protocol

from gpumon.cluster.by_hour import PHASE_ASKED, Hours, phase_of, placed
from gpumon.cluster.calendar_month import dated
from gpumon.cluster.dcgm import DCGM_QUESTIONS
from gpumon.cluster.engine import EngineAnswer, EngineError, EngineLateError, EngineSeries
from gpumon.cluster.kept import NEVER, KeptAnswer, next_answer, of_one_moment
from gpumon.cluster.questions import GPUS_OF_NODE, HOURS_ASKED, QUESTIONS, SMALL, THERE, Question
from gpumon.cluster.recorded import DCGM, OWN
from gpumon.cluster.turns import NOT_ASKED, TICK, Turn, due, put_off_longest, turns
from gpumon.missing import is_known

UNWATCHED = 120.0
"""Seconds without a viewer after which nothing is asked."""
_AT_ONCE = 4
_MOST_LATE = 4
"""Questions without an answer in time, one behind the other, after which a round asks no more, but for one turn."""
_MOST_SUBJECTS = 16
"""Nodes and users that are asked for by themselves at a time: those that were looked at last."""
_OF_NOW = ("seen", "gpus")
"""Questions about what is so now, which each round asks that found no answer before."""
_CLOCKS_APART = 10.0
"""Seconds by which the engine's clock may differ from ours before we take its time."""
_LOOK_FOR_RULES = 300.0
_LOOK_AGAIN = 2 * TICK
"""The same, while some are missing."""


class AskedEngine(Protocol):
    """An engine, or a stand-in."""

    name: str

    def ahead(self) -> float:
        """Return the seconds by which its clock is ahead of ours. Raises EngineError."""

    def ask(self, expression: str, at: float) -> EngineAnswer:
        """Evaluate an expression at a moment. Raises EngineError."""


class ClusterPicture(NamedTuple):
    """Everything that is known at a moment."""

    at: float
    """When the engine was last asked, s since 1970; 0 before."""
    kept: Mapping[str, KeptAnswer]
    recorded: bool
    """Whether the engine has the recorded series of our rules."""
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
    looked: bool = True
    """Whether the engine told which series it has, when asked last: else nobody knows whether the rules are there."""
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
    def seen_at(self) -> float:
        """The moment at which nodes were asked for their newest samples: whether one is silent is of then."""
        return self.kept.get("seen", NEVER).at or self.at

    def problems(self) -> dict[str, str]:
        """Return why some are not of now, by question."""
        return {name: one.problem for name, one in self.kept.items() if one.problem}


class ClusterPoller:
    """Asks while somebody looks."""

    def __init__(
        self, engine: AskedEngine, questions: Sequence[Question] = QUESTIONS, clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = wall_clock,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._questions = questions
        self._clock = clock
        self._now = now
        self._lock = Lock()
        self._picture = ClusterPicture(0.0, {}, recorded=False, took=0.0)
        self._rules_due = 0.0
        self._there: Mapping[str, float] = {}
        """Names that the engine has, with the number of series of each."""
        self._has_looked = False
        self._late = 0
        """Questions of this round that were not answered in time, since one was."""
        self._hours = Hours()
        self._subjects: dict[str, tuple[Sequence[Question], float]] = {}
        self._looked_at = clock()
        self._answered = -inf
        """When a round last had an answer, by the steady clock."""
        self._woken = -inf
        """When somebody looked for the first time in long."""
        self._wake, self._stop = Event(), Event()
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="gpumon-cluster")
        self._thread: Thread | None = None

    @property
    def engine_name(self) -> str:
        """The engine's URL, for people."""
        return self._engine.name

    def start(self) -> ClusterPoller:
        """Begin to ask, in a thread of its own."""
        self._thread = Thread(target=self._run, name="gpumon-cluster", daemon=True)
        self._thread.start()
        return self

    def picture(self) -> ClusterPicture:
        """Return what is known now; whoever calls it looks."""
        slept = self._clock() - self._looked_at > UNWATCHED
        self._looked_at = self._clock()
        if slept:
            self._woken = self._looked_at
            self._wake.set()
        with self._lock:
            return self._picture

    def is_waking(self, picture: ClusterPicture) -> bool:
        """Whether a picture is of before nobody looked for long: the first round since then has not made it."""
        return self._woken > picture.began

    def silence(self, picture: ClusterPicture) -> float:
        """Seconds since the engine answered anything, by the clock of now: also where no round ends any more.

        The first answers after a while without viewers are in no picture yet: there it is since those of the picture.
        """
        return self._clock() - (picture.heard if self.is_waking(picture) else self._answered)

    def look_at(self, subject: str, questions: Callable[[str], Sequence[Question]]) -> None:
        """Ask about a subject, such as a node by its name, too, as long as somebody looks at it."""
        with self._lock:
            known = self._subjects.pop(subject, None)
            self._subjects[subject] = (known[0] if known else questions(subject), self._clock())
            while len(self._subjects) > _MOST_SUBJECTS:
                del self._subjects[next(iter(self._subjects))]
        if known is None:
            self._wake.set()

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    def round(self) -> ClusterPicture:
        """Ask what is due, for one moment, and return what is known then."""
        began, ours, before = self._clock(), self._now(), self._picture
        apart = self._apart(before.ahead)
        known, there = self._there, self._look_around(ours + apart)
        is_dcgm, is_small = DCGM in there and OWN not in there, _is_small(there)
        at = ours + apart
        kept, answered, asked = dict(before.kept), before.answered, list[Question]()
        if there.keys() != known.keys() or is_small != _is_small(known):  # what was not there before may be now
            kept = {name: one._replace(asked=-inf) for name, one in kept.items()}
        asked = self._asked(is_small=is_small, is_dcgm=is_dcgm)
        recorded = {one.name: one.asks_recorded(there, is_small=is_small) for one in asked}
        intervals = {one.name: one.interval(recorded=recorded[one.name], is_small=is_small) for one in asked}
        found = due(turns(asked), kept, intervals, began)
        answers = self._answers(found, put_off_longest(found, kept), at, recorded)
        for turn in found:
            news = {}
            for question in turn:
                answer, problem = answers[question.name]
                was = kept.get(question.name, NEVER)
                asked_at = was.asked if problem == NOT_ASKED else began
                news[question.name] = next_answer(was, answer, problem, asked_at, at)
                if answer is not None:
                    answered, self._answered = ours, began
                if problem or (answer is not None and was.rows and not answer.rows):
                    self._rules_due = 0.0  # it may be another engine that answers next, or one without its rules
            kept |= of_one_moment(before.kept, news, at, intervals[turn[0].name])
        kept = {name: one for name, one in kept.items() if name in recorded}
        has_rules = all(one.asks_recorded(there, is_small=False) for one in asked)
        made = ClusterPicture(
            at, kept, has_rules, self._clock() - began, is_dcgm, apart, answered, is_known(self._hours.phase), began,
            self._has_looked, self._answered,
        )  # fmt: skip
        with self._lock:
            self._picture = made
        return made

    def _asked(self, *, is_small: bool, is_dcgm: bool) -> list[Question]:
        """Questions of now: those of all, and of what somebody looks at."""
        with self._lock:
            now = self._clock()
            self._subjects = {name: one for name, one in self._subjects.items() if now - one[1] <= UNWATCHED}
            subjects = [question for questions, _ in self._subjects.values() for question in questions]
        if is_dcgm:
            return list(DCGM_QUESTIONS)
        asked = [one for one in self._questions if is_small or not one.is_small] + subjects
        return list({one.name: one for one in asked}.values())  # a month asks for what days do, too

    def _answers(
        self, found: Sequence[Turn], in_turn: Turn, at: float, recorded: Mapping[str, bool]
    ) -> Mapping[str, tuple[EngineAnswer | None, str]]:
        """Ask all of these, and return answers and problems by question; `in_turn` is asked in any case."""
        self._late = 0
        wanted = [question for turn in found for question in turn]
        answers = self._pool.map(
            lambda one: self._ask(one, at, recorded=recorded[one.name], in_turn=one in in_turn), wanted
        )
        return dict(zip((one.name for one in wanted), answers, strict=True))

    def _ask(self, question: Question, at: float, *, recorded: bool, in_turn: bool) -> tuple[EngineAnswer | None, str]:
        if self._late >= _MOST_LATE and not in_turn:
            return None, NOT_ASKED
        hours = self._hours
        expression = question.expression(recorded=recorded, hours=hours.periods)
        if not question.is_of_one:  # a name may look like a window
            expression = dated(placed(expression, at, hours.phase), at)
        try:
            answer = self._engine.ask(expression, at)
        except EngineError as error:
            self._late += isinstance(error, EngineLateError) and not in_turn
            return None, str(error)
        self._late = 0
        return answer, ""

    def _apart(self, before: float) -> float:
        """Seconds by which the engine's clock is ahead, where it is another; what it was where nobody says."""
        try:
            ahead = self._engine.ahead()
        except EngineError:
            return before  # the questions will say why
        return round(ahead) if abs(ahead) > _CLOCKS_APART else 0.0

    def _look_around(self, at: float) -> Mapping[str, float]:
        """Return what the engine has of our rules and of exporters."""
        if self._clock() < self._rules_due:
            return self._there
        try:
            self._there = {row.labels.get("__name__", ""): row.value for row in self._engine.ask(THERE, at).rows}
        except EngineError:
            self._has_looked = False
            return self._there  # the questions will say why
        self._has_looked = True
        all_there = all(one.asks_recorded(self._there, is_small=False) for one in self._questions)
        self._rules_due = self._clock() + (_LOOK_FOR_RULES if all_there else _LOOK_AGAIN)
        self._hours = self._hours_at(at) if all_there else Hours()
        return self._there

    def _hours_at(self, at: float) -> Hours:
        """Return what the engine has of sums by the hour; what it had where it does not say."""
        try:
            phase = phase_of(self._engine.ask(PHASE_ASKED, at).rows)
            if not is_known(phase):
                return Hours()
            rows = self._engine.ask(placed(HOURS_ASKED, at, phase), at).rows
        except EngineError:
            return self._hours
        return Hours(phase, frozenset(row.labels.get("of", "") for row in rows))

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._clock() - self._looked_at <= UNWATCHED:
                self.round()
            self._wake.wait(TICK)
            self._wake.clear()


def _is_small(there: Mapping[str, float]) -> bool:
    """Whether the cluster is known to be one in which each GPU can be asked for."""
    return 0 < there.get(OWN, there.get(DCGM, 0.0) / GPUS_OF_NODE) <= SMALL
