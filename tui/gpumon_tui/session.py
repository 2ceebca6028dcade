"""Runs one session of the terminal view, from checking the terminal to the exit code."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from gpumon_tui.app import GpumonApp
from gpumon_tui.appearance import from_terminal
from gpumon_tui.data.events import OpenEvents
from gpumon_tui.data.run_ledger import OpenLedgers
from gpumon_tui.feed import FindDaemon, FrameFeed, Past, Player, Simulation
from gpumon_tui.notifications import TerminalNotifier, to_terminal
from gpumon_tui.preferences import Preferences, preferences_path
from gpumon_tui.terminal_guard import TerminalGuard
from gpumon_tui.theme import BY_NAME as THEMES

if TYPE_CHECKING:
    from gpumon.common.config import Prices

GARBAGE = 10_000
"""Allocation threshold of the garbage collector: a tick creates and drops hundreds of objects, hardly any in a
cycle.
"""


def run(
    feed: FrameFeed,
    *,
    interval: float = 1.0, simulation: Simulation | None = None, past: Past | None = None, player: Player | None = None,
    ledgers: OpenLedgers | None = None,
    simulated_ledgers: OpenLedgers | None = None,
    readonly: bool = False,
    read_events: OpenEvents | None = None,
    remembered: Preferences | None = None,
    notify: bool = False,
    daemon: FindDaemon | None = None,
    prices: Prices | None = None,
) -> int:  # fmt: skip
    """Show `feed` until the user quits, a signal arrives or the terminal hangs up; return the exit code.

    `simulated_ledgers` opens the ledgers of a running simulation. `readonly`: do not send signals to processes.
    `daemon` finds a daemon started later, whose frames are then shown. `prices`: cost settings for runs, if configured.
    `notify`: send terminal notifications of ended runs and free GPUs. Raises the exception that crashed the view, after
    restoring the terminal.
    """
    gc.set_threshold(GARBAGE)
    app = GpumonApp(
        feed, interval=interval, simulation=simulation, past=past, player=player, ledgers=ledgers,
        read_events=read_events, daemon=daemon,
    )  # fmt: skip
    app.view.ledger_runs.prices, app.view.ledger_runs.simulated = prices, simulated_ledgers
    app.view.is_readonly = readonly
    encoding = sys.__stderr__.encoding if sys.__stderr__ is not None else ""
    app.view.preferences = remembered or Preferences(preferences_path(os.environ))
    look = from_terminal(os.environ, app.console.color_system, encoding)
    app.view.appearance = look._replace(theme=THEMES.get(app.view.preferences.get("theme"), look.theme))
    app.notifier = TerminalNotifier(os.environ, app.write_escape, notifies=notify)
    gc.freeze()  # modules stay loaded: scanning them in every collection finds nothing and delays the keys
    with TerminalGuard(app.end).watching():
        app.run()
    app.notifier.end(to_terminal)
    app.source.close()
    app.view.preferences.close()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
