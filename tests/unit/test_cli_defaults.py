"""Options of a command that was given none."""

from __future__ import annotations

from importlib import import_module

import pytest

from gpumon.cli import _SHORT
from gpumon.cli.options import defaults
from gpumon.cli.parser import command_parser


@pytest.mark.parametrize("name", _SHORT)
def test_the_options_of_a_brief_command_are_what_argparse_makes_of_none(name: str) -> None:
    command = import_module(f"gpumon.cli.{name}")
    parser = command_parser(name, None)
    command.add_options(parser)
    assert vars(defaults(command.add_options)) == vars(parser.parse_args([]))
