"""gpumon upgraded or removed on disk while a view is open: what is imported from now on does not fit what runs.

Pages and windows are imported when they are opened first. To import all of them once the view is idle would avoid it,
and costs 1.7 MB that most sessions never use, with what pages import in turn 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

CHANGED = "gpumon was changed on disk; quit and start it again"
NOT_AS_BEFORE = (ImportError, SyntaxError)
"""Raised by an import from files that are gone, half written, or of another version."""


class ChangeTeller(Protocol):
    """A view that goes on, and says why it did not do what was wanted."""

    def tell_changed(self) -> None:
        """Say that gpumon was changed on disk."""


Teller = TypeVar("Teller", bound=ChangeTeller)
Given = ParamSpec("Given")


def while_as_installed(do: Callable[Concatenate[Teller, Given], None]) -> Callable[Concatenate[Teller, Given], None]:
    """Return a method that says so where it meets files of another gpumon, in place of ending the view."""

    @wraps(do)
    def guarded(self: Teller, /, *args: Given.args, **named: Given.kwargs) -> None:
        try:
            do(self, *args, **named)
        except NOT_AS_BEFORE:
            self.tell_changed()

    return guarded
