"""A GPU that the driver has lost, over a restart of the daemon: it keeps its name, and so its history."""

from __future__ import annotations

from pathlib import Path

from tests.nvml import Stub
from tests.programs import daemon, environment, status, until

LOOK = "nvmlDeviceGetCount_v2"


def test_a_lost_gpu_keeps_its_model_and_its_history_over_a_restart_of_the_daemon(
    driver_library: Path, live_dir: Path
) -> None:
    with Stub(driver_library, gpus=3) as stub:
        env = environment(live_dir, stub.env())
        with daemon("--interval", "0.2", env=env):
            (before,) = [gpu for gpu in status(env)["gpus"] if gpu["index"] == 1]
            stub.set_lost(1)
            until(lambda: status(env)["gpus"][1]["gpu_state"] == "lost")
        for _ in range(2):
            with daemon("--interval", "0.2", env=env):
                (lost,) = [gpu for gpu in status(env)["gpus"] if gpu["index"] == 1]
                assert lost["gpu_state"] == "lost"
                assert (lost["uuid"], lost["name"]) == (before["uuid"], before["name"])
        stub.set_lost(1, False)
        with daemon("--interval", "0.2", env=env):
            found = until(lambda: [gpu for gpu in status(env)["gpus"] if gpu["gpu_state"] != "lost"][2:])
            assert len(found) == 1
            assert before["uuid"] in {gpu["uuid"] for gpu in status(env)["gpus"]}


def test_a_gpu_that_hangs_at_a_restart_keeps_its_name_where_another_card_was_swapped(
    driver_library: Path, live_dir: Path
) -> None:
    hung, swapped = 1, 2
    with Stub(driver_library, gpus=3) as stub:
        env = environment(live_dir, stub.env())
        with daemon("--interval", "0.2", env=env):
            until(lambda: len(status(env)["gpus"]) == 3)
            stub.gpus = 2
            looks = stub.calls()[LOOK]
            until(lambda: stub.calls()[LOOK] >= looks + 2)
            stub.set_uuid(swapped, "GPU-00000000-6f6e-4000-8000-000000000000")
            stub.gpus = 3
            until(lambda: len(status(env)["gpus"]) == 4)
            (before,) = [gpu for gpu in status(env)["gpus"] if gpu["index"] == hung]
        stub.set_latency(None, 3_600_000_000, hung)
        with daemon("--interval", "0.2", env=env):
            (after,) = [gpu for gpu in status(env)["gpus"] if gpu["index"] == hung]
            assert after["state"] == "stale"
            assert (after["uuid"], after["name"]) == (before["uuid"], before["name"])
            stub.set_latency(None, 0, hung)
