"""Jobs of GPUs by the files that a scheduler's prolog leaves, and of the processes on them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.daemon.sampler import Sampler
from gpumon.model.device import Device, job_parts
from gpumon.model.frame import Sample
from gpumon.model.run import RunFacts
from gpumon.sources.base import Reading
from gpumon.sources.gpu_jobs import DeviceJobs, parse_gpustat, parse_job_lines, with_jobs
from tests.builders import device, process, run, sample
from tests.fakes import FakeClock
from tests.unit.test_sampler import FakeSource

ME, MY_NAME = os.getuid(), pwd.getpwuid(os.getuid()).pw_name
MIG = Device("MIG-1", 1, "MIG 1g.10gb", parent=device(1).uuid, instance=3)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def gpustat(tmp_path: Path) -> Path:
    found = tmp_path / "gpustat"
    found.mkdir()
    return found


def allocations(clock: FakeClock, gpustat: Path, job_dir: Path | None = None, *, trusted: bool = True) -> DeviceJobs:
    return DeviceJobs(clock, str(job_dir or ""), str(gpustat), lambda path: trusted and os.path.isdir(path))


def jobs(found: Sequence[Sample]) -> list[str]:
    return [one.device.job for one in found]


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("4242 1000\n", "4242 1000"),
        ("4242", "4242"),
        ("4242_7 1000", "4242_7 1000"),
        ("", ""),
        ("\n", ""),
        ("4242 1000 x\n", ""),
        ("4242 ann", ""),
        ("../../etc 1000", ""),
        ("<b> 1000", ""),
        ("\ufffd", ""),
        ("9" * 65, ""),
    ],
)
def test_a_file_of_jobstats_has_one_or_two_words(text: str, job: str) -> None:
    assert parse_gpustat(text) == job


@pytest.mark.parametrize(
    ("text", "job"), [("17\n", "17"), ("17\n17\n\n", "17"), ("17\n18\n", ""), ("", ""), ("a b\n", ""), ("\n\n", "")]
)
def test_a_gpu_of_several_jobs_is_nobodys_alone(text: str, job: str) -> None:
    assert parse_job_lines(text) == job


def test_the_job_of_a_gpu_is_found_by_uuid_or_index(clock: FakeClock, gpustat: Path) -> None:
    (gpustat / device(0).uuid).write_text("1 1000\n")
    (gpustat / "0").write_text("99 1000\n")
    (gpustat / "1").write_text("2 1001\n")
    (gpustat / "1.3").write_text("3 1002\n")
    (gpustat / "2").symlink_to(gpustat / "1")
    samples = [sample(0), sample(1), sample(0)._replace(device=MIG), sample(2), sample(3)]
    assert jobs(allocations(clock, gpustat).assign(samples)) == ["1 1000", "2 1001", "3 1002", "", ""]
    assert job_parts("1 1000") == ("1", "1000")


def test_the_directory_of_dcgm_exporter_is_read_where_jobstats_says_nothing(
    clock: FakeClock, gpustat: Path, tmp_path: Path
) -> None:
    hpc = tmp_path / "hpc"
    hpc.mkdir()
    (hpc / "0").write_text("55\n")
    (hpc / "1").write_text("56\n57\n")
    (gpustat / "0").write_text("4 1000\n")
    found = allocations(clock, gpustat, hpc)
    assert jobs(found.assign([sample(0), sample(1)])) == ["4 1000", ""]
    (gpustat / "0").unlink()
    clock.advance(3)
    assert jobs(found.assign([sample(0), sample(1)])) == ["55", ""]


def test_a_job_that_ends_leaves_its_gpu(clock: FakeClock, gpustat: Path) -> None:
    (gpustat / "0").write_text("1 1000\n")
    found = allocations(clock, gpustat)
    first, second = found.assign([one := sample(0)]), found.assign([one])
    assert jobs(first) == ["1 1000"]
    assert first[0].device is second[0].device, "the same as long as nothing changes"
    (gpustat / "0").unlink()
    clock.advance(3)
    assert found.assign([one]) == [one]
    (gpustat / "0").write_text("2 1000\n")
    clock.advance(3)
    assert jobs(found.assign([one])) == ["2 1000"]


def test_a_directory_that_others_write_is_not_believed(clock: FakeClock, gpustat: Path) -> None:
    (gpustat / "0").write_text("1 1000\n")
    assert jobs(allocations(clock, gpustat, trusted=False).assign([sample(0)])) == [""]
    gpustat.chmod(0o777)
    assert jobs(DeviceJobs(clock, gpustat=str(gpustat)).assign([sample(0)])) == [""]


def test_files_that_are_no_files_and_hostile_names_name_no_job(clock: FakeClock, gpustat: Path) -> None:
    os.mkfifo(gpustat / "0")
    (gpustat / "1").mkdir()
    (gpustat / "2").write_bytes(b"\xff" * 10)
    (gpustat / "3").write_text("1 " + "0" * 5000)
    (gpustat.parent / "secret").write_text("1 1000")
    evil = [sample(0)._replace(device=Device(uuid, 9, "x")) for uuid in ("../secret", "..", ".", "", "a\0b")]
    assert set(jobs(allocations(clock, gpustat).assign([*map(sample, range(4)), *evil]))) == {""}


def test_a_process_has_the_job_of_its_gpu_where_it_is_of_the_same_user() -> None:
    own, other = process(1, user=MY_NAME), process(2, user="somebody-else")
    told = process(3, user=MY_NAME, job="7")
    found = with_jobs([own, other, told, process(4, index=1)], {device().uuid: f"42 {ME}"})
    assert [one.job for one in found] == ["42", "", "7", ""]
    assert [one.job for one in with_jobs([own, other], {device().uuid: "42"})] == ["42", "42"]


class OneReading(FakeSource):
    """Gives two processes of a user on a GPU."""

    def read(self) -> list[Reading]:
        (reading,) = super().read()
        both = [process(4711, user=MY_NAME), process(4712, user=MY_NAME)]
        return [replace(reading, samples=[sample(0)], processes=both)]


def test_ticks_have_the_job_of_the_cgroup_of_the_allocation_or_of_the_board(clock: FakeClock, gpustat: Path) -> None:
    sampler = Sampler(OneReading(clock), clock, allocations=allocations(clock, gpustat))
    training = run(pid=4711, user=MY_NAME, facts=RunFacts(job="9"))
    found = sampler._tag_processes([process(4711), process(4712)], [training], [sample(0)])
    assert [one.job for one in found] == ["9", ""]
    (gpustat / "0").write_text(f"42 {ME}\n")
    (tick,) = sampler.ticks()
    assert jobs(tick.samples) == [f"42 {ME}"]
    found = sampler._tag_processes([process(4711, user=MY_NAME), process(4712, job="5")], [training], tick.samples)
    assert [one.job for one in found] == ["42", "5"]
