"""The newest frame as the JSON of `gpumon status --json`, and a list of users made from it.

The keys of a device are metric names without their scope. Values are in base units. A missing value is null, never 0.
Keys may be added without a new schema number, but are never changed or removed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.memory import THIS_RUN, breakdown_of, fragmentation, titles
from gpumon.analysis.processes import missing_value_reasons
from gpumon.analysis.progress import Progress
from gpumon.analysis.run_epochs import Epochs
from gpumon.analysis.throttling import clock_event_reasons
from gpumon.common.numbers import NAN, logged
from gpumon.diagnosis.finding import Finding, finding_json
from gpumon.diagnosis.live_findings import JudgedFrame
from gpumon.model.device import job_parts
from gpumon.model.frame import Frame, Run, Sample
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, PROCESS_SHARES, PROCESSES, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process, pod_parts
from gpumon.model.run import facts_to_json
from gpumon.model.vendors import NVIDIA

if TYPE_CHECKING:
    from gpumon.diagnosis.running_findings import RecordedFindings

SCHEMA = 1


def document(
    frame: Frame, origin: Origin, driver: Driver, hostname: str, daemon: dict[str, Any] | None,
    live: bool = True, age: float = NAN, before: Sequence[Frame] = (),
    epochs: Epochs | None = None, recorded: Mapping[str, RecordedFindings] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """Return a frame as JSON.

    `daemon`: {"pid", "interval", "age"}, or None if no daemon is running. `live`: False if the values are old because
    sampling has stopped. `age`: age of the values in seconds if `live` is False. `before`: earlier frames. `epochs`:
    epochs of the runs. `recorded`: what the ledger says about running runs, by id.
    """
    runs = {run.key: run for run in frame.runs}
    judged = JudgedFrame(frame, before, live, epochs)
    progress = {run.key: judged.progress(ranks) for ranks in judged.runs for run in ranks.all}
    status = {
        "schema": SCHEMA,
        "time": round(frame.time, 6),
        "source": origin.source or None,
        "label": origin.label,
        "problem": origin.problem or None,
        "notice": origin.notice or None,
        "live": live,
        "age": None,
        "daemon": daemon,
        "host": {
            "hostname": hostname,
            **{metric.key: _known(value) for metric, value in zip(HOST_METRICS, frame.host, strict=True)},
        },
        "driver": {
            "version": driver.version or None,
            "cuda": driver.version_of(NVIDIA.runtime) or None,
            "unanswered": _known(origin.unanswered) or None,
        },
        "gpus": [_gpu(gpu, frame, runs, live) for gpu in judged.gpus],
        "runs": [_run(run, progress[run.key]) for run in frame.runs],
        "findings": [finding_json(finding) for finding in _findings(judged, recorded)],
        "left_out": {"runs": frame.dropped_runs, "processes": frame.dropped},
    }
    return aged(status, age)


def _findings(judged: JudgedFrame, recorded: Mapping[str, RecordedFindings]) -> list[Finding]:
    if not recorded:
        return judged.findings()
    from gpumon.diagnosis.running_findings import add_recorded  # `gpumon status` reads no ledger

    return add_recorded(judged.findings(), recorded)


def aged(status: Mapping[str, Any], age: float) -> dict[str, Any]:
    """Return a copy of a status with the age of its values. `age`: seconds since the frame.

    Each stale GPU gets the age of its own values.
    """
    gpus = status["gpus"]
    if math.isfinite(age):
        gpus = [{**gpu, "age": _gpu_age(gpu, status["live"], age)} if gpu["state"] == "stale" else gpu for gpu in gpus]
    return {**status, "age": _known(round(age, 3)), "gpus": gpus}


def _gpu_age(gpu: Mapping[str, Any], live: bool, age: float) -> float | int | None:
    """Return the age of a stale GPU's values in seconds.

    In a live frame, this is the GPU's own age if the frame contains it. Otherwise, the age of the frame (`age`) is
    added.
    """
    own = gpu["age"] or 0.0
    return _known(round(own if live and own > 0 else own + age, 3))


def _gpu(status: GpuStatus, frame: Frame, runs: dict[str, Run], live: bool) -> dict[str, Any]:
    sample = status.sample
    run = runs.get(sample.run)
    state = Availability.STALE if sample.state is Availability.OK and not live else sample.state
    return {
        "index": sample.device.index,
        "label": sample.device.label,
        "parent": sample.device.parent or None,
        "instance": sample.device.instance if sample.device.is_instance else None,
        "uuid": sample.device.uuid,
        "name": sample.device.name,
        "job": job_parts(sample.device.job)[0] or None,
        "state": state.name.lower(),
        "gpu_state": status.state.value,
        "age": _known(round(sample.age, 3)) if sample.state is Availability.STALE else None,
        **{metric.key: _known(value) for metric, value in zip(GPU_METRICS, sample.values, strict=True)},
        "clock_event_reasons": _words(sample),
        "memory_split": _memory_split(sample),
        "missing": {metric: why.name.lower() for metric, why in sorted(sample.device.missing.items())},
        "processes": _processes(sample, frame, runs),
        "run": None
        if run is None
        else {
            "id": run.id,
            "name": run.name,
            "epoch": _counted(run.epoch),
            "epochs": run.epochs or None,
            "base": run.base,
            "step": run.step,
            "phase": run.phase or None,
        },
    }


def _words(sample: Sample) -> list[str] | None:
    reasons = clock_event_reasons(sample)
    return None if reasons is None else list(reasons)


def _processes(sample: Sample, frame: Frame, runs: dict[str, Run]) -> list[dict[str, Any]] | None:
    """Return the processes on the device. If they cannot be read, return None instead of an empty list."""
    why = sample.device.missing.get(PROCESS_SHARES)
    processes = [_process(process, runs, why) for process in frame.processes if process.uuid == sample.device.uuid]
    return None if not processes and PROCESSES in sample.device.missing else processes


def _memory_split(sample: Sample) -> dict[str, float | int | None] | None:
    breakdown = breakdown_of(sample)
    if breakdown is None:
        return None
    parts: dict[str, float | int | None] = {part: _known(value) for part, value in breakdown._asdict().items()}
    # If the framework reports nothing, only the total memory of a run is available, not its parts.
    is_undivided = titles([breakdown])["context"] == THIS_RUN
    context = parts["context"]
    return {**parts, "context": None if is_undivided else context, "run": context if is_undivided else None}


def _process(process: Process, runs: dict[str, Run], shares_missing: Availability | None) -> dict[str, Any]:
    run = runs.get(process.run)
    pod, pod_name = pod_parts(process.pod)
    return {
        "pid": process.pid,
        "user": process.user or None,
        "name": process.name or None,
        "kind": process.kind,
        "memory_used": _known(process.memory_used),
        "sm_utilization": _known(process.sm_utilization),
        "memory_utilization": _known(process.memory_utilization),
        "encoder_utilization": _known(process.encoder_utilization),
        "decoder_utilization": _known(process.decoder_utilization),
        "cpu_utilization": _known(process.cpu_utilization),
        "host_memory": _known(process.host_memory),
        "started": _known(process.started),
        "run": run.id if run else None,
        "container": process.container or None,
        "pod": pod or None,
        "pod_name": pod_name or None,
        "job": process.job or None,
        "problem": missing_value_reasons(process, shares_missing) or None,
    }


def _run(run: Run, progress: Progress) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "pid": run.pid,
        "user": run.user or None,
        "state": run.state.name.lower(),
        "rank": run.rank,
        "world_size": run.world_size,
        "framework": run.framework or None,
        "epoch": _counted(run.epoch),
        "epochs": run.epochs or None,
        "base": run.base,
        **facts_to_json(run.facts),
        "first_epoch": _counted(run.first_epoch) if run.epoch >= 0 else None,
        "step": run.step,
        "phase": run.phase or None,
        "progress": _known(round(progress.done, 4)),
        "time_left": _known(round(progress.left, 1)),
        "started": _known(run.started),
        "epoch_started": _known(run.epoch_started),
        "wait": _known(run.wait),
        **{f"memory_{name}": _known(value) for name, value in run.memory._asdict().items()},
        **{f"memory_{name}": _known(share) for name, share in fragmentation(run.memory)._asdict().items()},
        "metrics": {name: logged(value) for name, value in run.metrics.items()},
        "gpus": list(run.gpus),
    }


def _known(value: float) -> float | int | None:
    """Convert a value for JSON. Values that are not finite become None. Whole numbers become int."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _counted(epoch: int) -> int | None:
    return epoch if epoch >= 0 else None


HELD = ("busy", "allocated", "held")
"""States of a GPU that a user holds."""
NOT_KNOWN = ("unknown", "stale", "lost", "unreadable", "asleep")
"""States of a GPU whose current users cannot be determined."""


def users_json(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the users who hold GPUs as JSON, sorted by number of GPUs, most first.

    An unknown user is null and comes last.

    A user holds a GPU while one of the user's processes is on it, or one of the user's runs claims it. `status`: a
    result of `document`.
    """
    gpus_by_user: dict[str | None, list[dict[str, Any]]] = {}
    unknown = []
    for gpu in status["gpus"]:
        processes: Sequence[Mapping[str, Any]] = gpu["processes"] or ()
        runs = [run for run in status["runs"] if run["state"] == "running" and gpu["uuid"] in run["gpus"]]
        users: list[str | None] = [process["user"] for process in processes] + [run["user"] for run in runs]
        if gpu["gpu_state"] in NOT_KNOWN or (gpu["processes"] is None and gpu["gpu_state"] != "divided"):
            unknown.append(gpu["uuid"])
        elif not users and gpu["gpu_state"] in HELD:
            users = [None]
        for user in dict.fromkeys(users):
            gpus_by_user.setdefault(user, []).append(_usage_of(gpu, user, processes, runs))
    ranking = sorted(gpus_by_user.items(), key=lambda item: (item[0] is None, -len(item[1]), item[0] or ""))
    return {
        "schema": SCHEMA, "time": status["time"], "live": status["live"], "age": status["age"],
        "users": [
            {
                "user": user, "gpus": gpus, "memory_used": _sum(gpu["memory_used"] for gpu in gpus),
                "runs": list(dict.fromkeys(run for gpu in gpus for run in gpu["runs"])),
            }
            for user, gpus in ranking
        ],
        "unknown_gpus": unknown,
    }  # fmt: skip


def _usage_of(
    gpu: Mapping[str, Any], user: str | None, processes: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the processes, memory and runs that one user has on a GPU. `user`: None for an unknown user."""
    own = [process for process in processes if process["user"] == user]
    claims = [process["run"] for process in own if process["run"]] + [run["id"] for run in runs if run["user"] == user]
    return {
        "uuid": gpu["uuid"], "label": gpu["label"], "gpu_state": gpu["gpu_state"], "processes": len(own),
        "memory_used": _sum(process["memory_used"] for process in own) if own else None,
        "runs": list(dict.fromkeys(claims)),
    }  # fmt: skip


def _sum(values: Any) -> float | None:
    """Return the sum, or None if one of the values is None."""
    parts = list(values)
    return None if None in parts else sum(parts)
