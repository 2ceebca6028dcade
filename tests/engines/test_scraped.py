"""A node as operators run it, scraped by both engines through each door: what they know, and what goes away."""

from __future__ import annotations

from collections.abc import Iterator
from getpass import getuser
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from gpumon.common.errors import EXIT_NO_GPU, EXIT_OK
from gpumon.export.scrape import DIALECTS as ALL_DIALECTS
from tests.engines.lab import RULES
from tests.engines.nodes import GPUS, RunningNode, behind, doors, exporters, node
from tests.engines.programs import Backend, prometheus, victoria_metrics, vmalert
from tests.programs import gpumon, until

pytestmark = pytest.mark.engine
DIALECTS = [name for name in ALL_DIALECTS if name != "native"]
DOORS = ("open", "tls", "mutual", "web")


class Site(NamedTuple):
    """A node and the engines that scrape it."""

    node: RunningNode
    prometheus: Backend
    victoria_metrics: Backend


def often(path: Path, directory: Path) -> Path:
    """Rules that are evaluated each second."""
    told = yaml.safe_load(path.read_text())
    for group in told["groups"]:
        group["interval"] = "1s"
    (directory / path.name).write_text(yaml.safe_dump(told))
    return directory / path.name


@pytest.fixture(scope="module")
def site(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    rules = [often(path, directory) for path in RULES]
    with (
        node(driver_library, directory) as running,
        behind(doors(directory), running.env) as behind_doors,
        exporters([("--dialect", name) for name in DIALECTS], running.env) as addresses,
    ):
        dialects = [
            {"job_name": name, "static_configs": [{"targets": [address]}]}
            for name, address in zip(DIALECTS, addresses, strict=True)
        ]
        scrapes = [*behind_doors, *dialects]
        with (
            prometheus(directory / "p", scrapes, rules=rules) as one,
            victoria_metrics(directory / "v", scrapes) as other,
        ):
            for engine in (one, other):
                until(lambda: len(engine.ask("up")) == len(scrapes))  # noqa: B023
            yield Site(running, one, other)


@pytest.mark.parametrize(
    ("dialect", "family"), [("dcgm", "DCGM_FI_DEV_GPU_UTIL"), ("jobstats", "nvidia_gpu_duty_cycle")]
)
def test_both_engines_take_every_dialect(site: Site, dialect: str, family: str) -> None:
    for engine in (site.prometheus, site.victoria_metrics):
        engine.comes_to(f'up{{job="{dialect}"}}', 1)
        engine.comes_to(f'count({family}{{job="{dialect}"}})', GPUS)

    def errors() -> list[str]:
        told = site.prometheus.get("api/v1/targets")["data"]["activeTargets"]
        return [one["lastError"] for one in told if one["labels"]["job"] == dialect]

    until(lambda: errors() == [""])


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("engine", ["prometheus", "victoria_metrics"])
def test_an_engine_is_let_in_by_what_it_shows(site: Site, engine: str, name: str) -> None:
    asked: Backend = getattr(site, engine)
    asked.comes_to(f'up{{job="gpumon_right_{name}"}}', 1)
    assert asked.one(f'max_over_time(up{{job="gpumon_wrong_{name}"}}[1h])') == 0
    asked.comes_to(f'count(gpumon_gpu_power_watts{{job="gpumon_right_{name}"}})', GPUS)
    assert asked.ask(f'gpumon_gpus{{job="gpumon_wrong_{name}"}}') == []


def told(engine: Backend, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Values by labels; the engines scrape at different moments, so what comes and goes agrees a scrape later."""
    return {tuple(sorted(labels.items())): value for labels, value in engine.ask(expression)}


def test_both_engines_know_the_same_of_the_node(site: Site) -> None:
    for expression in (
        'count by (__name__) ({__name__=~"gpumon_.*",job="gpumon_right_open"})',
        'sum by (state) (gpumon_gpus{job="gpumon_right_open"})',
        'gpumon_gpu_memory_total_bytes{job="gpumon_right_open"}',
    ):
        until(lambda: told(site.prometheus, expression) == told(site.victoria_metrics, expression))  # noqa: B023
        assert told(site.prometheus, expression)


def test_prometheus_knows_the_types_and_the_help_of_all_families(site: Site) -> None:
    def families() -> dict[str, dict[str, str]]:
        told = site.prometheus.get("api/v1/metadata")["data"]
        return {name: one[0] for name, one in told.items() if name.startswith("gpumon_")}

    ours = until(lambda: found if len(found := families()) > 60 else None)
    assert all(one["help"] and one["type"] in ("gauge", "counter") for one in ours.values())
    counters = [name for name, one in ours.items() if one["type"] == "counter"]
    assert len(counters) > 10
    for name in counters:
        assert name.endswith("_total")
        site.prometheus.soon(name)
    assert [name for name, one in ours.items() if one["type"] == "gauge" and name.endswith("_total")] == []


def test_a_scrape_has_no_sample_of_its_own_time_and_no_reserved_label(site: Site) -> None:
    names = site.prometheus.get("api/v1/labels", **{"match[]": 'gpumon_up{job="gpumon_right_open"}'})["data"]
    assert sorted(names) == ["__name__", "instance", "job"]
    every = site.prometheus.get("api/v1/labels", **{"match[]": '{__name__=~"gpumon_.*"}'})["data"]
    assert not [name for name in every if name.startswith("exported_")]
    assert not {"hostname", "pod", "namespace", "container", "type"} & set(every)


def test_the_cluster_in_a_terminal_is_what_the_engine_has(site: Site) -> None:
    def shown(engine: Backend) -> list[str]:
        done = gpumon("top", "--count", 1, "--prometheus", engine.url, env=site.node.env)
        assert done.returncode in (EXIT_OK, EXIT_NO_GPU), done.stderr  # before rules have recorded, no GPU is known
        return done.stdout.splitlines()

    every = GPUS * len(DOORS)

    def whole(engine: Backend) -> str | None:
        """The first line once rules have recorded, one after the other, and what all nodes tell of users has come."""
        first, *lines = shown(engine)
        held = [line.split()[1] for line in lines if line.startswith(getuser())]  # now; hours come two minutes later
        return first if f"0 of {every} GPUs free" in first and held == [str(every)] else None

    assert f"{len(DOORS)} nodes" in until(lambda: whole(site.prometheus))
    assert "rules.yml and cluster.yml" in shown(site.victoria_metrics)[0], "nothing evaluates rules for it"


def test_the_same_rules_record_the_same_in_victoriametrics(site: Site, tmp_path: Path) -> None:
    rules = [often(path, tmp_path) for path in RULES]
    recorded = "instance:gpumon_gpus:count"
    with vmalert(tmp_path / "alert", site.victoria_metrics, rules):
        for engine in (site.victoria_metrics, site.prometheus):
            until(lambda: {value for _, value in engine.ask(recorded)} == {GPUS})  # noqa: B023


def test_what_a_silent_node_no_longer_tells_is_gone_after_a_scrape(site: Site) -> None:
    """The last one: it stops the daemon."""
    site.node.daemon.terminate()
    site.node.daemon.wait()
    of = '{job="gpumon_right_open"}'
    for engine in (site.prometheus, site.victoria_metrics):
        engine.comes_to(f"gpumon_up{of}", 0)
        until(lambda: not engine.ask(f"gpumon_gpu_power_watts{of}"))  # noqa: B023
        engine.comes_to(f"up{of}", 1)
        engine.comes_to('gpumon_gpus{job="gpumon_right_open",state="unknown"}', GPUS)
        assert not engine.ask(f"gpumon_gpu_power_watts{of}"), "and stays so"
