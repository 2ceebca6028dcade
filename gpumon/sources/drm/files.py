"""Reads small files of sysfs and procfs. A file may be missing, huge or not a number, and reading it may fail."""

from __future__ import annotations

import errno
import os
import re
import stat

from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import Availability

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""With O_NONBLOCK, opening a FIFO does not wait for its other end."""
LINE = 256
"""Maximum bytes of a file with one number or one line."""
PAGE = 4096
"""Maximum bytes of a text file in sysfs."""
_NUMBER = re.compile(rb"[+-]?\d{1,20}")
_LARGEST_LISTING = 16_384
"""Maximum entries of a folder to look at."""
_ABSENT = frozenset(
    (
        errno.ENOENT, errno.ENODATA, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENXIO, errno.ENOTDIR,
        errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    )
)  # fmt: skip
"""Errors with which drivers report that a card does not have a value."""


def why_missing(error: OSError, *, on_open: bool = False) -> Availability:
    """Return the reason for a missing value. `on_open`: whether opening the file failed.

    amdgpu returns EPERM from a read while it resets the card. Only when a file is opened, EPERM means a permission.
    """
    if error.errno in _ABSENT:
        return Availability.NOT_SUPPORTED
    if on_open and error.errno in (errno.EACCES, errno.EPERM):
        return Availability.NO_PERMISSION
    return Availability.FAILED


class KernelFile:
    """A file that is read again and again. Its descriptor stays open, which makes a read five times as fast.

    A file that cannot be opened is tried again with each read.
    """

    __slots__ = ("_fd", "path", "why")

    def __init__(self, path: str) -> None:
        self.path = path
        self.why = Availability.OK
        """Reason why the last read returned nothing; OK if it returned something."""
        self._fd = -1

    def read(self, limit: int = LINE) -> bytes:
        """Return at most `limit` bytes from the start of the file; empty if it cannot be read."""
        if self._fd < 0 and not self._open():
            return b""
        try:
            content = os.pread(self._fd, limit, 0)
        except OSError as error:
            self.why = why_missing(error)
            self.close()
            return b""
        self.why = Availability.OK if content else Availability.NOT_SUPPORTED
        return content

    def number(self) -> float:
        """Return the number in the file; NaN if there is none."""
        content = self.read()
        value = parse_number(content)
        if content and not is_known(value):
            self.why = Availability.UNRELIABLE
        return value

    def close(self) -> None:
        """Close the descriptor. The next read opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        try:
            fd = os.open(self.path, _OPEN)
        except OSError as error:
            self.why = why_missing(error, on_open=True)
            return False
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a read could block
            os.close(fd)
            self.why = Availability.NOT_SUPPORTED
            return False
        self._fd = fd
        return True


def read_bytes(path: str, limit: int = PAGE) -> bytes:
    """Return at most `limit` bytes of a file; empty if it cannot be read."""
    file = KernelFile(path)
    try:
        return file.read(limit)
    finally:
        file.close()


def read_text(path: str, limit: int = LINE) -> str:
    """Return the text of a file without surrounding spaces; empty if it cannot be read."""
    return read_bytes(path, limit).decode("ascii", "replace").strip("\0 \t\r\n")


def read_number(path: str) -> float:
    """Return the number in a file; NaN if there is none."""
    return parse_number(read_bytes(path, LINE))


def read_fields(path: str) -> dict[str, str]:
    """Return the fields of a file with a name and a value in each line, separated by a space, `=` or `:`."""
    fields: dict[str, str] = {}
    for line in read_bytes(path).decode("ascii", "replace").splitlines():
        name, *rest = re.split(r"[=:\s]\s*", line.strip(), maxsplit=1)
        if rest:
            fields[name] = rest[0].strip()
    return fields


def parse_number(content: bytes) -> float:
    """Return the decimal integer that is the whole content of a file; NaN if it is anything else."""
    text = content.strip(b"\0 \t\r\n")
    return float(int(text)) if _NUMBER.fullmatch(text) else NAN


def list_folder(path: str) -> list[str]:
    """Return the names in a folder, sorted; empty if it cannot be read."""
    names = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= _LARGEST_LISTING:
                    break
    except OSError:
        return []
    return sorted(names)
