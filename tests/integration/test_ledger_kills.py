"""A daemon killed at random moments of a training: epochs have the energy of the counter, or say that it is not known.

Time is compressed: ten ticks a second, and epochs of one or two seconds.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.numbers import is_known
from gpumon.common.paths import LEDGER
from gpumon.diagnosis.past_findings import FINE, verdict
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from tests.integration.test_ledger import ended
from tests.nvml import Process, Stub
from tests.programs import PATIENCE, daemon, environment, until

# Trains until its input ends; then prints, as JSON, the steady clock before and after begin and end of each epoch.
TRAINING = """
import json, random, sys, threading, time, gpumon
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
dice, times, now = random.Random(int(sys.argv[1])), [], time.monotonic_ns
with gpumon.run("killed", devices=[sys.argv[2]]) as run:
    print("ready", flush=True)
    before = now()
    for epoch in run.epochs(10**6):
        begun = before, now()
        until = time.monotonic() + dice.uniform(1.1, 2.2)
        while time.monotonic() < until:
            run.step()
            time.sleep(0.02)
        before = now()
        times.append([begun, before])
        if over.is_set():
            break
    after = now()
ends = [begun[1] for begun, _ in times[1:]] + [after]
print(json.dumps([[begun, (end, then)] for (begun, end), then in zip(times, ends)]), flush=True)
"""


GPU = 1
"""Its utilization is a square wave."""


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_leave_no_epoch_with_a_wrong_energy(stub: Stub, live_dir: Path, kills: int) -> None:
    env, dice = environment(live_dir, stub.env()), random.Random(kills)
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(kills), stub.uuid(GPU)],
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        stub.set_processes(GPU, [Process(process.pid)])
        for _ in range(kills):
            with daemon("--interval", "0.1", env=env) as one:
                time.sleep(dice.uniform(0.0, 5.0))
                one.send_signal(signal.SIGKILL)
            time.sleep(dice.choice([0.0, 0.0, dice.uniform(0.0, 1.0)]))
        with daemon("--interval", "0.1", env=env):
            output, _ = process.communicate(timeout=PATIENCE)
            (run,) = until(lambda: ended(live_dir))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    with Ledger(str(live_dir / "state" / LEDGER)) as ledger:
        record = ledger.record(run["id"])
    epochs = {epoch.epoch: epoch for epoch in aggregate.epoch_summaries(record)}
    times = json.loads(output)
    assert len(epochs) >= len(times) - 1
    seen, wrong = Counter[str](), []
    for number, ((begun, begun_by), (over, over_by)) in enumerate(times):
        epoch = epochs.get(number)
        if epoch is None:
            continue
        least = stub.truth("gpu.energy", GPU, over / 1e9) - stub.truth("gpu.energy", GPU, begun_by / 1e9)
        most = stub.truth("gpu.energy", GPU, over_by / 1e9) - stub.truth("gpu.energy", GPU, begun / 1e9)
        busy = stub.mean_utilization(GPU, begun_by, over)
        judged = verdict(epoch, running=False)
        is_fine = judged is not None and judged.kind == FINE
        energy, sure, utilization = map(epoch.value, ("energy", "energy_least", "utilization_mean"))
        seen["known" if is_known(energy) else "at least" if is_known(sure) else "unknown"] += 1
        if not (
            (not is_known(energy) or 0.99 * least <= energy <= 1.01 * most)
            and (not is_known(sure) or sure <= 1.01 * most)
            # It is the mean of the time that was sampled: a gap inside an epoch may have been busier, or less busy.
            and (not is_known(utilization) or abs(utilization - busy) < 0.12 + (1.0 - epoch.sampled_share))
            and (is_known(energy) or not is_fine)
            and (epoch.sampled_share >= SAMPLED or not is_fine)
        ):
            wrong.append((number, energy, sure, least, most, utilization, busy, epoch.sampled_share, judged))
    print(dict(seen), len(times), "epochs")
    assert wrong == []
    assert seen["known"] > 0
    assert seen["at least"] > 0
