"""The command line by which this program can be called again, as for hints."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

_COMMAND = "'gpumon "
"""How a command begins in a message."""


def program(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> str:
    """`gpumon` where the shell finds it, else its path, as after `make tui`; else the module of this Python."""
    import shutil  # only messages need it
    from shlex import quote

    if shutil.which("gpumon", path=env.get("PATH", "")):
        return "gpumon"
    called = (sys.argv if argv is None else argv)[:1]
    if called and os.path.basename(called[0]) == "gpumon" and os.access(called[0], os.X_OK):
        return quote(os.path.abspath(called[0]))
    return f"{quote(sys.executable)} -m gpumon"


def callable_commands(text: str) -> str:
    """Return a message with the commands 'gpumon …' in it as they can be run here."""
    return text.replace(_COMMAND, f"'{program()} ") if _COMMAND in text else text
