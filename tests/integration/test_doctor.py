"""`gpumon doctor` as users start it: without a driver, on the stub driver, beside a daemon, with broken settings."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.errors import EXIT_FAILED, EXIT_NO_GPU, EXIT_OK
from tests.nvml import Stub
from tests.programs import daemon, environment, gpumon, until

_MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH."""


def told(env: dict[str, str], code: int) -> dict[str, Any]:
    """The JSON of a doctor that ends with this code."""
    done = gpumon("doctor", "--json", env=env)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of(found: dict[str, Any], name: str) -> dict[str, str]:
    (check,) = [check for check in found["checks"] if check["name"] == name]
    one: dict[str, str] = check
    return one


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    """The environment of a machine with two GPUs that answer."""
    return environment(live_dir, stub.env())


@pytest.fixture
def no_driver(live_dir: Path) -> dict[str, str]:
    """The environment of a machine without the driver's library."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has NVIDIA's driver")
    return environment(live_dir)


def test_without_a_driver_the_first_line_says_why_no_gpu_can_be_read(no_driver: dict[str, str]) -> None:
    done = gpumon("doctor", env=no_driver)
    assert done.returncode == EXIT_NO_GPU
    first = done.stdout.splitlines()[0]
    assert first.startswith("gpumon ")
    assert ": no GPU can be read: " in first
    assert done.stderr == ""


def test_on_a_driver_that_answers_all_is_well_or_a_warning(env: dict[str, str], live_dir: Path) -> None:
    found = told(env, EXIT_OK)
    assert found["can_read_gpus"]
    assert of(found, "GPUs")["condition"] == "ok"
    assert "libnvidia-ml.so" in of(found, "driver library")["text"]
    assert of(found, "daemon")["condition"] == "note"
    assert "gpumon daemon --detach" in of(found, "daemon")["remedy"]
    assert not list(live_dir.rglob("*")), "a look leaves no trace"


def test_a_driver_updated_under_its_module_is_named_in_the_first_line(env: dict[str, str], stub: Stub) -> None:
    stub.driver_error = _MISMATCH
    found = told(env, EXIT_NO_GPU)
    assert "updated without restarting" in found["verdict"]


def test_a_driver_that_hangs_does_not_hang_the_doctor(env: dict[str, str], stub: Stub) -> None:
    stub.set_latency(None, 3_600_000_000)
    found = told(env, EXIT_NO_GPU)
    assert "not answer" in found["verdict"]


def test_beside_a_daemon_the_driver_is_not_asked(env: dict[str, str], stub: Stub, live_dir: Path) -> None:
    history = live_dir / "state" / "history.sqlite"
    with daemon(env=env) as process:
        until(history.exists)
        found = told(env, EXIT_OK)
        assert stub.calls()["nvmlInitWithFlags"] == 1, "the daemon's own"
    assert of(found, "daemon")["text"].startswith(f"pid {process.pid} of ")
    assert of(found, "GPUs")["text"].startswith("the daemon reads ")
    assert of(found, "history")["text"].startswith(f"{history}, ")


def test_settings_that_stop_every_command_do_not_stop_the_doctor(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "config.toml").write_text("no-such-setting = 1\n")
    found = told({**env, "XDG_CONFIG_HOME": str(tmp_path)}, EXIT_FAILED)
    assert "unknown setting 'no-such-setting'" in found["verdict"]
    assert found["can_read_gpus"]


@pytest.mark.parametrize("wrong", ["[cost]\nnope = 1\n", 'names = "x"\n', 'source = "quatsch"\n'])
def test_any_fault_of_the_settings_is_named_and_the_rest_is_checked(
    env: dict[str, str], tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "config.toml").write_text(wrong)
    found = told({**env, "XDG_CONFIG_HOME": str(tmp_path)}, EXIT_FAILED)
    assert of(found, "settings")["condition"] == "fault"
    assert found["can_read_gpus"]
    assert found["verdict"].endswith(of(found, "settings")["text"])


def test_a_driver_that_is_slow_to_start_is_waited_for(env: dict[str, str], stub: Stub) -> None:
    stub.set_latency("nvmlInitWithFlags", 2_500_000)
    assert of(told(env, EXIT_OK), "GPUs")["condition"] == "ok"


def test_a_suspended_daemon_is_the_fault_and_what_wakes_it_is_said(env: dict[str, str], stub: Stub) -> None:
    with daemon("--interval", "0.1", env=env) as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: "stale" in gpumon("status", env=env).stdout)
        found = told(env, EXIT_FAILED)
    assert of(found, "daemon")["remedy"] == f"'kill -CONT {process.pid}'"
    assert "this command reads" in found["verdict"], "GPUs can be read"


def test_a_daemon_that_plays_a_simulation_samples_no_machine(env: dict[str, str]) -> None:
    with daemon("--source", "sim", env=env):
        assert "this machine is not sampled" in of(told(env, EXIT_OK), "its source")["text"]


def test_trainings_that_may_write_nowhere_are_told_of(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = told({**env, "GPUMON_DIR": f"{tmp_path}/file/live"}, EXIT_FAILED)
    assert of(found, "tags")["condition"] == "fault"


def test_a_plain_output_gets_plain_characters(env: dict[str, str]) -> None:
    done = gpumon("doctor", env={**env, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == EXIT_OK, done.stderr
    assert done.stdout.isascii()
