"""The MIG instances of one GPU: they come and go while gpumon runs, and one that stays is the same object."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gpumon.common.clock import SECOND, Clock
from gpumon.model.metrics import Availability
from gpumon.sources.nvml.answers import DeviceAnswers
from gpumon.sources.nvml.costs import CallCost
from gpumon.sources.nvml.lanes import AnyInquiry, Inquiry, Lanes
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.mig import Mig
from gpumon.sources.nvml.mig_instance import InstanceIdentity, MigInstance, Parent, identify_instance

_PATIENCE = round(0.3 * SECOND)
"""ns that a look waits for new instances to say who they are: those that take longer are there with a later look."""
_OK = Availability.OK
_Asked = Inquiry[InstanceIdentity | None]


class MigInstances:
    """Looks for the instances of a GPU; one thread at a time may ask it."""

    def __init__(self, library: Library, parent: Parent, answers: DeviceAnswers, clock: Clock) -> None:
        self._library = library
        self._parent = parent
        self._clock = clock
        self._mig = Mig(library, answers)
        self._asked: dict[tuple[int, int], _Asked] = {}
        """Inquiries of instances that have not said yet who they are, by place and handle."""
        self._silent: set[str] = set()
        """UUIDs of those that did not answer at the last tick, or are others by now."""
        self.due = self._mig.due
        """Seconds: when to look next."""
        self.is_on = False
        """Whether the GPU is in MIG mode, with instances or without."""
        self.is_divided = False
        """Whether its instances, of which there may be none, have what runs on it. Not where they may not be seen."""
        self.all: tuple[MigInstance, ...] = ()
        """In the order of their places; set as a whole, so any thread may read it."""

    @property
    def cost(self) -> CallCost:
        """Of all that a look asks."""
        return self._mig.cost

    @property
    def asking(self) -> tuple[AnyInquiry, ...]:
        """Inquiries that have let a look go by; may be asked from any thread."""
        return tuple(self._asked.values())

    def may_be_due(self, now: float) -> bool:
        """Whether a GPU of which the utilization is not known may have been divided since the last look."""
        return self._mig.is_due(now)

    def watch(self, now: float) -> None:
        """Look soon where an instance does not answer any more, as it may be gone, or is another one."""
        silent = {one.uuid for one in self.all if one.state is not _OK or one.successor}
        if silent - self._silent:
            self._mig.look_soon(now)
            self.due = self._mig.due
        self._silent = silent

    def look(self, now: float) -> bool:
        """Ask the driver, and return whether anything is other than before."""
        mig, before = self._mig, (self.is_on, self.all)
        mig.look(self._parent.handle, now)
        places = sorted(mig.handles.items())
        known = {(one.identity.place, one.identity.handle): one for one in self.all}
        identities = self._identify([place for place in places if place not in known])
        found: dict[str, MigInstance] = {}
        for place in places:
            one = known.get(place)
            identity = one.successor if one else identities.get(place)
            if identity is not None:
                one = MigInstance(self._library, self._parent, identity, self._clock)
            if one is None:
                mig.look_soon(now)
            else:
                found.setdefault(one.uuid, one)
        self.is_on, self.all, self.due = mig.is_on, tuple(found.values()), mig.due
        self.is_divided = mig.is_on and (mig.is_known or bool(found))
        return (self.is_on, self.all) != before

    def _identify(self, new: Sequence[tuple[int, int]]) -> dict[tuple[int, int], InstanceIdentity]:
        """Ask new instances who they are, by place and handle; one whose calls hang must not hold up its GPU."""
        late = {place: one for place, one in self._asked.items() if one.is_under_way or place in new}
        asked = {place: _Asked(partial(identify_instance, self._library, *place)) for place in new if place not in late}
        if asked:
            asker = Lanes(self._clock)  # of this look alone: the next one that finds something may be days away
            asker.ask([*asked.values()], _PATIENCE)
            asker.close()
        self._asked = {**late, **asked}
        ended = [place for place, one in self._asked.items() if not one.is_under_way]
        answers = {place: self._asked.pop(place).take() for place in ended}
        return {place: identity for place, identity in answers.items() if identity is not None}
