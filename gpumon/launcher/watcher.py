"""Looks on while a command runs, in a thread for which the command's end never waits long."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places, ledger_paths
from gpumon.common.procfs import has_own_pids
from gpumon.launcher.child import Ended
from gpumon.launcher.process_tree import ProcessTree, read_parentage
from gpumon.model import units
from gpumon.model.device import by_number

if TYPE_CHECKING:
    # Loaded by the thread, once the command runs.
    from gpumon.launcher.boards import Boards
    from gpumon.launcher.command_run import CommandRun
    from gpumon.launcher.cost import CommandCost, DeviceCost
    from gpumon.launcher.epochs import CommandTrainings, Training
    from gpumon.launcher.sampling import Sampling
    from gpumon.model.frame import Run

PATIENCE = 2.0
"""Seconds that the end of a command may wait for us."""
_LOOK = 1.0
_LATE = 0.2
"""Seconds that a frame may come late."""
_WAIT = 1.2
"""Seconds, at most, that a last frame is waited for where a training told more than we have seen yet."""


class WatchOptions(NamedTuple):
    """Options of `gpumon run`."""

    name: str
    where: Places
    source: str
    interval: float
    speed: float
    gpm: bool = True
    """Whether the GPUs' performance counters are read, where no daemon does."""
    script: str = ""
    """The one that the command runs; its commit is kept with the run."""


class CommandReport(NamedTuple):
    """Observations of a command."""

    uses: Sequence[DeviceCost] = ()
    trainings: Sequence[Training] = ()
    devices: int = 0
    """Number of devices that are visible."""
    hidden: bool = False
    """Whether it may have held devices without anybody being able to tell."""
    problem: str = ""
    """Why nothing, or not all, is known; empty when all is well."""
    shown_as: str = ""
    """The run that the ledger has of it; empty when it has none."""
    awaited: str = ""
    """Frameworks whose trainings were to be recorded without a change to their code; empty when none were."""


class Watcher:
    """A thread beside the command `pid`, which began at `began` (ns, CLOCK_MONOTONIC)."""

    def __init__(self, pid: int, began: int, wanted: WatchOptions) -> None:
        self.tree = ProcessTree(pid, os.getpid(), read_parentage)
        self._pid = pid
        self._began = began
        self._wanted = wanted
        self._over = Event()
        self._ended: tuple[Ended, int] = Ended(0), 0
        self._report = CommandReport()
        self._thread = Thread(target=self._run, name="gpumon-watcher", daemon=True)

    def start(self) -> None:
        """Begin to observe."""
        self._thread.start()

    def finish(self, ended: Ended, at: int) -> CommandReport:
        """The command ended at `at` (ns, CLOCK_MONOTONIC): what was seen, after `PATIENCE` at most."""
        self._ended = ended, at
        self._over.set()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            late = (
                f"sampling did not finish within {PATIENCE:.0f} s (the driver hangs or the machine is busy): "
                "the figures are incomplete"
            )
            return self._report._replace(problem=self._report.problem or late)
        return self._report

    @property
    def hangs(self) -> bool:
        """Whether it still has not come back."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._look_on()
        except Exception as error:  # the command is not ours to disturb
            self._report = self._report._replace(problem=f"sampling failed: {type(error).__name__}: {error}")

    def _look_on(self) -> None:
        from gpumon.launcher.boards import Boards
        from gpumon.launcher.epochs import CommandTrainings

        name, where, source, interval, speed, gpm, script = self._wanted
        boards, epochs = Boards(where, self._pid, self._began, self.tree.holds), CommandTrainings()
        if self._over.is_set():  # before we had begun: no sample shows it any more
            _read(boards, epochs, boards.is_its)
            self._report = CommandReport(trainings=epochs.trainings())
            return
        from gpumon.common.clock import SystemClock
        from gpumon.daemon.service import open_daemon
        from gpumon.launcher.command_run import CommandRun
        from gpumon.launcher.cost import CommandCost
        from gpumon.launcher.sampling import Sampling
        from gpumon.live import follow

        clock = SystemClock()
        sampling = Sampling(
            follow(where),
            lambda say: open_daemon(where, source, interval, speed, clock, say=say, gpm=gpm, for_command=True),
        )
        frames = sampling.frames(self._began)
        # A run's energy is known where it lies between two readings of the counter: with a sampler of our own,
        # it begins with the first.
        notice = CommandRun(name, where, script, 0 if sampling.is_own else self._began)

        def is_its_run(run: Run) -> bool:
            return run.key != notice.key and boards.is_its(run)

        cost = CommandCost(self._began, self.tree.holds, is_its_run)
        while True:
            over = self._over.is_set()
            ended, at = self._ended
            if over:
                _read(boards, epochs, is_its_run)
            wait = min(_WAIT, sampling.interval() + _LATE) if epochs else 0.0
            frames += sampling.last(at, wait) if over else sampling.frames(self._began)
            for frame in frames:
                cost.take(frame, at if over else 0)
                epochs.take(filter(is_its_run, frame.runs), frame.boundaries)
            frames = []
            _tell(notice, cost, epochs)
            self._report = _report(cost, epochs, sampling)
            if over:
                break
            self._over.wait(min(sampling.interval(), _LOOK))
        notice.end(ended, at)
        sampling.close()
        cost.finish(at)
        self._report = _report(cost, epochs, sampling)._replace(shown_as=_in_ledger(where, notice, epochs))


def _read(boards: Boards, epochs: CommandTrainings, is_its_run: Callable[[Run], bool]) -> None:
    """Add what the boards tell: of trainings too that no frame has, or not to their end."""
    told = boards.read()
    epochs.take(filter(is_its_run, told.runs), told.boundaries)


def _tell(notice: CommandRun, cost: CommandCost, epochs: CommandTrainings) -> None:
    if epochs:
        notice.withdraw()
    else:
        notice.tell_devices(cost.holding)


def _report(cost: CommandCost, epochs: CommandTrainings, sampling: Sampling) -> CommandReport:
    return CommandReport(
        uses=sorted(cost.uses.values(), key=lambda use: by_number(use.device)),
        trainings=epochs.trainings(),
        devices=cost.devices,
        hidden=not cost.uses and cost.hidden and has_own_pids(),
        problem=sampling.problem or sampling.unreadable() or _silence(len(cost.silent)),
    )


def _silence(devices: int) -> str:
    if not devices:
        return ""
    return f"the driver did not answer for {units.counted(devices, 'GPU')} for a while: the figures are incomplete"


def _in_ledger(where: Places, notice: CommandRun, epochs: CommandTrainings) -> str:
    """The run to look up: the last training, else the command itself; empty where no ledger has it."""
    from gpumon.storage.ledger.reader import Ledgers

    wanted = epochs.trainings()[-1].id if epochs else notice.id
    try:
        with Ledgers(ledger_paths(where)) as ledgers:
            return wanted if any(run.id == wanted for _, run in ledgers.candidates(wanted)) else ""
    except GpumonError:
        return ""  # no ledger, or none that we may read: then there is nothing to look up
