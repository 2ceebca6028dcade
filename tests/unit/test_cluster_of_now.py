"""What is so now: nothing is free of which nobody knows whether its node is silent, or that nobody was told lately."""

from __future__ import annotations

import pytest

from gpumon.cluster import model
from gpumon.cluster.client import PrometheusSeries
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.problems import find_problems
from gpumon.cluster.queries import QUERIES
from gpumon.cluster.rules import BEHIND, SAME, SILENT, STANDS
from gpumon.cluster.snapshot import NO_ANSWER
from gpumon.model import units
from tests.unit.test_cluster import NOW, FakeEngine, HandClock, row, text

EVERY = {one.name for one in QUERIES}


@pytest.mark.parametrize("broken", ["seen", "gpus"])
def test_nothing_is_free_while_it_is_not_known_which_nodes_are_silent_or_what_gpus_do(broken: str) -> None:
    told = text(ClusterPoller(FakeEngine(broken=[broken])))
    assert "GPUs unknown" in told
    assert "GPUs free" not in told
    assert "whole node" not in told


def test_nothing_is_free_once_the_last_answer_about_silent_nodes_is_as_old_as_a_silent_node() -> None:
    engine, clock = FakeEngine(), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    engine.broken = {"seen"}
    clock.passed = SILENT
    assert "10 of 24 GPUs free" in text(poller)
    clock.passed = SILENT + 15
    told = text(poller)
    assert "GPUs unknown" in told
    assert "it is unknown which nodes are silent, so no GPU counts as free" in told
    assert "whole node" not in told
    assert "1 GPU lost" in told, "what was wrong is still told"


def test_the_text_of_an_engine_that_is_gone_is_dated_by_its_last_answer_and_claims_nothing_free() -> None:
    engine, clock = FakeEngine(), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    engine.broken = EVERY
    clock.passed = NO_ANSWER
    told = text(poller)
    assert "10 of 24 GPUs free" in told
    assert units.moment(NOW) in told.splitlines()[0], "it is of then"
    clock.passed = NO_ANSWER + 15
    told = text(poller)
    assert f"no answer since {units.moment(NOW)}" in told.splitlines()[0]
    assert units.moment(NOW + NO_ANSWER + 15) not in told
    assert told.splitlines()[1] == "values are of the last answer (Prometheus says: out of memory (422))"
    assert "GPUs unknown" in told
    assert "GPUs free" not in told
    assert "whole node" not in told
    assert "silent for 12 min" in told, "as it was then"


def one_node(told: float, newest: str = "", **more: list[PrometheusSeries]) -> model.Node:
    """A node of eight free GPUs, and what is told of its newest sample."""
    labels = {"newest": newest} if newest else {}
    answers = {"gpus": [row(8, instance="a", state="free")], "seen": [row(told, instance="a", **labels)]} | more
    (node,) = model.nodes(answers, NOW)
    return node


@pytest.mark.parametrize("left", [500.0, 119.0, -60.0])
def test_a_node_whose_clock_was_ahead_is_silent_once_its_newest_sample_stands(left: float) -> None:
    node = one_node(NOW + left, STANDS)
    assert (node.silent, node.count("free"), node.is_undated) == (SILENT, 0, True)
    (said,) = find_problems([node], {})
    assert said.text == "silent for 2 min or longer: its newest sample has a time in the future"


@pytest.mark.parametrize(("told", "was"), [(NOW + 100, 820.0), (NOW - 420, 300.0), (NOW - 1020, -300.0)])
def test_a_node_that_stands_is_silent_since_its_newest_sample_by_the_engines_clock(told: float, was: float) -> None:
    node = one_node(told, STANDS, clocks_before=[row(was, instance="a")])
    assert (node.silent, node.is_undated) == (720.0, False)


def test_a_node_that_just_stopped_is_silent_by_how_far_its_clock_was_and_not_by_how_far_its_newest_sample_is() -> None:
    clocks = {"clocks": [row(170.0, instance="a")], "clocks_before": [row(300.0, instance="a")]}
    node = one_node(NOW + 170, STANDS, **clocks)
    assert (node.silent, node.is_undated) == (130.0, False)


def test_a_node_that_is_gone_is_silent_since_its_newest_sample_by_the_engines_clock() -> None:
    before = {"gpus": [], "seen": [], "seen_before": [row(NOW - 420, instance="a")]}
    (node,) = model.nodes(before | {"clocks_before": [row(300.0, instance="a")]}, NOW)
    assert node.silent == 720.0


def test_a_node_that_is_scraped_since_a_moment_is_silent_where_its_only_sample_is_old() -> None:
    same = row(0.0, instance="a", newest=SAME)
    node = one_node(NOW - 297, seen=[row(NOW - 297, instance="a", newest=BEHIND), same])
    assert (node.silent, node.clock_offset) == (297.0, 0.0)
    node = one_node(NOW, seen=[same])
    assert (node.silent, node.count("free")) == (0.0, 8), "its sample is of now, as far as anybody knows"


def test_an_old_sample_of_which_nobody_told_whether_it_grew_is_a_silent_nodes() -> None:
    assert one_node(NOW - 297).silent == 297.0


def test_how_far_a_clock_was_is_nothing_of_a_node_whose_samples_come() -> None:
    node = one_node(NOW, clocks_before=[row(300.0, instance="a")])
    assert (node.silent, node.clock_offset) == (0.0, 0.0)


def test_a_node_that_stands_by_a_right_clock_is_silent_since_its_newest_sample() -> None:
    node = one_node(NOW - 720, STANDS)
    assert (node.silent, node.is_undated) == (720.0, False)


def test_a_node_whose_clock_just_jumped_back_is_not_silent_while_its_samples_come() -> None:
    """The question for clocks is asked once a minute: it has not told of the jump yet."""
    node = one_node(NOW - 297, BEHIND, clocks=[])
    assert (node.silent, node.count("free"), node.clock_offset) == (0.0, 8, -297.0)
    (said,) = find_problems([node], {})
    assert (said.text, said.is_severe) == ("its clock is 5 min behind Prometheus's", False)
