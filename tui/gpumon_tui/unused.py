"""Modules that the view's imports bring and that it never uses: left out, they cost neither time nor memory.

Measured with Python 3.11 and Textual 8: OpenSSL, which asyncio takes where there is one, is 4.4 MB of a process that
speaks TLS with nobody; Textual's own palette of commands, with the widgets that it is made of, is 1.7 MB and 25 ms;
compressors that `shutil` takes for archives, and what Textual asks where screenshots go, are 1.2 MB; SQLite is 1 MB.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import cast

NO_MODULES = "ssl", "bz2", "lzma"
"""asyncio and `shutil` do without them, as on a Python that was built so."""
NEVER_OPENED = "textual.command", "platformdirs", "mimetypes", "uuid"
"""Textual imports the first for a palette that `Stage` switches off (`screens.commands` is this view's own), the others
for files that it would deliver."""
LATER = ("sqlite3",)
"""Modules that not every session uses: a view that samples by itself may never read a file of history or a ledger."""


class _Placeholders(ModuleType):
    """A module that has a class of every name: to be imported, not to be used."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Later(ModuleType):
    """A module that is imported when somebody asks for a name of it."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def left_out() -> Iterator[None]:
    """Import the view within this, in a process that is the view's alone.

    What was imported before stays, and what is asked for later comes. Garbage is not looked for meanwhile: there is
    none.
    """
    stand_ins = {**dict.fromkeys(NO_MODULES), **{name: _Placeholders(name) for name in NEVER_OPENED}}
    stand_ins |= {name: _Later(name) for name in LATER}
    put = {name: stand_in for name, stand_in in stand_ins.items() if name not in sys.modules}
    looked = gc.isenabled()
    gc.disable()
    sys.modules.update(cast(dict[str, ModuleType], put))
    try:
        yield
    finally:
        for name, stand_in in put.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
        if looked:
            gc.enable()
