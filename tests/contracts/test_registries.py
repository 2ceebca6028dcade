"""Sources and commands: what lies in the folder is what people can name, and keeps its promises."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from importlib import import_module
from math import isnan
from pathlib import Path
from pkgutil import iter_modules

import pytest

import gpumon.cli
import gpumon.sources
from gpumon.analysis import ranks
from gpumon.cli import COMMANDS
from gpumon.cli.options import DEFAULT_SOURCE, add_source
from gpumon.common.check_result import Check
from gpumon.common.clock import SECOND
from gpumon.common.errors import SourceError, UsageError
from gpumon.model.frame import RunState
from gpumon.model.metrics import (
    ENERGY_COUNTER,
    FROM_TRAININGS,
    GPU_METRICS,
    HOST_METRICS,
    PROCESS_SHARES,
    PROCESSES,
    Availability,
)
from gpumon.model.origin import Capability
from gpumon.reports import status_text
from gpumon.sources.base import ProcessInfo, Request, Source
from gpumon.sources.drm import DrmSource
from gpumon.sources.nvml import NvmlSource
from gpumon.sources.nvml.library import Library
from gpumon.sources.registry import (
    AUTO,
    BY_NAME,
    KINDS,
    USAGE,
    capabilities,
    detect_hardware,
    examine_hardware,
    open_source,
    source_names,
)
from gpumon.sources.sim.scenarios import SCENARIOS
from gpumon.storage.events import run_watch
from gpumon.storage.ledger import writer
from gpumon_tui import notifications
from gpumon_tui.render import overview_rows
from gpumon_tui.screens import runs as runs_page
from gpumon_web.components import levels
from tests.drm.trees import Tree, rx7900
from tests.fakes import FakeClock, Inline

ROOT = Path(__file__).parents[2]
LOG = """\
timestamp, index, utilization.gpu [%], power.draw [W]
2025/01/02 10:00:00.000, 0, 50 %, 200.00 W
2025/01/02 10:00:01.000, 0, 60 %, 210.00 W
"""
IN_THE_FOLDER = {module.name for module in iter_modules(gpumon.sources.__path__) if module.ispkg}
NAMES = [kind.name for kind in KINDS]


def nobody(pid: int) -> ProcessInfo:
    """What is known of a process here."""
    return ProcessInfo()


def no_driver() -> Library:
    raise SourceError("there is no driver here")


def make(kind: str, folder: Path, clock: FakeClock) -> Source:
    """A source of this kind, on a stand-in for what it reads. A new kind needs one here."""
    if kind == "nvml":
        return NvmlSource(clock, nobody, no_driver, executor=Inline())
    if kind == "drm":
        Tree(folder, [rx7900()])
        return DrmSource(clock, nobody, executor=Inline(), root=str(folder))
    if kind == "replay":
        (folder / "log.csv").write_text(LOG)
        return open_source(f"replay:{folder}/log.csv", Request("", clock, nobody))
    return open_source(kind, Request("", clock, nobody))


def test_the_sources_in_the_folder_are_those_that_people_can_name() -> None:
    assert set(NAMES) == IN_THE_FOLDER
    assert all(re.search(rf"\b{re.escape(kind.usage)}", USAGE) for kind in KINDS)


def test_the_schema_of_the_json_knows_each_source() -> None:
    schema = json.loads((ROOT / "gpumon" / "reports" / "status.schema.json").read_text())
    names = f"({'|'.join(NAMES)})"
    assert schema["properties"]["source"]["pattern"] == f"^{names}(,{names})*$"


@pytest.mark.parametrize("kind", sorted(IN_THE_FOLDER))
def test_a_source_gives_whole_readings_in_order(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    source = make(kind, tmp_path, clock)
    declared = BY_NAME[kind]
    assert source.capabilities == source.origin().capabilities == declared.capabilities
    assert source.origin().source == kind
    is_live = Capability.LIVE in source.capabilities
    assert is_live == (source.origin().label == ""), "what is not live says so on every screen"
    readings = list(source.read())
    clock.advance(1)
    readings += source.read()
    assert readings
    assert [reading.monotonic_ns for reading in readings] == sorted({reading.monotonic_ns for reading in readings})
    for reading in readings:
        assert reading.monotonic_ns <= clock.monotonic() + SECOND
        assert reading.host is None or len(reading.host) == len(HOST_METRICS)
        for sample in reading.samples:
            assert len(sample.values) == len(GPU_METRICS)
            assert sample.state is not Availability.ABSENT
            given = {m.name for m, value in zip(GPU_METRICS, sample.values, strict=True) if not isnan(value)}
            assert given - FROM_TRAININGS <= declared.module.METRICS, "given, but not declared"
            gaps = {m.name for m, value in zip(GPU_METRICS, sample.values, strict=True) if isnan(value)}
            reasons = set(sample.device.missing) - {PROCESSES, PROCESS_SHARES, ENERGY_COUNTER}
            assert sample.state is not Availability.OK or gaps - FROM_TRAININGS == reasons, "each gap has a reason"
    source.close()


def test_an_unknown_source_is_refused_with_those_there_are() -> None:
    for spec in ("nvlm", "nvml:0", "replay", "replay:", ""):
        with pytest.raises(UsageError, match=re.escape(USAGE)):
            open_source(spec, Request("", FakeClock(), nobody))
        with pytest.raises(UsageError, match=re.escape(USAGE)):
            capabilities(spec)


def test_help_names_every_source() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    add_source(parser)
    words = parser.format_help()
    lines = {" ".join(line.split()) for line in words.splitlines()}
    assert {f"{kind.usage} {kind.help}" for kind in KINDS} <= lines
    assert f"default: {DEFAULT_SOURCE}" in words
    assert set(SCENARIOS) - {"default"} == set(re.findall(r"\w+", BY_NAME["sim"].help.partition(":")[2])) - {"or"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_speaks_of_sampling_options_only_where_there_are_some(name: str) -> None:
    parser = argparse.ArgumentParser()
    import_module(f"gpumon.cli.{name}").add_options(parser)
    words = parser.format_help()
    assert ("SOURCE is one of these" in words) == ("--source" in words)
    assert "sampling options" not in words
    assert ("defaults: ~/.config/gpumon/config.toml" in words) == ("--dir" in words)


def test_a_source_that_is_asked_for_by_name_alone_is_never_detected() -> None:
    assert not [kind.name for kind in KINDS if Capability.LIVE not in kind.capabilities and kind.module.detect()]


def test_where_no_hardware_is_found_the_first_kind_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        monkeypatch.setattr(kind.module, "detect", lambda: False)
    assert [kind.name for kind in detect_hardware()] == [source_names(AUTO)] == ["nvml"]
    assert Capability.LIVE in capabilities(AUTO)


def test_the_driver_files_of_every_hardware_can_be_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        monkeypatch.setattr(kind.module, "detect", lambda: True)
    assert all(isinstance(check, Check) for check in examine_hardware(0))


def test_no_code_compares_the_name_of_a_source() -> None:
    name = "|".join(map(re.escape, NAMES))
    compared = re.compile(
        rf"""(?:[!=]==?|\bin\b|\bcase\b|startswith\()\s*\(?\s*(?:[\w"']+,\s*)*["'](?:{name})\b|["'](?:{name})["']\s*[!=]="""
    )
    assert compared.search('if origin.source == "replay":')
    assert compared.search("about.source === 'sim'")
    assert compared.search('if source not in (None, "nvml"):')
    files = [path for part in ("gpumon", "tui", "web") for path in (ROOT / part).rglob("*.py")]
    files += (ROOT / "web" / "gpumon_web" / "assets").glob("*.js")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if compared.search(line)
    ]
    assert found == []


def test_the_commands_in_the_folder_are_those_that_people_can_give() -> None:
    modules = {module.name: import_module(f"gpumon.cli.{module.name}") for module in iter_modules(gpumon.cli.__path__)}
    assert {name for name, module in modules.items() if hasattr(module, "add_options")} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself_and_its_options(name: str) -> None:
    command = import_module(f"gpumon.cli.{name}")
    parser = argparse.ArgumentParser(prog=f"gpumon {name}", description=command.__doc__)
    command.add_options(parser)
    assert command.__doc__
    assert callable(command.run)
    unexplained = [action.dest for action in parser._actions if not action.help and action.dest != argparse.SUPPRESS]
    assert unexplained == []


def test_every_state_of_a_run_has_its_words_in_every_view() -> None:
    states = set(RunState)
    assert set(ranks._WORST) == states
    assert set(status_text._STATES) == set(levels._RUN_STATE_LEVELS) == states
    ends = states - {RunState.RUNNING}
    for words in (
        overview_rows.ENDED_STATES,
        notifications._END_TEXTS,
        runs_page.END_LABELS,
        run_watch._WORST,
        writer._BY_SEVERITY,
    ):
        assert set(words) == ends
    schema = json.loads((Path(status_text.__file__).parent / "status.schema.json").read_text())
    names = {state.name.lower() for state in states}
    assert any(set(enum) == names for enum in _enums(schema))


def _enums(schema: object) -> Iterator[list[str]]:
    if isinstance(schema, dict):
        yield from ([schema["enum"]] if "enum" in schema else [])
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _enums(part)
