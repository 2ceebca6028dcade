"""Every buffer that the driver writes into has the size that C writes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpumon.sources.nvml import library as nvml_library
from gpumon.sources.nvml.device import NvmlDevice
from gpumon.sources.nvml.library import GpmSamples, Library
from gpumon.sources.nvml.processes import ProcessList, ProcessShares
from gpumon.sources.nvml.readings import CALLS, FALLBACKS, Call
from gpumon.sources.nvml.return_codes import NOT_FOUND
from gpumon.sources.nvml.utilization import SampleBuffer
from gpumon.sources.nvml.values import DeviceValues
from tests.fakes import FakeClock
from tests.nvml.signatures import SIGNATURES, CheckedLibrary, Written, buffer_of, check

HANDLE = ctypes.c_void_p(1)
SAMPLE = pynvml.c_nvmlGpmSample_t()
SOURCE = Path(nvml_library.__file__).parent


@pytest.mark.parametrize("version", ["470.1", "570.1", "580.65.06", "580.82.07", "615.71.05"])
@pytest.mark.parametrize("call", [*CALLS, *FALLBACKS], ids=lambda call: call.metrics[0])
def test_a_row_of_the_table_gives_the_driver_the_room_that_it_writes(call: Call, version: str) -> None:
    library: Any = CheckedLibrary(version=version)
    read = call.bind(library)
    assert read is not None
    clock = FakeClock()
    for _ in range(2):
        assert read(HANDLE, DeviceValues(clock, {})) == 0
        clock.advance(1.0)
    assert library.calls


@pytest.mark.parametrize("version", ["Processes", "_v2", "_v3"])
@pytest.mark.parametrize("kind", ["compute", "graphics"])
@pytest.mark.parametrize("processes", [0, 1, 16, 17, 500])
def test_a_list_has_room_for_as_many_processes_as_it_says(kind: str, version: str, processes: int) -> None:
    name = f"nvmlDeviceGet{kind.capitalize()}RunningProcesses" + version.removeprefix("Processes")
    written = SIGNATURES[name][2]
    assert isinstance(written, Written)

    def answer(_: Any, count: Any, buffer: Any) -> int:
        room, buffer_of(count).value = buffer_of(count).value, processes
        if room < processes:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        ctypes.memset(buffer, 0x7F, ctypes.sizeof(written.kind) * processes)
        return 0

    library: Any = CheckedLibrary({name: answer}, only=version)
    code, found = ProcessList(library, kind).read(HANDLE)
    assert (code, len(found)) == (0, processes)


@pytest.mark.parametrize("samples", [0, 16, 100, 3000])
def test_the_shares_have_room_for_as_many_samples_as_they_say(samples: int) -> None:
    def answer(_: Any, buffer: Any, count: Any, __: Any) -> int:
        room, count._obj.value = count._obj.value, samples
        if room < samples:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        ctypes.memset(buffer, 1, ctypes.sizeof(pynvml.c_nvmlProcessUtilizationSample_t) * samples)
        return 0

    library: Any = CheckedLibrary({"nvmlDeviceGetProcessUtilization": answer})
    ProcessShares(library, FakeClock()).read(HANDLE)
    assert library.calls


@pytest.mark.parametrize("kept", [0, 100, 100_000])
def test_the_drivers_samples_have_room_for_what_the_call_is_told(kept: int) -> None:
    def answer(_: Any, __: Any, ___: Any, ____: Any, count: Any, buffer: Any) -> int:
        if buffer is None:
            count._obj.value = kept
        return NOT_FOUND if buffer is not None else 0

    library: Any = CheckedLibrary({"nvmlDeviceGetSamples": answer})
    busy = SampleBuffer(library)
    for now in range(0, 100, 10):
        busy.read(HANDLE, float(now), FakeClock())
    assert len(library.calls) > 5


def test_a_whole_device_makes_no_call_that_is_not_checked() -> None:
    library: Any = CheckedLibrary()
    device = NvmlDevice(library, HANDLE, 0, "GPU-1", "card", FakeClock())
    for now in range(1, 100):
        device.read(float(now))
    assert set(library.calls) >= {"nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses_v3"}


def test_what_the_library_itself_asks_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = CheckedLibrary()
    library = Library.__new__(Library)
    monkeypatch.setattr(library, "find", checked.find, raising=False)
    library.gpm_samples = GpmSamples(checked.find)
    library.gpm_samples.borrow()
    library._versions()
    library.count()
    library.handle(0)
    for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
        library.text(name, HANDLE)
    library.bus_address(HANDLE)
    library.close()
    assert len(checked.calls) == 12


def test_every_function_that_the_source_names_has_a_signature() -> None:
    named = {name for path in SOURCE.glob("*.py") for name in re.findall(r'"(nvml[A-Z]\w+)"', path.read_text())}
    assert named - SIGNATURES.keys() == set()
    assert len(named) > 25


def test_a_buffer_that_is_too_short_is_seen() -> None:
    check("nvmlDeviceGetCurrentClocksEventReasons", (HANDLE, ctypes.byref(ctypes.c_ulonglong())))
    with pytest.raises(AssertionError, match="writes 8 bytes into 4"):
        check("nvmlDeviceGetCurrentClocksEventReasons", (HANDLE, ctypes.byref(ctypes.c_uint())))
    with pytest.raises(AssertionError, match="by value"):
        check("nvmlDeviceGetMemoryInfo", (HANDLE, pynvml.c_nvmlMemory_t()))


def calls_of_nvidia() -> Iterator[tuple[str, Callable[[], object]]]:
    """Each function of nvidia-ml-py for one of ours, to be called with plausible arguments."""
    arguments: dict[str, tuple[Any, ...]] = {
        "nvmlDeviceGetClockInfo": (HANDLE, 1), "nvmlDeviceGetMaxClockInfo": (HANDLE, 1),
        "nvmlDeviceGetTemperature": (HANDLE, 0),
        "nvmlDeviceGetNvLinkState": (HANDLE, 0), "nvmlDeviceGetTemperatureThreshold": (HANDLE, 1),
        "nvmlDeviceGetHandleByIndex": (0,), "nvmlDeviceGetFieldValues": (HANDLE, [83, 185]),
        "nvmlDeviceGetProcessUtilization": (HANDLE, 0), "nvmlDeviceGetSamples": (HANDLE, 1, 0),
        "nvmlSystemGetDriverVersion": (), "nvmlSystemGetCudaDriverVersion": (), "nvmlSystemGetCudaDriverVersion_v2": (),
        "nvmlDeviceGetMigDeviceHandleByIndex": (HANDLE, 0),
        "nvmlDeviceRegisterEvents": (HANDLE, 8, HANDLE), "nvmlEventSetCreate": (), "nvmlEventSetWait": (HANDLE, 1),
        "nvmlEventSetWait_v2": (HANDLE, 1),
        "nvmlGpmSampleAlloc": (), "nvmlGpmSampleFree": (SAMPLE,), "nvmlGpmSampleGet": (HANDLE, SAMPLE),
        "nvmlGpmMigSampleGet": (HANDLE, 1, SAMPLE),
        "nvmlGpmMetricsGet": (pynvml.c_nvmlGpmMetricsGet_t(),),
        "nvmlDeviceGetCount": (), "nvmlDeviceGetMemoryInfo": (HANDLE, pynvml.nvmlMemory_v2),
    }  # fmt: skip
    for name in SIGNATURES:
        function = getattr(pynvml, name, None)
        if function is not None and name not in ("nvmlInitWithFlags", "nvmlShutdown"):  # which load it
            given = arguments.get(name, (HANDLE,))
            yield name, lambda function=function, given=given: function(*given)


def test_the_signatures_are_those_that_nvidias_own_binding_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-ml-py makes its buffers from nvml.h: no call of it is smaller than what our table says is written."""
    seen: list[str] = []

    def pointer(name: str) -> Callable[..., int]:
        def call(*given: Any) -> int:
            declared = SIGNATURES.get(name)
            if declared is None:
                return 0
            seen.append(name)
            # Where it leaves ints to ctypes, they are passed as C ints.
            check(name, tuple(ctypes.c_uint(one) if isinstance(one, int) else one for one in given))
            for place, (what, one) in enumerate(zip(declared, given, strict=True)):
                if isinstance(what, Written) and what.counted < 0:
                    assert ctypes.sizeof(buffer_of(one)) == ctypes.sizeof(what.kind), f"{name}, argument {place}"
                elif isinstance(what, Written) and one is None:
                    buffer_of(given[what.counted]).value = 3
                    return 0 if name == "nvmlDeviceGetSamples" else int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
            return 0

        return call

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", pointer)
    for _, ask in calls_of_nvidia():
        ask()
    assert len(set(seen)) > 25
