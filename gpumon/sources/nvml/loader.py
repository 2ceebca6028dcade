"""The driver's shared library in this process: as it was found first, and as it lies on disk after an upgrade.

The dynamic linker gives a process the copy that it has mapped, whatever lies on disk by now: a daemon that outlives
an upgrade of the driver would speak with the new kernel module through the old library, which refuses. So another
file is loaded beside the old one. No copy is ever unloaded: pointers into it may be kept, and a call that hangs may
be under way in it. What stays behind is a mapping of a few megabytes for each upgrade.
"""

from __future__ import annotations

import ctypes
import os

import pynvml

SONAME = "libnvidia-ml.so.1"
_PLACES = (SONAME, f"/usr/lib/wsl/lib/{SONAME}")
"""As the linker finds it, and where WSL has it: not every distribution tells the linker of that place."""

_FileKey = tuple[int, int]
"""Device and inode."""


class SharedLibrary:
    """The copies that this process has loaded; `current` is in use."""

    def __init__(self) -> None:
        self._current: ctypes.CDLL | None = None
        self._directory = ""
        self._copies: dict[_FileKey, ctypes.CDLL] = {}

    @property
    def current(self) -> ctypes.CDLL:
        """The copy in use, loaded when there is none. Raises OSError where the library is not installed."""
        if self._current is None:
            copy = _first()
            self._directory = _directory_of(copy)
            if self._directory and (key := _key(f"{self._directory}/{SONAME}")):
                self._copies[key] = copy
            self.use(copy)
            return copy
        return self._current

    @property
    def directory(self) -> str:
        """Directory of the file that the first copy was loaded from; empty before, and where the kernel hides it."""
        return self._directory

    def on_disk(self) -> ctypes.CDLL | None:
        """Return the copy that lies where the current one was loaded from; None where that is the same, or unknown."""
        path = f"{self._directory}/{SONAME}"
        key = _key(path) if self._directory else None
        if key is None or not self._copies:
            return None
        if key not in self._copies:
            # The linker compares names before it looks at the file: by a name that it knows it would give the old one.
            name = f"{self._directory}/{'./' * len(self._copies)}{SONAME}"
            try:
                self._copies[key] = ctypes.CDLL(name)
            except OSError:  # half-way through an upgrade
                return None
        found = self._copies[key]
        return None if found is self._current else found

    def use(self, copy: ctypes.CDLL) -> None:
        """Make `copy` the current one, also for nvidia-ml-py."""
        self._current = pynvml.nvmlLib = copy


def _first() -> ctypes.CDLL:
    """The copy that is found first. Raises OSError: that of the first place where the file is there, and is none."""
    errors = []
    for place in _PLACES:
        try:
            return _loaded(place)
        except OSError as error:
            errors.append(error)
    raise next((error for error in errors if not is_absent(error)), errors[0])


def is_absent(error: OSError) -> bool:
    """Whether the linker found no file, and not one that it cannot load."""
    return "No such file" in str(error)


def _loaded(place: str) -> ctypes.CDLL:
    copy = ctypes.CDLL(place)
    if not hasattr(copy, "nvmlShutdown"):
        raise OSError(f"{place}: is not the library of NVIDIA's driver")
    return copy


def _directory_of(copy: ctypes.CDLL) -> str:
    """The directory of the file that a copy was mapped from; empty where the kernel does not tell."""
    address = ctypes.cast(copy.nvmlShutdown, ctypes.c_void_p).value or 0
    try:
        # Without pathlib, whose import would be a thirtieth of all that 'gpumon status' takes without a daemon.
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            maps = file.read()
    except OSError:
        return ""
    for line in maps.splitlines():
        place, *_ = line.split(maxsplit=1)
        begin, _, end = place.partition("-")
        if int(begin, 16) <= address < int(end, 16):
            return os.path.dirname(line.split(maxsplit=5)[5])
    return ""


def _key(path: str) -> _FileKey | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


SHARED = SharedLibrary()
"""That of this process: the linker keeps one state for all."""
