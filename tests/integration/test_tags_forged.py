"""Forged boards never make the reader raise, wait, or report wrong facts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumon
from gpumon.common.paths import Places, make_tag_dir
from gpumon.model.device import Device
from gpumon.model.frame import Mark, Run
from gpumon.model.process import Process
from gpumon.tracking import wire_format
from gpumon.tracking.board_directory import BURST, BYTES, EVENTS, BudgetOwners, is_of_its_user
from gpumon.tracking.matching import match_devices
from gpumon.tracking.tag_reader import BOARDS_PER_USER, TagReader
from gpumon.tracking.wire_format import text_versions, unpack_state
from tests.fakes import FakeClock
from tests.fuzzing import examples
from tests.programs import PATIENCE

UID = os.getuid()


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a board that uses all parts of the layout."""
    directory = tmp_path_factory.mktemp("valid")
    with gpumon.run("net", epochs=3, directory=str(directory)) as run:
        for _ in run.epochs():
            with run.phase("validate"):
                run.log(loss=0.5)
    (path,) = (directory / "tags").iterdir()
    return path.read_bytes()


@pytest.fixture
def tags(tmp_path: Path) -> Path:
    (tmp_path / "tags").mkdir()
    return tmp_path / "tags"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[TagReader]:
    found = TagReader(Places(explicit=str(tmp_path), uid=UID))
    yield found
    found.close()


def plant(tags: Path, raw: bytes, number: int = 0, uid: int = UID) -> Path:
    path = tags / f"tag.{uid}.1.{number:08x}"
    path.write_bytes(raw)
    path.chmod(0o644)
    return path


def test_the_board_itself_is_good(tags: Path, reader: TagReader, valid: bytes) -> None:
    plant(tags, valid)
    assert [run.name for run in reader.poll().runs] == ["net"]


@pytest.mark.parametrize(
    "kind", ["symlink", "fifo", "directory", "sparse", "uid", "hardlink", "writable", "short", "text"]
)
def test_files_that_are_not_boards_of_their_owner_are_ignored(
    tags: Path, reader: TagReader, valid: bytes, tmp_path: Path, kind: str
) -> None:
    path = tags / f"tag.{UID}.1.00000000"
    if kind == "symlink":
        target = tmp_path / "elsewhere"
        target.write_bytes(valid)
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "sparse":
        plant(tags, valid)
        os.truncate(path, 1 << 40)
    elif kind == "uid":
        plant(tags, valid, uid=UID + 1)
    elif kind == "hardlink":
        os.link(plant(tags, valid), tmp_path / "second")
    elif kind == "writable":
        plant(tags, valid).chmod(0o666)
    elif kind == "short":
        plant(tags, valid[:1000])
    elif kind == "text":
        plant(tags, b"hello " * 8192)
    runs: list[list[Run]] = []
    used: list[float] = []

    def poll() -> None:
        began = time.thread_time()
        runs.append(reader.poll().runs)
        used.append(time.thread_time() - began)

    thread = Thread(target=poll, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert runs == [[]], "it waits for no pipe"
    assert used[0] < 1, "s of its own time; a terabyte takes more"


def test_an_unfinished_board_is_found_later(tags: Path, reader: TagReader, valid: bytes) -> None:
    path = plant(tags, b"")
    assert reader.poll().runs == []
    path.write_bytes(valid)
    time.sleep(1.05)
    assert len(reader.poll().runs) == 1


def test_a_board_cut_short_under_the_reader_does_no_harm(tags: Path, reader: TagReader, valid: bytes) -> None:
    path = plant(tags, valid)
    reader.poll()
    for size in (20000, 900, 300, 10, 0):
        os.truncate(path, size)
        reader.poll()


def test_the_boards_of_a_user_are_limited_and_the_rest_counted(tags: Path, reader: TagReader, valid: bytes) -> None:
    for number in range(BOARDS_PER_USER + 10):
        plant(tags, valid, number)
    poll = reader.poll()
    assert (len(poll.runs), poll.unread) == (BOARDS_PER_USER, 10)


@pytest.mark.skipif(UID != 0, reason="only root can be two users")
def test_subordinate_uids_share_the_budget_of_their_user(
    tags: Path, reader: TagReader, valid: bytes, tmp_path: Path
) -> None:
    (tmp_path / "subuid").write_text("nobody-of-this-machine:100000:65536\n4321:200000:65536\nbroken\n")
    reader._owners = BudgetOwners(str(tmp_path / "subuid"))
    assert [reader._owners.of(uid) for uid in (4321, 199_999, 200_000, 265_535, 265_536)] == [
        4321, 199_999, 4321, 4321, 265_536,
    ]  # fmt: skip
    for number in range(BOARDS_PER_USER + 10):
        uid = 200_000 + number
        os.chown(plant(tags, valid, number, uid=uid), uid, uid)
    plant(tags, valid, 0xFFFFFFFF)
    poll = reader.poll()
    assert (len(poll.runs), poll.unread) == (1, 10), "those of the other user are opened, and held by none of his"


@pytest.mark.skipif(UID != 0, reason="only root can be two users")
def test_boards_named_after_another_user_hide_no_board(tags: Path, reader: TagReader, valid: bytes) -> None:
    """More files than are remembered, listed and opened at once. They are empty, like unfinished boards."""
    for number in range(9_000):
        path = tags / f"tag.{UID}.{number}.{number:08x}"
        path.touch()
        os.chown(path, 4321, 4321)
    plant(tags, valid, 0xFFFFFFFF)
    polls = [reader.poll() for _ in range(4)]
    assert [run.name for run in polls[-1].runs] == ["net"]
    assert {poll.unread for poll in polls} == {0}, "what is a stranger's is not missing"


@pytest.mark.skipif(UID != 0, reason="only root can be two users")
def test_many_files_of_a_user_hide_no_boards_of_others(tags: Path, reader: TagReader, valid: bytes) -> None:
    for number in range(1_000):
        os.chown(plant(tags, b"", number, uid=4321), 4321, 4321)
    for number in range(300):
        plant(tags, valid, number)
    assert len(reader.poll().runs) == BOARDS_PER_USER


@pytest.mark.skipif(UID != 0, reason="only root can be two users")
def test_invalid_files_of_a_user_are_limited_per_poll(
    tags: Path, reader: TagReader, valid: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2_000):
        os.chown(plant(tags, b"", number, uid=4321), 4321, 4321)
    plant(tags, valid, 0xFFFFFFFF)
    looked: list[str] = []

    def is_his(entry: os.DirEntry[str], uid: int) -> bool:
        looked.append(entry.name)
        return is_of_its_user(entry, uid)

    monkeypatch.setattr("gpumon.tracking.tag_reader.is_of_its_user", is_his)
    assert [run.name for run in reader.poll().runs] == ["net"]
    assert len(looked) <= 50


def test_boards_of_ended_runs_give_way_to_new_ones(tags: Path, reader: TagReader, valid: bytes) -> None:
    for number in range(BOARDS_PER_USER):
        plant(tags, valid, number)
    assert len(reader.poll().boundaries) > BOARDS_PER_USER
    plant(tags, valid, BOARDS_PER_USER)
    told = [reader.poll() for _ in range(2)]
    assert [(len(poll.runs), poll.unread) for poll in told] == [(BOARDS_PER_USER, 1), (BOARDS_PER_USER, 0)]
    newest = f"tag.{UID}.1.{BOARDS_PER_USER:08x}"
    assert [run.key for run in told[1].runs][-1] == newest
    assert {boundary.run for boundary in told[1].boundaries} == {newest}


def resealed(
    raw: bytes,
    *,
    state: dict[str, int] | None = None,
    text: bytes | None = None,
    memory: list[wire_format.Memory] | None = None,
    event: wire_format.Event | None = None,
) -> bytes:
    """Return `raw` with forged fields and correct CRCs."""
    out = bytearray(raw)
    if state is not None:
        found = unpack_state(raw)
        assert found is not None
        found = found._replace(number=found.number + 1, **state)  # type: ignore[arg-type]
        head = wire_format.pack_head(*found[:9])
        record = wire_format.pack_state(head, wire_format.pack_tail(list(found.metrics)))
        offset = wire_format.STATES[found.number & 1]
        out[offset : offset + len(record)] = record
    if text is not None:
        version = text_versions(raw)[0][0] + 1
        offset, header = wire_format.TEXTS[version & 1], wire_format.DESCRIPTIONS[version & 1]
        out[offset : offset + len(text)] = text
        out[header : header + 16] = wire_format.pack_text_header(version, text)
    if memory is not None:
        record = wire_format.pack_memory(2**64 - 1, 2**64 - 1, memory)
        out[wire_format.MEMORY[1] : wire_format.MEMORY[1] + len(record)] = record
    if event is not None:
        offset = wire_format.event_offset(event.number)
        record = wire_format.pack_event(event)
        out[offset : offset + len(record)] = record
        offset = wire_format.supplement_offset(event.number)
        out[offset : offset + wire_format.SUPPLEMENT_SIZE] = wire_format.pack_supplement(event)
        out[wire_format.EVENT_HEAD : wire_format.EVENT_HEAD + 8] = event.number.to_bytes(8, "little")
    return bytes(out)


def sane(run: Run) -> None:
    assert -(2**31) <= run.epoch < 2**31
    assert 0 <= run.epochs < 2**31
    assert 0 <= run.step < 2**63
    assert len(run.name) <= 256
    assert run.name.isprintable()
    assert run.phase.isprintable()
    assert 0 <= run.lost_events < 2**31
    assert len(run.metrics) <= 8


@pytest.mark.parametrize(
    "state",
    [
        {"epoch": 2**31 - 1, "step": 2**63 - 1, "wait_ns": 2**64 - 1, "time_ns": 2**64 - 1, "monotonic_ns": 2**64 - 1},
        {"epoch": -(2**31), "step": -(2**63), "time_ns": 0, "monotonic_ns": 2**64 - 1, "epoch_monotonic_ns": 1},
        {"phase": 65535, "flags": 65535},
    ],
)
def test_extreme_numbers_with_a_right_crc_stay_in_range(
    tags: Path, reader: TagReader, valid: bytes, state: dict[str, int]
) -> None:
    plant(tags, resealed(valid, state=state))
    (run,) = reader.poll().runs
    sane(run)
    reader.at(time.monotonic_ns())


def test_impossible_amounts_of_memory_are_read(tags: Path, reader: TagReader, valid: bytes) -> None:
    most = wire_format.Memory(2**32 - 1, 2**32 - 1, *[2**64 - 2] * 9)
    plant(tags, resealed(valid, memory=[most] * wire_format.MAX_MEMORY))
    (run,) = reader.poll().runs
    sane(run)
    assert set(run.memory) == {float((2**64 - 2) * wire_format.MAX_MEMORY)}


def test_an_event_of_extreme_numbers_is_a_boundary(tags: Path, reader: TagReader, valid: bytes) -> None:
    last = reader_events(valid)
    event = wire_format.Event(
        wire_format.OUT_OF_MEMORY, 65535, last + 1, 2**64 - 1, 2**64 - 1, -(2**63), 2**64 - 1, -(2**31), 2**32 - 1,
        2**64 - 2, wire_format.NOT_KNOWN, (float("inf"), float("-inf"), *[float("nan")] * 6),
    )  # fmt: skip
    plant(tags, resealed(valid, event=event))
    found = reader.poll().boundaries[-1]
    assert (found.number, found.mark, found.step, found.phase) == (last + 1, Mark.OUT_OF_MEMORY, 0, "")
    assert found.asked == 2.0**64
    assert found.free != found.free, "not told"
    assert 0 <= found.monotonic_ns < 2**63
    assert 0 <= found.time_ns < 2**63


def reader_events(raw: bytes) -> int:
    """Return the number of the newest event in a board."""
    return int.from_bytes(raw[wire_format.EVENT_HEAD : wire_format.EVENT_HEAD + 8], "little")


@pytest.mark.parametrize(
    "said",
    [
        {"name": "\x1b]0;x\x07\u202e" * 50, "phases": {"a": 1}, "metrics": "loss"},
        {"name": None, "epochs": 1e400, "rank": "0", "devices": [None, 1, "GPU-" + "a" * 500]},
        {"name": ["x"], "epochs": 2**31, "world_size": True, "phases": [1] * 1000},
    ],
)
def test_description_fields_of_wrong_types_are_ignored(
    tags: Path, reader: TagReader, valid: bytes, said: dict[str, object]
) -> None:
    plant(tags, resealed(valid, text=json.dumps(said).encode()))
    (run,) = reader.poll().runs
    sane(run)


def test_an_invalid_description_excludes_the_board(tags: Path, reader: TagReader, valid: bytes) -> None:
    plant(tags, resealed(valid, text=b"[" * 7000))
    assert reader.poll().runs == []


def test_a_head_without_events_loses_no_events(tags: Path, reader: TagReader, valid: bytes) -> None:
    out = bytearray(valid)
    out[wire_format.EVENT_HEAD : wire_format.EVENT_HEAD + 8] = (1 << 62).to_bytes(8, "little")
    path = plant(tags, bytes(out))
    poll = reader.poll()
    assert poll.boundaries == []
    assert poll.runs[0].lost_events == 0
    path.write_bytes(valid)
    assert len(reader.poll().boundaries) > 5


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.tuples(st.integers(0, wire_format.SIZE - 1), st.binary(min_size=1, max_size=64)), min_size=1, max_size=8
    ),
    st.booleans(),
)
def test_random_bytes_anywhere_never_make_poll_raise(
    tmp_path: Path, valid: bytes, changes: list[tuple[int, bytes]], front: bool
) -> None:
    shutil.rmtree(tmp_path / "tags", ignore_errors=True)
    (tmp_path / "tags").mkdir()
    reader = TagReader(Places(explicit=str(tmp_path), uid=UID))
    path = plant(tmp_path / "tags", valid)
    reader.poll()
    out = bytearray(valid)
    for offset, raw in changes:
        at = offset % wire_format.FRONT if front else offset
        out[at : at + len(raw)] = raw
    path.write_bytes(out[: wire_format.SIZE])
    for run in reader.poll().runs:
        sane(run)
    fresh = TagReader(Places(explicit=str(tmp_path), uid=UID))
    for run in fresh.poll().runs:
        sane(run)
    fresh.at(time.monotonic_ns())
    reader.close()
    fresh.close()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A live directory like that of a daemon for the whole machine."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        make_tag_dir(directory, everyone=True)
        yield Path(directory)


STRANGER = """
import fcntl, os, sys
import gpumon
gpumon.run  # loaded while its files can still be read
os.setgid(65534); os.setuid(65534)
run = gpumon.run("mine", devices="GPU-victim", run_id="taken", directory=sys.argv[1])
print(run.on, os.getpid(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(UID != 0, reason="only root can be two users")
def test_a_board_cannot_claim_a_gpu_of_another_user(shared: Path) -> None:
    reader = TagReader(Places(explicit=str(shared), uid=UID))
    with beside(STRANGER, shared) as child:
        on, pid = hear(child).split()
        assert on == "True"
        poll = reader.poll()
        (run,) = poll.runs
        claim = poll.claims[run.key]
        assert (run.pid, claim.uid) == (int(pid), 65534)
        device = Device("GPU-victim", 0, "H200")
        refused = match_devices(claim, [device], [Process(1, "GPU-victim", "compute", "train", "somebody-else")])
        assert refused.devices == ()
        assert refused.refused
    reader.close()


@pytest.mark.skipif(UID != 0, reason="only root can be two users")
def test_a_run_with_the_id_of_another_user_is_not_a_rank(shared: Path) -> None:
    reader = TagReader(Places(explicit=str(shared), uid=UID))
    with gpumon.run("net", run_id="taken", directory=str(shared)), beside(STRANGER, shared) as child:
        assert hear(child).split()[0] == "True"
        found = reader.poll().runs
        assert sorted((run.id, run.user) for run in found) == [("taken", "root"), ("taken~65534", "nobody")]
        assert reader.at(time.monotonic_ns()) == found
    reader.close()


HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(UID != 0, reason="only root can be two users")
def test_a_board_held_by_another_users_process_is_refused(tags: Path, reader: TagReader, valid: bytes) -> None:
    path = plant(tags, valid, uid=65534)
    os.chown(path, 65534, 65534)
    with beside(HOLDER, path) as child:
        assert hear(child) == "held"
        assert reader.poll().runs == []


def beside(source: str, argument: Path) -> subprocess.Popen[str]:
    """A child process that ends when its input is closed at the end of the `with`."""
    return subprocess.Popen(
        [sys.executable, "-c", source, str(argument)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def write_events(path: Path, numbers: range, text: bytes = b"") -> None:
    """Give a planted board this number of events, and a description with this version."""
    with path.open("r+b") as board:
        for number in numbers:
            mark = wire_format.EPOCH_BEGIN if number % 2 else wire_format.EPOCH_END
            event = wire_format.Event(
                mark, 0, number, number, number, 0, 0, number // 2, 0, 0, wire_format.NOT_KNOWN,
                wire_format.NOTHING_LOGGED,
            )  # fmt: skip
            board.seek(wire_format.event_offset(number))
            board.write(wire_format.pack_event(event))
            board.seek(wire_format.supplement_offset(number))
            board.write(wire_format.pack_supplement(event))
        board.seek(wire_format.EVENT_HEAD)
        board.write(numbers[-1].to_bytes(8, "little"))
        if text:
            version = numbers[-1]
            board.seek(wire_format.TEXTS[version % 2])
            board.write(text)
            board.seek(wire_format.DESCRIPTIONS[version % 2])
            board.write(wire_format.pack_text_header(version, text))


class TestBudgetOfAUser:
    """The cost of one user's boards in a poll is limited, and other users do not pay for it."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def reader(self, tmp_path: Path, clock: FakeClock) -> Iterator[TagReader]:
        found = TagReader(Places(explicit=str(tmp_path), uid=UID), clock=clock)
        yield found
        found.close()

    def test_leaves_events_for_later_that_a_new_description_names(self, tmp_path: Path, reader: TagReader) -> None:
        with gpumon.run("net", directory=str(tmp_path)) as run:
            run.begin_epoch(0)
            reader.poll()
            reader._budgets[UID].bytes = 0
            run.log(loss=0.5)
            run.begin_phase("mine")
            run.end_epoch()
            starved = reader.poll()
            reader._budgets[UID].bytes = 1
            later = reader.poll()
        assert (starved.boundaries, starved.runs[0].lost_events) == ([], 0)
        assert [(found.phase, found.metrics) for found in later.boundaries] == [("mine", {"loss": 0.5})] * 2

    def test_reads_all_of_a_run_that_is_over(self, tmp_path: Path, reader: TagReader) -> None:
        with gpumon.run("net", directory=str(tmp_path)) as run:
            run.begin_epoch(0)
            reader.poll()
            reader._budgets[UID].bytes = 0
            run.log(loss=0.5)
            run.config(lr=0.1)
        poll = reader.poll()
        assert poll.boundaries[-1].metrics == {"loss": 0.5}
        assert [about.config for about in poll.about.values()] == [{"lr": 0.1}]

    @pytest.mark.skipif(UID != 0, reason="only root can be two users")
    def test_leaves_the_events_of_others_whole(
        self, tags: Path, reader: TagReader, valid: bytes, clock: FakeClock
    ) -> None:
        fresh = reader_events(valid) + 1
        hostile = [plant(tags, valid, number, uid=4321) for number in range(100)]
        for path in hostile:
            os.chown(path, 4321, 4321)
        honest = plant(tags, valid)
        own: list[int] = []
        read: list[int] = []
        text = json.dumps({"name": "x" * 90, "id": "net", "metrics": ["y" * 90] * 70}).encode()
        for tick in range(20):
            for path in hostile:
                write_events(path, range(fresh + 500 * tick, fresh + 500 * (tick + 1)), text)
            write_events(honest, range(fresh + tick, fresh + tick + 1))
            poll = reader.poll()
            own += [found.number for found in poll.boundaries if found.run == honest.name]
            read.append(sum(found.run != honest.name for found in poll.boundaries))
            clock.advance(1.0)
        assert own == [*range(1, fresh + 20)], "each event once"
        assert max(read) <= EVENTS * BURST + wire_format.EVENT_COUNT
        assert max(read[10:]) <= EVENTS + len(hostile)
        boards = {board.name: board for board in reader._boards.values()}
        assert sum(boards[path.name].text_bytes for path in hostile if path.name in boards) <= BYTES * (BURST + 21)
        runs = {run.key: run for run in poll.runs}
        assert runs[honest.name].lost_events == 0
        assert all(run.lost_events > 1000 for run in runs.values() if run.key != honest.name)

    def test_is_enough_for_all_ranks_of_a_daemon_that_starts(
        self, tags: Path, reader: TagReader, valid: bytes, clock: FakeClock
    ) -> None:
        """The boards are opened one after another, and each is read completely."""
        for number in range(64):
            write_events(plant(tags, valid, number), range(1, wire_format.EVENT_COUNT + 1))
        found: list[tuple[str, int]] = []
        for _ in range(80):
            poll = reader.poll()
            found += [(boundary.run, boundary.number) for boundary in poll.boundaries]
            clock.advance(1.0)
        assert len(found) == len(set(found)) == 64 * wire_format.EVENT_COUNT
        assert poll.unread == 0
