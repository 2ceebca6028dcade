"""`gpumon web token`: named tokens for people and programs. Each token can be revoked."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from gpumon.cli.options import add_commands
from gpumon.cli.streams import output_width, print_lines
from gpumon.common.errors import EXIT_OK
from gpumon.common.paths import Places
from gpumon.model.units import moment
from gpumon.reports.text_table import TextColumn, draw

_NO_TOKENS = "no tokens; 'gpumon web token add NAME' adds one"
_COLUMNS = (
    TextColumn("NAME", 100, right=False), TextColumn("CREATED", 80, right=False),
    TextColumn("LAST USED", 90, right=False), TextColumn("FROM", 70, right=False),
)  # fmt: skip


def add_parser(commands: Any, formatter: Any) -> None:
    """Add the subcommand to `gpumon web`."""
    text = "add, list or revoke named tokens for the page and the JSON API"
    parser = commands.add_parser(
        "token", help=text, description=f"{text[0].upper()}{text[1:]}.", formatter_class=formatter,
        argument_default=argparse.SUPPRESS,
    )  # fmt: skip
    subcommands = {
        "add": ("add a token and print it once; only its hash is kept", _name_option),
        "list": ("list the tokens, each with the time of its last use", lambda _: None),
        "revoke": ("revoke a token and end its sessions, also while gpumon web is running", _name_option),
    }
    add_commands(parser, subcommands, required=True)


def _name_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "token_name", metavar="NAME", help="name of the token, such as the program or person that uses it"
    )


def run(places: Places, arguments: argparse.Namespace) -> int:
    """Add, list or revoke tokens in the state directory, which must exist. Raises GpumonError."""
    from gpumon_web.auth.api_tokens import TOKENS, USES, add_token, read_tokens, read_uses, revoke_token

    path, now = f"{places.state}/{TOKENS}", time.time()
    if arguments.action == "add":
        token = add_token(path, arguments.token_name, now)
        print(token, flush=True)
        print(
            f"gpumon: this is the token '{arguments.token_name}'; it cannot be shown again. Programs send it as "
            "'Authorization: Bearer TOKEN', people enter it in the sign-in form",
            file=sys.stderr,
        )
    elif arguments.action == "revoke":
        revoke_token(path, arguments.token_name)
        print(f"revoked the token '{arguments.token_name}'")
    else:
        uses = read_uses(f"{places.state}/{USES}")
        rows = []
        for named in read_tokens(path):
            use = uses.get(named.tag)
            rows.append(
                (named.name, moment(named.created), moment(use.time) if use else "never", use.peer if use else "")
            )
        print_lines(draw(_COLUMNS, rows, output_width()) if rows else [_NO_TOKENS])
    return EXIT_OK
