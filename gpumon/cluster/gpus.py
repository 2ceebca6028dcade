"""Questions about each GPU: of all, where a cluster is small, and of one node or one user that somebody looks at."""

from __future__ import annotations

import re

from gpumon.cluster.questions import THROTTLED, Question
from gpumon.cluster.recorded import LISTED, throttled

_OF_GPUS = {
    "info": "max by (instance, gpu, model) (gpumon_gpu_info{})",
    "users": "max by (instance, gpu, user) (gpumon_gpu_user_info{})",
    "used": (
        "max by (instance, gpu) (rate(gpumon_gpu_utilization_seconds_total{}[5m])"
        " / rate(gpumon_gpu_utilization_observed_seconds_total{}[5m]))"
    ),
    "idle": "max by (instance, gpu) (gpumon_gpu_idle_seconds{})",
    "silent": "max by (instance, gpu, reason) (gpumon_gpu_unavailable{all})",
}
_OF_NODE = {
    "newest": "max(gpumon_last_sample_timestamp_seconds{})",
    "memory": "max by (gpu) (gpumon_gpu_memory_used_bytes{})",
    "size": "max by (gpu) (gpumon_gpu_memory_total_bytes{})",
    "power": "max by (gpu) (gpumon_gpu_power_watts{})",
    "temperature": "max by (gpu) (gpumon_gpu_temperature_celsius{})",
    "throttled": f"{throttled('gpu', '{}')} > {THROTTLED:g}",
    "held_idle": "max by (gpu) (gpumon_gpu_user_idle_seconds{})",
    "runs": (
        "max by (gpu, run, name, user) (max by (instance, uuid, gpu) (gpumon_gpu_info{})"
        " * on (instance, uuid) group_right (gpu) max by (instance, uuid, run, name, user) (gpumon_run_info{}))"
    ),
}
_OF_RUNS = "max by (run) (gpumon_run_{} and on (instance, run) max by (instance, run) (gpumon_run_info{{}}))"
_OF_USER = {
    "places": "count by (instance) (max by (instance, uuid) (gpumon_gpu_user_info{}))",
    "jobs": (
        "count by (run, name, slurm_job, instance) (max by (run, name, slurm_job, instance, uuid) (gpumon_run_info{}))"
    ),
    # Of those on few GPUs, too: what is asked of all is of the runs that are listed.
    "epochs": _OF_RUNS.format("epoch"),
    "planned": _OF_RUNS.format("epochs"),
}
_PLACE = re.compile(r"\{(all)?\}")
"""Where the series of a subject are chosen; with `all`, those that tell of a whole GPU."""


def _of(text: str, only: str = "") -> str:
    """The expression of these series alone. All places are filled at once: a name may look like one."""

    def chosen(found: re.Match[str]) -> str:
        matchers = ",".join(filter(None, ('metric="all"' if found[1] else "", only)))
        return f"{{{matchers}}}" if matchers else ""

    return _PLACE.sub(chosen, text)


OF_GPUS = tuple(Question(f"gpu_{name}", _of(text), every=30.0, is_small=True) for name, text in _OF_GPUS.items())
"""Questions with a row for each GPU."""


def of_node(node: str, told: str = "") -> tuple[Question, ...]:
    """Questions about the GPUs of one node; `told`: its name as the engine has it, where people see another text."""
    only = f"instance={quoted(told or node)}"
    return tuple(
        Question(f"node_{name} {node}", _of(text, only), is_of_one=True) for name, text in (_OF_GPUS | _OF_NODE).items()
    )


def of_user(user: str, told: str = "") -> tuple[Question, ...]:
    """Questions about one user: the nodes and runs of theirs; `told` as for a node."""
    only = f"user={quoted(told or user)}"
    return tuple(
        Question(f"user_{name} {user}", f"topk({LISTED}, {_of(text, only)})", every=30.0, is_of_one=True)
        for name, text in _OF_USER.items()
    )


def quoted(text: str) -> str:
    """A string of PromQL.

    >>> quoted('a"b')
    '"a\\\\"b"'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
