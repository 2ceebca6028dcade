"""The command line by which this program can be called again, as for hints."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from shlex import quote


def program(argv: Sequence[str] = sys.argv, env: Mapping[str, str] = os.environ) -> str:
    """`gpumon` where the shell finds it, else its path, as after `make tui`; else the module of this Python."""
    if shutil.which("gpumon", path=env.get("PATH", "")):
        return "gpumon"
    called = argv[0] if argv else ""
    if os.path.basename(called) == "gpumon" and os.access(called, os.X_OK):
        return quote(called)
    return f"{quote(sys.executable)} -m gpumon"
