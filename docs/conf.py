"""Configuration of Sphinx for the documentation as a site: `make docs`."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.cli.parser import whole_parser

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "gpumon"
author = "the gpumon contributors"
release = __version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"gpumon {release}"
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]

_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+((?!images/)[^)#]+\.md|[^)#]+\.py)(?:#[^)]*)?\)")
"""Links to files of the repository that are not part of the site."""


def _name_files(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace links that lead out of `docs/` by the path in the repository."""
    depth = docname.count("/") + 1

    def name_file(match: re.Match[str]) -> str:
        is_outside = match[0].count("../") >= depth
        return f"{match[1]} (`{match[2]}`)" if is_outside else match[0]

    source[0] = _OUTSIDE.sub(name_file, source[0])


def _parsers(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                yield from _parsers(f"{path} {name}", subparser)


def _write_commands(app: Sphinx) -> None:
    """Write the page of all commands from their parsers. Git ignores it."""
    os.environ["COLUMNS"] = "100"
    parts = ["# Commands\n", "The help of every command, as `--help` prints it.\n"]
    for path, parser in _parsers("gpumon", whole_parser()):
        parts.append(f"## {path}\n\n```text\n{parser.format_help().rstrip()}\n```\n")
    Path(app.srcdir, "reference", "commands.md").write_text("\n".join(parts), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the hooks."""
    app.connect("config-inited", lambda app, _: _write_commands(app))
    app.connect("source-read", _name_files)
