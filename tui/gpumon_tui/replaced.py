"""gpumon upgraded or removed on disk while a view is open: what is imported from now on does not fit what runs.

Pages and windows are imported when they are opened first. To import all of them once the view is idle would avoid it,
and costs 1.7 MB that most sessions never use, with what pages import in turn 4.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import gpumon

CHANGED = "gpumon was changed on disk; quit and start it again"
NOT_AS_BEFORE = (ImportError, SyntaxError)
"""Raised by an import from files that are gone, half written, or of another version."""
PACKAGES = frozenset(("gpumon", "gpumon_tui"))


def files() -> Hashable:
    """Return what tells the files of gpumon from others in their place; the same again while they are the same."""
    try:
        found = os.stat(gpumon.__file__)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class OnlyAsInstalled:
    """A finder of modules that finds none: it refuses those of gpumon where other files are in the place of its own.

    Some would be imported well, and meet what they do not fit a moment later, anywhere.
    """

    def __init__(self, files: Callable[[], Hashable] = files, packages: Collection[str] = PACKAGES) -> None:
        self._files, self._packages = files, packages
        self._began = files()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Leave a module to the other finders. Raises ImportError."""
        if name.partition(".")[0] in self._packages and self._files() != self._began:
            raise ImportError(CHANGED, name=name)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Be asked before the other finders."""
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)


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
