"""Pictures of the overview need a view and a size, and no Textual."""

from __future__ import annotations

import subprocess
import sys

IMPORTS = """
import sys
import gpumon_tui.pictures.bars, gpumon_tui.pictures.overview, gpumon_tui.textual_private.pen
print(sorted(name for name in sys.modules if name.partition(".")[0] == "textual"))
"""


def test_pictures_are_drawn_and_written_without_textual() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", "its import costs more than all else before the first picture"
