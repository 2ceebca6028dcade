"""Print a script that completes commands and options in bash, zsh or fish.

  source <(gpumon completion bash)     in ~/.bashrc
  eval "$(gpumon completion zsh)"      in ~/.zshrc, below compinit
  gpumon completion fish | source      in ~/.config/fish/config.fish

Requires the package shtab.
"""

from __future__ import annotations

import argparse

from gpumon.common.errors import EXIT_OK, MissingPackage

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "FILE.html", "PATH")
"""Metavars of options whose value is a file."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="shell to print the script for")


def run(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise MissingPackage("gpumon completion", "shtab") from None
    from gpumon.cli.parser import whole_parser

    parser = whole_parser()
    _complete_paths(parser, shtab.FILE, shtab.DIRECTORY)
    print(shtab.complete(parser, arguments.shell))
    return EXIT_OK


def _complete_paths(parser: argparse.ArgumentParser, file: object, directory: object) -> None:
    """Let shtab complete paths for options whose value is a file or a directory."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                _complete_paths(subparser, file, directory)
        elif action.metavar in FILES:
            action.complete = file  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = directory  # type: ignore[attr-defined]
