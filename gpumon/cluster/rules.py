"""Names of the series that recording rules create, and PromQL expressions that several queries share.

`deploy/prometheus/rules.yml` and `cluster.yml` record the values of the cluster page once a minute. Queries for
recorded values are fast, because they read few series and return few rows.
"""

from __future__ import annotations

LISTED = 200
"""Maximum number of rows of a list that grows with the cluster."""
GPUMON, DCGM = "gpumon_gpus", "DCGM_FI_DEV_GPU_UTIL"
"""Names of the series by which gpumon exporters and NVIDIA exporters are recognized. Every exporter has its series."""
NODE_SERIES = f'{GPUMON}{{state="free"}}'
"""One series for each node that reports its GPUs."""
RULE_INTERVAL = 60.0
"""Evaluation interval of the rules in seconds."""
SILENT = 120.0
"""Seconds without a sample after which a node counts as silent. Its state is then unknown."""
SITE_RULES, PAGE_RULES = "cluster:gpumon_site_rules:v2", "cluster:gpumon_page_rules:v2"
"""The first series exists only if all rules of this version's `rules.yml` are loaded, and the second one only if all
rules of `cluster.yml` are loaded."""
RULE_FILES = {SITE_RULES: "rules.yml", PAGE_RULES: "cluster.yml"}
"""Files in `deploy/prometheus/`. The key is the series that exists if the file is loaded."""
_OFFSET_WINDOW = "1h"
"""Time window from which the largest clock offset is taken."""
_NEWEST = "gpumon_last_sample_timestamp_seconds"
_THROTTLE_CAUSES = {"hw_thermal": "heat", "sw_thermal": "heat", "hw_power_brake": "power brake"}
"""Throttling counters that need attention, with the cause of the throttling. Throttling by a configured power limit is
not included, because it is intended."""


def _with_label(label: str, text: str, vector: str) -> str:
    return f'label_replace({vector}, "{label}", "{text}", "", "")'


def throttled(by: str, selector: str = "") -> str:
    """Return an expression for the largest share of throttled time, by the labels `by` and `cause`.

    `selector`: label matchers of the counters.
    """
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

`stands`: the newest sample of a node is the same as two minutes ago. `same`: the newest sample did not change in the
last two minutes, which is also true for a node that has just been added. `behind`: the time of the newest sample is
more than two minutes ago. `stands` and `same` do not depend on the node's clock. If a node is `behind` but not `same`,
its clock is behind.
"""
LATE_SAMPLES = (
    f'label_replace({_NEWEST} == {_NEWEST} offset {SILENT:g}s, "newest", "{STANDS}", "", "")'
    f' or label_replace(stdvar_over_time({_NEWEST}[{SILENT:g}s]) == 0, "newest", "{SAME}", "", "")'
    f' or label_replace({_NEWEST} < time() - {SILENT:g}, "newest", "{BEHIND}", "", "")'
)
"""Query for the newest samples of nodes that reported nothing new or whose clock is behind.

The values are the times of the samples, except for rows with `same`. Values are unchanged if their variance is 0. This
is the cheapest test that gives the same result in Prometheus and VictoriaMetrics, whose functions `changes` differ.
"""
CLOCKS = "instance:gpumon_clock_ahead:seconds"
CLOCKS_BEFORE = f"max_over_time({CLOCKS}[{_OFFSET_WINDOW}])"
"""Query for the largest clock offset in the last hour. The current offset shrinks with each scrape of an old sample."""
