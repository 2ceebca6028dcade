"""Files in which something other than a table takes the place of a table, and rows that are too long."""

from __future__ import annotations

import os
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.common.errors import GpumonError
from gpumon.storage.history.read import reading
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.ledger.change import LedgerChange
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.schema import LEDGER_FILE
from gpumon.storage.sqlite.read import TOO_LONG, open_to_read
from gpumon.storage.sqlite.write import FileKind, damaged_copies, is_damage, open_to_write
from tests.runs import Book, training

ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT stored.* FROM stored, x"
TABLES = [(kind, table) for kind in (LEDGER_FILE, HISTORY_FILE) for table in sorted(kind.table_names)]


def make(path: Path, kind: FileKind, *changes: str) -> str:
    """Make a file of a kind, with changes by its owner; gives its path."""
    with closing(open_to_write(str(path), kind, shared=False, uid=os.getuid(), log=print)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        for change in changes:
            db.execute(change)
        db.execute("PRAGMA journal_mode = DELETE")
    return str(path)


@pytest.mark.parametrize(("kind", "table"), TABLES, ids=lambda value: value if isinstance(value, str) else value.title)
class TestTableThatIsComputed:
    @pytest.mark.parametrize(
        "changes",
        [
            ("ALTER TABLE {0} RENAME TO stored", f"CREATE VIEW {{0}} AS {ENDLESS}"),
            ("ALTER TABLE {0} RENAME TO stored", f"CREATE VIEW [{{0}}] AS {ENDLESS}"),
            ("ALTER TABLE {0} ADD COLUMN more GENERATED ALWAYS AS (hex(zeroblob(100000000))) VIRTUAL",),
            ("CREATE TRIGGER other BEFORE INSERT ON {0} BEGIN SELECT 1; END",),
        ],
        ids=["view", "quoted", "generated", "trigger"],
    )
    def test_is_damage(self, tmp_path: Path, kind: FileKind, table: str, changes: tuple[str, ...]) -> None:
        path = make(tmp_path / "file.sqlite", kind, *(change.format(table) for change in changes))
        with pytest.raises(sqlite3.DatabaseError) as raised:
            open_to_read(path, kind)
        assert is_damage(raised.value)


class TestSchemaThatLies:
    @pytest.mark.parametrize(
        "lie",
        [
            "UPDATE sqlite_master SET type = 'table', rootpage = 2 WHERE name = 'run'",
            "UPDATE sqlite_master SET name = 'other', tbl_name = 'other' WHERE name = 'run'",
            "UPDATE sqlite_master SET type = 'index', sql = replace(sql, 'CREATE VIEW', 'CREATE /**/ VIEW')"
            " WHERE name = 'run'",
            "UPDATE sqlite_master SET sql = CAST(CAST(sql AS BLOB) || x'20ff' AS TEXT) WHERE name = 'run'",
        ],
        ids=["type", "name", "words", "no UTF-8"],
    )
    def test_is_refused(self, tmp_path: Path, lie: str) -> None:
        changes = "ALTER TABLE run RENAME TO stored", f"CREATE VIEW run AS {ENDLESS}", "PRAGMA writable_schema = ON"
        path = make(tmp_path / "file.sqlite", LEDGER_FILE, *changes, lie)
        with pytest.raises(GpumonError):
            Ledger(path)


class TestViewOfOnesOwn:
    def test_is_no_damage(self, tmp_path: Path) -> None:
        with Book(tmp_path) as book:
            training(book)
            book.db.execute("CREATE VIEW longest AS SELECT * FROM run ORDER BY seconds DESC")
        with Ledger(str(book.path)) as ledger:
            assert len(ledger.runs()) == 1
        with closing(open_to_write(str(book.path), LEDGER_FILE, shared=False, uid=os.getuid(), log=print)):
            assert damaged_copies(str(book.path)) == []


class TestLedgerWithViews:
    def test_is_neither_read_nor_changed(self, tmp_path: Path) -> None:
        path = make(
            tmp_path / "s" / "l", LEDGER_FILE, "ALTER TABLE tag RENAME TO x", "CREATE VIEW tag AS SELECT * FROM x"
        )
        with pytest.raises(GpumonError):
            Ledger(path)
        with pytest.raises(GpumonError):
            LedgerChange(path, os.getuid())

    def test_is_moved_aside_by_a_daemon(self, tmp_path: Path) -> None:
        path = make(
            tmp_path / "s" / "l", LEDGER_FILE, "ALTER TABLE tag RENAME TO x", "CREATE VIEW tag AS SELECT * FROM x"
        )
        lines: list[str] = []
        with closing(open_to_write(path, LEDGER_FILE, shared=False, uid=os.getuid(), log=lines.append)) as db:
            assert db.execute("SELECT type FROM sqlite_master WHERE name = 'tag'").fetchall() == [("table",)]
        assert len(lines) == len(damaged_copies(path)) == 1


class TestRowThatIsTooLong:
    def test_is_unknown_and_not_kept_in_memory(self, tmp_path: Path) -> None:
        with Book(tmp_path) as book:
            run = training(book, epochs=200)
            book.db.execute("UPDATE epoch SET metrics = replace(hex(zeroblob(200000)), '00', '[') WHERE ordinal > 0")
        with Ledger(str(book.path)) as ledger:
            tracemalloc.start()
            try:
                record = ledger.record(run)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert len(record.epochs) == 200
        assert record.epochs[0].metrics
        assert not any(epoch.metrics for epoch in record.epochs[1:])
        assert peak < 10e6 < 199 * 200_000

    def test_is_refused_in_every_file(self, tmp_path: Path) -> None:
        row = "INSERT INTO device VALUES ('GPU-1', 0, hex(zeroblob(40000000)))"
        path = make(tmp_path / "h" / "history.sqlite", HISTORY_FILE, row)
        with pytest.raises(GpumonError, match=TOO_LONG), reading(path) as file:
            file.connection.execute("SELECT * FROM device").fetchall()
