"""One poller for all who look: asks each question in its turn, and keeps its last answer with its age.

Each question fails alone. All that are due are asked for the same moment, so that one picture shows one time. What
only some look at, such as one node, is asked while they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from math import inf
from threading import Event, Lock, Thread
from time import monotonic
from time import time as wall_clock

from gpumon.cluster.asking import AskedEngine, Asking
from gpumon.cluster.away import away_questions
from gpumon.cluster.coverage import has_all
from gpumon.cluster.dcgm import DCGM_QUESTIONS
from gpumon.cluster.kept import NEVER, KeptAnswer, next_answer, of_one_moment
from gpumon.cluster.looking import EngineLook
from gpumon.cluster.picture import ClusterPicture
from gpumon.cluster.questions import QUESTIONS, Question
from gpumon.cluster.rows import Answers
from gpumon.cluster.turns import NOT_ASKED, TICK, due, put_off_longest, turns
from gpumon.common.numbers import is_known

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
        self._picture = ClusterPicture(0.0, {}, recorded=False, took=0.0)
        self._asking = Asking(engine, zone)
        self._look = EngineLook(engine, questions, clock)
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
        has_rules = all(one.asks_recorded(look.there, is_small=False) for one in table)
        answered = ours if self._answered >= began else before.answered
        made = ClusterPicture(
            at, kept, has_rules, self._clock() - began, look.is_dcgm, apart, answered, is_known(look.hours.phase),
            began, look.has_looked, self._answered,
        )  # fmt: skip
        with self._lock:
            self._picture = made
        return made

    def _ask(
        self, asked: Sequence[Question], kept: Mapping[str, KeptAnswer], began: float, at: float
    ) -> dict[str, KeptAnswer]:
        """Ask those that are due, and return all that is known then."""
        look, is_small, known = self._look, self._look.is_small, dict(kept)
        recorded = {one.name: one.asks_recorded(look.there, is_small=is_small) for one in asked}
        intervals = {one.name: one.interval(recorded=recorded[one.name], is_small=is_small) for one in asked}
        found = due(turns(asked), kept, intervals, began)
        answers = self._asking.answers(found, put_off_longest(found, kept), at, recorded, look.hours)
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

    def _run(self) -> None:
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
