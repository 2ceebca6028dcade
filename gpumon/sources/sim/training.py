"""One simulated process of a training: its board, and its exact boundaries."""

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
    """One process of a job, and its run where it publishes one."""

    def __init__(self, job: Job, rank: int, number: int, gpu: SimulatedGpu, begin: int) -> None:
        self._job = job
        self._rank = rank
        self._gpu = gpu
        self._pid = 40211 + 1000 * number + rank
        self._begin = begin
        """ns since 1970 of the simulation's time 0."""
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
        # What a GPU does not do while it trains, it waits for data.
        trained = round(job.phases[1][1] / CELL) if job.phases else 0
        self._wait = Curve([max(0.0, 0.95 - load) * (i < trained) for i, load in enumerate(gpu.load.cells)])

    def _turn(self, time_ns: int) -> tuple[int, int]:
        """Number of the run in an endless sequence, and the ns since it began."""
        return divmod(time_ns, self._period * self._job.epochs)

    def key(self, time_ns: int) -> str:
        """Key of the run at `time_ns` (ns since the simulation began), or empty."""
        return f"{self._id}-{self._turn(time_ns)[0]}-{self._rank}" if self._name else ""

    def process(self, time_ns: int) -> Process:
        """The process at `time_ns`."""
        load = self._gpu.load.at(time_ns / SECOND)
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

    def _step(self, epoch: int, inside: int) -> int:
        train = self._job.phases[1][1] * SECOND
        return epoch * self._job.steps + min(self._job.steps, int(inside / train * self._job.steps))

    def _waited(self, turn: int, inside: int) -> float:
        """Seconds waited since the run began, the same wherever nothing waits: a difference of sums would tremble."""
        begin = turn * self._period * self._job.epochs
        return round(self._wait.until((begin + inside) / SECOND) - self._wait.until(begin / SECOND), 6)

    def run(self, time_ns: int) -> Run:
        """The run as its board would show it at `time_ns`."""
        job = self._job
        turn, inside = self._turn(time_ns)
        epoch, within = divmod(inside, self._period)
        began = self._begin + time_ns - inside
        phase = next(phase for start, _, phase in reversed(self._marks) if start <= within)
        return Run(
            key=self.key(time_ns),
            id=f"{self._id}-{turn}",
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
            step=self._step(epoch, within),
            phase=phase,
            epoch_started=(began + epoch * self._period) / SECOND,
            updated=(self._begin + time_ns) / SECOND,
            wait=self._waited(turn, inside),
            memory=self._memory(phase),
            metrics=job.metrics(inside / self._period),
        )

    def over(self, time_ns: int) -> Run | None:
        """The run before it, as long as a real one that has finished would be told of; None after that."""
        if not self._name:
            return None
        turn, inside = self._turn(time_ns)
        if turn == 0 or inside > SHOWN_FOR * SECOND:
            return None
        end, epochs = time_ns - inside, self._job.epochs
        return self.run(end - 1)._replace(
            state=RunState.FINISHED,
            step=self._step(epochs - 1, self._period),
            updated=(self._begin + end) / SECOND,
            wait=self._waited(turn - 1, self._period * epochs),
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

    def held(self, sample: Sample, time_ns: int) -> Sample:
        """`sample` of this rank's GPU with what its run holds of it."""
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
        """Those in (`after`, `until`], ns since the simulation began, at `monotonic_ns`."""
        job = self._job
        for epoch in range(max(0, after // self._period - 1), until // self._period + 1) if self._name else ():
            turn, inside = divmod(epoch, job.epochs)
            number = 2 + inside * len(self._marks)
            marks = [(number + i, *mark) for i, mark in enumerate(self._marks)]
            if inside == 0:
                marks.insert(0, (1, 0, Mark.RUN_BEGIN, ""))
            if inside == job.epochs - 1:
                marks.append((2 + job.epochs * len(self._marks), self._period, Mark.RUN_END, ""))
            for place, start, mark, phase in marks:
                time = epoch * self._period + start
                if after < time <= until:
                    key = f"{self._id}-{turn}-{self._rank}"
                    step = self._step(inside, start)
                    waited = self._waited(turn, inside * self._period + start)
                    yield Boundary(
                        run=key,
                        number=place,
                        mark=mark,
                        epoch=-1 if mark is Mark.RUN_BEGIN else self._base + inside,
                        step=step,
                        phase=phase,
                        monotonic_ns=monotonic_ns + time,
                        time_ns=self._begin + time,
                        wait=waited,
                        metrics=job.metrics(inside + 1.0) if mark is Mark.EPOCH_END else {},
                    )
