"""Commands of gpumon as their parsers have them: subcommands, options, and the kind of value that each takes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import NamedTuple

from gpumon.cli import COMMANDS
from gpumon.cli.options import SOURCES
from gpumon.cli.parser import parser_of
from gpumon.common.privacy import WAYS
from gpumon.sources.sim import SCENARIOS

TOP = "gpumon"
VERSION = ("-V", "--version")


class Values(Enum):
    """Values that a shell completes by more than a list of words."""

    ANY = "any"
    """Nothing is known of them."""
    FILE = "file"
    DIRECTORY = "directory"
    SOURCE = "source"
    COMMAND = "command"
    """Another command, with all that comes behind it."""


BY_METAVAR: dict[str, Values | tuple[str, ...]] = {
    "FILE": Values.FILE, "FILE.html": Values.FILE, "PATH": Values.FILE, "DIR": Values.DIRECTORY,
    "SOURCE": Values.SOURCE, "COMMAND": Values.COMMAND, "WAY": WAYS,
}  # fmt: skip


class Option(NamedTuple):
    """An option, or an argument, which has no `names`."""

    names: tuple[str, ...]
    help: str
    metavar: str = ""
    """Empty for a flag."""
    values: Values | tuple[str, ...] = Values.ANY
    """Of a tuple one is chosen."""
    group: str = ""
    """Heading in the help; empty under the usual one."""
    repeats: bool = False
    required: bool = False


class Command(NamedTuple):
    """A command or subcommand, or gpumon itself."""

    words: tuple[str, ...]
    """All that lead to it, gpumon first."""
    help: str
    """A line."""
    description: str
    usage: str
    """Empty where it follows from options and arguments."""
    groups: dict[str, str]
    """Descriptions of groups of options."""
    options: tuple[Option, ...]
    arguments: tuple[Option, ...] = ()
    below: tuple[Command, ...] = ()
    must: bool = False
    """Whether it does nothing without one below."""

    @property
    def path(self) -> str:
        return " ".join(self.words)

    def all(self) -> Iterator[Command]:
        """Yield it, and all that is below it."""
        yield self
        for one in self.below:
            yield from one.all()


def command_tree() -> Command:
    """Return gpumon with all its commands."""
    below = []
    for name, help in COMMANDS.items():
        module = import_module(f"gpumon.cli.{name}")
        parser = parser_of(name, module.__doc__)
        module.add_options(parser)
        below.append(_command((TOP, name), help, parser))
    own = argparse.ArgumentParser(prog=TOP, description="Monitor GPUs, epoch by epoch of each training.")
    own.add_argument(*VERSION, action="store_true", help="show the version and exit")
    return _command((TOP,), "", own)._replace(below=tuple(below))


def source_words() -> Iterator[tuple[str, str]]:
    """Yield what can be given for `--source`, with a text; behind a colon at the end comes a file."""
    for usage, text in SOURCES:
        name, _, argument = usage.replace("[", "").partition(":")
        if argument == "FILE":
            yield f"{name}:", text
            continue
        yield name, text.partition(":")[0]
        if argument:
            yield from ((f"{name}:{scenario}", "a simulation") for scenario in SCENARIOS if scenario != "default")


def _command(words: tuple[str, ...], help: str, parser: argparse.ArgumentParser) -> Command:
    options, arguments, below, must = [], [], [], False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {one.dest: one.help or "" for one in action._get_subactions()}
            must = action.required
            below = [_command((*words, name), texts[name], one) for name, one in action.choices.items()]
        elif action.help != argparse.SUPPRESS:
            (options if action.option_strings else arguments).append(_option(action, parser.prog))
    usual = ("positional arguments", "options", "subcommands")
    groups = {one.title: one.description or "" for one in parser._action_groups if one.title not in usual}
    return Command(
        words, help, parser.description or "", parser.usage or "", groups,
        tuple(one._replace(group=one.group if one.group in groups else "") for one in options),
        tuple(arguments), tuple(below), must,
    )  # fmt: skip


def _option(action: argparse.Action, program: str) -> Option:
    help = (action.help or "") % {**vars(action), "prog": program}
    if action.nargs == 0:
        return Option(tuple(action.option_strings), help, group=action.container.title)
    named = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    metavar = "{" + ",".join(action.choices) + "}" if action.choices and action.metavar is None else named
    return Option(
        tuple(action.option_strings), help, metavar,
        tuple(action.choices) if action.choices else BY_METAVAR.get(named, Values.ANY), action.container.title,
        isinstance(action, argparse._AppendAction) or action.nargs in ("+", "*", argparse.REMAINDER),
        action.required,
    )  # fmt: skip
