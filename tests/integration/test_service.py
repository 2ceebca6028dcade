"""A daemon ends on a signal, whichever of its threads the kernel hands it to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.programs import PATIENCE, environment

SERVICE = """
import signal, threading
from gpumon.common.clock import SystemClock
from gpumon.daemon.recorder import Recorder
from gpumon.daemon.sampler import make_sampler
from gpumon.common.paths import places
from gpumon.daemon.service import Service

def opened():
    clock = SystemClock()
    recorder = Recorder(make_sampler("sim", places(), clock, 0.1), clock, frames=4)
    recorder.sample_once()
    return recorder

# `started` runs in the thread that samples: the signal goes to that one, and the main thread is not woken by it.
Service(opened, lambda _: signal.pthread_kill(threading.get_ident(), signal.{number})).run()
print("ended")
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_that_another_thread_gets_ends_the_daemon(live_dir: Path, number: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVICE.replace("{number}", number)],
        env={**environment(live_dir), "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.stdout == "ended\n", done.stderr
