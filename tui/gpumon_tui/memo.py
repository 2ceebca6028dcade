"""Cache of rendered parts: most of a screen is unchanged a second later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

Picture = TypeVar("Picture")


class Memo(Generic[Picture]):
    """Cache of the last picture for each place on screen."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[object, Picture]] = {}

    def get(self, place: Hashable, shows: object, draw: Callable[[], Picture]) -> Picture:
        """Return the cached picture if the place last showed an equal value of `shows`, else draw a new one."""
        kept = self._kept.get(place)
        if kept is not None and kept[0] == shows:
            return kept[1]
        picture = draw()
        self._kept[place] = shows, picture
        return picture

    def keep(self, places: Collection[Hashable]) -> None:
        """Remove the pictures of all other places."""
        if len(self._kept) > len(places):
            self._kept = {place: kept for place, kept in self._kept.items() if place in places}
