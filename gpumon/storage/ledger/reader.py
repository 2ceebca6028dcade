"""The ledger as readers see it: read only, while a daemon may be writing.

Each look is one read transaction, so that its parts belong together.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
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
from gpumon.storage.ledger.combine import totals
from gpumon.storage.ledger.decode import (
    Cells,
    ResultColumns,
    epoch_rows,
    outside_rows,
    phase_rows,
    step_rows,
    usage_rows,
)
from gpumon.storage.ledger.long_run import LongRun, epoch_times, has_totals, long_run
from gpumon.storage.ledger.metadata import about_conditions, particulars, tag_names
from gpumon.storage.ledger.records import (
    AWAITED,
    UNSEEN,
    USAGE_INDEX,
    DeviceRow,
    EpochTimes,
    Particulars,
    Record,
    RunNames,
    RunRow,
    RunSummary,
    RunTrace,
    SettledEpochs,
    settled_epochs,
)
from gpumon.storage.ledger.schema import OUTSIDE_EPOCHS, WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.tables import VERSION
from gpumon.storage.sqlite.read import describe_error, open_to_read
from gpumon.storage.sqlite.write import damage_error

NOTHING = "no runs recorded yet: 'gpumon daemon' records trainings that publish their epochs (docs/runs.md)"
"""Why no run is listed, whether a daemon runs or not."""
_MOST_ABOUT = 1024
"""Rows of a table of particulars that are read: a run that gpumon recorded has fewer."""
_RANKS = "IN (SELECT key FROM rank WHERE run = ?)"


class Ledger:
    """One ledger file, open to read. Raises GpumonError when it is missing, damaged, or of another version."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._db = _opened(path)
        self._db.row_factory = decode.cells_of

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        self._db.close()

    def runs(
        self, *, user: str = "", name: str = "", since: float = NAN, running: bool = False, limit: int = 0,
        tags: Sequence[str] = (), where: Sequence[tuple[str, str]] = (),
    ) -> list[RunSummary]:  # fmt: skip
        """Runs, newest first: of `user`, with a name that begins with `name`, begun `since` (s since 1970).

        `tags`: with all of them; `where`: with parameters of these names and values.
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
        for table, condition, wanted in about_conditions(tags, where):
            clauses.append(f"id IN (SELECT run FROM {table} WHERE {condition})")
            values += wanted
        query = f"SELECT * FROM run WHERE {' AND '.join(clauses)} ORDER BY started DESC, id LIMIT {limit or -1:d}"
        with self._reading():
            return [self._listed(decode.run_row(row)) for row in self._rows(query, *values)]

    def candidates(self, beginning: str = "", limit: int = 0) -> list[RunRow]:
        """Runs whose id or name begins with `beginning`, newest first."""
        query = (
            "SELECT * FROM run WHERE substr(id, 1, length(?)) = ? OR substr(name, 1, length(?)) = ?"
            f" ORDER BY started DESC, id LIMIT {limit or -1:d}"
        )
        with self._reading():
            return [decode.run_row(row) for row in self._rows(query, *[beginning] * 4)]

    def names(self) -> list[RunNames]:
        """Id, user and framework of every run: a list of thousands is counted without a record for each."""
        people = current_policy()
        with self._reading():
            table = self._columns("SELECT id, user, framework FROM run")
        ids, users, frameworks = table.text("id"), table.text("user"), table.text("framework")
        if people.way == SHOWN:
            return list(map(RunNames, ids, users, frameworks))
        return [
            RunNames(people.run_id(run_id), people.name(user), framework)
            for run_id, user, framework in zip(ids, users, frameworks, strict=True)
        ]

    def listed(self, run: RunRow, known: RunSummary | None = None) -> RunSummary:
        """A run, and what it came to.

        `known`: what that was when this row was read before, of a run that is settled; its tags may be others.
        """
        with self._reading():
            return self._listed(run) if known is None else known._replace(tags=self._tags(self._as_written(run.id)))

    def record(
        self, run_id: str, *, phases: bool = True, times: bool = False, ordinals: tuple[int, int] | None = None,
        sample: int = 0, chosen: Sequence[int] | None = None,
    ) -> Record:  # fmt: skip
        """A run with all that hangs on it but its traces. Raises GpumonError when it is not there (any more).

        `phases`: also what devices did in each phase, two thirds of all rows; `times`: only when and how long
        phases other than training were. `ordinals`: only epochs from the first of them up to before the second.
        `sample`: of more epochs only about so many, evenly spaced, with the newest two and all that have not ended.
        `chosen`: only epochs with these ordinals.
        """
        part = f"rank {_RANKS}" + (" AND ordinal >= ? AND ordinal < ?" if ordinals else "")
        bounds: tuple[object, ...] = (*(ordinals or ()),)
        spent = part if phases else f"{part} AND phase != '{TRAINING}'"
        with self._reading():
            run_id = self._as_written(run_id)
            found = self._rows("SELECT * FROM run WHERE id = ?", run_id)
            if not found:
                raise GpumonError(f"no such run: '{run_id}'. 'gpumon runs' lists all")
            if sample:
                chosen = self._sampled(run_id, sample)
            if chosen is not None:
                part = f"rank {_RANKS} AND ordinal IN (SELECT value FROM json_each(?))"
                spent = part if phases else f"{part} AND phase != '{TRAINING}'"
                bounds = (json.dumps(chosen),)
            settled = self._settled(run_id, "JOIN")  # what it has does not change until the rows are read
            held: dict[str, list[DeviceRow]] = {}
            for row in self._rows(f"SELECT * FROM device WHERE rank {_RANKS} ORDER BY number, uuid", run_id):
                held.setdefault(row.text("rank"), []).append(decode.device_row(row))
            ranks = self._rows("SELECT * FROM rank WHERE run = ? ORDER BY rank, key", run_id)
            whole = f"SELECT * FROM usage WHERE rank {_RANKS} AND ordinal = {WHOLE_RUN}"
            usage = f"SELECT * FROM usage WHERE {part} AND ordinal >= 0"
            outside = f"SELECT * FROM usage WHERE rank {_RANKS} AND ordinal <= {OUTSIDE_EPOCHS}"
            usage += "" if phases else f" AND phase = '{WHOLE_EPOCH}'"
            marks = self._rows(f"SELECT * FROM mark WHERE rank {_RANKS} ORDER BY time, number", run_id)
            return Record(
                run=decode.run_row(found[0]),
                ranks=[decode.rank_row(row, held.get(row.text("key"), ())) for row in ranks],
                epochs=epoch_rows(
                    self._columns(f"SELECT * FROM epoch WHERE {part} ORDER BY rank, ordinal", run_id, *bounds)
                ),
                phases=phase_rows(
                    self._columns(
                        f"SELECT * FROM phase WHERE {spent} ORDER BY rank, ordinal, seconds DESC", run_id, *bounds
                    )
                )
                if phases or times
                else [],
                usage=[*usage_rows(self._columns(whole, run_id)), *usage_rows(self._columns(usage, run_id, *bounds))],
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
            )

    def snapshot(self) -> AbstractContextManager[None]:
        """All that is read inside is as of one moment."""
        return self._reading()

    def long_run(self, run_id: str, longer: int, phases: int) -> LongRun | None:
        """Sum up a run of more than `longer` epochs, with the newest `phases` epochs with phases.

        None of a shorter run, and where only the rows of all epochs tell what it used.
        """
        with self._reading():
            run_id = self._as_written(run_id)
            begun = self._begun(run_id)
            return (
                long_run(self._db, run_id, begun, phases) if begun > longer and has_totals(self._db, run_id) else None
            )

    def ordinals(self, run_id: str, begin: float, end: float) -> tuple[int, int]:
        """Ordinals of the epochs that were between two times (s since 1970): the first, and the one after the last.

        One that has not ended may have gone on for a while since it was written.
        """
        query = (
            "SELECT coalesce(min(ordinal), 0) AS first, coalesce(max(ordinal), -1) + 1 AS after"
            f" FROM epoch WHERE rank {_RANKS} AND begun < ?"
            f" AND coalesce(ended, begun + (coalesce(seconds, 0) + {UNSEEN}) * 1e9) > ?"
        )
        with self._reading():
            (row,) = self._rows(query, self._as_written(run_id), end * 1e9, begin * 1e9)
            return row.whole("first"), row.whole("after")

    def epochs(self, run_id: str) -> int:
        """Count the epochs that a run has begun: ordinals go from 0 up to before it."""
        with self._reading():
            return self._begun(self._as_written(run_id))

    def _begun(self, run_id: str) -> int:
        return self._count(f"SELECT coalesce(max(ordinal), -1) + 1 FROM epoch WHERE rank {_RANKS}", run_id)

    def _sampled(self, run_id: str, sample: int) -> list[int]:
        """Ordinals of the epochs that `record` has of a run, if it shall have about `sample`."""
        begun = self._begun(run_id)
        open_ones = self._rows(f"SELECT DISTINCT ordinal FROM epoch WHERE rank {_RANKS} AND ended IS NULL", run_id)
        some = {*range(0, begun, max(1, -(-begun // sample))), begun - 2, begun - 1}
        return sorted(some | {row.whole("ordinal") for row in open_ones[-sample:]})

    def epoch_times(self, run_id: str) -> list[EpochTimes]:
        """Return when the epochs of a run were, as `long_run.epoch_times`."""
        with self._reading():
            run_id = self._as_written(run_id)
            return epoch_times(self._db, run_id, self._begun(run_id))

    def lowest(self, run_id: str, metric: str) -> float:
        """The lowest value that an epoch which ended logged under a name, of the first rank that did; NaN of none."""
        query = (
            "SELECT min(logged.value) AS value FROM rank JOIN epoch ON epoch.rank = rank.key,"
            " json_each(CASE WHEN json_valid(epoch.metrics) THEN epoch.metrics ELSE '{}' END) AS logged"
            " WHERE rank.run = ? AND logged.key = ? AND logged.type IN ('real', 'integer') AND epoch.ended > 0"
            " GROUP BY rank.key ORDER BY rank.rank, rank.key LIMIT 1"
        )
        with self._reading():
            return next((row.real("value") for row in self._rows(query, self._as_written(run_id), metric)), NAN)

    def run_of(self, rank: str) -> str:
        """Return the id of the run of a rank, by its key; empty where neither is here (yet)."""
        with self._reading():
            return next((row.text("run") for row in self._rows("SELECT run FROM rank WHERE key = ?", rank)), "")

    def settled(self, run_id: str) -> SettledEpochs:
        """Return which epochs are written for good by the ranks that go on, as of now: `record` then has them so."""
        with self._reading():
            return self._settled(self._as_written(run_id), "LEFT JOIN")

    def _settled(self, run_id: str, join: str) -> SettledEpochs:
        """Return the same; by a `LEFT JOIN`, none is settled of a rank that has no progress, else all of them.

        One that has ended has progress until the samples of its last seconds have come, if no daemon was killed then.
        """
        query = (
            f"SELECT progress.state FROM rank {join} progress ON progress.rank = rank.key WHERE rank.run = ?"
            f" AND (rank.state = {RunState.RUNNING:d} OR (progress.rank IS NOT NULL AND rank.ended > ?))"
        )
        states = [row.get("state") for row in self._rows(query, run_id, time.time_ns() - AWAITED)]
        return settled_epochs(state if isinstance(state, str) else None for state in states)

    def traces(self, run_id: str) -> list[RunTrace]:
        """Return the traces of a run: one for each rank and device, and one for what each rank logged."""
        query = (
            "SELECT trace.* FROM trace JOIN rank ON rank.key = trace.rank WHERE rank.run = ? ORDER BY rank.rank, uuid"
        )
        with self._reading():
            rows = self._rows(query, self._as_written(run_id))
            return [trace for row in rows if (trace := decode.trace_row(row)) is not None]

    def _listed(self, run: RunRow) -> RunSummary:
        run_id = self._as_written(run.id)
        ended = "count(DISTINCT CASE WHEN ended > 0 THEN ordinal END)"
        first = "min(CASE WHEN typeof(epoch) = 'integer' AND epoch >= 0 THEN epoch END)"
        (counted,) = self._rows(f"SELECT {ended} AS ended, {first} AS first FROM epoch WHERE rank {_RANKS}", run_id)
        # SQLite takes the number from the row of the highest ordinal. A file of others may have something else there.
        numbers = f"SELECT epoch, ordinal, rank FROM epoch WHERE rank {_RANKS} AND typeof(epoch) = 'integer'"
        newest = f"SELECT epoch, max(ordinal) FROM ({numbers}) GROUP BY rank"
        gpus = self._count(f"SELECT count(DISTINCT uuid) FROM device WHERE rank {_RANKS}", run_id)
        usage = f"SELECT * FROM usage WHERE rank {_RANKS} AND phase = '{WHOLE_EPOCH}'"
        rows = usage_rows(self._columns(f"{usage} AND ordinal = {WHOLE_RUN}", run_id))
        rows = rows or usage_rows(self._columns(f"{usage} AND ordinal >= 0", run_id))
        came_to = totals(rows)
        return RunSummary(
            run=run,
            done=self._done(run, run_id, *counted.values()),
            gpus=gpus,
            energy=came_to[USAGE_INDEX["energy"]],
            utilization=came_to[USAGE_INDEX["utilization_mean"]],
            tags=self._tags(run_id),
            newest=self._count(f"SELECT coalesce(min(epoch), -1) FROM ({newest})", run_id),
            energy_least=came_to[USAGE_INDEX["energy_least"]],
        )

    def _done(self, run: RunRow, run_id: str, ended: int, first: int | None) -> int | None:
        """Epochs that ended in a run, those before the first one that was seen included; None if that is not known."""
        if first is not None:
            return ended + self._folded(run_id) + max(0, first - run.first_epoch)
        has_steps = "SELECT EXISTS(SELECT 1 FROM rank WHERE run = ? AND steps > 0)"
        return None if not ended and self._count(has_steps, run_id) else ended

    def _folded(self, run_id: str) -> int:
        """Epochs that are in the rows of others."""
        rows = self._rows("SELECT * FROM rank WHERE run = ?", run_id)
        return max((int(facts_from_row(row).folded) for row in rows), default=0)

    def about(self, run_id: str) -> Particulars:
        """Parameters, program, notes and tags of a run."""
        with self._reading():
            return self._about(self._as_written(run_id))

    def _about(self, run_id: str) -> Particulars:
        if current_policy().way != SHOWN:  # anybody may be named in it
            return Particulars()
        return particulars(
            *(
                self._rows(f"SELECT * FROM {table} WHERE run = ? ORDER BY {order} LIMIT {_MOST_ABOUT}", run_id)
                for table, order in (("parameter", "kind, place, name"), ("note", "time, text"), ("tag", "tag"))
            ),
        )

    def all_tags(self) -> dict[str, Sequence[str]]:
        """Tags of every run that has some, by its id as the file has it."""
        rows: dict[str, list[Cells]] = {}
        with self._reading():
            for row in self._rows("SELECT run, tag, removed FROM tag ORDER BY run, tag"):
                rows.setdefault(row.text("run"), []).append(row)
        return {run_id: tag_names(of_run[:_MOST_ABOUT]) for run_id, of_run in rows.items()}

    def listed_tags(self) -> dict[str, Sequence[str]]:
        """Tags of every run that has some, by its id, as `listed` shows them; none where names are not shown."""
        return self.all_tags() if current_policy().way == SHOWN else {}

    def _tags(self, run_id: str) -> Sequence[str]:
        if current_policy().way != SHOWN:  # anybody may be named in one
            return ()
        query = f"SELECT tag, removed FROM tag WHERE run = ? ORDER BY tag LIMIT {_MOST_ABOUT}"
        return tag_names(self._rows(query, run_id))

    def _as_written(self, run_id: str) -> str:
        """An id as the file has it: one that a stranger's file has uncleaned is known by its clean text."""
        if self._rows("SELECT id FROM run WHERE id = ?", run_id):
            return run_id
        for row in self._rows("SELECT id FROM run"):
            found = row.get("id")
            if isinstance(found, str) and run_id in (clean(found), current_policy().run_id(clean(found))):
                return found
        return run_id

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One snapshot for all queries inside."""
        if self._db.in_transaction:
            yield
            return
        try:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _unreadable(self.path, error) from error
        except UnicodeDecodeError as error:
            raise _unreadable(self.path, damage_error(error)) from error

    def _rows(self, query: str, *values: object) -> list[Cells]:
        found: list[Cells] = self._db.execute(query, values).fetchall()
        return found

    def _columns(self, query: str, *values: object) -> ResultColumns:
        cursor = self._db.cursor()
        cursor.row_factory = None
        rows = cursor.execute(query, values).fetchall()
        return ResultColumns([column[0] for column in cursor.description], rows)

    def _count(self, query: str, *values: object) -> int:
        return int(next(iter(self._rows(query, *values)[0].values())))


class Ledgers:
    """The ledgers that this user can read as one: his own, and that of a daemon for the whole machine.

    A run that is in both is that of the first, unless only the other one watched it.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._open: list[Ledger] = []
        there = [path for path in paths if may_exist(path)]
        readable = [path for path in there if os.access(path, os.R_OK, effective_ids=True)]
        if there and not readable:
            _require_readable(there[0])
            raise GpumonError(
                f"no permission to read {there[0]}: ask the person who runs the daemon, or pass another --state-dir"
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
        """Whether there is any."""
        return bool(self._open)

    @property
    def paths(self) -> list[str]:
        """The files of all of them."""
        return [ledger.path for ledger in self._open]

    def runs(
        self, *, user: str = "", name: str = "", since: float = NAN, running: bool = False, limit: int = 0,
        tags: Sequence[str] = (), where: Sequence[tuple[str, str]] = (),
    ) -> list[RunSummary]:  # fmt: skip
        """As `Ledger.runs`, of all of them."""
        return [
            listed
            for _, listed in self.runs_with_ledger(
                user=user, name=name, since=since, running=running, limit=limit, tags=tags, where=where
            )
        ]

    def runs_with_ledger(self, *, limit: int = 0, **chosen: Any) -> list[tuple[Ledger, RunSummary]]:
        """As `runs`, each with the ledger that has it."""
        found: dict[str, tuple[Ledger, RunSummary]] = {}
        for ledger in self._open:
            for listed in ledger.runs(limit=limit, **chosen):
                if (run := listed.run).id not in found or run.is_told_better_than(found[run.id][1].run):
                    found[run.id] = ledger, listed
        return sorted(found.values(), key=lambda each: -each[1].run.started)[: limit or None]

    def listed_tags(self) -> dict[str, Sequence[str]]:
        """As `Ledger.listed_tags`, of all of them."""
        found: dict[str, Sequence[str]] = {}
        for ledger in self._open:
            found.update(ledger.listed_tags())
        return found

    def names(self) -> list[RunNames]:
        """As `Ledger.names`, of all of them."""
        return list({one.id: one for ledger in self._open for one in ledger.names()}.values())

    def candidates(self, beginning: str = "", limit: int = 0) -> list[tuple[Ledger, RunRow]]:
        """As `Ledger.candidates`, each with the ledger that has it."""
        found: dict[str, tuple[Ledger, RunRow]] = {}
        for ledger in self._open:
            for run in ledger.candidates(beginning, limit):
                if run.id not in found or run.is_told_better_than(found[run.id][1]):
                    found[run.id] = ledger, run
        return sorted(found.values(), key=lambda each: -each[1].started)


def _require_readable(path: str) -> None:
    """Raise GpumonError where something else than a missing permission keeps the file from being read."""
    try:
        os.close(open_regular(path))
    except PermissionError:
        return
    except OSError as error:
        raise _unreadable(path, error) from error


def _opened(path: str) -> sqlite3.Connection:
    if not may_exist(path):
        raise NotBegunError(NOTHING)
    try:
        db, version = open_to_read(path)
    except (sqlite3.Error, OSError) as error:
        raise _unreadable(path, error) from error
    if version == VERSION:
        return db
    db.close()
    if version == 0:
        raise NotBegunError(NOTHING)  # a daemon is making it at this moment
    raise GpumonError(
        f"{path} is of version {version}, this gpumon reads version {VERSION}: use the same version as its daemon"
    )


def _unreadable(path: str, error: sqlite3.Error | OSError) -> GpumonError:
    # A ProgrammingError: it was closed.
    if isinstance(error, OSError | sqlite3.OperationalError | sqlite3.ProgrammingError):
        return GpumonError(f"cannot read {path}: {describe_error(error, path)}")
    return GpumonError(f"{path} is damaged ({error}): move it away; the daemon creates a new one at its next start")


LAST = ("last", "-1")
"""Words for the newest run, whatever runs are called: one of that name is found by its id."""
_NAMED = 5
"""Candidates that are named."""
_WIDE = 40

Found = tuple[Ledger, RunRow]


def find(ledgers: Ledgers, wanted: str, now: float, say: Callable[[str], object] = str) -> Found:
    """The run meant by `wanted`, with the ledger that has it. Raises GpumonError that names the candidates.

    `say` gets a line when others are of that name, too: scripts give all of theirs the same one.
    """
    if wanted in LAST:
        newest = ledgers.candidates(limit=1)
        if not newest:
            raise GpumonError(NOTHING)
        return newest[0]
    candidates = ledgers.candidates(wanted)
    by_id = [found for found in candidates if found[1].id == wanted]
    by_name = [found for found in candidates if found[1].name == wanted]
    if by_id:
        return by_id[0]
    if by_name:
        if len(by_name) > 1:
            run = by_name[0][1]
            say(f"{len(by_name)} runs are named '{cut(wanted, _WIDE)}'; this is the newest, {run.id}")
        return by_name[0]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise GpumonError(
            f"'{wanted}' is ambiguous. It matches {len(candidates)} runs: {_named(candidates, now)}. Give more "
            "of the id"
        )
    known = ledgers.candidates()
    if not known:
        raise GpumonError(NOTHING)
    raise GpumonError(f"no such run: '{wanted}'. The newest are {_named(known, now)}; 'gpumon runs' lists all")


def _named(found: Sequence[Found], now: float) -> str:
    """The newest of them, with what tells them apart."""
    parts = []
    for ledger, run in found[:_NAMED]:
        done = ledger.listed(run).done
        epochs = "no epoch seen" if done is None else f"{done} epoch{'' if done == 1 else 's'}"
        parts.append(f"{cut(run.id, _WIDE)} ({cut(run.name, _WIDE)}, {units.age(run.started, now)}, {epochs})")
    more = len(found) - _NAMED
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")
