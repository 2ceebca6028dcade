"""Histories that are damaged, in the way or of somebody else: they cost history, never live data, and say so once."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.common.errors import GpumonError
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.overview import overview
from gpumon.storage.history.query import Query
from gpumon.storage.history.recorder import BATCH, HistoryRecorder
from gpumon.storage.history.schema import HISTORY_FILE, VERSION
from gpumon.storage.history.tiered_history import StoredTier
from gpumon.storage.history.tiers import SHAPES, HistoryLimits, prune_large
from gpumon.storage.sqlite.state_file import StateFile
from gpumon.storage.sqlite.write import open_to_write
from tests.builders import TIME, device, sample, tick
from tests.programs import PATIENCE, until

UID = os.getuid()
BEGIN = TIME // 1_000_000_000


@pytest.fixture
def path(history_path: Path) -> Path:
    history_path.parent.mkdir(mode=0o700)
    return history_path


def follow(path: Path, first: int, last: int) -> list[str]:
    """Keep the history of some ticks in a daemon that begins and is stopped; gives what it said."""
    said: list[str] = []
    history = HistoryRecorder(str(path), UID, said.append).start()
    for number in range(first, last):
        history.add(tick(number, samples=(sample(0, utilization=0.75),)))
    history.close(PATIENCE)
    assert not history._thread.is_alive()
    return said


@cache
def whole() -> bytes:
    """A file with the history of 2000 ticks."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state" / "history.sqlite"
        follow(path, 1, 2001)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
        return path.read_bytes()


def has(path: Path, first: int, last: int) -> bool:
    """Whether the file has the cells of some ticks."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT number * 300 + first, number * 300 + last FROM block WHERE tier = 1 AND subject = ?",
            (device().uuid,),
        ).fetchall()
    there = {cell for begin, end in rows for cell in range(begin, end + 1)}
    return set(range(BEGIN + first, BEGIN + last)) <= there


def of_random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(50_000))


def truncated(path: Path) -> None:
    path.write_bytes(whole()[: len(whole()) // 2])


def without_its_second_half(path: Path) -> None:
    path.write_bytes(whole()[: len(whole()) // 2] + bytes(len(whole()) - len(whole()) // 2))


def with_a_strange_log(path: Path) -> None:
    path.write_bytes(whole())
    Path(f"{path}-wal").write_bytes(b"no log at all" * 1000)


def with_values_of_another_kind(path: Path) -> None:
    path.write_bytes(whole())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE block SET data = 'text', first = 'first', last = NULL WHERE tier = 3")
        connection.commit()


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE = [
    of_random_bytes, truncated, without_its_second_half, with_a_strange_log, with_values_of_another_kind, empty
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_daemon_continues_over_a_damaged_history_and_says_it_at_most_once(
    path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        damage(path)
    except sqlite3.IntegrityError:
        path.write_bytes(whole())  # SQLite itself lets no such value in
    main(["history"])
    assert len(capsys.readouterr().err.splitlines()) <= 1
    said = follow(path, 3000, 3100)
    assert len(said) <= 1, said
    assert all("moved to" in line for line in said)
    assert has(path, 3000, 3100)
    assert main(["history"]) == 0
    shown = capsys.readouterr().out
    assert str(path) in shown
    assert ("moved aside" in shown) == bool(said)


def test_a_file_with_any_bytes_changed_ends_no_thread_and_no_view(path: Path) -> None:
    dice = random.Random(7)
    for number in range(40):
        data = bytearray(whole())
        for _ in range(dice.choice((1, 5, 50))):
            data[dice.randrange(len(data))] = dice.randrange(256)
        for found in path.parent.iterdir():
            found.unlink()
        path.write_bytes(data)
        file = HistoryFile(str(path), lambda: BEGIN + 3000.0)
        for shape in SHAPES:
            grid = Grid(BEGIN // 100, 100.0, 20)
            StoredTier(file, shape).has(device().uuid, "gpu.utilization")
            StoredTier(file, shape).query(Query(device().uuid, ("gpu.utilization",), grid.begin, grid.end, grid=grid))
        file.close()
        with suppress(GpumonError):
            overview(str(path))
        said = follow(path, 3000, 3020)
        assert len(said) <= 2, (number, said)
        assert has(path, 3000, 3020) or said, number


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.write_bytes(b"no history at all" * 100), "is damaged"),
    ],
)
def test_gpumon_history_says_why_a_file_cannot_be_read(
    path: Path, make: Callable[[Path], None], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(path)
    assert main(["history"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert words in line


def test_gpumon_history_of_another_version_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_to_write(str(path), HISTORY_FILE, shared=False, uid=UID, log=pytest.fail).close()
    assert main(["history"]) == 0
    assert "no history yet" in capsys.readouterr().out
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    assert main(["history"]) == 1
    assert f"format {VERSION + 1}" in capsys.readouterr().err


def without_its_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()
    Path(f"{path}-shm").unlink()


def emptied_and_read(path: Path) -> None:
    for suffix in ("", "-wal"):
        Path(f"{path}{suffix}").write_bytes(b"")
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("PRAGMA user_version")


@pytest.mark.parametrize(("happens", "begin"), [(without_its_log, 1), (emptied_and_read, 10)])
def test_what_is_written_after_a_file_lost_its_log_is_there_for_everybody(
    path: Path, happens: Callable[[Path], None], begin: int
) -> None:
    said: list[str] = []
    file = StateFile(str(path), HISTORY_FILE, UID, said.append)
    for first in (1, 10):
        for _ in range(2):
            try:
                file.connect().execute("CREATE TABLE IF NOT EXISTS found (number INTEGER)")
                file.connect().executemany("INSERT INTO found VALUES (?)", [(n,) for n in range(first, first + 9)])
                break
            except sqlite3.Error as error:
                file.handle_error(error)
        if first == 1:
            happens(path)
    with closing(sqlite3.connect(path)) as reader:
        found = [number for (number,) in reader.execute("SELECT number FROM found ORDER BY number")]
    assert found == list(range(begin, 19))
    assert len(said) <= 1
    file.close()


@pytest.fixture
def small_disk(path: Path) -> Iterator[Path]:
    words = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "gpumon-test", str(path.parent)]
    try:
        mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no 'mount' here")
    if mounted.returncode:
        pytest.skip(f"a file system may not be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path.parent)], check=True)


def test_a_full_disk_is_said_once_and_what_waited_is_written_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk.parent / "ballast"
    ballast.write_bytes(b"x" * 250_000)
    said: list[str] = []
    history = HistoryRecorder(str(small_disk), UID, said.append).start()
    for number in range(1, 1000):
        history.add(tick(number, samples=(sample(0, utilization=0.75),)))
        if number % 100 == 0:
            until(lambda: len(history._ticks) < BATCH)
    until(lambda: said)
    assert "is full" in history.problem
    ballast.unlink()
    history.close(PATIENCE)
    assert [line.split(" ")[0:2] for line in said] == [["cannot", "write"], [str(small_disk), "is"]], said
    assert has(small_disk, 1, 1000)


@pytest.fixture
def read_only(path: Path) -> Iterator[Path]:
    path.write_bytes(whole())
    try:
        subprocess.run(["mount", "--bind", str(path.parent), str(path.parent)], capture_output=True, check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path.parent)], capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("a file system may not be mounted here")
    yield path
    subprocess.run(["umount", "-l", str(path.parent)], check=True)


def test_a_directory_that_is_read_only_is_said_once_and_its_history_read(
    read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = follow(read_only, 3000, 3100)
    assert sorted(line.split(" ")[1] for line in said) == ["write", "write"], said
    assert len({line.partition("(")[0] for line in said}) == 2, said
    assert main(["history"]) == 0
    assert "300 s" in capsys.readouterr().out


def test_the_size_limit_holds_however_often_daemons_begin_anew(path: Path) -> None:
    limits = HistoryLimits(bytes=8192)
    for first in range(0, 6000, 600):
        history = HistoryRecorder(str(path), UID, pytest.fail, limits=limits).start()
        for number in range(first, first + 600):
            values = {"utilization": random.Random(number).random(), "power": random.Random(-number).random()}
            history.add(tick(number, samples=(sample(0, **values),)))
        history.close(PATIENCE)
        with closing(sqlite3.connect(path)) as connection:
            ((held, oldest),) = connection.execute(
                "SELECT sum(length(data)), min(number) FILTER (WHERE tier = 1) FROM block"
            ).fetchall()
            assert held <= limits.bytes
    assert oldest is None or oldest * 300 > BEGIN


def test_a_disk_without_room_for_a_smaller_file_keeps_the_larger_one(path: Path) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:  # type: ignore[override]
            if sql == "VACUUM":
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *arguments)  # type: ignore[arg-type]

    path.write_bytes(whole())
    with closing(sqlite3.connect(path, factory=Full)) as connection:
        connection.execute("CREATE TABLE filler (data BLOB)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(40000000))")
        connection.execute("DROP TABLE filler")
        connection.commit()
        prune_large(connection, HistoryLimits(bytes=1))
        assert connection.execute("SELECT count(*) FROM block").fetchone() == (0,)
