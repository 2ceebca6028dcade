"""The past of a simulation: made up faster than it would have happened, and seen by nobody meanwhile."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.analysis.gpu_state import Activity
from gpumon.cli.sampling import Simulation, private_sampler
from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.paths import places
from gpumon.live import CATCHING_UP
from gpumon.sources.sim.source import SimSource
from tests.fakes import FakeClock

PATIENCE = 120.0
BEHIND = 30.0
"""Seconds that the first frame may be old on a busy machine; the past has ten minutes."""


def test_a_view_sees_a_simulation_once_it_has_caught_up_and_until_then_says_that_it_is_not_live(tmp_path: Path) -> None:
    arguments = Namespace(source="sim", interval=1.0, speed=1.0, gpm=True)
    texts, deadline = set(), time.monotonic() + PATIENCE
    with private_sampler(places(), arguments, str(tmp_path / "ledger")) as live:
        while (frame := live.latest()) is None and time.monotonic() < deadline:
            state = live.state()
            if not state.live:
                texts.add(state.text)
            time.sleep(0.005)
        assert frame is not None
        assert time.time() - frame.time < BEHIND
        assert live.state().live
        assert len(live.since(0)) > 600, "the past is there"
    assert texts == {CATCHING_UP}


def test_the_simulation_in_the_place_of_a_machine_keeps_the_losses_of_its_past_epochs_until_it_ends() -> None:
    simulated, deadline = Simulation(places()), time.monotonic() + PATIENCE
    with pytest.raises(GpumonError):
        simulated.ledgers()
    for _ in range(2):
        losses: list[float] = []
        with simulated.begin():
            while not losses and time.monotonic() < deadline:
                time.sleep(0.05)
                with suppress(GpumonError), simulated.ledgers() as ledgers:
                    for ledger, run in ledgers.candidates("sim-0-0"):
                        losses = [epoch.metrics["loss"] for epoch in ledger.record(run.id).epochs if epoch.metrics]
        assert losses
        with pytest.raises(GpumonError):
            simulated.ledgers()


class SlowClock(FakeClock):
    """A clock by which something takes a moment whenever it is looked at."""

    def monotonic(self) -> int:
        self.advance(0.001)
        return super().monotonic()


def test_the_seconds_in_which_its_past_is_made_up_are_no_gap_for_which_idleness_is_forgotten() -> None:
    clock = SlowClock()
    source = SimSource(clock=clock)
    activity = Activity()
    moments: list[int] = []
    for seconds in (8.0, 1.0, 30.0):  # to store the past takes long; then something else does
        for reading in source.read():
            moments.append(reading.monotonic_ns)
            activity.watch(
                reading.samples, monotonic_ns=reading.monotonic_ns, time=reading.time_ns / SECOND, interval=1.0
            )
        clock.advance(seconds)
    apart = [(after - before) / SECOND for before, after in pairwise(moments)]
    assert max(apart) < 1.1
    idle = activity.idle_since(reading.samples[6].device.uuid)
    assert idle is not None
    assert idle.seconds > 600
    assert len(source.read()) == 1, "what is late from then on is left out, as of any source"
