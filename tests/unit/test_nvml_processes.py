"""A process of a frame: what the driver lists of it, and what the machine knows."""

from __future__ import annotations

from gpumon.common.numbers import is_known
from gpumon.model.process import Process
from gpumon.sources.base import ProcessInfo
from gpumon.sources.cgroup import CgroupInfo
from gpumon.sources.process_cache import EngineShares, ListedProcess, ProcessCache, build_process

PLACE = CgroupInfo("docker 3f2a9c1b04de", "0a1b2c3d-1111-2222-3333-444455556666", "4242")


def test_what_the_driver_and_the_machine_know_of_a_process_is_in_one_record() -> None:
    held = ListedProcess(41, "compute", 2.0**30, EngineShares(0.5, 0.25, 0.125, 1.0))
    assert build_process("GPU-1", held, ProcessInfo("python", "alice", 1e9, 2.5, 2.0**31, PLACE)) == Process(
        pid=41,
        uuid="GPU-1",
        kind="compute",
        name="python",
        user="alice",
        started=1e9,
        memory_used=2.0**30,
        sm_utilization=0.5,
        memory_utilization=0.25,
        cpu_utilization=2.5,
        host_memory=2.0**31,
        encoder_utilization=0.125,
        decoder_utilization=1.0,
        container=PLACE.container,
        pod=PLACE.pod,
        job=PLACE.job,
    )


def test_of_a_process_that_nobody_can_see_only_what_the_driver_lists_is_known() -> None:
    found = build_process("GPU-1", ListedProcess(41, "graphics", 2.0**30), ProcessInfo())
    assert (found.pid, found.kind, found.memory_used) == (41, "graphics", 2.0**30)
    assert not any(is_known(value) for value in (found.started, found.sm_utilization, found.encoder_utilization))
    assert (found.name, found.user, found.container, found.pod, found.job) == ("",) * 5


def test_processes_of_a_list_that_is_as_before_are_made_anew_only_where_the_machine_tells_something_new() -> None:
    known = {41: ProcessInfo("python", "alice", 1e9, 0.0), 42: ProcessInfo("python", "bob", 1e9, 0.0)}
    listed, held = (
        ProcessCache("GPU-1", lambda pid: known[pid]),
        [ListedProcess(41, "compute", 1.0), ListedProcess(42, "compute", 2.0)],
    )
    first = listed.update(held)
    assert listed.update(held) is first
    known[42] = known[42]._replace(cpu_utilization=2.5)
    second = listed.update(held)
    assert [process.cpu_utilization for process in second] == [0.0, 2.5]
    assert second[0] is first[0]
    assert [process.pid for process in listed.update(held[1:])] == [42]
    assert listed.update([]) == ()
