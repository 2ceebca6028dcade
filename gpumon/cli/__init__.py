"""The commands. Each is a module with its help, its options and `run`; only the one wanted is imported."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from gpumon.errors import EXIT_FAILED, EXIT_USAGE, GpumonError
from gpumon.text import clean

COMMANDS = {
    "tui": "the terminal view: every GPU, live, with the epochs of trainings",
    "web": "the browser view: which GPUs are free, who holds what, every run",
    "status": "one look at GPUs, processes and runs; --json for programs",
    "run": "run a command beside the sampler, and say in the end what it cost",
    "runs": "what every run and every epoch cost: list, show, compare, report, export",
    "daemon": "sample until stopped, for all views on this machine",
}

_TOP = """\
usage: gpumon COMMAND [options]

What every GPU does in every epoch of a training.

commands:
{commands}

Start with 'gpumon tui'. Each command explains itself: gpumon COMMAND --help
"""


def entry() -> int:
    """What the script `gpumon` calls.

    `status` lives for some 40 ms: collecting garbage while it imports and again when it ends is a
    tenth of that, and for nothing.
    """
    one_look = sys.argv[1:2] == ["status"]
    if one_look:
        gc.disable()
    code = main()
    if one_look:
        gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 fine, 1 failed, 2 usage, 3 no GPU can be read."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_TOP.format(commands="\n".join(f"  {name:<8} {text}" for name, text in COMMANDS.items())), end="")
        return 0 if arguments else EXIT_USAGE
    if arguments[0] in ("-V", "--version"):
        from gpumon import __version__

        print(f"gpumon {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        return _fail(f"unknown command '{name}': it is one of {', '.join(COMMANDS)}", EXIT_USAGE)
    command = import_module(f"gpumon.cli.{name}")
    parser = argparse.ArgumentParser(prog=f"gpumon {name}", description=command.__doc__, formatter_class=_Formatter)
    try:
        command.add_options(parser)
        code = command.run(parser.parse_args(arguments[1:]))
        sys.stdout.flush()
    except GpumonError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has gone; what is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    return int(code)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Asks the terminal itself for its width: argparse imports shutil for it, each time, before any help is wanted."""

    def __init__(self, prog: str) -> None:
        try:
            width = os.get_terminal_size().columns - 2
        except OSError:
            width = 78
        super().__init__(prog, max_help_position=26, width=min(max(width, 40), 100))


def _fail(message: str, code: int) -> int:
    print(f"gpumon: {clean(message, 1024)}", file=sys.stderr)
    return code
