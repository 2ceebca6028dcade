"""Observes a command in a separate thread. After the command has ended, this delays the exit by at most `PATIENCE`
seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TYPE_CHECKING

from gpumon.common.clock import SECOND, SHORTEST
from gpumon.common.errors import AlreadyRunning, BoardError, GpumonError
from gpumon.common.paths import Places, ledger_paths, open_regular, tag_dirs
from gpumon.common.procfs import boot_id, has_own_pids
from gpumon.daemon.recorder import Recorder
from gpumon.launcher.child_process import ExitStatus
from gpumon.launcher.process_tree import ProcessTree
from gpumon.live import Live
from gpumon.model import units
from gpumon.model.device import by_number
from gpumon.model.frame import Frame, Run
from gpumon.tracking.tag_reader import Poll, TagReader
from gpumon.tracking.wire_format import FRONT, BoardHeader, unpack_header

if TYPE_CHECKING:
    from gpumon.launcher.child_process import CommandRun
    from gpumon.launcher.summary import CommandCost, CommandTrainings, DeviceCost, Training


class CommandBoards:
    """Finds the boards of the command whose process is `pid`.

    `began`: time at which the command started (ns, CLOCK_MONOTONIC). `is_member`: function that returns whether a pid
    is or was one of the command's processes.
    """

    def __init__(self, places: Places, pid: int, began: int, is_member: Callable[[int], bool]) -> None:
        self._places = places
        self._pid = pid
        self._began = began
        self._is_member = is_member
        self._ended: dict[str, bool] = {}
        """By key of a training: whether it belongs to the command. Only for trainings whose process had already ended
        when they were first seen."""

    def read(self) -> Poll:
        """Return the runs of all boards, with all boundaries that are still stored."""
        reader = TagReader(self._places)
        try:
            return reader.poll()
        finally:
            reader.close()

    def is_own(self, run: Run) -> bool:
        """Return whether a process of the command publishes or published this run.

        Must not be called for boards of this process.
        """
        if run.pid:
            return self._is_member(run.pid)
        if run.key not in self._ended:
            # The kernel reports no lock holder any more, so only the board itself shows which process wrote it.
            self._ended[run.key] = self._was_own(run.key)
        return self._ended[run.key]

    def _was_own(self, key: str) -> bool:
        uid, pid = map(int, key.split(".")[1:3])
        if uid not in (0, os.getuid()):
            return False  # other users can write our pid into their boards
        header = self._header(key, uid)
        if header is None:
            return pid == self._pid
        return (
            (header.boot_id, header.pid_namespace) == (boot_id(), _namespace())
            and header.monotonic_ns >= self._began
            and (header.pid == self._pid or self._is_member(header.parent))
        )

    def _header(self, key: str, uid: int) -> BoardHeader | None:
        for directory in tag_dirs(self._places):
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


_RETRY_EVERY = 2.0
"""Seconds between two attempts to become the sampler."""
_POLL_EVERY = 0.05
"""Seconds between two checks for a frame that is expected soon."""


class Sampling:
    """Returns the frames of a daemon or another process that samples.

    If there is no such process, this process samples.

    `open_recorder`: function that opens a recorder in this process. It may raise GpumonError or OSError. Its argument
    is a function that the recorder calls with one line of text for each later problem.
    """

    def __init__(
        self,
        live: Live,
        open_recorder: Callable[[Callable[[str], None]], Recorder],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = ""
        """Why there is no sampler, in one line; empty if there is one."""
        self._live = live
        self._open_recorder = open_recorder
        self._now = now
        self._try_at = 0.0
        self._last_frame = 0
        self._stop = Event()
        self._recorder: Recorder | None = None
        self._thread: Thread | None = None

    def frames(self, since: int) -> list[Frame]:
        """Return the new frames, oldest first.

        The first call begins with the last frame before `since` (ns, CLOCK_MONOTONIC).
        """
        if self._thread is not None and not self._thread.is_alive():
            self._close()  # our sampler failed, or another process took over
        if self._recorder is None and not self._live.is_alive():
            self._become_sampler()
        if not self._last_frame:
            newest = self._live.latest() if self._live.is_alive() else None
            if newest is None:
                return []
            count = max(0, newest.monotonic_ns - since) / SECOND / max(newest.interval, SHORTEST)
            self._last_frame = max(0, newest.number - int(count) - 2)
        return self._new()

    @property
    def is_own(self) -> bool:
        """Whether this process samples."""
        return self._recorder is not None

    def interval(self) -> float:
        """Seconds between frames."""
        return self._live.interval()

    def unreadable(self) -> str:
        """Why no GPU can be read; empty if at least one can be read."""
        return self._live.origin().problem

    def last(self, ended: int, wait: float) -> list[Frame]:
        """Return the last frames after the command ended at `ended` (ns, CLOCK_MONOTONIC).

        If this process samples, take one more sample. Otherwise, wait up to `wait` seconds for a frame of the other
        process.
        """
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._sample_once()
        frames = self._new() if self._last_frame else []
        until = self._now() + wait
        while self._recorder is None and not (frames and frames[-1].monotonic_ns >= ended) and self._now() < until:
            time.sleep(_POLL_EVERY)
            frames += self._new()
        return frames

    def close(self) -> None:
        """If this process samples, take one more sample, which includes the latest events, and stop sampling."""
        self._sample_once()
        self._close()

    def _new(self) -> list[Frame]:
        frames = self._live.since(self._last_frame)
        if frames:
            self._last_frame = frames[-1].number
        return frames

    def _become_sampler(self) -> None:
        if self._now() < self._try_at:
            return
        self._try_at = self._now() + _RETRY_EVERY
        try:
            self._recorder = self._open_recorder(self._set_problem)
        except AlreadyRunning:
            return  # another process has no current frame yet, or is about to end
        except (GpumonError, OSError) as error:
            self.problem = str(error)
            return
        self.problem = ""
        # A daemon thread, because a driver call that hangs must not keep the process from ending.
        self._thread = Thread(target=self._sample, args=(self._recorder,), name="gpumon-sampler", daemon=True)
        self._thread.start()

    def _set_problem(self, problem: str) -> None:
        self.problem = problem

    def _sample(self, recorder: Recorder) -> None:
        try:
            recorder.sampler.run(recorder.store, self._stop, recorder.heartbeat)
        except Exception as error:  # the command continues without sampling
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
            except Exception as error:  # the frames so far are still reported
                self.problem = f"sampling ended: {error}"


PATIENCE = 2.0
"""At the end of a command, this thread is waited for at most this many seconds."""
_MAX_INTERVAL = 1.0
"""Maximum seconds between two checks for frames."""
_LATE = 0.2
"""A frame may be late by this many seconds."""
_MAX_WAIT = 1.2
"""Maximum seconds to wait for a last frame that includes the end of a training."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of `gpumon run` that concern sampling."""

    name: str
    places: Places
    source: str
    interval: float
    speed: float
    gpm: bool = True
    """Whether to read the GPUs' performance counters if this process samples."""
    script: str = ""
    """Path of the script that the command runs. The git commit of the script is stored with the run."""


@dataclass(frozen=True, slots=True)
class CommandReport:
    """Result of observing a command."""

    uses: Sequence[DeviceCost] = ()
    trainings: Sequence[Training] = ()
    devices: int = 0
    """Number of GPUs that were sampled."""
    hidden: bool = False
    """Whether the command may have used devices without being seen on them."""
    problem: str = ""
    """Reason why the report is incomplete; empty if it is complete."""
    shown_as: str = ""
    """Id of the run in the ledger; empty if the run is not in the ledger."""
    awaited: str = ""
    """Names of the frameworks whose trainings `--auto` records; empty without `--auto`."""


class Watcher:
    """A thread that observes the command with process `pid`, started at `began` (ns, CLOCK_MONOTONIC)."""

    def __init__(self, pid: int, began: int, options: WatchOptions) -> None:
        self.tree = ProcessTree(pid, os.getpid())
        self._pid = pid
        self._began = began
        self._options = options
        self._over = Event()
        self._ended: tuple[ExitStatus, int] = ExitStatus(0), 0
        self._report = CommandReport()
        self._thread = Thread(target=self._run, name="gpumon-watcher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, status: ExitStatus, at: int) -> CommandReport:
        """Return the report on the command, which ended at `at` (ns, CLOCK_MONOTONIC).

        Waits at most `PATIENCE` seconds.
        """
        self._ended = status, at
        self._over.set()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            late = (
                f"sampling did not finish within {PATIENCE:.0f} s (the driver hangs or the machine is busy): "
                "the figures are incomplete"
            )
            return replace(self._report, problem=self._report.problem or late)
        return self._report

    @property
    def hangs(self) -> bool:
        """Whether the thread is still running."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._observe()
        except Exception as error:  # must not disturb the command
            self._report = replace(self._report, problem=f"sampling failed: {type(error).__name__}: {error}")

    def _observe(self) -> None:
        from gpumon.launcher.summary import CommandTrainings

        options, places = self._options, self._options.places
        boards = CommandBoards(places, self._pid, self._began, self.tree.has_member)
        trainings = CommandTrainings()
        if self._over.is_set():  # the command ended before any sample could show it
            _read(boards, trainings, boards.is_own)
            self._report = CommandReport(trainings=trainings.trainings())
            return
        from gpumon.common.clock import SystemClock
        from gpumon.daemon.service import open_daemon
        from gpumon.launcher.child_process import CommandRun
        from gpumon.launcher.summary import CommandCost
        from gpumon.live import follow

        clock = SystemClock()
        sampling = Sampling(
            follow(places),
            lambda log: open_daemon(
                places, options.source, options.interval, options.speed, clock, log=log, gpm=options.gpm,
                for_command=True,
            ),
        )  # fmt: skip
        frames = sampling.frames(self._began)
        # The energy of a run is the difference of two counter readings. If this process samples, the run therefore
        # starts at the first reading.
        command_run = CommandRun(options.name, places, options.script, 0 if sampling.is_own else self._began)

        def is_own_run(run: Run) -> bool:
            return run.key != command_run.key and boards.is_own(run)

        cost = CommandCost(self._began, self.tree.has_member, is_own_run)
        while True:
            is_over = self._over.is_set()
            status, at = self._ended
            if is_over:
                _read(boards, trainings, is_own_run)
            wait = min(_MAX_WAIT, sampling.interval() + _LATE) if trainings else 0.0
            frames += sampling.last(at, wait) if is_over else sampling.frames(self._began)
            for frame in frames:
                cost.add(frame, at if is_over else 0)
                trainings.update(filter(is_own_run, frame.runs), frame.boundaries)
            frames = []
            _publish(command_run, cost, trainings)
            self._report = _report(cost, trainings, sampling)
            if is_over:
                break
            self._over.wait(min(sampling.interval(), _MAX_INTERVAL))
        command_run.end(status, at)
        sampling.close()
        cost.finish(at)
        self._report = replace(
            _report(cost, trainings, sampling), shown_as=_run_in_ledger(places, command_run, trainings)
        )


def _read(boards: CommandBoards, trainings: CommandTrainings, is_own_run: Callable[[Run], bool]) -> None:
    """Update the trainings from the boards. Frames may lack a training or the end of a training."""
    poll = boards.read()
    trainings.update(filter(is_own_run, poll.runs), poll.boundaries)


def _publish(command_run: CommandRun, cost: CommandCost, trainings: CommandTrainings) -> None:
    if trainings:
        command_run.withdraw()
    else:
        command_run.add_devices(cost.devices_in_use)


def _report(cost: CommandCost, trainings: CommandTrainings, sampling: Sampling) -> CommandReport:
    return CommandReport(
        uses=sorted(cost.uses.values(), key=lambda use: by_number(use.device)),
        trainings=trainings.trainings(),
        devices=cost.devices,
        hidden=not cost.uses and cost.hidden and has_own_pids(),
        problem=sampling.problem or sampling.unreadable() or _stale_problem(len(cost.stale)),
    )


def _stale_problem(devices: int) -> str:
    if not devices:
        return ""
    return f"the driver did not answer for {units.counted(devices, 'GPU')} for a while: the figures are incomplete"


def _run_in_ledger(places: Places, command_run: CommandRun, trainings: CommandTrainings) -> str:
    """Return the id of the last training, or of the command if there was no training. Empty if no ledger has the id."""
    from gpumon.storage.ledger.reader import Ledgers

    id = trainings.trainings()[-1].id if trainings else command_run.id
    try:
        with Ledgers(ledger_paths(places)) as ledgers:
            return id if any(run.id == id for _, run in ledgers.candidates(id)) else ""
    except GpumonError:
        return ""  # there is no ledger, or we may not read it
