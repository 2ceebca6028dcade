"""Names of recorded series, and expressions of the exporters' series that several questions ask.

`deploy/prometheus/rules.yml` and `cluster.yml` record what the cluster page asks, once a minute: an answer costs by the
series that are read and by the rows that are told.
"""

from __future__ import annotations

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
SITE_RULES, PAGE_RULES = "cluster:gpumon_site_rules:v2", "cluster:gpumon_page_rules:v2"
"""Series that show that all rules of `rules.yml`, and of `cluster.yml`, are there in this version."""
RULE_FILES = {SITE_RULES: "rules.yml", PAGE_RULES: "cluster.yml"}
"""Files in `deploy/prometheus/`, by the series that shows that they are loaded."""
_REMEMBERED = "1h"
"""For how long it is remembered that a clock was ahead."""
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
CLOCKS = "instance:gpumon_clock_ahead:seconds"
CLOCKS_BEFORE = f"max_over_time({CLOCKS}[{_REMEMBERED}])"
"""The largest of these in the last hour: with each scrape of the same sample it gets smaller."""
