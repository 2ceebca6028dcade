"""Scripts of completion say what the parsers of the commands say."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from gpumon.cli.completion import SHELLS

ROOT = Path(__file__).parents[2]
MADE = {f"gpumon/completions/gpumon.{shell}" for shell in SHELLS}


def test_the_files_are_what_the_parsers_say(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "commands.py", tmp_path], check=True)
    made = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert set(made) == MADE
    stale = [name for name, path in made.items() if path.read_bytes() != (ROOT / name).read_bytes()]
    assert stale == [], "run 'python docs/commands.py'"


def test_an_installation_has_all_of_them_where_shells_look() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        shared = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert set(shared) == MADE
    assert set(shared.values()) == {
        "share/bash-completion/completions/gpumon",
        "share/fish/vendor_completions.d/gpumon.fish",
        "share/zsh/site-functions/_gpumon",
    }
