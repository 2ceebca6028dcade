"""On a machine with a real NVIDIA GPU and a CUDA build of torch: `make gpu`."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import time
from statistics import median

import pytest

from gpumon.common.clock import SECOND, SystemClock
from gpumon.common.errors import SourceError
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import Frame
from gpumon.model.metrics import FROM_DRIVERS
from gpumon.sources.nvml.device import NvmlDevice
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.processes import ProcessList, ProcessShares
from gpumon.sources.nvml.readings import CALLS, FALLBACKS
from gpumon.sources.nvml.return_codes import SUCCESS
from gpumon.sources.nvml.utilization import SampleBuffer
from gpumon.sources.nvml.values import DeviceValues
from tests.programs import daemon, environment, status

pytestmark = pytest.mark.gpu

TRAINING = """
import time, torch, gpumon
device = torch.device("cuda")
model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(4096, 4096, device=device)
ballast = torch.empty(2**30, dtype=torch.uint8, device=device)
with gpumon.run("gpu-test", epochs=4) as run:
    for epoch in run.epochs():
        end = time.monotonic() + 4
        while time.monotonic() < end:
            for _ in run.steps(range(20)):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            torch.cuda.synchronize()
        run.log(loss=loss)
        print(epoch, flush=True)
"""


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[Frame]:
    """What a daemon recorded of a short CUDA training."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    directory = tmp_path_factory.mktemp("live")
    directory.chmod(0o700)
    env = environment(directory)
    live = follow(Places(explicit=str(directory)))
    with daemon("--interval", "0.5", env=env):
        time.sleep(3)  # idle before
        done = subprocess.run([sys.executable, "-c", TRAINING], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert status(env)["gpus"][0]["state"] == "ok"
        time.sleep(2)
        return live.since(0)


def in_run(frames: list[Frame]) -> list[Frame]:
    """The frames whose first GPU was in an epoch."""
    return [frame for frame in frames if any(sample.run for sample in frame.samples)]


def test_utilization_memory_and_power_rise_with_the_training(frames: list[Frame]) -> None:
    trained = in_run(frames)
    index = next(i for i, sample in enumerate(trained[0].samples) if sample.run)
    before, during = frames[0].samples[index], trained[len(trained) // 2].samples[index]
    assert during.value("gpu.utilization") > 0.5
    assert during.value("gpu.memory_used") - before.value("gpu.memory_used") > 2**30
    assert during.value("gpu.power") > before.value("gpu.power")


def test_energy_grows_as_power_says(frames: list[Frame]) -> None:
    trained = in_run(frames)
    index = next(i for i, sample in enumerate(trained[0].samples) if sample.run)
    if math.isnan(trained[0].samples[index].value("gpu.energy")):
        pytest.skip("this GPU has no energy counter")
    seconds = (trained[-1].monotonic_ns - trained[0].monotonic_ns) / 1e9
    energy = trained[-1].samples[index].value("gpu.energy") - trained[0].samples[index].value("gpu.energy")
    power = [frame.samples[index].value("gpu.power") for frame in trained]
    assert energy == pytest.approx(sum(power) / len(power) * seconds, rel=0.15)


def test_gpm_rises_with_the_training_where_the_gpu_has_it(frames: list[Frame]) -> None:
    trained = in_run(frames)
    index = next(i for i, sample in enumerate(trained[0].samples) if sample.run)
    during = trained[len(trained) // 2].samples[index]
    if (reason := during.device.missing.get("gpu.sm_activity")) is not None:
        pytest.skip(f"GPM of this GPU: {reason.reason}")
    idle = [frame.samples[index] for frame in frames if frame.number < trained[0].number]
    rests = [sample.value("gpu.sm_activity") for sample in idle if not math.isnan(sample.value("gpu.sm_activity"))]
    assert rests, "known from the second sample on"
    assert during.value("gpu.sm_activity") > 0.5 > min(rests)
    assert during.value("gpu.dram_activity") > 0
    calculated = [during.value(f"gpu.{unit}_activity") for unit in ("tensor", "fp32", "fp16")]
    assert sum(value for value in calculated if not math.isnan(value)) > 0.1


def test_the_process_appears_with_its_memory_and_run(frames: list[Frame]) -> None:
    held = [process for frame in in_run(frames)[8:] for process in frame.processes if process.run]
    assert held, "the driver lists the training and its board names the same pid"
    assert max(process.memory_used for process in held if not math.isnan(process.memory_used)) > 2**30


def test_every_epoch_is_found_and_its_loss(frames: list[Frame]) -> None:
    epochs = [event.epoch for frame in frames for event in frame.boundaries if event.mark.name == "EPOCH_BEGIN"]
    assert epochs == [0, 1, 2, 3]
    assert "loss" in frames[-1].runs[0].metrics


def test_what_each_call_costs_on_this_driver(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the table for benchmarks/README.md: microseconds of wall time, median and worst of 200 calls."""
    try:
        library = Library()
    except SourceError as error:
        pytest.skip(str(error))
    code, handle = library.handle(0)
    assert code == SUCCESS
    name = library.text("nvmlDeviceGetName", handle)[1]
    rows = []
    answers = DeviceValues(SystemClock(), {})
    for call in (*CALLS, *FALLBACKS):
        read = call.bind(library)
        if read is not None:
            rows.append((call.metrics[0], *_cost(lambda read=read: read(handle, answers))))  # type: ignore[misc]
    compute, graphics, shares = (
        ProcessList(library, "compute"),
        ProcessList(library, "graphics"),
        ProcessShares(library, SystemClock()),
    )
    rows.append(("compute processes", *_cost(lambda: compute.read(handle)[0])))
    rows.append(("graphics processes", *_cost(lambda: graphics.read(handle)[0])))
    rows.append(("process shares", *_cost(lambda: len(shares.read(handle)))))
    with capsys.disabled():
        print(f"\n{name}, driver {library.driver.version}, {library.driver.runtime}")
        print("| call | median µs | worst µs | code |\n|---|---|---|---|")
        for what, middle, worst, returned in rows:
            print(f"| {what} | {middle:.1f} | {worst:.1f} | {returned} |")
    library.close()
    assert rows


def test_which_counters_this_card_has(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the table of what the card and driver give, and why the rest is missing."""
    try:
        library = Library()
    except SourceError as error:
        pytest.skip(str(error))
    code, handle = library.handle(0)
    assert code == SUCCESS
    device = NvmlDevice(library, handle, 0, "GPU-0", "card", SystemClock())
    device.read(time.monotonic())
    time.sleep(1.2)  # counters of GPM need two samples
    sample = device.read(time.monotonic()).sample
    with capsys.disabled():
        print(f"\n{library.text('nvmlDeviceGetName', handle)[1]}, driver {library.driver.version}")
        print("| metric | now |\n|---|---|")
        for name in FROM_DRIVERS:
            missing = sample.device.missing.get(name)
            print(f"| {name} | {missing.reason if missing else sample.value(name)} |")
    library.close()
    links, active = sample.value("gpu.nvlink_links"), sample.value("gpu.nvlink_active")
    assert not active > links
    for name in ("pcie_generation", "pcie_width"):
        assert not sample.value(f"gpu.{name}") > sample.value(f"gpu.{name}_max")
    assert not sample.value("gpu.temperature_slowdown") > sample.value("gpu.temperature_shutdown")


def test_the_drivers_own_samples_are_sane(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints how many samples the driver keeps and how far apart they are. Some cards write none while idle."""
    try:
        library = Library()
    except SourceError as error:
        pytest.skip(str(error))
    code, handle = library.handle(0)
    assert code == SUCCESS
    clock = SystemClock()
    busy = SampleBuffer(library)
    first = list(busy.read(handle, 0.0, clock))
    time.sleep(3)
    second = list(busy.read(handle, 60.0, clock))
    now = clock.monotonic()
    name, driver = library.text("nvmlDeviceGetName", handle)[1], library.driver.version
    library.close()
    if busy.state.name != "OK":
        pytest.skip(f"{name}, driver {driver}: {busy.state.reason}")
    times = [when for when, _ in first + second]
    gaps = [(later - sooner) / SECOND for sooner, later in itertools.pairwise(times)]
    with capsys.disabled():
        print(
            f"\n{name}, driver {driver}: keeps {busy.length}, gave {len(first)}, then {len(second)} after 3 s", end=""
        )
        if gaps:
            print(f"; {median(gaps):.3f} s apart ({min(gaps):.3f} to {max(gaps):.3f})", end="")
        print(f"; the newest {(now - times[-1]) / SECOND:.3f} s old" if times else "")
    assert busy.length > 0
    assert times == sorted(set(times))
    assert all(0 <= ratio <= 1 for _, ratio in first + second)
    assert all(now - 65 * SECOND <= when <= now + SECOND for when in times)
    if gaps:
        assert median(gaps) * busy.length > 8, "the buffer must hold more than the sampler's period between two reads"


def _cost(call: object) -> tuple[float, float, int]:
    assert callable(call)
    clock = SystemClock()
    code = call()
    times = []
    for _ in range(200):
        start = clock.monotonic()
        call()
        times.append((clock.monotonic() - start) / 1000)
    return median(times), max(times), code
