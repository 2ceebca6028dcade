"""Restarting the daemon that is shown, in a thread: only one that has stopped or does not answer."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from gpumon.common.errors import GpumonError
from gpumon_tui.instead import RestartDaemon
from gpumon_tui.view import View


class DaemonRestart:
    """The daemon's restart; `drawn` is called, in the thread, when the user is told something new."""

    def __init__(self, view: View, drawn: Callable[[], object], is_shown: Callable[[], bool] = lambda: True) -> None:
        """`is_shown`: a daemon is, now; a view may begin with samples of its own, until there is one."""
        self.view = view
        self.by: RestartDaemon | None = None
        """Restarts the daemon of this view; None where it is of none."""
        self._drawn, self._is_shown = drawn, is_shown

    @property
    def is_offered(self) -> bool:
        """Whether there is a daemon to restart, and reason to."""
        return not self.why_not

    @property
    def why_not(self) -> str:
        """Reason why nothing is restarted; empty where it can be."""
        if self.view.is_readonly:
            return "started with --readonly: nothing is restarted"
        if self.by is None or not self._is_shown():
            return "no daemon is shown: nothing to restart"
        is_well = self.view.state.live or self.view.origin.ended
        return "the daemon answers: nothing to restart" if is_well else ""

    def begin(self) -> None:
        """Restart it, and tell the user how that ended."""
        self.view.say("restarting the daemon …")
        self._drawn()
        Thread(target=self._work, name="gpumon-restart", daemon=True).start()

    def _work(self) -> None:
        try:
            said = self.by() if self.by is not None else ""
        except GpumonError as error:
            said = str(error)
        self.view.say(said)
        self._drawn()
