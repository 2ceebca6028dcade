"""Cache of rendered parts: most of a screen is unchanged a second later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """The last computed value of each key."""

    def __init__(self) -> None:
        self._values: dict[Hashable, tuple[object, Value]] = {}

    def get(self, key: Hashable, inputs: object, compute: Callable[[], Value]) -> Value:
        """Return the cached value if the last `inputs` of the key were equal, else compute a new one."""
        cached = self._values.get(key)
        if cached is not None and cached[0] == inputs:
            return cached[1]
        value = compute()
        self._values[key] = inputs, value
        return value

    def keep(self, keys: Collection[Hashable]) -> None:
        """Remove the values of all other keys."""
        if len(self._values) > len(keys):
            self._values = {key: cached for key, cached in self._values.items() if key in keys}
