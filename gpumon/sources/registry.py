"""The table of sources, `KINDS`. Names, help, detection, metrics and capabilities of sources derive from it.

To add a source, add a package with `METRICS`, `detect`, `make` and, for hardware, `examine` to this folder, and a row
to the table. A package is imported only when it is used, so that a machine needs the driver bindings only for its own
hardware.
"""

from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from gpumon.common.errors import GpumonError, SourceError, UsageError
from gpumon.model.origin import HARDWARE, RECORDED, SIMULATED, Capability

if TYPE_CHECKING:
    from gpumon.common.check_result import Check
    from gpumon.sources.base import Request, Source

AUTO = "auto"


class SourceModule(Protocol):
    """Required contents of the package of a source."""

    METRICS: frozenset[str]
    """GPU metrics that the source can have."""

    def detect(self) -> bool:
        """Return whether the hardware of this source is on this machine.

        Must be fast, so it must not wait and not call the driver.
        """

    def make(self, request: "Request") -> "Source":
        """Open the source.

        Raises UsageError if the argument is invalid, and SourceError if the source cannot be read.
        """


class HardwareModule(SourceModule, Protocol):
    """Required contents of the package of a hardware source."""

    def examine(self, gpu_count: int) -> "Sequence[Check]":
        """Check the files of the driver without calling it. `gpu_count`: number of GPUs that were just read."""


class SourceKind(NamedTuple):
    """A row of the table.

    This is not a dataclass, because every command imports this module, and `dataclasses` is slow to import.
    """

    name: str
    argument: str
    """The argument as written in help: `:FILE` if required, `[:FILE]` if optional, empty if the source takes none."""
    help: str
    capabilities: Capability

    @property
    def usage(self) -> str:
        return self.name + self.argument

    @property
    def module(self) -> SourceModule:
        """The source's package, imported on first use."""
        return cast(SourceModule, import_module(f"gpumon.sources.{self.name}"))

    def accepts(self, argument: str) -> bool:
        """Return whether `argument` can follow the name of this source in `--source`."""
        return bool(argument) if self.argument.startswith(":") else not argument or bool(self.argument)


KINDS: tuple[SourceKind, ...] = (
    SourceKind("nvml", "", "NVIDIA GPUs of this machine", HARDWARE),
    SourceKind("drm", "", "AMD and Intel GPUs of this machine", HARDWARE),
    SourceKind("replay", ":FILE", "a recording, or an nvidia-smi log (CSV or dmon, also .gz)", RECORDED),
    SourceKind("sim", "[:SCENARIO]", "a simulation: one, idle, laptop, sixteen, faults or hostile", SIMULATED),
)
BY_NAME = {kind.name: kind for kind in KINDS}
_HARDWARE = tuple(kind for kind in KINDS if Capability.LIVE in kind.capabilities)
USAGE = f"{', '.join((AUTO, *(kind.usage for kind in KINDS[:-1])))} or {KINDS[-1].usage}"


def parse_spec(spec: str) -> list[tuple[SourceKind, str]]:
    """Return the kind and argument of each source in a value of `--source`, separated by commas. Raises UsageError.

    `auto` stands for the first kind of hardware.
    """
    first = BY_NAME.get(spec.partition(":")[0])
    # The name of a recording may contain commas, so nothing can follow it.
    parts = [spec] if first and Capability.NOW not in first.capabilities else spec.split(",")
    kinds = [(_HARDWARE[0], "") if part == AUTO else _parse_part(part, spec) for part in parts]
    names = [kind.name for kind, _ in kinds]
    if len(kinds) > 1 and (alone := [kind for kind, _ in kinds if Capability.NOW not in kind.capabilities]):
        raise UsageError(f"source '{spec}': {alone[0].name} has its own clock and cannot be combined with others")
    if len(set(names)) < len(names):
        raise UsageError(f"source '{spec}' lists a source twice")
    return kinds


def _parse_part(part: str, spec: str) -> tuple[SourceKind, str]:
    name, _, argument = part.partition(":")
    kind = BY_NAME.get(name)
    if kind is None or not kind.accepts(argument):
        raise UsageError(f"unknown source '{spec}'. Sources: {USAGE}; separate several with commas, as in nvml,sim")
    return kind, argument


def capabilities(spec: str) -> Capability:
    """Return the capabilities of the sources in `--source`, without opening them. Raises UsageError."""
    return reduce(or_, (kind.capabilities for kind, _ in parse_spec(spec)))


def source_names(spec: str) -> str:
    """Return the names of the sources in `--source`, separated by commas, without opening them. Raises UsageError."""
    return ",".join(kind.name for kind, _ in parse_spec(spec))


def detect_hardware() -> list[SourceKind]:
    """Return the kinds of hardware on this machine.

    If there is none, return the first kind in the table. Its source then reports the problem.
    """
    return [kind for kind in _HARDWARE if kind.module.detect()] or [_HARDWARE[0]]


def examine_hardware(gpu_count: int) -> list["Check"]:
    """Check the driver files of this machine's hardware. `gpu_count`: number of GPUs that were just read.

    Calls no driver and never waits.
    """
    modules = [cast(HardwareModule, kind.module) for kind in detect_hardware()]
    return [check for module in modules for check in module.examine(gpu_count)]


def open_source(spec: str, request: "Request") -> "Source":
    """Open the sources in `--source`. `request.argument` is ignored.

    Raises UsageError for an unknown name, and SourceError if a source cannot be read. If several kinds of hardware were
    detected, only one of them must be readable.
    """
    sources = _open_all(_kinds_to_open(spec), request)
    if len(sources) == 1:
        return sources[0]
    from gpumon.sources.combined import TIMEOUT, CombinedSource

    return CombinedSource(sources, request.clock, min(TIMEOUT, 0.9 * request.interval))


def _kinds_to_open(spec: str) -> list[tuple[SourceKind, str, bool]]:
    """Return each kind with its argument, and whether opening it may fail.

    If several kinds of hardware were detected, it is sufficient that one of them can be opened.
    """
    kinds = [(kind, argument, False) for kind, argument in parse_spec(spec)]
    parts = spec.split(",")
    if AUTO not in parts:
        return kinds
    at, detected = parts.index(AUTO), detect_hardware()
    return [*kinds[:at], *((kind, "", len(detected) > 1) for kind in detected), *kinds[at + 1 :]]


def _open_all(kinds: Sequence[tuple[SourceKind, str, bool]], request: "Request") -> list["Source"]:
    from dataclasses import replace  # slow to import, and most commands open no source

    sources: list[Source] = []
    problem: SourceError | None = None
    for kind, argument, may_fail in kinds:
        try:
            sources.append(kind.module.make(replace(request, argument=argument)))
        except GpumonError as error:
            if may_fail and isinstance(error, SourceError):
                problem = error
                continue
            for source in sources:
                source.close()
            raise
    if not sources and problem is not None:
        raise problem
    return sources
