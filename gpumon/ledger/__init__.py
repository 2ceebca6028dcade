"""The ledger: runs and epochs that are kept for ever.

`schema` is the table of tables; `recorder` (in the daemon) takes ticks, `rank`, `device` and `timeline` cut them at the
training's boundaries, `store` writes. `reader` gives `records` back, `aggregate` joins them over ranks and devices.

`gpumon.ledger()` opens it for scripts and notebooks: see `past`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.ledger.past import PastLedger


class _Opening(ModuleType):
    """This package, which can be called: its name is that of the function, too."""

    def __call__(self, directory: str | None = None, state_dir: str | None = None) -> PastLedger:
        from gpumon.ledger.past import open_ledger

        return open_ledger(directory, state_dir)


sys.modules[__name__].__class__ = _Opening
