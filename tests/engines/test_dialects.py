"""The dialects on a real Prometheus: each query of the dashboards and programs that were made for other exporters.

The expressions are those of Grafana's dashboard 12239 (NVIDIA's dcgm-exporter) and of Princeton's jobstats, with
variables as their All; those of 15117 by the fields that it lists, since its file was not to be had.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpumon.export.scrape import DialectOptions
from tests.engines.lab import GIB, NOW, SECONDS, first_node
from tests.engines.past import prometheus_of, scraped
from tests.engines.programs import Backend

pytestmark = pytest.mark.engine
GPUS = 4
ALL = '{instance=~".*", gpu=~".*"}'
DASHBOARD_12239 = (
    f"DCGM_FI_DEV_GPU_TEMP{ALL}", f"avg(DCGM_FI_DEV_GPU_TEMP{ALL})", f"DCGM_FI_DEV_POWER_USAGE{ALL}",
    f"sum(DCGM_FI_DEV_POWER_USAGE{ALL})", f"DCGM_FI_DEV_SM_CLOCK{ALL} * 1000000", f"DCGM_FI_DEV_GPU_UTIL{ALL}",
    f"DCGM_FI_DEV_FB_USED{ALL}", f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{ALL}",
)  # fmt: skip
DASHBOARD_15117 = tuple(
    f"DCGM_FI_{name}{ALL}"
    for name in (
        "DEV_GPU_TEMP", "DEV_MEMORY_TEMP", "DEV_POWER_USAGE", "DEV_SM_CLOCK", "DEV_MEM_CLOCK", "DEV_GPU_UTIL",
        "DEV_MEM_COPY_UTIL", "DEV_FB_USED", "DEV_NVLINK_BANDWIDTH_TOTAL", "PROF_GR_ENGINE_ACTIVE",
        "PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE", "PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES",
    )
)  # fmt: skip
SINGLE_JOB_STATS = tuple(
    f'label_replace(nvidia_gpu_{name}{{jobid="88"}}, "shostname", "$1", "instance", "(.*):.*")'
    for name in ("duty_cycle", "memory_used_bytes", "temperature_celsius", "power_usage_milliwatts")
)
OF_JOB = "cluster='della',jobid='88'"
JOBSTATS = {
    f"max_over_time(nvidia_gpu_memory_total_bytes{{{OF_JOB}}}[{SECONDS}s:])": {"0": 80 * GIB, "1": 80 * GIB},
    f"max_over_time(nvidia_gpu_memory_used_bytes{{{OF_JOB}}}[{SECONDS}s:])": {"0": 60 * GIB, "1": 60 * GIB},
    f"avg_over_time((nvidia_gpu_duty_cycle{{{OF_JOB}}} or (nvidia_gpu_graphics_util_percent{{{OF_JOB}}} * 100))"
    f"[{SECONDS}s:])": {"0": 90.0, "1": 70.0},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A Prometheus that scraped a node in both dialects for an hour."""
    told = [
        *scraped(first_node, SECONDS, {"gn1:9400": 60}, dialect="dcgm", options=DialectOptions(hostname="gn1")),
        *scraped(first_node, SECONDS, {"gn1:9445": 60}, dialect="jobstats", cluster="della"),
    ]
    with prometheus_of(tmp_path_factory.mktemp("dialects"), told, interval="15s") as running:
        yield running


@pytest.mark.parametrize("expression", [*DASHBOARD_12239, *DASHBOARD_15117])
def test_each_query_of_a_dashboard_for_dcgm_has_an_answer(engine: Backend, expression: str) -> None:
    found = engine.ask(expression, NOW)
    if expression.startswith(("avg", "sum")):
        ((_, value),) = found
        assert value > 0
        return
    assert sorted(labels["gpu"] for labels, _ in found) == [str(gpu) for gpu in range(GPUS)]
    assert {labels["Hostname"] for labels, _ in found} == {"gn1"}


@pytest.mark.parametrize("label", ["instance", "gpu"])
def test_the_variables_of_a_dashboard_for_dcgm_have_values(engine: Backend, label: str) -> None:
    found = engine.get(f"api/v1/label/{label}/values", **{"match[]": "DCGM_FI_DEV_GPU_TEMP"})["data"]
    assert found == (["gn1:9400"] if label == "instance" else ["0", "1", "2", "3"])


@pytest.mark.parametrize("expression", SINGLE_JOB_STATS)
def test_each_query_of_the_dashboard_of_jobstats_finds_the_gpus_of_the_job(engine: Backend, expression: str) -> None:
    found = engine.ask(expression, NOW)
    assert sorted(labels["minor_number"] for labels, _ in found) == ["0", "1"]
    assert {labels["shostname"] for labels, _ in found} == {"gn1"}


@pytest.mark.parametrize("expression", JOBSTATS)
def test_what_jobstats_asks_at_the_end_of_a_job_is_what_the_job_did(engine: Backend, expression: str) -> None:
    found = {labels["minor_number"]: value for labels, value in engine.ask(expression, NOW)}
    assert found == pytest.approx(JOBSTATS[expression])
