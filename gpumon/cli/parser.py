"""Options of a command, parsed by argparse."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from gpumon.cli.streams import of_words, output_width, shortened
from gpumon.common.errors import UsageError


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser without options for a command of gpumon; `description` heads its help."""
    return _Parser(prog=f"gpumon {name}", description=description, formatter_class=_Formatter)


def whole_parser() -> argparse.ArgumentParser:
    """Return gpumon with all its commands as one parser, for completion and the manual page."""
    from importlib import import_module

    from gpumon.cli import COMMANDS

    parser = _Parser(prog="gpumon", description="Monitor GPUs, epoch by epoch of each training.",
                     formatter_class=_Formatter)  # fmt: skip
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, text in COMMANDS.items():
        module = import_module(f"gpumon.cli.{name}")
        below = commands.add_parser(name, help=text, description=module.__doc__, formatter_class=_Formatter)
        module.add_options(below)
    return parser


class _Parser(argparse.ArgumentParser):
    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # argparse of Python 3.11 takes the value in `--limit=--` for the end of the options, and gives an empty list.
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError, with the option that was perhaps meant."""
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
        """Write the help; raises OSError where argparse of Python 3.11 would lose both the text and the error."""
        (file or sys.stdout).write(self.format_help())


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs to the terminal. A line that is indented, or that ends a sentence, keeps its end.

    Asks the terminal itself for its width: argparse imports shutil for it, each time, before any help is wanted.
    """

    def __init__(self, prog: str) -> None:
        width = (output_width() or 80) - 2
        super().__init__(prog, max_help_position=26, width=min(max(width, 40), 100))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        goes_on = False
        for line in text.splitlines():
            is_prose = bool(line) and not line[0].isspace()
            if goes_on and is_prose:
                lines[-1] += f" {line}"
            else:
                lines.append(line)
            goes_on = is_prose and not line.endswith((".", ":"))
        return "".join(f"{indent}{line}\n" for line in of_words("\n".join(lines), width - len(indent)).split("\n"))
