"""The calls of one GPU: which are due, what they answered, and whether it answers at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from math import inf
from operator import attrgetter
from typing import Any

from gpumon.common.clock import Clock
from gpumon.model.metrics import Availability
from gpumon.sources.nvml.library import SUCCESS, Library, availability
from gpumon.sources.nvml.readings import CALLS, FALLBACKS, Call
from gpumon.sources.nvml.values import AGAIN, EVERY_TICK, UNSUPPORTED, CallCost, DeviceAnswers, Read, next_due

_DOUBTED_EVERY = 30.0
_OK = Availability.OK
"""To look it up in its class takes longer than all else that is done with it, for each device at each tick."""
_GONE = (Availability.LOST, Availability.NO_DRIVER)
"""Of these one call is proof: nothing more is asked."""
_WORST = (
    Availability.RESET_REQUIRED, Availability.NO_PERMISSION, Availability.FAILED, Availability.NOT_SUPPORTED, *_GONE,
)  # fmt: skip
"""State of a device for which every call failed, if the calls disagree. That it is gone was then said earlier."""


class _Scheduled:
    """A call of the table, bound to this device's buffers, and when it is next due."""

    __slots__ = ("call", "code", "cost", "due", "given", "has_answered", "is_each_tick", "metrics", "read", "reasons")

    def __init__(self, call: Call, read: Read) -> None:
        self.call = call
        self.is_each_tick = call.period == EVERY_TICK
        self.metrics = frozenset(call.metrics)
        self.read = read
        self.cost = CallCost(call.function)
        self.reasons = 0
        """Number of reasons that had come when it last gave all its metrics."""
        self.given = 0
        """Number of metrics that it has given at once, at most."""
        self.due = 0.0
        self.code = SUCCESS
        """The last answer."""
        self.has_answered = False
        """Whether this device has ever given it."""


_DUE = attrgetter("due")


class DeviceCalls:
    """Makes the calls of the table for one device, and fills in its answers."""

    def __init__(
        self, library: Library, handle: Any, index: int, answers: DeviceAnswers, withheld: Collection[str],
        table: Sequence[Call] = CALLS, fallbacks: Sequence[Call] = FALLBACKS,
    ) -> None:  # fmt: skip
        """`withheld`: metrics that are not asked for. `table` begins with what is asked at each tick."""
        self.state = _OK
        self.failure = SUCCESS
        """The driver's code where the state is not OK."""
        self._handle = handle
        self._index = index
        self._answers = answers
        self._clock: Clock = answers.clock
        asked = [call for call in table if not any(name in withheld for name in call.metrics)]
        self._calls = [_Scheduled(call, read) for call in asked if (read := call.make(library))]
        self._fallbacks = [_Scheduled(call, read) for call in fallbacks if (read := call.make(library))]
        # The table begins with what is asked at each tick; most ticks look no further.
        count = next((at for at, one in enumerate(self._calls) if not one.is_each_tick), 0)
        self._each_tick, self._seldom = self._calls[:count], self._calls[count:]
        self._seldom_due = 0.0
        """Seconds: when one of the others is due next."""
        self._covering: Set[str] | None = None
        """A set of batched metrics that leaves nothing to ask for by itself."""
        self._doubt_from = 0.0
        self._is_gone = False
        """Whether what was answered at this tick settles that it gives no values: nothing more is asked."""
        self._at = 0
        """ns, CLOCK_MONOTONIC: when the last call of this tick ended."""

    def costs(self) -> list[CallCost]:
        """Return what each call has cost here so far; may be called from any thread."""
        return [scheduled.cost for scheduled in (*self._calls, *self._fallbacks)]

    def sleep(self) -> None:
        """Ask nothing: the device is powered down, and a call would wake it."""
        self.state, self.failure = Availability.ASLEEP, SUCCESS
        self._answers.clear()
        self._answers.read_at_ns = self._clock.monotonic()

    def ask_anew(self) -> None:
        """Ask for everything with the next tick, as of a device that was never asked."""
        for scheduled in (*self._calls, *self._fallbacks):
            scheduled.due, scheduled.has_answered, scheduled.given, scheduled.reasons = 0.0, False, 0, 0
        self._seldom_due = 0.0

    def ask(self, now: float) -> None:
        """Ask all that is due; `now` in seconds. Without an answer, old values are forgotten."""
        before = self.state
        self._at = self._clock.monotonic()
        if not self._ask_due(now):
            self._doubt(now)
        elif before is not _OK:
            self._ask_all(now)  # nothing was kept of what is read seldom
        if self.state is _OK:
            self._try_fallbacks(now)
        else:
            # Old values of a device that is gone would look like a device that is there.
            self._answers.clear()

    def _ask_due(self, now: float) -> bool:
        """Ask what is due. Whether it answers: anything at all, and to no call that it is gone."""
        answers, handle, monotonic = self._answers, self._handle, self._clock.monotonic
        asked = answered = is_stamped = self._is_gone = False
        at = self._at
        for scheduled in self._each_tick:
            if scheduled.due > now:
                continue
            code = scheduled.code = scheduled.read(handle, answers)
            # One reading of the clock for each call: it ends one, and begins the next.
            began, at = at, monotonic()
            if not is_stamped:
                # After the first row of the table: what moves fastest is then of this moment, whichever call hangs.
                is_stamped, answers.read_at_ns = True, at
            took, cost = at - began, scheduled.cost
            # Nearly every call of nearly every tick, so in place. Where no reason came since it gave all its metrics,
            # it gave them all again.
            if code == SUCCESS and took <= cost.usual and scheduled.reasons == answers.reasons:
                cost.calls += 1
                cost.total += took
                answered = True
                continue
            asked, self._at = True, at
            self._settle(scheduled, now, took, answers.single)
            if code == SUCCESS:
                answered = True
            elif self._says_that_it_is_gone(code):
                return False
        self._at = at
        if asked and self._must_be_reset():
            return False
        if answered:
            self._doubt_from = 0.0  # it is well: the next silence is another one
        if now >= self._seldom_due:
            self._seldom.sort(key=_DUE)
            for scheduled in self._seldom:
                if scheduled.due > now:
                    break
                asked = True
                code = self._ask(scheduled, now, answers.single)
                if not answers.read_at_ns:
                    answers.read_at_ns = self._at
                if code == SUCCESS:
                    answered = True
                elif self._says_that_it_is_gone(code):
                    return False
            if answers.overdue:
                self._hurry(now)
            self._seldom_due = min(map(_DUE, self._seldom), default=inf)
        if answered:
            self.state, self.failure = _OK, SUCCESS
        return answered or (not asked and self.state is _OK)  # all of them slow: nothing was due

    def _hurry(self, now: float) -> None:
        """Ask at the next tick for what another answer has contradicted."""
        overdue, self._answers.overdue = self._answers.overdue, ""
        for scheduled in self._seldom:
            if overdue in scheduled.metrics:
                scheduled.due = min(scheduled.due, now + scheduled.cost.wait)

    def _says_that_it_is_gone(self, code: int) -> bool:
        """Whether the device is gone by this answer, which is then noted."""
        if availability(code) not in _GONE:
            return False
        self.state, self.failure, self._is_gone = availability(code), code, True
        return True

    def _must_be_reset(self) -> bool:
        """Whether most of what is asked at each tick is refused until a reset, which is then the device's state.

        A fan or a PCIe link may still be told of a device on which nothing runs any more.
        """
        refused = [one for one in self._each_tick if availability(one.code) is Availability.RESET_REQUIRED]
        if 2 * len(refused) <= len(self._each_tick):
            return False
        self.state, self.failure, self._is_gone = Availability.RESET_REQUIRED, refused[0].code, True
        return True

    def _ask_all(self, now: float) -> bool:
        """Ask for everything that is not read at each tick, and for what was to be asked again only later."""
        for scheduled in self._calls:
            if not scheduled.is_each_tick or scheduled.due > now:
                scheduled.due = 0.0
        self._seldom_due = 0.0
        return self._ask_due(now)

    def _doubt(self, now: float) -> None:
        """Nothing answered: is it this device, or only these calls? The others tell."""
        if not self._is_gone and now >= self._doubt_from:
            self._doubt_from = now + _DOUBTED_EVERY
            self._ask_all(now)
        if self._is_gone:
            return
        codes = [scheduled.code for scheduled in self._calls]
        if codes and SUCCESS not in codes:
            self.failure = min(codes, key=lambda code: _WORST.index(availability(code)))
            self.state = availability(self.failure)
            for scheduled in self._calls:
                if scheduled.is_each_tick:
                    scheduled.due = min(scheduled.due, now + AGAIN)  # the first that answers tells that it is back

    def _ask(self, scheduled: _Scheduled, now: float, kept: Set[str] = frozenset()) -> int:
        """Make one call. Of the metrics that it cannot give, those `kept` come from elsewhere."""
        answers, cost = self._answers, scheduled.cost
        code = scheduled.code = scheduled.read(self._handle, answers)
        began, self._at = self._at, self._clock.monotonic()
        took = self._at - began
        if code == SUCCESS and took <= cost.usual and scheduled.reasons == answers.reasons:  # as in `_ask_due`
            cost.calls += 1
            cost.total += took
            scheduled.due = next_due(now, scheduled.call.period, scheduled.due, self._index)
        else:
            self._settle(scheduled, now, took, kept)
        return code

    def _settle(self, scheduled: _Scheduled, now: float, took: int, kept: Set[str]) -> None:
        """Count a call that took so many ns, and see what its answer means for the next one.

        Of the metrics that it could not give, those `kept` come from elsewhere.
        """
        call, answers, cost, code = scheduled.call, self._answers, scheduled.cost, scheduled.code
        scheduled.due = now if scheduled.is_each_tick else next_due(now, call.period, scheduled.due, self._index)
        cost.add(took)
        if cost.wait > call.period:
            scheduled.due = now + cost.wait
        if code == SUCCESS:
            scheduled.has_answered = True
            if scheduled.reasons != answers.reasons:
                self._take_back_reasons(scheduled)
            if not scheduled.is_each_tick:
                self._expect_as_much(scheduled, now)
            return
        why = availability(code)
        for name in call.metrics:
            if name not in kept:
                answers.lack(name, why)
        if why is Availability.NOT_SUPPORTED and not scheduled.has_answered:
            scheduled.due = now + UNSUPPORTED  # a MIG mode or a reset may change that
        elif scheduled.is_each_tick:
            if why is Availability.NOT_SUPPORTED:
                scheduled.due = now + AGAIN
        elif scheduled.has_answered and self.state is _OK:  # one that answers nothing is asked for all once it does
            scheduled.due = min(scheduled.due, now + max(AGAIN, cost.wait))

    def _expect_as_much(self, scheduled: _Scheduled, now: float) -> None:
        """Ask again soon where a seldom call gave less than it did before: garbage, or a part that failed."""
        given = sum(name in self._answers.values for name in scheduled.call.metrics)
        if given >= scheduled.given:
            scheduled.given = given
        else:
            scheduled.due = min(scheduled.due, now + max(AGAIN, scheduled.cost.wait))

    def _take_back_reasons(self, scheduled: _Scheduled) -> None:
        """Forget why metrics were missing that this call gave now."""
        missing, values = self._answers.missing, self._answers.values
        lacking = False
        for name in scheduled.call.metrics:
            if name in values:
                missing.pop(name, None)
            else:
                lacking = True
        if not lacking:  # there is nothing to look for before another reason comes
            scheduled.reasons = self._answers.reasons

    def _try_fallbacks(self, now: float) -> None:
        """Ask by itself for what the batch does not give."""
        answers = self._answers
        if answers.batched is self._covering:
            return
        for scheduled in self._fallbacks:
            metrics = scheduled.metrics
            if answers.batched >= scheduled.metrics:
                answers.single.difference_update(metrics)
            elif scheduled.due <= now or not answers.single >= scheduled.metrics:
                if self._ask(scheduled, now) == SUCCESS:
                    answers.single.update(metrics)
                else:
                    answers.single.difference_update(metrics)
        if all(answers.batched >= scheduled.metrics for scheduled in self._fallbacks):
            self._covering = answers.batched
