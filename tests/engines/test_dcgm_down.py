"""Targets of NVIDIA's exporter that do not answer, by what real engines say to the question for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gpumon.cluster.queries import DCGM_QUERIES
from tests.engines.past import BEGIN, prometheus_of, victoria_metrics_of
from tests.engines.programs import Backend

pytestmark = pytest.mark.engine
(DOWN,) = (one.promql for one in DCGM_QUERIES if one.name == "down")
SCRAPED = {
    'up{job="dcgm",instance="d1"}': 1, 'up{job="dcgm",instance="d3"}': 0, 'up{job="other",instance="o1"}': 0,
    'DCGM_FI_DEV_GPU_UTIL{job="dcgm",instance="d1",gpu="0"}': 40,
    'DCGM_FI_DEV_GPU_UTIL{job="dcgm",instance="d1",gpu="1"}': 0,
}  # fmt: skip


@pytest.mark.parametrize("engine", [prometheus_of, victoria_metrics_of])
def test_a_target_of_a_job_that_tells_of_gpus_is_down_and_one_of_another_is_not_ours(
    engine: Callable[..., AbstractContextManager[Backend]], tmp_path: Path
) -> None:
    told = [(f"{line} {value}", BEGIN + 30 * step) for step in range(20) for line, value in SCRAPED.items()]
    with engine(tmp_path, told) as running:
        assert [labels["instance"] for labels, _ in running.ask(DOWN, BEGIN + 570)] == ["d3"]
