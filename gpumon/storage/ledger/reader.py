"""Reads runs and their rows from ledgers, and resolves a run id or name that a user typed.

A daemon may write at the same time. Each query of `Ledger` is one read transaction, so its results are consistent.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from gpumon.common.errors import GpumonError, NotBegunError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.paths import may_exist, open_regular
from gpumon.common.privacy import SHOWN, current_policy
from gpumon.common.text import clean, cut
from gpumon.model import units
from gpumon.model.frame import TRAINING, RunState
from gpumon.model.run import facts_from_row
from gpumon.storage.ledger import decode
from gpumon.storage.ledger.combine import sampled_share, totals
from gpumon.storage.ledger.decode import (
    Cells,
    ResultColumns,
    epoch_rows,
    outside_rows,
    phase_rows,
    step_rows,
    usage_rows,
)
from gpumon.storage.ledger.epoch_join import join_run
from gpumon.storage.ledger.long_run import LongRun, epoch_times, has_totals, long_run
from gpumon.storage.ledger.metadata import metadata_conditions, metadata_from_rows, tag_names
from gpumon.storage.ledger.records import (
    SAMPLE_DELAY,
    UNSEEN_AFTER,
    USAGE_INDEX,
    DeviceRow,
    EpochTimes,
    Record,
    RunMetadata,
    RunNames,
    RunRow,
    RunSummary,
    RunTrace,
    SettledEpochs,
)
from gpumon.storage.ledger.row_keys import OUTSIDE_EPOCHS, WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.schema import LEDGER_FILE, VERSION
from gpumon.storage.sqlite.read import describe_error, open_to_read
from gpumon.storage.sqlite.write import damage_error

NOTHING = "no runs recorded yet: 'gpumon daemon' records trainings that publish their epochs (docs/train/index.md)"
"""Message for an empty ledger. It is correct with and without a running daemon."""
_MAX_METADATA_ROWS = 1024
"""Maximum number of parameters, notes or tags that are read for a run. gpumon itself records fewer."""
_MAX_ROW = 16 * 1024
"""Maximum bytes of a row of the tables that have many rows per run. gpumon writes at most half as many. A longer cell
counts as unknown, and is not kept in memory."""
_RANKS = "IN (SELECT key FROM rank WHERE run = ?1)"
_WITH_EPOCHS = "SELECT key FROM rank WHERE run = ? AND EXISTS (SELECT 1 FROM main.epoch WHERE epoch.rank = rank.key)"

_ENDED_IN_ALL = f"""
SELECT count(*) FROM (
  SELECT ordinal FROM epoch WHERE rank {_RANKS} GROUP BY ordinal HAVING count(*) = count(CASE WHEN ended > 0 THEN 1 END)
) WHERE ordinal <= (
  SELECT coalesce(min(newest), {1 << 62}) FROM (
    SELECT max(epoch.ordinal) AS newest FROM rank JOIN epoch ON epoch.rank = rank.key
    WHERE rank.run = ?1 AND rank.ended IS NULL GROUP BY rank.key
  )
)
"""
"""Query for the number of epochs that ended in each rank that has them, and that no running rank has yet to begin."""


class Ledger:
    """A ledger file, open for reading.

    Raises GpumonError if the file is missing, damaged, or was written by another version of gpumon.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._db = _open_file(path)
        self._db.row_factory = decode.cells_of
        self._db.execute("PRAGMA temp_store = MEMORY")
        self._joined = ""
        """Stored id of the run whose epochs were joined in the open transaction."""
        self._is_counted_differently = False
        """Whether the ranks of this run count its epochs differently; see `epoch_join`."""

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def runs(
        self, *, user: str = "", name: str = "", since: float = NAN, running: bool = False, limit: int = 0,
        tags: Sequence[str] = (), where: Sequence[tuple[str, str]] = (),
    ) -> list[RunSummary]:  # fmt: skip
        """Return the runs that match all given criteria, newest first.

        `user`: name of the user. `name`: first characters of the run's name. `since`: earliest start time (s since
        1970). `running`: only runs that are still running. `limit`: maximum number of runs, 0 for all. `tags`: tags
        that a run must have. `where`: parameters that a run must have, as pairs of name and value.
        """
        clauses, values = ["1"], list[object]()
        if user:
            clauses.append("user = ?")
            values.append(user)
        if name:
            clauses.append("substr(name, 1, length(?)) = ?")
            values += [name, name]
        if is_known(since):
            clauses.append("started >= ?")
            values.append(since * 1e9)
        if running:
            clauses.append(f"state = {RunState.RUNNING:d}")
        for table, condition, wanted in metadata_conditions(tags, where):
            clauses.append(f"id IN (SELECT run FROM {table} WHERE {condition})")
            values += wanted
        query = f"SELECT * FROM run WHERE {' AND '.join(clauses)} ORDER BY started DESC, id LIMIT {limit or -1:d}"
        with self.snapshot():
            return [self._summary(decode.run_row(row)) for row in self._rows(query, *values)]

    def candidates(self, beginning: str = "", limit: int = 0) -> list[RunRow]:
        """Return at most `limit` runs (0: all) whose id or name starts with `beginning`, newest first."""
        query = (
            "SELECT * FROM run WHERE substr(id, 1, length(?)) = ? OR substr(name, 1, length(?)) = ?"
            f" ORDER BY started DESC, id LIMIT {limit or -1:d}"
        )
        with self.snapshot():
            return [decode.run_row(row) for row in self._rows(query, *[beginning] * 4)]

    def names(self) -> list[RunNames]:
        """Return the id, user and framework of every run. With thousands of runs this is much faster than `runs`."""
        people = current_policy()
        with self.snapshot():
            table = self._columns("SELECT id, user, framework FROM run")
        ids, users, frameworks = table.text("id"), table.text("user"), table.text("framework")
        if people.way == SHOWN:
            return list(map(RunNames, ids, users, frameworks))
        return [
            RunNames(people.run_id(run_id), people.name(user), framework)
            for run_id, user, framework in zip(ids, users, frameworks, strict=True)
        ]

    def summary(self, run: RunRow, known: RunSummary | None = None) -> RunSummary:
        """Return the summary of a run.

        `known`: an earlier summary of the run, if the run is settled (`RunRow.is_settled`). Then only its tags are read
        again.
        """
        with self.snapshot():
            return self._summary(run) if known is None else replace(known, tags=self._tags(self._as_written(run.id)))

    def record(
        self, run_id: str, *, phases: bool = True, times: bool = False, ordinals: Sequence[int] | None = None,
        sample: int = 0,
    ) -> Record:  # fmt: skip
        """Return all rows of a run except its traces. Raises GpumonError if the run does not exist or was deleted.

        `phases`: include phases and device usage in phases, which are two thirds of all rows. `times`: if `phases` is
        false, include the phases other than training, without their usage. `ordinals`: read only epochs with these
        ordinals, for example a range. `sample`: if the run has more epochs than this, read about this many evenly
        spaced epochs, plus the newest two and all open ones.
        """
        with self._reading_run(run_id) as run_id:
            rows = self._rows("SELECT * FROM run WHERE id = ?", run_id)
            if not rows:
                raise GpumonError(f"no such run: '{run_id}'. 'gpumon runs' lists all")
            if sample:
                ordinals = self._sampled(run_id, sample)
            part, chosen = f"rank {_RANKS}", list[object]()
            if ordinals is not None:
                part += " AND ordinal IN (SELECT value FROM json_each(?))"
                chosen.append(json.dumps([*ordinals]))
            spent = part if phases else f"{part} AND phase != '{TRAINING}'"
            settled = self._settled(run_id, "JOIN")
            devices: dict[str, list[DeviceRow]] = {}
            for row in self._rows(f"SELECT * FROM device WHERE rank {_RANKS} ORDER BY number, uuid", run_id):
                devices.setdefault(row.text("rank"), []).append(decode.device_row(row))
            ranks = self._rows("SELECT * FROM rank WHERE run = ? ORDER BY rank, key", run_id)
            whole = f"SELECT * FROM usage WHERE rank {_RANKS} AND ordinal = {WHOLE_RUN}"
            usage = f"SELECT * FROM usage WHERE {part} AND ordinal >= 0"
            outside = f"SELECT * FROM usage WHERE rank {_RANKS} AND ordinal <= {OUTSIDE_EPOCHS}"
            usage += "" if phases else f" AND phase = '{WHOLE_EPOCH}'"
            marks = self._rows(f"SELECT * FROM mark WHERE rank {_RANKS} ORDER BY time, number", run_id)
            run = decode.run_row(rows[0])
            return Record(
                run=run,
                done=self._done(run, run_id),
                ranks=[decode.rank_row(row, devices.get(row.text("key"), ())) for row in ranks],
                epochs=epoch_rows(
                    self._columns(f"SELECT * FROM epoch WHERE {part} ORDER BY rank, ordinal", run_id, *chosen)
                ),
                phases=phase_rows(
                    self._columns(
                        f"SELECT * FROM phase WHERE {spent} ORDER BY rank, ordinal, seconds DESC", run_id, *chosen
                    )
                )
                if phases or times
                else [],
                usage=[*usage_rows(self._columns(whole, run_id)), *usage_rows(self._columns(usage, run_id, *chosen))],
                marks=[mark for row in marks if (mark := decode.mark_row(row)) is not None],
                about=self._about(run_id),
                outside=outside_rows(
                    self._columns(f"SELECT * FROM outside WHERE rank {_RANKS} ORDER BY rank, place, phase", run_id)
                ),
                step_rows=step_rows(
                    self._columns(f"SELECT * FROM step_row WHERE rank {_RANKS} ORDER BY rank, ordinal", run_id)
                ),
                outside_usage=usage_rows(self._columns(outside, run_id)),
                settled=settled,
                with_epochs=frozenset(row.text("key") for row in self._rows(_WITH_EPOCHS, run_id)),
            )

    def long_run(self, run_id: str, longer: int, phases: int) -> LongRun | None:
        """Return a summary of a run with more than `longer` epochs, or None.

        None is returned if the run does not have more epochs, or if its total usage is not stored and must be summed
        over all its epochs. `phases`: maximum number of epochs in `LongRun.with_phases`.
        """
        with self._reading_run(run_id) as run_id:
            begun = self._begun(run_id)
            return (
                long_run(self._db, run_id, begun, phases) if begun > longer and has_totals(self._db, run_id) else None
            )

    def ordinals(self, run_id: str, begin: float, end: float) -> tuple[int, int]:
        """Return the range of ordinals of the epochs between two times (s since 1970).

        The result is the first ordinal and the ordinal after the last. An open epoch is assumed to extend up to
        `UNSEEN_AFTER` seconds beyond the length stored in the ledger.
        """
        query = (
            "SELECT coalesce(min(ordinal), 0) AS first, coalesce(max(ordinal), -1) + 1 AS after"
            f" FROM epoch WHERE rank {_RANKS} AND begun < ?"
            f" AND coalesce(ended, begun + (coalesce(seconds, 0) + {UNSEEN_AFTER}) * 1e9) > ?"
        )
        with self._reading_run(run_id) as run_id:
            (row,) = self._rows(query, run_id, end * 1e9, begin * 1e9)
            return row.whole("first"), row.whole("after")

    def epoch_count(self, run_id: str) -> int:
        """Return the number of epochs that a run has started, which is the highest ordinal plus 1."""
        with self._reading_run(run_id) as run_id:
            return self._begun(run_id)

    def _begun(self, run_id: str) -> int:
        return self._count(f"SELECT coalesce(max(ordinal), -1) + 1 FROM epoch WHERE rank {_RANKS}", run_id)

    def _sampled(self, run_id: str, sample: int) -> list[int]:
        """Return the ordinals of the epochs that `record` reads for its argument `sample`."""
        begun = self._begun(run_id)
        open_ones = self._rows(f"SELECT DISTINCT ordinal FROM epoch WHERE rank {_RANKS} AND ended IS NULL", run_id)
        some = {*range(0, begun, max(1, -(-begun // sample))), begun - 2, begun - 1}
        return sorted(some | {row.whole("ordinal") for row in open_ones[-sample:]})

    def epoch_times(self, run_id: str) -> list[EpochTimes]:
        """Return the times, steps and energy of a run's epochs in groups. See `long_run.epoch_times`."""
        with self._reading_run(run_id) as run_id:
            return epoch_times(self._db, run_id, self._begun(run_id))

    def lowest_metric(self, run_id: str, metric: str) -> float:
        """Return the lowest value of a logged metric over all ended epochs; NaN if there is none.

        If several ranks log the metric, the values of the lowest rank are used.
        """
        query = (
            "SELECT min(logged.value) AS value FROM rank JOIN main.epoch ON epoch.rank = rank.key,"
            " json_each(CASE WHEN json_valid(epoch.metrics) THEN epoch.metrics ELSE '{}' END) AS logged"
            " WHERE rank.run = ? AND logged.key = ? AND logged.type IN ('real', 'integer') AND epoch.ended > 0"
            " GROUP BY rank.key ORDER BY rank.rank, rank.key LIMIT 1"
        )
        with self.snapshot():
            return next((row.real("value") for row in self._rows(query, self._as_written(run_id), metric)), NAN)

    def run_of_rank(self, rank: str) -> str:
        """Return the id of the run to which a rank belongs, or an empty string if the ledger does not contain the rank.

        `rank` is the key of the rank.
        """
        with self.snapshot():
            return next((row.text("run") for row in self._rows("SELECT run FROM rank WHERE key = ?", rank)), "")

    def settled_epochs(self, run_id: str) -> SettledEpochs:
        """Return the epochs whose rows will not change any more.

        A `record` that is read after this call contains these final rows.
        """
        with self._reading_run(run_id) as run_id:
            return self._settled(run_id, "LEFT JOIN")

    def _settled(self, run_id: str, join: str) -> SettledEpochs:
        """Return the settled epochs of a run.

        `join`: "LEFT JOIN" if no epoch of a running rank without a row in `progress` counts as settled, "JOIN" if all
        of them do. A rank that has ended keeps its row in `progress` until the samples of its last seconds are written.
        """
        query = (
            f"SELECT rank.key, progress.state FROM rank {join} progress ON progress.rank = rank.key WHERE rank.run = ?"
            f" AND (rank.state = {RunState.RUNNING:d} OR (progress.rank IS NOT NULL AND rank.ended > ?))"
        )
        settled = SettledEpochs()
        for row in self._rows(query, run_id, time.time_ns() - SAMPLE_DELAY):
            rank = SettledEpochs.from_progress(row.get("state"))
            settled = settled.combine(self._in_run(row.text("key"), rank) if self._is_counted_differently else rank)
        return settled

    def _in_run(self, rank: str, settled: SettledEpochs) -> SettledEpochs:
        """Return the settled epochs of a rank by their ordinals in the run. `settled` has the ordinals in the rank."""
        limit = "SELECT coalesce(max(ordinal), -1) + 1 FROM temp.joined WHERE rank = ? AND own < ?"
        unsettled = "SELECT ordinal FROM temp.joined WHERE rank = ? AND own IN (SELECT value FROM json_each(?))"
        rows = self._rows(unsettled, rank, json.dumps(sorted(settled.unsettled)))
        begun = max(0, min(settled.limit, 1 << 62))
        return SettledEpochs(self._count(limit, rank, begun), frozenset(row.whole("ordinal") for row in rows))

    def traces(self, run_id: str) -> list[RunTrace]:
        """Return the traces of a run: one for each device of each rank, and one per rank with its logged metrics."""
        query = (
            "SELECT trace.* FROM trace JOIN rank ON rank.key = trace.rank WHERE rank.run = ? ORDER BY rank.rank, uuid"
        )
        with self.snapshot():
            rows = self._rows(query, self._as_written(run_id))
            return [trace for row in rows if (trace := decode.trace_row(row)) is not None]

    def _summary(self, run: RunRow) -> RunSummary:
        run_id = self._as_written(run.id)
        # SQLite takes `epoch` from the row with the highest ordinal. A file of another user may have other types there.
        numbers = f"SELECT epoch, ordinal, rank FROM main.epoch WHERE rank {_RANKS} AND typeof(epoch) = 'integer'"
        last = f"SELECT epoch, max(ordinal), rank FROM ({numbers}) GROUP BY rank"
        # As `Ranks.slowest`: other ranks wait for a running rank that is behind, but not for an ended one.
        newest = (
            f"SELECT coalesce(min(CASE WHEN state = {RunState.RUNNING:d} THEN epoch END), max(epoch), -1)"
            f" FROM ({last}) AS last JOIN rank ON rank.key = last.rank"
        )
        gpus = self._count(f"SELECT count(DISTINCT uuid) FROM device WHERE rank {_RANKS}", run_id)
        usage = f"SELECT * FROM main.usage WHERE rank {_RANKS} AND phase = '{WHOLE_EPOCH}'"
        rows = usage_rows(self._columns(f"{usage} AND ordinal = {WHOLE_RUN}", run_id))
        rows = rows or usage_rows(self._columns(f"{usage} AND ordinal >= 0", run_id))
        whole = totals(rows)
        return RunSummary(
            run=run,
            done=self._done(run, run_id),
            gpus=gpus,
            energy=whole[USAGE_INDEX["energy"]],
            utilization=whole[USAGE_INDEX["utilization_mean"]],
            tags=self._tags(run_id),
            newest=self._count(newest, run_id),
            energy_least=whole[USAGE_INDEX["energy_least"]],
            sampled_share=sampled_share(rows),
        )

    def _done(self, run: RunRow, run_id: str) -> int | None:
        """Return the number of epochs that ended in all ranks of a run (`RunSummary.done`)."""
        first = "min(CASE WHEN typeof(epoch) = 'integer' AND epoch >= 0 THEN epoch END)"
        counts = self._rows(
            f"SELECT rank, count(*) AS begun, count(CASE WHEN ended > 0 THEN 1 END) AS ended, {first} AS first"
            f" FROM main.epoch WHERE rank {_RANKS} GROUP BY rank",
            run_id,
        )
        ended = {row.text("rank"): row.whole("ended") for row in counts}
        numbers = [row.whole("first") for row in counts if row.get("first") is not None]
        ranks = self._rows("SELECT * FROM rank WHERE run = ?", run_id)
        if not numbers:
            most = max(ended.values(), default=0)
            return None if not most and any(row.whole("steps") > 0 for row in ranks) else most
        folded = {row.text("key"): int(facts_from_row(row).folded) for row in ranks}
        is_same = len({(row.whole("begun"), row.whole("ended")) for row in counts}) == 1
        if any(folded.values()):  # rows of different ranks may stand for different epochs
            done = max(ended.get(key, 0) + count for key, count in folded.items())
        elif len(counts) == 1 or (is_same and not any(row.whole("lost_events") for row in ranks)):
            done = max(ended.values())
        else:
            with self._reading_run(run.id) as run_id:
                done = self._count(_ENDED_IN_ALL, run_id)
        return done + max(0, min(numbers) - run.first_epoch)

    def metadata(self, run_id: str) -> RunMetadata:
        """Return the parameters, facts about the program, notes and tags of a run."""
        with self.snapshot():
            return self._about(self._as_written(run_id))

    def _about(self, run_id: str) -> RunMetadata:
        if current_policy().way != SHOWN:  # metadata may contain user names
            return RunMetadata()
        return metadata_from_rows(
            *(
                self._rows(f"SELECT * FROM {table} WHERE run = ? ORDER BY {order} LIMIT {_MAX_METADATA_ROWS}", run_id)
                for table, order in (("parameter", "kind, place, name"), ("note", "time, text"), ("tag", "tag"))
            ),
        )

    def all_tags(self) -> dict[str, Sequence[str]]:
        """Return the tags of every run that has tags, by the id stored in the file."""
        rows: dict[str, list[Cells]] = {}
        with self.snapshot():
            for row in self._rows("SELECT run, tag, removed FROM tag ORDER BY run, tag"):
                rows.setdefault(row.text("run"), []).append(row)
        return {run_id: tag_names(tags[:_MAX_METADATA_ROWS]) for run_id, tags in rows.items()}

    def listed_tags(self) -> dict[str, Sequence[str]]:
        """Return the tags of every run that has tags, by the displayed id; empty if user names are hidden."""
        return self.all_tags() if current_policy().way == SHOWN else {}

    def _tags(self, run_id: str) -> Sequence[str]:
        if current_policy().way != SHOWN:  # tags may contain user names
            return ()
        query = f"SELECT tag, removed FROM tag WHERE run = ? ORDER BY tag LIMIT {_MAX_METADATA_ROWS}"
        return tag_names(self._rows(query, run_id))

    def _as_written(self, run_id: str) -> str:
        """Return the stored id of the run with this displayed id, which is escaped and may be a pseudonym."""
        if self._rows("SELECT id FROM run WHERE id = ?", run_id):
            return run_id
        for row in self._rows("SELECT id FROM run"):
            stored = row.get("id")
            if isinstance(stored, str) and run_id in (clean(stored), current_policy().run_id(clean(stored))):
                return stored
        return run_id

    @contextmanager
    def _reading_run(self, run_id: str) -> Iterator[str]:
        """Run the enclosed queries in one read transaction, with the ordinals of `epoch_join.join_run`.

        Yields the stored id of the run.
        """
        with self.snapshot():
            stored = self._as_written(run_id)
            if stored != self._joined:
                self._joined, self._is_counted_differently = stored, join_run(self._db, stored)
            yield stored

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all queries in the `with` block see the same state of the ledger.

        They run in one read transaction, which is the open transaction if there is one.
        """
        try:
            if self._db.in_transaction:
                yield
                return
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("ROLLBACK")
                self._joined, self._is_counted_differently = "", False
        except sqlite3.Error as error:
            raise _unreadable(self.path, error) from error
        except UnicodeDecodeError as error:
            raise _unreadable(self.path, damage_error(error)) from error

    def _rows(self, query: str, *values: object) -> list[Cells]:
        rows: list[Cells] = self._db.execute(query, values).fetchall()
        return rows

    def _columns(self, query: str, *values: object) -> ResultColumns:
        cursor = self._db.cursor()
        cursor.row_factory = None
        longest = self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW)
        try:
            rows = cursor.execute(query, values).fetchall()
        except sqlite3.DataError:  # a row is longer
            self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
            rows = [tuple(map(_short_cell, row)) for row in cursor.execute(query, values)]
        finally:
            self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        return ResultColumns([column[0] for column in cursor.description], rows)

    def _count(self, query: str, *values: object) -> int:
        return int(next(iter(self._rows(query, *values)[0].values())))


def _short_cell(cell: Any) -> Any:
    """Return a cell, or None if it is longer than a row may be."""
    return None if isinstance(cell, str | bytes) and len(cell) > _MAX_ROW else cell


class Ledgers:
    """All ledgers that this user can read: the user's own ledger and the ledger of a machine-wide daemon.

    If both contain a run, it is read from the user's own ledger, unless only the other daemon watched the run's end.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._open: list[Ledger] = []
        present = [path for path in paths if may_exist(path)]
        readable = [path for path in present if os.access(path, os.R_OK, effective_ids=True)]
        if present and not readable:
            _require_readable(present[0])
            raise GpumonError(
                f"no permission to read {present[0]}: ask the person who runs the daemon, or pass another --state-dir"
            )
        try:
            for path in readable:
                with suppress(NotBegunError):
                    self._open.append(Ledger(path))
        except GpumonError:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Ledgers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for ledger in self._open:
            ledger.close()

    def __bool__(self) -> bool:
        """Return whether at least one ledger is open."""
        return bool(self._open)

    @property
    def paths(self) -> list[str]:
        """Paths of the open ledgers."""
        return [ledger.path for ledger in self._open]

    def runs(self, **filters: Any) -> list[RunSummary]:
        """Return the runs of all ledgers; see `Ledger.runs`."""
        return [summary for _, summary in self.runs_with_ledger(**filters)]

    def runs_with_ledger(self, *, limit: int = 0, **filters: Any) -> list[tuple[Ledger, RunSummary]]:
        """Return the runs of all ledgers, each with its ledger; see `Ledger.runs`."""
        by_id: dict[str, tuple[Ledger, RunSummary]] = {}
        for ledger in self._open:
            for summary in ledger.runs(limit=limit, **filters):
                if (run := summary.run).id not in by_id or run.is_more_complete_than(by_id[run.id][1].run):
                    by_id[run.id] = ledger, summary
        return sorted(by_id.values(), key=lambda pair: -pair[1].run.started)[: limit or None]

    def listed_tags(self) -> dict[str, Sequence[str]]:
        """Return the tags of the runs of all ledgers; see `Ledger.listed_tags`."""
        tags: dict[str, Sequence[str]] = {}
        for ledger in self._open:
            tags.update(ledger.listed_tags())
        return tags

    def names(self) -> list[RunNames]:
        """Return the id, user and framework of every run in all ledgers."""
        return list({run.id: run for ledger in self._open for run in ledger.names()}.values())

    def candidates(self, beginning: str = "", limit: int = 0) -> list[tuple[Ledger, RunRow]]:
        """Return runs whose id or name starts with `beginning`, each with its ledger, newest first."""
        by_id: dict[str, tuple[Ledger, RunRow]] = {}
        for ledger in self._open:
            for run in ledger.candidates(beginning, limit):
                if run.id not in by_id or run.is_more_complete_than(by_id[run.id][1]):
                    by_id[run.id] = ledger, run
        return sorted(by_id.values(), key=lambda pair: -pair[1].started)


def _require_readable(path: str) -> None:
    """Raise GpumonError if the file cannot be read for a reason other than missing permission."""
    try:
        os.close(open_regular(path))
    except PermissionError:
        return
    except OSError as error:
        raise _unreadable(path, error) from error


def _open_file(path: str) -> sqlite3.Connection:
    if not may_exist(path):
        raise NotBegunError(NOTHING)
    try:
        db, version = open_to_read(path, LEDGER_FILE)
    except (sqlite3.Error, OSError) as error:
        raise _unreadable(path, error) from error
    if version == VERSION:
        return db
    db.close()
    if version == 0:
        raise NotBegunError(NOTHING)  # a daemon is just creating the file
    raise GpumonError(
        f"{path} has format {version}, but this gpumon reads format {VERSION}: "
        "use the gpumon version of the daemon that writes it"
    )


def _unreadable(path: str, error: sqlite3.Error | OSError) -> GpumonError:
    # Only these two codes mean damage: any other error may come from an argument, and a sound ledger must not be moved.
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return GpumonError(f"{path} is damaged ({error}): move it away; the daemon creates a new one at its next start")
    return GpumonError(f"cannot read {path}: {describe_error(error, path)}")


LAST = ("last", "-1")
"""Words that mean the newest run. A run with such a name can be selected only by its id."""
_MAX_NAMED = 5
"""Maximum number of runs named in a message."""
_WIDTH = 40

LedgerRun = tuple[Ledger, RunRow]


def resolve_run(ledgers: Ledgers, wanted: str, now: float, log: Callable[[str], object] = str) -> LedgerRun:
    """Return the run whose id or name is `wanted` or starts with it, together with its ledger.

    A complete id or name has priority. If several runs have this name, the newest is returned and `log` gets a line
    about it. `now`: current time in seconds since 1970. Raises GpumonError if no run matches, or if several runs only
    start with `wanted`. The message lists them.
    """
    if wanted in LAST:
        newest = ledgers.candidates(limit=1)
        if not newest:
            raise GpumonError(NOTHING)
        return newest[0]
    candidates = ledgers.candidates(wanted)
    by_id = [pair for pair in candidates if pair[1].id == wanted]
    by_name = [pair for pair in candidates if pair[1].name == wanted]
    if by_id:
        return by_id[0]
    if by_name:
        if len(by_name) > 1:
            run = by_name[0][1]
            log(f"{len(by_name)} runs are named '{cut(wanted, _WIDTH)}'; this is the newest, {run.id}")
        return by_name[0]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise GpumonError(
            f"'{wanted}' is ambiguous. It matches {len(candidates)} runs: {_names(candidates, now)}. Give more "
            "of the id"
        )
    runs = ledgers.candidates()
    if not runs:
        raise GpumonError(NOTHING)
    raise GpumonError(f"no such run: '{wanted}'. The newest are {_names(runs, now)}; 'gpumon runs' lists all")


def _names(runs: Sequence[LedgerRun], now: float) -> str:
    """Return a list of the newest of these runs as text: id, name, age and epochs of each."""
    parts = []
    for ledger, run in runs[:_MAX_NAMED]:
        done = ledger.summary(run).done
        epochs = "no epoch seen" if done is None else f"{done} epoch{'' if done == 1 else 's'}"
        parts.append(f"{cut(run.id, _WIDTH)} ({cut(run.name, _WIDTH)}, {units.age(run.started, now)}, {epochs})")
    more = len(runs) - _MAX_NAMED
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")
