"""Makes the driver calls that are due for one GPU, stores the results, and detects whether the GPU answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from operator import attrgetter
from typing import Any

from gpumon.common.clock import Clock
from gpumon.model.metrics import Availability
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.readings import CALLS, FALLBACKS, Call
from gpumon.sources.nvml.return_codes import SUCCESS, availability
from gpumon.sources.nvml.values import EVERY_TICK, RETRY, RETRY_UNSUPPORTED, CallCost, DeviceValues, Read, next_due

_PROBE_EVERY = 30.0
_OK = Availability.OK
"""Shortcut for the enum member. Looking it up in its class would be the most expensive step for each device at each
tick."""
_GONE = (Availability.LOST, Availability.NO_DRIVER)
"""Return codes that prove that a device is gone, even if only one call returns them. No further calls are then made."""
_WORST_FIRST = (
    Availability.RESET_REQUIRED, Availability.NO_PERMISSION, Availability.FAILED, Availability.NOT_SUPPORTED, *_GONE,
)  # fmt: skip
"""If all calls for a device failed with different codes, the first state in this list that occurred is used. `_GONE` is
handled earlier.
"""


class _ScheduledCall:
    """A driver call for one device, with its function, its metrics, its durations, and the time when it is due next."""

    def __init__(self, call: Call, read: Read) -> None:
        self.call = call
        self.is_each_tick = call.period == EVERY_TICK
        self.metrics = frozenset(call.metrics)
        self.read = read
        self.cost = CallCost(call.function)
        self.most_values = 0
        """Largest number of metrics that the call has returned at once."""
        self.due = 0.0
        self.code = SUCCESS
        """Return code of the last call."""
        self.has_succeeded = False


_DUE = attrgetter("due")


class DeviceCalls:
    """Makes the calls in the table for one device, and stores the values."""

    def __init__(
        self, library: Library, handle: Any, index: int, device: DeviceValues, withheld: Collection[str],
        table: Sequence[Call] = CALLS, fallbacks: Sequence[Call] = FALLBACKS,
    ) -> None:  # fmt: skip
        """`withheld`: metrics that must not be read. `table`: the calls; calls that are made at every tick must come
        first."""
        self.state = _OK
        self.failure = SUCCESS
        """Return code of the driver if the state is not OK."""
        self._handle = handle
        self._index = index
        self._device = device
        self._clock: Clock = device.clock
        allowed = [call for call in table if not any(name in withheld for name in call.metrics)]
        self._calls = [_ScheduledCall(call, read) for call in allowed if (read := call.bind(library))]
        self._fallbacks = [_ScheduledCall(call, read) for call in fallbacks if (read := call.bind(library))]
        count = next((i for i, scheduled in enumerate(self._calls) if not scheduled.is_each_tick), 0)
        self._each_tick, self._periodic = self._calls[:count], self._calls[count:]
        self._probe_from = 0.0
        self._is_gone = False
        """Whether a return code in this tick proves that the device has no values. If so, no further calls are made."""
        self._ended_at = 0
        """Time at which the last call of this tick ended (ns, CLOCK_MONOTONIC)."""

    def costs(self) -> list[CallCost]:
        """Return the number and durations of each call so far. May be called from any thread."""
        return [scheduled.cost for scheduled in (*self._calls, *self._fallbacks)]

    def sleep(self) -> None:
        """Make no calls until further notice, because the device is powered down and a call would wake it."""
        self.state, self.failure = Availability.ASLEEP, SUCCESS
        self._device.clear()
        self._device.read_at_ns = self._clock.monotonic()

    def reset(self) -> None:
        """Make all calls at the next tick, as for a new device."""
        for scheduled in (*self._calls, *self._fallbacks):
            scheduled.due, scheduled.has_succeeded, scheduled.most_values = 0.0, False, 0

    def read(self, now: float) -> None:
        """Make all calls that are due at `now` (seconds). If the device does not answer, remove all its values.

        A device may count as not answering although some calls succeed. Its fan or PCIe link may be readable even if it
        cannot run any kernel.
        """
        before = self.state
        self._ended_at = self._clock.monotonic()
        if not self._call_due(now):
            self._probe(now)
        elif before is not _OK:
            self._call_all(now)  # the values of periodic calls were cleared
        if self.state is _OK:
            self._try_fallbacks(now)
        else:
            # If a lost device kept its old values, it would look healthy.
            self._device.clear()

    def _call_due(self, now: float) -> bool:
        """Make the calls that are due, and return whether the device answers.

        It answers if a call succeeded and no call proved that the device is gone.
        """
        device = self._device
        has_called = succeeded = self._is_gone = False
        for scheduled in self._each_tick:
            if scheduled.due > now:
                continue
            code = self._call(scheduled, now, device.single)
            if not has_called:
                # The values of the first call of the table change fastest, so the time is taken after this call.
                has_called, device.read_at_ns = True, self._ended_at
            if code == SUCCESS:
                succeeded = True
            elif self._is_gone_after(code):
                return False
        if has_called and self._needs_reset():
            return False
        if succeeded:
            self._probe_from = 0.0  # the device works, so the next failure of all calls is a new failure
        for scheduled in sorted((call for call in self._periodic if call.due <= now), key=_DUE):
            has_called = True
            code = self._call(scheduled, now, device.single)
            if not device.read_at_ns:
                device.read_at_ns = self._ended_at
            if code == SUCCESS:
                succeeded = True
            elif self._is_gone_after(code):
                return False
        if device.overdue:
            self._expedite(now)
        if succeeded:
            self.state, self.failure = _OK, SUCCESS
        return succeeded or (not has_called and self.state is _OK)  # no call was due, because all calls are slow

    def _expedite(self, now: float) -> None:
        """Schedule the call for the metric in `DeviceValues.overdue` for the next tick."""
        overdue, self._device.overdue = self._device.overdue, ""
        for scheduled in self._periodic:
            if overdue in scheduled.metrics:
                scheduled.due = min(scheduled.due, now + scheduled.cost.wait)

    def _is_gone_after(self, code: int) -> bool:
        """Return whether a return code proves that the device is gone, and set the state accordingly."""
        if availability(code) not in _GONE:
            return False
        self.state, self.failure, self._is_gone = availability(code), code, True
        return True

    def _needs_reset(self) -> bool:
        """Return whether the device must be reset, and set the state accordingly.

        A device must be reset if most of the calls made at every tick fail for this reason. Other calls may succeed,
        because a fan or a PCIe link may still be readable.
        """
        failed = [call for call in self._each_tick if availability(call.code) is Availability.RESET_REQUIRED]
        if 2 * len(failed) <= len(self._each_tick):
            return False
        self.state, self.failure, self._is_gone = Availability.RESET_REQUIRED, failed[0].code, True
        return True

    def _call_all(self, now: float) -> bool:
        """Make all periodic calls, and all calls that were postponed."""
        for scheduled in self._calls:
            if not scheduled.is_each_tick or scheduled.due > now:
                scheduled.due = 0.0
        return self._call_due(now)

    def _probe(self, now: float) -> None:
        """After all due calls have failed, make the other calls to find out whether the whole device fails."""
        if not self._is_gone and now >= self._probe_from:
            self._probe_from = now + _PROBE_EVERY
            self._call_all(now)
        if self._is_gone:
            return
        codes = [scheduled.code for scheduled in self._calls]
        if codes and SUCCESS not in codes:
            self.failure = min(codes, key=lambda code: _WORST_FIRST.index(availability(code)))
            self.state = availability(self.failure)
            for scheduled in self._calls:
                if scheduled.is_each_tick:
                    scheduled.due = min(scheduled.due, now + RETRY)  # the first success shows that the device is back

    def _call(self, scheduled: _ScheduledCall, now: float, kept: Set[str] = frozenset()) -> int:
        """Make one call, schedule the next one, and return the driver's return code.

        If the call fails, store why its metrics are missing. Metrics in `kept` keep their values, because another call
        has read them.
        """
        device, cost, call = self._device, scheduled.cost, scheduled.call
        code = scheduled.code = scheduled.read(self._handle, device)
        # The clock is read once per call. This reading is the end of one call and the start of the next.
        began, self._ended_at = self._ended_at, self._clock.monotonic()
        cost.add(self._ended_at - began)
        scheduled.due = next_due(now, call.period, scheduled.due, self._index)
        if cost.wait > call.period:
            scheduled.due = now + cost.wait
        if code == SUCCESS:
            scheduled.has_succeeded = True
            for name in call.metrics:
                if name in device.values:
                    device.missing.pop(name, None)
            if not scheduled.is_each_tick:
                self._retry_partial(scheduled, now)
            return code
        why = availability(code)
        for name in call.metrics:
            if name not in kept:
                device.set_missing(name, why)
        if why is Availability.NOT_SUPPORTED and not scheduled.has_succeeded:
            scheduled.due = now + RETRY_UNSUPPORTED
        elif scheduled.is_each_tick:
            if why is Availability.NOT_SUPPORTED:
                scheduled.due = now + RETRY
        elif scheduled.has_succeeded and self.state is _OK:  # otherwise, all calls are made when the device is back
            scheduled.due = min(scheduled.due, now + max(RETRY, cost.wait))
        return code

    def _retry_partial(self, scheduled: _ScheduledCall, now: float) -> None:
        """Retry a periodic call soon if it returned fewer metrics than before.

        Some values were invalid, or could not be read.
        """
        count = sum(name in self._device.values for name in scheduled.call.metrics)
        if count >= scheduled.most_values:
            scheduled.most_values = count
        else:
            scheduled.due = min(scheduled.due, now + max(RETRY, scheduled.cost.wait))

    def _try_fallbacks(self, now: float) -> None:
        """Read metrics that the last batch of fields did not return. Each of them needs its own call."""
        device = self._device
        for scheduled in self._fallbacks:
            metrics = scheduled.metrics
            if device.batched >= metrics:
                device.single.difference_update(metrics)
            elif scheduled.due <= now or not device.single >= metrics:
                if self._call(scheduled, now) == SUCCESS:
                    device.single.update(metrics)
                else:
                    device.single.difference_update(metrics)
