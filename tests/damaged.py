"""Valid files of each kind, damaged at random, and what reads them: for tests, and as a program.

`python -m tests.damaged [KIND] [COUNT] [SEED]` tries COUNT files of a kind, or of each, and prints what went wrong.
A reader may raise GpumonError with one line. It may not raise anything else, wait, or show what the file never held.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import traceback
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import gpumon
from gpumon.cli import main, streams
from gpumon.cli.options import resolve_options
from gpumon.cluster.client import read_access
from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.net import token_from
from gpumon.common.paths import Places
from gpumon.live import Live
from gpumon.model.origin import Driver, Origin
from gpumon.recording.content import Context, RecordedFrame
from gpumon.recording.reader import RecordingReader
from gpumon.recording.writer import RecordingWriter
from gpumon.reports.status_json import document
from gpumon.reports.status_text import lines
from gpumon.ring.layout import CRC_FROM, SLOT
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from gpumon.sources.replay import ReplaySource
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.past_frames import stored_frames
from gpumon.storage.history.query import HOST, Query
from gpumon.storage.history.recorder import HistoryRecorder
from gpumon.storage.history.tiered_history import StoredTier
from gpumon.storage.history.tiers import SHAPES
from gpumon.storage.ledger.reader import Ledgers
from gpumon.tracking import wire_format
from gpumon.tracking.tag_reader import TagReader
from tests.builders import TIME, boundary, frame_of, process, run, sample, tick
from tests.fakes import FakeClock
from tests.programs import PATIENCE
from tests.recorded import bits, simulated
from tests.runs import BEGAN, Book, training

LONGEST = 20
"""Seconds for all readers of one file; far more than they take on a busy machine."""
UUID = "GPU-00000000"


_AT_ONCE = 250


class Hang(BaseException):
    """The readers of a file took longer than `LONGEST`; no code of gpumon catches it."""


class Fault(Exception):
    """A reader showed what the file never held, or ended with an internal error."""


class Kind(NamedTuple):
    """A kind of file."""

    make: Callable[[Path], object]
    """Writes a valid file to a path; what it returns is what the file holds."""
    damage: Callable[[random.Random, Path], bool]
    """Damages the file at a path; returns whether its checksums are right nevertheless."""
    read: Callable[[Path, Any, bool], object]
    """Reads the file at a path in all ways that gpumon has: the path, what it held, and whether checksums are right."""
    name: str
    """Of the file."""


# Damage of any bytes


def flipped(dice: random.Random, data: bytearray) -> None:
    """Change some bytes, more often one than many."""
    for _ in range(dice.choice((1, 1, 2, 8, 64))):
        at = dice.randrange(len(data))
        data[at] = dice.choice((data[at] ^ 1 << dice.randrange(8), dice.randrange(256), 0, 255))


def cut(dice: random.Random, data: bytearray) -> None:
    del data[dice.randrange(len(data)) :]


def spliced(dice: random.Random, data: bytearray) -> None:
    """Put a piece of the file somewhere else in it, or take one out."""
    begin, length = dice.randrange(len(data)), dice.choice((1, 16, 96, 512, 4096))
    piece = data[begin : begin + length]
    at = dice.randrange(len(data))
    if dice.random() < 0.5:
        data[at : at + len(piece)] = piece
    elif dice.random() < 0.5:
        data[at:at] = piece
    else:
        del data[at : at + length]


def blanked(dice: random.Random, data: bytearray) -> None:
    begin, length = dice.randrange(len(data)), dice.choice((8, 512, 4096))
    data[begin : begin + length] = bytes(len(data[begin : begin + length]))


BYTES = (flipped, flipped, cut, spliced, blanked)


def damage_bytes(dice: random.Random, path: Path) -> bool:
    data = bytearray(path.read_bytes())
    dice.choice(BYTES)(dice, data)
    path.write_bytes(data)
    return False


# Rings

INTEGERS = (bytes(8), b"\x01" + bytes(7), b"\xff" * 8, b"\xff" * 7 + b"\x7f", bytes(7) + b"\x80", b"\x5f" + bytes(7))
"""Numbers at the ends of what a field holds, little-endian."""


def make_ring(path: Path) -> frozenset[tuple[int, object]]:
    ring = RingWriter.create(str(path), 24, SECOND)
    for number in range(1, 8):
        values = {"utilization": number / 100, "power": 100.0 + number, "energy": 1e6 + number, "memory_used": 1e9}
        ring.append(
            tick(
                number, [sample(0, **values, run="tag.1000.4711.abcd"), sample(1, **values)],
                [process(), process(4712, 1)], [run(metrics={"loss": 0.5})],
                [boundary(number)._replace(metrics={"loss": 0.5})],
            )
        )  # fmt: skip
    ring.close()
    with closing(RingReader.open(str(path))) as reader:
        whole = [(frame.number, bits(frame)) for frame in reader.since(0)]
        with patch.object(RingReader, "raw", lambda self, number: None):  # the values of each frame lie there once more
            return frozenset([*whole, *((frame.number, bits(frame)) for frame in reader.since(0))])


def damage_ring(dice: random.Random, path: Path) -> bool:
    """Change bytes of a part that is used, or a slot whose checksum is right for what it then has."""
    with closing(RingReader.open(str(path))) as reader:
        layout = reader.layout
    numbers, areas = range(1, 8), (layout.full, layout.values)
    with path.open("r+b") as file:
        if dice.random() < 0.4:
            slots = [(area.at(number), 1024) for area in areas for number in numbers]
            begin, length = dice.choice([(0, 8192), (layout.dir_offset, 4096), *slots, (layout.events.at(1), 96 * 16)])
            file.seek(begin)
            data = bytearray(file.read(length))
            dice.choice((flipped, flipped, blanked))(dice, data)
            file.seek(begin)
            file.write(data)
            if dice.random() < 0.1:
                file.truncate(dice.randrange(begin + 1))
            return False
        area, number = dice.choice(areas), dice.choice(numbers)
        file.seek(area.at(number))
        data = bytearray(file.read(area.slot_size))
        _forge_slot(dice, data)
        file.seek(area.at(number))
        file.write(data)
        return True


def _forge_slot(dice: random.Random, data: bytearray) -> None:
    """Give a slot other numbers or another length, and the checksum that belongs to them."""
    head = list(SLOT.unpack_from(data))
    length = head[2]
    if dice.random() < 0.5:
        begin = dice.randrange(SLOT.size, min(CRC_FROM + length, len(data)))
        data[begin : begin + 8] = dice.choice((b"\xff" * 8, bytes(8), dice.randbytes(8)))
    for place in dice.sample(range(4, len(head)), dice.choice((1, 1, 3))):
        size = struct.calcsize(f"<{SLOT.format[place + 1]}")
        (head[place],) = struct.unpack(f"<{SLOT.format[place + 1]}", dice.choice(INTEGERS)[:size])
    if dice.random() < 0.4:
        head[2] = length = dice.randrange(SLOT.size - CRC_FROM, len(data) - CRC_FROM)
    SLOT.pack_into(data, 0, *head)
    data[8:12] = zlib.crc32(data[CRC_FROM : CRC_FROM + length]).to_bytes(4, "little")


def read_ring(path: Path, held: frozenset[tuple[int, object]], is_right: bool) -> None:
    with suppress(GpumonError), closing(RingReader.open(str(path))) as reader:
        for frame in [reader.newest(), *reader.since(0)]:
            if frame is not None:
                shown = bits(frame)
                if not is_right and (frame.number, shown) not in held and not is_part(shown, held):
                    raise Fault(f"frame {frame.number} was never taken: {shown}")
        reader.boundaries()
        for metric in ("gpu.utilization", "gpu.energy"):
            reader.series(metric, 1000)
        reader.sums()
    live = Live(lambda: os.open(path, os.O_RDONLY))
    newest = live.latest()
    live.state()
    live.boundaries()
    live.sums()
    frames = live.since(0)
    context = Context(live.origin(), live.driver(), live.hostname())
    if newest is not None:
        list(lines(newest, Origin("nvml"), Driver(), "node1", ""))
        json.dumps(document(newest, Origin("nvml"), Driver(), "node1", None), allow_nan=False)
    target = f"{path}.recording"
    with suppress(GpumonError):
        writer = RecordingWriter.create(target, {}, force=True)
        for frame in frames:
            writer.add(RecordedFrame(frame, context))
        writer.close()
    live.close()
    with suppress(GpumonError):
        ring = RingWriter.create(str(path), 2, SECOND, continues="nvml")  # a daemon that follows it
        ring.append(tick(40))
        ring.close()


def is_part(shown: object, held: frozenset[tuple[int, object]]) -> bool:
    """Whether a frame shows a part of what it held: a directory that is damaged explains fewer devices and runs."""
    return {*map(repr, _leaves(shown))} - {"''", "()", "'NaN'"} <= _known(held)


@cache
def _known(held: frozenset[tuple[int, object]]) -> set[str]:
    return {repr(leaf) for _, frame in held for leaf in _leaves(frame)}


def _leaves(part: object) -> Iterator[object]:
    if isinstance(part, tuple):
        for one in part:
            yield from _leaves(one)
    else:
        yield part


# Boards


def make_board(path: Path) -> None:
    (path.parent / "made").mkdir()
    with gpumon.run("net", epochs=3, directory=str(path.parent / "made")) as one:
        for _ in one.epochs():
            with one.phase("validate"):
                one.log(loss=0.5)
    (board,) = (path.parent / "made" / "tags").iterdir()
    path.write_bytes(board.read_bytes())


def damage_board(dice: random.Random, path: Path) -> bool:
    damage_bytes(dice, path)
    if dice.random() < 0.5:  # the records of a board prove themselves: some are right in spite of it
        data = bytearray(path.read_bytes())
        for at in range(0, max(0, len(data) - 64), 64):
            if dice.random() < 0.05:
                data[at : at + 4] = zlib.crc32(data[at + 4 : at + 64]).to_bytes(4, "little")
        path.write_bytes(data)
    return True


def read_board(path: Path, held: object, is_right: bool) -> None:
    del held, is_right
    tags = path.parent / "live" / "tags"
    tags.mkdir(parents=True, exist_ok=True)
    board = tags / f"tag.{os.getuid()}.1.00000000"
    board.write_bytes(path.read_bytes())
    board.chmod(0o644)
    reader = TagReader(Places(explicit=str(tags.parent), uid=os.getuid()))
    try:
        for _ in range(2):
            poll = reader.poll()
            for one in poll.runs:
                assert one.world_size < wire_format.SIZE * 2**32
    finally:
        reader.close()
        board.unlink()


# Databases

ODD = (
    None, 0, 1, -1, 2**62, 2**63 - 1, -(2**63), 0.5, -1.5, 9e999, -9e999, 1e308, "", "text", "\x1b[31m", "NaN", "1",
    "9" * 5000, "[" * 3000, '{"a":' * 2000, '["gpu.utilization"]', '{"code": 1e999}', "[1, 2]", "null", "-7", b"",
    b"\xff\xfe", b"\x00" * 64,
)  # fmt: skip


def damage_cells(dice: random.Random, path: Path) -> bool:
    """Cells of another type or size, also text that is no UTF-8; what the schema refuses stays."""
    if dice.random() < 0.25:
        return damage_bytes(dice, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        if dice.random() < 0.3:
            _loosen(db)
        tables = [
            name
            for (name,) in db.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
        ]
        for _ in range(dice.choice((1, 1, 2, 6))):
            table = dice.choice(tables)
            column = dice.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
            value = dice.choice(ODD)
            way = "CAST(? AS TEXT)" if isinstance(value, bytes) and dice.random() < 0.7 else "?"
            where = "" if dice.random() < 0.3 else f" WHERE abs(random()) % {dice.choice((2, 5, 20))} = 0"
            with suppress(sqlite3.Error):
                db.execute(f"UPDATE OR IGNORE {table} SET {column} = {way}{where}", (value,))
    return True


def _loosen(db: sqlite3.Connection) -> None:
    """Let columns be NULL, and of any type: the schema of a stranger's file is his own."""
    db.execute("PRAGMA writable_schema = ON")
    free = "sql"
    for declared in (" INTEGER NOT NULL", " TEXT NOT NULL", " REAL NOT NULL", " REAL"):
        free = f"replace({free}, '{declared}', '')"
    db.execute(f"UPDATE sqlite_schema SET sql = {free} WHERE type = 'table' AND sql NOT LIKE '%AUTOINCREMENT%'")
    db.execute("PRAGMA writable_schema = RESET")


def make_ledger(path: Path) -> None:
    with Book(path.parent) as book:
        training(book, "resnet50-1a2b", gpus=2)
        training(book, "bert-3c4d", began=BEGAN + 100, seed=2)
        book.out_of_memory("tag.1000.4711.resnet50-1a2b")
        book.add("note", run="bert-3c4d", time=BEGAN * SECOND, text="a note", author="alice")
        book.add("tag", run="bert-3c4d", tag="good", removed=0)
        for place, kind in enumerate((0, 1)):
            book.add("parameter", run="bert-3c4d", kind=kind, name="lr", place=place, value="0.1", rank=0)
        book.db.execute("PRAGMA journal_mode = DELETE")


RUNS = [
    words.split()
    for words in (
        "runs", "runs --json", "runs show last", "runs show resnet50-1a2b --phases --ranks",
        "runs compare resnet50-1a2b bert-3c4d", "runs compare bert-3c4d resnet50-1a2b --json",
        "runs show bert-3c4d --json", "runs export resnet50-1a2b --format csv", "runs export bert-3c4d --format json",
        "runs report bert-3c4d -o /dev/null",
    )
]  # fmt: skip


def read_ledger(path: Path, held: object, is_right: bool) -> None:
    del held, is_right
    with suppress(GpumonError), Ledgers([str(path)]) as ledgers:
        ledgers.candidates("r")
        for ledger, listed in ledgers.runs_with_ledger():
            with suppress(GpumonError):
                ledger.record(listed.run.id)
                ledger.traces(listed.run.id)
                ledger.settled_epochs(listed.run.id)
    with (
        suppress(GpumonError),
        gpumon.ledger(state_dir=str(path.parent), directory=str(path.parent / "live")) as past,
    ):
        for one in past.runs():
            for part in ("epochs", "total", "between", "usage", "steps", "config", "notes"):
                getattr(one, part)
    command(path, random.Random(path.stat().st_size).sample(RUNS, 2))


def make_history(path: Path) -> None:
    path.parent.chmod(0o700)
    said: list[str] = []
    history = HistoryRecorder(str(path), os.getuid(), said.append).start()
    for number in range(1, 700):
        values = {
            "utilization": number / 1000,
            "power": 100.0 + number % 7,
            "energy": 1e6 + 100 * number,
            "memory_used": 1e9,
        }
        history.add(
            tick(
                number, [sample(0, **values), sample(1, **values)], [process(started=TIME / SECOND), process(4712, 1)],
                [run()] if 100 < number < 500 else [],
            )
        )  # fmt: skip
    history.close(PATIENCE)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")


PAST = [
    words.split()
    for words in (
        "history", "history totals", "history totals --json", "history accounts", "history accounts --json",
        "history accounts --by day", "history accounts --by device --csv", "history accounts --by hour",
        "history events", "history events --json", "history processes", "history processes --json",
        "history export --format csv --last 1h -o -",
    )
]  # fmt: skip


def read_history(path: Path, held: object, is_right: bool) -> None:
    del held, is_right
    now = TIME / SECOND + 700
    with closing(HistoryFile(str(path), lambda: now)) as file:
        file.subjects(now - 3600, now)
        for shape in SHAPES:
            tier = StoredTier(file, shape)
            for subject in (UUID, HOST):
                grid = Grid(int(now - 3600) // shape.step, float(shape.step), 20)
                tier.has(subject, "gpu.utilization")
                tier.query(Query(subject, ("gpu.utilization", "gpu.energy"), grid.begin, grid.end, grid=grid))
            file.time_range(shape)
            file.metrics(shape, UUID)
    before = frame_of(tick(700))
    for one in stored_frames(str(path), now - 3600, before, {})[::100]:
        bits(one.frame)
    command(path, random.Random(path.stat().st_size).sample(PAST, 2), now)


def command(path: Path, chosen: Sequence[Sequence[str]], now: float = BEGAN + 400.0) -> None:
    """Run commands in this process, as from a shell."""
    for words in chosen:
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        places = ["--state-dir", str(path.parent), "--dir", str(path.parent / "live")]
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            patch("time.time", lambda: now),
            patch.object(streams, "report", _fault),
        ):
            code = main([*words, *places])
        said = err.getvalue().splitlines()
        if code not in (0, 1) or len(said) > 2 or b"\x1b[31m" in out.buffer.getvalue():
            raise Fault(f"{words}: {code} {said}")


def _fault(error: BaseException) -> str:
    raise Fault("internal error") from error


# Settings

SETTINGS = """\
source = "nvml"
interval = 1.0
speed = 2

[cost]
currency = "EUR"
electricity = 0.3

[groups]
vision = ["alice", "bob"]
"""
TOML = (
    "[" * 3000, "a = " + "9" * 5000, "a = " + "[" * 3000, "interval = " + "9" * 5000, "interval = nan", "\ufeff",
    "speed = 1e999", "a.b.c = 1\n" * 50, "x = " + "{a=" * 2000, '"' * 7, "source = 1979-05-27T07:32:00Z", "\x00",
    "groups = 3", "cost = []", "[groups]\n1 = 2", "interval = 0x" + "f" * 4000,
)  # fmt: skip


def make_settings(path: Path) -> None:
    path.write_text(SETTINGS)


def damage_settings(dice: random.Random, path: Path) -> bool:
    if dice.random() < 0.5:
        return damage_bytes(dice, path)
    text = path.read_text().splitlines()
    text.insert(dice.randrange(len(text)), dice.choice(TOML))
    path.write_bytes("\n".join(text).encode())
    return True


def read_any_settings(path: Path, held: object, is_right: bool) -> None:
    del held, is_right
    folder = path.parent / "config" / "gpumon"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.toml", "cluster.toml", "tui.json"):
        (folder / name).write_bytes(path.read_bytes())
    env = {"XDG_CONFIG_HOME": str(folder.parent), "HOME": str(path.parent)}
    for read in (partial(resolve_options, Namespace(), env), partial(read_access, str(path))):
        try:
            read()
        except GpumonError as error:
            if str(path.parent) not in str(error) or "\n" in str(error) or len(str(error)) > 2000:
                raise Fault(f"not one line that names the file: {error}") from error
    with suppress(GpumonError):
        token_from(str(path), make=False)


# Recordings


def make_recording(path: Path) -> dict[int, object]:
    frames = simulated(20, "sim:one")
    writer = RecordingWriter.create(str(path), {})
    for one in frames:
        writer.add(one)
    writer.close()
    return {one.frame.number: bits(one.frame) for one in frames}


def read_recording(path: Path, held: dict[int, object], is_right: bool) -> None:
    with suppress(GpumonError):
        reader = RecordingReader(str(path))
        try:
            for one in reader.frames():
                shown = bits(one.frame)
                if not is_right and shown != held.get(one.frame.number):
                    raise Fault(f"frame {one.frame.number} was never recorded")
        finally:
            reader.close()


# Logs


def log_text() -> str:
    heading = "timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]"
    rows = [f"2026/01/01 12:{t // 60:02}:{t % 60:02}.000, {gpu}, NVIDIA H100, {t % 100} %, {t} MiB, 81559 MiB, {t}.00 W"
            for t in range(120) for gpu in range(2)]  # fmt: skip
    return "\n".join([heading, *rows, ""])


def make_log(path: Path) -> set[float]:
    path.write_text(log_text())
    return {float(t) for t in range(120)}


def damage_log(dice: random.Random, path: Path) -> bool:
    damage_bytes(dice, path)
    if dice.random() < 0.2:
        path.write_bytes(gzip.compress(path.read_bytes())[: dice.choice((None, 200, 1000))])
    return False


def read_log(path: Path, held: object, is_right: bool) -> None:
    del held, is_right
    with suppress(GpumonError):
        clock = FakeClock(SECOND)
        source = ReplaySource(str(path), clock=clock)
        try:
            before = 0
            clock.advance(1e8)
            while more := source.read():
                for reading in more:
                    if reading.time_ns <= before:
                        raise Fault("time goes back")
                    before = reading.time_ns
        finally:
            source.close()


KINDS = {
    "ring": Kind(make_ring, damage_ring, read_ring, "ring"),
    "board": Kind(make_board, damage_board, read_board, "board"),
    "ledger": Kind(make_ledger, damage_cells, read_ledger, "ledger.sqlite"),
    "history": Kind(make_history, damage_cells, read_history, "history.sqlite"),
    "settings": Kind(make_settings, damage_settings, read_any_settings, "config.toml"),
    "recording": Kind(make_recording, damage_bytes, read_recording, "run.gpumon"),
    "log": Kind(make_log, damage_log, read_log, "gpu.csv"),
}


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise Hang in what takes longer."""

    def over(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Found(NamedTuple):
    """What went wrong with a file."""

    seed: int
    where: str
    text: str


def attempt(name: str, count: int, seed: int = 1) -> list[Found]:
    """Read `count` damaged files of a kind; what went wrong."""
    kind = KINDS[name]
    found = []
    with tempfile.TemporaryDirectory(prefix="gpumon-damaged-") as folder:
        original = Path(folder) / "original" / kind.name
        original.parent.mkdir()
        held = kind.make(original)
        with at_most(LONGEST):
            kind.read(_copy(original, Path(folder) / "whole"), held, False)
        for number in range(seed, seed + count):
            place = Path(folder) / "damaged"
            path = _copy(original, place)
            is_right = kind.damage(random.Random(f"{name} {number}"), path)
            try:
                with at_most(LONGEST):
                    kind.read(path, held, is_right)
            except (Exception, Hang) as error:
                found.append(Found(number, _place(error), "".join(traceback.format_exception(error))))
            shutil.rmtree(place)
    return found


def _copy(path: Path, folder: Path) -> Path:
    """A copy that keeps holes."""
    folder.mkdir(mode=0o700)
    subprocess.run(["cp", "--sparse=always", str(path), str(folder)], check=True)
    return folder / path.name


def _place(error: BaseException) -> str:
    error = error.__cause__ or error
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/tests/" not in one.filename]
    last = frames[-1] if frames else None
    own = next((one for one in reversed(frames) if "/gpumon" in one.filename), last)
    return f"{type(error).__name__} {own.filename.rpartition('/gpumon/')[2]}:{own.lineno}" if own else repr(error)


def _main() -> None:
    names = [sys.argv[1]] if sys.argv[1:] and sys.argv[1] in KINDS else list(KINDS)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    for name in names:
        tried, wrong = 0, 0
        for begin in range(seed, seed + count, _AT_ONCE):
            found = attempt(name, min(_AT_ONCE, seed + count - begin), begin)
            tried, wrong = tried + min(_AT_ONCE, seed + count - begin), wrong + len(found)
            for one in found:
                print(f"{name} {one.seed}: {one.where}\n{one.text}", flush=True)
            print(f"{name}: {wrong} of {tried} files", flush=True)


if __name__ == "__main__":
    _main()
