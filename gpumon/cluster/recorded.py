"""Recorded series that the cluster page asks beside those of `deploy/prometheus/rules.yml`, by name and expression.

`deploy/prometheus/cluster.yml` has the same; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.analysis.thresholds import PAUSE

IDLE_HELD = 1800.0
"""Seconds for which a GPU is held and idle before its holder is named."""
_THROTTLES = {"hw_thermal": "heat", "sw_thermal": "heat", "hw_power_brake": "power brake"}
"""Counters of throttling that somebody should look at, and their cause. A power limit is as it was meant."""


def _told(label: str, text: str, vector: str) -> str:
    return f'label_replace({vector}, "{label}", "{text}", "", "")'


_OF_CAUSES = [
    _told("cause", cause, _told("counter", name, f"rate(gpumon_gpu_throttled_{name}_seconds_total[5m])"))
    for name, cause in _THROTTLES.items()
]

_HELD = "count by (user) (max by (instance, uuid, user) (gpumon_gpu_user_info))"
OF_MODEL = "on (instance, uuid) group_left (model) max by (instance, uuid, model) (gpumon_gpu_info)"
"""Joins the model of a GPU, though two jobs scrape its node."""

_DIVIDED = 'label_replace(gpumon_gpu_info{parent!=""}, "uuid", "$1", "parent", "(.+)")'
"""GPUs that MIG divides: their instances are what counts."""

RECORDED: Mapping[str, str] = {
    "run:gpumon_gpus:count": (
        "count by (run, name, user, slurm_job) (max by (instance, uuid, run, name, user, slurm_job) (gpumon_run_info))"
    ),
    "run:gpumon_nodes:count": "count by (run) (count by (run, instance) (gpumon_run_info))",
    "run:gpumon_epoch:max": "max by (run) (gpumon_run_epoch)",
    "run:gpumon_epochs:max": "max by (run) (gpumon_run_epochs)",
    "user:gpumon_gpus_held:count": _HELD,
    "user:gpumon_gpus_idle_held:count": (
        f"count by (user) (max by (instance, uuid, user) (gpumon_gpu_user_idle_seconds) >= {PAUSE:g}) or 0 * {_HELD}"
    ),
    "instance_gpu_user:gpumon_gpu_idle_held:seconds": (
        f"max by (instance, gpu, user) (gpumon_gpu_user_idle_seconds > {IDLE_HELD:g})"
    ),
    "instance_cause:gpumon_gpu_throttled:ratio_rate5m": f"max by (instance, cause) ({' or '.join(_OF_CAUSES)})",
    "instance:gpumon_last_sample_timestamp_seconds:max": (
        'max by (instance) (gpumon_last_sample_timestamp_seconds and on (instance) gpumon_gpus{state="free"})'
    ),
    "instance_model:gpumon_gpus:count": (
        "count by (instance, model) (max by (instance, uuid, model) (gpumon_gpu_info)"
        f" unless on (instance, uuid) {_DIVIDED})"
    ),
    "cluster:gpumon_gpu_power_watts:sum": "sum(max by (instance, uuid) (gpumon_gpu_power_watts))",
    "cluster:gpumon_gpu_power_limit_watts:sum": "sum(max by (instance, uuid) (gpumon_gpu_power_limit_watts))",
    "cluster:gpumon_gpu_utilization:ratio_rate5m": (
        "sum(rate(gpumon_gpu_utilization_seconds_total[5m]))"
        " / sum(rate(gpumon_gpu_utilization_observed_seconds_total[5m]))"
    ),
    "user_model:gpumon_gpus_held:rate5m": (
        f"sum by (user, model) (max by (instance, uuid, user) (rate(gpumon_user_held_seconds_total[5m])) * {OF_MODEL})"
    ),
    "user_model:gpumon_gpus_idle_held:rate5m": (
        "sum by (user, model) (max by (instance, uuid, user) (rate(gpumon_user_idle_held_seconds_total[5m]))"
        f" * {OF_MODEL})"
    ),
}
"""Expressions by the name of what they record."""
