"""SQL schema of the ledger. A ledger with another schema version is renamed and a new one started (`sqlite.write`)."""

from __future__ import annotations

from gpumon.model.columns import USAGE
from gpumon.storage.sqlite.write import FileKind

VERSION = 5
"""`PRAGMA user_version`; increased with each change of the tables."""

TABLES = f"""
CREATE TABLE run (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, user TEXT NOT NULL, hostname TEXT NOT NULL, framework TEXT NOT NULL,
  source TEXT NOT NULL, label TEXT NOT NULL, driver TEXT NOT NULL, world_size INTEGER NOT NULL,
  epochs INTEGER, base INTEGER NOT NULL, first_epoch INTEGER NOT NULL,
  started INTEGER NOT NULL, ended INTEGER, seconds REAL, state INTEGER NOT NULL,
  updated INTEGER NOT NULL, resumes TEXT
) WITHOUT ROWID;
CREATE INDEX run_by_time ON run (started);
CREATE INDEX run_by_name ON run (user, name, started);
CREATE TABLE rank (
  key TEXT PRIMARY KEY, run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  rank INTEGER NOT NULL, local_rank INTEGER NOT NULL, pid INTEGER NOT NULL,
  started INTEGER NOT NULL, ended INTEGER, seconds REAL, state INTEGER NOT NULL,
  steps INTEGER NOT NULL, planned_steps INTEGER, wait REAL, lost_events INTEGER NOT NULL,
  peak REAL, retries REAL, ooms REAL, batch INTEGER, folded_epochs INTEGER, metrics TEXT,
  cpu_seconds REAL, package_energy REAL, package_unknown TEXT, exit_code INTEGER, exit_signal INTEGER,
  loading TEXT, workers INTEGER, passes INTEGER, pass_waits REAL, worker_cpu_seconds REAL
) WITHOUT ROWID;
CREATE INDEX rank_by_run ON rank (run);
CREATE TABLE device (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, uuid TEXT NOT NULL,
  number INTEGER NOT NULL, name TEXT NOT NULL, memory_total REAL, power_limit REAL,
  PRIMARY KEY (rank, uuid)
) WITHOUT ROWID;
CREATE TABLE epoch (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, ordinal INTEGER NOT NULL,
  epoch INTEGER NOT NULL, begun INTEGER NOT NULL, ended INTEGER, seconds REAL, trained REAL,
  steps INTEGER NOT NULL, wait REAL, wait_of REAL, peak REAL, peak_reached INTEGER, metrics TEXT NOT NULL,
  PRIMARY KEY (rank, ordinal)
) WITHOUT ROWID;
CREATE TABLE phase (
  rank TEXT NOT NULL, ordinal INTEGER NOT NULL, phase TEXT NOT NULL, place INTEGER, spans TEXT,
  seconds REAL NOT NULL, times INTEGER NOT NULL, steps INTEGER NOT NULL, wait REAL, peak REAL, peak_reached INTEGER,
  PRIMARY KEY (rank, ordinal, phase),
  FOREIGN KEY (rank, ordinal) REFERENCES epoch (rank, ordinal) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE outside (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, phase TEXT NOT NULL, place INTEGER, spans TEXT,
  seconds REAL, times INTEGER NOT NULL, steps INTEGER NOT NULL, wait REAL, wait_of REAL,
  peak REAL, peak_reached INTEGER,
  PRIMARY KEY (rank, phase)
) WITHOUT ROWID;
CREATE TABLE step_row (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, ordinal INTEGER NOT NULL,
  first_step INTEGER NOT NULL, steps INTEGER NOT NULL, begun INTEGER NOT NULL, ended INTEGER, seconds REAL NOT NULL,
  trained REAL, wait REAL, wait_of REAL, peak REAL, peak_reached INTEGER, metrics TEXT NOT NULL,
  PRIMARY KEY (rank, ordinal)
) WITHOUT ROWID;
CREATE TABLE usage (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, ordinal INTEGER NOT NULL,
  phase TEXT NOT NULL, uuid TEXT NOT NULL, utilization_from TEXT NOT NULL,
  {" REAL, ".join(column.key for column in USAGE)} REAL, energy_from REAL, energy_to REAL,
  PRIMARY KEY (rank, ordinal, phase, uuid)
) WITHOUT ROWID;
CREATE TABLE mark (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, number INTEGER NOT NULL,
  mark INTEGER NOT NULL, time INTEGER NOT NULL, epoch INTEGER NOT NULL, step INTEGER NOT NULL,
  asked REAL, free REAL,
  PRIMARY KEY (rank, number)
) WITHOUT ROWID;
CREATE TABLE trace (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, uuid TEXT NOT NULL,
  begun INTEGER NOT NULL, step REAL NOT NULL, points INTEGER NOT NULL, columns TEXT NOT NULL, cells BLOB NOT NULL,
  PRIMARY KEY (rank, uuid)
) WITHOUT ROWID;
CREATE TABLE progress (
  rank TEXT PRIMARY KEY REFERENCES rank (key) ON DELETE CASCADE, state TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE parameter (
  run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE, kind INTEGER NOT NULL, name TEXT NOT NULL,
  place INTEGER NOT NULL, value TEXT NOT NULL, rank INTEGER NOT NULL,
  PRIMARY KEY (run, kind, name)
) WITHOUT ROWID;
CREATE TABLE note (
  run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE, time INTEGER NOT NULL, text TEXT NOT NULL,
  author TEXT NOT NULL,
  PRIMARY KEY (run, time, text)
) WITHOUT ROWID;
CREATE TABLE tag (
  run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE, tag TEXT NOT NULL, removed INTEGER NOT NULL,
  PRIMARY KEY (run, tag)
) WITHOUT ROWID;
CREATE INDEX tag_by_name ON tag (tag);
CREATE TABLE forgotten (rank TEXT PRIMARY KEY, time INTEGER NOT NULL) WITHOUT ROWID
"""
"""`run.id`: from the training, with `~2`, `~3` … appended if an earlier run or another user's run already has this id.
`run.name`: from the training, until the run is renamed. `run.resumes`: id of the run that this one continues.
`run.updated`: time of the daemon's last write, about every ten seconds while the run is active. `run.seconds` and
`rank.seconds` are measured with CLOCK_MONOTONIC. `started` and `ended` are wall-clock times, and the wall clock may be
set in between.

`rank.peak`: peak over the run. `rank.batch`: samples per step of this rank. `rank.planned_steps`: planned steps.
`rank.folded_epochs`: number of epochs that were merged into the previous row because they were too short and too many.
`rank.metrics`: last logged values by name, JSON as in `epoch.metrics`. `rank.cpu_seconds`: CPU time of the process
and its children. `rank.package_energy`: joules of the machine's CPU packages (RAPL) while the rank ran;
`rank.package_unknown`: why this is unknown. `rank.exit_code`, `rank.exit_signal`: how the command of `gpumon run`
ended. `rank.loading`, `rank.workers`: how the DataLoader of the training loads batches, and in how many processes.
`rank.pass_waits`: seconds waited for the first batch and the end of `rank.passes` passes over it. NULL also means 0.
`rank.worker_cpu_seconds`: CPU time of the children of the process.

`epoch.ended` NULL: the epoch is open, or the run died in it. `epoch.seconds`: length by CLOCK_MONOTONIC of the
training; for an epoch without an end, up to the time when it was last seen. `epoch.steps`: training steps only, if the
epoch has a training phase; `epoch.trained`: the seconds of that phase. `epoch.metrics`: a JSON object, with the strings
NaN, Infinity and -Infinity for values that JSON numbers cannot express. `epoch.wait`, `phase.wait`: seconds waited for
data; `wait_of`: seconds of the phases in which the wait was measured. `peak`: the framework's peak of live tensors in
bytes, over all devices of the rank; `peak_reached` is 1 if the peak was reached in this epoch or phase, 0 if `peak` is
an upper bound, and NULL if it is unknown.

`phase.place`: position among the phases of its epoch in order of first entry, from 0. `phase.spans`: JSON list of
[start in seconds after the start of the epoch, length in seconds] for the first 16 times that the phase was entered;
NULL for the training phase. `outside`: time of a rank outside its epochs, by phase; phase `other` is the time in no
phase, and phase '' is the sum of all phases; `spans` start at the start of the rank. `step_row`: steps of a rank
without epochs; a long training has 20 to 50 such rows; `first_step`: number of steps before the row.

`usage.ordinal`: ordinal of the epoch; -1: the whole run; -2: time outside epochs; -1000 - n: step row n.
`usage.utilization_from`: `driver` (its own sample buffer), `ticks`, or '' if nothing was sampled.
`usage.energy_least`: lower bound of the joules; equal to `energy` if that is known. `usage.energy_from`,
`usage.energy_to`: the driver's counter at the start and end in joules, if `energy` is their difference. The energy of
ranks that share a GPU at different times is computed from the union of these intervals.

`trace`: metrics over the whole run in at most 2048 points, `step` seconds apart; `cells` is a columnar
block (`trace.py`), NaN if nothing was sampled; `columns` is a JSON list of metric names.
With uuid '' it has the metrics that the rank logged.
`progress`: state from which a daemon continues a rank after a restart. It is private to the daemon and is deleted when
all rows of the rank are written, some seconds after the rank's end.
`parameter`: `kind` 0 is a parameter of the training, 1 a fact that gpumon detected about the program, 2 (with `name`
'') the number of parameters and notes that exceeded the limit. `value` is JSON: text, number, true, false or null.
`place` keeps their order. If several ranks set the same name, the lowest (`rank`) has priority. `note.author`: user who
added it; '' if the training added it. `tag.removed` 1: a user removed the tag; it is not added again although the
training still has it.
`forgotten`: keys of ranks whose run was deleted, and the time of the deletion (ns since 1970). They are stored because
the boards of these ranks may exist for a while."""

LEDGER_FILE = FileKind(
    "ledger",
    VERSION,
    TABLES,
    when_unwritable="measurements are kept in memory meanwhile",
    when_refused="this daemon records no runs",
)
