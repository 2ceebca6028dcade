"""The past of a simulation: made up faster than it would have happened, and seen by nobody meanwhile."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

from gpumon.cli.private_sampler import private_sampler
from gpumon.live import CATCHING_UP
from gpumon.paths import places

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
