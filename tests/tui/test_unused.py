"""Modules that the imports of the view bring and that it never uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpumon_tui.unused import LATER, NEVER_OPENED, NO_MODULES


def printed(code: str) -> list[str]:
    """The words that code prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    return printed(
        "import sys\n"
        "from gpumon_tui.unused import left_out\n"
        "with left_out():\n"
        "    from gpumon_tui import session\n"
        "from gpumon_tui.pages import overview\n"
        "print(*sys.modules)"
    )


@pytest.mark.parametrize(
    "module", [*NO_MODULES, "_ssl", *NEVER_OPENED, *LATER, "textual.widgets._input", "textual.widgets._tree"]
)
def test_the_view_begins_without_what_it_never_uses(loaded: list[str], module: str) -> None:
    assert "gpumon_tui.app" in loaded
    assert module not in loaded


def test_what_was_left_out_comes_when_it_is_asked_for() -> None:
    said = printed(
        "import gc\n"
        "from gpumon_tui.unused import left_out\n"
        "with left_out():\n"
        "    from gpumon_tui import session\n"
        "import bz2, lzma, mimetypes, platformdirs, ssl, textual.command\n"
        "print(ssl.create_default_context.__name__, textual.command.CommandPalette.is_open.__name__, gc.isenabled())\n"
        "print(bz2.compress.__name__, mimetypes.guess_type.__name__, platformdirs.user_data_dir.__name__)"
    )
    assert said == ["create_default_context", "is_open", "True", "compress", "guess_type", "user_data_dir"]


def test_what_not_every_session_needs_is_imported_when_a_name_of_it_is_asked_for() -> None:
    said = printed(
        "import sys\n"
        "from gpumon_tui.unused import left_out\n"
        "with left_out():\n"
        "    from gpumon.storage.history import file\n"
        "    within = file.sqlite3.Error\n"
        "import sqlite3\n"
        "print(within is sqlite3.Error is file.sqlite3.Error, file.sqlite3 is sys.modules['sqlite3'])\n"
        "print(issubclass(file.sqlite3.DatabaseError, sqlite3.Error))"
    )
    assert said == ["True", "False", "True"], "a module that was imported before has the names of the real one"


def test_what_was_imported_before_stays() -> None:
    said = printed(
        "import ssl, textual.command, sys\n"
        "from gpumon_tui.unused import left_out\n"
        "with left_out():\n"
        "    print(sys.modules['ssl'] is ssl, sys.modules['textual.command'] is textual.command)\n"
        "print(sys.modules['ssl'] is ssl, sys.modules['textual.command'] is textual.command)"
    )
    assert said == ["True"] * 4
