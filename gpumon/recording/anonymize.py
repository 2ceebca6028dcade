"""Anonymizes recordings, so that they can be attached to bug reports.

Each name is replaced by its kind and a number, such as `user-1`. Numbers are assigned in the order of first use. Within
a recording, the same name always gets the same replacement. Names are not hashed, because a reader could compare the
hashes of likely names. Times, numbers, GPU models, driver versions, and words of gpumon and of frameworks are not
replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpumon.model.device import Device
from gpumon.model.frame import EVALUATION, TRAINING, Boundary, Frame, Run, Sample
from gpumon.model.origin import Origin, SourceInfo
from gpumon.model.process import Process
from gpumon.model.run import PAUSED
from gpumon.model.vendors import PARTS, WHOLE
from gpumon.recording.codec import nanoseconds
from gpumon.recording.content import Context, DecodedParts, RecordedFrame

_PHASES = frozenset((TRAINING, *EVALUATION, PAUSED, "checkpoint", "warmup", "search", "refit", ""))
_FRAMEWORKS = frozenset((
    "torch", "keras", "lightning", "transformers", "tensorflow", "jax", "ignite", "accelerate", "xgboost", "lightgbm",
    "sklearn", "gpumon run", "",
))  # fmt: skip
_METRICS = frozenset(("loss", "val_loss", "accuracy", "val_accuracy", "learning_rate", "lr", "grad_norm"))
_LABELS = frozenset(("", "SIMULATED"))
_FIRST_PID = 1000


class Anonymizer:
    """Replaces the names in frames. The same name always gets the same replacement."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._pids: dict[int, int] = {}

    def recorded(self, recorded: RecordedFrame) -> RecordedFrame:
        """Return the frame with its names replaced."""
        frame = recorded.frame
        parts = DecodedParts(
            samples=tuple(map(self._sample, frame.samples)),
            host=frame.host,
            processes=tuple(map(self._process, frame.processes)),
            runs=tuple(map(self._run, frame.runs)),
            boundaries=tuple(map(self._boundary, frame.boundaries)),
        )
        anonymous = Frame(
            number=frame.number,
            monotonic_ns=frame.monotonic_ns,
            time_ns=nanoseconds(frame.time),
            interval=frame.interval,
            sample_duration=frame.sample_duration,
            skipped_ticks=frame.skipped_ticks,
            dropped=frame.dropped,
            parts=parts,
            dropped_runs=frame.dropped_runs,
            is_full=frame.is_full,
        )
        return RecordedFrame(anonymous, self._context(recorded.context))

    def _name(self, kind: str, name: str) -> str:
        """Return the replacement of a name of this kind. An empty name stays empty."""
        if not name:
            return ""
        known = self._names.get((kind, name))
        if known is None:
            number = sum(other == kind for other, _ in self._names) + 1
            known = self._names[kind, name] = f"{kind}-{number}"
        return known

    def _usual(self, kind: str, name: str, usual: frozenset[str]) -> str:
        return name if name in usual else self._name(kind, name)

    def _uuid(self, uuid: str) -> str:
        """Return the replacement of a UUID.

        The prefix stays, because it shows the vendor, and whether this is a part of a GPU.
        """
        kind = next((prefix.rstrip("-") for prefix in (*PARTS, *WHOLE) if uuid.startswith(prefix)), "DEVICE")
        return self._name(kind, uuid)

    def _pid(self, pid: int) -> int:
        return self._pids.setdefault(pid, _FIRST_PID + len(self._pids))

    def _metrics(self, logged: Mapping[str, float]) -> dict[str, float]:
        return {self._usual("metric", name, _METRICS): value for name, value in logged.items()}

    def _sample(self, sample: Sample) -> Sample:
        device: Device = sample.device
        device = device._replace(uuid=self._uuid(device.uuid), parent=device.parent and self._uuid(device.parent))
        return sample._replace(device=device, run=self._name("key", sample.run))

    def _process(self, process: Process) -> Process:
        return process._replace(
            pid=self._pid(process.pid),
            uuid=self._uuid(process.uuid),
            name=self._name("process", process.name),
            user=self._name("user", process.user),
            run=self._name("key", process.run),
            container=self._name("container", process.container),
            pod=self._name("pod", process.pod),
            job=self._name("job", process.job),
        )

    def _run(self, run: Run) -> Run:
        facts: dict[str, Any] = {
            name: self._name(name, value) for name, value in run.facts._asdict().items() if isinstance(value, str)
        }
        return run._replace(
            key=self._name("key", run.key),
            id=self._name("run", run.id),
            name=self._name("training", run.name),
            pid=self._pid(run.pid),
            user=self._name("user", run.user),
            framework=self._usual("framework", run.framework, _FRAMEWORKS),
            gpus=tuple(map(self._uuid, run.gpus)),
            phase=self._usual("phase", run.phase, _PHASES),
            metrics=self._metrics(run.metrics),
            facts=run.facts._replace(**facts),
        )

    def _boundary(self, boundary: Boundary) -> Boundary:
        return boundary._replace(
            run=self._name("key", boundary.run),
            phase=self._usual("phase", boundary.phase, _PHASES),
            metrics=self._metrics(boundary.metrics),
        )

    def _context(self, context: Context) -> Context:
        return replace(context, origin=self._origin(context.origin), hostname=self._name("host", context.hostname))

    def _origin(self, origin: Origin) -> Origin:
        parts = tuple(SourceInfo(self._origin(part.origin), part.driver) for part in origin.parts)
        return origin._replace(
            label=self._usual("source", origin.label, _LABELS),
            problem=self._name("problem", origin.problem),
            notice=self._name("notice", origin.notice),
            parts=parts,
        )
