"""The metric table and everything that derives from it agree."""

from __future__ import annotations

import ctypes
import json
import re
import runpy
from math import isinf
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpumon.model.metrics import (
    BY_NAME,
    FROM_DRIVERS,
    GPU_METRICS,
    HOST_METRICS,
    METRICS,
    Availability,
    Kind,
    Metric,
    Scope,
    Unit,
)
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.panels import GPU_PANELS, HOST_PANELS, PANELS
from gpumon.reports.status_json import document
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from gpumon.sources.nvml import processes, utilization
from gpumon.sources.nvml.device import XID
from gpumon.sources.nvml.fields import fields_for_driver
from gpumon.sources.nvml.gpm import GPM_METRICS
from gpumon.sources.nvml.library import GpmSamples
from gpumon.sources.nvml.mig import INSTANCES
from gpumon.sources.nvml.processes import GRAPHICS_EVERY, LISTED_EVERY
from gpumon.sources.nvml.readings import CALLS, FALLBACKS, Call
from gpumon.sources.nvml.utilization import SAMPLES_EVERY
from gpumon.sources.nvml.values import DeviceValues
from gpumon.sources.registry import BY_NAME as BY_SOURCE
from gpumon.sources.registry import KINDS, SourceKind
from tests import builders
from tests.fakes import FakeClock

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "gpumon" / "reports" / "status.schema.json").read_text())
GPU_KEYS = {
    "index", "uuid", "name", "state", "gpu_state", "age", "clock_event_reasons", "memory_split", "missing", "processes",
    "run", "label", "parent", "instance", "job",
}  # fmt: skip
"""Of a device in the JSON, beside its metrics."""


def by_name(metric: Metric) -> str:
    return metric.name


def the_document() -> dict[str, Any]:
    """A document with everything in it: a run, a process, a device."""
    run = builders.run(gpus=(builders.device().uuid,), epoch=1, metrics={"loss": 0.5})
    tick = builders.tick(
        samples=[builders.sample(run=run.key, utilization=0.5)], processes=[builders.process(run=run.key)], runs=[run]
    )
    writer = RingWriter.private(1, 10**9, 4)
    writer.append(tick)
    reader = RingReader(writer.fd)
    try:
        frame = reader.newest()
        assert frame is not None
        daemon = {"pid": 1, "interval": 1.0, "age": 0.1}
        return document(frame, Origin("nvml"), Driver("570.1", "CUDA 12.8"), "node1", daemon)
    finally:
        reader.close()


def test_no_two_metrics_have_one_name() -> None:
    assert len(BY_NAME) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=by_name)
def test_a_name_is_legal_here_and_in_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"(gpu|host)\.[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.name)
    assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", metric.name.replace(".", "_"))


def test_names_stay_apart_when_dots_become_underscores() -> None:
    assert len({metric.name.replace(".", "_") for metric in METRICS}) == len(METRICS)


def test_each_metric_stands_in_the_table_of_its_scope() -> None:
    assert {metric.scope for metric in GPU_METRICS} == {Scope.GPU}
    assert {metric.scope for metric in HOST_METRICS} == {Scope.HOST}


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric.limit], ids=by_name)
def test_a_full_scale_is_a_gauge_of_the_same_unit_and_scope(metric: Metric) -> None:
    limit = BY_NAME[metric.limit]
    assert (limit.unit, limit.scope, limit.kind) == (metric.unit, metric.scope, Kind.GAUGE)


@pytest.mark.parametrize("metric", METRICS, ids=by_name)
def test_people_look_before_they_act(metric: Metric) -> None:
    assert 0 < metric.warn <= metric.critical
    # Of a full scale, of a ratio, or a share of the time: all of these end at 1.
    if metric.limit or metric.unit in (Unit.RATIO, Unit.SECONDS):
        assert all(level <= 1 or isinf(level) for level in (metric.warn, metric.critical))


@pytest.mark.parametrize("metric", METRICS, ids=by_name)
def test_a_metric_can_be_headed_and_explained(metric: Metric) -> None:
    assert 1 <= len(metric.column) <= 6
    assert metric.title
    assert metric.help.endswith(".")


def test_column_headings_tell_the_metrics_of_a_scope_apart() -> None:
    for metrics in (GPU_METRICS, HOST_METRICS):
        assert len({metric.column for metric in metrics}) == len(metrics)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_source_declares_metrics_of_the_table_and_no_other(kind: SourceKind) -> None:
    assert kind.module.METRICS - set(FROM_DRIVERS) == set(), "declared, but not in gpumon/model/metrics.py"


def test_every_gpu_metric_is_given_by_some_hardware() -> None:
    given = {name for kind in KINDS if Capability.LIVE in kind.capabilities for name in kind.module.METRICS}
    assert set(FROM_DRIVERS) - given == set(), "in gpumon/model/metrics.py, but no source of hardware gives it"


def test_the_nvidia_source_declares_what_its_table_reads() -> None:
    called = {name for call in (*CALLS, *FALLBACKS) for name in call.metrics}
    others = {*utilization.METRICS, XID, processes.UNATTRIBUTED, INSTANCES}
    assert called | others == BY_SOURCE["nvml"].module.METRICS
    assert not called & others


def test_a_metric_is_read_by_one_row_only() -> None:
    rows = [name for call in CALLS for name in call.metrics]
    assert len(rows) == len(set(rows))


def test_the_calls_of_the_table_stay_below_six_per_gpu_and_second() -> None:
    """The budget at one sample a second. What the batch of fields can give costs no call; a constant is read seldom."""
    planned = sum(1 / (call.period or 1.0) for call in CALLS if call.metrics != GPM_METRICS)
    processes = 2 / LISTED_EVERY + 1 / GRAPHICS_EVERY
    assert planned + processes + 1 / SAMPLES_EVERY <= 6


@pytest.mark.parametrize("version", ["", "470.1", "535.2", "580.65.06", "580.82.07", "590.44"])
def test_every_driver_is_asked_for_the_same_metrics_in_one_batch(version: str) -> None:
    for fields in fields_for_driver(version):
        assert [field.metric for field in fields] == [field.metric for field in fields_for_driver("")[0]]
        assert len({field.id for field in fields}) == len(fields)


def test_gpm_adds_two_calls_per_gpu_and_second() -> None:
    (call,) = (call for call in CALLS if call.metrics == GPM_METRICS)
    assert 2 / call.period <= 2, "a sample, and what it makes with the one before"


class WillingLibrary:
    """A driver that has every function, and answers each with success and zeros, but of what a GPU has with one."""

    driver = Driver("590.44")

    def __init__(self) -> None:
        self.gpm_samples = GpmSamples(self.find)

    def find(self, *names: str) -> Any:
        if names[0] == "nvmlGpmQueryDeviceSupport":
            return lambda _, support: setattr(support._obj, "isSupportedDevice", 1) or 0
        if names[0] == "nvmlDeviceGetMemoryInfo_v2":
            return lambda _, memory: setattr(memory._obj, "total", 1) or 0
        return lambda *_: 0


@pytest.mark.parametrize("call", [*CALLS, *FALLBACKS], ids=lambda call: call.metrics[0])
def test_a_call_fills_in_exactly_the_metrics_of_its_row(call: Call) -> None:
    library: Any = WillingLibrary()
    read = call.bind(library)
    assert read is not None
    answers = DeviceValues(clock := FakeClock(), {})
    needed = {"gpu.clock_sm": 1e9, "gpu.clock_sm_max": 2e9} if call.metrics == GPM_METRICS else {}
    answers.values.update(needed)
    for _ in range(2):  # a mean takes two samples
        assert read(ctypes.c_void_p(1), answers) == 0
        clock.advance(1.0)
    assert set(answers.values) == {*call.metrics, *needed}


def test_every_panel_shows_a_metric_of_the_table_once() -> None:
    assert all(BY_NAME[panel.metric.name] is panel.metric for panel in PANELS)
    assert len({panel.metric.name for panel in PANELS}) == len(PANELS)
    assert set(GPU_PANELS) | set(HOST_PANELS) == set(PANELS)
    assert not any(panel.metric.unit is Unit.BITS for panel in PANELS), "a bit mask is no chart"


def test_the_json_of_a_device_has_the_keys_of_the_table() -> None:
    metrics = {metric.key for metric in GPU_METRICS}
    assert not metrics & GPU_KEYS, "a metric would hide another key of the device"
    assert set(the_document()["gpus"][0]) == metrics | GPU_KEYS


def test_the_json_of_the_host_has_the_keys_of_the_table() -> None:
    assert set(the_document()["host"]) == {metric.key for metric in HOST_METRICS} | {"hostname"}


def test_the_json_has_every_key_that_its_schema_names() -> None:
    found = the_document()
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    gpu = found["gpus"][0]
    parts = [
        (found, SCHEMA),
        (found["host"], SCHEMA["properties"]["host"]),
        (found["driver"], SCHEMA["properties"]["driver"]),
        (gpu, SCHEMA["$defs"]["gpu"]),
        (gpu["run"], SCHEMA["$defs"]["gpu"]["properties"]["run"]["oneOf"][1]),
        (gpu["processes"][0], SCHEMA["$defs"]["process"]),
        (found["runs"][0], SCHEMA["$defs"]["run"]),
    ]
    for part, schema in parts:
        assert set(schema["required"]) <= set(schema["properties"]) | set(part)
        assert set(schema["properties"]) | set(schema["required"]) <= set(part)


def test_the_schema_knows_every_state_and_every_reason() -> None:
    gpu = SCHEMA["$defs"]["gpu"]["properties"]
    reasons = set(gpu["missing"]["additionalProperties"]["enum"])
    assert reasons == {why.name.lower() for why in Availability} - {"ok", "absent"}
    only_of_values = {
        "not_recorded", "unreliable", "switched_off", "too_early", "shared_with_host", "in_mig_mode", "of_whole_gpu",
        "of_instances", "of_other_die",
    }  # fmt: skip
    assert set(gpu["state"]["enum"]) == (reasons | {"ok"}) - only_of_values


def test_the_schema_calls_ratio_what_the_table_calls_ratio() -> None:
    for metrics, schema in ((GPU_METRICS, SCHEMA["$defs"]["gpu"]), (HOST_METRICS, SCHEMA["properties"]["host"])):
        ratios = {key for key, what in schema["properties"].items() if what.get("$ref") == "#/$defs/ratio"}
        assert ratios <= {metric.key for metric in metrics if metric.unit is Unit.RATIO}


def test_the_page_on_json_names_every_key() -> None:
    found = the_document()
    page = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    gpu = found["gpus"][0]
    parts = [found, found["daemon"], found["driver"], gpu["run"], gpu["processes"][0], found["runs"][0]]
    keys = {key for part in parts for key in part} | GPU_KEYS | {"hostname"}
    assert {key for key in keys if f"`{key}`" not in page} == set()


@pytest.mark.parametrize(
    ("function", "page"), [("metrics_page", "reference/metrics.md"), ("calls_page", "inside/driver-calls.md")]
)
def test_the_page_on_metrics_is_up_to_date(function: str, page: str) -> None:
    expected = runpy.run_path(str(ROOT / "docs" / "generate.py"))[function]()
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == expected, f"docs/{page} is not what the tables say: run 'python docs/generate.py'"
