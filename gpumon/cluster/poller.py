"""Questions of a round, asked a few at a time: an engine that answers late is not asked all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import tzinfo
from functools import partial
from math import inf
from threading import Event, Lock, Thread
from time import monotonic
from time import time as wall_clock
from typing import Protocol

from gpumon.cluster import period_queries
from gpumon.cluster.client import Answers, EngineAnswer, EngineError, EngineLateError
from gpumon.cluster.coverage import away_questions, has_all
from gpumon.cluster.period_queries import PHASE_ASKED, Hours, dated, phase_of, placed
from gpumon.cluster.picture import (
    NEVER,
    NOT_ASKED,
    RULES_MISSING,
    TICK,
    ClusterPicture,
    KeptAnswer,
    Turn,
    due,
    missing_rules,
    next_answer,
    of_one_moment,
    put_off_longest,
    turns,
)
from gpumon.cluster.queries import DCGM_QUESTIONS, GPUS_OF_NODE, HOURS_ASKED, QUESTIONS, SMALL, THERE, Question
from gpumon.cluster.rules import DCGM, OWN, RULE_FILES
from gpumon.common.numbers import is_known

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
        self, found: Sequence[Turn], in_turn: Turn, at: float, hours: Hours, missing: str = ""
    ) -> Mapping[str, tuple[EngineAnswer | None, str]]:
        """Ask all of these, and return answers and problems by question; `in_turn` is asked in any case.

        `missing`: why nothing is asked that needs the rules; empty where they are there.
        """
        self._late = 0
        wanted = [question for turn in found for question in turn]
        answers = self._pool.map(
            lambda one: (
                (None, missing) if missing and one.needs_rules else self._ask(one, at, hours, in_turn=one in in_turn)
            ),
            wanted,
        )
        return dict(zip((one.name for one in wanted), answers, strict=True))

    def _ask(self, question: Question, at: float, hours: Hours, *, in_turn: bool) -> tuple[EngineAnswer | None, str]:
        if self._late >= _MOST_LATE and not in_turn:
            return None, NOT_ASKED
        expression = question.expression(hours.periods)
        if not question.is_of_one:  # a name may look like a window
            expression = dated(placed(expression, at, hours.phase, self._zone), at, self._zone)
            expression = period_queries.told(expression, at, self._zone)
        try:
            answer = self._engine.ask(expression, at)
        except EngineError as error:
            self._late += isinstance(error, EngineLateError) and not in_turn
            return None, str(error)
        self._late = 0
        return answer, ""


_CLOCKS_APART = 10.0
"""Seconds by which the engine's clock may differ from ours before we take its time."""
_LOOK_FOR_RULES = 300.0
_LOOK_AGAIN = 2 * TICK
"""The same, while some are missing."""


class EngineLook:
    """Looks at what an engine has; it is asked again from time to time, and after a question that failed."""

    def __init__(self, engine: AskedEngine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._due = 0.0
        self.there: Mapping[str, float] = {}
        """Names that the engine has, with the number of series of each."""
        self.problem = "not asked yet"
        """Why it did not tell them when it was asked last; empty where it did."""
        self.hours = Hours()

    @property
    def is_dcgm(self) -> bool:
        """Whether it has nothing but NVIDIA's exporters."""
        return DCGM in self.there and OWN not in self.there

    @property
    def missing_files(self) -> Sequence[str]:
        """Files of rules that an engine with our exporters has not loaded; of any other engine none is missed."""
        return [file for proof, file in RULE_FILES.items() if proof not in self.there] if OWN in self.there else []

    @property
    def why_not(self) -> str:
        """Why nothing is asked that needs the rules; empty where it is."""
        if not self.there and self.problem:
            return self.problem
        return RULES_MISSING if self.missing_files else ""

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
        """Look which rules and exporters it has, where that is due; return whether it has others now."""
        if self._clock() < self._due:
            return False
        before = self.there.keys(), self.is_small
        try:
            self.there = {row.labels.get("__name__", ""): row.value for row in self._engine.ask(THERE, at).rows}
        except EngineError as error:
            self.problem = str(error)
            return False  # the questions will say why
        self.problem = ""
        has_rules = all(proof in self.there for proof in RULE_FILES)
        self._due = self._clock() + (_LOOK_FOR_RULES if has_rules else _LOOK_AGAIN)
        self.hours = self._hours_at(at) if has_rules else Hours()
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


UNWATCHED = 120.0
"""Seconds without a viewer after which nothing is asked."""
_MOST_SUBJECTS = 16
"""Nodes and users that are asked for by themselves at a time: those that were looked at last."""


class ClusterPoller:
    """Asks while somebody looks."""

    def __init__(
        self, engine: AskedEngine, questions: Sequence[Question] = QUESTIONS, clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = wall_clock,
        follow: Callable[[Answers, float], Sequence[Question]] = away_questions, zone: tzinfo | None = None,
    ) -> None:  # fmt: skip
        """`follow`: tells, by what was answered up to a moment, what else is to be asked; `zone`: the site's."""
        self._engine = engine
        self._questions = questions
        self._clock = clock
        self._now = now
        self._follow = follow
        self._lock = Lock()
        self._picture = ClusterPicture(0.0, {}, took=0.0)
        self._asking = Asking(engine, zone)
        self._look = EngineLook(engine, clock)
        self._subjects: dict[str, tuple[Sequence[Question], float]] = {}
        self._looked_at = clock()
        self._answered = -inf
        """When a round last had an answer, by the steady clock."""
        self._woken = -inf
        """When somebody looked for the first time in long."""
        self._wake, self._stop = Event(), Event()
        self._thread: Thread | None = None

    @property
    def engine_name(self) -> str:
        """The engine's URL, for people."""
        return self._engine.name

    def start(self, tell: Callable[[str], object] = bool) -> ClusterPoller:
        """Begin to ask, in a thread of its own; `tell` is called once if the engine lacks rules."""
        self._thread = Thread(target=self._run, args=(tell,), name="gpumon-cluster", daemon=True)
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
        self._asking.close()

    def round(self) -> ClusterPicture:
        """Ask what is due, for one moment, and return what is known then."""
        began, ours, before, look = self._clock(), self._now(), self._picture, self._look
        apart = look.apart(before.ahead)
        at = ours + apart
        kept = dict(before.kept)
        if look.look(at):  # what was not there before may be now
            kept = {name: one._replace(asked=-inf) for name, one in kept.items()}
        table = self._asked()
        asked = [one for one in table if one.where_whole is None]
        kept = self._ask(asked, kept, began, at)
        follows: tuple[Callable[[Answers, float], Sequence[Question]], ...] = (partial(_of_whole, table), self._follow)
        for following in follows:
            more = following(_rows(kept), at)
            asked += more
            if self._answered >= began:  # of an engine that answers nothing no more is asked
                kept = self._ask(more, kept, began, at)
        wanted = {one.name for one in asked}
        kept = {name: one for name, one in kept.items() if name in wanted}
        answered = ours if self._answered >= began else before.answered
        made = ClusterPicture(
            at, kept, self._clock() - began, look.is_dcgm, apart, answered, is_known(look.hours.phase), began,
            look.missing_files, self._answered,
        )  # fmt: skip
        with self._lock:
            self._picture = made
        return made

    def _ask(
        self, asked: Sequence[Question], kept: Mapping[str, KeptAnswer], began: float, at: float
    ) -> dict[str, KeptAnswer]:
        """Ask those that are due, and return all that is known then."""
        look, is_small, known = self._look, self._look.is_small, dict(kept)
        intervals = {one.name: one.interval(is_small=is_small) for one in asked}
        found = due(turns(asked), kept, intervals, began)
        answers = self._asking.answers(found, put_off_longest(found, kept), at, look.hours, look.why_not)
        for turn in found:
            news = {}
            for question in turn:
                answer, problem = answers[question.name]
                was = kept.get(question.name, NEVER)
                asked_at = was.asked if problem == NOT_ASKED else began
                news[question.name] = next_answer(was, answer, problem, asked_at, at)
                if answer is not None:
                    self._answered = began
                if problem or (answer is not None and was.rows and not answer.rows):
                    look.look_soon()
            known |= of_one_moment(kept, news, at, intervals[turn[0].name])
        return known

    def _asked(self) -> list[Question]:
        """Questions of now: those of all, and of what somebody looks at."""
        with self._lock:
            now = self._clock()
            self._subjects = {name: one for name, one in self._subjects.items() if now - one[1] <= UNWATCHED}
            subjects = [question for questions, _ in self._subjects.values() for question in questions]
        if self._look.is_dcgm:
            return list(DCGM_QUESTIONS)
        asked = [one for one in self._questions if self._look.is_small or not one.is_small] + subjects
        return list({one.name: one for one in asked}.values())  # a month asks for what days do, too

    def _run(self, tell: Callable[[str], object]) -> None:
        self._look.look(self._now() + self._look.apart(0.0))
        if self._look.missing_files:
            tell(missing_rules(self._look.missing_files))
        while not self._stop.is_set():
            if self._clock() - self._looked_at <= UNWATCHED:
                self.round()
            self._wake.wait(TICK)
            self._wake.clear()


def _rows(kept: Mapping[str, KeptAnswer]) -> Answers:
    return {name: one.rows for name, one in kept.items() if one.rows is not None}


def _of_whole(table: Sequence[Question], answers: Answers, _at: float) -> list[Question]:
    """Questions of this table about periods which the engine has to have in full, and has."""
    return [one for one in table if one.where_whole and has_all(answers, one.where_whole)]
