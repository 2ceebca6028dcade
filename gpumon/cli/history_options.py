"""Options that subcommands of `gpumon history` share: a window that ends with the newest sample, and GPUs in it."""

from __future__ import annotations

import argparse
from typing import Any


def add_command(commands: Any, formatter: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Add a subcommand whose help is `text`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", argument_default=argparse.SUPPRESS,
        formatter_class=formatter,
    )  # fmt: skip
    parser.set_defaults(action=name)
    return parser


def add_window_and_gpus(parser: argparse.ArgumentParser) -> None:
    """Add --since, --until and --gpu."""
    parser.add_argument(
        "--since", metavar="TIME", default="24h",
        help="begin of the window: 7d for so long ago, or 2026-01-31T14:00 (default: 24h)",
    )  # fmt: skip
    parser.add_argument(
        "--until", metavar="TIME", default=None,
        help="end of the window (default: the newest sample; now, if no daemon runs)",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", metavar="GPU", action="append", default=[], help="only this GPU, by index or UUID; may be repeated"
    )
