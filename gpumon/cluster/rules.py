"""Recorded series that the cluster page asks beside those of `deploy/prometheus/rules.yml`, by name and expression.

`deploy/prometheus/cluster.yml` has the same; a test compares the two. An answer costs by the series that are read and
by the rows that are told: so what reads each GPU, or an hour of each node, is read here once a minute, and what is true
of few nodes is recorded of these alone. No expression asks for a series of the same file, so that `promtool` can make
them of hours before, and a site without the rules can be asked the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.analysis.thresholds import PAUSE

IDLE_HELD = 1800.0
"""Seconds for which a GPU is held and idle before its holder is named."""
LISTED = 200
"""Rows of a list that may be as long as the cluster is large."""
OWN, DCGM = "gpumon_gpus", "DCGM_FI_DEV_GPU_UTIL"
"""Series of our exporters, and of NVIDIA's: every one has them."""
TOLD = f'{OWN}{{state="free"}}'
"""One series of each node that tells its GPUs."""
RULE_INTERVAL = 60.0
"""Seconds between two samples of a recorded series; the rules say so."""
SILENT = 120.0
"""Seconds without a sample of a node, from which on nothing is claimed of it."""
PAGE_RULES, SITE_RULES = "cluster:gpumon_page_rules:v2", "cluster:gpumon_site_rules:v2"
"""Series that tell that the rules of the page, and those of `rules.yml`, are there: all of this version of them."""
_REMEMBERED = "1h"
"""For how long a node that went away is told as silent."""
_NEWEST = "gpumon_last_sample_timestamp_seconds"
_THROTTLES = {"hw_thermal": "heat", "sw_thermal": "heat", "hw_power_brake": "power brake"}
"""Counters of throttling that somebody should look at, and their cause. A power limit is as it was meant."""


def _told(label: str, text: str, vector: str) -> str:
    return f'label_replace({vector}, "{label}", "{text}", "", "")'


def throttled(by: str, selector: str = "") -> str:
    """Return the share of time in which clocks are lowered, the largest by these labels and by `cause`."""
    rates = (
        _told("cause", cause, _told("counter", name, f"rate(gpumon_gpu_throttled_{name}_seconds_total{selector}[5m])"))
        for name, cause in _THROTTLES.items()
    )
    return f"max by ({by}, cause) ({' or '.join(rates)})"


_HELD = "count by (user) (max by (instance, uuid, user) (gpumon_gpu_user_info))"
OF_MODEL = "on (instance, uuid) group_left (model) max by (instance, uuid, model) (gpumon_gpu_info)"
"""Joins the model of a GPU, though two jobs scrape its node."""

_DIVIDED = 'label_replace(gpumon_gpu_info{parent!=""}, "uuid", "$1", "parent", "(.+)")'
"""GPUs that MIG divides: their instances are what counts."""

_MODELS = (
    "count by (instance, model) (max by (instance, uuid, model) (gpumon_gpu_info)"
    f" unless on (instance, uuid) {_DIVIDED})"
)
_NAMED = "group by (instance, model) (gpumon_gpu_info)"
"""Models that a node names, the divided ones, too."""
_GPUS = f"{OWN} > 0"
STANDS, SAME, BEHIND = "stands", "same", "behind"
"""Words, as label `newest`: the newest sample of a node is that of two minutes before; no other was told since, which
is so of a node that is scraped since a moment, too; its time is older than that. The first two hold by whatever clock a
node has: what is behind, and not the same, came from a clock that is."""
LATE = (
    f'label_replace({_NEWEST} == {_NEWEST} offset {SILENT:g}s, "newest", "{STANDS}", "", "")'
    f' or label_replace(stdvar_over_time({_NEWEST}[{SILENT:g}s]) == 0, "newest", "{SAME}", "", "")'
    f' or label_replace({_NEWEST} < time() - {SILENT:g}, "newest", "{BEHIND}", "", "")'
)
"""Newest samples of nodes that told nothing new, or whose clock is behind; `same` comes without the time.

A variance of none is the cheapest word for it that both Prometheus and VictoriaMetrics have, whose `changes` count
otherwise."""
_AHEAD = f"{_NEWEST} - timestamp({_NEWEST})"
_CLOCKS_AHEAD = (
    f"max by (instance) ({_AHEAD} and abs({_AHEAD}) > {SILENT:g} and {_NEWEST} > min_over_time({_NEWEST}[{SILENT:g}s]))"
)
"""Where new samples come the node is not silent, whatever its clock says; that of a daemon that is gone stays."""
CLOCKS = "instance:gpumon_clock_ahead:seconds"
CLOCKS_BEFORE, CLOCKS_BEFORE_RAW = (
    f"max_over_time({one}[{_REMEMBERED}{step}])" for one, step in ((CLOCKS, ""), (f"({_CLOCKS_AHEAD})", ":5m"))
)
"""The largest of these in the last hour: with each scrape of the same sample it gets smaller."""
_RUNS = "count by (run, name, user, slurm_job) (max by (instance, uuid, run, name, user, slurm_job) (gpumon_run_info))"
_NODES = "count by (run) (count by (run, instance) (gpumon_run_info))"
_EPOCH, _EPOCHS = "max by (run) (gpumon_run_epoch)", "max by (run) (gpumon_run_epochs)"


def _of_host(series: str) -> str:
    """A row for each host, whatever the port of the exporter that tells it."""
    return f'count by (instance) (label_replace({series}, "instance", "$1", "instance", "(.*?)(:[0-9]+)?"))'


def _of_listed(runs: str) -> str:
    """A fact of runs, of those that are listed."""
    return f"{runs} and on (run) topk({LISTED}, {_RUNS})"


RECORDED: Mapping[str, str] = {
    "run:gpumon_gpus:count": _RUNS,
    "run:gpumon_nodes:count": _NODES,
    "run:gpumon_epoch:max": _EPOCH,
    "run:gpumon_epochs:max": _EPOCHS,
    "run:gpumon_gpus:listed": f"topk({LISTED}, {_RUNS})",
    "run:gpumon_nodes:listed": _of_listed(_NODES),
    "run:gpumon_epoch:listed": _of_listed(_EPOCH),
    "run:gpumon_epochs:listed": _of_listed(_EPOCHS),
    "user:gpumon_gpus_held:count": _HELD,
    "user:gpumon_gpus_idle_held:count": (
        f"count by (user) (max by (instance, uuid, user) (gpumon_gpu_user_idle_seconds) >= {PAUSE:g}) or 0 * {_HELD}"
    ),
    "instance_gpu_user:gpumon_gpu_idle_held:seconds": (
        f"max by (instance, gpu, user) (gpumon_gpu_user_idle_seconds > {IDLE_HELD:g})"
    ),
    "instance_cause:gpumon_gpu_throttled:ratio_rate5m": f"{throttled('instance')} > 0",
    # By GPUs, too: an exporter of the same node in another dialect is no other node.
    "instance:gpumon_last_sample_timestamp_seconds:gone": (
        f"max by (instance) (last_over_time({_NEWEST}[{_REMEMBERED}])"
        f" and on (instance) last_over_time({TOLD}[{_REMEMBERED}])) unless on (instance) {TOLD}"
    ),
    CLOCKS: _CLOCKS_AHEAD,
    # Targets of the jobs by which others of our exporters answer: of those that never did there is nothing but `up`.
    "instance:gpumon_exporter_down:group": (
        f"group by (instance) (up == 0 and on (job) count by (job) (last_over_time(gpumon_up[{_REMEMBERED}])))"
        " unless on (instance) gpumon_up"
    ),
    "instance:gpumon_without_daemon:max": "max by (instance) (gpumon_up) == 0",
    "cluster:gpumon_unreal_nodes:count": 'count(count by (instance) (gpumon_source_info{label!=""}))',
    "cluster:gpumon_dcgm_alone:count": f"count({_of_host(DCGM)} unless on (instance) {_of_host(TOLD)})",
    "instance_model:gpumon_gpus:count": _MODELS,
    "instance_model:gpumon_gpus:several": f"{_MODELS} and on (instance) count by (instance) ({_NAMED}) > 1",
    # With its model, where all GPUs of a node are of one: else `several` has them.
    "instance_model_state:gpumon_gpus:count": (
        f"({_GPUS}) * on (instance) group_left (model)"
        f" ({_NAMED} and on (instance) count by (instance) ({_NAMED}) == 1) or on (instance, state) {_GPUS}"
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
    # The last: what is before it is recorded then. Without any exporter nothing is, and nothing has to be.
    PAGE_RULES: "vector(1) and on () (gpumon_up or gpumon_up offset 30m)",
}
"""Expressions by the name of what they record."""
