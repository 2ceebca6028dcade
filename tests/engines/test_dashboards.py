"""The dashboards for Grafana: as the tables say, whole, and each expression has an answer on real engines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpumon.export.family import EXPORTED
from gpumon.model.panels import PANELS
from tests.conftest import ROOT
from tests.engines.lab import NOW, RULES, lab_told
from tests.engines.past import prometheus_of, victoria_metrics_of
from tests.engines.programs import Backend

FOLDER = ROOT / "deploy" / "grafana"
PATHS = sorted(FOLDER.glob("*.json"))
BUILT_IN = {"$__rate_interval": "5m", "$__range": "1h", "${datasource}": "", "$__all": ""}
"""What Grafana puts in by itself."""
GUIDE = (ROOT / "docs" / "operate" / "prometheus.md").read_text(encoding="utf-8")
OF_GUIDE = [
    line
    for block in re.findall(r"```promql\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
    if not line.startswith("#")
]
Told = dict[str, Any]


def board(path: Path) -> Told:
    found: Told = json.loads(path.read_text(encoding="utf-8"))
    return found


def panels(path: Path) -> list[Told]:
    return [one for one in board(path)["panels"] if one["type"] != "row"]


def expressions() -> Iterator[Any]:
    for path in PATHS:
        found = [(one["title"], target["expr"]) for one in panels(path) for target in one["targets"]]
        found += [(one["name"], one["expr"]) for one in board(path)["annotations"]["list"]]
        for number, (title, expression) in enumerate(found):
            yield pytest.param(expression, id=f"{path.stem}-{number}-{title}")


def resolved(expression: str) -> str:
    """An expression as Grafana asks it where all of each variable is chosen."""
    for name, value in BUILT_IN.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$\w+", ".*", expression)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Backend, Backend]]:
    """Engines with the laboratory; the first one with recorded series."""
    told = lab_told()
    with ExitStack() as stack:
        yield (
            stack.enter_context(prometheus_of(tmp_path_factory.mktemp("p"), told, RULES)),
            stack.enter_context(victoria_metrics_of(tmp_path_factory.mktemp("v"), told)),
        )


def test_the_files_are_what_the_tables_say(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "dashboards.py", tmp_path], check=True)
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in PATHS}
    assert kept == made, "run 'python docs/dashboards.py'"
    assert len(made) == 3


@pytest.mark.engine
@pytest.mark.parametrize("expression", list(expressions()))
def test_each_expression_has_an_answer(engines: tuple[Backend, Backend], expression: str) -> None:
    prometheus, victoria_metrics = engines
    assert prometheus.ask(resolved(expression), NOW)
    victoria_metrics.ask(resolved(expression), NOW)


@pytest.mark.engine
def test_an_epoch_of_a_run_on_several_gpus_is_one_mark(engines: tuple[Backend, Backend]) -> None:
    (mark,) = board(FOLDER / "user.json")["annotations"]["list"]
    assert engines[0].one("count(gpumon_run_epoch)", NOW) > 1
    marked = [labels for labels, _ in engines[0].ask(resolved(mark["expr"]).replace("[2m]", "[1h]"), NOW)]
    assert marked == [{"run": "moe-1a2b"}]


@pytest.mark.engine
def test_nodes_that_two_jobs_scrape_count_once_and_break_no_join(
    engines: tuple[Backend, Backend], tmp_path: Path
) -> None:
    by_job = ("job:", "instance_model_state:")  # of each by itself: the page takes the door with the newest sample
    told = lab_told()
    twice = [*told, *((line.replace('job="gpumon"', 'job="gpumon-web"'), time) for line, time in told)]
    numbers = [target["expr"] for path in PATHS for one in panels(path) if one["type"] == "stat"
               for target in one["targets"]]  # fmt: skip
    with prometheus_of(tmp_path, twice, RULES) as engine:
        assert engine.one("count(count by (job) (gpumon_up))", NOW) == 2
        for given in expressions():
            assert engine.ask(resolved(given.values[0]), NOW), given.id
        for expression in numbers:
            assert engine.one(resolved(expression), NOW) == pytest.approx(engines[0].one(resolved(expression), NOW))
        recorded = [name for path in RULES for name in re.findall(r"record: (\S+)", path.read_text(encoding="utf-8"))]
        for name in recorded:
            asked = f"sum({name}) or vector(-1)"  # some have nothing to record
            assert name.startswith(by_job) or engine.one(asked, NOW) == pytest.approx(engines[0].one(asked, NOW)), name


@pytest.mark.engine
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_choice_has_values(engines: tuple[Backend, Backend], path: Path) -> None:
    for choice in board(path)["templating"]["list"][1:]:
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", choice["query"]["query"]).groups()  # type: ignore[union-attr]
        found = engines[0].get(f"api/v1/label/{label}/values", **{"match[]": resolved(selector)})["data"]
        assert found, choice


@pytest.mark.engine
@pytest.mark.parametrize("expression", OF_GUIDE)
def test_each_query_of_the_guide_has_an_answer(engines: tuple[Backend, Backend], expression: str) -> None:
    for engine in engines:
        found = engine.ask(expression, NOW)
        assert found or "kube_pod_info" in expression, "which is of another exporter"


@pytest.mark.engine
def test_each_series_that_the_guide_names_is_there(engines: tuple[Backend, Backend]) -> None:
    there = set(engines[0].get("api/v1/label/__name__/values")["data"])
    named = {name for name in re.findall(r"`(gpumon_\w+)(?:\{[^`]*\})?`", GUIDE) if not name.endswith("_")}
    assert len(named) > 20
    assert named - there == {"gpumon_problem_info"}, "which is there where no GPU can be read"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_variable_that_is_asked_with_can_be_chosen(path: Path) -> None:
    choices = [one["name"] for one in board(path)["templating"]["list"]]
    text = path.read_text(encoding="utf-8")
    for name in BUILT_IN:
        text = text.replace(name, "")
    used = set(re.findall(r"\$\{?(\w+)", text))
    assert used == set(choices) - {"datasource"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_panels_stand_beside_each_other_and_say_what_they_show(path: Path) -> None:
    everything = board(path)["panels"]
    assert len({one["id"] for one in everything}) == len(everything)
    taken: set[tuple[int, int]] = set()
    for one in everything:
        place = one["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, one["title"]
        taken |= cells
    for one in panels(path):
        assert one["title"]
        assert one["description"].endswith("."), one["title"]
        assert one["targets"]


def test_the_node_has_every_chart_of_the_table() -> None:
    asked = " ".join(target["expr"] for one in panels(FOLDER / "node.json") for target in one["targets"])
    missing = [one.metric.name for one in PANELS if EXPORTED[one.metric.name].removesuffix("_ratio") not in asked]
    assert missing == []


def test_tables_show_columns_that_their_queries_have() -> None:
    for path in PATHS:
        for one in panels(path):
            if one["type"] != "table":
                continue
            several = len(one["targets"]) > 1
            names = one["transformations"][0]["options"]["include"]["names"]
            values = {f"Value #{target['refId']}" for target in one["targets"]} if several else {"Value"}
            assert {name for name in names if name.startswith("Value")} <= values
            assert ("merge" in [step["id"] for step in one["transformations"]]) == several
