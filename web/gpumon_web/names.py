"""User names under the privacy policy: in frames and their origin before a feed reads them, and in worker tasks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from gpumon.common.privacy import HIDDEN, SHOWN, People, contains_user_name, use_policy
from gpumon.model.frame import Boundary, Frame, Parts, Run, Sample
from gpumon.model.origin import Origin
from gpumon.model.process import Process
from gpumon.ring.sums import Sums
from gpumon.storage.usage.running_sums import USERS, merge_rows
from gpumon_web.jobs import Arguments, Task, Work


class NamedFrames:
    """Wraps a reader of frames and applies the policy to user names; other attributes come from `live`."""

    def __init__(self, live: Any, people: People) -> None:
        self._live = live
        self._people = people
        self.hides_names = people.way == HIDDEN
        """Whether all users are shown under the same name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live, name)

    def since(self, number: int) -> Sequence[Frame]:
        """Return the frames newer than `number`, oldest first."""
        return [named(frame, self._people) for frame in self._live.since(number)]

    def latest(self) -> Frame | None:
        """Return the newest frame; None if there is none."""
        frame = self._live.latest()
        return named(frame, self._people) if frame is not None else None

    def sums(self) -> Sums | None:
        """Return the daemon's running sums; users shown under the same name are added up."""
        sums: Sums | None = self._live.sums()
        if sums is None or USERS not in sums.tables:
            return sums
        users = sums.tables[USERS]
        rows_by_user: dict[tuple[str, ...], list[Sequence[float]]] = {}
        for key, row in users.rows.items():
            rows_by_user.setdefault((*key[:-1], self._people.name(key[-1])), []).append(row)
        rows = {key: merge_rows(users.columns, same_rows) for key, same_rows in rows_by_user.items()}
        tables = {**sums.tables, USERS: users._replace(rows=rows)}
        return sums._replace(tables=tables)

    def origin(self) -> Origin:
        """Return the source, with paths and names removed from its texts."""
        return _named_origin(self._live.origin(), self._people)


def named_frames(live: Any, people: People) -> Any:
    """Return `live`, wrapped in `NamedFrames` unless the policy shows names."""
    return live if people.way == SHOWN else NamedFrames(live, people)


def named(frame: Frame, people: People) -> Frame:
    """Return a frame with the policy applied to names."""
    return Frame(
        frame.number, frame.monotonic_ns, round(frame.time * 1e9), frame.interval, frame.sample_duration,
        frame.skipped_ticks, frame.dropped, _NamedParts(frame, people), frame.dropped_runs, frame.is_full,
    )  # fmt: skip


def _named_origin(origin: Origin, people: People) -> Origin:
    parts = tuple(part._replace(origin=_named_origin(part.origin, people)) for part in origin.parts)
    return origin._replace(
        label=people.label(origin.label), problem=people.text(origin.problem), notice=people.text(origin.notice),
        parts=parts,
    )  # fmt: skip


def _job(job: str, people: People) -> str:
    """Return a job's number as it is; other text may contain a name."""
    return job if job.isdigit() else people.text(job)


class _NamedParts:
    """The parts of a frame, decoded and renamed on demand."""

    def __init__(self, frame: Frame, people: People) -> None:
        self._frame = frame
        self._people = people

    def samples(self) -> tuple[Sample, ...]:
        return self._frame.samples

    def host(self) -> tuple[float, ...]:
        return self._frame.host

    def processes(self) -> tuple[Process, ...]:
        people = self._people
        return tuple(
            process._replace(
                user=people.name(process.user), name=people.text(process.name), pod=people.text(process.pod),
                container=people.text(process.container), job=_job(process.job, people),
            )
            for process in self._frame.processes
        )  # fmt: skip

    def runs(self) -> tuple[Run, ...]:
        people = self._people
        return tuple(
            run._replace(
                user=people.name(run.user), name=people.run_id(run.id), id=people.run_id(run.id),
                phase=people.text(run.phase) if contains_user_name(run.phase, run.user) else run.phase,
                facts=run.facts._replace(job=_job(run.facts.job, people)),
                metrics={
                    name: value for name, value in run.metrics.items() if not contains_user_name(name, run.user)
                },
            )
            for run in self._frame.runs
        )  # fmt: skip

    def boundaries(self) -> tuple[Boundary, ...]:
        return self._frame.boundaries


_: type[Parts] = _NamedParts


class NamedWork:
    """Wraps a worker so that its tasks run under the policy."""

    def __init__(self, work: Work, people: People) -> None:
        self._work = work
        self._people = people

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        """Schedule `task`; the future gets its result or its error."""
        return self._work.ask(do_under, lambda: (self._people, task, *arguments()))

    def close(self) -> None:
        """Stop without finishing pending tasks."""
        self._work.close()


def do_under(people: People, task: Task, *arguments: Any) -> Any:
    """Run a task under the policy and return its result."""
    with use_policy(people):
        return task(*arguments)


def named_work(work: Work, people: People) -> Work:
    """Return `work`, wrapped in `NamedWork` unless the policy shows names."""
    return work if people.way == SHOWN else NamedWork(work, people)
