"""What reads a cluster, on real engines with what exporters told: the same facts with rules and without, by both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from gpumon.cluster import model
from gpumon.cluster.client import PrometheusClient, single
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.problems import find_problems
from gpumon.cluster.queries import QUERIES, Period, Query, node_queries, quoted, user_queries
from gpumon.cluster.rules import RULE_FILES, RULE_INTERVAL
from gpumon.cluster.snapshot import ClusterSnapshot
from gpumon.export.scrape import DialectOptions
from gpumon.reports.cluster_text import lines
from gpumon_web.cluster.views import CLUSTER_PAGES, ClusterViews
from tests.engines.lab import (
    BEHIND,
    EPOCH,
    EVERY,
    HOT,
    IDLE_FROM,
    MODEL,
    NOW,
    RULES,
    SECONDS,
    XID_AT,
    first_node,
    lab_told,
    third_node,
)
from tests.engines.past import BEGIN, prometheus_of, recorded_by_both, scraped, victoria_metrics_of
from tests.engines.programs import Backend

pytestmark = pytest.mark.engine
ENGINES = ("prometheus", "victoria-metrics")
GAP = 0.01 + 300 / SECONDS
"""Share of an hour that may be missing: a recorded rate is of five minutes, and there was nothing before the hour."""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Backend]]:
    """Engines that scraped the laboratory for an hour."""
    with recorded_by_both(tmp_path_factory.mktemp("engines"), lab_told(), RULES) as running:
        yield dict(zip(ENGINES, running, strict=True))


@pytest.fixture(scope="module")
def snapshots(engines: dict[str, Backend]) -> dict[str, ClusterSnapshot]:
    return {name: read(engine) for name, engine in engines.items()}


def read(engine: Backend, now: Callable[[], float] = lambda: NOW) -> ClusterSnapshot:
    with closing(PrometheusClient(engine.url)) as asked, closing(ClusterPoller(asked, now=now)) as poller:
        return poller.round()


@pytest.mark.parametrize("name", ENGINES)
def test_every_question_is_answered(snapshots: dict[str, ClusterSnapshot], name: str) -> None:
    snapshot = snapshots[name]
    assert snapshot.problems() == {}
    assert {question for question, rows in snapshot.answers().items() if not rows} == {
        "unreal",
        "without_daemon",
        "dcgm_alone",
        "models",  # no node has several
    }
    assert [(row.labels["instance"], row.value) for row in snapshot.answers()["clocks"]] == [("gn1:9402", -BEHIND)]


@pytest.mark.parametrize("name", ENGINES)
def test_nodes_are_as_their_exporters_told(snapshots: dict[str, ClusterSnapshot], name: str) -> None:
    first, second, third = model.nodes(snapshots[name].answers(), NOW)
    assert (first.name, first.total, first.count("busy"), first.count("held_idle"), first.count("free")) == (
        "gn1", 4, 2, 1, 1,
    )  # fmt: skip
    assert (second.name, second.total, second.count("busy"), second.count("lost")) == ("gn2", 3, 2, 1)
    assert (third.name, third.silent > 0, third.count("free")) == ("gn10", True, 0)
    assert (first.models, first.silent, second.silent) == ([MODEL], 0.0, 0.0)
    alive = 550 + 450 + 100 + 100 + 500 + 350
    assert single(snapshots[name].answers(), "power") == alive, "a node that is silent is not in it"
    assert first.busy == pytest.approx((0.9 + 0.7) / 4, rel=0.01), "mean utilization of its 4 GPUs"


def test_recorded_states_and_models_are_those_that_nodes_tell(snapshots: dict[str, ClusterSnapshot]) -> None:
    assert [(one.name, list(one.models)) for one in model.nodes(snapshots["prometheus"].answers(), NOW)] == [
        ("gn1", [MODEL]), ("gn2", [MODEL]), ("gn10", []),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ENGINES)
def test_users_have_the_hours_that_they_had(snapshots: dict[str, ClusterSnapshot], name: str) -> None:
    ada, bob = model.users(snapshots[name].answers(), Period.DAY)
    assert (ada.name, bob.name) == ("ada", "bob")
    assert (ada.held, bob.held) == pytest.approx((4, 2), rel=0.01)
    assert (ada.idle, bob.idle) == pytest.approx((0, 1), rel=0.01, abs=0.001)
    assert ada.held_seconds == pytest.approx(4 * SECONDS, rel=GAP)
    assert bob.held_seconds == pytest.approx(2 * SECONDS, rel=GAP)
    assert bob.idle_seconds == pytest.approx(SECONDS - IDLE_FROM - 60, rel=2 * GAP), "a minute is a pause"
    assert ada.busy_seconds == pytest.approx(3.75 * SECONDS, rel=GAP)
    joules = (550 + 450 + 500 + 350 * 0.75) * SECONDS
    assert ada.energy == pytest.approx(joules, rel=GAP)


@pytest.mark.parametrize("name", ENGINES)
def test_runs_holders_and_faults_are_those_of_the_nodes(snapshots: dict[str, ClusterSnapshot], name: str) -> None:
    answers = snapshots[name].answers()
    (run,) = model.runs(answers)
    assert (run.name, run.user, run.job, run.gpus, list(run.nodes)) == ("moe", "ada", "88", 3, ["gn1", "gn2"])
    assert (run.epoch, run.planned) == (SECONDS // EPOCH, 90)
    (idle,) = model.idle_holders(answers)
    assert (idle.node, idle.gpu, idle.user) == ("gn1", "2", "bob")
    assert idle.seconds == pytest.approx(SECONDS - IDLE_FROM, abs=RULE_INTERVAL)
    said = {(one.node, one.text.split(" at ")[0]) for one in find_problems(model.nodes(answers, NOW), answers)}
    assert said == {
        ("gn1", f"a GPU is throttled by heat {HOT * 100:.0f} % of the time"), ("gn2", "1 GPU lost"),
        ("gn2", "XID 79 on GPU 2"), ("gn10", "silent for 16 min: its exporter does not answer"),
    }  # fmt: skip
    assert answers["xids"][0].value == BEGIN + XID_AT


def test_the_text_is_the_same_whichever_engine_is_asked(snapshots: dict[str, ClusterSnapshot]) -> None:
    def told(name: str) -> Sequence[str]:
        found = list(lines(snapshots[name], "engine", Period.DAY))
        covered = [line for line in found if line.startswith("Prometheus has samples for ")]
        assert len(covered) == 1
        return [line for line in found if not line.startswith(("engine", "ada", "bob", *covered))]

    assert told("prometheus") == told("victoria-metrics")
    assert any(line.startswith("moe") for line in told("prometheus"))


LONG_STEPS = ("covered_by_node_week", "covered_by_node_month")
"""Questions whose steps are too long for an hour of history: engines begin them at other moments."""


@pytest.mark.parametrize(
    "question", [one for one in QUERIES if one.name not in LONG_STEPS], ids=lambda question: question.name
)
def test_both_engines_give_the_same_numbers(engines: dict[str, Backend], question: Query) -> None:
    ours, theirs = (
        {
            tuple(sorted((label, text) for label, text in labels.items() if label != "__name__")): value
            for labels, value in engines[name].ask(question.promql, NOW)
        }
        for name in ENGINES
    )
    without = [
        {tuple(one for one in key if one[0] != "__name__"): value for key, value in of.items()} for of in (ours, theirs)
    ]
    assert without[0] == pytest.approx(without[1], rel=GAP)


@pytest.mark.parametrize("name", ENGINES)
def test_a_node_and_a_user_that_somebody_looks_at_are_asked_for(engines: dict[str, Backend], name: str) -> None:
    with (
        closing(PrometheusClient(engines[name].url)) as asked,
        closing(ClusterPoller(asked, now=lambda: NOW)) as poller,
    ):
        poller.watch("node gn1", lambda subject: node_queries("gn1"))
        poller.watch("user ada", lambda subject: user_queries("ada"))
        answers = poller.round().answers()
    assert {row.labels["gpu"]: row.value for row in answers["node_power gn1"]} == {
        "0": 550,
        "1": 450,
        "2": 100,
        "3": 100,
    }
    assert {row.labels["gpu"] for row in answers["node_runs gn1"]} == {"0", "1"}
    assert {row.labels["instance"]: row.value for row in answers["user_places ada"]} == {"gn1": 2, "gn2": 2}
    assert answers["node_silent gn1"] == []


@pytest.mark.parametrize("engine", [prometheus_of, victoria_metrics_of])
@pytest.mark.parametrize(
    "name", ["n" * 300, "<b>x</b>&\"'{}{all}\\[1h:last-month]", "two\nlines", '{"last-month"}', "[hours 168h]"]
)
def test_a_node_and_a_user_are_asked_for_by_the_name_that_the_engine_has(
    engine: Callable[..., AbstractContextManager[Backend]], name: str, tmp_path: Path
) -> None:
    of = f"instance={quoted(name)}"
    told = [
        (f'gpumon_gpu_info{{{of},gpu="{gpu}",uuid="G{gpu}",model="T4"}} 1', BEGIN) for gpu in (0, 1)
    ] + [
        *((f'gpumon_gpus{{{of},state="{state}"}} 1', BEGIN) for state in ("free", "busy")),
        *((f'instance_model_state:gpumon_gpus:count{{{of},state="{state}"}} 1', BEGIN) for state in ("free", "busy")),
        (f"user:gpumon_gpus_held:count{{user={quoted(name)}}} 1", BEGIN),
        *((f"{proof} 1", BEGIN) for proof in RULE_FILES),
        (f'gpumon_gpu_unavailable{{{of},gpu="1",metric="all",reason="lost"}} 1', BEGIN),
        (f'gpumon_gpu_user_info{{{of},gpu="0",uuid="G0",user={quoted(name)}}} 1', BEGIN),
    ]  # fmt: skip
    with (
        engine(tmp_path, told) as running,
        closing(PrometheusClient(running.url)) as asked,
        # Not at BEGIN itself: that may be midnight, where VictoriaMetrics does not yet find what is new at that moment.
        closing(ClusterPoller(asked, now=lambda: BEGIN + 60)) as poller,
    ):
        views = ClusterViews(poller, "engine")
        poller.round()
        (shown,) = {row.labels["instance"] for row in poller.snapshot().answers()["gpus"]}
        node, person = CLUSTER_PAGES["node"], CLUSTER_PAGES["person"]
        for page in (node, person):
            views.delta(page, {"id": shown}, "", 0)
        snapshot = poller.round()
    assert snapshot.problems() == {}
    answers = snapshot.answers()
    assert {row.labels["gpu"] for row in answers[f"node_info {shown}"]} == {"0", "1"}
    assert {row.labels["gpu"] for row in answers[f"node_silent {shown}"]} == {"1"}
    assert [row.labels["instance"] for row in answers[f"user_places {shown}"]] == [shown]


def test_rules_that_have_nothing_to_record_are_there(tmp_path: Path) -> None:
    told = list(scraped(third_node, 600, {"gn10": 60}))
    with prometheus_of(tmp_path, told, RULES) as engine:
        snapshot = read(engine, lambda: BEGIN + 600)
    assert not snapshot.missing_files
    assert [list(snapshot.answers()[name]) for name in ("runs", "idle_holders", "held_now")] == [[], [], []]


def test_a_site_with_dcgm_alone_tells_what_that_knows(tmp_path: Path) -> None:
    options = DialectOptions(hostname="gn1")
    told = list(scraped(first_node, SECONDS, {"gn1:9400": EVERY}, dialect="dcgm", options=options))
    with prometheus_of(tmp_path, told) as engine:
        snapshot = read(engine)
    assert snapshot.is_dcgm
    assert snapshot.problems() == {}
    (node,) = model.nodes(snapshot.answers(), NOW)
    assert (node.name, node.total, node.count("busy"), node.count("free")) == ("gn1:9400", 4, 2, 0)
    assert node.models == [MODEL]
    assert single(snapshot.answers(), "power") == 550 + 450 + 100 + 100
    assert node.busy == pytest.approx((0.9 + 0.7) / 4)


def test_an_engine_that_knows_nothing_of_gpumon_shows_that(tmp_path: Path) -> None:
    with prometheus_of(tmp_path, [('up{job="node",instance="n"} 1', BEGIN)]) as engine:
        snapshot = read(engine)
    assert snapshot.problems() == {}
    assert model.nodes(snapshot.answers(), NOW) == []


def test_hosts_that_only_another_exporter_tells_of_are_counted_whatever_the_ports(tmp_path: Path) -> None:
    hosts = ("gn1:9400", "gn2:9400", "gn3")
    series = [f'DCGM_FI_DEV_GPU_UTIL{{instance="{host}",gpu="{gpu}"}} 5' for host in hosts for gpu in (0, 1)]
    series += ['gpumon_gpus{instance="gn1:9401",state="free"} 2', 'gpumon_up{instance="gn1:9401"} 1']
    told = [(one, BEGIN + at) for at in (0, 60, 120) for one in series]
    with prometheus_of(tmp_path, told, RULES) as engine:
        answers = read(engine, lambda: BEGIN + 90).answers()
    assert model.dcgm_only_hosts(answers) == 2


def test_a_node_is_silent_once_its_samples_stand_and_alive_while_they_come_whatever_its_clock_says(
    tmp_path: Path,
) -> None:
    newest: dict[str, Callable[[int], float]] = {
        "alive": lambda at: at,
        "ahead": lambda at: at + 600,
        "ahead-stood-3-min": lambda at: min(at, 420) + 600,
        "ahead-stood-9-min": lambda at: min(at, 60) + 600,  # its newest sample is as if it were new
        "jumped-back": lambda at: at if at < 510 else at - 300,
        "stood-3-min": lambda at: min(at, 420),
        "young": lambda at: at if at >= 510 else float("nan"),
        "young-stood": lambda at: 100 if at >= 510 else float("nan"),
    }
    told = [
        (f'{series}{{instance="{name}",job="g"{more}}} {value}', BEGIN + at)
        for at in range(0, 661, 15) for name, of in newest.items() if of(at) == of(at)
        for series, more, value in (
            ("gpumon_last_sample_timestamp_seconds", "", BEGIN + of(at)), ("gpumon_gpus", ',state="free"', 8),
            ("gpumon_up", "", 1),
        )
    ]  # fmt: skip
    with recorded_by_both(tmp_path, told, RULES) as engines:
        snapshots = [read(engine, lambda: BEGIN + 600) for engine in engines]
    for snapshot in snapshots:
        check_silence({one.name: one for one in snapshot.nodes_now()})


def check_silence(found: dict[str, model.Node]) -> None:
    assert {name for name, one in found.items() if one.silent} == {
        "ahead-stood-3-min",
        "ahead-stood-9-min",
        "stood-3-min",
        "young-stood",
    }
    assert {name: one.count("free") for name, one in found.items() if one.count("free")} == {
        "alive": 8, "ahead": 8, "jumped-back": 8, "young": 8,
    }  # fmt: skip
    assert [found[name].clock_offset for name in ("ahead", "jumped-back")] == [600, -300]
