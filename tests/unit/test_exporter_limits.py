"""Scrapes stay below the limits in the settings that we ship: beyond them a server refuses a scrape as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpumon.common.numbers import NAN
from gpumon.export.family import MAX_BYTES, gauge, label_text, truncate
from gpumon.export.scrape import DIALECTS, MAX_FAMILY_SERIES, MAX_SERIES, limit_series
from gpumon.export.snapshot import UserNames
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_METRICS, Availability
from gpumon.model.origin import Driver, Origin
from tests.builders import device, process, run, tick
from tests.conftest import ROOT
from tests.exported import Node, scraped

GPUS, INSTANCES = 8, 7
WHOLE = ("gpu.utilization", "gpu.power", "gpu.energy", "gpu.temperature", "gpu.clock_sm", "gpu.fan")
TALL = ("模" * 300, "🚀" * 300, "é" * 300, "\u0000" * 300, "\ud800" * 300, "x" * 300, "a" + "模" * 300)


@pytest.fixture
def node() -> Iterator[Node]:
    found = Node(GPUS * (INSTANCES + 1))
    yield found
    found.close()


def shipped() -> Any:
    return yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))


def test_limits_are_below_those_of_the_settings_that_are_shipped() -> None:
    (job,) = shipped()["scrape_configs"]
    monitor = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "servicemonitor.yml").read_text(encoding="utf-8"))
    assert job["label_value_length_limit"] > MAX_BYTES
    assert min(job["sample_limit"], monitor["spec"]["sampleLimit"]) > MAX_SERIES + 1, "and what counts the dropped"


@pytest.mark.parametrize("text", ["模" * 300, "\ud800" * 300, "x" * 300])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_label_is_longer_than_a_server_takes(node: Node, dialect: str, text: str) -> None:
    training = run(id=text, name=text, user=text, gpus=(device().uuid,), epoch=1)
    card = device(missing={}, address=text, job=f"{text} 5")._replace(name=text)
    row = Sample(card, Availability.OK, [1.0] * len(GPU_METRICS), training.key)
    on_it = process(user=text, job=text, pod=f"{text} {text}/{text}", run=training.key)
    node.add(tick(n, [row], [on_it], [training], driver=Driver(version=text), hostname=text, origin=Origin(text, text))
             for n in (1, 2))  # fmt: skip
    page = scraped(node, dialect)
    texts = [told for name in page.samples for labels in page.labels(name) for told in labels.values()]
    assert max(len(told.encode()) for told in texts) <= MAX_BYTES
    assert any(len(told) > 40 for told in texts), "as much as there is room for"


@pytest.mark.parametrize("text", TALL)
def test_a_text_is_cut_between_letters(text: str) -> None:
    for told in (label_text(text), truncate(text)):
        assert len(told.encode()) <= MAX_BYTES
        assert "\ufffd" not in told
    assert label_text("模型-7") == truncate("模型-7") == "模型-7"


def instances() -> list[Sample]:
    """Eight GPUs that MIG divides into seven instances each, as the driver shows them."""
    of_whole = dict.fromkeys((metric.name for metric in GPU_METRICS), Availability.OF_WHOLE_GPU)
    own = ("gpu.memory_used", "gpu.memory_total")
    lacks = {**of_whole, "gpu.sm_activity": Availability.NOT_SUPPORTED, "gpu.utilization": Availability.IN_MIG_MODE}
    found = []
    for place in range(GPUS):
        values = [1.0 if metric.name in WHOLE else NAN for metric in GPU_METRICS]
        missing = {metric.name: Availability.NOT_SUPPORTED for metric in GPU_METRICS if metric.name not in WHOLE}
        found.append(Sample(device(place, missing=missing), Availability.OK, values))
        for number in range(INSTANCES):
            missing = {name: why for name, why in lacks.items() if name not in own}
            part = Device(f"MIG-{place}-{number}", place, "NVIDIA H100 MIG 1g.10gb", missing,
                          parent=device(place).uuid, instance=number)  # fmt: skip
            values = [1e9 if metric.name in own else NAN for metric in GPU_METRICS]
            found.append(Sample(part, Availability.OK, values))
    return found


def test_gpus_that_mig_divides_tell_only_what_is_news(node: Node) -> None:
    on_them = [process(1000 + n, user=f"user-{n % 30}")._replace(uuid=one.device.uuid)
               for n, one in enumerate(instances()) if one.device.is_instance]  # fmt: skip
    node.add(tick(n, instances(), on_them) for n in (1, 2, 3))
    page = scraped(node)
    total = sum(len(series) for series in page.samples.values())
    assert total < MAX_SERIES * 2 / 3
    assert page.value("gpumon_exporter_dropped_series_total") == 0
    told = [labels for labels in page.labels("gpumon_gpu_unavailable") if labels["uuid"].startswith("MIG-")]
    assert {labels["reason"] for labels in told} == {"not_supported"}
    assert len(page.labels("gpumon_gpu_unavailable")) > GPUS * 10, "of a GPU it is told"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_node_on_which_everything_is_there_is_cut_below_the_limit(node: Node, dialect: str) -> None:
    rows = [one._replace(values=[1.0] * len(GPU_METRICS)) for one in instances()]
    rows[-1] = instances()[-1]._replace(state=Availability.LOST)
    many = [process(n, user=f"user-{n}", pod=f"{n} ns/{n}")._replace(uuid=rows[n % 64].device.uuid) for n in range(512)]
    node.add(tick(n, rows, many) for n in (1, 2, 3))
    exporter = node.exporter(dialect, UserNames.NAME)
    page = scraped(node, dialect)
    total = sum(len(series) for series in page.samples.values())
    assert total <= MAX_SERIES + 1
    assert sum(len(family.series) for family in exporter.families()) == total
    assert page.value("gpumon_up") == 1


def test_what_is_not_available_gives_way_to_all_else() -> None:
    wide = gauge("gpumon_gpu_unavailable", "Many.", ("n",), [((str(n),), 1.0) for n in range(2 * MAX_SERIES)])
    others = [
        gauge(f"gpumon_{name}", "Some.", ("n",), [((str(n),), 1.0) for n in range(MAX_FAMILY_SERIES)]) for name in "ab"
    ]
    found, dropped = limit_series([others[0], wide, others[1]])
    assert [family.name for family in found] == ["gpumon_a", "gpumon_gpu_unavailable", "gpumon_b"]
    assert [len(family.series) for family in found] == [
        MAX_FAMILY_SERIES,
        MAX_SERIES - 2 * MAX_FAMILY_SERIES,
        MAX_FAMILY_SERIES,
    ]
    assert dropped == MAX_SERIES + 2 * MAX_FAMILY_SERIES


def test_a_gpu_that_is_lost_is_told_before_all_that_is_missing(node: Node) -> None:
    rows = instances()
    rows[-1] = rows[-1]._replace(state=Availability.LOST)
    node.add([tick(1, rows)])
    assert scraped(node).labels("gpumon_gpu_unavailable")[0]["metric"] == "all"
