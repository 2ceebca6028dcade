"""The manual page has what the parsers of the commands have."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gpumon.cli import COMMANDS
from gpumon.cli.parser import command_parser

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpumon.1"
ROFF = {r"\,": "", r"\/": "", r"\-": "-", r"\(aq": "'", r"\(ti": "~", r"\fB": "", r"\fI": "", r"\fR": "", r"\&": ""}


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
def test_the_manual_page_has_each_option_of_a_command(name: str) -> None:
    page = plain(PAGE.read_text(encoding="utf-8"))
    module = import_module(f"gpumon.cli.{name}")
    top = command_parser(name, module.__doc__)
    module.add_options(top)
    for path, parser in parsers(f"gpumon {name}", top):
        _, _, own = page.partition(f"\n.SH COMMAND '{path}'\n")
        own = own.partition("\n.SH COMMAND ")[0]
        words = {word for action in parser._actions for word in action.option_strings} - {"-h", "--help"}
        assert own, f"{path}: run 'make man'"
        assert {word for word in words if word not in own} == set(), f"{path}: run 'make man'"


def test_the_manual_page_gives_no_cause_for_warnings() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff, which reads manual pages, is not on this machine")
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", PAGE], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
    assert "gpumon - monitor GPUs, epoch by epoch of each training" in shown
    assert "where samples come from (GPUMON_SOURCE; default: the source of the" in " ".join(shown.split())
