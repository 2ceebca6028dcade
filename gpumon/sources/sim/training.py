"""A simulated training process, with its run and its exact epoch boundaries."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpumon.common.clock import SECOND
from gpumon.common.text import clean
from gpumon.model.frame import Boundary, FrameworkMemory, Mark, Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX
from gpumon.model.process import Process
from gpumon.model.run import SHOWN_FOR
from gpumon.sources.sim.gpu import CELL, Curve, SimulatedGpu
from gpumon.sources.sim.scenarios import GIB, Job


class Rank:
    """A process of a job, and its run if the job publishes one."""

    def __init__(self, job: Job, rank: int, number: int, gpu: SimulatedGpu, begin: int) -> None:
        self._job = job
        self._rank = rank
        self._gpu = gpu
        self._pid = 40211 + 1000 * number + rank
        self._begin = begin
        """Start of the simulation in ns since 1970."""
        self._user = clean(job.user)
        self._name = clean(job.name)
        self._id = f"sim-{number}"
        self._base = 1 if job.framework == "keras" else 0
        self._period = len(gpu.load.cells) * SECOND // 10
        starts = [round(start * SECOND) for _, start in job.phases]
        self._marks = [(0, Mark.EPOCH_BEGIN, job.phases[0][0])] if job.phases else []
        for (phase, _), start in zip(job.phases[1:], starts[1:], strict=True):
            self._marks.append((start, Mark.PHASE, phase))
            if phase == "checkpoint":
                self._marks.append((start, Mark.CHECKPOINT, phase))
        self._marks.append((self._period, Mark.EPOCH_END, ""))
        # An idle GPU in the training phase is waiting for data.
        train_cells = round(job.phases[1][1] / CELL) if job.phases else 0
        self._wait = Curve([max(0.0, 0.95 - load) * (i < train_cells) for i, load in enumerate(gpu.load.cells)])

    def _position(self, time_ns: int) -> tuple[int, int]:
        """Return the number of the current run, and the ns since its start. Runs follow each other."""
        return divmod(time_ns, self._period * self._job.epochs)

    def key(self, time_ns: int) -> str:
        """Return the key of the run at `time_ns` (ns since the start of the simulation); empty if there is no run."""
        return f"{self._id}-{self._position(time_ns)[0]}-{self._rank}" if self._name else ""

    def process(self, time_ns: int) -> Process:
        """Return the process at `time_ns`."""
        load = self._gpu.load.value(time_ns / SECOND)
        job = self._job
        wave = math.sin(time_ns / SECOND * 0.7 + self._pid)
        cpu = job.cpu * (1 + 0.06 * wave) if job.phases else job.cpu * (load > 0)
        return Process(
            pid=self._pid,
            uuid=self._gpu.device.uuid,
            kind="compute",
            name=clean(job.process),
            user=self._user,
            started=self._begin / SECOND - 40.0,
            memory_used=job.memory * GIB,
            sm_utilization=round(load, 2),
            memory_utilization=round(load * 0.58, 2),
            encoder_utilization=0.0,
            decoder_utilization=0.0,
            cpu_utilization=cpu,
            host_memory=job.resident * GIB,
            run=self.key(time_ns),
        )

    def _step(self, epoch: int, elapsed: int) -> int:
        train = self._job.phases[1][1] * SECOND
        return epoch * self._job.steps + min(self._job.steps, int(elapsed / train * self._job.steps))

    def _wait_time(self, number: int, elapsed: int) -> float:
        """Return the wait time in seconds since the start of the run.

        The result is rounded, because a difference of sums is not exact.
        """
        begin = number * self._period * self._job.epochs
        return round(self._wait.integral((begin + elapsed) / SECOND) - self._wait.integral(begin / SECOND), 6)

    def run(self, time_ns: int) -> Run:
        """Return the run at `time_ns`, as if it were read from a board."""
        job = self._job
        number, elapsed = self._position(time_ns)
        epoch, in_epoch = divmod(elapsed, self._period)
        began = self._begin + time_ns - elapsed
        phase = next(phase for start, _, phase in reversed(self._marks) if start <= in_epoch)
        return Run(
            key=self.key(time_ns),
            id=f"{self._id}-{number}",
            name=self._name,
            pid=self._pid,
            user=self._user,
            rank=self._rank,
            local_rank=self._rank,
            world_size=len(job.gpus),
            framework=job.framework,
            epochs=job.epochs,
            gpus=(self._gpu.device.uuid,),
            started=began / SECOND,
            epoch=self._base + epoch,
            first_epoch=self._base,
            base=self._base,
            step=self._step(epoch, in_epoch),
            phase=phase,
            epoch_started=(began + epoch * self._period) / SECOND,
            updated=(self._begin + time_ns) / SECOND,
            wait=self._wait_time(number, elapsed),
            memory=self._memory(phase),
            metrics=job.metrics(elapsed / self._period),
        )

    def finished_run(self, time_ns: int) -> Run | None:
        """Return the previous run for as long as views would show a real finished run; None afterward."""
        if not self._name:
            return None
        number, elapsed = self._position(time_ns)
        if number == 0 or elapsed > SHOWN_FOR * SECOND:
            return None
        end, epochs = time_ns - elapsed, self._job.epochs
        return self.run(end - 1)._replace(
            state=RunState.FINISHED,
            step=self._step(epochs - 1, self._period),
            updated=(self._begin + end) / SECOND,
            wait=self._wait_time(number - 1, self._period * epochs),
            metrics=self._job.metrics(float(epochs)),
        )

    def _memory(self, phase: str) -> FrameworkMemory:
        memory = self._job.memory
        allocated = (memory - 3.1) * GIB * (0.86 if phase == "train" else 0.71)
        return FrameworkMemory(
            allocated=allocated,
            reserved=(memory - 0.6) * GIB,
            peak=(memory - 3.1) * GIB * 0.86,
            active=allocated,
            inactive_split=0.021 * memory * GIB,
            requested=allocated * 0.987,
            retries=0.0,
            ooms=0.0,
        )

    def with_memory(self, sample: Sample, time_ns: int) -> Sample:
        """Return a sample of this rank's GPU with the memory that the run's framework reports."""
        if not sample.run:
            return sample
        memory = self.run(time_ns).memory
        values = list(sample.values)
        for name, value in (
            ("allocated", memory.allocated), ("reserved", memory.reserved), ("used", self._job.memory * GIB),
            ("inactive_split", memory.inactive_split),
        ):  # fmt: skip
            values[GPU_INDEX[f"gpu.run_{name}"]] = value
        return sample._replace(values=values)

    def boundaries(self, after: int, until: int, monotonic_ns: int) -> Iterator[Boundary]:
        """Yield the boundaries in the interval (`after`, `until`], in ns since the start of the simulation.

        `monotonic_ns`: start of the simulation (ns, CLOCK_MONOTONIC).
        """
        job = self._job
        for epoch in range(max(0, after // self._period - 1), until // self._period + 1) if self._name else ():
            run_number, epoch_of_run = divmod(epoch, job.epochs)
            first = 2 + epoch_of_run * len(self._marks)
            marks = [(first + i, *mark) for i, mark in enumerate(self._marks)]
            if epoch_of_run == 0:
                marks.insert(0, (1, 0, Mark.RUN_BEGIN, ""))
            if epoch_of_run == job.epochs - 1:
                marks.append((2 + job.epochs * len(self._marks), self._period, Mark.RUN_END, ""))
            for number, start, mark, phase in marks:
                time = epoch * self._period + start
                if after < time <= until:
                    yield Boundary(
                        run=f"{self._id}-{run_number}-{self._rank}",
                        number=number,
                        mark=mark,
                        epoch=-1 if mark is Mark.RUN_BEGIN else self._base + epoch_of_run,
                        step=self._step(epoch_of_run, start),
                        phase=phase,
                        monotonic_ns=monotonic_ns + time,
                        time_ns=self._begin + time,
                        wait=self._wait_time(run_number, epoch_of_run * self._period + start),
                        metrics=job.metrics(epoch_of_run + 1.0) if mark is Mark.EPOCH_END else {},
                    )
