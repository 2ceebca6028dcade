"""SQL tables of the history file. A file of another version is renamed and a new one started (`sqlite.write`)."""

from __future__ import annotations

from gpumon.storage.sqlite.write import FileKind

VERSION = 2
"""`PRAGMA user_version`, which increases with each change of the tables."""

TABLES = """
CREATE TABLE schema (id INTEGER PRIMARY KEY, metrics TEXT NOT NULL UNIQUE);
CREATE TABLE block (
  tier INTEGER NOT NULL, number INTEGER NOT NULL, subject TEXT NOT NULL, boot TEXT NOT NULL,
  schema INTEGER NOT NULL REFERENCES schema (id), first INTEGER NOT NULL, last INTEGER NOT NULL, data BLOB NOT NULL,
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
  tier INTEGER NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (tier, begin)
)
"""
"""`schema.metrics`: JSON list of metric names, in the order of a block's parts.

`block.number`: number of the block in its tier, counted from 1970; `subject`: UUID of a GPU, empty for the machine;
`boot`: boot id of the machine when the block was last written, because counters of two boots are not comparable;
`first`, `last`: indexes of its first and last cell; `data`: a columnar block with a part for each metric (`block.py`).

`device`: the last index (`number`) and name of a GPU, by UUID.

`device_hour.hour`: hour since 1970; `device`: UUID. `energy` and `free_energy` are joules. All other columns are
seconds of that hour (`usage.account.DeviceUse`).
`account`: the same for one user (`usage.account.Account`); `user` is empty if the holder is unknown.

`event.time`: ns since 1970; `kind`: name of the event kind (`model.events`); `cause`: for throttling, the metric;
`lasted`: if the event is the end of a condition, the seconds that the condition lasted, measured with CLOCK_MONOTONIC;
`until`: for a condition that has not ended, the time when it was last observed (ns since 1970); `details`: JSON.

`taken`: time up to which the ticks of a daemon were written into blocks. Later ticks of a killed daemon are only in its
ring. `directory`: directory of the ring; `boot`: boot id of the machine; `until`: ns, CLOCK_MONOTONIC.

`process`: a process on a GPU; `device`: UUID; `boot`: boot id of the machine, within which pid and start identify a
process; `started`: s since 1970, NULL if unknown; `first`: time when it was first seen on the GPU (ns since 1970);
`last`: time when it was last seen. If it is still running or its daemon was killed, there are blocks newer than `last`.
`process_block`: the processes of all GPUs; `begin`, `end`: ns since 1970; `data`: a columnar block
(`processes/blocks.py`)."""

HISTORY_FILE = FileKind(
    "history",
    VERSION,
    TABLES,
    when_unwritable="history is kept in memory meanwhile",
    when_refused="this daemon keeps no history",
)
