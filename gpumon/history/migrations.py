"""The tables of kept history as SQL: one script for each version, frozen once it was released."""

from __future__ import annotations

from gpumon.database.write import FileKind

_FIRST = """
CREATE TABLE schema (id INTEGER PRIMARY KEY, metrics TEXT NOT NULL UNIQUE);
CREATE TABLE block (
  tier INTEGER NOT NULL, number INTEGER NOT NULL, subject TEXT NOT NULL, boot TEXT NOT NULL,
  schema INTEGER NOT NULL REFERENCES schema (id), first INTEGER NOT NULL, last INTEGER NOT NULL,
  crc INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (tier, number, subject)
)
"""
"""`schema.metrics`: a JSON list of names, in the order of a block's directory.
`block.number`: of the blocks of its tier since 1970; `subject`: UUID of a GPU, empty for the machine; `boot`: of the
daemon that wrote it last: counters of two boots have nothing in common; `first`, `last`: places of the first and the
last cell that it has; `crc`: CRC32 of `data`, whose layout is in `block.py`."""

MIGRATIONS: tuple[str, ...] = (_FIRST,)
VERSION = len(MIGRATIONS)
HISTORY_FILE = FileKind(
    "history",
    MIGRATIONS,
    meanwhile="history is kept in memory meanwhile",
    refused="this daemon keeps no history",
)
