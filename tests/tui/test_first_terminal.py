"""The first picture on a real terminal beside a daemon: before Textual is imported, and without a trace in the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import daemon, environment
from tests.tui.pseudo import Pseudo

HELD = """
import os, sys, time

class Held:
    def find_spec(self, name, path=None, target=None):
        if name == "textual":
            sys.meta_path.remove(self)
            os.write(2, b"<textual>")
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.01)

sys.meta_path.insert(0, Held())
import gpumon.cli
sys.exit(gpumon.cli.main(["tui"]))
"""
"""The view, which waits for a file before it imports Textual."""
PICTURE = "SIMULATED", "Overview", "Attention", "Processes", "help"


class HeldView:
    """A view between its first picture and the import of Textual."""

    def __init__(self, directory: Path, **env: str) -> None:
        self.go = directory / "go"
        words = [sys.executable, "-c", HELD, str(self.go)]
        self.pseudo = Pseudo(words, {**environment(directory), "LC_ALL": "C.UTF-8", **env})


@pytest.fixture
def held(live_dir: Path) -> Iterator[HeldView]:
    with daemon("--source", "sim:one", env=environment(live_dir)):
        view = HeldView(live_dir)
        yield view
        view.pseudo.close()


def test_picture_stands_before_textual_is_imported_and_keys_wait_for_the_view(held: HeldView) -> None:
    view = held.pseudo
    view.until("<textual>")
    before, _, _ = view.output.partition("<textual>")
    assert all(text in before for text in PICTURE)
    assert before.startswith("\x1b[?1049h")
    os.write(view.master, b"2")
    assert view.read(0.3).endswith("<textual>"), "a key is not echoed"
    held.go.touch()
    view.until("cursor")
    after = view.output.partition("<textual>")[2]
    assert " " * 100 not in after.partition("gpumon\x1b")[0].partition("\x1b[1;1H")[2], "no empty page in between"
    assert "\x1b[?1049h" not in after, "some terminals would clear the picture"
    os.write(view.master, b"q")
    assert view.ended() == 0
    assert view.left_behind() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_view_begins_leaves_the_terminal_as_it_was(held: HeldView, number: int) -> None:
    view = held.pseudo
    view.until("<textual>")
    assert set(view.left_behind()) == {"alternate screen", "hidden cursor", "modes"}
    if number == signal.SIGINT:
        os.write(view.master, b"\x03")
    else:
        os.kill(view.program.pid, number)
    assert view.ended() == 128 + number
    assert view.left_behind() == []
    assert "Traceback" not in view.output
