"""Scripts by which bash, zsh and fish complete commands, options and their values.

shtab makes such scripts, too. Version 1.13 was tried: its zsh offers `add` of `gpumon web token add` behind `gpumon
web`, and runs `PORT` as a command for `--listen [HOST]:PORT`; its bash completes nothing behind `--option=` or
`replay:`; bash and fish offer options of `gpumon run` to the command that it runs. What it makes is mostly its own
templates, which are under another license than gpumon.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from command_tree import Command, Option, Values, source_words

SHELLS = Path(__file__).parent / "shells"
"""Scripts in which a part that comes from the parsers is a name between two @."""


def _filled(shell: str, **parts: str) -> str:
    text = (SHELLS / f"gpumon.{shell}").read_text(encoding="utf-8")
    (played,) = (name for name, _ in source_words() if name.endswith(":"))
    for name, part in {**parts, "PLAYED": played}.items():
        text = text.replace(f"@{name}@", part)
    return text


def bash(top: Command) -> str:
    """Return the script for bash 4.3 and newer."""
    cases = "\n".join(line for command in top.all() for line in _bash_case(command))
    sources = " ".join(name for name, _ in source_words())
    return _filled("bash", CASES=cases, SOURCES=sources)


def _bash_case(command: Command) -> Iterator[str]:
    yield f"  {shlex.quote(command.path)})"
    if command.below:
        yield f"    below='{' '.join(one.words[-1] for one in command.below)}'"
    if any(one.values is not Values.ANY for one in command.arguments):
        kinds = [_kind(one) for one in command.arguments] + ([] if command.arguments[-1].repeats else ["any"])
        yield f"    arguments='{' '.join(kinds)}'  # the last one again and again"
    yield f"    options='{' '.join(name for option in command.options for name in option.names)}'"
    takes = (f"{name}:{_kind(option)}" for option in command.options if option.metavar for name in option.names)
    yield f"    values='{' '.join(takes)}' ;;"


def _kind(option: Option) -> str:
    """One word: the kind, or all words that can be chosen."""
    return option.values.value if isinstance(option.values, Values) else f"words:{','.join(option.values)}"


def zsh(top: Command) -> str:
    """Return the script for zsh, which also serves as `_gpumon` in its `fpath`."""
    functions = "\n".join(line for command in top.all() for line in _zsh_function(command))
    sources = [(name.replace(":", r"\:"), text) for name, text in source_words() if not name.endswith(":")]
    words = " ".join(shlex.quote(f"{name}:{text}") for name, text in sources)
    files = " ".join(shlex.quote(rf"{name[:-1]}\::{text}") for name, text in source_words() if name.endswith(":"))
    return _filled("zsh", FUNCTIONS=functions, WORDS=words, FILES=files)


def _zsh_function(command: Command) -> Iterator[str]:
    name = "_" + "_".join(command.words)
    yield f"{name}() {{\n  local curcontext=$curcontext state line ret=1\n  typeset -A opt_args"
    specs = [_zsh_option(one) for one in command.options]
    if command.below:
        yield "  local -a below=("
        yield from (f"    {shlex.quote(f'{one.words[-1]}:{one.help}')}" for one in command.below)
        yield "  )"
        specs += ["'1:command:{_describe -t commands command below}'", "'*:: :->below'"]
    specs += [_zsh_argument(one, number) for number, one in enumerate(command.arguments, 1)]
    yield "  _arguments -C -S \\\n    " + " \\\n    ".join(specs) + " && ret=0"
    if command.below:
        yield "  if [[ $state == below ]]; then\n    case $words[1] in"
        yield from (f"    {one.words[-1]}) {name}_{one.words[-1]} && ret=0 ;;" for one in command.below)
        yield "    esac\n  fi"
    yield "  return ret\n}\n"


def _zsh_option(option: Option) -> str:
    names = [name + ("" if not option.metavar else "=" if name.startswith("--") else "+") for name in option.names]
    text = "[" + option.help.replace("\\", "\\\\").replace("[", r"\[").replace("]", r"\]") + "]"
    if "--help" in option.names:
        before = "(- *)"
    else:
        before = "*" if option.repeats else f"({' '.join(option.names)})" if option.names[1:] else ""
    value = f":{_zsh_text(option.metavar)}:{_zsh_action(option)}" if option.metavar else ""
    if option.names[1:]:
        return f"{shlex.quote(before)}{{{','.join(names)}}}{shlex.quote(text + value)}"
    return shlex.quote(before + names[0] + text + value)


def _zsh_argument(option: Option, number: int) -> str:
    if option.values is Values.COMMAND:
        return "'(-)1:command:_command_names -e' '*::arguments:_normal'"
    return shlex.quote(f"{'*' if option.repeats else number}:{_zsh_text(option.metavar)}:{_zsh_action(option)}")


def _zsh_text(text: str) -> str:
    return text.replace(":", r"\:")


def _zsh_action(option: Option) -> str:
    if isinstance(option.values, tuple):
        return f"({' '.join(option.values)})"
    actions = {Values.FILE: "_files", Values.DIRECTORY: "_files -/", Values.SOURCE: "_gpumon_sources"}
    return actions.get(option.values, " ")


def fish(top: Command) -> str:
    """Return the script for fish."""
    commands = [command for command in top.all() if command is not top]
    lines = "\n".join(line for command in top.all() for line in _fish_lines(command))
    values = " ".join(
        _fish(f"{command.path} {name}")
        for command in top.all()
        for option in command.options
        if option.metavar
        for name in option.names
    )
    others = " ".join(
        _fish(one.path) for one in commands if any(argument.values is Values.COMMAND for argument in one.arguments)
    )
    sources = "\n".join(rf"    printf '%s\t%s\n' {_fish(name)} {_fish(text)}" for name, text in source_words())
    paths = " ".join(_fish(one.path) for one in commands)
    return _filled("fish", COMMANDS=paths, VALUES=values, OTHERS=others, SOURCES=sources, LINES=lines)


def _fish_lines(command: Command) -> Iterator[str]:
    start, first = (f"complete -c gpumon -n '{when} {command.path}'" for when in ("__gpumon_at", "__gpumon_now"))
    for one in command.below:
        yield f"{first} -x -a {_fish(one.words[-1])} -d {_fish(one.help)}"
    for option in command.options:
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        yield f"{start} {names}{_fish_values(option) if option.metavar else ''} -d {_fish(option.help)}"
    for argument in command.arguments:
        if argument.values is not Values.ANY:
            yield f"{start if argument.repeats else first}{_fish_values(argument)} -d {_fish(argument.help)}"


def _fish_values(option: Option) -> str:
    if option.values is Values.FILE:
        return " -r -F"
    found = {
        Values.ANY: "", Values.DIRECTORY: "(__fish_complete_directories)", Values.SOURCE: "(__gpumon_sources)",
        Values.COMMAND: "(__fish_complete_command)",
    }  # fmt: skip
    words = " ".join(option.values) if isinstance(option.values, tuple) else found[option.values]
    return f" -x -a {_fish(words)}" if words else " -x"


def _fish(text: str) -> str:
    """Quote as fish reads it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
