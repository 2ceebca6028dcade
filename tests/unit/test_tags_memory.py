"""Device memory and out-of-memory errors of fake frameworks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.tracking import wire_format
from gpumon.tracking.active_run import ActiveRun
from gpumon.tracking.board import Board
from gpumon.tracking.description import Description
from gpumon.tracking.memory import EVERY, NEVER, SCAN_EVERY, MemoryReader
from gpumon.tracking.out_of_memory import OutOfMemoryReporter
from gpumon.tracking.wire_format import NOT_KNOWN, Memory, device_mark, unpack_event, unpack_memory
from tests.fakes import FakeClock

ONE = "GPU-11111111-1111-1111-1111-111111111111"
TWO = "GPU-22222222-2222-2222-2222-222222222222"
GIB = 2**30
SECOND = 10**9


pytestmark = pytest.mark.usefixtures("fresh_warnings")


Begin = Callable[..., Board]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    made: list[Board] = []

    def board(visible: str = "") -> Board:
        made.append(Board(lambda: str(tmp_path), Description(name="net", id="net", visible=visible)))
        assert made[-1].on
        return made[-1]

    yield board
    for one in made:
        one.close()


def front(board: Board) -> bytes:
    # Through its own mapping: opening the file here would drop its lock.
    assert board._map is not None
    return bytes(board._map[: wire_format.FRONT])


def held(board: Board) -> list[Memory]:
    return list(unpack_memory(front(board))[1])


def marks(board: Board) -> list[tuple[int, int, int]]:
    """Return requested bytes, free bytes and device of each out-of-memory event."""
    assert board._map is not None
    ring = bytes(board._map[wire_format.EVENTS : wire_format.EVENTS + wire_format.EVENT_COUNT * wire_format.EVENT_SIZE])
    more = bytes(
        board._map[
            wire_format.SUPPLEMENTS : wire_format.SUPPLEMENTS + wire_format.EVENT_COUNT * wire_format.SUPPLEMENT_SIZE
        ]
    )
    events = [unpack_event(ring, number, more) for number in range(1, board._events + 1)]
    return [(e.asked, e.free, e.aux) for e in events if e is not None and e.mark == wire_format.OUT_OF_MEMORY]


def allocator(
    allocated: int,
    reserved: int,
    peak: int,
    active: int,
    inactive: int,
    requested: int,
    retries: int = 0,
    ooms: int = 0,
) -> dict[str, Any]:
    """Return torch's statistics of a device, including some that gpumon does not read."""

    def amount(current: int, most: int = 0) -> dict[str, Any]:
        return {"all": {"current": current, "peak": most or current, "allocated": 9, "freed": 9}, "large_pool": {}}

    return {
        "allocated_bytes": amount(allocated, peak),
        "reserved_bytes": amount(reserved, 99 * GIB),
        "active_bytes": amount(active),
        "inactive_split_bytes": amount(inactive),
        "requested_bytes": amount(requested),
        "num_alloc_retries": retries,
        "num_ooms": ooms,
        "segment": amount(3),
    }


class Cuda:
    """A torch.cuda with the devices ONE and TWO. It records which devices were read."""

    def __init__(self, *stats: dict[str, Any], current: int = 0, initialized: bool = True) -> None:
        self.stats = [*stats, *[allocator(0, 0, 0, 0, 0, 0)] * (2 - len(stats))]
        self.current = current
        self.initialized = initialized
        self.read: list[int] = []
        self.asked: list[str] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def current_device(self) -> int:
        self.asked.append("current_device")
        return self.current

    def device_count(self) -> int:
        self.asked.append("device_count")
        return 2

    def get_device_properties(self, index: int) -> object:
        self.asked.append("get_device_properties")
        return SimpleNamespace(uuid=(ONE, TWO)[index][4:])

    def memory_stats_as_nested_dict(self, index: int) -> dict[str, Any]:
        self.read.append(index)
        return self.stats[index]


class Torch:
    """A torch with `cuda`, whose allocator has an out-of-memory observer by default."""

    def __init__(self, cuda: object, *, observers: bool = True, refuses: bool = False) -> None:
        self.cuda = cuda
        self.attached: list[Callable[..., None]] = []
        self.refuses = refuses
        self._C = SimpleNamespace()
        if observers:
            self._C._cuda_attach_out_of_memory_observer = self._attach

    def _attach(self, observer: Callable[..., None]) -> None:
        if self.refuses:
            raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver")
        self.attached.append(observer)


BUSY = allocator(6 * GIB, 8 * GIB, 7 * GIB, 6 * GIB + 512, GIB, 5 * GIB, 3, 1)
BUSY_TOLD = (6 * GIB, 8 * GIB, 7 * GIB, 6 * GIB + 512, GIB, 5 * GIB, 3, 1)


def reader(board: Board, clock: FakeClock | None = None, **modules: Any) -> MemoryReader:
    return MemoryReader(board, modules, (clock or FakeClock()).monotonic, OutOfMemoryReporter())


# --- torch ---


def test_torch_reports_each_device_in_use(begin: Begin) -> None:
    board = begin()
    second = allocator(1, 2 * 2**20, 3, 4, 5, 1)
    reader(board, torch=Torch(Cuda(BUSY, second))).read()
    assert held(board) == [
        Memory(0, device_mark(ONE), *BUSY_TOLD),
        Memory(1, device_mark(TWO), 1, 2 * 2**20, 3, 4, 5, 1, 0, 0),
    ]


def test_an_empty_device_is_left_out_if_another_is_used(begin: Begin) -> None:
    board = begin()
    reader(board, torch=Torch(Cuda(allocator(0, 0, 0, 0, 0, 0), BUSY, current=0))).read()
    assert [memory.number for memory in held(board)] == [1]


def test_before_the_first_allocation_the_current_device_is_reported(begin: Begin) -> None:
    board = begin()
    reader(board, torch=Torch(Cuda(current=1))).read()
    assert held(board) == [Memory(1, device_mark(TWO), 0, 0, 0, 0, 0, 0, 0, 0)]


def test_an_emptied_device_is_still_reported(begin: Begin) -> None:
    board, cuda, clock = begin(), Cuda(allocator(0, 0, 0, 0, 0, 0), BUSY), FakeClock()
    reading = reader(board, clock, torch=Torch(cuda))
    reading.read()
    cuda.stats[1] = allocator(0, 0, 7 * GIB, 0, 0, 0)
    clock.advance(1)
    reading.read()
    assert held(board) == [Memory(1, device_mark(TWO), 0, 0, 7 * GIB, 0, 0, 0, 0, 0)]


def test_unused_devices_are_read_rarely(begin: Begin) -> None:
    board, cuda, clock = begin(), Cuda(BUSY), FakeClock()
    reading = reader(board, clock, torch=Torch(cuda))
    reading.read()
    assert cuda.read == [0, 1]
    clock.advance(SCAN_EVERY / SECOND - 0.5)
    reading.read()
    assert cuda.read == [0, 1, 0]
    cuda.stats[1] = BUSY
    clock.advance(0.5)
    reading.read()
    clock.advance(0.5)
    reading.read()
    assert cuda.read == [0, 1, 0, 0, 1, 0, 1]
    assert [memory.number for memory in held(board)] == [0, 1]


def test_cuda_is_never_initialized(begin: Begin) -> None:
    board, torch = begin(), Torch(Cuda(BUSY, initialized=False))
    reader(board, torch=torch).read()
    assert (torch.cuda.asked, torch.cuda.read, torch.attached) == ([], [], [])  # type: ignore[attr-defined]
    assert held(board) == []


def test_counters_missing_in_a_version_are_unknown(begin: Begin) -> None:
    board, stats = begin(), dict(BUSY)
    del stats["requested_bytes"], stats["num_ooms"]
    stats["inactive_split_bytes"] = {"all": {}}
    reader(board, torch=Torch(Cuda(stats))).read()
    known = (6 * GIB, 8 * GIB, 7 * GIB, 6 * GIB + 512, NOT_KNOWN, NOT_KNOWN, 3, NOT_KNOWN)
    assert held(board) == [Memory(0, device_mark(ONE), *known)]


def test_zeros_of_other_allocators_are_unknown(begin: Begin) -> None:
    board = begin()
    reader(board, torch=Torch(Cuda(allocator(6 * GIB, 8 * GIB, 7 * GIB, 0, 0, 0)))).read()
    assert held(board) == [Memory(0, device_mark(ONE), 6 * GIB, 8 * GIB, 7 * GIB)]


def test_an_accelerator_that_is_not_cuda_is_read_once_it_is_in_use(begin: Begin) -> None:
    flat = {"allocated_bytes.all.current": 5, "allocated_bytes.all.peak": 7, "reserved_bytes.all.current": 8}
    flat |= {"active_bytes.all.current": 6, "num_alloc_retries": 1, "num_ooms": 2}
    asked: list[int] = []

    def stats(index: int) -> dict[str, int]:
        asked.append(index)
        return flat if index else {}

    def torch(*, initialized: bool) -> object:
        xpu = SimpleNamespace(is_initialized=lambda: initialized)
        return SimpleNamespace(xpu=xpu, accelerator=SimpleNamespace(device_count=lambda: 2, memory_stats=stats))

    board = begin()
    reader(board, torch=torch(initialized=False)).read()
    assert (held(board), asked) == ([], [])
    reader(board, torch=torch(initialized=True)).read()
    assert held(board) == [Memory(1, 0, 5, 8, 7, 6, retries=1, ooms=2)]


# --- how often, and what goes wrong ---


def test_memory_is_read_at_most_every_half_second_and_at_boundaries(begin: Begin) -> None:
    board, cuda, clock = begin(), Cuda(BUSY, BUSY), FakeClock()
    reading = reader(board, clock, torch=Torch(cuda))
    assert reading.due_ns == 0
    reading.read(clock.monotonic())
    assert reading.due_ns == clock.monotonic() + EVERY == clock.monotonic() + SECOND // 2
    cuda.read.clear()
    clock.advance(1 / SECOND)
    reading.read_at_boundary()
    assert cuda.read == [0, 1]
    assert reading.due_ns == clock.monotonic() + EVERY


def test_reads_at_boundaries_of_short_epochs_are_limited(begin: Begin) -> None:
    board, clock = begin(), FakeClock()

    class Slow(Cuda):
        def memory_stats_as_nested_dict(self, index: int) -> dict[str, Any]:
            clock.advance(0.0001)
            return super().memory_stats_as_nested_dict(index)

    cuda = Slow(BUSY, current=0)
    reading = reader(board, clock, torch=Torch(cuda))
    reading.read()
    began, cuda.read = clock.monotonic(), []
    while clock.monotonic() < began + 10 * SECOND:
        reading.read_at_boundary()
        clock.advance(0.004)
    taken = 0.0001 * len(cuda.read)
    assert 0.005 < taken <= 0.005 + 10 / 200 + 0.002 + 10 / (EVERY / SECOND) * 0.0002


def peaks(board: Board) -> list[tuple[int, int]]:
    """Return mark and peak of each event after the start of the run."""
    assert board._map is not None
    ring = bytes(board._map[wire_format.EVENTS : wire_format.EVENTS + wire_format.EVENT_COUNT * wire_format.EVENT_SIZE])
    more = bytes(board._map[wire_format.SUPPLEMENTS : wire_format.SIZE])
    events = [unpack_event(ring, number, more) for number in range(2, board._events + 1)]
    return [(e.mark, e.peak) for e in events if e is not None]


def test_each_boundary_has_the_peak_so_far(begin: Begin) -> None:
    board, cuda = begin(), Cuda(BUSY)
    run = ActiveRun(board)
    run._memory = reader(board, torch=Torch(cuda))
    peak = 7 * GIB
    for change in (run.begin_epoch, run.begin_phase, run.end_epoch):
        change(*{run.begin_epoch: (0,), run.begin_phase: ("validate",)}.get(change, ()))
        peak += GIB
        cuda.stats[0] = allocator(GIB, 8 * GIB, peak, GIB, 0, GIB)
    run.log(loss=1.0)
    assert peaks(board) == [
        (wire_format.EPOCH_BEGIN, 7 * GIB),
        (wire_format.PHASE, 8 * GIB),
        (wire_format.EPOCH_END, 9 * GIB),
        (wire_format.LOG, wire_format.NOT_KNOWN),
    ]


def test_a_board_that_is_off_is_not_read() -> None:
    cuda = Cuda(BUSY)
    reading = reader(Board(None, Description(name="net", id="net")), torch=Torch(cuda))
    assert reading.due_ns == NEVER
    reading.read_at_boundary()
    reading.read()
    assert (cuda.read, reading.due_ns) == ([], NEVER)


def test_after_the_end_of_a_run_nothing_is_read(begin: Begin) -> None:
    board, cuda = begin(), Cuda(BUSY)
    reading = reader(board, torch=Torch(cuda))
    board.close()
    reading.read()
    assert (cuda.read, reading.due_ns) == ([], NEVER)


def test_an_unreadable_framework_is_one_warning(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    board, cuda, clock = begin(), Cuda(BUSY), FakeClock()
    modules = {"torch": Torch(cuda), "jax._src.xla_bridge": jax_with(gpu(0, bytes_in_use=5))}
    reading = MemoryReader(board, modules, clock.monotonic, OutOfMemoryReporter())
    reading.read()
    assert [memory.allocated for memory in held(board)] == [6 * GIB, 5]
    cuda.stats[0] = None  # type: ignore[call-overload]
    with caplog.at_level(logging.WARNING, "gpumon"):
        for _ in range(3):
            clock.advance(1)
            reading.read()
    assert [memory.allocated for memory in held(board)] == [5]
    assert len(caplog.records) == 1
    assert "torch's memory is not shown: AttributeError" in caplog.text


def test_values_that_are_no_longer_available_are_withdrawn(begin: Begin) -> None:
    board, clock = begin(), FakeClock()
    bridge = jax_with(gpu(0, bytes_in_use=5))
    reading = MemoryReader(board, {"jax._src.xla_bridge": bridge}, clock.monotonic, OutOfMemoryReporter())
    reading.read()
    assert len(held(board)) == 1
    bridge._backends = {}
    clock.advance(1)
    reading.read()
    assert held(board) == []


@pytest.mark.parametrize("torch", [None, object(), SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace())])
def test_unexpected_modules_are_ignored(begin: Begin, torch: object, caplog: pytest.LogCaptureFixture) -> None:
    board = begin()
    other = {"tensorflow": torch, "tensorflow.python.eager.context": torch, "jax._src.xla_bridge": torch}
    with caplog.at_level(logging.WARNING, "gpumon"):
        MemoryReader(board, {"torch": torch, **other}, FakeClock().monotonic, OutOfMemoryReporter()).read()
    assert (held(board), caplog.records) == ([], [])


# --- TensorFlow and JAX ---


class Config:
    """A tf.config with `physical` and `logical` GPUs. It must not be called before the context is initialized."""

    def __init__(self, physical: list[int], logical: int, used: list[dict[str, int]]) -> None:
        self.context = SimpleNamespace(_initialized=True)
        self._physical = physical
        self._logical = logical
        self._used = used
        self.experimental = self
        self.asked = 0

    def list_logical_devices(self, kind: str) -> list[Any]:
        self.asked += 1
        return [SimpleNamespace(name=f"/device:{kind}:{number}") for number in range(self._logical)]

    def get_visible_devices(self, kind: str) -> list[Any]:
        return [SimpleNamespace(name=f"/physical_device:{kind}:{number}") for number in self._physical]

    def get_memory_info(self, name: str) -> dict[str, int]:
        return self._used[int(name.rpartition(":")[2])]

    def modules(self) -> dict[str, Any]:
        eager = SimpleNamespace(context_safe=lambda: self.context)
        return {"tensorflow": SimpleNamespace(config=self), "tensorflow.python.eager.context": eager}


@pytest.mark.parametrize(
    ("visible", "physical", "logical", "devices"),
    [
        (f"{ONE},{TWO}", [0, 1], 2, [ONE, TWO]),
        (f"{ONE},{TWO}", [1], 1, [TWO]),
        (f"{ONE},{TWO}", [1], 2, [TWO, TWO]),
        (f"{ONE},{TWO}", [0, 1], 3, ["", "", ""]),
        ("0,1", [0, 1], 2, ["", ""]),
        (ONE[:12], [0], 1, [""]),
    ],
)
def test_tensorflow_reports_current_and_peak(
    begin: Begin, visible: str, physical: list[int], logical: int, devices: list[str]
) -> None:
    board = begin(visible)
    used = [{"current": 10 * (i + 1), "peak": 20 * (i + 1)} for i in range(logical)]
    MemoryReader(board, Config(physical, logical, used).modules(), FakeClock().monotonic, OutOfMemoryReporter()).read()
    assert held(board) == [
        Memory(i, device_mark(devices[i]), allocated=10 * (i + 1), peak=20 * (i + 1)) for i in range(logical)
    ]


def test_tensorflow_is_never_initialized(begin: Begin) -> None:
    board, config = begin(), Config([0], 1, [{"current": 1, "peak": 1}])
    for context in (None, SimpleNamespace(_initialized=False)):
        config.context = context  # type: ignore[assignment]
        MemoryReader(board, config.modules(), FakeClock().monotonic, OutOfMemoryReporter()).read()
    assert (config.asked, held(board)) == (0, [])


def gpu(number: int, ordinal: int | None = None, /, **stats: int) -> object:
    return SimpleNamespace(id=number, local_hardware_id=ordinal, memory_stats=lambda: stats or None)


def jax_with(*devices: object) -> Any:
    cpu = SimpleNamespace(local_devices=lambda: [gpu(0, bytes_in_use=1)])
    return SimpleNamespace(_backends={"cpu": cpu, "cuda": SimpleNamespace(local_devices=lambda: list(devices))})


def test_jax_reports_its_pool_and_not_its_limit(begin: Begin) -> None:
    board = begin(f"{ONE},{TWO}")
    pool = gpu(
        9, 1, bytes_in_use=5, peak_bytes_in_use=7, pool_bytes=8, bytes_reserved=4, bytes_limit=99,
        largest_free_block_bytes=2,
    )  # fmt: skip
    unknown = gpu(10, None, bytes_in_use=5, peak_bytes_in_use=-1, bytes_reserved=4, bytes_limit=99)
    nothing, silent = gpu(11, 0, bytes_in_use=-1), gpu(12, 0)
    bridge = jax_with(pool, unknown, nothing, silent)
    MemoryReader(board, {"jax._src.xla_bridge": bridge}, FakeClock().monotonic, OutOfMemoryReporter()).read()
    assert held(board) == [
        Memory(9, device_mark(TWO), allocated=5, reserved=8, peak=7, largest_free=2),
        Memory(10, 0, allocated=5),
    ]


def test_a_pool_smaller_than_its_content_is_unknown(begin: Begin) -> None:
    board = begin()
    bridge = jax_with(gpu(0, 0, bytes_in_use=5, pool_bytes=0))
    MemoryReader(board, {"jax._src.xla_bridge": bridge}, FakeClock().monotonic, OutOfMemoryReporter()).read()
    assert held(board) == [Memory(0, 0, allocated=5)]


# --- out of memory ---


def test_the_observer_of_torch_reports_once_to_each_run(begin: Begin) -> None:
    failures, torch = OutOfMemoryReporter(), Torch(Cuda(BUSY))
    first, second, ended = begin(), begin(), begin()
    for board in (first, second, ended):
        reading = MemoryReader(board, {"torch": torch}, FakeClock().monotonic, failures)
        reading.read()
        reading.read()
    ended.close()
    (observer,) = torch.attached
    observer(1, 2 * GIB, 80 * GIB, GIB)
    assert marks(first) == marks(second) == [(2 * GIB, GIB, device_mark(TWO))]
    failures.report_error(raised_by("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert len(marks(first)) == 1


def test_an_error_before_the_observer_is_reported_at_the_end(begin: Begin) -> None:
    failures, torch, board = OutOfMemoryReporter(), Torch(Cuda(BUSY)), begin()
    error = raised_by("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")
    MemoryReader(board, {"torch": torch}, FakeClock().monotonic, failures).read()
    assert len(torch.attached) == 1
    failures.report_error(error, {"torch": torch})
    assert marks(board) == [(2 * GIB, NOT_KNOWN, 0)]


def test_the_observer_never_raises_in_place_of_torch(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    failures, torch, board = OutOfMemoryReporter(), Torch(Cuda(BUSY)), begin()
    MemoryReader(board, {"torch": torch}, FakeClock().monotonic, failures).read()
    (observer,) = torch.attached
    observer(7, 2 * GIB, 80 * GIB, GIB)  # no such device
    assert marks(board) == [(2 * GIB, GIB, 0)]
    observer(0, "much", 80 * GIB, -1)
    assert marks(board)[1:] == [(NOT_KNOWN, NOT_KNOWN, device_mark(ONE))]

    def broken(asked: int, free: int, uuid: str = "") -> None:
        raise OSError("no room")

    board.out_of_memory = broken  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING, "gpumon"):
        observer(0, 2 * GIB, 80 * GIB, GIB)
    assert "an out-of-memory error is not shown: OSError: no room" in caplog.text


@pytest.mark.parametrize("torch", [Torch(Cuda(BUSY), observers=False), Torch(Cuda(BUSY), refuses=True)])
def test_without_an_observer_the_message_is_parsed(
    begin: Begin, torch: Torch, caplog: pytest.LogCaptureFixture
) -> None:
    failures, board = OutOfMemoryReporter(), begin()
    with caplog.at_level(logging.WARNING, "gpumon"):
        MemoryReader(board, {"torch": torch}, FakeClock().monotonic, failures).read()
    assert caplog.records == []
    message = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.10 GiB of which 512.00 MiB is free. Including non-PyTorch memory, this process has 78.60 GiB memory in use."  # noqa: E501
    failures.report_error(raised_by("torch", "OutOfMemoryError", message), {"torch": torch})
    assert marks(board) == [(5 * GIB // 2, GIB // 2, device_mark(TWO))]


def raised_by(module: str, name: str, message: str) -> Exception:
    """Return an error whose class has the module and name of a framework's class."""
    kind = type(name, (RuntimeError,), {"__module__": module})
    error: Exception = kind(message)
    return error


JAX = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
TF_CPU = "OOM when allocating tensor with shape[1048576,16777216] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu [Op:Fill]"  # noqa: E501


@pytest.mark.parametrize(
    ("module", "name", "message", "expected"),
    [
        ("torch", "OutOfMemoryError", "HIP out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity; 14.56 GiB already allocated; 38.44 MiB free; 14.80 GiB reserved", (20 * 2**20, round(38.44 * 2**20))),  # noqa: E501
        ("torch.cuda", "OutOfMemoryError", "words of another version", (NOT_KNOWN, NOT_KNOWN)),
        ("torch", "AcceleratorError", "CUDA error: out of memory\nCUDA kernel errors might", (NOT_KNOWN, NOT_KNOWN)),
        ("torch", "AcceleratorError", "CUDA error: an illegal memory access was encountered", None),
        ("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", TF_CPU.replace("CPU:0 by allocator mklcpu", "GPU:0 by allocator GPU_0_bfc"), (NOT_KNOWN, NOT_KNOWN)),  # noqa: E501
        ("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", "failed to allocate memory [Op:AddV2]", (NOT_KNOWN, NOT_KNOWN)),  # noqa: E501
        ("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", TF_CPU, None),
        ("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", "Received message larger than max", None),
        ("jaxlib.xla_extension", "XlaRuntimeError", JAX + "68719476736 bytes.", (64 * GIB, NOT_KNOWN)),
        ("jax.errors", "JaxRuntimeError", JAX + "64.00GiB.", (64 * GIB, NOT_KNOWN)),
        ("jax.errors", "JaxRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating 96 bytes.", (96, NOT_KNOWN)),
        ("jax.errors", "JaxRuntimeError", "INTERNAL: CUDA error: Failed to execute", None),
        ("torch", "OutOfMemoryError", "Tried to allocate 99999999999999999999.00 GiB.", (NOT_KNOWN, NOT_KNOWN)),
        ("mine", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", None),
        ("builtins", "MemoryError", "out of memory", None),
    ],
)  # fmt: skip
def test_errors_are_recognized_by_class_and_message(
    begin: Begin, module: str, name: str, message: str, expected: tuple[int, int] | None
) -> None:
    failures, board = OutOfMemoryReporter(), begin()
    failures.add(board)
    failures.report_error(raised_by(module, name, message), {"jax._src.xla_bridge": jax_with()})
    assert marks(board) == ([(*expected, 0)] if expected else [])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity; 38.44 MiB free;", (20 * 2**20, round(38.44 * 2**20))),  # noqa: E501
        ("CUDA error: out of memory\nCUDA kernel errors might", (NOT_KNOWN, NOT_KNOWN)),
        ("HIP out of memory. Tried to allocate 1.00 GiB.", (GIB, NOT_KNOWN)),
        ("my server said: CUDA out of memory", None),
        ("CUDA error: an illegal memory access was encountered", None),
    ],
)  # fmt: skip
def test_errors_of_older_torch_are_recognized_by_message(
    begin: Begin, message: str, expected: tuple[int, int] | None
) -> None:
    failures, board = OutOfMemoryReporter(), begin()
    failures.add(board)
    failures.report_error(RuntimeError(message), {})
    assert marks(board) == [], "of a training without torch"
    failures.report_error(RuntimeError(message), {"torch": Torch(Cuda(BUSY))})
    assert [mark[:2] for mark in marks(board)] == ([expected] if expected else [])


def test_jax_on_a_cpu_runs_out_of_the_hosts_memory(begin: Begin) -> None:
    failures, board = OutOfMemoryReporter(), begin()
    failures.add(board)
    error = raised_by("jax.errors", "JaxRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating 4096 bytes.")
    failures.report_error(error, {"jax._src.xla_bridge": SimpleNamespace(_backends={"cpu": object()})})
    assert marks(board) == []


def test_an_error_is_reported_once(begin: Begin) -> None:
    failures, board = OutOfMemoryReporter(), begin()
    failures.add(board)
    error = raised_by("torch", "OutOfMemoryError", "Tried to allocate 2.00 GiB.")
    wrapped = ValueError("the batch is too large")
    wrapped.__cause__ = error
    for one in (error, error, wrapped):
        failures.report_error(one, {})
    assert marks(board) == [(2 * GIB, NOT_KNOWN, 0)]


def test_an_error_caused_by_it_is_reported(begin: Begin) -> None:
    failures, board = OutOfMemoryReporter(), begin()
    failures.add(board)
    outer, inner = ValueError("the batch is too large"), raised_by("torch", "OutOfMemoryError", "words")
    outer.__context__ = inner
    inner.__context__ = outer  # goes round
    failures.report_error(outer, {})
    assert len(marks(board)) == 1


def test_an_error_without_a_readable_message_is_one_warning(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    failures, board = OutOfMemoryReporter(), begin()
    failures.add(board)

    def no_words(self: object) -> str:
        raise ValueError("no words")

    kind = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch", "__str__": no_words})
    with caplog.at_level(logging.WARNING, "gpumon"):
        failures.report_error(kind(), {})
    assert "an out-of-memory error is not shown: ValueError: no words" in caplog.text


def test_a_dropped_board_is_forgotten(tmp_path: Path) -> None:
    failures = OutOfMemoryReporter()
    failures.add(Board(lambda: str(tmp_path), Description(name="net", id="net")))
    failures.report_error(raised_by("torch", "OutOfMemoryError", "words"), {})
    failures.add(Board(None, Description(name="net", id="net")))
    assert len(failures._boards) == 1


@pytest.mark.parametrize("how", ["with", "finish"])
def test_a_run_that_ends_with_the_error_is_marked_with_it(begin: Begin, how: str) -> None:
    board = begin()
    seen: list[tuple[int, int, int]] = []
    close = board.close

    def closing(**end: bool) -> None:
        seen.extend(marks(board) if board.on else [])
        close(**end)

    board.close = closing  # type: ignore[method-assign]
    error = raised_by("torch", "OutOfMemoryError", "Tried to allocate 2.00 GiB.")
    run = ActiveRun(board)
    try:
        if how == "with":
            with run:
                raise error
        raise error
    except RuntimeError:
        run.finish(failed=True)  # as a callback does that is told of an exception
    assert seen == [(2 * GIB, NOT_KNOWN, 0)]
