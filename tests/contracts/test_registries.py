"""Sources and commands: what lies in the folder is what people can name, and keeps its promises."""

from __future__ import annotations

import argparse
import json
import re
from importlib import import_module
from math import isnan
from pathlib import Path
from pkgutil import iter_modules

import pytest

import gpumon.cli
import gpumon.sources
from gpumon.cli import COMMANDS
from gpumon.clock import SECOND
from gpumon.errors import SourceError, UsageError
from gpumon.metrics import FROM_TRAININGS, GPU_METRICS, HOST_METRICS, PROCESSES, Availability
from gpumon.sources import KINDS, HostSource, Source, open_source
from gpumon.sources.nvml import NvmlSource
from gpumon.sources.nvml.library import Library
from tests.fakes import FakeClock

LOG = """\
timestamp, index, utilization.gpu [%], power.draw [W]
2025/01/02 10:00:00.000, 0, 50 %, 200.00 W
2025/01/02 10:00:01.000, 0, 60 %, 210.00 W
"""
IN_THE_FOLDER = {module.name for module in iter_modules(gpumon.sources.__path__)} - {"base", "host"}


def no_driver() -> Library:
    raise SourceError("there is no driver here")


def make(kind: str, folder: Path, clock: FakeClock) -> Source:
    """A source of this kind, on a stand-in for what it reads. A new kind needs one here."""
    if kind == "nvml":
        return NvmlSource(clock, lambda pid: ("", "", 0.0, 0.0, 0.0), no_driver)
    host = HostSource(clock, str(folder))
    if kind == "replay":
        (folder / "log.csv").write_text(LOG)
        return open_source(f"replay:{folder}/log.csv", clock, host)
    return open_source(kind, clock, host)


def test_the_sources_in_the_folder_are_those_that_people_can_name() -> None:
    named = {kind.strip().partition(":")[0].partition("[")[0] for kind in KINDS.replace(" or ", ",").split(",")}
    assert named == IN_THE_FOLDER


def test_the_schema_of_the_json_knows_each_source() -> None:
    schema = json.loads((Path(__file__).parent / "status.schema.json").read_text())
    assert set(schema["properties"]["source"]["enum"]) == IN_THE_FOLDER


@pytest.mark.parametrize("kind", sorted(IN_THE_FOLDER))
def test_a_source_gives_whole_readings_in_order(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    source = make(kind, tmp_path, clock)
    assert isinstance(source.live, bool)
    assert source.origin().source == kind
    assert source.live == (source.origin().label == ""), "what is not live says so on every screen"
    readings = list(source.read())
    clock.advance(1)
    readings += source.read()
    assert readings
    assert [reading.monotonic for reading in readings] == sorted({reading.monotonic for reading in readings})
    for reading in readings:
        assert reading.monotonic <= clock.monotonic() + SECOND
        assert reading.host is None or len(reading.host) == len(HOST_METRICS)
        for sample in reading.samples:
            assert len(sample.values) == len(GPU_METRICS)
            assert sample.state is not Availability.ABSENT
            gaps = {m.name for m, value in zip(GPU_METRICS, sample.values, strict=True) if isnan(value)}
            reasons = set(sample.device.missing) - {PROCESSES}
            assert sample.state is not Availability.OK or gaps - FROM_TRAININGS == reasons, "each gap has a reason"
    source.close()


def test_an_unknown_source_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=re.escape(KINDS)):
        open_source("nvlm", FakeClock(), HostSource(FakeClock()))


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
