"""The reader of a daemon, with trainings in separate processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import gpumon
from gpumon.analysis.thresholds import RECENT
from gpumon.common.clock import SECOND
from gpumon.common.errors import BoardError
from gpumon.common.paths import Places
from gpumon.model.frame import Mark, RunState
from gpumon.tracking import wire_format
from gpumon.tracking.board import Board
from gpumon.tracking.board_reader import BoardReader, ClockReading
from gpumon.tracking.description import Description
from gpumon.tracking.stale_boards import KEEP, lock_holder, sweep
from gpumon.tracking.tag_reader import SHOWN_AFTER_END, TagReader
from gpumon.tracking.wire_format import unpack_state
from tests.fakes import FakeClock

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs Python source in a separate process with pipes."""
    children = []

    def begin(source: str, **env: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GPUMON_DIR": str(tmp_path), **env},
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def boards(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "tags").glob("tag.*"))


WAITING = """
import gpumon
with gpumon.run("net", epochs=3) as run:
    run.begin_epoch(1); run.step(5); run.log(loss=0.25)
    print("ready", flush=True); input()
    {end}
"""


def test_a_run_has_its_pid_and_user_from_the_kernel(start: Start, reader: TagReader) -> None:
    child = start(WAITING.format(end="pass"))
    hear(child)
    poll = reader.poll()
    (run,) = poll.runs
    assert (run.pid, run.name, run.epochs, run.epoch, run.step, run.phase) == (child.pid, "net", 3, 1, 5, "train")
    assert run.metrics == {"loss": 0.25}
    assert run.state == RunState.RUNNING
    assert run.user == gpumon_user()
    assert run.memory.allocated != run.memory.allocated
    assert poll.claims[run.key].pid == child.pid
    assert [b.mark for b in poll.boundaries] == [Mark.RUN_BEGIN, Mark.EPOCH_BEGIN]
    assert abs(run.epoch_started - time.time()) < 60
    assert reader.poll().boundaries == []


def gpumon_user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("pass", RunState.FINISHED),
        ("raise ValueError('x')", RunState.FAILED),
        ("raise SystemExit(0)", RunState.FINISHED),
        ("raise SystemExit(2)", RunState.FAILED),
    ],
)
def test_the_end_of_a_run_is_read(start: Start, reader: TagReader, end: str, state: RunState) -> None:
    child = start(WAITING.format(end=end), PYTHONFAULTHANDLER="0")
    hear(child)
    reader.poll()
    tell(child)
    child.wait()
    poll = reader.poll()
    assert [run.state for run in poll.runs] == [state]
    assert poll.boundaries[-1].mark == Mark.RUN_END


@pytest.mark.parametrize(
    ("end", "state"),
    [("pass", RunState.FINISHED), ("raise ValueError('x')", RunState.FAILED), ("run.finish()", RunState.FINISHED)],
)
def test_a_run_without_a_with_ends_with_the_interpreter(
    start: Start, reader: TagReader, end: str, state: RunState
) -> None:
    child = start(f"import gpumon\nrun = gpumon.run('net')\nprint(flush=True)\n{end}")
    child.wait()
    assert [run.state for run in reader.poll().runs] == [state]


def test_a_killed_training_died(start: Start, reader: TagReader) -> None:
    child = start(WAITING.format(end="pass"))
    hear(child)
    assert reader.poll().runs[0].state == RunState.RUNNING
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert reader.poll().runs[0].state == RunState.DIED


LOSING = """
import glob, os, shutil, sys
import gpumon
run = gpumon.run("net", epochs=9)
epochs = run.epochs()
next(epochs)
print("begun", flush=True)
for line in sys.stdin:
    if 'run' in globals():
        run._board._check_at = 0  # it looks once in a second
    exec(line)
    print("done", flush=True)
"""


@pytest.fixture
def losing(start: Start) -> Callable[..., None]:
    """A training that executes each line of its input."""
    child = start(LOSING)
    assert hear(child) == "begun"

    def do(line: str) -> None:
        assert child.stdin is not None
        child.stdin.write(line + "\n")
        child.stdin.flush()
        assert hear(child) == "done"

    do.child = child  # type: ignore[attr-defined]
    return do


def test_a_training_whose_descriptors_were_closed_continues(
    losing: Callable[..., None], reader: TagReader, tmp_path: Path
) -> None:
    assert reader.poll().runs[0].state is RunState.RUNNING
    losing("os.closerange(3, 64)")
    (run,) = reader.poll().runs
    assert (run.state, run.epoch) == (RunState.RUNNING, 0), "its process lives"
    losing(f"files = [open('{tmp_path}/own', 'a') for _ in range(8)]; next(epochs)")
    (board,) = tmp_path.glob("tags/tag.*")
    fd = os.open(board, os.O_RDONLY)
    assert lock_holder(fd) == losing.child.pid, "it has its lock again"  # type: ignore[attr-defined]
    os.close(fd)
    assert [one.epoch for one in reader.poll().runs] == [1]
    losing("run.finish(); del run, epochs; import gc; gc.collect()")
    losing("[print('x', end='', file=file, flush=True) for file in files]")
    assert reader.poll().runs[0].state is RunState.FINISHED
    assert (tmp_path / "own").read_text() == "x" * 8


def test_a_program_that_replaced_itself_has_ended(start: Start, reader: TagReader) -> None:
    """Pid and start time stay the same, but the run of the old program has ended."""
    code = "print('replaced', flush=True); input()"
    child = start(
        "import gpumon, os, sys\n"
        "run = gpumon.run('net', epochs=2); run.begin_epoch(0)\n"
        f"print('begun', flush=True); input(); os.execv(sys.executable, [sys.executable, '-c', {code!r}])\n"
    )
    assert hear(child) == "begun"
    assert reader.poll().runs[0].state is RunState.RUNNING
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    assert hear(child) == "replaced"
    assert reader.poll().runs[0].state is RunState.DIED


def test_a_training_whose_board_is_off_has_not_died(losing: Callable[..., None], reader: TagReader) -> None:
    losing("import warnings; warnings.simplefilter('ignore'); run._board._fail(RuntimeError('no'))")
    assert reader.poll().runs[0].state is RunState.RUNNING


def test_a_killed_training_without_descriptors_has_died(losing: Callable[..., None], reader: TagReader) -> None:
    losing("os.closerange(3, 64)")
    assert reader.poll().runs[0].state is RunState.RUNNING
    child: subprocess.Popen[str] = losing.child  # type: ignore[attr-defined]
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # nobody has waited for it: it is a zombie
    assert reader.poll().runs[0].state is RunState.DIED


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_training_whose_directory_was_removed_is_found_again(
    losing: Callable[..., None], reader: TagReader, tmp_path: Path, elsewhere: bool
) -> None:
    first = reader.poll()
    losing(f"shutil.rmtree('{tmp_path}/tags'); next(epochs)")
    second = reader.poll()
    assert [(run.key, run.state, run.epoch, run.lost_events) for run in second.runs] == [
        (first.runs[0].key, RunState.RUNNING, 1, 0)
    ]
    assert [one.number for one in (*first.boundaries, *second.boundaries)] == [1, 2, 3, 4]
    late = TagReader(Places(explicit=str(tmp_path), uid=os.getuid()))
    found = late.poll()
    assert [(run.key, run.state, run.epoch) for run in found.runs] == [(first.runs[0].key, RunState.RUNNING, 1)]
    assert [one.number for one in found.boundaries] == [1, 2, 3, 4]
    if elsewhere:  # without a directory for a while
        losing(f"shutil.rmtree('{tmp_path}/tags'); open('{tmp_path}/tags', 'w').close(); next(epochs)")
        assert reader.poll().runs[0].state is RunState.RUNNING
        losing(f"os.unlink('{tmp_path}/tags'); next(epochs)")
        assert [one.epoch for one in late.poll().runs] == [3]
    losing("run.finish()")
    assert [run.state for run in reader.poll().runs] == [run.state for run in late.poll().runs] == [RunState.FINISHED]
    late.close()


def test_a_run_has_its_start_by_the_monotonic_clock(start: Start, reader: TagReader) -> None:
    before = time.monotonic()
    child = start(WAITING.format(end="pass"))
    hear(child)
    assert before <= reader.poll().runs[0].facts.begun <= time.monotonic()


def test_a_single_poll_does_not_show_runs_that_ended_long_ago(start: Start, tmp_path: Path) -> None:
    child = start(WAITING.format(end="pass"))
    hear(child)
    tell(child)
    child.wait()
    where = Places(explicit=str(tmp_path), uid=os.getuid())
    clock = FakeClock(time.monotonic_ns(), time.time_ns())
    assert [run.state for run in TagReader(where, clock=clock, past=False).poll().runs] == [RunState.FINISHED]
    clock.advance(SHOWN_AFTER_END / SECOND + 1)
    assert TagReader(where, clock=clock, past=False).poll().runs == []
    assert len(TagReader(where, clock=clock).poll().runs) == 1, "a ledger that was not there then"


@pytest.mark.parametrize(("end", "state"), [("raise SystemExit(1)", RunState.FAILED), ("kill", RunState.DIED)])
def test_a_failed_run_is_shown_longer(start: Start, tmp_path: Path, end: str, state: RunState) -> None:
    child = start(WAITING.format(end="pass" if end == "kill" else end))
    hear(child)
    child.kill() if end == "kill" else tell(child)
    child.wait()
    where = Places(explicit=str(tmp_path), uid=os.getuid())
    clock = FakeClock(time.monotonic_ns(), time.time_ns())
    watching = TagReader(where, clock=clock)
    assert [run.state for run in watching.poll().runs] == [state]
    clock.advance(RECENT - 10)
    assert [run.state for run in watching.poll().runs] == [state], "who comes back after a while hears of it"
    new = TagReader(where, clock=clock, past=False)
    assert [run.state for run in new.poll().runs] == [state], "also from a daemon that begins then"
    clock.advance(20)
    watching.poll()
    assert watching.poll().runs == []


def test_a_finished_rank_is_shown_as_long_as_a_dead_one(start: Start, tmp_path: Path) -> None:
    for rank, end in enumerate(("pass", "import os; os._exit(0)")):
        launched = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}
        child = start(WAITING.format(end=end), **launched, MASTER_ADDR="127.0.0.1", MASTER_PORT="1234")
        hear(child)
        tell(child)
        child.wait()
    clock = FakeClock(time.monotonic_ns(), time.time_ns())
    watching = TagReader(Places(explicit=str(tmp_path), uid=os.getuid()), clock=clock)
    states = {RunState.FINISHED, RunState.DIED}
    assert {run.state for run in watching.poll().runs} == states
    clock.advance(RECENT - 10)
    watching.poll()
    assert {run.state for run in watching.poll().runs} == states
    clock.advance(20)
    for _ in range(3):
        watching.poll()
    assert watching.poll().runs == []


def test_a_script_that_keeps_failing_does_not_fill_the_list(start: Start, tmp_path: Path) -> None:
    code = "import gpumon\nfor number in range(40):\n    try:\n        with gpumon.run(f'try {number}'): 1 / 0\n"
    child = start(code + "    except ZeroDivisionError: pass")
    child.wait()
    where = Places(explicit=str(tmp_path), uid=os.getuid())
    clock = FakeClock(time.monotonic_ns(), time.time_ns())
    watching = TagReader(where, clock=clock)
    assert len(watching.poll().runs) == 40
    clock.advance(SHOWN_AFTER_END / SECOND + 1)
    watching.poll()
    assert {run.name for run in watching.poll().runs} == {f"try {number}" for number in range(24, 40)}, "the newest"


def test_a_run_that_ended_before_the_first_poll_is_read_completely(start: Start, reader: TagReader) -> None:
    child = start("import gpumon\nwith gpumon.run('net', epochs=2) as run:\n    list(run.epochs())")
    child.wait()
    poll = reader.poll()
    assert [b.mark.name for b in poll.boundaries] == [
        "RUN_BEGIN", "EPOCH_BEGIN", "EPOCH_END", "EPOCH_BEGIN", "EPOCH_END", "RUN_END",
    ]  # fmt: skip
    assert poll.runs[0].state == RunState.FINISHED


def test_a_late_reader_reads_as_many_events_as_a_board_holds(start: Start, reader: TagReader) -> None:
    pairs = (wire_format.EVENT_COUNT - 1) // 2
    child = start(
        "import gpumon\nrun = gpumon.run('net')\n"
        f"for _ in range({pairs}):\n    with run.phase('test'): pass\n"
        "last = run.epoch(0)\nlast.__enter__()\nprint('x', flush=True)\ninput()"
    )
    hear(child)
    poll = reader.poll()
    assert [b.number for b in poll.boundaries] == list(range(1, wire_format.EVENT_COUNT + 1))
    assert poll.runs[0].lost_events == 0


def test_overwritten_events_are_counted_as_lost(start: Start, reader: TagReader) -> None:
    child = start(
        "import gpumon\nrun = gpumon.run('net', epochs=400)\nrun.begin_epoch(0)\n"
        "for _ in range(400):\n    with run.phase('test'): pass\n"
        "print('x', flush=True)\ninput()"
    )
    hear(child)
    poll = reader.poll()
    assert len(poll.boundaries) == wire_format.EVENT_COUNT
    assert poll.runs[0].lost_events == 802 - wire_format.EVENT_COUNT
    assert reader.at(poll.boundaries[0].monotonic_ns - 1)[0].epoch == -1


FULL_SPEED = """
import sys, time, gpumon
run = gpumon.run("net")
board = run._board
print("ready", flush=True)
end = time.monotonic() + 3
n = 0
while time.monotonic() < end or n <= 10_000:  # a busy machine takes longer for as many
    for _ in range(500):
        n += 1
        board.wait_ns = board._epoch = n      # the three must always agree
        board.steps = n
        board.publish()
        if not n % 50:
            board._event(3)
print(n, flush=True)
"""


def test_no_torn_state_is_accepted_from_a_writer_at_full_speed(start: Start, tmp_path: Path) -> None:
    child = start(FULL_SPEED)
    hear(child)
    (path,) = boards(tmp_path)
    fd = os.open(path, os.O_RDONLY)
    reads = mixed = unreadable = 0
    highest = 0
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline or (reads <= 1_000 and child.poll() is None):
        state = unpack_state(os.pread(fd, wire_format.FRONT, 0))
        reads += 1
        if state is None:
            unreadable += 1
        elif state.step:
            mixed += not state.step == state.wait_ns == state.epoch
            # The older half may be copied just before it is replaced, and the newer one while it is: then the older
            # one, which is whole, is all there is.
            assert state.number >= highest - 1
            highest = max(highest, state.number)
    os.close(fd)
    assert int(hear(child)) > 10_000
    assert reads > 1_000
    assert mixed == 0
    # The processor may be taken from the reader in the middle of a copy, for longer than two writes.
    assert unreadable <= reads // 100


def test_nested_runs_have_boards_of_their_own(start: Start, reader: TagReader) -> None:
    child = start(
        "import gpumon\nwith gpumon.run('outer') as a, gpumon.run('inner') as b:\n    print('x', flush=True); input()"
    )
    hear(child)
    runs = sorted(reader.poll().runs, key=lambda run: run.started)
    assert [run.name for run in runs] == ["outer", "inner"]
    assert {run.pid for run in runs} == {child.pid}
    assert {run.state for run in runs} == {RunState.RUNNING}  # making the second did not let go of the first
    assert len({run.id for run in runs}) == 2


def test_a_forked_child_does_not_write_and_may_begin_its_own(start: Start, reader: TagReader) -> None:
    child = start(
        "import os, gpumon\nrun = gpumon.run('net')\nrun.step(3)\npid = os.fork()\n"
        "if pid == 0:\n    run.step(100); run.log(loss=1.0); run.finish(failed=True)\n"
        "    own = gpumon.run('own'); own.step(7); print('child', run.on, own.on, flush=True)\n"
        "    own.finish(); os._exit(0)\n"
        "os.waitpid(pid, 0); print('parent', run.on, flush=True); input()"
    )
    assert hear(child) == "child False True"
    assert hear(child) == "parent True"
    runs = {run.name: run for run in reader.poll().runs}
    assert (runs["net"].step, runs["net"].state, runs["net"].metrics) == (3, RunState.RUNNING, {})
    assert (runs["own"].step, runs["own"].state) == (7, RunState.FINISHED)


@pytest.mark.parametrize(("fails", "state"), [(False, RunState.FINISHED), (True, RunState.FAILED)])
def test_a_multiprocessing_child_ends_its_run(start: Start, reader: TagReader, fails: bool, state: RunState) -> None:
    child = start(
        "import multiprocessing, gpumon\n"
        f"def rank():\n    run = gpumon.run('net'); run.step(1)\n    if {fails}: raise ValueError\n"
        "p = multiprocessing.get_context('fork').Process(target=rank); p.start(); p.join()"
    )
    child.wait()
    assert [run.state for run in reader.poll().runs] == [state]


class Later:
    """A clock that can be advanced and set."""

    def __init__(self) -> None:
        self.at = 0
        """Time in ns at which the clock stands still; 0 while it runs."""
        self.passed = 0
        self.set_by = 0
        """Nanoseconds by which the wall clock was set."""

    def monotonic(self) -> int:
        return (self.at or time.monotonic_ns()) + self.passed

    def time(self) -> int:
        return self.monotonic() + time.time_ns() - time.monotonic_ns() + self.set_by

    def wait(self, stop: object, until: int) -> bool:
        raise NotImplementedError


@pytest.mark.parametrize("hours", [0, -1, 1])
def test_an_ended_run_is_shown_for_a_minute_and_its_board_kept_for_ten(
    start: Start, tmp_path: Path, hours: int
) -> None:
    """Also if the clock is set by some hours after the end."""
    clock = Later()
    reader = TagReader(Places(explicit=str(tmp_path), uid=os.getuid()), clock=clock)
    child = start("import gpumon\nwith gpumon.run('net'):\n    print('x', flush=True); input()")
    hear(child)
    reader.poll()
    tell(child)
    child.wait()
    poll = reader.poll()
    assert len(poll.runs) == 1
    clock.at, clock.set_by = poll.boundaries[-1].monotonic_ns, hours * 3600 * SECOND
    clock.passed = 59 * SECOND
    reader.poll()
    assert len(reader.poll().runs) == 1
    clock.passed = 62 * SECOND
    reader.poll()
    assert reader.poll().runs == []
    assert len(boards(tmp_path)) == 1
    clock.passed = KEEP + 5 * SECOND
    reader.poll()
    assert boards(tmp_path) == []


def test_a_new_training_removes_dead_boards_of_its_user_and_no_others(start: Start, tmp_path: Path) -> None:
    for pause in ("", "; input()"):
        child = start(f"import gpumon\nrun = gpumon.run('net'); print('x', flush=True){pause}")
        hear(child)
    live = child
    sweep(str(tmp_path / "tags"), os.getuid(), (), time.time_ns() + KEEP // 2)
    assert len(boards(tmp_path)) == 2
    sweep(str(tmp_path / "tags"), os.getuid(), (), time.time_ns() + KEEP + 60 * SECOND)
    (left,) = boards(tmp_path)
    assert f".{live.pid}." in left.name


def test_a_process_reads_its_own_board_without_losing_its_lock(
    reader: TagReader, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUMON_DIR", str(tmp_path))
    run = gpumon.run("own")
    assert [r.state for r in reader.poll().runs] == [RunState.RUNNING]
    reader.close()
    other = start(
        "from gpumon.common.paths import places\nfrom gpumon.tracking.tag_reader import TagReader\n"
        "print(TagReader(places()).poll().runs[0].state.name, flush=True)"
    )
    assert hear(other) == "RUNNING"
    run.finish()


class _Interrupted(FakeClock):
    """A clock whose reader is interrupted, for a second, between its two readings."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self.meanwhile = meanwhile

    def time(self) -> int:
        read = super().time()
        self.advance(1)
        self.meanwhile()
        return read


def test_an_event_written_while_the_daemon_polls_keeps_its_own_time(tmp_path: Path) -> None:
    clock = _Interrupted(lambda: None)
    directory = tmp_path / "tags"
    directory.mkdir()
    board = Board(lambda: str(directory), Description("net", "id"), clock.monotonic, lambda: clock.now)
    written = []

    def write() -> None:
        board.begin_epoch(len(written))
        written.append(clock.now)

    clock.meanwhile = write
    reader = TagReader(Places(explicit=str(tmp_path), uid=os.getuid()), clock=clock)
    found = [event for _ in range(3) for event in reader.poll().boundaries if event.mark is Mark.EPOCH_BEGIN]
    board.close()
    reader.close()
    assert len(found) > 2
    assert [event.monotonic_ns for event in found] == written[: len(found)]


def test_events_between_the_opening_of_a_board_and_its_first_poll_are_read(
    tmp_path: Path, reader: TagReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OpenedEarly(BoardReader):
        def __init__(self, *place: Any) -> None:
            super().__init__(*place)
            run.begin_epoch(0)

    monkeypatch.setattr("gpumon.tracking.tag_reader.BoardReader", OpenedEarly)
    run = gpumon.run("net", directory=str(tmp_path))
    poll = reader.poll()
    run.finish()
    assert [boundary.mark for boundary in poll.boundaries] == [Mark.RUN_BEGIN, Mark.EPOCH_BEGIN]
    assert [one.lost_events for one in poll.runs] == [0]


def test_times_of_another_time_namespace_are_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_DIR", str(tmp_path))
    run = gpumon.run("net")
    (path,) = boards(tmp_path)
    directory = os.open(path.parent, os.O_RDONLY)
    board = BoardReader(directory, path.name, "/proc")
    os.close(directory)
    here = ClockReading(100 * SECOND, 5_000 * SECOND, board.header.time_namespace)
    assert board._local_time(90 * SECOND, 4_980 * SECOND, here) == 90 * SECOND
    elsewhere = here._replace(namespace=1)
    assert board._local_time(90 * SECOND, 4_980 * SECOND, elsewhere) == 80 * SECOND
    assert board._local_time(90 * SECOND, 4_990 * SECOND, elsewhere) == 90 * SECOND
    assert board._local_time(1 << 63, 4_990 * SECOND, here) == 100 * SECOND
    run.finish()


def test_a_board_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    name = f"tag.{os.getuid()}.1.00000000"
    raw = bytearray(wire_format.pack_header(wire_format.BoardHeader(wire_format.SIZE, 1, 1, 1, 1, 1, bytes(16), 1, 1)))
    raw[8] = 2
    raw[-4:] = crc32(bytes(raw[:-4])).to_bytes(4, "little")
    (tmp_path / name).write_bytes(raw.ljust(wire_format.SIZE, b"\0"))
    directory = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BoardError, match="version 2"):
        BoardReader(directory, name, "/proc")
    os.close(directory)
