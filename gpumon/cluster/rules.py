"""Names of the series that recording rules create, and PromQL expressions that several queries share.

`deploy/prometheus/rules.yml` and `cluster.yml` record once a minute what the cluster page shows, because a query takes
longer the more series it reads and the more rows it returns.
"""

from __future__ import annotations

LISTED = 200
"""Maximum rows of a list that grows with the cluster."""
GPUMON, DCGM = "gpumon_gpus", "DCGM_FI_DEV_GPU_UTIL"
"""Series that every gpumon exporter and every NVIDIA exporter has."""
NODE_SERIES = f'{GPUMON}{{state="free"}}'
"""One series for each node that reports its GPUs."""
RULE_INTERVAL = 60.0
"""Evaluation interval of the rules, s."""
SILENT = 120.0
"""Seconds without a sample after which a node counts as silent and its state as unknown."""
SITE_RULES, PAGE_RULES = "cluster:gpumon_site_rules:v2", "cluster:gpumon_page_rules:v2"
"""Series that exist once all rules of `rules.yml` or of `cluster.yml` are loaded in this version."""
RULE_FILES = {SITE_RULES: "rules.yml", PAGE_RULES: "cluster.yml"}
"""Files in `deploy/prometheus/`, by the series that shows that they are loaded."""
_OFFSET_WINDOW = "1h"
"""How long a clock offset is remembered."""
_NEWEST = "gpumon_last_sample_timestamp_seconds"
_THROTTLE_CAUSES = {"hw_thermal": "heat", "sw_thermal": "heat", "hw_power_brake": "power brake"}
"""Throttling counters that need attention, and their cause. Throttling by a configured power limit is intended."""


def _with_label(label: str, text: str, vector: str) -> str:
    return f'label_replace({vector}, "{label}", "{text}", "", "")'


def throttled(by: str, selector: str = "") -> str:
    """Return an expression for the largest share of time with lowered clocks, by the labels `by` and by `cause`."""
    rates = (
        _with_label(
            "cause",
            cause,
            _with_label("counter", name, f"rate(gpumon_gpu_throttled_{name}_seconds_total{selector}[5m])"),
        )
        for name, cause in _THROTTLE_CAUSES.items()
    )
    return f"max by ({by}, cause) ({' or '.join(rates)})"


STANDS, SAME, BEHIND = "stands", "same", "behind"
"""Values of the label `newest`.

`stands`: the newest sample of a node is the same as two minutes ago. `same`: it did not change in the last two minutes,
which also holds for a node that was added a moment ago. `behind`: its time is more than two minutes ago. The first two
do not depend on the node's clock; `behind` without `same` means that the node's clock is behind.
"""
LATE_SAMPLES = (
    f'label_replace({_NEWEST} == {_NEWEST} offset {SILENT:g}s, "newest", "{STANDS}", "", "")'
    f' or label_replace(stdvar_over_time({_NEWEST}[{SILENT:g}s]) == 0, "newest", "{SAME}", "", "")'
    f' or label_replace({_NEWEST} < time() - {SILENT:g}, "newest", "{BEHIND}", "", "")'
)
"""Newest samples of nodes that reported nothing new, or whose clock is behind; `same` has no time as its value.

A variance of 0 is the cheapest test for "unchanged" that Prometheus and VictoriaMetrics share: their `changes` count
differently.
"""
CLOCKS = "instance:gpumon_clock_ahead:seconds"
CLOCKS_BEFORE = f"max_over_time({CLOCKS}[{_OFFSET_WINDOW}])"
"""The largest clock offset in the last hour: it shrinks with each scrape of the same sample."""
