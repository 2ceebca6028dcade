"""A GPU that MIG divides and its instances: judged, counted and added up once."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest

from gpumon.analysis.gpu_state import Activity, GpuState, judge
from gpumon.analysis.gpu_status import countable_statuses, gpu_statuses
from gpumon.analysis.ranks import ranks_of
from gpumon.common.clock import SECOND
from gpumon.daemon.sampler import is_idle
from gpumon.diagnosis.live_findings import JudgedFrame
from gpumon.model.device import Device, by_number
from gpumon.model.frame import Frame, Sample, Tick
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.reports.status_details import process_lines
from gpumon.reports.status_json import document
from gpumon.reports.status_text import lines
from gpumon.reports.usage import lines as account_lines
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from gpumon.sources.combined import describe_devices
from gpumon.storage.history.devices import read_devices, resolve_devices
from gpumon.storage.usage.period_totals import summary
from gpumon.storage.usage.query import by_user, read_accounts, total
from gpumon.tracking.matching import Claim, match_devices
from tests.activity import keep
from tests.builders import TIME, device, frame_of, process, run, sample, tick

GIB = 2.0**30
HOUR = 3600
MIDNIGHT = 1_790_035_200
NONE = {"memory_used": 0.02 * GIB, "memory_total": 10 * GIB, "memory_reserved": 0.1 * GIB}
HELD = {**NONE, "memory_used": 4 * GIB}
UNTOLD = {"gpu.utilization": Availability.IN_MIG_MODE}


def gpu(index: int = 0, *, instances: float = 2.0, **values: float) -> Sample:
    """A GPU that is divided."""
    missing = {**UNTOLD, PROCESSES: Availability.OF_INSTANCES}
    one = sample(index, mig_instances=instances, memory_used=8 * GIB, memory_total=80 * GIB, **values)
    return one._replace(device=device(index, missing=missing))


def part(place: int, index: int = 0, **values: float) -> Sample:
    """One of its instances."""
    name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    of = Device(f"MIG-{index}-{place}", index, name, UNTOLD, parent=device(index).uuid, instance=place)
    return sample(index, **values)._replace(device=of)


def on(instance: Sample, pid: int = 4711, **fields: object) -> Process:
    return process(pid, uuid=instance.device.uuid, **fields)


FIRST, SECOND_PART = part(0, **HELD), part(1, **NONE)
WHOLE = sample(1, utilization=0.9, memory_used=8 * GIB, memory_total=80 * GIB, energy=100.0)


def states(frame: Frame) -> list[str]:
    return [status.state.value for status in gpu_statuses(frame, ranks_of(frame.runs))]


def test_the_gpu_is_neither_busy_nor_free_and_its_instances_are() -> None:
    newest = frame_of(tick(1, [gpu(), FIRST, SECOND_PART, WHOLE], [on(FIRST)]))
    assert states(newest) == ["divided", "allocated", "free", "busy"]


@pytest.mark.parametrize(("activity", "state"), [(0.5, "busy"), (0.0, "allocated"), (nan, "allocated")])
def test_the_graphics_activity_stands_for_the_utilization_of_an_instance(activity: float, state: str) -> None:
    one = part(0, **HELD, graphics_activity=activity)
    assert states(frame_of(tick(1, [gpu(graphics_activity=1.0), one], [on(one)]))) == ["divided", state]


def test_an_instance_that_works_and_stops_is_held_after_a_minute() -> None:
    busy, idle = part(0, **HELD, graphics_activity=0.9), part(0, **HELD, graphics_activity=0.0)
    watched = Activity()
    for second in range(100):
        watched.add(frame_of(tick(second + 1, [busy if second < 20 else idle]), second + 1))
    assert judge(idle, True, watched.observed(idle.device.uuid)) is GpuState.HELD
    unmeasured = part(1, **HELD)
    assert judge(unmeasured, True, watched.observed(unmeasured.device.uuid)) is GpuState.ALLOCATED


def test_an_instance_of_which_nobody_knows_who_is_on_it_is_not_called_free() -> None:
    hidden = SECOND_PART._replace(
        device=SECOND_PART.device._replace(missing={**UNTOLD, PROCESSES: Availability.NO_PERMISSION})
    )
    assert states(frame_of(tick(1, [hidden]))) == ["unknown"]
    assert states(frame_of(tick(1, [part(0)]))) == ["unknown"], "its memory is not known"


def test_devices_are_in_order_and_an_instance_has_a_label() -> None:
    mixed = [one.device for one in (WHOLE, SECOND_PART, gpu(), FIRST)]
    assert [one.label for one in sorted(mixed, key=by_number)] == ["0", "0:0", "0:1", "1"]
    assert Device("MIG-1", -1, "").label == ""


def test_the_ring_keeps_instances_behind_their_gpu_whatever_their_row(tmp_path: Path) -> None:
    path = str(tmp_path / "ring")
    ring = RingWriter.create(path, 3, SECOND)
    ring.append(tick(1, [SECOND_PART, gpu()]))
    ring.append(tick(2, [gpu(), FIRST, SECOND_PART], [on(FIRST)]))
    newest = RingReader.open(path).newest()
    assert newest is not None
    assert [one.device for one in newest.samples] == [gpu().device, FIRST.device, SECOND_PART.device]
    assert [one.uuid for one in newest.processes] == [FIRST.device.uuid]


def test_the_directory_has_room_for_the_instances_of_sixteen_gpus(tmp_path: Path) -> None:
    lacks = dict.fromkeys((f"gpu.metric_{number:032}" for number in range(70)), Availability.OF_WHOLE_GPU)
    found = [part(place, index) for index in range(16) for place in range(7)]
    samples = [one._replace(device=one.device._replace(missing=lacks)) for one in found]
    path = str(tmp_path / "ring")
    RingWriter.create(path, 112, SECOND).append(tick(1, samples))
    newest = RingReader.open(path).newest()
    assert newest is not None
    assert [one.device for one in newest.samples] == [one.device for one in samples]


def test_status_shows_each_instance_with_its_label_and_its_processes() -> None:
    newest = frame_of(tick(1, [gpu(), FIRST, SECOND_PART], [on(FIRST, user="alice")]))
    _, whole, first, second, *_ = lines(newest, Origin("nvml"), Driver(), "node1", "")
    assert whole.split()[0] == "0"
    assert whole.endswith("divided")
    assert first.split()[:3] == ["0:0", "MIG", "1g.10gb"]
    assert first.endswith("allocated  alice: python 1.0 GiB")
    assert second.endswith("free")
    assert list(process_lines(newest))[2].split()[0] == "0:0"


def test_json_says_of_which_gpu_an_instance_is_and_lists_a_process_once() -> None:
    newest = frame_of(tick(1, [gpu(), FIRST, SECOND_PART], [on(FIRST)]))
    found = document(newest, Origin("nvml"), Driver(), "node1", None)["gpus"]
    assert [(one["label"], one["parent"], one["instance"]) for one in found] == [
        ("0", None, None), ("0:0", device().uuid, 0), ("0:1", device().uuid, 1),
    ]  # fmt: skip
    assert [one["processes"] and len(one["processes"]) for one in found] == [None, 1, []]
    assert sum(one["gpu_state"] == "free" for one in found) == 1


def test_a_run_is_on_the_instance_and_never_on_the_gpu() -> None:
    devices = [one.device for one in (gpu(), FIRST, SECOND_PART, WHOLE)]
    uuid, whole = SECOND_PART.device.uuid, device().uuid
    assert match_devices(Claim(7, devices=(uuid,)), devices, ()).devices == (uuid,)
    held = (on(SECOND_PART, 7),)
    assert match_devices(Claim(7, devices=(whole,)), devices, held).devices == (uuid,)
    assert match_devices(Claim(7, devices=(whole,)), devices, ()).devices == ()
    assert match_devices(Claim(7, visible="0"), devices, ()).devices == (), "CUDA's first may be any instance"
    newest = frame_of(tick(1, [gpu(), FIRST, SECOND_PART], runs=[run(gpus=(uuid,), started=TIME / SECOND)]))
    assert states(newest) == ["divided", "allocated", "allocated"]


def test_a_gpu_without_an_instance_is_told_of_and_one_with_some_is_not() -> None:
    def kinds(one: Sample) -> list[str]:
        return [finding.kind for finding in JudgedFrame(frame_of(tick(1, [one])), (), True).findings()]

    assert kinds(gpu(instances=2.0)) == []
    assert kinds(gpu(instances=0.0)) == ["divided"]


def lost(one: Sample) -> Sample:
    """It is lost, and so nothing says any more that it is divided."""
    missing = dict.fromkeys(one.device.missing, Availability.LOST)
    return one._replace(state=Availability.LOST, device=one.device._replace(missing=missing))


def told_lost(*samples: Sample) -> list[tuple[str, str]]:
    found = JudgedFrame(frame_of(tick(1, [*samples, WHOLE]))).findings()
    return [(one.subject.title, one.summary) for one in found if one.kind == "unavailable"]


def test_an_instance_that_is_lost_alone_is_told_of_and_one_that_is_lost_with_its_gpu_is_not() -> None:
    assert told_lost(gpu(), lost(FIRST), SECOND_PART) == [("GPU 0:0", "the driver lost this instance")]
    assert told_lost(lost(gpu()), lost(FIRST), lost(SECOND_PART)) == [("GPU 0", "the driver lost this GPU")]


def test_a_gpu_that_is_lost_with_its_instances_counts_once() -> None:
    frame = frame_of(tick(1, [lost(gpu()), lost(FIRST), lost(SECOND_PART), WHOLE]))
    assert [one.sample.device.label for one in countable_statuses(gpu_statuses(frame, ()))] == ["0", "1"]
    alone = frame_of(tick(1, [gpu(), lost(FIRST), SECOND_PART, WHOLE]))
    assert [one.sample.device.label for one in countable_statuses(gpu_statuses(alone, ()))] == ["0:0", "0:1", "1"]


def test_a_machine_with_empty_instances_is_idle() -> None:
    assert is_idle(tick(1, [gpu(), SECOND_PART]))
    assert not is_idle(tick(1, [gpu(), FIRST], [on(FIRST)]))


def at(second: int, samples: list[Sample], processes: list[Process]) -> Tick:
    return tick(
        samples=samples, processes=processes, time_ns=(MIDNIGHT + second) * SECOND,
        monotonic_ns=(10_000 + second) * SECOND,
    )  # fmt: skip


@pytest.mark.parametrize(("activity", "busy"), [(0.5, 60.0), (nan, 0.0)])
def test_accounts_count_an_instance_once_and_the_energy_of_its_gpu_once(
    tmp_path: Path, activity: float, busy: float
) -> None:
    path = tmp_path / "state" / "history.sqlite"
    first = part(0, **HELD, graphics_activity=activity)
    processes = [on(first, user="alice")]
    keep(path, [at(second, [gpu(energy=300.0 * second), first, SECOND_PART], processes) for second in range(61)])
    found = read_accounts(str(path))
    (alice,) = by_user(found.hours)
    assert (alice.user, alice.held, alice.busy) == ("alice", pytest.approx(60.0), pytest.approx(busy))
    assert alice.judged == pytest.approx(busy), "what is not measured is not judged"
    use = total(found.hours)
    assert (use.observed, use.held, use.free) == (pytest.approx(120.0), pytest.approx(60.0), pytest.approx(60.0))
    assert use.energy == pytest.approx(300.0 * 60)
    (group,) = summary(found, MIDNIGHT, MIDNIGHT + HOUR, "user")
    assert group.unseen == pytest.approx(HOUR - 60.0), "of one GPU, not of three devices"
    assert group.rest.energy == pytest.approx(use.energy), "nobody's part of it is known"


def test_history_tells_an_instance_from_its_gpu(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.sqlite"
    keep(path, [at(second, [gpu(energy=300.0 * second), FIRST], [on(FIRST)]) for second in range(3)])
    groups = summary(read_accounts(str(path)), MIDNIGHT, MIDNIGHT + HOUR, "device")
    labels = [line.split("  ")[0:2] for line in account_lines(groups, "device") if line.startswith("GPU 0")]
    assert [label[0] for label in labels] == ["GPU 0", "GPU 0 MIG-0-0"]
    known = {one.device.uuid: one.device for one in (gpu(), FIRST)}
    assert resolve_devices(0, known, dict) == [device().uuid], "the GPU, not what it is divided into"
    assert resolve_devices("0:0", known, dict) == [FIRST.device.uuid]
    kept = read_devices(str(path))
    assert resolve_devices(0, {}, lambda: kept) == [device().uuid]
    assert kept[FIRST.device.uuid].label == "", "which one it was the file does not tell"


def test_a_source_with_instances_counts_its_gpus() -> None:
    assert describe_devices(Origin("nvml"), Driver(), [gpu(), FIRST, SECOND_PART, WHOLE]).endswith("2 GPUs")
