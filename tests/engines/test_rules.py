"""Rules and alerts of `deploy/prometheus`: right where they must be, and held by tests that bite."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpumon.cluster.queries import QUERIES
from gpumon.cluster.rules import RULE_FILES, RULE_INTERVAL
from gpumon.model.xids import XIDS
from tests.conftest import ROOT
from tests.engines.programs import program, promtool, ran

FOLDER = ROOT / "deploy" / "prometheus"
RULES, MORE, ALERTS = FOLDER / "rules.yml", FOLDER / "cluster.yml", FOLDER / "alerts.yml"
BY_HOUR = FOLDER / "hours.yml"
TESTS = (FOLDER / "rules.test.yml", FOLDER / "alerts.test.yml")
NAMES = re.compile(r"\b\w+:gpumon_\w+:\w+")


def rules(path: Path) -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def mutated() -> Iterator[tuple[str, str]]:
    """Each alert with one number, comparison or condition changed: its name, and the text of the file."""
    text = ALERTS.read_text()
    for alert in rules(ALERTS):
        begin = text.index(f"- alert: {alert['alert']}\n")
        end = text.index("labels:", begin)
        part = text[begin:end]
        changes = [re.sub(r"\bfor: (\d)m", r"for: 20m", part), part.replace("[6h]", "[5m]")]
        changes += [re.sub(rf"(?<=[<>] ){number}$", changed, part, flags=re.MULTILINE)
                    for number, changed in (("300", "240"), ("300", "360"), ("0.01", "0.012"), ("0.01", "0.009"),
                                            ("3600", "3540"), ("3600", "3660"), ("0", "1"))]  # fmt: skip
        changes += [part.replace(old, new) for old, new in (
            ('metric="all"', 'metric!="none"'), ('{job=~"gpumon.*"}', ""), ("== 0", "== 2"), ("|79|", "|13|"),
            ('{metric="all"}', ""), ("- 300)", "- 240)"), ("- 300)", "- 360)"), ("== 1)", "== 0)"),
            ("and on (instance, uuid)", "or on (instance, uuid)"), ("hw_", "sw_"))]  # fmt: skip
        for changed in dict.fromkeys(changes):
            if changed != part:
                yield alert["alert"], text[:begin] + changed + text[end:]


@pytest.mark.engine
def test_promtool_finds_nothing_wrong_with_rules_and_alerts() -> None:
    done = promtool("check", "rules", RULES, MORE, BY_HOUR, ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.engine
def test_prometheus_takes_the_settings_that_are_shipped() -> None:
    done = promtool("check", "config", FOLDER / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.engine
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_each_rule_records_and_each_alert_fires_and_resolves_as_its_tests_say(path: Path) -> None:
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.engine
@pytest.mark.parametrize(("alert", "text"), [pytest.param(*one, id=f"{i}-{one[0]}") for i, one in enumerate(mutated())])
def test_a_changed_alert_fails_its_tests(alert: str, text: str, tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    (tmp_path / ALERTS.name).write_text(text)
    tests = yaml.safe_load(TESTS[1].read_text())
    tests["tests"] = [one for one in tests["tests"] if alert in str(one)]
    (tmp_path / TESTS[1].name).write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", tmp_path / TESTS[1].name)
    assert done.returncode != 0
    assert alert in done.stdout + done.stderr


@pytest.mark.engine
@pytest.mark.parametrize("path", [RULES, MORE, BY_HOUR, ALERTS], ids=lambda path: path.name)
def test_victoriametrics_takes_the_same_files(path: Path) -> None:
    done = ran(program("vmalert"), "-dryRun", f"-rule={path}", "-external.url=http://localhost")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_that_makes_it_fire() -> None:
    told = TESTS[1].read_text()
    assert [rule["alert"] for rule in rules(ALERTS) if rule["alert"] not in told] == []


def test_every_recorded_series_has_a_test() -> None:
    told = TESTS[0].read_text()
    assert [rule["record"] for rule in rules(RULES) if rule["record"] not in told] == []


def test_the_questions_about_a_cluster_ask_recorded_series_that_the_rules_make() -> None:
    recorded = {rule["record"] for path in (RULES, MORE) for rule in rules(path)}
    asked = {name for question in QUERIES for name in NAMES.findall(question.promql)}
    assert asked
    assert asked <= recorded
    assert recorded >= RULE_FILES.keys()
    by_hour = {rule["record"] for rule in rules(BY_HOUR)}
    asked = {name for question in QUERIES for name in NAMES.findall(question.by_hour) if name.endswith(":sum1h")}
    assert asked
    assert asked <= by_hour
    assert {name for rule in rules(BY_HOUR) for name in NAMES.findall(rule["expr"])} <= recorded


def test_the_rules_record_as_often_as_the_questions_count_on() -> None:
    for path in (RULES, MORE):
        (group,) = yaml.safe_load(path.read_text())["groups"]
        assert group["interval"] == f"{RULE_INTERVAL:g}s"


def test_the_alert_of_xid_errors_has_the_codes_of_the_table_that_are_critical() -> None:
    (alert,) = (rule for rule in rules(ALERTS) if rule["alert"] == "GpumonXidCritical")
    (codes,) = re.findall(r'xid=~"([\d|]+)"', alert["expr"])
    assert codes.split("|") == [str(xid.code) for xid in XIDS if xid.severity == "critical"]
