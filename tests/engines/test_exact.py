"""Means and GPU-hours from counters are exact however seldom Prometheus scrapes; a gauge scraped as seldom is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders import device, process, sample
from tests.engines.past import BEGIN, HOUR, prometheus_of, scraped
from tests.engines.programs import Backend

pytestmark = pytest.mark.engine
GIB = 2.0**30
EVERY = {"every15": 15, "every30": 30, "every60": 60}
WAVE = 7
"""Seconds of a square wave: 3 at full load, 4 at none."""
LOADED = 3
TURN = HOUR // 10
"""Seconds for which a user holds a GPU before the next one comes."""
SECONDS = HOUR + 600


def wave(second: int) -> float:
    return float(second % WAVE < LOADED)


def node(second: int) -> dict[str, Any]:
    """GPU 0: a wave, held by ten in turns. GPU 1: shared by two, one of whom computes three times as much."""
    memory = {"memory_used": 8 * GIB, "memory_total": 80 * GIB}
    samples = [
        sample(0, utilization=wave(second), energy=100.0 * second, power=100.0, **memory),
        sample(1, utilization=0.8, energy=400.0 * second, power=400.0, **memory),
    ]
    processes = [
        process(1, user=f"user{min(second, HOUR - 1) // TURN}", sm_utilization=wave(second)),
        process(2, 1, user="ada", sm_utilization=0.6),
        process(3, 1, user="bob", sm_utilization=0.2),
    ]
    return {"samples": samples, "processes": processes}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A Prometheus that scraped that node for an hour and more, at three intervals."""
    with prometheus_of(tmp_path_factory.mktemp("exact"), list(scraped(node, SECONDS, EVERY))) as running:
        yield running


@pytest.mark.parametrize("instance", EVERY)
@pytest.mark.parametrize("window", [300, 3600])
def test_a_wave_of_seconds_has_its_exact_mean_at_any_scrape_interval(
    engine: Backend, instance: str, window: int
) -> None:
    of = f'instance="{instance}",gpu="0"'
    mean = engine.one(
        f"rate(gpumon_gpu_utilization_seconds_total{{{of}}}[{window}s])"
        f" / rate(gpumon_gpu_utilization_observed_seconds_total{{{of}}}[{window}s])",
        BEGIN + HOUR,
    )
    assert mean == pytest.approx(LOADED / WAVE, rel=0.005)


def test_a_gauge_scraped_as_seldom_misses_the_mean(engine: Backend) -> None:
    means = [
        engine.one(f'avg_over_time(gpumon_gpu_utilization_ratio{{instance="{instance}",gpu="0"}}[5m])', BEGIN + HOUR)
        for instance in EVERY
    ]
    assert max(abs(mean / (LOADED / WAVE) - 1) for mean in means) > 0.05, means


@pytest.mark.parametrize("instance", EVERY)
def test_hours_of_users_who_take_turns_add_up_to_those_of_the_gpu(engine: Backend, instance: str) -> None:
    def grown(name: str) -> list[float]:
        of = f'instance="{instance}",uuid="{device(0).uuid}"'
        return [value for _, value in engine.ask(f"increase({name}{{{of}}}[{SECONDS}s])", BEGIN + SECONDS)]

    (held,) = grown("gpumon_gpu_held_seconds_total")
    for name in ("gpumon_user_held_seconds_total", "gpumon_user_held_share_seconds_total"):
        assert sorted(grown(name)) == pytest.approx([*[TURN] * 9, TURN + SECONDS - HOUR], rel=0.01), name
        assert sum(grown(name)) == pytest.approx(held, rel=0.01)
    (energy,) = grown("gpumon_gpu_accounted_energy_joules_total")
    assert sum(grown("gpumon_user_energy_joules_total")) == pytest.approx(energy, rel=0.01)


@pytest.mark.parametrize("instance", EVERY)
def test_hours_use_and_energy_of_users_who_share_a_gpu_add_up_to_the_gpus(engine: Backend, instance: str) -> None:
    of = f'instance="{instance}",uuid="{device(1).uuid}"'
    for users, gpu in (
        ("gpumon_user_held_share_seconds_total", "gpumon_gpu_held_seconds_total"),
        ("gpumon_user_busy_seconds_total", "gpumon_gpu_busy_seconds_total"),
        ("gpumon_user_energy_joules_total", "gpumon_gpu_accounted_energy_joules_total"),
    ):
        found = {
            labels["user"]: value for labels, value in engine.ask(f"increase({users}{{{of}}}[{HOUR}s])", BEGIN + HOUR)
        }
        whole = engine.one(f"increase({gpu}{{{of}}}[{HOUR}s])", BEGIN + HOUR)
        assert sum(found.values()) == pytest.approx(whole, rel=0.01)
        share = 1.0 if "held" in users else 3.0  # half the time of both, and three times the kernel time of the other
        assert found["ada"] / found["bob"] == pytest.approx(share, rel=0.01)


def test_lost_scrapes_and_restarts_cost_less_than_an_interval(tmp_path: Path) -> None:
    told = list(scraped(node, SECONDS, {"n": 30}, lost=(1200, 1230, 1260), restarts=(700, 2000)))
    with prometheus_of(tmp_path, told) as engine:
        for gpu in "01":
            held = engine.one(f'increase(gpumon_gpu_held_seconds_total{{gpu="{gpu}"}}[{HOUR}s])', BEGIN + HOUR + 300)
            assert held == pytest.approx(HOUR, abs=30)
