"""The ledger's tables as SQL. A ledger of another version is moved aside: see `sqlite.write`."""

from __future__ import annotations

from gpumon.model.columns import USAGE
from gpumon.storage.sqlite.write import FileKind

VERSION = 1
"""`PRAGMA user_version`; it goes up with each change of the tables."""

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
  cpu_seconds REAL, package_energy REAL, package_unknown TEXT
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
"""`run.id`: as the training gave it, with `~2`, `~3` … behind it where an earlier run, or another user's, has that one
already. `run.name`: by the training until it is renamed. `run.resumes`: id of the run that this one continues.
`run.updated`: when the daemon last wrote the run, about every ten seconds while it goes on. `run.seconds`,
`rank.seconds`: by the steady clock; `started` and `ended` are of the wall clock, which may be set in between.

`rank.peak`: the highest over the run. `rank.batch`: samples of a step of this rank. `rank.planned_steps`: by its plan.
`rank.folded_epochs`: epochs that are in the row of the one before, as they were too short and too many.
`rank.metrics`: what was logged last, by name, JSON as in `epoch.metrics`. `rank.cpu_seconds`: CPU time of the process
and of those that it started. `rank.package_energy`: joules of the machine's CPU packages, by RAPL, while the rank ran;
`rank.package_unknown`: why that is not known.

`epoch.ended` NULL: the epoch is going on, or the run went away in it. `epoch.seconds`: by the steady clock of the
training; of an epoch that did not end, as far as it was seen. `epoch.steps`: those of training where the epoch has a
phase of it; `epoch.trained`: the seconds of that. `epoch.metrics`: a JSON object; what is no number in JSON is one of
the texts NaN, Infinity and -Infinity. `epoch.wait`, `phase.wait`: seconds waited for data in it; `wait_of`: seconds of
the phases in which the wait was measured. `peak`: the framework's own peak of live tensors, bytes, over all devices of
the rank; `peak_reached` 1: it was reached in here; 0: it was no more than that; NULL: the framework has none, or it was
not read.

`phase.place`: its place among the phases of its epoch, from 0, by when it was first entered. `phase.spans`: when it was
entered and for how long, a JSON list of [seconds after the epoch's begin, seconds]; the first 16 times of a phase that
is no training, NULL of training. `outside`: what a rank did outside its epochs, by phase, with `other` for what is in
none; '' is all of it together; `spans` are counted from the start of the rank. `step_row`: rows of steps of a rank that
has no epochs, 20 to 50 of a long training; `first_step`: steps made before it.

`usage.ordinal`: of the epoch; -1: the whole run, -2: outside its epochs, -1000 - n: row n of steps.
`usage.utilization_from`: `driver` (its own sample buffer), `ticks`, or '' where nothing was sampled.
`usage.energy_least`: joules that were surely used in the stretch; equal to `energy` where that is known.
`usage.energy_from`, `usage.energy_to`: the driver's counter at its begin and end, joules, where `energy` is what lies
between them: ranks that share a GPU, and are not in step, used what lies in any of theirs.

`trace`: the course of the whole run in at most 2048 points, `step` seconds apart; `cells` is zlib of little-endian
f4 [column][point][minimum, mean, maximum], NaN where nothing was sampled; `columns` a JSON list of metric names.
With uuid '' it holds what the rank logged, by name.
`progress`: what a daemon needs to go on with a rank after it was killed; its own business, gone when all of the rank is
written, some seconds after its end.
`parameter`: `kind` 0 is what the training was given, 1 what gpumon found of its program, 2 (with `name` '') how many
parameters and notes had no room. `value` is JSON: text, number, true, false or null. `place` keeps their order; of
ranks that give the same name, the lowest (`rank`) stands. `note.author`: user who wrote it later; '' where the training
did. `tag.removed` 1: taken off, and not to come again because the training still has it.
`forgotten`: keys of ranks whose run was deleted, and when (ns since 1970): their boards may lie there for a while."""

LEDGER_FILE = FileKind(
    "ledger",
    VERSION,
    TABLES,
    when_unwritable="measurements are kept in memory meanwhile",
    when_refused="this daemon records no runs",
)
