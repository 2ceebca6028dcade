"""The MIG instances of one GPU: they come and go while gpumon runs, and one that stays is the same object."""

from __future__ import annotations

from gpumon.clock import Clock
from gpumon.metrics import Availability
from gpumon.sources.nvml.answers import DeviceAnswers
from gpumon.sources.nvml.costs import CallCost
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.mig import Mig
from gpumon.sources.nvml.mig_instance import MigInstance, Parent, identify_instance

_SURE_FOR = 30.0
"""Seconds until an instance that answers is asked again who it is: another one may have come in its place."""
_OK = Availability.OK


class MigInstances:
    """Looks for the instances of a GPU; one thread at a time may ask it."""

    def __init__(self, library: Library, parent: Parent, answers: DeviceAnswers, clock: Clock) -> None:
        self._library = library
        self._parent = parent
        self._clock = clock
        self._mig = Mig(library, answers)
        self._sure_until = 0.0
        self._silent: set[str] = set()
        """UUIDs of those that did not answer at the last tick."""
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

    def may_be_due(self, now: float) -> bool:
        """Whether a GPU of which the utilization is not known may have been divided since the last look."""
        return self._mig.is_due(now)

    def watch(self, now: float) -> None:
        """Look soon where an instance does not answer any more: it may be gone."""
        silent = {one.uuid for one in self.all if one.state is not _OK}
        if silent - self._silent:
            self._mig.look_soon(now)
            self.due = self._mig.due
        self._silent = silent

    def look(self, now: float) -> bool:
        """Ask the driver, and return whether anything is other than before."""
        mig, before = self._mig, (self.is_on, self.all)
        mig.look(self._parent.handle, now)
        is_sure = now < self._sure_until
        if not is_sure:
            self._sure_until = now + _SURE_FOR
        known = {one.identity.place: one for one in self.all}
        found: dict[str, MigInstance] = {}
        for place, handle in sorted(mig.handles.items()):
            one = self._find(place, handle, known.get(place), is_sure=is_sure)
            if one is None:
                mig.look_soon(now)
            else:
                found.setdefault(one.uuid, one)
        self.is_on, self.all, self.due = mig.is_on, tuple(found.values()), mig.due
        self.is_divided = mig.is_on and (mig.is_known or bool(found))
        return (self.is_on, self.all) != before

    def _find(self, place: int, handle: int, before: MigInstance | None, *, is_sure: bool) -> MigInstance | None:
        """The instance at a place; None where the driver does not say which it is."""
        is_same = before is not None and before.identity.handle == handle
        if is_same and is_sure and before is not None and before.state is _OK and not before.has_another_size:
            return before
        identity = identify_instance(self._library, place, handle)
        if identity is None:
            return before if is_same else None  # its own calls tell what is wrong with it
        if before is not None and before.identity == identity and not before.has_another_size:
            return before
        return MigInstance(self._library, self._parent, identity, self._clock)
