"""Pictures that are kept until something they show has changed: most of a screen is the same a second later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

Picture = TypeVar("Picture")


class Memo(Generic[Picture]):
    """The last picture of each place."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[object, Picture]] = {}

    def get(self, place: Hashable, shows: object, draw: Callable[[], Picture]) -> Picture:
        """The picture that was drawn when the place last showed this, else a new one."""
        kept = self._kept.get(place)
        if kept is not None and kept[0] == shows:
            return kept[1]
        picture = draw()
        self._kept[place] = shows, picture
        return picture

    def keep(self, places: Collection[Hashable]) -> None:
        """Forget every other place."""
        if len(self._kept) > len(places):
            self._kept = {place: kept for place, kept in self._kept.items() if place in places}
