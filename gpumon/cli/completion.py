"""Print the script by which bash, zsh or fish completes commands, options and their values.

  source <(gpumon completion bash)     in ~/.bashrc
  source <(gpumon completion zsh)      in ~/.zshrc, below compinit
  gpumon completion fish | source      in ~/.config/fish/config.fish

Of a gpumon that is installed below ~/.local or for the whole system, fish finds it without that, and so does bash
with the package bash-completion.
"""

from __future__ import annotations

import argparse
import os

import gpumon
from gpumon.common.errors import EXIT_OK, GpumonError

SHELLS = ("bash", "zsh", "fish")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="shell to complete in")


def run(arguments: argparse.Namespace) -> int:
    path = os.path.join(os.path.dirname(gpumon.__file__), "completions", f"gpumon.{arguments.shell}")
    try:
        with open(path, encoding="utf-8") as file:
            print(file.read(), end="")
    except FileNotFoundError:
        raise GpumonError(f"this installation lacks {path}: install gpumon again") from None
    return EXIT_OK
