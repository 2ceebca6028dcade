"""Writes the scripts of `gpumon/completions` and the manual page `docs/gpumon.1` from the parsers of the commands.

    python docs/commands.py [DIRECTORY]

A test compares the files with what this makes, and others ask real shells for each command and option.
"""

from __future__ import annotations

import sys
from pathlib import Path

from command_tree import command_tree
from completions import bash, fish, zsh
from manual import manual

ROOT = Path(__file__).parents[1]
MADE = {
    "gpumon/completions/gpumon.bash": bash, "gpumon/completions/gpumon.zsh": zsh,
    "gpumon/completions/gpumon.fish": fish, "docs/gpumon.1": manual,
}  # fmt: skip


def write(folder: Path) -> None:
    """Write all files below `folder`, as they lie in the checkout."""
    top = command_tree()
    for name, make in MADE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(make(top), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if sys.argv[1:] else ROOT)
