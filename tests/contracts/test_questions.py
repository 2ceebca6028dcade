"""Whoever asks a cluster's Prometheus asks for names and labels that the exporter of a node tells."""

from __future__ import annotations

import re
from functools import cache

import pytest
import yaml

from gpumon.analysis.gpu_state import GpuState
from gpumon.cluster.model import STATES as ASKED_STATES
from gpumon.cluster.queries import GPU_QUERIES, QUERIES, Query, node_queries, user_queries
from gpumon.cluster.rules import RULE_FILES
from gpumon.common.clock import SECOND
from gpumon.export.native import STATES
from gpumon.model.frame import XidEvent
from gpumon.model.metrics import Availability
from tests.builders import TIME, device, process, run, sample, tick
from tests.conftest import ROOT
from tests.exported import Node, scraped

_NAME = re.compile(r"(?<![\w:])gpumon_\w+(?![\w:])")
_MADE = re.compile(r'"(\w+)", "[^"]*", "", ""\)')
"""Labels that an expression makes itself."""
_LABELS = re.compile(r"\b(?:by|on|ignoring|group_left|group_right) \(([^)]*)\)")
OF_A_SCRAPE = {"instance", "job"}


@cache
def told() -> dict[str, set[str]]:
    """Labels by name of all that a node with a run, an idle holder and an XID error tells."""
    node = Node()
    uuid = device().uuid
    idle = sample(
        0, utilization=0.0, power=90.0, power_limit=700.0, energy=1.0, memory_used=2.0**33, memory_total=2.0**36,
        temperature=40.0, throttled_hw_thermal=0.0, throttled_sw_thermal=0.0, throttled_hw_power_brake=0.0,
    )  # fmt: skip
    lost = sample(1, Availability.LOST)
    training = run(gpus=(uuid,), epoch=3, step=1)
    on_it = process(run=training.key, job="88")
    event = XidEvent(uuid, 79, SECOND, TIME)
    node.add(tick(n, [idle._replace(run=training.key), lost], [on_it], [training], xids=[event]) for n in range(1, 70))
    page = scraped(node)
    node.close()
    return {name: {label for labels in page.labels(name) for label in labels} for name in page.samples}


@pytest.mark.parametrize(
    "question", [*QUERIES, *GPU_QUERIES, *node_queries("n"), *user_queries("u")], ids=lambda one: one.name
)
def test_what_is_asked_is_exported(question: Query) -> None:
    check(question.promql)


@pytest.mark.parametrize("file", RULE_FILES.values())
def test_what_rules_read_is_exported(file: str) -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus" / file).read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        check(rule["expr"])


def check(expression: str) -> None:
    """Check that each series of an expression is recorded, or exported with the labels that it asks for."""
    names = _NAME.findall(expression)
    assert names or ":gpumon_" in expression
    assert set(names) <= told().keys()
    labels = {label.strip() for found in _LABELS.findall(expression) for label in found.split(",") if label.strip()}
    if names:
        made = set(_MADE.findall(expression))
        assert labels <= OF_A_SCRAPE.union(made, *(told()[name] for name in names))


def test_states_of_gpus_are_those_that_are_counted() -> None:
    assert set(ASKED_STATES) == set(STATES)
    assert GpuState.FREE.value in STATES
