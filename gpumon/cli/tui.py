"""Show every GPU live in the terminal, with the epochs of each training.

Joins a running daemon; without one, samples in its own process. Press ? for the keys.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gpumon.cli.daemon_lookup import is_here, played_ledger
from gpumon.cli.options import (
    DEFAULT_SOURCE,
    add_places,
    add_source,
    is_recording,
    reads_hardware,
    resolve_options,
    source_of,
)
from gpumon.cli.sampling import Simulated, ledger_at, private_sampler
from gpumon.cli.streams import say
from gpumon.common.errors import GpumonError
from gpumon.common.paths import LEDGER, Places, history_paths, ledger_paths
from gpumon.live import Live, follow

if TYPE_CHECKING:
    from gpumon.storage.events.query import LoggedEvent
    from gpumon.storage.ledger.reader import Ledgers
    from gpumon.storage.ledger.records import RunSummary

_MOST_EVENTS = 10_000
"""Events that are shown: the newest."""
_PAST = 20
"""Past runs that are asked for."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)
    parser.add_argument(
        "--readonly", action="store_true", help="disable all actions that change something, such as ending a process"
    )
    parser.add_argument(
        "--notify", action="store_true", default=None,
        help="send terminal notifications when a run ends or a GPU becomes free (GPUMON_NOTIFY=on, or notify = true in "
        "the file)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    from gpumon_tui.guard import check

    where, arguments = resolve_options(arguments)
    check()
    live = follow(where)
    # One that hangs in its driver has the last known values; to ask that driver here would hang as well.
    if arguments.source is None and live.has_writer():
        return _show(live, live.interval(), where, arguments)
    live.close()
    if told := _reading(arguments):
        say(told)  # the screen stays blank until then
    # Runs that a view sees by itself are gone with it: the real ledger belongs to daemons.
    with TemporaryDirectory(prefix="gpumon-tui-") as directory:
        ledger = f"{directory}/{LEDGER}"
        with private_sampler(where, arguments, ledger) as own:
            daemon = _looked_for(where, arguments, own)
            return _show(own, arguments.interval, where, arguments, lambda: ledger_at(ledger, own.generation), daemon)


def _reading(arguments: argparse.Namespace) -> str:
    """Return what is read before a recording plays from a later moment; empty where nobody looks."""
    begin = arguments.play_from
    if not begin or not is_recording(arguments) or not (sys.stderr and sys.stderr.isatty()):
        return ""
    return f"gpumon: reading {os.path.basename(source_of(arguments).partition(':')[2])} up to {begin} …"


def _looked_for(where: Places, arguments: argparse.Namespace, own: Live) -> Callable[[], Live | None] | None:
    """Ways to find a daemon that begins later, after which nothing is sampled here; None where a source is named."""
    if arguments.source is not None:
        return None
    live = follow(where)

    def found() -> Live | None:
        if not live.is_alive():
            return None
        own.end_sampling()
        return live

    return found


def _show(
    live: Live,
    interval: float,
    where: Places,
    arguments: argparse.Namespace,
    own: Callable[[], str] | None = None,
    daemon: Callable[[], Live | None] | None = None,
) -> int:
    """Show frames until the user quits; `own` gives the ledger of those of a sampler of one's own, until `daemon`."""
    from gpumon_tui import session

    shown = live

    def found() -> Live | None:
        nonlocal shown
        came = daemon() if daemon else None
        shown = came or shown
        return came

    def ledgers() -> Ledgers:
        kept = own() if own is not None and shown is live else played_ledger(shown, where)
        return _ledgers(kept, ledger_paths(where) if simulated and is_here(shown) else ())

    simulated = Simulated(where) if reads_hardware(arguments) else None
    interval = min(max(interval, 0.25), 1.0)
    return session.run(
        live,
        interval=interval,
        simulation=simulated.begin if simulated else None,
        simulated_ledgers=simulated.ledgers if simulated else None,
        past=lambda: _past(where),
        daemon=found if daemon else None,
        player=live.playback,
        ledgers=ledgers,
        readonly=arguments.readonly,
        read_events=lambda path: _events(where, path),
        notify=arguments.notify,
        prices=arguments.prices,
    )


def _ledgers(own: str, others: Sequence[str]) -> Ledgers:
    """The ledgers that this user may read; `own`, of what is on screen alone, is there from its first run on.

    Raises GpumonError where there is none.
    """
    from gpumon.storage.ledger.reader import NOTHING, Ledgers

    found = Ledgers([*([own] if os.path.exists(own) else ()), *others])
    if not found:
        raise GpumonError(NOTHING)
    return found


def _events(where: Places, path: str) -> Sequence[LoggedEvent]:
    """The newest events of the log at `path`, or else of one that this user may read. Raises GpumonError."""
    from gpumon.cli.daemon_lookup import why_no_history
    from gpumon.storage.events.query import read_events

    paths = [path] if path else history_paths(where)
    if not paths:
        raise GpumonError(why_no_history(where, "events"))
    return read_events(paths[0], limit=_MOST_EVENTS)


def _past(where: Places) -> Sequence[RunSummary]:
    """The newest runs of the ledgers that this user may read; none where there is no ledger."""
    from gpumon.storage.ledger.reader import Ledgers

    paths = ledger_paths(where)
    if not paths:
        return ()
    try:
        with Ledgers(paths) as ledgers:
            return ledgers.runs(limit=_PAST)
    except GpumonError:
        return ()  # 'gpumon runs' says what is wrong with it
