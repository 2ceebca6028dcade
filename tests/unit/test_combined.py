"""Two sources in one daemon: neither waits for the other, and each keeps its own availability and origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread

import pytest

from gpumon.common.clock import SECOND, SystemClock
from gpumon.common.errors import SourceError, UsageError
from gpumon.daemon.sampler import Sampler
from gpumon.model.device import Device
from gpumon.model.frame import Sample, XidEvent
from gpumon.model.metrics import GPU_METRICS, Availability
from gpumon.model.origin import HARDWARE, SIMULATED, Capability, Driver, Origin
from gpumon.model.process import Process
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from gpumon.sources.base import ProcessInfo, Reading, Request, Source
from gpumon.sources.combined import CombinedSource
from gpumon.sources.executor import AnyCall
from gpumon.sources.registry import AUTO, BY_NAME, KINDS, capabilities, open_source, source_names
from tests.programs import PATIENCE

OK, STALE, FAILED = Availability.OK, Availability.STALE, Availability.FAILED


class Maker:
    """A source with two GPUs, which a test can let hang or fail."""

    tick_period = 0.0

    def __init__(self, name: str, label: str = "", capabilities: Capability = HARDWARE, prefix: str = "") -> None:
        self.name, self.label, self.capabilities = name, label, capabilities
        self.devices = [Device(f"{prefix or name}-{index}", index, f"{name} card") for index in range(2)]
        self.processes: Sequence[Process] = ()
        self.problem, self.lacks_card = "", False
        self.error: Exception | None = None
        self.reads = 0
        self.xids: list[XidEvent] = []
        self.may_answer = Event()
        self.may_answer.set()
        self.is_closed = False

    def origin(self) -> Origin:
        return Origin(
            self.name, self.label, self.problem, capabilities=self.capabilities, lacks_card=self.lacks_card
        )  # fmt: skip

    def driver(self) -> Driver:
        return Driver(f"1.{len(self.name)}", f"{self.name.upper()} 2")

    def read(self) -> Sequence[Reading]:
        self.may_answer.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.reads += 1
        clock = SystemClock()
        samples = [Sample(device, OK, [float(self.reads)] * len(GPU_METRICS)) for device in self.devices]
        new = {self.devices[0].uuid: [(self.reads, 0.5)]}
        xids, self.xids = self.xids, []
        return [Reading(clock.monotonic(), clock.time(), samples, self.processes, utilization_samples=new, xids=xids)]

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def makers() -> Iterator[tuple[Maker, Maker]]:
    pair = Maker("red"), Maker("green")
    yield pair
    for one in pair:
        one.may_answer.set()


class Patient:
    """Makes each call in a thread of its own, and waits for all but those of the sources that a test lets hang."""

    def __init__(self) -> None:
        self.hanging: list[Source] = []
        self.threads: list[Thread] = []

    def run(self, calls: Sequence[AnyCall], timeout: int) -> None:
        self.threads = []
        for call in [call for call in calls if not call.is_running]:
            call.is_running = True
            thread = Thread(target=call.execute, args=(SystemClock(), timeout), daemon=True)
            thread.start()
            if call._function.__self__.source not in self.hanging:
                thread.join(PATIENCE)
            else:
                self.threads.append(thread)

    def close(self) -> None:
        """There are no threads to end."""


def combined(makers: Sequence[Maker], executor: Patient | None = None) -> CombinedSource:
    return CombinedSource(makers, SystemClock(), executor=executor or Patient())


def states(source: CombinedSource) -> list[tuple[str, Availability]]:
    (reading,) = source.read()
    return [(sample.device.uuid, sample.state) for sample in reading.samples]


def test_all_devices_are_there_each_with_its_source_and_an_index_of_its_own(makers: tuple[Maker, Maker]) -> None:
    source = combined(makers)
    (reading,) = source.read()
    shown = [(sample.device.index, sample.device.source, sample.device.uuid) for sample in reading.samples]
    assert shown == [(0, "red", "red-0"), (1, "red", "red-1"), (2, "green", "green-0"), (3, "green", "green-1")]
    assert reading.utilization_samples == {"red-0": [(1, 0.5)], "green-0": [(1, 0.5)]}
    again = source.read()[0]
    assert all(a.device is b.device for a, b in zip(reading.samples, again.samples, strict=True))
    assert again.processes is reading.processes


def test_xid_errors_of_all_are_given_once_in_their_order(makers: tuple[Maker, Maker]) -> None:
    source = combined(makers)
    makers[0].xids = [XidEvent("red-0", 31, 5, 50), XidEvent("red-1", 79, 9, 90)]
    makers[1].xids = [XidEvent("green-0", 48, 7, 70)]
    assert [xid.code for xid in source.read()[0].xids] == [31, 48, 79]
    assert source.read()[0].xids == []


def test_origin_and_driver_are_those_of_all_with_each_ones_own(makers: tuple[Maker, Maker]) -> None:
    source = combined(makers)
    makers[1].problem = "no green GPU"
    source.read()
    origin = source.origin()
    assert (origin.source, origin.problem) == ("red,green", "")
    parts = [(part.origin.source, part.origin.problem) for part in origin.parts]
    assert parts == [("red", ""), ("green", "no green GPU")]
    assert [part.driver.version for part in origin.parts] == ["1.3", "1.5"]
    assert source.driver() == Driver("red 1.3, green 1.5", "RED 2")
    makers[0].problem = "no red GPU"
    source.read()
    assert source.origin().problem == "red: no red GPU; green: no green GPU"
    lacking = []
    for maker in makers:
        maker.lacks_card = True
        source.read()
        lacking.append(source.origin().lacks_card)
    assert lacking == [False, True]


def test_one_that_hangs_is_stale_and_silences_no_other(makers: tuple[Maker, Maker]) -> None:
    red, green = makers
    executor = Patient()
    source = combined(makers, executor)
    assert {state for _, state in states(source)} == {OK}
    green.may_answer.clear()
    executor.hanging = [green]
    assert states(source) == [("red-0", OK), ("red-1", OK), ("green-0", STALE), ("green-1", STALE)]
    (hanging,) = executor.threads
    assert states(source)[2:] == [("green-0", STALE), ("green-1", STALE)]
    assert (red.reads, executor.threads) == (3, []), "only one read of the source is in progress"
    (reading,) = source.read()
    assert reading.samples[2].age > 0
    assert reading.samples[2].value("gpu.power") == 1.0, "the last one known"
    assert source.origin().parts[1].origin.problem == "the source has not answered yet"
    green.may_answer.set()
    hanging.join(PATIENCE)
    executor.hanging = []
    assert {state for _, state in states(source)} == {OK}
    assert source._members[1].utilization_samples == {}
    assert not source.origin().parts[1].origin.problem


def test_one_that_fails_says_so_and_silences_no_other(makers: tuple[Maker, Maker]) -> None:
    source = combined(makers)
    source.read()
    makers[0].error = RuntimeError("broken")
    assert states(source) == [("red-0", FAILED), ("red-1", FAILED), ("green-0", OK), ("green-1", OK)]
    assert "broken" in source.origin().parts[0].origin.problem
    makers[0].error = None
    assert {state for _, state in states(source)} == {OK}


def test_of_a_device_that_two_sources_give_the_first_one_counts() -> None:
    found = combined((Maker("red", prefix="same"), Maker("green", prefix="same"))).read()[0]
    shown = [(sample.device.uuid, sample.device.source) for sample in found.samples]
    assert shown == [("same-0", "red"), ("same-1", "red")]


def test_hardware_keeps_its_numbers_before_a_simulation() -> None:
    source = combined((Maker("made", "SIMULATED", SIMULATED), Maker("green")))
    found = {sample.device.uuid: sample.device.index for sample in source.read()[0].samples}
    assert found == {"green-0": 0, "green-1": 1, "made-0": 2, "made-1": 3}
    assert source.capabilities == HARDWARE
    assert source.origin().label == "made: SIMULATED"


def test_closing_lets_go_of_all_but_one_that_hangs(makers: tuple[Maker, Maker]) -> None:
    executor = Patient()
    source = combined(makers, executor)
    source.read()
    makers[1].may_answer.clear()
    executor.hanging = [makers[1]]
    source.read()
    source.close()
    assert [one.is_closed for one in makers] == [True, False]


def test_a_ring_keeps_the_parts_of_an_origin_and_the_source_of_a_device(makers: tuple[Maker, Maker]) -> None:
    sampler = Sampler(combined(makers), SystemClock())
    writer = RingWriter.private(4, SECOND, 4)
    (tick,) = sampler.ticks()
    writer.append(tick)
    reader = RingReader(writer.fd)
    try:
        frame = reader.newest()
        assert frame is not None
        assert [sample.device.source for sample in frame.samples] == ["red", "red", "green", "green"]
        assert reader.directory().origin == tick.origin
    finally:
        reader.close()
    assert sampler.devices_text() == "red: 2 GPUs, driver 1.3; green: 2 GPUs, driver 1.5"


# Which are combined ---------------------------------------------------------------------------------


def nobody(pid: int) -> ProcessInfo:
    return ProcessInfo()


def opened(spec: str) -> CombinedSource:
    source = open_source(spec, Request("", SystemClock(), nobody))
    assert isinstance(source, CombinedSource)
    return source


def make_of(source: Maker) -> Callable[[Request], Maker]:
    return lambda request: source


def test_several_are_named_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BY_NAME["nvml"].module, "make", make_of(Maker("nvml")))
    source = opened("nvml,sim:one")
    (reading,) = source.read()
    assert [(sample.device.index, sample.device.source) for sample in reading.samples] == [
        (0, "nvml"), (1, "nvml"), (2, "sim"),
    ]  # fmt: skip
    assert (source_names("nvml,sim"), capabilities("nvml,sim")) == ("nvml,sim", HARDWARE)
    assert reading.host is None, "the host is this machine"
    source.close()


@pytest.mark.parametrize("spec", ["nvml,replay:x.csv", "sim,sim:one", "nvml,", "nvml,nvlm", "auto,nvml"])
def test_what_cannot_be_combined_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match=spec):
        capabilities(spec)


def test_a_recording_may_have_commas_in_its_name() -> None:
    assert source_names("replay:a,sim.csv") == "replay"


def test_all_hardware_that_is_detected_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = BY_NAME["nvml"]
    other = BY_NAME["sim"]._replace(capabilities=HARDWARE)
    monkeypatch.setattr("gpumon.sources.registry._HARDWARE", (hardware, other))
    for kind in KINDS:
        monkeypatch.setattr(kind.module, "detect", lambda: True)
    monkeypatch.setattr(hardware.module, "make", make_of(Maker("nvml")))
    monkeypatch.setattr(other.module, "make", make_of(Maker("sim")))
    assert opened(AUTO).origin().source == "nvml,sim"

    def refuse(request: Request) -> Maker:
        raise SourceError("no card")

    monkeypatch.setattr(other.module, "make", refuse)
    assert open_source(AUTO, Request("", SystemClock(), nobody)).origin().source == "nvml"
    with pytest.raises(SourceError, match="no card"):
        open_source("nvml,sim", Request("", SystemClock(), nobody))
    monkeypatch.setattr(hardware.module, "make", refuse)
    with pytest.raises(SourceError, match="no card"):
        open_source(AUTO, Request("", SystemClock(), nobody))
