"""The ledger's measured columns as data; `migrations` has its tables as SQL.

One SQLite file, `ledger.sqlite` in the state directory. Times are nanoseconds since 1970, durations
seconds, everything else base units; NULL is "not known", never 0. A run has one row however many
ranks it has; what was measured hangs on the rank (`rank.key`, the board's name) and the device (UUID).

An epoch is known by `ordinal`, which counts the epochs that a rank began, from 0: a resumed or odd loop
may use the same number twice. `usage` has one row for each rank, device, epoch and phase; `phase` ''
stands for the whole epoch, `ordinal` -1 for the whole run and -2 for all of it that lies outside its epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpumon.model.metrics import IDLE, Unit
from gpumon.storage.sqlite.write import FileKind

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
epoch is going on, or the run went away in it. `run.resumes`: id of the run that this one continues.
`epoch.seconds` is by the steady clock of the training; of an epoch that did not end, it is how far it was seen.
`run.updated`: when the daemon last wrote the run, about every ten seconds while it goes on. `run.id` is the id
that the training gave, with `~2`, `~3` … behind it where an earlier run, or another user's, has that one already.
`usage.utilization_from`: `driver` (its own sample buffer), `ticks`, or '' where nothing was sampled.
`trace`: the course of the whole run in at most 2048 points, `step` seconds apart; `cells` is zlib of little-endian
f4 [column][point][minimum, mean, maximum], NaN where nothing was sampled; `columns` a JSON list of metric names.
With uuid '' it holds what the rank logged, by name.
`progress`: what a daemon needs to go on with a rank after it was killed; its own business, gone when all of the rank is
written, some seconds after its end."""

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
`phase.place`: its place among the phases of its epoch, from 0, by when it was first entered.
`peak`: the framework's own peak of live tensors, bytes, over all devices of the rank; `peak_reached` 1: it was
reached in here; 0: it was no more than that. NULL: the framework has none, or it was not read.
`epoch.metrics`: since this version what is no number in JSON is one of the texts NaN, Infinity and -Infinity."""

_FOURTH = """
CREATE TABLE outside (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, phase TEXT NOT NULL,
  seconds REAL, times INTEGER NOT NULL, steps INTEGER NOT NULL, wait REAL, wait_of REAL,
  spans TEXT, place INTEGER, peak REAL, peak_reached INTEGER,
  PRIMARY KEY (rank, phase)
) WITHOUT ROWID;
CREATE TABLE step_row (
  rank TEXT NOT NULL REFERENCES rank (key) ON DELETE CASCADE, ordinal INTEGER NOT NULL,
  first_step INTEGER NOT NULL, steps INTEGER NOT NULL, begun INTEGER NOT NULL, ended INTEGER, seconds REAL NOT NULL,
  trained REAL, wait REAL, wait_of REAL, peak REAL, peak_reached INTEGER, metrics TEXT NOT NULL,
  PRIMARY KEY (rank, ordinal)
) WITHOUT ROWID;
ALTER TABLE rank ADD COLUMN metrics TEXT;
ALTER TABLE rank ADD COLUMN planned_steps INTEGER;
ALTER TABLE rank ADD COLUMN cpu_seconds REAL;
ALTER TABLE rank ADD COLUMN package_energy REAL;
ALTER TABLE rank ADD COLUMN package_unknown TEXT
"""
"""`outside`: what a rank did outside its epochs, by phase, with `other` for what is in none; '' is all of it together.
`spans` are counted from the begin of the rank. Its usage of devices is in `usage` with `ordinal` -2.
`step_row`: rows of steps of a rank that has no epochs, 20 to 50 of a long training: `first_step` steps were made
before it. Usage of devices in row n is in `usage` with `ordinal` -1000 - n.
`rank.metrics`: what was logged last, by name, JSON as in `epoch.metrics`. `rank.planned_steps`: by its plan.
`rank.cpu_seconds`: CPU time of the process and of those that it started. `rank.package_energy`: joules of the
machine's CPU packages, by RAPL, while the rank ran; `rank.package_unknown`: why that is not known."""

_FIFTH = """
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
"""`parameter`: `kind` 0 is what the training was given, 1 what gpumon found of its program, 2 (with `name` '') how many
parameters and notes had no room. `value` is JSON: text, number, true, false or null. `place` keeps their order; of
ranks that give the same name, the lowest (`rank`) stands.
`note.author`: user who wrote it later; '' where the training did. `tag.removed` 1: taken off, and not to come again
because the training still has it. `run.name` is by the training until it is renamed.
`forgotten`: keys of ranks whose run was deleted, and when (ns since 1970): their boards may lie there for a while."""

_SIXTH = """
ALTER TABLE rank ADD COLUMN folded_epochs INTEGER
"""
"""`rank.folded_epochs`: epochs of a rank that are in the row of the one before, as they were too short and too many."""

_SEVENTH = """
ALTER TABLE usage ADD COLUMN energy_least REAL;
ALTER TABLE usage ADD COLUMN energy_from REAL;
ALTER TABLE usage ADD COLUMN energy_to REAL
"""
"""`usage.energy_least`: joules that were surely used in the stretch; equal to `energy` where that is known.
`usage.energy_from`, `usage.energy_to`: the driver's counter at its begin and end, joules, where `energy` is what lies
between them: ranks that share a GPU, and are not in step, used what lies in any of theirs."""

MIGRATIONS: tuple[str, ...] = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH)
LEDGER_FILE = FileKind(
    "ledger",
    MIGRATIONS,
    meanwhile="measurements are kept in memory meanwhile",
    refused="this daemon records no runs",
)
VERSION = len(MIGRATIONS)
"""`PRAGMA user_version`; `MIGRATIONS[n]` leads from version n to n + 1, and never changes once it was released."""
OUTSIDE_SINCE = 4
"""Version from which a ledger has the tables `outside` and `step_row`."""


WHOLE_RUN = -1
OUTSIDE_EPOCHS = -2
STEP_ROWS = -1000
"""`ordinal` in `usage` of the first row of steps; those behind it count down."""
WHOLE_EPOCH = ""
OTHER = "other"
"""Phase of what lies outside epochs and in no phase."""


class OverDevices(Enum):
    """Rule by which several devices become one number."""

    SUM = "sum"
    """Unknown where one is; ranks on one device count it once."""
    MEAN = "mean"
    HIGHEST = "highest"
    LOWEST = "lowest"


class OverTime(Enum):
    """Rule by which stretches behind each other become one number."""

    SUM = "sum"
    """Unknown where one is."""
    MEAN = "mean"
    """Weighed by the time sampled."""
    HIGHEST = "highest"
    FIRST = "first"
    UNKNOWN = "unknown"
    """It does not follow from its parts, as a percentile."""


class MeasuredBy(Enum):
    """Rule by which samples of a metric become one number."""

    MEAN = "mean"
    """Weighed by how long each value held."""
    PEAK = "peak"
    FIRST = "first"
    OWN = "own"
    """By code of its own in `usage`."""


@dataclass(frozen=True, slots=True)
class UsageColumn:
    """A measured column of `usage`: one number for a device over a stretch of time."""

    name: str
    title: str
    heading: str
    """At most 8 letters."""
    unit: Unit
    help: str
    over_devices: OverDevices
    over_time: OverTime
    measured_by: MeasuredBy = MeasuredBy.OWN
    of: str = ""
    """The metric of the device that it is measured from, such as `gpu.power`."""


def _mean(name: str, title: str, heading: str, unit: Unit, help: str, of: str) -> UsageColumn:
    return UsageColumn(
        name, title, heading, unit, help,
        over_devices=OverDevices.MEAN, over_time=OverTime.MEAN, measured_by=MeasuredBy.MEAN, of=of,
    )  # fmt: skip


def _peak(name: str, title: str, heading: str, unit: Unit, help: str, of: str) -> UsageColumn:
    return UsageColumn(
        name, title, heading, unit, help,
        over_devices=OverDevices.HIGHEST, over_time=OverTime.HIGHEST, measured_by=MeasuredBy.PEAK, of=of,
    )  # fmt: skip


def _own(name: str, title: str, heading: str, unit: Unit, help: str,
         over_devices: OverDevices = OverDevices.MEAN, over_time: OverTime = OverTime.MEAN) -> UsageColumn:  # fmt: skip
    return UsageColumn(name, title, heading, unit, help, over_devices=over_devices, over_time=over_time)


# name, title, heading, unit, help; then the rules, or the metric that it is measured from
USAGE: tuple[UsageColumn, ...] = (
    _own("seconds", "Time", "TIME", Unit.SECONDS, "Duration, by the training's own boundaries.",
         over_devices=OverDevices.HIGHEST, over_time=OverTime.SUM),
    _own("sampled", "Time sampled", "SAMPLED", Unit.SECONDS,
         "Time covered by samples; less than the duration if no daemon was running.",
         over_devices=OverDevices.LOWEST, over_time=OverTime.SUM),
    _own("utilization_mean", "Utilization", "UTIL", Unit.RATIO, "Mean over time."),
    _own("utilization_p5", "Utilization, 5th percentile", "P5", Unit.RATIO, "Utilization was lower for 5 % of "
                                                                            "the time.",
         over_devices=OverDevices.LOWEST, over_time=OverTime.UNKNOWN),
    _own("utilization_p95", "Utilization, 95th percentile", "P95", Unit.RATIO, "Utilization was higher for 5 % of "
                                                                               "the time.",
         over_devices=OverDevices.HIGHEST, over_time=OverTime.UNKNOWN),
    _own("idle_share", "Idle", "IDLE", Unit.RATIO, f"Share of the time with utilization below {IDLE * 100:g} %."),
    _own("energy", "Energy", "ENERGY", Unit.JOULES,
         "Of the whole board, from the driver's counter, interpolated at the boundaries; unknown below one second "
         "and on MIG instances.", over_devices=OverDevices.SUM, over_time=OverTime.SUM),
    UsageColumn("power_mean", "Power", "POWER", Unit.WATTS,
                "Mean over time: energy by time if energy is known, else mean of the samples.",
                over_devices=OverDevices.SUM, over_time=OverTime.MEAN, measured_by=MeasuredBy.MEAN, of="gpu.power"),
    _peak("memory_used_peak", "Device memory, peak", "MEM MAX", Unit.BYTES, "Peak memory of all processes.",
          "gpu.memory_used"),
    _mean("memory_used_mean", "Device memory", "MEM", Unit.BYTES, "Mean memory of all processes.",
          "gpu.memory_used"),
    _peak("run_used_peak", "Memory of the run, peak", "RUN MAX", Unit.BYTES,
          "Peak memory of the run's processes, from the driver: with contexts and libraries.", "gpu.run_used"),
    _peak("run_reserved_peak", "Framework memory, peak", "HELD MAX", Unit.BYTES,
          "Peak memory reserved by the framework's allocator.", "gpu.run_reserved"),
    _peak("run_allocated_peak", "Tensors, peak", "LIVE MAX", Unit.BYTES,
          "Peak memory in live tensors as read between steps, when activations are freed.", "gpu.run_allocated"),
    _mean("run_allocated_mean", "Tensors", "ALLOC", Unit.BYTES, "Mean memory in live tensors.",
          "gpu.run_allocated"),
    _peak("run_inactive_split_peak", "Fragments, peak", "FRAG MAX", Unit.BYTES,
          "Peak of free parts of blocks that could not be returned to the driver.", "gpu.run_inactive_split"),
    _own("throttled_share", "Throttled", "THROTTLE", Unit.RATIO,
         "Share of the time during which heat or a power brake held the clocks down."),
    _own("capped_share", "Power capped", "CAPPED", Unit.RATIO,
         "Share of the time during which the power limit held the clocks down; normal at full load."),
    UsageColumn("temperature_start", "Temperature at the start", "TEMP 0", Unit.CELSIUS, "The first reading.",
                over_devices=OverDevices.MEAN, over_time=OverTime.FIRST,
                measured_by=MeasuredBy.FIRST, of="gpu.temperature"),
    _mean("temperature_mean", "Temperature", "TEMP", Unit.CELSIUS, "Mean over time.", "gpu.temperature"),
    _peak("temperature_peak", "Temperature, peak", "TEMP MAX", Unit.CELSIUS, "The highest reading.", "gpu.temperature"),
    _mean("clock_sm_mean", "SM clock", "CLOCK", Unit.HERTZ, "Mean over time.", "gpu.clock_sm"),
    _own("energy_least", "Energy, at least", "≥ENERGY", Unit.JOULES,
         "The energy where it is known; else the part of it that surely belongs here, because a gap in the readings "
         "lies across a boundary.", over_devices=OverDevices.SUM, over_time=OverTime.SUM),
)  # fmt: skip
"""In the order of a row's values. A new one stands at its end, and has a script of its own in `migrations`."""
