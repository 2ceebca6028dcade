"""Summarizes a run with thousands of epochs in SQL.

The result consists of totals, bands of epochs, and the epochs to read in full. Views then read only the rows of these
epochs. Ranks are combined by the same rules as in `aggregate`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from gpumon.analysis.thresholds import INPUT_BOUND, MOSTLY_IDLE, SAMPLED, THROTTLED
from gpumon.common.numbers import LARGEST, NAN, is_known
from gpumon.model.frame import TRAINING
from gpumon.storage.ledger.records import EpochTimes
from gpumon.storage.ledger.row_keys import WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.summary import EpochLengths, EpochSums

BANDS = 1000
"""Maximum number of bands of a run."""
_RANKS = "rank IN (SELECT key FROM rank WHERE run = ?1)"


@dataclass(frozen=True, slots=True)
class EpochBand:
    """A range of consecutive epochs of a run that views draw as one. Missing numbers are NaN."""

    first: int
    """Ordinal of the first epoch."""
    last: int
    """Ordinal of the last epoch."""
    first_epoch: int
    """Epoch number of the first epoch."""
    last_epoch: int
    """Epoch number of the last epoch."""
    begun: float
    """Start of the band, in seconds since 1970."""
    ended: float
    """End of the band, in seconds since 1970."""
    longest: float
    """Length in seconds of the longest ended epoch. The first epoch of the run does not count, because it also compiles
    code and fills caches."""


@dataclass(frozen=True, slots=True)
class LongRun:
    """Summary of a run with many epochs."""

    begun: int
    """Number of epochs that have started."""
    bands: Sequence[EpochBand]
    """Bands that together contain all epochs, oldest first."""
    suspects: Sequence[int]
    """Ordinals of epochs for which a diagnosis rule may report a finding, oldest first."""
    first_nonfinite: int | None
    """Ordinal of the first epoch that logged NaN or infinity, if any."""
    with_phases: Sequence[int]
    """Ordinals of the newest epochs in which the first rank has phases other than training."""
    phases: int
    """Number of recorded spans of phases other than training."""
    sums: EpochSums
    lengths: EpochLengths
    """Lengths of all epochs except the newest, because the ring may have newer data about that one."""


def has_totals(db: sqlite3.Connection, run: str) -> bool:
    """Return whether the ledger has the usage of every GPU over the whole run, not only per epoch."""
    query = (
        f"SELECT (SELECT count(*) FROM device WHERE {_RANKS}) = (SELECT count(*) FROM usage"
        f" WHERE {_RANKS} AND ordinal = {WHOLE_RUN} AND phase = '{WHOLE_EPOCH}')"
    )
    return bool(_fetch_one(db, query, run)[0])


def long_run(db: sqlite3.Connection, run: str, begun: int, phases: int) -> LongRun:
    """Return a summary of a run with many epochs.

    `begun`: number of epochs that have started. `phases`: maximum number of epochs in `LongRun.with_phases`.
    """
    ranks = [key for (key,) in _fetch_all(db, "SELECT key FROM rank WHERE run = ? ORDER BY rank, key", run)]
    gpus, uuids = _fetch_one(db, f"SELECT count(*), count(DISTINCT uuid) FROM device WHERE {_RANKS}", run)
    epochs = _ONE_RANK if len(ranks) == 1 else _RANKS_JOINED
    size = next(size for size in _sizes() if begun <= size * BANDS)
    blocks = _fetch_all(db, _BLOCKS.format(epochs=epochs), run, size, begun - 1)
    overlap = _fetch_one(db, _OVERLAP.format(epochs=epochs), run)[0] if len(ranks) > 1 else 0.0
    max_energy = _fetch_one(db, _ENERGIES, run, begun - 1)[0] if uuids == gpus else NAN  # ranks that share a GPU
    with_phases = _fetch_all(db, _WITH_PHASES, ranks[0], phases)
    return LongRun(
        begun=begun,
        bands=[
            EpochBand(*block[:4], *map(_real, block[4:7]))
            for block in blocks
            if is_known(_real(block[4])) and all(isinstance(cell, int) for cell in block[:4])
        ],
        suspects=[ordinal for (ordinal,) in _fetch_all(db, _SUSPECTS, run) if isinstance(ordinal, int)],
        first_nonfinite=_fetch_one(db, f"SELECT min(ordinal) FROM epoch WHERE {_RANKS} AND ({_NONFINITE})", run)[0],
        with_phases=[ordinal for (ordinal,) in with_phases if isinstance(ordinal, int)],
        phases=round(_fetch_one(db, _PHASES, ranks[0])[0]),
        sums=_sums([block[13:] for block in blocks], _real(overlap)),
        lengths=_lengths([block[7:13] for block in blocks if block[0] < begun - 1], _real(max_energy)),
    )


def epoch_times(db: sqlite3.Connection, run: str, begun: int) -> list[EpochTimes]:
    """Return the times, steps and energy of a run's epochs, grouped into at most about `BANDS` groups of equal size.

    `begun`: number of epochs that have started. Energy is NaN if several ranks share a device, because each of these
    ranks reports the energy of the whole device.
    """
    ranks = _fetch_one(db, "SELECT count(*) FROM rank WHERE run = ?", run)[0]
    size = next(size for size in _sizes() if begun <= size * BANDS)
    rows = _fetch_all(db, _TIMES.format(epochs=_ONE_RANK if ranks == 1 else _RANKS_JOINED), run, size)
    shared = _fetch_one(db, f"SELECT count(*) - count(DISTINCT uuid) FROM device WHERE {_RANKS}", run)[0]
    joules = {} if shared else dict(_fetch_all(db, _JOULES, run, size))
    times = []
    for first, *cells, number in rows:
        begun_at, ended, seconds, steps = map(_real, cells)
        counted = round(steps) if is_known(steps) else 0
        times.append(EpochTimes(begun_at, ended, seconds, counted, _real(joules.get(first)), number))
    return times


_PIECE = "ordinal / ?2, CASE WHEN ended IS NULL THEN ordinal ELSE -1 END"
"""SQL expressions by which epochs are grouped. Each open epoch is a separate group."""
_TIMES = f"""
SELECT min(ordinal), min(begun) / 1e9, max(ended) / 1e9,
  total(CASE WHEN ended IS NULL THEN seconds ELSE max(coalesce(seconds, 0), (ended - begun) / 1e9) END),
  total(steps), count(*)
FROM ({{epochs}}) GROUP BY {_PIECE} ORDER BY 2
"""
_JOULES = f"""
SELECT min(ordinal), CASE WHEN count(*) = count(energy) THEN sum(energy) END
FROM (
  SELECT usage.ordinal, energy, nullif(usage.ordinal IN (SELECT ordinal FROM epoch WHERE {_RANKS} AND ended IS NULL), 1)
    AS ended
  FROM usage WHERE {_RANKS} AND ordinal >= 0 AND phase = '{WHOLE_EPOCH}'
) GROUP BY {_PIECE}
"""
_ONE_RANK = f"""
SELECT ordinal, epoch, begun, ended, steps, wait, wait_of, trained,
  CASE WHEN ended IS NOT NULL OR seconds > 0 THEN coalesce(seconds, (ended - begun) / 1e9) END AS seconds
FROM epoch WHERE {_RANKS}
"""
_RANKS_JOINED = f"""
SELECT ordinal, min(epoch) AS epoch, min(begun) AS begun,
  CASE WHEN count(*) = count(ended) THEN max(ended) END AS ended,
  max(steps) AS steps, avg(nullif(wait, 0)) AS wait, avg(wait_of) AS wait_of, max(trained) AS trained,
  CASE
    WHEN NOT max(ended IS NOT NULL OR coalesce(seconds, 0) > 0) THEN NULL
    WHEN count(*) = 1 THEN coalesce(max(seconds), (max(ended) - max(begun)) / 1e9)
    WHEN count(*) > count(ended) THEN max(begun / 1e9 + seconds) - min(begun) / 1e9
    WHEN max(seconds) IS NULL THEN (max(ended) - min(begun)) / 1e9
    WHEN max(abs((ended - begun) / 1e9 - seconds)) > 1 THEN max(seconds)
    ELSE max(max(seconds), (max(ended) - min(begun)) / 1e9)
  END AS seconds
FROM epoch WHERE {_RANKS} GROUP BY ordinal
"""
_LENGTH = "CASE WHEN ended IS NOT NULL THEN seconds END"
_WITH_STEPS = "CASE WHEN steps > 0 THEN {cell} END"
_SUM_WITH_STEPS = f"CASE WHEN count({_WITH_STEPS}) = count(nullif(steps, 0)) THEN total({_WITH_STEPS}) END"
_BLOCKS = f"""
SELECT min(ordinal), max(ordinal), min(epoch), max(epoch), min(begun) / 1e9,
  max(coalesce(ended / 1e9, begun / 1e9 + max(seconds, 0), begun / 1e9)),
  max(CASE WHEN ordinal != 0 THEN {_LENGTH} END),
  max(CASE WHEN ended IS NOT NULL THEN epoch END),
  count(ended), count({_LENGTH}), total({_LENGTH}), min({_LENGTH}), max({_LENGTH}),
  count(*), count(seconds), total(seconds), sum(nullif(steps, 0)), count(CASE WHEN trained > 0 THEN 1 END),
  {_SUM_WITH_STEPS.format(cell="CASE WHEN trained > 0 THEN trained ELSE seconds END")},
  {_SUM_WITH_STEPS.format(cell="seconds")},
  total(CASE WHEN wait > 0 AND wait_of > 0 THEN wait END), total(CASE WHEN wait > 0 AND wait_of > 0 THEN wait_of END)
FROM ({{epochs}}) GROUP BY ordinal / ?2, ordinal = ?3 ORDER BY 1
"""
"""Query for the bands, lengths and sums of blocks of epochs. The newest epoch is a separate block."""
_ENERGIES = f"""
SELECT max(energy) FROM (
  SELECT CASE WHEN count(*) = count(energy) THEN sum(energy) END AS energy FROM usage
  WHERE {_RANKS} AND ordinal >= 0 AND ordinal < ?2 AND phase = '{WHOLE_EPOCH}' GROUP BY ordinal
)
"""
_OVERLAP = """
SELECT total(max(0.0, min(until, begun + seconds) - begun)) FROM (
  SELECT begun, seconds, max(begun + seconds) OVER (
    ORDER BY begun, seconds ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS until FROM (SELECT begun / 1e9 AS begun, seconds FROM ({epochs}))
)
"""
_NONFINITE = "instr(metrics, 'NaN') OR instr(metrics, 'Infinity')"
"""SQL condition that is true if a logged metric may be NaN or infinite."""
_SUSPECTS = f"""
SELECT ordinal FROM epoch WHERE {_RANKS} AND (
  ended IS NULL OR {_NONFINITE}
  OR wait >= {INPUT_BOUND} * CASE WHEN wait_of > 0 THEN wait_of ELSE coalesce(seconds, (ended - begun) / 1e9) END
)
UNION
SELECT ordinal FROM usage WHERE {_RANKS} AND ordinal >= 0 AND phase = '{WHOLE_EPOCH}'
  AND (throttled_share >= {THROTTLED} OR idle_share >= {MOSTLY_IDLE}) AND sampled >= {SAMPLED} * seconds
ORDER BY 1
"""
"""Query for epochs in which a single rank or GPU meets the condition of a rule. Combined over all ranks and GPUs, such
an epoch may not meet the condition."""
_WITH_PHASES = f"""
SELECT DISTINCT ordinal FROM phase WHERE rank = ? AND phase != '{TRAINING}' AND spans IS NOT NULL
ORDER BY ordinal DESC LIMIT ?
"""
_PHASES = f"""
SELECT total(json_array_length(spans)) FROM phase WHERE rank = ? AND phase != '{TRAINING}' AND json_valid(spans)
"""


def _sums(blocks: Sequence[Sequence[Any]], overlap: float) -> EpochSums:
    columns = [[_real(cell) for cell in column] for column in zip(*blocks, strict=True)]
    number, known, seconds, _, trains, trained, stepped, waited, waited_of = map(sum, columns)
    steps = [cell for cell in columns[3] if is_known(cell)]
    return EpochSums(
        epochs=round(number),
        seconds=seconds if number == known else NAN,
        overlap=overlap,
        steps=round(sum(steps)) if steps else None,
        trained=trained if trains > 0 else NAN,
        stepped=stepped,
        waited=waited,
        waited_of=waited_of,
    )


def _lengths(blocks: Sequence[Sequence[Any]], max_energy: float) -> EpochLengths:
    last = max((block[0] for block in blocks if isinstance(block[0], int)), default=None)
    done, known, total, least, most = ([_real(cell) for cell in column] for column in [*zip(*blocks, strict=True)][1:])
    return EpochLengths(
        round(sum(done)), last, round(sum(known)), sum(total),
        min(filter(is_known, least), default=NAN), max(filter(is_known, most), default=NAN), max_energy,
    )  # fmt: skip


def _sizes() -> Iterator[int]:
    """Yield possible sizes of a band: 1, 2, 5, 10 and so on."""
    for power in count():
        yield from (10**power, 2 * 10**power, 5 * 10**power)


def _real(cell: Any) -> float:
    """Return a cell as a number, or NaN if it has another type."""
    return float(cell) if isinstance(cell, float | int) and -LARGEST < cell < LARGEST else NAN


def _fetch_one(db: sqlite3.Connection, query: str, *values: object) -> Sequence[Any]:
    return next(iter(_fetch_all(db, query, *values)))


def _fetch_all(db: sqlite3.Connection, query: str, *values: object) -> list[Any]:
    cursor = db.cursor()
    cursor.row_factory = None
    return cursor.execute(query, values).fetchall()
