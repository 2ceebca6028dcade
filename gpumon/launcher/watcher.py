"""Looks on while a command runs, in a thread for which the command's end never waits long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import SECOND, SHORTEST
from gpumon.common.errors import AlreadyRunning, BoardError, GpumonError
from gpumon.common.paths import Places, ledger_paths, open_regular, tag_dirs
from gpumon.common.procfs import boot_id, has_own_pids
from gpumon.daemon.recorder import Recorder
from gpumon.launcher.command import Ended
from gpumon.launcher.process_tree import ProcessTree, read_parentage
from gpumon.live import Live
from gpumon.model import units
from gpumon.model.device import by_number
from gpumon.model.frame import Frame, Run
from gpumon.tracking.reader import Poll, TagReader
from gpumon.tracking.wire import FRONT, BoardHeader, unpack_header

if TYPE_CHECKING:
    from gpumon.launcher.command import CommandRun
    from gpumon.launcher.summary import CommandCost, CommandTrainings, DeviceCost, Training


class Boards:
    """The boards under `where` that are those of the command `pid`, which began at `began` (ns, CLOCK_MONOTONIC).

    `holds` says whether a pid is, or was, one of the command's processes.
    """

    def __init__(self, where: Places, pid: int, began: int, holds: Callable[[int], bool]) -> None:
        self._where = where
        self._pid = pid
        self._began = began
        self._holds = holds
        self._ended: dict[str, bool] = {}
        """By key: of trainings whose process had ended when they were first seen, whether it was the command's."""

    def read(self) -> Poll:
        """The runs of all boards here, and their boundaries from the first on that is kept."""
        reader = TagReader(self._where)
        try:
            return reader.poll()
        finally:
            reader.close()

    def is_its(self, run: Run) -> bool:
        """Whether a process of the command publishes `run`, or did. Never ask for a board of this process."""
        if run.pid:
            return self._holds(run.pid)
        if run.key not in self._ended:
            # Nobody holds the board any more whom the kernel could name: it says itself who wrote it.
            self._ended[run.key] = self._began_it(run.key)
        return self._ended[run.key]

    def _began_it(self, key: str) -> bool:
        uid, pid = map(int, key.split(".")[1:3])
        if uid not in (0, os.getuid()):
            return False  # anybody can write our pid into a board of his own
        header = self._header(key, uid)
        if header is None:
            return pid == self._pid
        return (
            (header.boot_id, header.pid_namespace) == (boot_id(), _namespace())
            and header.monotonic_ns >= self._began
            and (header.pid == self._pid or self._holds(header.parent))
        )

    def _header(self, key: str, uid: int) -> BoardHeader | None:
        for directory in tag_dirs(self._where):
            try:
                fd = open_regular(f"{directory}/{key}")
            except OSError:
                continue
            try:
                if os.fstat(fd).st_uid == uid:
                    return unpack_header(os.pread(fd, FRONT, 0))
            except (BoardError, OSError):
                continue
            finally:
                os.close(fd)
        return None


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


_AGAIN = 2.0
"""Seconds between two tries to become the sampler."""
_POLL = 0.05
"""Seconds between two looks for a frame that is about to come."""


class Sampling:
    """Follows whoever samples; `begin` opens a recorder for this process, and may raise GpumonError or OSError.

    It is given a function that it tells what goes wrong later.
    """

    def __init__(
        self, live: Live, begin: Callable[[Callable[[str], None]], Recorder], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.problem = ""
        """Why there is no sampler, in one line; empty when there is one."""
        self._live = live
        self._begin = begin
        self._now = now
        self._try_at = 0.0
        self._seen = 0
        self._stop = Event()
        self._recorder: Recorder | None = None
        self._thread: Thread | None = None

    def frames(self, since: int) -> list[Frame]:
        """Return new frames, oldest first; at first from the last one before `since` (ns, CLOCK_MONOTONIC) on."""
        if self._thread is not None and not self._thread.is_alive():
            self._close()  # it failed, or another one took the directory over
        if self._recorder is None and not self._live.is_alive():
            self._become_sampler()
        if not self._seen:
            newest = self._live.latest() if self._live.is_alive() else None
            if newest is None:
                return []
            before = max(0, newest.monotonic_ns - since) / SECOND / max(newest.interval, SHORTEST)
            self._seen = max(0, newest.number - int(before) - 2)
        return self._new()

    @property
    def is_own(self) -> bool:
        """Whether this process samples, and no other."""
        return self._recorder is not None

    def interval(self) -> float:
        """Seconds between frames."""
        return self._live.interval()

    def unreadable(self) -> str:
        """Why no GPU can be read; empty when all is well."""
        return self._live.origin().problem

    def last(self, ended: int, wait: float) -> list[Frame]:
        """The last frames: with one more sample of ours; another sampler gets `wait` seconds for one past `ended`."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._sample_once()
        found = self._new() if self._seen else []
        until = self._now() + wait
        while self._recorder is None and not (found and found[-1].monotonic_ns >= ended) and self._now() < until:
            time.sleep(_POLL)
            found += self._new()
        return found

    def close(self) -> None:
        """End a sampler of our own, after one more sample for what was published since the last."""
        self._sample_once()
        self._close()

    def _new(self) -> list[Frame]:
        new = self._live.since(self._seen)
        if new:
            self._seen = new[-1].number
        return new

    def _become_sampler(self) -> None:
        if self._now() < self._try_at:
            return
        self._try_at = self._now() + _AGAIN
        try:
            self._recorder = self._begin(self._note)
        except AlreadyRunning:
            return  # it has no frame yet, or its last was long ago: one of both changes soon
        except (GpumonError, OSError) as error:
            self.problem = str(error)
            return
        self.problem = ""
        # A daemon thread: a driver call that hangs must not keep the process from ending.
        self._thread = Thread(target=self._sample, args=(self._recorder,), name="gpumon-sampler", daemon=True)
        self._thread.start()

    def _note(self, problem: str) -> None:
        self.problem = problem

    def _sample(self, recorder: Recorder) -> None:
        try:
            recorder.sampler.run(recorder.store, self._stop, recorder.heartbeat)
        except Exception as error:  # the command continues without it
            self.problem = f"sampling ended: {error}"

    def _sample_once(self) -> None:
        if self._recorder is not None:
            try:
                self._recorder.sample_once()
            except Exception as error:
                self.problem = f"sampling ended: {error}"

    def _close(self) -> None:
        recorder, self._recorder, self._thread = self._recorder, None, None
        if recorder is not None:
            try:
                recorder.close()
            except Exception as error:  # what was seen is worth telling all the same
                self.problem = f"sampling ended: {error}"


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
        from gpumon.launcher.summary import CommandTrainings

        name, where, source, interval, speed, gpm, script = self._wanted
        boards, epochs = Boards(where, self._pid, self._began, self.tree.holds), CommandTrainings()
        if self._over.is_set():  # before we had begun: no sample shows it any more
            _read(boards, epochs, boards.is_its)
            self._report = CommandReport(trainings=epochs.trainings())
            return
        from gpumon.common.clock import SystemClock
        from gpumon.daemon.service import open_daemon
        from gpumon.launcher.command import CommandRun
        from gpumon.launcher.summary import CommandCost
        from gpumon.live import follow

        clock = SystemClock()
        sampling = Sampling(
            follow(where),
            lambda log: open_daemon(where, source, interval, speed, clock, log=log, gpm=gpm, for_command=True),
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
