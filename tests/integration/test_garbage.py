"""A daemon looks for garbage in cycles seldom: its ticks make next to none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.nvml import Stub, sleepers
from tests.programs import PATIENCE, environment

_TICKS = 300
_PROGRAM = f"""
import gc
from gpumon.common.clock import SystemClock
from gpumon.daemon.service import open_daemon
from gpumon.common.paths import places

def rounds(count):
    for _ in range(count):
        recorder.sample_once()
        recorder.heartbeat()

recorder = open_daemon(places(), "nvml", 0.01, 1.0, SystemClock())
rounds(100)
gc.collect()
gc.disable()
rounds({_TICKS})
print(gc.collect())
recorder.close()
"""


def test_ticks_leave_no_garbage_in_cycles(stub: Stub, live_dir: Path) -> None:
    with sleepers(4) as pids:
        stub.spread(pids)
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environment(live_dir, stub.env()), capture_output=True, text=True,
            timeout=PATIENCE, check=True,
        )  # fmt: skip
    # They left none here; and a daemon lets 50 000 objects come together before it looks.
    assert int(done.stdout) < _TICKS / 10, done.stderr
