"""Files that operators copy: each parses, names what there is, and starts gpumon with options that it has."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

import gpumon
from gpumon.cli.export import PORTS
from gpumon.cli.parser import command_parser
from gpumon.common.paths import make_private_dir
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
YAML = sorted(DEPLOY.rglob("*.yml"))
DOCKERFILE = DEPLOY / "container" / "Dockerfile"
COMPOSE = DEPLOY / "compose" / "compose.yml"
GPUMON = "/opt/gpumon/bin/gpumon"
PORT = PORTS["native"]


def name(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def commands() -> Iterator[Any]:
    """Everything that these files let gpumon do."""
    for unit in UNITS:
        text = unit.read_text()
        (line,) = re.findall(rf"^ExecStart={GPUMON} (.*)$", text, re.MULTILINE)
        options = re.findall(r"^Environment=OPTIONS=(.*)$", text, re.MULTILINE)
        yield pytest.param(line.replace("$OPTIONS", *options or [""]), id=unit.name)
        for given in re.findall(r"^# OPTIONS=(.*)$", text, re.MULTILINE):
            yield pytest.param(line.replace("$OPTIONS", given), id=f"{unit.name}, as it says")
    for document in documents(DEPLOY / "kubernetes" / "gpumon.yml"):
        for one in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            yield pytest.param(shlex.join(one["args"]), id=f"kubernetes {one['name']}")
    for service, told in documents(COMPOSE)[0]["services"].items():
        for place, words in enumerate(re.findall(r"gpumon ([^&]+)", " ".join(told.get("command", ())))):
            yield pytest.param(words, id=f"compose {service} {place}")


@pytest.mark.parametrize("path", YAML, ids=name)
def test_every_file_is_yaml(path: Path) -> None:
    assert all(documents(path))


@pytest.mark.parametrize("words", list(commands()))
def test_gpumon_has_every_option_that_it_is_started_with(words: str) -> None:
    command, *options = shlex.split(words)
    parser = command_parser(command, "")
    import_module(f"gpumon.cli.{command}").add_options(parser)
    try:
        parser.parse_args(options)
    except SystemExit as error:
        pytest.fail(f"gpumon {words}: exit code {error.code}")


def test_the_unit_of_the_guide_is_the_one_that_is_shipped() -> None:
    guide = (ROOT / "docs" / "operate" / "daemon.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"```ini\n(.*?)```", guide, re.DOTALL)
    assert told == (DEPLOY / "systemd" / "gpumon.service").read_text(encoding="utf-8")


@pytest.mark.parametrize("unit", UNITS, ids=name)
def test_systemd_understands_every_line_of_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, which checks units, is not on this machine")
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace(GPUMON, "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_understands_what_a_unit_says_for_a_drop_in(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, which checks units, is not on this machine")
    unit = DEPLOY / "systemd" / "gpumon-export.service"
    text = unit.read_text()
    lines = re.findall(r"^# ((?!OPTIONS)[A-Z][A-Za-z]+=\S+)$", text, re.MULTILINE)
    assert {line.partition("=")[0] for line in lines} == {
        "LoadCredential", "SupplementaryGroups", "DynamicUser", "ReadWritePaths",
    }  # fmt: skip
    here = tmp_path / unit.name
    here.write_text(text.replace(GPUMON, "/bin/true"))
    drop_in = tmp_path / f"{unit.name}.d" / "override.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("\n".join(("[Service]", *lines)))
    done = subprocess.run(
        ["systemd-analyze", "verify", here], capture_output=True, text=True, check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    handed = {line.partition("=")[2].partition(":")[0] for line in lines if line.startswith("LoadCredential")}
    used = set(re.findall(rf"/run/credentials/{unit.name}/(\S+)", text))
    assert used <= handed


def test_a_node_of_kubernetes_serves_where_its_service_and_its_monitor_look() -> None:
    _, daemon_set, service = documents(DEPLOY / "kubernetes" / "gpumon.yml")
    (monitor,) = documents(DEPLOY / "kubernetes" / "servicemonitor.yml")
    pod = daemon_set["spec"]["template"]
    (exporter,) = (one for one in pod["spec"]["containers"] if one["name"] == "export")
    (port,) = exporter["ports"]
    assert port["containerPort"] == service["spec"]["ports"][0]["port"] == PORT
    assert port["name"] == monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    labels = pod["metadata"]["labels"]
    assert labels == daemon_set["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert labels == monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    volumes = {one["name"] for one in pod["spec"]["volumes"]}
    for one in pod["spec"]["containers"]:
        assert {mount["name"] for mount in one["volumeMounts"]} <= volumes
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_compose_mounts_what_there_is_and_prometheus_scrapes_its_nodes(tmp_path: Path) -> None:
    services = documents(COMPOSE)[0]["services"]
    for told in services.values():
        for mount in told.get("volumes", ()):
            assert (COMPOSE.parent / mount.split(":")[0]).exists(), mount
        assert all(port.startswith("127.0.0.1:") for port in told.get("ports", ()))
        assert re.search(r":v?\d", told["image"]), "a version, not what is newest"
        for number, mount in enumerate(told.get("tmpfs", ())):
            place, _, mode = mount.partition(":mode=")
            assert re.search(rf"={place}\s", DOCKERFILE.read_text()), "what is written there is to be forgotten"
            (made := tmp_path / f"{number}").mkdir(exist_ok=True)
            made.chmod(int(mode or "1777", 8))  # Docker's own mode
            make_private_dir(str(made), os.getuid())
    (scrape,) = documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]
    (targets,) = (one["targets"] for one in scrape["static_configs"])
    assert targets == [f"{node}:{PORT}" for node in services if node.startswith("gn")]
    assert f":{PORT}" in services["gn1"]["command"][0]


def test_prometheus_reads_rules_that_lie_beside_its_settings() -> None:
    (told,) = documents(DEPLOY / "prometheus" / "prometheus.yml")
    beside = {path.name for path in (DEPLOY / "prometheus").glob("*.yml")}
    tests = {path.name for path in (DEPLOY / "prometheus").glob("*.test.yml")}
    assert set(told["rule_files"]) == beside - tests - {"prometheus.yml"}


def test_make_says_what_it_does_before_an_installation_that_takes_long(tmp_path: Path) -> None:
    command = ["make", "--dry-run", f"VENV={tmp_path}/new", "tui"]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    first_wait = next(number for number, line in enumerate(recipe) if "pip install" in line)
    assert recipe[first_wait - 1].startswith("echo ")


def test_the_citation_has_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == gpumon.__version__


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert [command.split()[-1] for command in commands] == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize(("tag", "code"), [(f"v{gpumon.__version__}", 0), ("v99.0.0", 1)])
def test_a_release_begins_only_from_a_tag_of_its_version(tag: str, code: int) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    check, *others = [step["run"] for step in workflow["jobs"]["build"]["steps"] if "run" in step]
    assert subprocess.run(["sh", "-c", check], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag}).returncode == code
    assert [other.split()[-1] for other in others[:2]] == [".ci/run", "dist"]
    assert workflow[True]["push"] == {"tags": ["v*"]}, "YAML reads the key `on` as true"
