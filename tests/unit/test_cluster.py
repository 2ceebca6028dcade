"""A cluster from answers: what was not answered is missing, each question fails alone, and nobody looks for nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime
from threading import Lock

import pytest
import yaml

from gpumon.cluster import coverage, model
from gpumon.cluster.client import PrometheusAnswer, PrometheusError, PrometheusSeries
from gpumon.cluster.cost import cost_queries
from gpumon.cluster.coverage import absence_queries
from gpumon.cluster.period_queries import PHASE_QUERY, PROOF, insert_windows
from gpumon.cluster.poller import UNWATCHED, ClusterPoller
from gpumon.cluster.problems import find_problems, page_section
from gpumon.cluster.queries import (
    DCGM_ONLY,
    DCGM_QUERIES,
    GPU_QUERIES,
    HOURS_QUERY,
    QUERIES,
    SERIES_QUERY,
    SMALL,
    Period,
    Query,
    node_queries,
    select_period,
    user_queries,
)
from gpumon.cluster.rules import RULE_FILES, RULE_INTERVAL, SILENT, SITE_RULES
from gpumon.cluster.snapshot import RULES_MISSING, CachedAnswer, ClusterSnapshot
from gpumon.common.config import Prices, UserGroups
from gpumon.model import units
from gpumon.model.vendors import short_name
from gpumon.reports.cluster_text import lines
from tests.conftest import ROOT

NOW = 1_800_000_000.0
UP = {"seen": "1", "gpus": "2"}


def row(value: float, **labels: str) -> PrometheusSeries:
    return PrometheusSeries(labels, value)


Answers = dict[str, list[PrometheusSeries]]
ANSWERS: Answers = {
    "seen": [row(NOW - 3, instance="gn1"), row(NOW - 5, instance="gn2"), row(NOW - 3, instance="gn10"),
             row(NOW - 720, instance="gn23")],
    "gpus": [row(8, instance="gn1", state="free"), row(5, instance="gn2", state="busy"),
             row(2, instance="gn2", state="free"),
             row(1, instance="gn2", state="lost"), row(6, instance="gn10", state="busy"),
             row(2, instance="gn10", state="held_idle"), row(8, instance="gn23", state="free")],
    "models": [row(8, instance=name, model="NVIDIA H100") for name in ("gn1", "gn2", "gn10", "gn23")],
    "power": [row(5600.0)],
    "held_now": [row(13.0, user="ada"), row(0.0, user="gone")],
    "covered_week": [row(Period.WEEK.seconds)],
    "covered_by_node_week": [row(604800.0, instance=name) for name in ("gn1", "gn2", "gn10", "gn23")],
    "held_week": [row(360_000.0, user="ada"), row(3600.0, user="bob")],
    "judged_week": [row(360_000.0, user="ada"), row(60.0, user="bob")],
    "busy_week": [row(180_000.0, user="ada")],
    "idle_held_week": [row(36_000.0, user="ada")],
    "runs": [row(11, run="r1", name="moe", user="ada", slurm_job="88")],
    "run_places": [row(5, run="r1", instance="gn10"), row(6, run="r1", instance="gn2")],
    "run_nodes": [row(2, run="r1")],
    "epochs": [row(4.0, run="r1")],
    "planned": [row(40.0, run="r1")],
    "idle_holders": [row(7200.0, instance="gn10", gpu="3", user="bob")],
    "xids": [row(NOW - 60, instance="gn2", gpu="3", xid="79")],
}  # fmt: skip


class FakeEngine:
    """Answers by the name of the question whose expression it is given; those in `broken` fail."""

    name = "http://prom:9090"
    clock = 0.0
    """Seconds by which its clock is ahead."""

    def __init__(self, *, rules: bool = True, broken: Iterable[str] = ()) -> None:
        self.rules, self.broken = rules, set(broken)
        self.asked: list[tuple[str, float]] = []
        self.names = ["gpumon_gpus", *(RULE_FILES if rules else ())]
        self.hours: list[str] = []
        """Selectors of periods that sums by hour know."""
        self.answers = ANSWERS
        self.nodes = 0
        """Further nodes."""
        self._lock = Lock()

    def clock_offset(self) -> float:
        return self.clock

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        with self._lock:
            self.asked.append((expression, at))
        if expression == SERIES_QUERY:
            return PrometheusAnswer([row(1.0 + self.nodes, __name__=name) for name in self.names])
        if expression == PHASE_QUERY:
            return PrometheusAnswer([row(NOW - 600.0)] if self.hours else [])
        if PROOF in expression:
            return PrometheusAnswer([row(1.0, of=one) for one in self.hours])
        names = [one.name for one in (*QUERIES, *GPU_QUERIES) if one.promql == expression]
        name = names[0] if names else ""
        if name in self.broken:
            raise PrometheusError("Prometheus says: out of memory (422)")
        return PrometheusAnswer(self.answers.get(name, []))


class HandClock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.passed = 0.0

    def steady(self) -> float:
        return self.passed

    def wall(self) -> float:
        return NOW + self.passed


def shown(answers: Answers, width: int = 0, **options: object) -> list[str]:
    """The text of a snapshot with these answers, all of now."""
    snapshot = ClusterSnapshot(NOW, {name: CachedAnswer(rows, NOW) for name, rows in answers.items()}, took=0.0)
    return list(lines(snapshot, FakeEngine.name, Period.WEEK, width, **options))  # type: ignore[arg-type]


def text(poller: ClusterPoller, width: int = 0) -> str:
    return "\n".join(lines(poller.round(), FakeEngine.name, Period.WEEK, width))


def test_a_node_without_a_sample_is_silent_and_none_of_its_gpus_is_free() -> None:
    nodes = {node.name: node for node in model.nodes(ANSWERS, NOW)}
    assert nodes["gn23"].silent == 720
    assert nodes["gn23"].count("free") == 0
    assert [node.count("free") for node in nodes.values()] == [8, 2, 0, 0]
    assert not any(nodes[name].silent for name in ("gn1", "gn2", "gn10"))


def test_a_node_is_silent_only_after_its_time() -> None:
    late = {"seen": [row(NOW - SILENT, instance="a"), row(NOW - SILENT - 1, instance="b")]}
    assert [bool(node.silent) for node in model.nodes(late, NOW)] == [False, True]


def test_nodes_come_in_the_order_of_their_numbers() -> None:
    assert [node.name for node in model.nodes(ANSWERS, NOW)] == ["gn1", "gn2", "gn10", "gn23"]


def test_free_gpus_that_are_together_come_first() -> None:
    found = model.free_gpus(model.nodes(ANSWERS, NOW))
    assert [(one.together, one.is_whole, list(one.nodes)) for one in found] == [(8, True, ["gn1"]), (2, False, ["gn2"])]


def test_a_run_on_several_nodes_is_one_with_its_epoch() -> None:
    (run,) = model.runs(ANSWERS)
    assert (run.gpus, list(run.nodes), run.epoch, run.planned, run.job) == (11, ["gn2", "gn10"], 4.0, 40.0, "88")


def test_users_have_what_was_answered_and_nothing_else() -> None:
    ada, bob = model.users(ANSWERS, Period.WEEK)
    assert (ada.name, ada.held, ada.held_seconds, ada.busy_seconds) == ("ada", 13.0, 360_000.0, 180_000.0)
    assert ada.used == pytest.approx(0.5)
    assert bob.held != bob.held, "not known, and not 0"


def test_sums_of_a_period_that_the_engine_does_not_have_whole_are_at_least_so_much() -> None:
    def told(**more: list[PrometheusSeries]) -> str:
        return "\n".join(shown(ANSWERS | more))

    assert "≥" not in told()
    part = told(covered_week=[row(1320.0)])
    assert "Prometheus has samples for only 22 min of the last week: sums are lower bounds." in part
    assert all(f"≥ {hours}" in part for hours in ("100 h", "10.0 h", "1.0 h"))
    assert "≥ 100 h" in told(covered_week=[]), "nobody said that it has all"


def test_of_a_user_of_whose_time_much_is_not_judged_no_used_share_is_told() -> None:
    part = model.ClusterUser("ada", held_seconds=300.0, judged_seconds=99.0, busy_seconds=0.0)
    assert part.used != part.used, "it may have worked for 201 s"
    assert part._replace(judged_seconds=294.0, busy_seconds=147.0).used == 0.5
    assert part._replace(judged_seconds=float("nan")).used != part.used


def test_a_picture_is_one_moment_whatever_is_asked() -> None:
    engine, clock = FakeEngine(), HandClock()
    ClusterPoller(engine, clock=clock.steady, now=clock.wall).round()
    assert {at for _, at in engine.asked} == {NOW}
    assert len(engine.asked) == len([one for one in QUERIES if one.needs_whole in (None, Period.WEEK)]) + 2


def test_which_nodes_were_seen_least_is_asked_in_the_same_round_of_a_period_that_is_whole() -> None:
    known = {f"covered_{Period.DAY}": [row(86400.0)], f"covered_{Period.WEEK}": [row(500000.0)]}
    engine = FakeEngine()
    engine.answers = ANSWERS | {f"covered_by_node_{one}": [row(1.0, instance="gn1")] for one in Period} | known
    snapshot = ClusterPoller(engine, clock=HandClock().steady, now=HandClock().wall).round()
    assert {name for name in snapshot.cached if name.startswith("covered_by_node")} == {"covered_by_node_day"}


def test_a_question_is_asked_again_in_its_own_time() -> None:
    engine, clock = FakeEngine(), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    engine.asked.clear()
    clock.passed = 15.0
    poller.round()
    often = {one.promql for one in QUERIES if one.every <= 15.0}
    assert {expression for expression, _ in engine.asked} == often


def test_of_a_large_cluster_nothing_is_asked_more_often_than_its_answer_changes() -> None:
    engine, clock = FakeEngine(), HandClock()
    engine.nodes = SMALL + 1
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    asked = {}
    for clock.passed in (15.0, 30.0, 60.0):
        engine.asked.clear()
        poller.round()
        asked[clock.passed] = {expression for expression, _ in engine.asked}
    large = [one for one in QUERIES if not one.is_small]
    exporters = {one.promql for one in large if not one.needs_rules and one.every <= 30.0}
    rules = {one.promql for one in large if one.needs_rules and one.every <= RULE_INTERVAL}
    assert not asked[15.0]
    assert asked[30.0] == exporters
    assert asked[60.0] > exporters | rules


def test_another_exporter_of_a_node_is_no_node() -> None:
    answers = ANSWERS | {"seen_before": ANSWERS["seen"], "seen": [*ANSWERS["seen"], row(NOW, instance="gn1:9402")]}
    assert "gn1:9402" not in [node.name for node in model.nodes(answers, NOW)]


@pytest.mark.parametrize("order", [1, -1])
def test_a_node_behind_two_doors_is_what_the_one_with_the_newest_sample_tells(order: int) -> None:
    seen = [row(NOW - 5, instance="gn1", job="gpumon"), row(NOW - 3000, instance="gn1", job="old")]
    gpus = [row(6, instance="gn1", job="gpumon", state="busy"), row(2, instance="gn1", job="gpumon", state="free"),
            row(8, instance="gn1", job="old", state="unknown")]  # fmt: skip
    (node,) = model.nodes({"seen": seen[::order], "gpus": gpus[::order]}, NOW)
    assert (node.silent, node.gpus) == (0.0, {"busy": 6, "free": 2})


def test_a_node_that_never_told_its_gpus_is_named_as_what_its_target_is() -> None:
    """A node that tells its GPUs, or did within the hour, is silent instead."""
    answers = ANSWERS | {"down": [row(0, instance="gn23"), row(0, instance="gn30")],
                         "without_daemon": [row(0, instance="gn1"), row(0, instance="gn8")]}  # fmt: skip
    assert "4 nodes, 1 silent, 2 more do not answer" in "\n".join(shown(answers))
    found = {one.node: one.text for one in find_problems(model.nodes(answers, NOW), answers)}
    assert found["gn30"] == "its exporter does not answer"
    assert found["gn8"] == "its exporter answers, but no daemon samples its GPUs"
    assert found["gn23"].startswith("silent")
    assert "gn1" not in found


def test_each_question_fails_alone_and_keeps_its_last_answer() -> None:
    engine, clock = FakeEngine(), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    before = poller.round()
    engine.broken = {"gpus"}
    clock.passed = 15.0
    after = poller.round()
    assert after.problems() == {"gpus": "Prometheus says: out of memory (422)"}
    assert after.answers()["gpus"] == before.answers()["gpus"]
    assert (after.cached["gpus"].at, after.cached["seen"].at) == (NOW, NOW + 15)
    clock.passed = 195.0
    line = f"GPUs by state of {units.moment(NOW)}, 3 min ago (Prometheus says: out of memory (422))"
    assert f"nodes and their GPUs: {line}" in text(poller).splitlines()


def test_a_first_picture_of_which_half_failed_says_what_of_each_table_and_calls_nothing_old() -> None:
    broken = ["energy_week", "busy_week", "epochs", "energy_of_day"]
    told = text(ClusterPoller(FakeEngine(broken=broken), select_period(QUERIES, Period.WEEK))).splitlines()
    why = "(Prometheus says: out of memory (422))"
    (line,) = [line for line in told if why in line]
    assert line.endswith(f" not answered {why}"), "the reason stands once for all that failed by it"
    assert set(line.removesuffix(f" not answered {why}").split("; ")) == {
        "power and energy: energy over the last day", "runs: epochs", "users: used, energy",
    }  # fmt: skip
    assert not any("not of now" in line or " ago" in line for line in told)


@pytest.mark.parametrize(("ahead", "said"), [(-320.0, "5 min behind"), (7200.0, "2 h ahead of"), (3.0, "")])
def test_an_engine_whose_clock_is_another_says_so(ahead: float, said: str) -> None:
    engine = FakeEngine()
    engine.clock = ahead
    told = text(ClusterPoller(engine)).splitlines()
    assert (f"Prometheus's clock is {said} this machine's; times shown are Prometheus's." in told) == bool(said)
    assert bool(said) == any("clock" in line for line in told)


def test_an_engine_that_answers_nothing_says_so_once_in_full_and_claims_nothing() -> None:
    asked = select_period(QUERIES, Period.WEEK)
    for width in (0, 40):
        head, *told = text(ClusterPoller(FakeEngine(broken={one.name for one in asked}), asked), width).splitlines()
        assert "GPUs unknown" in head
        assert "free" not in head
        assert " ".join(told).endswith("Prometheus answered no query (Prometheus says: out of memory (422))")
        assert not width or max(map(len, [head, *told])) <= width


def test_users_whose_long_names_begin_alike_differ_in_the_table() -> None:
    engine = FakeEngine()
    names = [f"institute-of-bioinformatics-shared-account-{end}" for end in ("alpha", "omega")]
    engine.answers = {**ANSWERS, "held_now": [row(1.0, user=name) for name in names]}
    told = text(ClusterPoller(engine))
    assert all(name[-5:] in told for name in names)
    assert not any(name in told for name in names)


class TestMissingRules:
    def test_files_to_load_are_named_and_nothing_is_asked_that_they_record(self) -> None:
        engine = FakeEngine(rules=False)
        snapshot = ClusterPoller(engine).round()
        assert snapshot.missing_files == ["rules.yml", "cluster.yml"]
        assert not any(":gpumon_" in expression for expression, _ in engine.asked if expression != SERIES_QUERY)
        assert {one.problem for name, one in snapshot.cached.items() if one.rows is None} == {RULES_MISSING}
        assert all(name in text(ClusterPoller(engine)) for name in snapshot.missing_files)

    def test_no_gpu_is_called_free_or_taken(self) -> None:
        snapshot = ClusterPoller(FakeEngine(rules=False)).round()
        assert "gpus" in snapshot.unanswered
        assert all(node.gpus is None for node in snapshot.nodes_now())

    def test_a_file_that_is_loaded_later_is_noticed_in_the_next_round(self) -> None:
        engine, clock = FakeEngine(rules=False), HandClock()
        poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
        poller.round()
        engine.names = ["gpumon_gpus", SITE_RULES]
        clock.passed = 30.0
        assert poller.round().missing_files == ["cluster.yml"]
        engine.names = ["gpumon_gpus", *RULE_FILES]
        clock.passed = 60.0
        snapshot = poller.round()
        assert not snapshot.missing_files
        assert snapshot.answers()["gpus"] == ANSWERS["gpus"]
        assert not snapshot.unanswered

    @pytest.mark.parametrize("names", [[], ["DCGM_FI_DEV_GPU_UTIL"]], ids=["nothing", "DCGM alone"])
    def test_an_engine_without_our_exporters_lacks_no_rules(self, names: list[str]) -> None:
        engine = FakeEngine()
        engine.names = names
        assert not ClusterPoller(engine).round().missing_files

    @pytest.mark.parametrize("rules", [False, True])
    def test_it_is_said_once_at_the_start(self, rules: bool) -> None:
        said: list[str] = []
        with closing(ClusterPoller(FakeEngine(rules=rules)).start(said.append)) as poller:
            while not poller.snapshot().cached:
                time.sleep(0.01)
        assert len(said) == (not rules)


def test_the_picture_names_what_is_free_who_holds_and_what_is_wrong() -> None:
    clock = HandClock()
    told = text(ClusterPoller(FakeEngine(), clock=clock.steady, now=clock.wall))
    head = told.splitlines()[0]
    assert "10 of 24 GPUs free  ·  2 allocated, idle  ·  4 nodes, 1 silent  ·  5,600 W" in head
    for expected in ("whole node", "100 h", "50%", "10.0 h", "gn2, gn10", "silent for 12 min", "1 GPU lost", "XID 79"):
        assert expected in told
    assert shown(ANSWERS, 1), "no terminal is too narrow"


def of_many(width: int, height: int, **more: object) -> list[str]:
    """The text of a cluster in which every table is long."""
    names = [f"gn{number:02}" for number in range(40)]
    answers = ANSWERS | {
        "seen": [row(NOW - 3, instance=name) for name in names] + [row(NOW - 720, instance="gn99")],
        "gpus": [row(1 + at % 7, instance=name, state="free") for at, name in enumerate(names)],
        "models": [row(8, instance=name, model=f"NVIDIA H{100 + at}") for at, name in enumerate(names)],
        "held_now": [row(1.0, user=f"user{at}") for at in range(30)],
        "held_last-month": [row(3.6e8, user=f"user{at}") for at in range(30)],
        "held_by_model_last-month": [row(3.6e8, user=f"user{at}", model="H100") for at in range(30)],
        "runs": [row(1, run=f"r{at}", user="ada") for at in range(30)],
        "idle_holders": [row(7200.0, instance=name, gpu="3", user="bob") for name in names],
        "xids": [row(NOW - 60, instance=name, gpu="3", xid="79") for name in names[:9]],
        "unreal": [row(40.0)],
    }  # fmt: skip
    kept = {name: CachedAnswer(rows, NOW) for name, rows in answers.items()}
    snapshot = ClusterSnapshot(NOW, kept, took=0.0, missing_files=["rules.yml"])
    return list(lines(snapshot, FakeEngine.name, Period.LAST_MONTH, width, **more, height=height))  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "height"), [(40, 49), (80, 35)])
def test_a_small_terminal_shows_some_rows_of_each_table_and_what_is_wrong_first(width: int, height: int) -> None:
    told = of_many(width, height)
    assert len(told) <= height
    assert max(map(len, told)) <= width
    headings = [line.split("  ")[0] for line in told if re.match("[A-Z]{3}", line)]
    assert headings == ["FREE", "PROBLEM", "USER", "RUN", "ALLOCATED, IDLE"]
    wrong = told.index(next(line for line in told if line.startswith("PROBLEM")))
    assert re.fullmatch(r"gn99 +silent for 12 min", told[wrong + 1])
    assert "XID 79" in told[wrong + 2]
    assert "XID 79" in told[wrong + 5], "the others gave way"


def test_a_file_has_every_row_of_every_table() -> None:
    told = of_many(0, 0)
    assert not any(re.match(r"and [0-9]+ more", line) for line in told)
    assert sum("XID 79" in line for line in told) == 9
    assert {line.split()[0] for line in told if line} >= {f"user{at}" for at in range(30)} | {
        f"r{at}" for at in range(30)
    }


def test_in_the_least_room_what_is_free_and_wrong_keeps_its_rows() -> None:
    told = of_many(80, 23)
    assert sum("XID 79" in line for line in told[:20]) == 4
    assert len(told) > 23, "what has no room is counted by the caller"


@pytest.mark.parametrize("width", [20, 80])
def test_the_head_and_the_headings_wrap_and_lose_no_word(width: int) -> None:
    told, whole = (" ".join(" ".join(of_many(wide, 0)).split()) for wide in (width, 0))
    for said in (
        f"{FakeEngine.name}", "155 of 155 GPUs free", "41 nodes, 1 silent", "40 nodes SIMULATED or REPLAY",
        units.moment(NOW), "rules.yml",
        "Time and energy of users: last month, 2026-12-01 to 2026-12-31",
    ):  # fmt: skip
        assert said in whole
        assert said in told


def test_at_40_columns_free_gpus_have_their_model_in_short_and_keep_the_names_of_nodes() -> None:
    models = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
    answers = ANSWERS | {
        "seen": [], "seen_before": [],
        "gpus": [row(8, instance=f"gn{at}", state="free") for at, _ in enumerate(models)],
        "models": [row(8, instance=f"gn{at}", model=model) for at, model in enumerate(models)],
    }  # fmt: skip
    narrow, wide = (shown(answers, width) for width in (40, 120))
    for name in models:
        (of_narrow,) = [line for line in narrow if short_name(name) in line]
        assert re.fullmatch(r"whole node  .*  gn[01] .* 8", of_narrow)
        assert any(name in line for line in wide)


def test_at_40_columns_a_model_loses_letters_before_a_row_of_free_gpus_loses_its_nodes() -> None:
    names = "gpu-node-17", "gpu-node-18"
    answers = ANSWERS | {
        "seen": [], "seen_before": [],
        "gpus": [row(8, instance=name, state="free") for name in names],
        "models": [row(8, instance=name, model="NVIDIA RTX PRO 6000 Blackwell Server Edition") for name in names],
    }  # fmt: skip
    narrow = shown(answers, 40)
    (found,) = [line for line in narrow if line.startswith("whole nodes")]
    assert re.fullmatch(r"whole nodes  RTX PRO.*…  gpu…-17 \+1    16", found)
    assert max(map(len, narrow)) <= 40


def test_in_little_room_silent_nodes_hide_no_lost_gpu() -> None:
    names = [f"gn{number:02}" for number in range(20)]
    answers = ANSWERS | {
        "seen_before": [], "seen": [row(NOW - 720, instance=name) for name in names[:19]],
        "gpus": [row(8, instance=name, state="busy") for name in names[:19]] + [row(1, instance="gn19", state="lost")],
    }  # fmt: skip
    assert any("1 GPU lost" in line for line in shown(answers, 80, height=24))
    every = [line.split()[0] for line in shown(answers, 80) if "silent for" in line]
    assert every == names[:19], "where all have room they stand in the order of their names"


def test_of_costs_the_time_of_gpus_goes_last() -> None:
    prices = Prices("EUR", {"H100": 2.0}, (0.3,) * 24, 1.2, 400.0)
    for width in range(40, 150):
        heading = next(line for line in of_many(width, 0, prices=prices) if line.startswith("USER"))
        costs = re.findall("IDLE COST|POWER COST|CO2|COST", heading)
        assert not costs or "COST" in costs, heading
    assert "COST" in re.findall("IDLE COST|COST", next(
        line for line in of_many(80, 0, prices=prices) if line.startswith("USER")))  # fmt: skip


def test_a_name_of_300_letters_is_cut_in_a_pipe() -> None:
    long = "n" * 300
    answers = {"seen": [row(NOW - 3, instance=long)], "gpus": [row(8, instance=long, state="free")],
               "runs": [row(1, run="r1", user="ada")], "run_places": [row(1, run="r1", instance=long)]}  # fmt: skip
    told = "\n".join(shown(answers))
    assert told.count(f"{'n' * 31}…") == 2
    assert "n" * 32 not in told


def test_a_period_asks_nothing_about_others() -> None:
    names = [one.name for one in select_period(QUERIES, Period.DAY)]
    assert "held_day" in names
    assert not any(name.endswith(("week", "month")) for name in names)


def test_names_of_questions_are_unique() -> None:
    assert len({one.name for one in QUERIES}) == len(QUERIES)
    assert all(isinstance(one, Query) and one.every >= 15.0 for one in QUERIES)


def test_the_rules_that_are_shipped_record_what_is_asked() -> None:
    recorded: set[str] = set()
    for file in (*RULE_FILES.values(), "hours.yml"):
        groups = yaml.safe_load((ROOT / "deploy/prometheus" / file).read_text())["groups"]
        assert {group["interval"] for group in groups} == {"1h" if file == "hours.yml" else f"{RULE_INTERVAL:g}s"}
        recorded |= {rule["record"] for group in groups for rule in group["rules"]}
    prices = Prices("EUR", {"H100": 2.0}, (0.1,) * 8 + (0.3,) * 16)
    questions = (*QUERIES, *cost_queries(prices), *absence_queries(away(gn1=0.0), NOW))
    texts = [*(text for one in questions for text in (one.promql, one.by_hour)), HOURS_QUERY, PHASE_QUERY, *RULE_FILES]
    asked = {name for text in texts for name in re.findall(r"\w+:gpumon_\w+:\w+", text)}
    assert asked <= recorded


def away(**seconds: float) -> dict[str, list[PrometheusSeries]]:
    """Answers of a week in which nodes were seen for so long, and nothing is known of who was on them."""
    return ANSWERS | {"covered_by_node_week": [row(value, instance=name) for name, value in seconds.items()]}


DAY_LESS = 518_400.0


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"gn1": 604_800.0}, ""),
        ({"gn1": 604_800.0, "gn2": 600_000.0}, ""),  # a hundredth is as good as all
        ({"gn1": 604_800.0, "gn2": DAY_LESS}, "Samples missing in the last week: gn2 for 1 d. Its users are unknown"),
        (
            {"gn1": 0.0, "gn2": DAY_LESS, "gn3": 600.0, "gn4": DAY_LESS, "gn5": DAY_LESS},
            "Samples missing in the last week: gn1 for 7 d, gn3 for 6 d 23 h, gn2 for 1 d and 2 more. Their users",
        ),
        ({f"gn{at}": DAY_LESS for at in range(33)}, "Samples missing in the last week: gn0 for 1 d, gn1 for 1 d, "
         "gn10 for 1 d and more than 29 others. Their users are unknown, so all sums are lower bounds"),
        ({}, "Some nodes may have no samples for part of"),
    ],
)  # fmt: skip
def test_a_period_is_whole_only_where_every_node_was_seen_in_it(seen: dict[str, float], said: str) -> None:
    answers = away(**seen)
    assert coverage.is_complete(answers, Period.WEEK) == (not said)
    assert coverage.gap_sentence(answers, Period.WEEK).startswith(said)
    assert coverage.uncertainty(answers, Period.WEEK).is_complete("ada") == (not said)
    assert not coverage.is_complete(
        {name: told for name, told in answers.items() if "by_node" not in name}, Period.WEEK
    )


def zoned(at: float) -> str:
    """A moment with its zone, to the minute."""
    return f"{units.moment(at)[:-3]} {datetime.fromtimestamp(at).astimezone():%Z}"


def test_only_the_sums_of_who_was_on_a_node_that_was_away_are_at_least_so_much() -> None:
    answers = away(gn1=604_800.0, gn2=604_800.0 - 3 * 3600) | {
        "away_users_week gn2": [row(1.0, instance="gn2", user="bob")],
        "away_times_week gn2": [row(NOW - 86_400, instance="gn2", what="left"), row(1, instance="gn2", what="gaps")],
    }  # fmt: skip
    told = "\n".join(shown(answers, groups=UserGroups({"ada": "a", "bob": "b"})))
    since = zoned(NOW - 86_400)
    assert (
        f"Samples missing in the last week: gn2 for 3 h (last sample {since}). "
        "Sums of users who used it in this period are lower bounds (≥)."
    ) in told
    assert re.search("^ada .* 100 h", told, re.MULTILINE)
    assert re.search("^bob .*≥ 1.0 h", told, re.MULTILINE)
    assert re.search("^b .*≥ 1.0 h", told, re.MULTILINE)
    assert not re.search("^(a|ada) .*≥", told, re.MULTILINE)
    assert coverage.missing_note(answers, Period.WEEK, "bob") == "no samples of gn2 for 3 h"
    assert coverage.missing_note(answers, Period.WEEK, "ada") == ""
    assert coverage.missing_note({"covered_week": [], "held_week": []}, Period.WEEK, "ada") == "no samples"
    assert coverage.missing_note({}, Period.WEEK, "ada") == "", "it was not answered"


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"came": NOW - 3600.0}, "7 d (first sample {})"),
        ({"left": NOW - 3600.0, "gaps": 1.0}, "7 d (last sample {})"),
        ({"left": NOW - 3600.0, "gaps": 2.0}, "7 d in all (last sample {})"),
        ({}, "7 d."),
    ],
)  # fmt: skip
def test_a_node_that_came_or_went_says_when(times: dict[str, float], said: str) -> None:
    rows = [row(at, instance="gn2", what=what) for what, at in times.items()]
    told = coverage.gap_sentence(away(gn2=0.0) | {"away_times_week gn2": rows}, Period.WEEK)
    assert said.format(zoned(NOW - 3600.0)) in told


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"came": NOW - 3600.0}, "no samples of gn2 before {}"),
        ({"came": NOW - 7200.0, "left": NOW - 3600.0, "gaps": 1.0}, "no samples of gn2 for 6 d 23 h"),
        ({}, "no samples of gn2 for 6 d 23 h"),
    ],
)  # fmt: skip
def test_a_node_that_joined_within_a_period_was_not_away_before(times: dict[str, float], said: str) -> None:
    answers = away(gn2=3600.0) | {
        "away_users_week gn2": [row(1.0, instance="gn2", user="bob")],
        "away_times_week gn2": [row(at, instance="gn2", what=what) for what, at in times.items()],
    }
    assert coverage.missing_note(answers, Period.WEEK, "bob") == said.format(zoned(NOW - 3600.0))


def test_of_several_nodes_that_were_not_seen_the_first_is_named() -> None:
    answers = away(gn1=0.0, gn2=3600.0) | {
        "away_users_week gn1 gn2": [row(1.0, instance=name, user="bob") for name in ("gn1", "gn2")]
    }
    assert coverage.missing_note(answers, Period.WEEK, "bob") == "samples of gn1 and 1 more missing"


def test_who_was_on_nodes_that_were_away_is_asked_by_their_names_in_the_same_round() -> None:
    engine = FakeEngine()
    engine.answers = away(gn1=604_800.0, **{'g"n.2': 0.0})
    poller = ClusterPoller(engine, select_period(QUERIES, Period.WEEK), clock=HandClock().steady, now=HandClock().wall)
    snapshot = poller.round()
    (asked,) = [text for text, _ in engine.asked if "unless on (instance, user)" in text]
    assert r'gpumon_user_held_seconds_total{instance=~"g\"n\\.2"}' in asked
    assert snapshot.cached['away_users_week g"n.2'].rows == []
    assert not absence_queries(ANSWERS, NOW), "every node was seen"


@pytest.mark.parametrize(("covered", "times"), [(3600.0, 2), (Period.WEEK.seconds, 1)])
def test_sums_of_an_engine_that_has_little_yet_are_asked_as_often_as_they_change(covered: float, times: int) -> None:
    engine, clock = FakeEngine(), HandClock()
    engine.answers = ANSWERS | {"covered_week": [row(covered)]}
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    clock.passed = 60.0
    poller.round()
    asked = [expression for expression, _ in engine.asked]
    assert asked.count("sum_over_time(user:gpumon_gpus_held:rate5m[168h]) * 60") == times


def test_sums_by_hour_are_asked_for_once_they_know_as_much_as_the_minutes() -> None:
    engine, clock = FakeEngine(), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    assert not poller.round().by_hour
    asked = {expression for expression, _ in engine.asked}
    assert "sum_over_time(user:gpumon_gpus_held:rate5m[168h]) * 60" in asked
    engine.hours = ["168h"]
    clock.passed = 900.0
    engine.asked.clear()
    assert poller.round().by_hour
    asked = {expression for expression, _ in engine.asked}
    assert "sum_over_time(user:gpumon_gpus_held:rate5m[168h]) * 60" not in asked
    assert any("user:gpumon_gpus_held:sum1h[" in one for one in asked)
    assert "sum_over_time(user:gpumon_gpus_held:rate5m[720h]) * 60" in asked, "of a month they do not know enough yet"
    engine.hours = []
    clock.passed = 1800.0
    engine.asked.clear()
    poller.round()
    assert any(expression == "sum_over_time(user:gpumon_gpus_held:rate5m[168h]) * 60" for expression, _ in engine.asked)


@pytest.mark.parametrize("phase", [0.0, 29.0, 31.0, 1234.5, 3599.9])
@pytest.mark.parametrize("passed", [0.0, 20.0, 100.0, 1799.5, 3540.0])
def test_the_parts_of_a_period_by_hour_and_by_minute_follow_each_other(phase: float, passed: float) -> None:
    at = NOW + passed

    def span(part: str) -> tuple[float, float]:
        told = insert_windows(f"x[{part} 168h]", at, phase)
        length, end = re.fullmatch(r"x\[(\d+)ms\] @ (\d+\.\d+)", told).groups()  # type: ignore[union-attr]
        return float(end) - int(length) / 1000, float(end)

    begin, first = span("before")
    last, end = span("behind")
    assert (begin, end) == pytest.approx((at - Period.WEEK.seconds, at), abs=0.01)
    assert (last - first) % 3600 == pytest.approx(0.0, abs=0.01)
    hours = [first + 3600 * number for number in range(1, round((last - first) / 3600) + 1)]
    since, until = span("hours")
    assert all(since < hour + 30 <= until for hour in hours), "each has its sample half a minute later"
    assert since > hours[0] + 30 - 3600
    assert until < hours[-1] + 30 + 3600
    assert hours[-1] + 30 <= at - 90, "its sample is there"
    assert first - begin < 3600 + 1
    assert 0 < end - last < 3600 + 121


def test_a_site_with_nothing_but_dcgm_is_asked_what_that_tells() -> None:
    engine, clock = FakeEngine(), HandClock()
    engine.names = ["DCGM_FI_DEV_GPU_UTIL"]
    snapshot = ClusterPoller(engine, clock=clock.steady, now=clock.wall).round()
    assert snapshot.is_dcgm
    assert not any("gpumon" in expression for expression, _ in engine.asked if expression != SERIES_QUERY)


def test_gpus_of_which_nobody_tells_who_holds_them_are_not_counted_as_taken_or_free() -> None:
    def head(*gpus: PrometheusSeries, is_dcgm: bool) -> str:
        return text_of(*gpus, is_dcgm=is_dcgm)[0]

    def text_of(*gpus: PrometheusSeries, is_dcgm: bool) -> list[str]:
        kept = {"seen": CachedAnswer([row(NOW, instance="gn1")]), "gpus": CachedAnswer(gpus)}
        snapshot = ClusterSnapshot(NOW, kept, took=0.0, is_dcgm=is_dcgm)
        return list(lines(snapshot, FakeEngine.name, Period.WEEK))

    told = row(3, instance="gn1", state="busy"), row(5, instance="gn1", state="unknown")
    assert "3 of 8 GPUs busy, free GPUs unknown" in head(*told, is_dcgm=True)
    assert DCGM_ONLY in text_of(*told, is_dcgm=True)
    assert DCGM_ONLY not in text_of(*told, is_dcgm=False)
    assert "0 of 8 GPUs free  ·  5 unknown" in head(*told, is_dcgm=False)


def test_each_gpu_is_asked_for_where_the_cluster_is_small_and_one_node_while_somebody_looks() -> None:
    engine, clock = FakeEngine(), HandClock()
    poller = ClusterPoller(engine, (*QUERIES, *GPU_QUERIES), clock=clock.steady, now=clock.wall)
    assert "gpu_users" in poller.round().answers()
    poller.watch("gn2", node_queries)
    clock.passed = 15.0
    assert "node_users gn2" in poller.round().answers()
    assert any('gpumon_gpu_user_info{instance="gn2"}' in expression for expression, _ in engine.asked)
    clock.passed = 15.0 + 2 * UNWATCHED
    assert "node_users gn2" not in poller.round().answers()
    engine.nodes = SMALL + 1
    clock.passed += 300.0
    assert "gpu_users" not in poller.round().answers()


def test_a_name_is_no_part_of_an_expression() -> None:
    for question in (*node_queries('a"} or up{x="'), *user_queries("b\\\n")):
        assert question.promql.count('"') % 2 == 0
    assert any(r'instance="a\"} or up{x=\""' in question.promql for question in node_queries('a"} or up{x="'))


def test_an_engine_whose_clock_is_another_is_asked_in_its_own_time() -> None:
    engine, clock = FakeEngine(), HandClock()
    engine.clock = -300.0
    snapshot = ClusterPoller(engine, clock=clock.steady, now=clock.wall).round()
    assert (snapshot.at, snapshot.clock_offset) == (NOW - 300, -300.0)
    engine.clock = 2.0
    assert ClusterPoller(engine, clock=clock.steady, now=clock.wall).round().at == NOW


def test_a_question_that_fails_says_since_when_and_is_asked_again_soon() -> None:
    engine, clock = FakeEngine(broken=["held_month"]), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    clock.passed = 15.0
    assert poller.round().cached["held_month"].failing == NOW
    engine.broken = set()
    clock.passed = 30.0
    assert poller.round().cached["held_month"].failing == 0.0


def test_a_node_that_went_away_is_silent_since_its_last_sample() -> None:
    answers = {"seen": [row(NOW - 3, instance="a")],
               "seen_before": [row(NOW - 40, instance="a"), row(NOW - 900, instance="b")]}  # fmt: skip
    assert [(one.name, one.silent) for one in model.nodes(answers, NOW)] == [("a", 0.0), ("b", 900.0)]


def test_a_node_whose_clock_is_apart_is_not_silent_while_its_samples_come() -> None:
    answers = {"gpus": [row(8, instance=name, state="free") for name in ("a", "b", "c")],
               "seen": [row(NOW - 303, instance="a"), row(NOW - 303, instance="b")],
               "clocks": [row(-300.0, instance="a"), row(600.0, instance="c")]}  # fmt: skip
    behind, silent, ahead = model.nodes(answers, NOW)
    assert [one.count("free") for one in (behind, silent, ahead)] == [8, 0, 8]
    said = [(one.node, one.text) for one in find_problems([behind, silent, ahead], answers)]
    assert said == [
        ("b", "silent for 5 min"), ("a", "its clock is 5 min behind Prometheus's"),
        ("c", "its clock is 10 min ahead of Prometheus's"),
    ]  # fmt: skip


def test_models_come_with_the_states_of_a_large_cluster_and_by_themselves_of_a_mixed_node() -> None:
    answers = {"gpus": [row(8, instance="a", state="free", model="H100"), row(8, instance="b", state="free")],
               "models": [row(4, instance="b", model="L40S"), row(4, instance="b", model="T4")]}  # fmt: skip
    assert [list(one.models) for one in model.nodes(answers, NOW)] == [["H100"], ["L40S", "T4"]]


def test_the_text_names_parts_of_the_page_and_no_question() -> None:
    names = [one.name for one in (*QUERIES, *DCGM_QUERIES)]
    assert {page_section(name) for name in names} == {
        "nodes and their GPUs", "utilization", "power and energy", "problems", "allocated, idle", "runs", "users",
    }  # fmt: skip
    told = text(ClusterPoller(FakeEngine(broken=names)))
    assert not any(f" {name}," in told or f" {name} (" in told for name in names if "_" in name)


def test_what_an_engine_has_nothing_of_is_asked_again_within_a_minute() -> None:
    engine, clock = FakeEngine(), HandClock()
    poller = ClusterPoller(engine, clock=clock.steady, now=clock.wall)
    poller.round()
    engine.asked.clear()
    clock.passed = 60.0
    poller.round()
    by_name = {one.name: one.promql for one in QUERIES}
    asked = {expression for expression, _ in engine.asked}
    assert by_name["held_month"] in asked, "it had nothing"
    assert by_name["held_week"] not in asked


def test_the_text_counts_no_gpu_as_taken_where_no_node_tells_any() -> None:
    told = shown({"gpus": [], "seen": [], "seen_before": [row(NOW - 30, instance="gn1")]})[0]
    assert "GPUs unknown  ·  1 node" in told
    assert "free" not in told
