"""The tables of kept history as SQL. A file of another version is moved aside: see `sqlite.write`."""

from __future__ import annotations

from gpumon.storage.sqlite.write import FileKind

VERSION = 1
"""`PRAGMA user_version`; it goes up with each change of the tables."""

TABLES = """
CREATE TABLE schema (id INTEGER PRIMARY KEY, metrics TEXT NOT NULL UNIQUE);
CREATE TABLE block (
  tier INTEGER NOT NULL, number INTEGER NOT NULL, subject TEXT NOT NULL, boot TEXT NOT NULL,
  schema INTEGER NOT NULL REFERENCES schema (id), first INTEGER NOT NULL, last INTEGER NOT NULL,
  crc INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (tier, number, subject)
);
CREATE TABLE device (uuid TEXT PRIMARY KEY, number INTEGER NOT NULL, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE device_hour (
  hour INTEGER NOT NULL, device TEXT NOT NULL, observed REAL NOT NULL, identified REAL NOT NULL, judged REAL NOT NULL,
  held REAL NOT NULL, busy REAL NOT NULL, idle_held REAL NOT NULL, metered REAL NOT NULL, energy REAL NOT NULL,
  free REAL NOT NULL, free_energy REAL NOT NULL, PRIMARY KEY (hour, device)
) WITHOUT ROWID;
CREATE TABLE account (
  hour INTEGER NOT NULL, device TEXT NOT NULL, user TEXT NOT NULL, held REAL NOT NULL, judged REAL NOT NULL,
  busy REAL NOT NULL, idle_held REAL NOT NULL, metered REAL NOT NULL, energy REAL NOT NULL,
  PRIMARY KEY (hour, device, user)
) WITHOUT ROWID;
CREATE TABLE event (
  time INTEGER NOT NULL, kind TEXT NOT NULL, device TEXT NOT NULL, user TEXT NOT NULL, run TEXT NOT NULL,
  cause TEXT NOT NULL, boot TEXT NOT NULL, lasted REAL, until INTEGER, details TEXT NOT NULL,
  PRIMARY KEY (time, kind, device, user, run, cause)
) WITHOUT ROWID;
CREATE INDEX event_of_run ON event (run) WHERE run != '';
CREATE INDEX event_open ON event (until) WHERE until IS NOT NULL;
CREATE TABLE taken (directory TEXT PRIMARY KEY, boot TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE process (
  id INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, pid INTEGER NOT NULL, boot TEXT NOT NULL, started REAL,
  kind TEXT NOT NULL, name TEXT NOT NULL, user TEXT NOT NULL, container TEXT NOT NULL, pod TEXT NOT NULL,
  job TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL
);
CREATE INDEX process_of_pid ON process (pid);
CREATE TABLE process_block (
  tier INTEGER NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (tier, begin)
)
"""
"""`schema.metrics`: a JSON list of names, in the order of a block's directory.
`block.number`: of the blocks of its tier since 1970; `subject`: UUID of a GPU, empty for the machine; `boot`: of the
daemon that wrote it last: counters of two boots have nothing in common; `first`, `last`: places of the first and the
last cell that it has; `crc`: CRC32 of `data`, whose layout is in `block.py`.

`device`: the number and name that a GPU had last, by UUID.
`device_hour.hour`: since 1970; `device`: UUID. All others are seconds of that hour, but energies (J): in which the
device answered, in which all its holders were known, in which it was judged busy or not, in which somebody held it, in
which it was busy, in which it was held and idle, in which `energy` was measured, and in which nobody held it.
`account`: the same of a user's part, who is empty where a holder is not known; `judged` and `metered`: seconds of
`held` for which his part of the others is known.
`event.time`: ns since 1970; `kind`: as in the table of kinds; `cause`: of a throttling, the metric;
`lasted`: seconds that what ended here had lasted, by the steady clock; `until`: of what has begun and not ended, ns
since 1970 when it was last seen so; `details`: JSON.
`taken.directory`: where the ring of a daemon lies; `boot`: of that daemon; `until`: ns of CLOCK_MONOTONIC: the ticks
before are in blocks, and what a killed daemon had taken after it only the ring has.

`process`: a process on a GPU; `device`: UUID; `boot`: of the machine, in which a pid and a start are one process;
`started`: s since 1970, NULL where it is not known; `first`: ns since 1970 when it was first seen there, `last`: until
when, though one that is still there, or whose daemon was killed, has newer blocks.
`process_block`: the processes of all GPUs; `begin`, `end`: ns since 1970; `crc`: CRC32 of `data`, whose layout for each
tier is in `process_history`."""

HISTORY_FILE = FileKind(
    "history",
    VERSION,
    TABLES,
    when_unwritable="history is kept in memory meanwhile",
    when_refused="this daemon keeps no history",
)
