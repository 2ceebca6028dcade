"""The manual page of gpumon, for man, with every command and option."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from command_tree import Command, Option

import gpumon
from gpumon.common.errors import EXIT_FAILED, EXIT_NO_GPU, EXIT_OK, EXIT_USAGE

_HELP = "--help"
_WIDEST = "12n"
"""Room for the name of a command."""
_SHARED = "OPTIONS OF SEVERAL COMMANDS"
_EXIT = (
    (EXIT_OK, "All is well."),
    (EXIT_FAILED, "The command failed."),
    (EXIT_USAGE, "It was not used as it is meant, or a setting is invalid."),
    (EXIT_NO_GPU, "No GPU can be read."),
)
_FILES = (
    ("~/.config/gpumon/config.toml", "Settings, under the names of such options; prices, and groups of users."),
    ("~/.local/state/gpumon", "Runs, history and tokens, unless --state-dir says otherwise."),
)
_ENVIRONMENT = (
    "An option that names a variable, such as GPUMON_SOURCE, is by default what that variable says, and else what the "
    "settings file says. NO_COLOR switches colors off."
)


def manual(top: Command) -> str:
    """Return the page in the macros of man."""
    return "\n".join(_lines(top)) + "\n"


def _lines(top: Command) -> Iterator[str]:
    shared = _shared(top)
    yield r".\" Made by docs/commands.py."
    yield f'.TH GPUMON 1 "" "gpumon {gpumon.__version__}" "User commands"'
    yield ".nh\n.ad l"
    yield ".SH NAME"
    yield r"gpumon \- " + _text("monitor GPUs, epoch by epoch of each training")
    yield ".SH SYNOPSIS"
    yield _bold("gpumon") + _text(" COMMAND [options]")
    yield ".br"
    yield _bold("gpumon --help") + " | " + _bold("--version")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(top.description)
    for one in top.below:
        yield from _entry(_bold(one.words[-1]), one.help, _WIDEST)
    yield ".PP"
    yield _text("Start with 'gpumon tui'. Each command tells its options with --help.")
    yield ".SH COMMANDS"
    for command in top.all():
        if command is not top:
            yield from _command(command, shared)
    yield f".SH {_SHARED}"
    descriptions = {title: text for command in top.all() for title, text in command.groups.items()}
    for title, options in shared.items():
        yield f".SS {title.capitalize()}"
        yield from _paragraphs(re.sub(r"\n(?=\S)", "\n\n", descriptions[title]))
        for option in options:
            yield from _entry(_names(option), option.help)
    yield ".SH EXIT STATUS"
    for code, meaning in _EXIT:
        yield from _entry(_bold(str(code)), meaning)
    yield ".PP"
    yield _text("'gpumon run' ends with the exit code of its command.")
    yield ".SH ENVIRONMENT"
    yield _text(_ENVIRONMENT)
    yield ".SH FILES"
    for path, meaning in _FILES:
        yield from _entry(_italic(path), meaning)
    yield ".SH SEE ALSO"
    yield r"\fBnvidia\-smi\fR(1)"


def _shared(top: Command) -> dict[str, Sequence[Option]]:
    """Options of each group that several commands have, as the first of them has them."""
    found: dict[str, list[Command]] = defaultdict(list)
    for command in top.all():
        for title in command.groups:
            found[title].append(command)
    return {
        title: [one for one in commands[0].options if one.group == title]
        for title, commands in found.items()
        if len(commands) > 1
    }


def _command(command: Command, shared: dict[str, Sequence[Option]]) -> Iterator[str]:
    yield f".SS {_usage(command)}"
    yield from _paragraphs(command.description)
    for option in (*command.arguments, *command.options):
        if _HELP not in option.names and option not in shared.get(option.group, ()):
            yield from _entry(_names(option), option.help)
    titles = [title for title in command.groups if title in shared]
    if titles:
        yield ".PP"
        yield _text(f"Further options, see below: {', '.join(titles)}.")


def _usage(command: Command) -> str:
    if command.usage:
        return _text(command.usage)
    words = [command.path, *(f"{one.names[-1]} {one.metavar}" for one in command.options if one.required)]
    if any(not one.required and _HELP not in one.names for one in command.options):
        words.append("[options]")
    words += [f"{one.metavar} ..." if one.repeats else one.metavar for one in command.arguments]
    if command.below:
        words.append("COMMAND" if command.must else "[COMMAND]")
    return _text(" ".join(words))


def _names(option: Option) -> str:
    names = [f"{_bold(name)} {_italic(option.metavar)}" if option.metavar else _bold(name) for name in option.names]
    return ", ".join(names) or _italic(option.metavar)


def _entry(head: str, text: str, indent: str = "") -> Iterator[str]:
    yield f".TP {indent}".rstrip()
    yield head
    yield _text(text)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs are filled, indented lines stay as they are."""
    is_open = False
    for line in text.strip().splitlines():
        if line.startswith(" "):
            if not is_open:
                yield from (".PP", ".nf", ".RS")
            is_open = True
            yield _text(line.strip())
            continue
        if is_open:
            yield from (".RE", ".fi")
            is_open = False
        yield _text(line) if line.strip() else ".PP"
    if is_open:
        yield from (".RE", ".fi")


def _bold(text: str) -> str:
    return rf"\fB{_text(text)}\fR"


def _italic(text: str) -> str:
    return rf"\fI{_text(text)}\fR"


def _text(text: str) -> str:
    """Escape what roff would read as its own; each sign stays the one that it is in a shell."""
    signs = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "~": r"\(ti", "^": r"\(ha"}
    escaped = "".join(signs.get(sign, sign if sign.isascii() else rf"\[u{ord(sign):04X}]") for sign in text)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped
