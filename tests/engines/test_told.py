"""What an exporter tells, by the tools of those who read it: of each kind of source, and with names that attack."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as plain

from gpumon.export.exposition import CONTENT_TYPE
from tests.builders import process, run, sample, tick
from tests.conftest import ROOT
from tests.engines.programs import prometheus, promtool
from tests.engines.served import served
from tests.exported import Node
from tests.nvml import Stub
from tests.programs import daemon, environment, gpumon

SOURCES = ("nvml", "sim:sixteen", "sim:faults", "sim:hostile", f"replay:{ROOT / 'tests/recordings/epochs.gpumon'}")
HOSTILE = (
    'qu"ote',
    "new\nline",
    "esc\x1b[31mred",
    "back\\slash",
    "x" * 10_000,
    "\udcff\udcfe",
    "{}=,# HELP",
    "\u202eright to left",
)


@pytest.mark.engine
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.split("/")[0])
def test_promtool_and_the_client_library_have_nothing_to_say_of_it(source: str, stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--source", source, "--interval", "0.1", env=env):
        done = gpumon("export", "--once", env=env)
    assert done.returncode == 0, done.stderr
    assert ('label="SIMULATED"' in done.stdout) == source.startswith("sim"), "it passes for real"
    assert ('label="REPLAY' in done.stdout) == source.startswith("replay")
    checked = promtool("check", "metrics", given=done.stdout)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    assert len(list(plain(done.stdout))) > 20
    comments = Counter(tuple(line.split(" ")[1:3]) for line in done.stdout.splitlines() if line.startswith("# "))
    assert set(comments.values()) == {1}


class HostileNode:
    """A node on which every name that somebody chooses is an attack."""

    def __init__(self) -> None:
        self._node, self._seconds = Node(len(HOSTILE)), count(1)
        self._exporter = self._node.exporter()

    def scrape(self) -> bytes:
        """Sample once, and answer a scrape."""
        rows = [sample(place, utilization=0.5, memory_used=1e9, memory_total=8e10) for place in range(len(HOSTILE))]
        runs = [run(f"tag.{place}", id=text, name=text, user=text, gpus=(rows[place].device.uuid,))
                for place, text in enumerate(HOSTILE)]  # fmt: skip
        processes = [process(place, place, name=text, user=text, run=f"tag.{place}", job=text, pod=text)
                     for place, text in enumerate(HOSTILE)]  # fmt: skip
        self._node.add([tick(next(self._seconds), rows, processes, runs)])
        return self._exporter.scrape()


def test_hostile_names_come_clean_out_of_a_scrape() -> None:
    families = list(plain(HostileNode().scrape().decode()))
    values = [value for family in families for one in family.samples for value in one.labels.values()]
    assert len(set(values)) > len(HOSTILE)
    assert max(map(len, values)) <= 200
    assert not [value for value in values if re.search(r"[\x00-\x1f\x7f\u202e]", value)]
    assert 'qu"ote' in values
    assert "back\\slash" in values


@pytest.mark.engine
def test_prometheus_takes_hostile_names(tmp_path: Path) -> None:
    node = HostileNode()
    with (
        served(lambda _: (node.scrape(), {"Content-Type": CONTENT_TYPE})) as target,
        prometheus(tmp_path, [target.scrape()]) as engine,
    ):
        engine.comes_to("up", 1)
        told = {labels["user"] for labels, _ in engine.soon("gpumon_gpu_user_info")}
    assert {'qu"ote', "back\\slash"} < told
    assert len(told) == len(HOSTILE)
