"""Show every GPU live in the terminal, with the epochs of each training.

Joins a running daemon; without one, samples in its own process. Press ? for the keys.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpumon.cli.daemon_lookup import is_local, played_ledger
from gpumon.cli.options import (
    DEFAULT_SOURCE,
    add_places,
    add_source,
    chosen_source,
    is_recording,
    reads_hardware,
    resolve_options,
)
from gpumon.cli.sampling import Simulation, ledger_of_generation, private_sampler
from gpumon.cli.streams import print_message
from gpumon.common.errors import GpumonError
from gpumon.common.paths import LEDGER, Places, history_paths, ledger_paths
from gpumon.live import Live, follow

if TYPE_CHECKING:
    from gpumon.storage.events.query import LoggedEvent
    from gpumon.storage.ledger.reader import Ledgers
    from gpumon.storage.ledger.records import RunSummary

_MAX_EVENTS = 10_000
"""Number of events to show, newest first."""
_MAX_PAST_RUNS = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)
    parser.add_argument(
        "--demo", dest="source", action="store_const", const="sim",
        help="show a simulation, labeled as such: short for --source sim",
    )  # fmt: skip
    parser.add_argument(
        "--readonly", action="store_true", help="disable all actions that change something, such as ending a process"
    )
    parser.add_argument(
        "--notify", action="store_true", default=None,
        help="send terminal notifications when a run ends or a GPU becomes free (also GPUMON_NOTIFY=on, or notify = "
        "true in the settings file)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    from gpumon.common.scratch import scratch_directory
    from gpumon_tui.terminal_guard import check_terminal

    places, arguments = resolve_options(arguments)
    check_terminal()
    live = follow(places)
    # A daemon that hangs in the driver still has the last values. A driver call in this process would hang, too.
    if arguments.source is None and live.has_writer():
        return _show(live, live.interval(), places, arguments)
    live.close()
    if message := _loading_message(arguments):
        print_message(message)  # the screen stays blank until the recording is read
    # Runs are stored in a temporary ledger until this view ends, because only a daemon may write the real ledger.
    with scratch_directory("tui") as directory:
        ledger = f"{directory}/{LEDGER}"
        with private_sampler(places, arguments, ledger) as own:
            daemon = _daemon_finder(places, arguments, own)
            return _show(
                own, arguments.interval, places, arguments, lambda: ledger_of_generation(ledger, own.generation), daemon
            )


def _loading_message(arguments: argparse.Namespace) -> str:
    """Return the message to show while a recording is read up to the time at which its playback starts (`--from`).

    Empty if playback starts at the beginning, or without a terminal.
    """
    begin = arguments.play_from
    if not begin or not is_recording(arguments) or not (sys.stderr and sys.stderr.isatty()):
        return ""
    return f"gpumon: reading {os.path.basename(chosen_source(arguments).partition(':')[2])} up to {begin} …"


def _daemon_finder(places: Places, arguments: argparse.Namespace, own: Live) -> Callable[[], Live | None] | None:
    """Return a function that looks for a daemon that was started after this view; None with --source.

    If the function finds such a daemon, it ends the sampling in this process and returns the daemon's ring. Otherwise
    it returns None.
    """
    if arguments.source is not None:
        return None
    live = follow(places)

    def find() -> Live | None:
        if not live.is_alive():
            return None
        own.end_sampling()
        return live

    return find


def _show(
    live: Live,
    interval: float,
    places: Places,
    arguments: argparse.Namespace,
    own_ledger: Callable[[], str] | None = None,
    find_daemon: Callable[[], Live | None] | None = None,
) -> int:
    """Show frames until the user quits.

    `own_ledger`: function that returns the ledger of a sampler in this process. This ledger is used until `find_daemon`
    finds a daemon.
    """
    from gpumon_tui import session

    shown = live

    def switch_to_daemon() -> Live | None:
        nonlocal shown
        daemon = find_daemon() if find_daemon else None
        shown = daemon or shown
        return daemon

    def ledgers() -> Ledgers:
        path = own_ledger() if own_ledger is not None and shown is live else played_ledger(shown, places)
        return _open_ledgers(path, ledger_paths(places) if simulation and is_local(shown) else ())

    simulation = Simulation(places) if reads_hardware(arguments) else None
    interval = min(max(interval, 0.25), 1.0)
    return session.run(
        live,
        interval=interval,
        simulation=simulation.begin if simulation else None,
        simulated_ledgers=simulation.ledgers if simulation else None,
        past=lambda: _past_runs(places),
        daemon=switch_to_daemon if find_daemon else None,
        player=live.playback,
        ledgers=ledgers,
        readonly=arguments.readonly,
        read_events=lambda path: _events(places, path),
        notify=arguments.notify,
        prices=arguments.prices,
    )


def _open_ledgers(own: str, others: Sequence[str]) -> Ledgers:
    """Open the ledgers. Raises GpumonError if no ledger exists.

    `own`: ledger of the source that is shown. It may not exist before the first run. `others`: further ledgers.
    """
    from gpumon.storage.ledger.reader import NOTHING, Ledgers

    ledgers = Ledgers([*([own] if os.path.exists(own) else ()), *others])
    if not ledgers:
        raise GpumonError(NOTHING)
    return ledgers


def _events(places: Places, path: str) -> Sequence[LoggedEvent]:
    """Return the newest events from the history file `path`; if it is "", from the history of this user or machine.

    Raises GpumonError if there is no history.
    """
    from gpumon.cli.daemon_lookup import why_no_history
    from gpumon.storage.events.query import read_events

    paths = [path] if path else history_paths(places)
    if not paths:
        raise GpumonError(why_no_history(places, "events"))
    return read_events(paths[0], limit=_MAX_EVENTS)


def _past_runs(places: Places) -> Sequence[RunSummary]:
    """Return the newest runs in the ledgers that this user may read; empty if there are no ledgers."""
    from gpumon.storage.ledger.reader import Ledgers

    paths = ledger_paths(places)
    if not paths:
        return ()
    try:
        with Ledgers(paths) as ledgers:
            return ledgers.runs(limit=_MAX_PAST_RUNS)
    except GpumonError:
        return ()  # 'gpumon runs' reports the problem
