"""The end of a notebook's cell: no training goes on after the cell in which it began, whatever stopped it.

A framework that is interrupted, by the stop button or an exception, may tell its callbacks nothing; and the kernel
lives on, so that nothing else would end the run.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any, Protocol


class Ends(Protocol):
    """A hook, which must end with the cell unless its training is over."""

    @property
    def rests(self) -> bool: ...
    def end(self, error: BaseException | None = None, *, failed: bool = False) -> None: ...


def end_with_cell(hook: Ends) -> None:
    """End `hook` as failed or interrupted when the cell that runs now is over, if its training is not over by then.

    One that rests is left alone: an evaluation in a later cell belongs to its run.

    Nothing happens outside of IPython, and in other threads than the one that runs cells: they outlive them.
    """
    shell = _shell()
    if shell is None or threading.current_thread() is not threading.main_thread():
        return
    held = weakref.ref(hook)

    def over(result: Any = None) -> None:
        shell.events.unregister("post_run_cell", over)
        left = held()
        if left is not None and not left.rests:
            left.end(getattr(result, "error_in_exec", None), failed=True)

    shell.events.register("post_run_cell", over)


def _shell() -> Any:
    interactive = sys.modules.get("IPython")
    return interactive.get_ipython() if interactive is not None else None
