"""Runs code at the end of the notebook cell that is running."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any


def call_at_end_of_cell(function: Callable[[BaseException | None], object]) -> None:
    """Call `function` once when the running cell ends, with the exception that ended the cell, or None.

    Does nothing outside IPython. Does nothing in threads other than the main thread, because such threads may outlive a
    cell.
    """
    interactive = sys.modules.get("IPython")
    shell: Any = interactive.get_ipython() if interactive is not None else None
    if shell is None or threading.current_thread() is not threading.main_thread():
        return

    def end(result: Any = None) -> None:
        shell.events.unregister("post_run_cell", end)
        function(getattr(result, "error_in_exec", None))

    shell.events.register("post_run_cell", end)
