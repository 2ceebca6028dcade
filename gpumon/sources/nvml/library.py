"""Loads and calls the driver's library. Only this module converts NVML return codes to availabilities.

Structures and constants come from nvidia-ml-py. Its functions are not used: they create a Python object for each
process and call the driver twice for each list, which takes ten times as long as the driver itself. Instead, this
module calls the functions of the driver through ctypes prototypes, with buffers that are created once.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Mapping
from ctypes import byref, c_void_p
from types import MappingProxyType
from typing import Any

import pynvml

from gpumon.common.errors import NoCardError, SourceError
from gpumon.common.text import clean
from gpumon.model.metrics import Availability
from gpumon.model.origin import Driver
from gpumon.model.vendors import NVIDIA
from gpumon.sources.nvml.return_codes import FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND, SUCCESS, VERSION_MISMATCH, advice
from gpumon.sources.nvml.sysfs import may_have_gpu

_SUCCESS, _NO_FUNCTION = int(pynvml.NVML_SUCCESS), int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class GpmPair:
    """Two GPM samples of one device. Each read overwrites the older sample."""

    __slots__ = ("in_use", "samples")

    def __init__(self, samples: tuple[c_void_p, c_void_p]) -> None:
        self.samples = samples
        self.in_use = False
        """True while a call uses the samples. They must not be freed then."""


class GpmSamples:
    """Allocates pairs of GPM samples, and frees them. May be used from any thread until `free` is called."""

    def __init__(self, find: Callable[[str], Callable[..., int] | None]) -> None:
        """`find`: function that returns the function of the library with a name; None if it does not exist."""
        self._find = find
        self._all: list[GpmPair] = []
        self._spare: list[GpmPair] = []

    def borrow(self) -> tuple[int, GpmPair | None]:
        """Return the NVML return code, and a pair that the caller may use until it calls `give_back`.

        The pair is None if the allocation fails.
        """
        try:
            return _SUCCESS, self._spare.pop()
        except IndexError:
            pass  # another thread may have taken the last one
        results = [self._allocate(), self._allocate()]
        code = next((code for code, _ in results if code != _SUCCESS), _SUCCESS)
        if code != _SUCCESS:
            for sample_code, sample in results:
                if sample_code == _SUCCESS:
                    self._free_sample(sample)
            return code, None
        pair = GpmPair((results[0][1], results[1][1]))
        self._all.append(pair)
        return _SUCCESS, pair

    def give_back(self, pair: GpmPair) -> None:
        """Give back a pair that no call is using. Makes no driver call."""
        self._spare.append(pair)

    def free(self) -> None:
        """Free all pairs that are not in use by a call. No pair may be used afterward."""
        pairs, self._all = self._all, []
        self._spare = []
        for pair in pairs:
            if not pair.in_use:
                for sample in pair.samples:
                    self._free_sample(sample)

    def _allocate(self) -> tuple[int, c_void_p]:
        sample = c_void_p()
        function = self._find("nvmlGpmSampleAlloc")
        return (function(byref(sample)) if function else _NO_FUNCTION), sample

    def _free_sample(self, sample: Any) -> None:
        function = self._find("nvmlGpmSampleFree")
        if function is not None:
            function(sample)


SONAME = "libnvidia-ml.so.1"
_PATHS = (SONAME, f"/usr/lib/wsl/lib/{SONAME}")
"""The name of the library, which the linker searches for, and its path in WSL, where the linkers of some distributions
do not search.
"""

_FileKey = tuple[int, int]
"""Device and inode number of a file."""


class SharedLibrary:
    """The copies of the library that this process has loaded. `current` is the copy in use."""

    def __init__(self) -> None:
        self._current: ctypes.CDLL | None = None
        self._directory = ""
        self._copies: dict[_FileKey, ctypes.CDLL] = {}

    @property
    def current(self) -> ctypes.CDLL:
        """The copy in use, loaded on first use. Raises OSError if the library is not installed."""
        if self._current is None:
            copy = _load_first()
            self._directory = _directory_of(copy)
            if self._directory and (key := _file_key(f"{self._directory}/{SONAME}")):
                self._copies[key] = copy
            self.use(copy)
            return copy
        return self._current

    @property
    def directory(self) -> str:
        """Directory from which the first copy was loaded.

        Empty if no copy was loaded yet, or if the kernel hides the directory.
        """
        return self._directory

    def load_replacement(self) -> ctypes.CDLL | None:
        """If the file of the current copy was replaced on disk, as by an upgrade, load and return the new file.

        None if the file was not replaced, or if this cannot be determined.
        """
        path = f"{self._directory}/{SONAME}"
        key = _file_key(path) if self._directory else None
        if key is None or not self._copies:
            return None
        if key not in self._copies:
            # The linker compares names before files, so a name that was loaded before would return the old copy.
            name = f"{self._directory}/{'./' * len(self._copies)}{SONAME}"
            try:
                self._copies[key] = ctypes.CDLL(name)
            except OSError:  # an upgrade may be in progress
                return None
        copy = self._copies[key]
        return None if copy is self._current else copy

    def use(self, copy: ctypes.CDLL) -> None:
        """Make this the copy in use, also for nvidia-ml-py."""
        self._current = pynvml.nvmlLib = copy


def _load_first() -> ctypes.CDLL:
    """Load the library from the first path at which it exists.

    Raises OSError. If one of the files exists but cannot be loaded, the error is about this file.
    """
    errors = []
    for path in _PATHS:
        try:
            return _load(path)
        except OSError as error:
            errors.append(error)
    raise next((error for error in errors if not is_absent(error)), errors[0])


def is_absent(error: OSError) -> bool:
    """Return whether loading failed because the library does not exist, and not because it is unusable."""
    return "No such file" in str(error)


def _load(path: str) -> ctypes.CDLL:
    copy = ctypes.CDLL(path)
    if not hasattr(copy, "nvmlShutdown"):
        raise OSError(f"{path}: is not the library of NVIDIA's driver")
    return copy


def _directory_of(copy: ctypes.CDLL) -> str:
    """Return the directory of the file from which a copy was mapped; empty if the kernel hides it."""
    address = ctypes.cast(copy.nvmlShutdown, ctypes.c_void_p).value or 0
    try:
        # pathlib is not used: its import takes a thirtieth of the time of 'gpumon status' without a daemon.
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            maps = file.read()
    except OSError:
        return ""
    for line in maps.splitlines():
        span, *_ = line.split(maxsplit=1)
        begin, _, end = span.partition("-")
        if int(begin, 16) <= address < int(end, 16):
            return os.path.dirname(line.split(maxsplit=5)[5])
    return ""


def _file_key(path: str) -> _FileKey | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


SHARED = SharedLibrary()
"""The library, shared by the whole process, because the linker has one state per process."""


Function = Callable[..., int]
"""A function of the driver. It takes ctypes values and pointers to buffers, and returns a code. Only
`tests/unit/test_nvml_memory.py` checks the arguments against the C signature, so a newly used function needs a row in
`tests/nvml/signatures.py`.
"""


_PCI_ADDRESS = struct.Struct("=16s20x32s")
"""nvmlPciInfo_t: the address in 16 bytes, five integers, the address in 32 bytes."""


class Library:
    """The initialized library. There is one instance per process. No call may be running when `close` shuts it down.

    After an upgrade of the driver, a new instance uses the new library; see `SharedLibrary`. Any thread may call
    `find`. If two threads look up the same function, the second one stores it again.
    """

    def __init__(self, withheld: Mapping[str, Availability] = MappingProxyType({})) -> None:
        """`withheld`: metrics that must not be read, and why.

        Raises SourceError with advice if no driver answers.
        """
        self.withheld = withheld
        self._copy = _initialize()
        self._functions: dict[str, Function] = {}
        self.gpm_samples = GpmSamples(self.find)
        self.driver = self._versions()

    def find(self, *names: str) -> Function | None:
        """Return the first of these functions that the driver has; None if it has none of them.

        Pass the newest name first.
        """
        for name in names:
            if name not in self._functions:
                try:
                    function = getattr(self._copy, name)
                except AttributeError:
                    continue
                function.restype = ctypes.c_int
                self._functions[name] = function
            return self._functions[name]
        return None

    def count(self) -> tuple[int, int]:
        """Return the NVML return code and the number of devices."""
        number = ctypes.c_uint()
        function = self.find("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
        return (function(ctypes.byref(number)) if function else -1), number.value

    def handle(self, index: int) -> tuple[int, Any]:
        """Return the NVML return code and the handle of the device with this index."""
        handle = ctypes.c_void_p()
        function = self.find("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
        return (function(ctypes.c_uint(index), ctypes.byref(handle)) if function else -1), handle

    def text(self, name: str, handle: Any) -> tuple[int, str]:
        """Call a function that returns a string, such as nvmlDeviceGetName.

        Return the NVML return code and the string. The string is empty if the call failed.
        """
        function = self.find(name)
        buffer = ctypes.create_string_buffer(256)
        code = function(handle, buffer, ctypes.c_uint(256)) if function else FUNCTION_NOT_FOUND
        return code, clean(buffer.value.decode("utf-8", "replace")) if code == SUCCESS else ""

    def minor(self, handle: Any) -> int:
        """Return the minor number of a GPU's device file, such as 0 for /dev/nvidia0; -1 if the call fails."""
        number = ctypes.c_uint()
        function = self.find("nvmlDeviceGetMinorNumber")
        return number.value if function and function(handle, ctypes.byref(number)) == SUCCESS else -1

    def bus_address(self, handle: Any) -> str:
        """Return the PCI address of a device, such as 00000000:65:00.0; empty if the call fails."""
        info = pynvml.nvmlPciInfo_t()
        function = self.find("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo")
        if function is None or function(handle, ctypes.byref(info)) != SUCCESS:
            return ""
        # The second, longer copy of the address exists since v3. Older versions leave it empty.
        copies = (_PCI_ADDRESS.unpack_from(info)[1], _PCI_ADDRESS.unpack_from(info)[0])
        address = next((text for copy in copies if (text := copy.partition(b"\0")[0])), b"")
        return clean(address.decode("ascii", "replace"))

    def _versions(self) -> Driver:
        buffer = ctypes.create_string_buffer(96)
        function = self.find("nvmlSystemGetDriverVersion")
        version = ""
        if function is not None and function(buffer, ctypes.c_uint(96)) == SUCCESS:
            version = clean(buffer.value.decode("utf-8", "replace"))
        number = ctypes.c_int()
        function = self.find("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
        if function is None or function(ctypes.byref(number)) != SUCCESS:
            return Driver(version)
        # The number is 1000 * major + 10 * minor, see NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR in nvml.h.
        return Driver(version, f"{NVIDIA.runtime} {number.value // 1000}.{number.value % 1000 // 10}")

    def close(self) -> None:
        """Shut the library down. Never raises, because a failure has no consequences."""
        self.gpm_samples.free()
        function = self.find("nvmlShutdown")
        if function is not None:
            function()


def _initialize() -> ctypes.CDLL:
    """Initialize the copy of the library that matches the kernel module, and return it. Raises SourceError."""
    try:
        copy = SHARED.current
    except OSError as error:
        if is_absent(error):
            reason = advice(LIBRARY_NOT_FOUND)
            if not may_have_gpu():
                raise NoCardError(f"no NVIDIA GPU is on the PCI bus, and {reason}") from error
            raise SourceError(reason) from error
        raise SourceError(f"the NVIDIA driver's library cannot be loaded ({clean(str(error))})") from error
    code = _call_init(copy)
    if code == VERSION_MISMATCH and (newer := SHARED.load_replacement()) is not None:
        code = _call_init(newer)
        if code == SUCCESS:
            SHARED.use(newer)
            return newer
    if code != SUCCESS:
        raise SourceError(advice(code))
    return copy


def _call_init(copy: ctypes.CDLL) -> int:
    function = getattr(copy, "nvmlInitWithFlags", None)
    return int(function(ctypes.c_uint(0)) if function is not None else copy.nvmlInit_v2())
