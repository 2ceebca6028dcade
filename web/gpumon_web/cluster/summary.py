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
from gpumon_web.cluster.known import ClusterNow
from gpumon_web.cluster.words import gpus, node_link, percent
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import tag, text

_CHIPS = 2
_LONG = 3600.0
"""Seconds of holding idle GPUs that count as long."""


def summary(answers: Answers, nodes: Sequence[Node], *, is_dcgm: bool) -> Cells:
    """Return the values of the five headlines."""
    seen = [node for node in nodes if not node.silent]
    total = sum(node.total for node in seen)
    is_told = "gpus" in answers and total > 0 and not is_dcgm
    return {
        **(_free(seen, total) if is_told else _NOT_TOLD),
        **_use(nodes, answers),
        **(_idle(seen, answers) if is_told else {"idle": units.MISSING, "idle_below": "", "idle_chips": None}),
        **_power(answers, nodes),
        **_runs(answers, nodes),
    }


_NOT_TOLD: Cells = {"free": units.MISSING, "free_below": "not known", "free_chips": None}


def _free(seen: Sequence[Node], total: int) -> Cells:
    free = sum(node.count("free") for node in seen)
    whole = [node for node in seen if node.total and node.count("free") == node.total]
    chips = [node_link(node.name, "chip") for node in whole[:_CHIPS]]
    some = sum(1 for node in seen if node.count("free")) - len(whole)
    parts = [units.counted(len(whole), "whole node") if whole else "", f"parts of {some:,} more" if some else ""]
    if free and not whole:
        parts = [f"on {units.counted(some, 'node')}, none of them whole"]
    return {
        "free": f"{free:,} of {total:,}",
        "free_below": ", ".join(filter(None, parts)),
        "free_chips": chips or ([text("", "chip")] if free else None),
    }


def _idle(seen: Sequence[Node], answers: Answers) -> Cells:
    idle = sum(node.count("held_idle") for node in seen)
    holders = model.idle_holders(answers)
    long = sum(one.seconds >= _LONG for one in holders)
    least = "≥ " if len(holders) >= LISTED else ""
    users = sorted(((row.value, row.labels.get("user", "")) for row in answers.get("idle_now", ()) if row.value >= 0.5),
                   reverse=True)  # fmt: skip
    named = ", ".join(f"{user or 'unknown'} {gpus(value)}" for value, user in users[:3])
    more = f" and {len(users) - 3} more" if len(users) > 3 else ""
    return {
        "idle": f"{idle:,}",
        "idle_below": named + more,
        "idle_chips": [tag(f"over 1 h: {least}{long:,}", "warn", is_now=True)] if long else None,
    }


def _use(nodes: Sequence[Node], answers: Answers) -> Cells:
    counted = [node for node in nodes if not node.silent and is_known(node.busy) and node.total]
    total = sum(node.total for node in counted)
    mean = sum(node.busy * node.total for node in counted) / total if total else NAN
    day = single(answers, "busy_of_day")
    return {"use": shown(mean), "use_below": f"{percent(day)} over {_of_day(answers)}" if is_known(day) else ""}


def _of_day(answers: Answers) -> str:
    """Return the part of the last 24 hours for which Prometheus has samples, as text."""
    known = coverage.covered_seconds(answers, Period.DAY)
    if coverage.is_complete(answers, Period.DAY):
        return "24 h"
    return units.long_duration(known) if is_known(known) else "a part of 24 h"


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
    lately = (
        staleness_note(nodes) if "run_places" not in answers else ""
    )  # in a small cluster it is known on which nodes runs are
    below = [f"of {units.counted(len(users), 'user')}", lately] if rows else []
    return {
        "runs_now": f"{'≥' if len(rows) >= LISTED else ''}{len(rows):,}", "runs_below": ", ".join(filter(None, below))
    }  # fmt: skip


def doubts(known: ClusterNow, nodes: Sequence[Node]) -> list[Cells]:
    """Return sentences about unknown data and the reasons."""
    snapshot, told = known.snapshot, []
    if nodes and all(node.silent for node in nodes):
        told.append("Every node is silent: what is free, who holds GPUs, what runs and the power are not known.")
    if snapshot.is_dcgm:
        told.append(DCGM_ONLY)
    elif model.has_no_series(known.answers):
        told.append(model.NO_SERIES)
    elif why := snapshot.missing_rules:
        told.append(f"{why[:1].upper()}{why[1:]}.")
    elif _adds_up_minutes(known, nodes):
        told.append(
            "Hours of a week and longer are added up minute by minute, which takes Prometheus longer: load "
            "deploy/prometheus/hours.yml, after an upgrade anew. It records the first of its sums within an hour."
        )
    if alone := model.dcgm_only_hosts(known.answers):
        told.append(
            f"{units.counted(alone, 'node')} with NVIDIA's exporter (dcgm-exporter) alone: not shown here; "
            "'gpumon export' on these tells of them."
        )
    if snapshot.clocks:
        told.append(snapshot.clocks)
    return [{"text": one} for one in told]


def _adds_up_minutes(known: ClusterNow, nodes: Sequence[Node]) -> bool:
    """Whether a large cluster has no recorded hourly sums, although it has enough history for that to matter."""
    has_history = coverage.covered_seconds(known.answers, Period.MONTH) > Period.DAY.seconds
    return bool(known.snapshot.cached) and not known.snapshot.by_hour and len(nodes) > SMALL and has_history


def foot(known: ClusterNow) -> Cells | None:
    """Return a text on the source and age of the data."""
    snapshot = known.snapshot
    if not snapshot.cached:
        return None
    took = units.fine_duration(snapshot.took)
    return {
        "text": f"From {known.server_name}; the last round of questions took {took}. As of",
        "time": max((one.at for one in snapshot.cached.values() if one.rows is not None), default=snapshot.at),
    }
