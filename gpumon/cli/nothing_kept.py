"""Why nothing of the past can be listed: of runs or of history."""

from __future__ import annotations

from contextlib import closing

from gpumon.common.paths import Places, history_path, ledger_path
from gpumon.live import Live, follow
from gpumon.model.origin import Capability
from gpumon.storage.ledger.reader import NOTHING
from gpumon.storage.sqlite.read import why_absent

_RUNNING = "the daemon writes within a minute of its start; after that, its log may say why; restart it if it is older"


def why_no_runs(where: Places) -> str:
    """One line for people: why no run was recorded."""
    return why_absent(ledger_path(where), NOTHING, "runs are not recorded", where.machine_state)


def why_no_history(where: Places, what: str = "history") -> str:
    """One line for people: why no `what` is kept."""
    with closing(follow(where)) as live:
        played, is_alive = played_instead(live), live.is_alive()
    if played:
        return f"history is not being kept: {played}"
    to_do = _RUNNING if is_alive else "start 'gpumon daemon'"
    nothing = f"no {what} kept yet: {to_do}"
    return why_absent(history_path(where), nothing, "history is not kept", where.machine_state)


def played_instead(live: Live) -> str:
    """Say what a daemon that runs plays, of which nothing is kept; empty where it samples this machine."""
    origin = live.origin()
    if live.is_alive() and Capability.LIVE not in origin.capabilities:
        return f"the daemon plays {origin.label or origin.source} instead of sampling this machine"
    return ""
