"""The ledger's tables, as data and as SQL.

One SQLite file, `ledger.sqlite` in the state directory. Times are nanoseconds since 1970, durations
seconds, everything else base units; NULL is "not known", never 0. A run has one row however many
ranks it has; what was measured hangs on the rank (`rank.key`, the board's name) and the device (UUID).

An epoch is known by `ordinal`, which counts the epochs that a rank began, from 0: a resumed or odd loop
may use the same number twice. `usage` has one row for each rank, device, epoch and phase; `phase` ''
stands for the whole epoch, `ordinal` -1 for the whole run.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.metrics import IDLE, Unit
from gpumon.paths import LEDGER

FILE = LEDGER
WHOLE_RUN = -1
WHOLE_EPOCH = ""


class UsageColumn(NamedTuple):
    """A measured column of `usage`: one number for a device over a stretch of time."""

    name: str
    title: str
    heading: str
    """At most 8 letters."""
    unit: Unit
    help: str


USAGE: tuple[UsageColumn, ...] = (
    UsageColumn("seconds", "Time", "TIME", Unit.SECONDS, "Length of the stretch, by the training's own boundaries."),
    UsageColumn(
        "sampled",
        "Time sampled",
        "SAMPLED",
        Unit.SECONDS,
        "How much of it was seen by samples; less than the length where no daemon ran.",
    ),
    UsageColumn("utilization_mean", "Utilization", "UTIL", Unit.RATIO, "Mean over time."),
    UsageColumn(
        "utilization_p5", "Utilization, 5th percentile", "P5", Unit.RATIO, "A twentieth of the time was below."
    ),
    UsageColumn(
        "utilization_p95", "Utilization, 95th percentile", "P95", Unit.RATIO, "A twentieth of the time was above."
    ),
    UsageColumn(
        "idle_share", "Idle", "IDLE", Unit.RATIO, f"Share of the time with utilization below {IDLE * 100:g} %."
    ),
    UsageColumn(
        "energy",
        "Energy",
        "ENERGY",
        Unit.JOULES,
        "Of the whole board, from the driver's counter, interpolated at the boundaries; not told below one second "
        "and on MIG instances.",
    ),
    UsageColumn(
        "power_mean",
        "Power",
        "POWER",
        Unit.WATTS,
        "Mean over time: energy by time where energy is told, else of the samples.",
    ),
    UsageColumn("memory_used_peak", "Device memory, peak", "MEM MAX", Unit.BYTES, "The most that all processes held."),
    UsageColumn("memory_used_mean", "Device memory", "MEM", Unit.BYTES, "Mean of what all processes held."),
    UsageColumn(
        "run_used_peak",
        "Memory of the run, peak",
        "RUN MAX",
        Unit.BYTES,
        "The most that the run's processes held, from the driver: with contexts and libraries.",
    ),
    UsageColumn(
        "run_reserved_peak",
        "Framework memory, peak",
        "HELD MAX",
        Unit.BYTES,
        "The most that the framework's allocator held.",
    ),
    UsageColumn(
        "run_allocated_peak",
        "Tensors, peak",
        "LIVE MAX",
        Unit.BYTES,
        "The most in live tensors as read between steps, where activations are freed.",
    ),
    UsageColumn("run_allocated_mean", "Tensors", "ALLOC", Unit.BYTES, "Mean of what was in live tensors."),
    UsageColumn(
        "run_inactive_split_peak",
        "Fragments, peak",
        "FRAG MAX",
        Unit.BYTES,
        "The most in free parts of blocks that could not be given back.",
    ),
    UsageColumn(
        "throttled_share",
        "Throttled",
        "THROTTLE",
        Unit.RATIO,
        "Share of the time in which heat or a power brake held the clocks down.",
    ),
    UsageColumn(
        "capped_share",
        "Power capped",
        "CAPPED",
        Unit.RATIO,
        "Share of the time in which the power limit held the clocks down; normal at full load.",
    ),
    UsageColumn("temperature_start", "Temperature at the start", "TEMP 0", Unit.CELSIUS, "The first reading."),
    UsageColumn("temperature_mean", "Temperature", "TEMP", Unit.CELSIUS, "Mean over time."),
    UsageColumn("temperature_peak", "Temperature, peak", "TEMP MAX", Unit.CELSIUS, "The highest reading."),
    UsageColumn("clock_sm_mean", "SM clock", "CLOCK", Unit.HERTZ, "Mean over time."),
)

_FIRST = """
CREATE TABLE run (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, user TEXT NOT NULL, hostname TEXT NOT NULL, framework TEXT NOT NULL,
  source TEXT NOT NULL, label TEXT NOT NULL, driver TEXT NOT NULL, world_size INTEGER NOT NULL,
  epochs INTEGER, base INTEGER NOT NULL, first_epoch INTEGER NOT NULL,
  started INTEGER NOT NULL, ended INTEGER, state INTEGER NOT NULL,
  updated INTEGER NOT NULL, resumes TEXT
) WITHOUT ROWID;
CREATE INDEX run_by_time ON run (started);
CREATE INDEX run_by_name ON run (user, name, started);
CREATE TABLE rank (
  key TEXT PRIMARY KEY, run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  rank INTEGER NOT NULL, local_rank INTEGER NOT NULL, pid INTEGER NOT NULL,
  started INTEGER NOT NULL, ended INTEGER, state INTEGER NOT NULL,
  steps INTEGER NOT NULL, wait REAL, lost_events INTEGER NOT NULL,
  peak REAL, retries REAL, ooms REAL, batch INTEGER
) WITHOUT ROWID;
CREATE INDEX rank_by_run ON rank (run);
CREATE TABLE device (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, uuid TEXT NOT NULL,
  number INTEGER NOT NULL, name TEXT NOT NULL, memory_total REAL, power_limit REAL,
  PRIMARY KEY (rank, uuid)
) WITHOUT ROWID;
CREATE TABLE epoch (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, ordinal INTEGER NOT NULL,
  epoch INTEGER NOT NULL, begun INTEGER NOT NULL, ended INTEGER, seconds REAL,
  steps INTEGER NOT NULL, wait REAL, metrics TEXT NOT NULL,
  PRIMARY KEY (rank, ordinal)
) WITHOUT ROWID;
CREATE TABLE phase (
  rank TEXT NOT NULL, ordinal INTEGER NOT NULL, phase TEXT NOT NULL,
  seconds REAL NOT NULL, times INTEGER NOT NULL, steps INTEGER NOT NULL, wait REAL,
  PRIMARY KEY (rank, ordinal, phase),
  FOREIGN KEY (rank, ordinal) REFERENCES epoch (rank, ordinal) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE usage (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, ordinal INTEGER NOT NULL,
  phase TEXT NOT NULL, uuid TEXT NOT NULL,
  utilization_from TEXT NOT NULL,
  seconds REAL, sampled REAL, utilization_mean REAL, utilization_p5 REAL, utilization_p95 REAL, idle_share REAL,
  energy REAL, power_mean REAL, memory_used_peak REAL, memory_used_mean REAL, run_used_peak REAL,
  run_reserved_peak REAL, run_allocated_peak REAL, run_allocated_mean REAL, run_inactive_split_peak REAL,
  throttled_share REAL, capped_share REAL, temperature_start REAL, temperature_mean REAL, temperature_peak REAL,
  clock_sm_mean REAL,
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
"""
"""`epoch.metrics`: JSON object. `rank.peak`: the highest over the run. `rank.batch`: samples of a step of this rank.
`epoch.wait`, `phase.wait`: seconds waited for data in it. `epoch.ended` NULL: the
epoch is going on, or the run went away in it. `run.resumes`: id of the run that this one goes on with.
`epoch.seconds` is by the steady clock of the training; of an epoch that did not end, it is how far it was seen.
`run.updated`: when the daemon last wrote the run, about every ten seconds while it goes on. `run.id` is the id
that the training gave, with `~2`, `~3` … behind it where an earlier run, or another user's, has that one already.
`usage.utilization_from`: `driver` (its own sample buffer), `ticks`, or '' where nothing was sampled.
`trace`: the course of the whole run in at most 2048 points, `step` seconds apart; `cells` is zlib of little-endian
f4 [column][point][minimum, mean, maximum], NaN where nothing was sampled; `columns` a JSON list of metric names.
With uuid '' it holds what the rank logged, by name.
`progress`: what a daemon needs to go on with a rank after it was killed; its own business, gone when the rank ends."""

_SECOND = "ALTER TABLE phase ADD COLUMN spans TEXT"
"""`phase.spans`: when it was entered and for how long, a JSON list of [seconds after the epoch's begin, seconds];
the first 16 times of a phase that is no training, NULL of training."""

_THIRD = """
ALTER TABLE run ADD COLUMN seconds REAL;
ALTER TABLE rank ADD COLUMN seconds REAL;
ALTER TABLE epoch ADD COLUMN trained REAL;
ALTER TABLE epoch ADD COLUMN wait_of REAL;
ALTER TABLE epoch ADD COLUMN peak REAL;
ALTER TABLE epoch ADD COLUMN peak_reached INTEGER;
ALTER TABLE phase ADD COLUMN place INTEGER;
ALTER TABLE phase ADD COLUMN peak REAL;
ALTER TABLE phase ADD COLUMN peak_reached INTEGER
"""
"""`run.seconds`, `rank.seconds`: how long, by the steady clock: `started` and `ended` are of the wall clock, which
may be set in between. `epoch.steps` are those of training where the epoch has a phase of it, and `epoch.trained`
the seconds of that. `epoch.wait_of`: seconds of the phases in which somebody measured the wait.
`phase.place`: the how many-th phase of its epoch it was, by when it was first entered.
`peak`: the framework's own peak of live tensors, bytes, over all devices of the rank; `peak_reached` 1: it was
reached in here; 0: it was no more than that. NULL: the framework has none, or it was not read.
`epoch.metrics`: since this version what is no number in JSON is one of the texts NaN, Infinity and -Infinity."""

MIGRATIONS: tuple[str, ...] = (_FIRST, _SECOND, _THIRD)
VERSION = len(MIGRATIONS)
"""`PRAGMA user_version`; `MIGRATIONS[n]` leads from version n to n + 1, and never changes once it was released."""
