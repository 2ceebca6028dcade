"""The shell command that calls this program, for hints in messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from gpumon.common.errors import quoted

_COMMAND = "'gpumon "
"""Matches the start of a gpumon command in a message."""


def archive() -> str:
    """Return the path of `gpumon.pyz` if this program runs from it; empty if gpumon is installed."""
    path = getattr(__spec__.loader, "archive", "")  # only the loader of zip archives has it
    return os.path.abspath(path) if path else ""


def program(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> str:
    """Return `gpumon` if the shell finds it, else the path of the program, else `python -m gpumon` with this Python.

    If the program runs from `gpumon.pyz`, return the command that runs this file.
    """
    import shutil  # only messages need it

    if path := archive():
        return quoted(path) if os.access(path, os.X_OK) else f"{quoted(sys.executable)} {quoted(path)}"

    if shutil.which("gpumon", path=env.get("PATH", "")):
        return "gpumon"
    called = (sys.argv if argv is None else argv)[:1]
    if called and os.path.basename(called[0]) == "gpumon" and os.access(called[0], os.X_OK):
        return quoted(os.path.abspath(called[0]))
    return f"{quoted(sys.executable)} -m gpumon"


def callable_commands(text: str) -> str:
    """Rewrite each command 'gpumon …' in a message so that it can be run from this shell."""
    return text.replace(_COMMAND, f"'{program()} ") if _COMMAND in text else text
