"""Options of a command, parsed by argparse."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser without options for a command of gpumon; `description` heads its help."""
    return _Parser(prog=f"gpumon {name}", description=description, formatter_class=_Formatter)


class _Parser(argparse.ArgumentParser):
    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # argparse of Python 3.11 takes the value in `--limit=--` for the end of the options, and gives an empty list.
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, arg_strings)

    def print_help(self, file: Any = None) -> None:
        """Write the help; raises OSError where argparse of Python 3.11 would lose both the text and the error."""
        (file or sys.stdout).write(self.format_help())


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Asks the terminal itself for its width: argparse imports shutil for it, each time, before any help is wanted."""

    def __init__(self, prog: str) -> None:
        try:
            width = os.get_terminal_size().columns - 2
        except OSError:
            width = 78
        super().__init__(prog, max_help_position=26, width=min(max(width, 40), 100))
