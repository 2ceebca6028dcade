"""The summary of the cluster page: free and idle GPUs, runs, utilization, power, and notes on unknown data."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.cluster import coverage, model
from gpumon.cluster.client import Answers, single
from gpumon.cluster.model import Node, staleness_note
from gpumon.cluster.queries import DCGM_ONLY, SMALL, Period
from gpumon.cluster.rules import LISTED
from gpumon.cluster.snapshot import energy, power_of_limit
from gpumon.common.numbers import NAN, is_known, shown
from gpumon.model import units
from gpumon_web.cluster.data import ClusterNow, gpus, node_link, percent
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import tag, text

_CHIPS = 2
_LONG = 3600.0
"""Seconds for which a GPU must be held idle to count in `over 1 h`."""


def summary(answers: Answers, nodes: Sequence[Node], *, is_dcgm: bool) -> Cells:
    """Return the values of the five headlines."""
    seen = [node for node in nodes if not node.silent]
    total = sum(node.total for node in seen)
    has_states = "gpus" in answers and total > 0 and not is_dcgm
    return {
        **(_free(seen, total) if has_states else _UNKNOWN_FREE),
        **_use(nodes, answers),
        **(_idle(seen, answers) if has_states else {"idle": units.MISSING, "idle_below": "", "idle_chips": None}),
        **_power(answers, nodes),
        **_runs(answers, nodes),
    }


_UNKNOWN_FREE: Cells = {"free": units.MISSING, "free_below": "unknown", "free_chips": None}


def _free(seen: Sequence[Node], total: int) -> Cells:
    free = sum(node.count("free") for node in seen)
    free_nodes = [node for node in seen if node.total and node.count("free") == node.total]
    chips = [node_link(node.name, "chip") for node in free_nodes[:_CHIPS]]
    partial = sum(1 for node in seen if node.count("free")) - len(free_nodes)
    whole = units.counted(len(free_nodes), "whole node") if free_nodes else ""
    parts = [whole, f"parts of {partial:,} more" if partial else ""]
    if free and not free_nodes:
        parts = [f"on {units.counted(partial, 'node')}, none of them whole"]
    return {
        "free": f"{free:,} of {total:,}",
        "free_below": ", ".join(filter(None, parts)),
        "free_chips": chips or ([text("", "chip")] if free else None),
    }


def _idle(seen: Sequence[Node], answers: Answers) -> Cells:
    idle = sum(node.count("held_idle") for node in seen)
    holders = model.idle_holders(answers)
    long = sum(holder.seconds >= _LONG for holder in holders)
    prefix = "≥ " if len(holders) >= LISTED else ""
    users = sorted(((row.value, row.labels.get("user", "")) for row in answers.get("idle_now", ()) if row.value >= 0.5),
                   reverse=True)  # fmt: skip
    names = ", ".join(f"{user or 'unknown'} {gpus(value)}" for value, user in users[:3])
    suffix = f" and {len(users) - 3} more" if len(users) > 3 else ""
    return {
        "idle": f"{idle:,}",
        "idle_below": names + suffix,
        "idle_chips": [tag(f"over 1 h: {prefix}{long:,}", "warn", is_now=True)] if long else None,
    }


def _use(nodes: Sequence[Node], answers: Answers) -> Cells:
    measured = [node for node in nodes if not node.silent and is_known(node.busy) and node.total]
    total = sum(node.total for node in measured)
    mean = sum(node.busy * node.total for node in measured) / total if total else NAN
    day = single(answers, "busy_of_day")
    return {"use": shown(mean), "use_below": f"{percent(day)} over {_covered_day(answers)}" if is_known(day) else ""}


def _covered_day(answers: Answers) -> str:
    """Return the part of the last 24 hours for which Prometheus has samples, as text."""
    seconds = coverage.covered_seconds(answers, Period.DAY)
    if coverage.is_complete(answers, Period.DAY):
        return "24 h"
    return units.long_duration(seconds) if is_known(seconds) else "part of 24 h"


def _power(answers: Answers, nodes: Sequence[Node]) -> Cells:
    power = single(answers, "power")
    day = single(answers, "energy_of_day")
    spent = f"{coverage.format_sum(day, energy, is_complete=coverage.is_complete(answers, Period.DAY))} in 24 h"
    below = spent if is_known(day) else "", staleness_note(nodes) if is_known(power) else ""
    return {"power": power_of_limit(power, single(answers, "limit")), "power_below": "; ".join(filter(None, below))}


def _runs(answers: Answers, nodes: Sequence[Node]) -> Cells:
    if "runs" not in answers or model.has_no_series(answers):
        return {"runs_now": units.MISSING, "runs_below": ""}
    rows = answers["runs"]
    users = {row.labels.get("user", "") for row in rows}
    note = (
        staleness_note(nodes) if "run_places" not in answers else ""
    )  # in a small cluster it is known on which nodes runs are
    below = [f"of {units.counted(len(users), 'user')}", note] if rows else []
    return {
        "runs_now": f"{'≥' if len(rows) >= LISTED else ''}{len(rows):,}", "runs_below": ", ".join(filter(None, below))
    }  # fmt: skip


def doubts(cluster: ClusterNow, nodes: Sequence[Node]) -> list[Cells]:
    """Return sentences about unknown data and the reasons."""
    snapshot, sentences = cluster.snapshot, []
    if nodes and all(node.silent for node in nodes):
        sentences.append("Every node is silent: free GPUs, users, runs and power are unknown.")
    if snapshot.is_dcgm:
        sentences.append(DCGM_ONLY)
    elif model.has_no_series(cluster.answers):
        sentences.append(model.NO_SERIES)
    elif reason := snapshot.missing_rules:
        sentences.append(f"{reason[:1].upper()}{reason[1:]}.")
    elif _adds_up_minutes(cluster, nodes):
        sentences.append(
            "Prometheus sums GPU-hours of a week or more from one-minute values, which is slow. Load "
            "deploy/prometheus/hours.yml, and load it again after an upgrade. Its first sums appear within an hour."
        )
    if count := model.dcgm_only_hosts(cluster.answers):
        sentences.append(
            f"{units.counted(count, 'node')} with only NVIDIA's dcgm-exporter not shown: "
            "run 'gpumon export' there, too."
        )
    if snapshot.clocks:
        sentences.append(snapshot.clocks)
    return [{"text": sentence} for sentence in sentences]


def _adds_up_minutes(cluster: ClusterNow, nodes: Sequence[Node]) -> bool:
    """Return True if a large cluster lacks recorded hourly sums and has enough history to need them."""
    has_history = coverage.covered_seconds(cluster.answers, Period.MONTH) > Period.DAY.seconds
    return bool(cluster.snapshot.cached) and not cluster.snapshot.by_hour and len(nodes) > SMALL and has_history


def foot(cluster: ClusterNow) -> Cells | None:
    """Return the footer: source and age of the data, and duration of the last queries. None before the first query."""
    snapshot = cluster.snapshot
    if not snapshot.cached:
        return None
    duration = units.fine_duration(snapshot.took)
    return {
        "text": f"From {cluster.server_name}; the last round of queries took {duration}. As of",
        "time": max((answer.at for answer in snapshot.cached.values() if answer.rows is not None), default=snapshot.at),
    }
