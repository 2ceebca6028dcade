"""Questions to a site with NVIDIA's exporter alone (dcgm-exporter, names up to 4.8), by the names of our own.

It does not tell who holds a GPU: what does nothing may be free or held, and is neither here.
"""

from __future__ import annotations

from gpumon.cluster.questions import STEP, Period, Question
from gpumon.cluster.recorded import DCGM
from gpumon.model.metrics import IDLE

_UTIL = DCGM
_IDLE = 100 * IDLE
"""Percent."""

DCGM_ONLY = (
    "Only NVIDIA's exporter (dcgm-exporter) answers here. It does not tell who holds a GPU: users, runs, hours "
    "and what is free are unknown; 'gpumon export' on the nodes tells them."
)
DCGM_QUESTIONS: tuple[Question, ...] = (
    Question("seen", f"max by (instance) (max_over_time(timestamp({_UTIL})[1h:1m]))"),
    Question(
        "gpus",
        f'label_replace(count by (instance) ({_UTIL} > {_IDLE:g}), "state", "busy", "", "")'
        f' or label_replace(count by (instance) ({_UTIL} <= {_IDLE:g}), "state", "unknown", "", "")',
    ),
    Question(
        "models", f'count by (instance, model) (label_replace({_UTIL}, "model", "$1", "modelName", "(.+)"))', every=60.0
    ),
    Question("busy", f"avg by (instance) ({_UTIL}) / 100"),
    Question("power", "sum(DCGM_FI_DEV_POWER_USAGE)"),
    Question("last_xid", "max by (instance, gpu) (DCGM_FI_DEV_XID_ERRORS) > 0", every=60.0),
    # Targets of the jobs by which others of them answer: of those that never did there is nothing but `up`.
    Question(
        "down", f"group by (instance) (up == 0 and on (job) count by (job) (last_over_time({_UTIL}[1h])))", every=60.0
    ),
    Question(
        "energy_of_day",
        f"sum(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[{Period.DAY.selector}])) / 1000",
        every=300.0,
    ),
    Question(
        f"covered_{Period.DAY}",
        f"count_over_time((count({_UTIL}))[{Period.DAY.selector}:{STEP}s]) * {STEP}",
        every=300.0,
    ),
)
