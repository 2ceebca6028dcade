"""Change runs in the ledger: rename, delete, note and tag."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from gpumon.cli.streams import say
from gpumon.common.errors import GpumonError, UsageError
from gpumon.model import units
from gpumon.storage.ledger.reader import Ledger, Ledgers, find
from gpumon.storage.ledger.records import RunRow

if TYPE_CHECKING:
    from gpumon.storage.ledger.change import LedgerChange

_RUN = "id, name or unambiguous prefix of one of your runs; 'last' is the newest"


def rename_options(parser: argparse.ArgumentParser) -> None:
    """Options of `runs rename`."""
    parser.add_argument("run", metavar="RUN", help=_RUN)
    parser.add_argument("new_name", metavar="NAME", help="the new name; the id stays")


def note_options(parser: argparse.ArgumentParser) -> None:
    """Options of `runs note`."""
    parser.add_argument("run", metavar="RUN", help=_RUN)
    parser.add_argument("text", metavar="TEXT", nargs="+", help="one line, kept with your name and the time")


def tag_options(parser: argparse.ArgumentParser) -> None:
    """Options of `runs tag`."""
    parser.add_argument("run", metavar="RUN", help=_RUN)
    parser.add_argument("tags", metavar="TAG", nargs="+", help="words to find the run by")
    parser.add_argument("--remove", action="store_true", help="take these tags off the run")


def delete_options(parser: argparse.ArgumentParser) -> None:
    """Options of `runs delete`."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help=_RUN)
    parser.add_argument("--yes", action="store_true", help="delete without asking")


def rename(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    """`gpumon runs rename`."""
    ledger, run = find(ledgers, arguments.run, now, say)
    with _changing(ledger) as change:
        change.rename(run, arguments.new_name)
    print(f"renamed {run.id}, which was '{run.name}'")


def note(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    """`gpumon runs note`."""
    from gpumon.tracking.secrets import masked_text  # for this command alone

    ledger, run = find(ledgers, arguments.run, now, say)
    with _changing(ledger) as change:
        change.note(run, masked_text(" ".join(arguments.text)), time.time_ns())
    print(f"added a note to {run.id}")


def tag(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    """`gpumon runs tag`."""
    ledger, run = find(ledgers, arguments.run, now, say)
    remove = getattr(arguments, "remove", False)
    with _changing(ledger) as change:
        change.tag(run, arguments.tags, remove=remove)
        tags = ", ".join(ledger.listed(run).tags)
    print(f"tags of {run.id}: {tags}" if tags else f"{run.id} has no tags now")


def delete(ledgers: Ledgers, arguments: argparse.Namespace, now: float) -> None:
    """`gpumon runs delete`."""
    found = {one[1].id: one for one in (_exactly(ledgers, wanted, now) for wanted in arguments.runs)}
    hostname = os.uname().nodename
    for ledger, run in found.values():
        with _changing(ledger) as change:
            change.may_delete(run, now, hostname)
    if not getattr(arguments, "yes", False) and not _is_confirmed(list(found.values()), now):
        raise GpumonError("nothing was deleted")
    for ledger, run in found.values():
        with _changing(ledger) as change:
            change.delete(run, now, hostname)
        print(f"deleted {run.id}")


ACTIONS: dict[str, Any] = {"rename": rename, "note": note, "tag": tag, "delete": delete}


def _changing(ledger: Ledger) -> LedgerChange:
    from gpumon.storage.ledger.change import LedgerChange  # `runs list` and `runs show` write nothing

    return LedgerChange(ledger.path, os.geteuid())


def _exactly(ledgers: Ledgers, wanted: str, now: float) -> tuple[Ledger, RunRow]:
    """The run meant by `wanted`. Raises UsageError for a name that several have: what is deleted is gone."""
    ledger, run = find(ledgers, wanted, now)
    if run.id != wanted:
        alike = [one.id for _, one in ledgers.candidates(wanted) if one.name == wanted]
        if len(alike) > 1:
            raise UsageError(f"{len(alike)} runs are named '{run.name}': give ids, such as {alike[0]}")
    return ledger, run


def _is_confirmed(found: list[tuple[Ledger, RunRow]], now: float) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("deletion must be confirmed: pass --yes")
    for ledger, run in found:
        done = ledger.listed(run).done
        told = "no epoch seen" if done is None else f"{units.count(done)} epochs ended"
        print(f"{run.id}: {run.name}, {units.age(run.started, now)}, {told}")
    what = "this run" if len(found) == 1 else f"these {len(found)} runs"
    try:
        return input(f"Delete {what} for ever? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
