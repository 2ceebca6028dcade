"""Python API of the ledger for scripts and notebooks, opened with `gpumon.ledger()`.

    ledger = gpumon.ledger()
    run = ledger.run("last")
    run.epochs.to_pandas()
    ledger.runs(tag="baseline", where={"lr": 0.1}).to_polars()

Times are seconds since 1970. All other values are in base units: seconds, joules, bytes, shares from 0 to 1. Unknown
numbers are NaN, other unknown values are None. In tables exported to pandas or polars, times are dates in UTC.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any

from gpumon.common.errors import GpumonError, UsageError, converts_os_errors
from gpumon.common.numbers import NAN
from gpumon.common.paths import ledger_path, ledger_paths, places
from gpumon.common.text import clean, cut
from gpumon.model.columns import USAGE
from gpumon.model.run import Parameter
from gpumon.storage.ledger import aggregate, dataframe
from gpumon.storage.ledger.aggregate import between_epochs, step_summaries
from gpumon.storage.ledger.dataframe import RowTable
from gpumon.storage.ledger.reader import NOTHING, Ledger, Ledgers
from gpumon.storage.ledger.records import NoteRow, Record, RunMetadata, RunSummary
from gpumon.storage.ledger.row_keys import WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary
from gpumon.storage.sqlite.read import explain_absence

_WIDTH = 40
_OF_WHOLE = ("steps", "steps_per_second", "samples_per_second", "wait", "wait_share", "energy_per_step")
_USAGE = tuple(column.key for column in USAGE if column.key != "seconds")


@dataclass(frozen=True)
class PastEpoch:
    """An epoch of a run, combined over all ranks and devices of the run."""

    run: str
    """Id of the run."""
    ordinal: int
    """Index of the epoch among all epochs that the run has started, from 0."""
    epoch: int
    """Epoch number as the training counts it."""
    begun: float
    """Start of the epoch, in seconds since 1970."""
    ended: float
    """End of the epoch, in seconds since 1970. NaN while the epoch is open, or if the run died in it."""
    seconds: float
    steps: int | None
    steps_per_second: float
    samples_per_second: float
    wait: float
    """Seconds that the training waited for data."""
    wait_share: float
    """Share of the time that the training waited for data, from 0 to 1."""
    energy_per_step: float
    """Energy per training step in joules."""
    usage: Mapping[str, float]
    """Measured values by column name, such as `utilization_mean`, `energy` or `memory_used_peak`.
    `docs/reference/columns.md` lists the names."""
    metrics: Mapping[str, float]
    """Metrics that the training logged in this epoch, by name."""

    def _repr_html_(self) -> str:
        return dataframe.html_of_row(self)


@dataclass(frozen=True)
class PastSteps:
    """A range of steps of a run without epochs, combined over all ranks and devices. See `PastEpoch` for the fields."""

    run: str
    first_step: int
    """Number of steps that the run took before this range."""
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
        return dataframe.html_of_row(self)


@dataclass(frozen=True)
class PastUsage:
    """Usage of one device by one rank: in a whole epoch, in one phase of an epoch, or outside epochs."""

    run: str
    rank: int
    ordinal: int
    """Index of the epoch, as in `PastEpoch`. It is -1 for the whole run, and lower for time outside epochs."""
    phase: str
    """Name of the phase; empty for the whole epoch."""
    device: str
    """UUID of the device."""
    utilization_from: str
    """Source of the utilization: `driver`, `ticks`, or empty if nothing was sampled."""
    seconds: float
    usage: Mapping[str, float]
    """Measured values, as in `PastEpoch`."""

    def _repr_html_(self) -> str:
        return dataframe.html_of_row(self)


@dataclass(frozen=True)
class PastRun:
    """A run as it was when it was read from the ledger. Its epochs and usage are read on first access."""

    id: str
    name: str
    user: str
    hostname: str
    framework: str
    state: str
    """`running`, `finished`, `failed`, `interrupted`, `stopped` or `died`. If the run has not ended but no daemon
    watches it, `unseen`.
    """
    started: float
    ended: float
    """End of the run, in seconds since 1970. NaN while the run is running."""
    seconds: float
    epochs_planned: int | None
    epochs_done: int | None
    """Number of completed epochs. None if unknown, for example if a daemon first saw the run in the middle of an
    epoch."""
    gpus: int
    energy: float
    """Energy in joules, summed over all devices."""
    utilization: float
    """Mean utilization over the devices, from 0 to 1."""
    tags: tuple[str, ...]
    resumes: str
    """Id of the run that this one continues, or empty."""
    _ledger: Ledger = field(repr=False, compare=False, metadata=dataframe.HIDDEN)

    @cached_property
    def _record(self) -> Record:
        return self._ledger.record(self.id)

    @cached_property
    def _about(self) -> RunMetadata:
        return self._ledger.metadata(self.id)

    @property
    def config(self) -> Mapping[str, Parameter]:
        """Parameters of the training by name, such as the learning rate."""
        return self._about.config

    @property
    def program(self) -> Mapping[str, Parameter]:
        """Facts about the program by name: script, Git commit, package versions."""
        return self._about.program

    @property
    def notes(self) -> Sequence[NoteRow]:
        """Notes about the run, oldest first."""
        return self._about.notes

    @cached_property
    def epochs(self) -> RowTable[PastEpoch]:
        """The epochs of the run, oldest first."""
        return RowTable(PastEpoch, [_epoch(self.id, summary) for summary in aggregate.epoch_summaries(self._record)])

    @cached_property
    def total(self) -> PastEpoch:
        """The whole run as one row. Its metrics are the last logged values."""
        summary = aggregate.run_total(self._record, aggregate.epoch_summaries(self._record))
        return _epoch(self.id, summary)

    @cached_property
    def between(self) -> PastEpoch | None:
        """The time outside epochs as one row. None if that time is unknown or the run has no epochs."""
        summary = between_epochs(self._record, aggregate.epoch_summaries(self._record))
        return None if summary is None else _epoch(self.id, summary)

    @cached_property
    def steps(self) -> RowTable[PastSteps]:
        """Ranges of steps, oldest first; empty if the run has epochs."""
        rows = step_summaries(self._record)
        return RowTable(PastSteps, [PastSteps(self.id, summary.epoch, **_measured(summary)) for summary in rows])

    @cached_property
    def usage(self) -> RowTable[PastUsage]:
        """One row for each rank, device, epoch and phase."""
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
        return dataframe.html_of_row(self, {"config": self.config, "program": self.program})


class PastRuns(RowTable[PastRun]):
    """A list of runs, newest first."""

    def __init__(self, rows: Sequence[PastRun]) -> None:
        super().__init__(PastRun, rows, _derived_columns)

    @property
    def epochs(self) -> RowTable[PastEpoch]:
        """The epochs of all runs as one table."""
        return RowTable(PastEpoch, [epoch for run in self for epoch in run.epochs])


class PastLedger:
    """The ledgers that this user can read. Each query reads the current content of the files."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Open the ledger files at `paths`. Raises GpumonError if none of them exists or none can be read."""
        self._ledgers = Ledgers(paths)
        if not self._ledgers:
            raise GpumonError(NOTHING)

    @converts_os_errors
    def runs(
        self, *, user: str = "", name: str = "", tag: str | Sequence[str] = (),
        where: Mapping[str, Parameter] | None = None, since: float = NAN, running: bool = False, limit: int = 0,
    ) -> PastRuns:  # fmt: skip
        """Return the runs that match all given criteria, newest first.

        `user`: name of the user who started the run. `name`: first characters of the run's name. `tag`: one or more
        tags; a run must have all of them. `where`: the values that a run's parameters must have, by parameter name.
        `since`: earliest start time, in seconds since 1970. `running`: only runs that are still running. `limit`:
        maximum number of runs, 0 for all. Raises UsageError if an argument has the wrong type.
        """
        _check("user", user, isinstance(user, str), "a name")
        _check("name", name, isinstance(name, str), "the beginning of a name")
        is_text = isinstance(tag, Iterable) and all(isinstance(name, str) for name in tag)
        _check("tag", tag, is_text, "a tag, or a list of them")
        is_config = isinstance(where, Mapping) and all(isinstance(key, str) for key in where)
        _check("where", where, where is None or is_config, "a dict of parameters, such as {'lr': 0.1}")
        _check("since", since, isinstance(since, int | float), "seconds since 1970, such as time.time() - 86400")
        _check("limit", limit, isinstance(limit, int) and limit >= 0, "0 for all, or the maximum number of runs")
        tags = (tag,) if isinstance(tag, str) else tuple(tag)
        wanted = [(key, _parameter_text(value)) for key, value in (where or {}).items()]
        return PastRuns(
            [
                _run(ledger, summary)
                for ledger, summary in self._ledgers.runs_with_ledger(
                    user=user, name=name, since=since, running=running, limit=limit, tags=tags, where=wanted
                )
            ]
        )

    @converts_os_errors
    def run(self, wanted: str = "last") -> PastRun:
        """Return the run whose id or name is `wanted` or starts with it; "last" returns the newest run.

        If several runs have exactly this name, the newest is returned. Raises GpumonError if no run matches, or if
        several runs only start with `wanted`. The message then lists them.
        """
        from gpumon.storage.ledger.reader import resolve_run

        _check("run", wanted, isinstance(wanted, str), "an id, a name, or 'last' for the newest run")
        ledger, run = resolve_run(self._ledgers, wanted, time.time())
        return _run(ledger, ledger.summary(run))

    def close(self) -> None:
        """Close the ledger files."""
        self._ledgers.__exit__(None, None, None)

    def __enter__(self) -> PastLedger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return self.runs(limit=dataframe.ROWS_SHOWN)._repr_html_()


@converts_os_errors
def open_ledger(directory: str | None = None, state_dir: str | None = None) -> PastLedger:
    """Open the ledgers of this user and of the machine-wide daemon.

    `directory` and `state_dir` are the values of the command-line options `--dir` and `--state-dir`. Raises GpumonError
    if no run has been recorded yet or no ledger can be read.
    """
    where = places(directory, state_dir)
    paths = ledger_paths(where)
    if not paths:
        raise GpumonError(explain_absence(where, ledger_path(where), NOTHING, "runs are not recorded"))
    return PastLedger(paths)


def _check(name: str, value: object, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise UsageError(f"{name}={cut(clean(repr(value), _WIDTH + 1), _WIDTH)}: give {wanted}")


def _run(ledger: Ledger, summary: RunSummary) -> PastRun:
    run, now = summary.run, time.time()
    return PastRun(
        id=run.id, name=run.name, user=run.user, hostname=run.hostname, framework=run.framework,
        state="unseen" if run.unseen_seconds(now) else run.state.name.lower(), started=run.started, ended=run.ended,
        seconds=run.duration, epochs_planned=run.epochs or None, epochs_done=summary.done, gpus=summary.gpus,
        energy=summary.energy, utilization=summary.utilization, tags=tuple(summary.tags), resumes=run.resumes,
        _ledger=ledger,
    )  # fmt: skip


def _epoch(run: str, summary: EpochSummary) -> PastEpoch:
    epoch = summary.epoch if summary.ordinal != WHOLE_RUN else WHOLE_RUN
    return PastEpoch(run, summary.ordinal, epoch, **_measured(summary))


def _measured(summary: EpochSummary) -> dict[str, Any]:
    """Return the fields that epochs, rows of steps and whole runs have in common."""
    return {
        "begun": summary.begun,
        "ended": summary.ended,
        "seconds": summary.seconds,
        "steps": summary.steps,
        "steps_per_second": summary.steps_per_second,
        "samples_per_second": summary.samples_per_second,
        "wait": summary.wait,
        "wait_share": summary.wait_share,
        "energy_per_step": summary.energy_per_step,
        "usage": {name: summary.value(name) for name in _USAGE},
        "metrics": dict(summary.metrics),
    }


def _derived_columns(run: PastRun) -> dict[str, Any]:
    """Return the columns that a table of runs has in addition to the fields of `PastRun`.

    They are the steps, the wait for data, the last value of each metric, and the parameters.
    """
    total = run.total
    return {
        **{name: getattr(total, name) for name in _OF_WHOLE},
        **{f"logged.{name}": value for name, value in total.metrics.items()},
        **{f"config.{name}": value for name, value in run.config.items()},
    }


def _parameter_text(value: Parameter) -> str:
    return "null" if value is None else str(value)
