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
from gpumon.cluster.questions import GPUS_OF_NODE, HOURS_ASKED, QUESTIONS, SMALL, THERE, Period, Question
from gpumon.cluster.recorded import DCGM, OWN, RULE_INTERVAL
from gpumon.missing import is_known

TICK = 15.0
"""Seconds between two looks at what is due."""
UNWATCHED = 120.0
"""Seconds without a viewer after which nothing is asked."""
_AT_ONCE = 4
_MOST_LATE = 4
"""Questions without an answer in time, one behind the other, after which a round asks no more."""
_NOT_ASKED = "not asked, because the engine did not answer others in time"
_MOST_SUBJECTS = 16
"""Nodes and users that are asked for by themselves at a time: those that were looked at last."""
_CLOCKS_APART = 10.0
"""Seconds by which the engine's clock may differ from ours before we take its time."""
_LOOK_FOR_RULES = 300.0
_LOOK_AGAIN = 2 * TICK
"""The same, while some are missing."""
_YOUNG = Period.DAY.seconds
_EARLY = 1.0
"""Seconds by which a question may be asked before it is due."""


class AskedEngine(Protocol):
    """An engine, or a stand-in."""

    name: str

    def ahead(self) -> float:
        """Return the seconds by which its clock is ahead of ours. Raises EngineError."""

    def ask(self, expression: str, at: float) -> EngineAnswer:
        """Evaluate an expression at a moment. Raises EngineError."""


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
    """Whether the engine ever told which series it has: else nobody knows whether the rules are there."""
    heard: float = -inf
    """The same as `answered`, by the steady clock."""

    def answers(self) -> dict[str, Sequence[EngineSeries]]:
        """Return the rows of all that was ever answered."""
        return {name: one.rows for name, one in self.kept.items() if one.rows is not None}

    @property
    def seen_at(self) -> float:
        """The moment at which nodes were asked for their newest samples: whether one is silent is of then."""
        return self.kept.get("seen", KeptAnswer()).at or self.at

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
        young = _young(kept)
        due = [
            one for one in asked
            if _is_due(kept.get(one.name, KeptAnswer()),
                       one.interval(recorded=recorded[one.name], is_small=is_small), began,
                       is_young=one.name.rpartition("_")[2] in young)
        ]  # fmt: skip
        # A month may keep an engine busy: what moves quickly goes first, and of that what was asked longest ago.
        due.sort(key=lambda one: (one.every, kept.get(one.name, KeptAnswer()).asked))
        self._late = 0
        answers = self._pool.map(lambda one: self._ask(one, at, recorded=recorded[one.name]), due)
        for question, (answer, problem) in zip(due, answers, strict=True):
            known_before = kept.get(question.name, KeptAnswer())
            asked_at = known_before.asked if problem == _NOT_ASKED else began
            kept[question.name] = _next(known_before, answer, problem, asked_at, at)
            if answer is not None:
                answered, self._answered = ours, began
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

    def _ask(self, question: Question, at: float, *, recorded: bool) -> tuple[EngineAnswer | None, str]:
        if self._late >= _MOST_LATE:
            return None, _NOT_ASKED
        hours = self._hours
        expression = question.expression(recorded=recorded, hours=hours.periods)
        try:
            answer = self._engine.ask(dated(placed(expression, at, hours.phase), at), at)
        except EngineError as error:
            self._late += isinstance(error, EngineLateError)
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


def _young(kept: Mapping[str, KeptAnswer]) -> set[str]:
    """Periods of which the engine has less than a day: their sums grow quickly, and cost nothing yet."""
    covered = {period.value: kept.get(f"covered_{period}", KeptAnswer()).rows for period in Period}
    return {name for name, rows in covered.items() if rows and max(row.value for row in rows) < _YOUNG}


def _is_due(known: KeptAnswer, interval: float, now: float, *, is_young: bool) -> bool:
    """Whether to ask again, which is soon where there was no answer, or nothing in it: rules may just have come."""
    if known.problem:
        interval = min(interval, TICK)
    elif not known.rows or is_young:
        interval = min(interval, RULE_INTERVAL)
    return known.asked + interval <= now + _EARLY


def _next(known: KeptAnswer, answer: EngineAnswer | None, problem: str, began: float, at: float) -> KeptAnswer:
    """An answer, or the one before with what keeps it from being of now."""
    if answer is None:
        return known._replace(asked=began, problem=problem, failing=known.failing or at)
    return KeptAnswer(answer.rows, at, "", 0.0, answer.warning, began)
