"""Files that were no boards when they were looked at: they may have been in the making, so each is looked at again."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.tags.listing import name_uid

Place = tuple[str, str]
"""A directory, and the name of a board in it."""
_LONGEST = 64 * SECOND
_REMEMBERED = 4096


class _Refused(NamedTuple):
    again: int
    delay: int


class Refusals:
    """When to look again at what, at ever longer intervals; never more than so many of them."""

    def __init__(self) -> None:
        self._found: dict[Place, _Refused] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._found

    def must_wait(self, place: Place, now: int) -> bool:
        """Whether `place` is not to be looked at yet; `now` in monotonic ns."""
        found = self._found.get(place)
        return found is not None and found.again > now

    def add(self, place: Place, now: int) -> None:
        """Look at `place` again later, after twice as long as the last time."""
        if len(self._found) >= _REMEMBERED:
            # Only who has most of them is looked at anew, each poll some.
            ((most, _),) = Counter(name_uid(name) for _, name in self._found).most_common(1)
            self._found = {kept: why for kept, why in self._found.items() if name_uid(kept[1]) != most}
        before = self._found.get(place)
        delay = min(2 * before.delay, _LONGEST) if before else SECOND
        self._found[place] = _Refused(now + delay, delay)

    def forget(self, place: Place) -> None:
        """It is a board now, or gone."""
        self._found.pop(place, None)

    def keep(self, directory: str, names: set[str]) -> None:
        """Forget what lay in `directory` and is not among `names`."""
        for place in [place for place in self._found if place[0] == directory and place[1] not in names]:
            del self._found[place]
