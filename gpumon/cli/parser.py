"""Parsers of the commands, with help and errors in the style of gpumon."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from gpumon.cli.streams import output_width, shortened
from gpumon.common.errors import UsageError
from gpumon.common.text import wrap_words


def command_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser without options for a command of gpumon. `description`: first paragraph of the help."""
    return _Parser(prog=f"gpumon {name}", description=description, formatter_class=_Formatter)


def whole_parser() -> argparse.ArgumentParser:
    """Return a parser that has all commands of gpumon, for completion and the manual page."""
    from importlib import import_module

    from gpumon.cli import COMMANDS

    parser = _Parser(prog="gpumon", description="Monitor GPUs, epoch by epoch of each training.",
                     formatter_class=_Formatter)  # fmt: skip
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, text in COMMANDS.items():
        module = import_module(f"gpumon.cli.{name}")
        subparser = commands.add_parser(name, help=text, description=module.__doc__, formatter_class=_Formatter)
        module.add_options(subparser)
    return parser


class _Parser(argparse.ArgumentParser):
    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # For `--limit=--`, argparse of Python 3.11 takes the value for the end of the options and returns an empty
        # list.
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError. The message suggests an option with a similar name."""
        message = shortened(message).replace("invalid float value", "not a number")
        message = message.replace("invalid int value", "not a whole number")
        wrong = message.rpartition(" ")[2] if message.startswith("unrecognized arguments: ") else ""
        if wrong.startswith("-"):
            from difflib import get_close_matches

            known = [word for action in self._actions for word in action.option_strings]
            close = get_close_matches(wrong.partition("=")[0], known, 1)
            message += f". Did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"{message}{'' if message.endswith('?') else '.'} '{self.prog} --help' lists the options")

    def print_help(self, file: Any = None) -> None:
        """Write the help. Unlike argparse of Python 3.11, this does not ignore an OSError."""
        (file or sys.stdout).write(self.format_help())


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs to the width of the terminal.

    A line break is preserved before an indented line and after a period or colon. The width is read here because
    argparse would import shutil to read it, even if no help is printed.
    """

    def __init__(self, prog: str) -> None:
        width = (output_width() or 80) - 2
        super().__init__(prog, max_help_position=26, width=min(max(width, 40), 100))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        continues = False
        for line in text.splitlines():
            is_prose = bool(line) and not line[0].isspace()
            if continues and is_prose:
                lines[-1] += f" {line}"
            else:
                lines.append(line)
            continues = is_prose and not line.endswith((".", ":"))
        return "".join(f"{indent}{line}\n" for line in wrap_words("\n".join(lines), width - len(indent)))
