"""The ledger from Python: `gpumon.ledger()`, for scripts and notebooks.

    ledger = gpumon.ledger()
    run = ledger.run("last")
    run.epochs.to_pandas()
    ledger.runs(tag="baseline", where={"lr": 0.1}).to_polars()

Times are seconds since 1970, everything else base units (seconds, joules, bytes, shares of 1); what is not known is
NaN, and None of what is no number. Tables have times as dates in UTC.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.numbers import NAN
from gpumon.common.paths import ledger_path, ledger_paths, places
from gpumon.common.text import clean, cut
from gpumon.model.columns import USAGE
from gpumon.model.run import Parameter
from gpumon.storage.ledger import aggregate, dataframe
from gpumon.storage.ledger.aggregate import between, step_summaries
from gpumon.storage.ledger.dataframe import RowTable
from gpumon.storage.ledger.reader import NOTHING, Ledger, Ledgers
from gpumon.storage.ledger.records import NoteRow, Particulars, Record, RunSummary
from gpumon.storage.ledger.schema import WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary
from gpumon.storage.sqlite.read import explain_absence

_WIDE = 40
_OF_WHOLE = ("steps", "steps_per_second", "samples_per_second", "wait", "wait_share", "energy_per_step")
_USAGE = tuple(column.key for column in USAGE if column.key != "seconds")


@dataclass(frozen=True)
class PastEpoch:
    """An epoch of a run, joined over its ranks and devices."""

    run: str
    """Id of the run."""
    ordinal: int
    """Counts the epochs that the run began, from 0."""
    epoch: int
    """Its number, as the training counts."""
    begun: float
    ended: float
    """NaN while it is open, and where the run went away in it."""
    seconds: float
    steps: int | None
    steps_per_second: float
    samples_per_second: float
    wait: float
    """Seconds waited for data."""
    wait_share: float
    energy_per_step: float
    """Joules."""
    usage: Mapping[str, float]
    """Measured values by the names of `docs/runs.md`, such as `utilization_mean`, `energy`, `memory_used_peak`."""
    metrics: Mapping[str, float]
    """Numbers that the training logged in it."""

    def _repr_html_(self) -> str:
        return dataframe.html_of_one(self)


@dataclass(frozen=True)
class PastSteps:
    """A row of steps of a run without epochs, joined over its ranks and devices. Fields as in `PastEpoch`."""

    run: str
    first_step: int
    """Steps that were made before it."""
    begun: float
    ended: float
    seconds: float
    steps: int | None
    steps_per_second: float
    samples_per_second: float
    wait: float
    wait_share: float
    energy_per_step: float
    usage: Mapping[str, float]
    metrics: Mapping[str, float]

    def _repr_html_(self) -> str:
        return dataframe.html_of_one(self)


@dataclass(frozen=True)
class PastUsage:
    """Usage of a device by a rank in an epoch, in a phase of one, or outside them."""

    run: str
    rank: int
    ordinal: int
    """As in `PastEpoch`; -1 for the whole run, lower numbers for what lies outside epochs."""
    phase: str
    """Empty for all of the epoch."""
    device: str
    """UUID."""
    utilization_from: str
    """`driver`, `ticks`, or empty where nothing was sampled."""
    seconds: float
    usage: Mapping[str, float]
    """Measured values, as in `PastEpoch`."""

    def _repr_html_(self) -> str:
        return dataframe.html_of_one(self)


@dataclass(frozen=True)
class PastRun:
    """A run of the ledger, as it was when it was read. Its epochs and usage are read when they are first asked for."""

    id: str
    name: str
    user: str
    hostname: str
    framework: str
    state: str
    """`running`, `finished`, `failed`, `interrupted`, `stopped` or `died`; `unseen` where no daemon watches it."""
    started: float
    ended: float
    """NaN while it runs."""
    seconds: float
    epochs_planned: int | None
    epochs_done: int | None
    """None where that is not known, as of a run that no daemon saw until it was within an epoch."""
    gpus: int
    energy: float
    """Joules, over all devices."""
    utilization: float
    """Share, mean over devices."""
    tags: tuple[str, ...]
    resumes: str
    """Id of the run that this one continues, or empty."""
    _ledger: Ledger = field(repr=False, compare=False, metadata=dataframe.HIDDEN)

    @cached_property
    def _record(self) -> Record:
        return self._ledger.record(self.id)

    @cached_property
    def _about(self) -> Particulars:
        return self._ledger.about(self.id)

    @property
    def config(self) -> Mapping[str, Parameter]:
        """Parameters that the training was given."""
        return self._about.config

    @property
    def program(self) -> Mapping[str, Parameter]:
        """Script, commit, versions."""
        return self._about.program

    @property
    def notes(self) -> Sequence[NoteRow]:
        """Lines that were written about it, oldest first."""
        return self._about.notes

    @cached_property
    def epochs(self) -> RowTable[PastEpoch]:
        """Its epochs, in their order."""
        return RowTable(PastEpoch, [_epoch(self.id, found) for found in aggregate.epochs(self._record)])

    @cached_property
    def total(self) -> PastEpoch:
        """The whole run as one row; its metrics are the last that were logged."""
        found = aggregate.whole(self._record, aggregate.epochs(self._record), time.time())
        return _epoch(self.id, found)

    @cached_property
    def between(self) -> PastEpoch | None:
        """All that lies outside its epochs, as one row; None where it has none, or that is unknown."""
        found = between(self._record, aggregate.epochs(self._record))
        return None if found is None else _epoch(self.id, found)

    @cached_property
    def steps(self) -> RowTable[PastSteps]:
        """Rows of steps of a run without epochs, in their order."""
        rows = step_summaries(self._record)
        return RowTable(PastSteps, [PastSteps(self.id, found.epoch, **_measured(found)) for found in rows])

    @cached_property
    def usage(self) -> RowTable[PastUsage]:
        """Usage of each device by each rank, in every epoch and phase."""
        ranks = {rank.key: rank.rank for rank in self._record.ranks}
        return RowTable(
            PastUsage,
            [
                PastUsage(
                    run=self.id, rank=ranks.get(row.rank, 0), ordinal=row.ordinal, phase=row.phase, device=row.uuid,
                    utilization_from=row.utilization_from, seconds=row.value("seconds"),
                    usage={name: row.value(name) for name in _USAGE},
                )
                for row in self._record.usage
            ],
        )  # fmt: skip

    def _repr_html_(self) -> str:
        return dataframe.html_of_one(self, {"config": self.config, "program": self.program})


class PastRuns(RowTable[PastRun]):
    """Runs, newest first."""

    def __init__(self, rows: Sequence[PastRun]) -> None:
        super().__init__(PastRun, rows, _came_to)

    @property
    def epochs(self) -> RowTable[PastEpoch]:
        """The epochs of all of them, as one table."""
        return RowTable(PastEpoch, [epoch for run in self for epoch in run.epochs])


class PastLedger:
    """The ledgers that this user can read, open. Each question is answered as of its moment."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Open the files at `paths`. Raises GpumonError where there is none, or none can be read."""
        self._ledgers = Ledgers(paths)
        if not self._ledgers:
            raise GpumonError(NOTHING)

    def runs(
        self, *, user: str = "", name: str = "", tag: str | Sequence[str] = (),
        where: Mapping[str, Parameter] | None = None, since: float = NAN, running: bool = False, limit: int = 0,
    ) -> PastRuns:  # fmt: skip
        """Runs, newest first; at most `limit`, 0 for all.

        `user`: of this one; `name`: with a name that begins so; `tag`: with this tag, or all of these; `where`: with
        these parameters; `since`: begun since then (seconds since 1970); `running`: that run now. Raises UsageError for
        what is none of these.
        """
        _check("user", user, isinstance(user, str), "a name")
        _check("name", name, isinstance(name, str), "the beginning of a name")
        is_text = isinstance(tag, Iterable) and all(isinstance(one, str) for one in tag)
        _check("tag", tag, is_text, "a tag, or a list of them")
        is_config = isinstance(where, Mapping) and all(isinstance(key, str) for key in where)
        _check("where", where, where is None or is_config, "a dict of parameters, such as {'lr': 0.1}")
        _check("since", since, isinstance(since, int | float), "seconds since 1970, such as time.time() - 86400")
        _check("limit", limit, isinstance(limit, int) and limit >= 0, "0 for all, or how many")
        tags = (tag,) if isinstance(tag, str) else tuple(tag)
        wanted = [(key, _typed(value)) for key, value in (where or {}).items()]
        return PastRuns(
            [
                _run(ledger, found)
                for ledger, found in self._ledgers.runs_with_ledger(
                    user=user, name=name, since=since, running=running, limit=limit, tags=tags, where=wanted
                )
            ]
        )

    def run(self, wanted: str = "last") -> PastRun:
        """The run of this id or name (the newest of that name), or an unambiguous beginning of either.

        Raises GpumonError that names the candidates where it is not clear.
        """
        from gpumon.storage.ledger.reader import find

        _check("run", wanted, isinstance(wanted, str), "an id or a name, such as 'last'")
        ledger, found = find(self._ledgers, wanted, time.time())
        return _run(ledger, ledger.listed(found))

    def close(self) -> None:
        """Let the files go."""
        self._ledgers.__exit__(None, None, None)

    def __enter__(self) -> PastLedger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return self.runs(limit=dataframe.ROWS_SHOWN)._repr_html_()


def open_ledger(directory: str | None = None, state_dir: str | None = None) -> PastLedger:
    """Open the ledgers of this user and of the machine; the directories as `--dir` and `--state-dir`.

    Raises GpumonError where no run was recorded yet, or no ledger can be read.
    """
    where = places(directory, state_dir)
    paths = ledger_paths(where)
    if not paths:
        raise GpumonError(explain_absence(where, ledger_path(where), NOTHING, "runs are not recorded"))
    return PastLedger(paths)


def _check(name: str, given: object, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise UsageError(f"{name}={cut(clean(repr(given), _WIDE + 1), _WIDE)}: give {wanted}")


def _run(ledger: Ledger, listed: RunSummary) -> PastRun:
    run, now = listed.run, time.time()
    return PastRun(
        id=run.id, name=run.name, user=run.user, hostname=run.hostname, framework=run.framework,
        state="unseen" if run.unseen(now) else run.state.name.lower(), started=run.started, ended=run.ended,
        seconds=run.lasted(now), epochs_planned=run.epochs or None, epochs_done=listed.done, gpus=listed.gpus,
        energy=listed.energy, utilization=listed.utilization, tags=tuple(listed.tags), resumes=run.resumes,
        _ledger=ledger,
    )  # fmt: skip


def _epoch(run: str, found: EpochSummary) -> PastEpoch:
    epoch = found.epoch if found.ordinal != WHOLE_RUN else WHOLE_RUN
    return PastEpoch(run, found.ordinal, epoch, **_measured(found))


def _measured(found: EpochSummary) -> dict[str, Any]:
    """The fields that epochs, rows of steps and whole runs have in common."""
    return {
        "begun": found.begun,
        "ended": found.ended,
        "seconds": found.seconds,
        "steps": found.steps,
        "steps_per_second": found.steps_per_second,
        "samples_per_second": found.samples_per_second,
        "wait": found.wait,
        "wait_share": found.wait_share,
        "energy_per_step": found.energy_per_step,
        "usage": {name: found.value(name) for name in _USAGE},
        "metrics": dict(found.metrics),
    }


def _came_to(run: PastRun) -> dict[str, Any]:
    """Columns of a table of runs besides the fields of each: its steps, its wait, what it logged last, its config."""
    total = run.total
    return {
        **{name: getattr(total, name) for name in _OF_WHOLE},
        **{f"logged.{name}": value for name, value in total.metrics.items()},
        **{f"config.{name}": value for name, value in run.config.items()},
    }


def _typed(value: Parameter) -> str:
    return "null" if value is None else str(value)
