"""The job that a scheduler gave a GPU, from the files of its prolog to the frame of all views, and to scrapes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.exported import Page
from tests.nvml import Stub
from tests.nvml.stub import Process
from tests.programs import daemon, environment, gpumon, status, until


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    """A directory as dcgm-exporter is given one: GPU 0 is of job 4242, and GPU 1 of two jobs."""
    found = tmp_path / "jobs"
    found.mkdir(mode=0o755)
    (found / "0").write_text("4242\n")
    (found / "1").write_text("17\n18\n")
    return found


def test_a_job_of_the_scheduler_is_with_the_gpu_and_with_its_process(stub: Stub, live_dir: Path, job_dir: Path) -> None:
    for gpu in (0, 1):
        stub.set_processes(gpu, [Process(os.getpid(), memory=2**30, sm=70)])
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", "--job-dir", job_dir, env=env):
        gpus = until(lambda: found if (found := status(env)["gpus"])[0]["job"] else None)
        assert [gpu["job"] for gpu in gpus] == ["4242", None]
        processes = until(lambda: status(env)["gpus"][0]["processes"])
        assert [one["job"] for one in processes] == ["4242"]
        assert [one["job"] for one in status(env)["gpus"][1]["processes"]] == [None]
        page = Page(gpumon("export", "--once", env=env).stdout.encode())
        (job,) = page.labels("gpumon_gpu_job_info")
        assert (job["gpu"], job["slurm_job"], job["by"]) == ("0", "4242", "allocation")
        page = Page(gpumon("export", "--once", "--dialect", "jobstats", env=env).stdout.encode())
        assert page.value("nvidia_gpu_jobId", ordinal="0", jobid="4242", minor_number="0") == 4242
        page = Page(gpumon("export", "--once", "--dialect", "dcgm", env=env).stdout.encode())
        (labels,) = [one for one in page.labels("DCGM_FI_DEV_GPU_TEMP") if one["gpu"] == "0"]
        assert labels["hpc_job"] == "4242"
        assert labels["pci_bus_id"]
        (job_dir / "0").unlink()
        until(lambda: status(env)["gpus"][0]["job"] is None)
