"""Scripts of completion and the manual page say what the parsers of the commands say."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gpumon.cli import COMMANDS
from gpumon.cli.completion import SHELLS
from gpumon.cli.parser import parser_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpumon.1"
MADE = {*(f"gpumon/completions/gpumon.{shell}" for shell in SHELLS), "docs/gpumon.1"}
ROFF = {r"\-": "-", r"\(aq": "'", r"\(ti": "~", r"\fB": "", r"\fI": "", r"\fR": "", r"\&": ""}


def test_the_files_are_what_the_parsers_say(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "commands.py", tmp_path], check=True)
    made = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert set(made) == MADE
    stale = [name for name, path in made.items() if path.read_bytes() != (ROOT / name).read_bytes()]
    assert stale == [], "run 'python docs/commands.py'"


def test_an_installation_has_all_of_them_where_shells_and_man_look() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        shared = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert set(shared) == MADE
    assert set(shared.values()) == {
        "share/man/man1/gpumon.1",
        "share/bash-completion/completions/gpumon",
        "share/fish/vendor_completions.d/gpumon.fish",
        "share/zsh/site-functions/_gpumon",
    }


def plain(text: str) -> str:
    """Text of the page without what is for roff."""
    for written, meant in ROFF.items():
        text = text.replace(written, meant)
    return text


def parsers(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(f"{path} {name}", below)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_manual_page_explains_each_option_of_a_command(name: str) -> None:
    module = import_module(f"gpumon.cli.{name}")
    top = parser_of(name, module.__doc__)
    module.add_options(top)
    heads = re.split(r"^\.S[SH] (.*)\n", plain(PAGE.read_text(encoding="utf-8")), flags=re.MULTILINE)
    sections = dict(zip(heads[1::2], heads[2::2], strict=True))
    for path, parser in parsers(f"gpumon {name}", top):
        (own,) = (text for head, text in sections.items() if re.match(rf"{path}(?: [^a-z]|$)", head))
        (line,) = re.findall(r"^Further options, see below: (.*)\.$", own, re.MULTILINE) or [""]
        text = own + "".join(sections[group.capitalize()] for group in line.split(", ") if group)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
                continue
            for word in action.option_strings or [action.metavar or f"{{{','.join(action.choices or ())}}}"]:
                assert re.search(rf"^(?:.*, )?{re.escape(str(word))}(?:,| |$)", text, re.MULTILINE), (path, word)
            assert (action.help or "") in text, (path, action.option_strings)


def test_the_manual_page_gives_no_cause_for_warnings() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff, which reads manual pages, is not on this machine")
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", PAGE], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
    assert "gpumon - monitor GPUs, epoch by epoch of each training" in shown
    assert "where samples come from (GPUMON_SOURCE; default: the source of the" in " ".join(shown.split())
