"""A fault of gpumon's own: one line for a person, and the details in a file that only its user can read."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from gpumon.common.paths import make_private_dir, places

CRASH = "crash.txt"


def report(error: BaseException, env: Mapping[str, str] | None = None) -> str:
    """The line; the details, without the values of variables, which may be other people's, go into the state directory.

    The file holds the newest crash only.
    """
    kind = type(error).__name__
    try:
        path = _keep(_details(error), env)
    except OSError as problem:
        where = problem.strerror or str(problem)
        return f"internal error ({kind}{_place(error)}); its details could not be saved: {where}"
    return f"internal error ({kind}); please report it with the details in {path}"


def _details(error: BaseException) -> str:
    from time import strftime
    from traceback import format_exception

    from gpumon import __version__

    head = f"gpumon {__version__}, Python {sys.version.split()[0]}, {strftime('%Y-%m-%d %H:%M:%S')}\n"
    return head + "".join(format_exception(error))


def _keep(details: str, env: Mapping[str, str] | None) -> str:
    where = places(env=env)
    if not where.state:
        raise FileNotFoundError(2, "no HOME")
    os.makedirs(os.path.dirname(where.state) or "/", mode=0o700, exist_ok=True)
    make_private_dir(where.state, where.uid)
    path = f"{where.state}/{CRASH}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        os.fchmod(fd, 0o600)
        file.write(details)
    return path


def _place(error: BaseException) -> str:
    """The line of code that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else ""
