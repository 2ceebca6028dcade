"""The table of sources: names, help, detection, metrics and capabilities derive from `KINDS`.

To add one: a package in this folder with `METRICS`, `detect` and `make`, and a row here. Its module is imported when
it is asked, so that a machine needs the drivers' bindings only of what it has.
"""

from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from gpumon.common.errors import GpumonError, SourceError, UsageError
from gpumon.model.origin import HARDWARE, RECORDED, SIMULATED, Capability

if TYPE_CHECKING:
    from gpumon.common.checkup import Check
    from gpumon.sources.base import Request, Source

AUTO = "auto"


class SourceModule(Protocol):
    """The contents of the package of a source."""

    METRICS: frozenset[str]
    """GPU metrics that it can give, on hardware or in logs that have them."""

    def detect(self) -> bool:
        """Whether what it reads is on this machine. Cheap: asks no driver, and never waits."""

    def make(self, request: "Request") -> "Source":
        """Open it. Raises UsageError for an argument that makes no sense, SourceError where it cannot be read."""


class HardwareModule(SourceModule, Protocol):
    """The contents of the package of a source that reads hardware."""

    def examine(self, read: int) -> "Sequence[Check]":
        """Look at the parts of its driver, by their files alone; `read`: number of GPUs that it showed just now."""


class SourceKind(NamedTuple):
    """A row of the table."""

    name: str
    argument: str
    """As help writes it: empty for none, `:FILE` for one that is required, `[:FILE]` for one that may be left out."""
    help: str
    capabilities: Capability

    @property
    def usage(self) -> str:
        return self.name + self.argument

    @property
    def module(self) -> SourceModule:
        """The source's package, imported now."""
        return cast(SourceModule, import_module(f"gpumon.sources.{self.name}"))

    def takes(self, argument: str) -> bool:
        """Whether it can be named with this argument."""
        return bool(argument) if self.argument.startswith(":") else not argument or bool(self.argument)


KINDS: tuple[SourceKind, ...] = (
    SourceKind("nvml", "", "NVIDIA GPUs of this machine", HARDWARE),
    SourceKind("replay", ":FILE", "a recording, or an nvidia-smi log (CSV or dmon, also .gz)", RECORDED),
    SourceKind("sim", "[:SCENARIO]", "a simulation: one, idle, laptop, sixteen, faults or hostile", SIMULATED),
)
BY_NAME = {kind.name: kind for kind in KINDS}
_HARDWARE = tuple(kind for kind in KINDS if Capability.LIVE in kind.capabilities)
USAGE = f"{', '.join((AUTO, *(kind.usage for kind in KINDS[:-1])))} or {KINDS[-1].usage}"


def named(spec: str) -> list[tuple[SourceKind, str]]:
    """The kinds that `--source` names, each with its argument; several stand between commas. Raises UsageError.

    For `auto` stands the first kind of hardware.
    """
    first = BY_NAME.get(spec.partition(":")[0])
    # The name of a recording may have commas: nothing can stand behind one.
    parts = [spec] if first and Capability.NOW not in first.capabilities else spec.split(",")
    found = [(_HARDWARE[0], "") if part == AUTO else _named(part, spec) for part in parts]
    names = [kind.name for kind, _ in found]
    if len(found) > 1 and (alone := [kind for kind, _ in found if Capability.NOW not in kind.capabilities]):
        raise UsageError(f"source '{spec}': {alone[0].name} has its own clock and cannot be combined with others")
    if len(set(names)) < len(names):
        raise UsageError(f"source '{spec}' lists a source twice")
    return found


def _named(part: str, spec: str) -> tuple[SourceKind, str]:
    name, _, argument = part.partition(":")
    kind = BY_NAME.get(name)
    if kind is None or not kind.takes(argument):
        raise UsageError(f"unknown source '{spec}'. Sources: {USAGE}; separate several with commas, as in nvml,sim")
    return kind, argument


def capabilities(spec: str) -> Capability:
    """Return the capabilities of the source that `--source` names, without opening it. Raises UsageError."""
    return reduce(or_, (kind.capabilities for kind, _ in named(spec)))


def expected(spec: str) -> str:
    """The name of the source that `--source` names, as far as it is known before that answers. Raises UsageError."""
    return ",".join(kind.name for kind, _ in named(spec))


def detected() -> list[SourceKind]:
    """The hardware that is on this machine; where none is, the first kind, which then says what is missing."""
    return [kind for kind in _HARDWARE if kind.module.detect()] or [_HARDWARE[0]]


def examined(read: int) -> list["Check"]:
    """Parts of the drivers of the hardware that is on this machine; `read`: number of GPUs that were read just now.

    Asks no driver, and never waits.
    """
    modules = [cast(HardwareModule, kind.module) for kind in detected()]
    return [check for module in modules for check in module.examine(read)]


def open_source(spec: str, request: "Request") -> "Source":
    """The source that `--source` names, opened; `request` without its argument.

    Raises UsageError for an unknown name, SourceError when the source cannot be read; where several kinds of hardware
    were detected, when none of them can.
    """
    opened = _opened(_wanted(spec), request)
    if len(opened) == 1:
        return opened[0]
    from gpumon.sources.combined import PATIENCE, CombinedSource

    return CombinedSource(opened, request.clock, min(PATIENCE, 0.9 * request.interval))


def _wanted(spec: str) -> list[tuple[SourceKind, str, bool]]:
    """Sources to open, and whether each may fail: of several detected kinds, one is enough."""
    chosen = [(kind, argument, False) for kind, argument in named(spec)]
    parts = spec.split(",")
    if AUTO not in parts:
        return chosen
    at, found = parts.index(AUTO), detected()
    return [*chosen[:at], *((kind, "", len(found) > 1) for kind in found), *chosen[at + 1 :]]


def _opened(wanted: Sequence[tuple[SourceKind, str, bool]], request: "Request") -> list["Source"]:
    opened: list[Source] = []
    problem: SourceError | None = None
    for kind, argument, may_fail in wanted:
        try:
            opened.append(kind.module.make(request._replace(argument=argument)))
        except GpumonError as error:
            if may_fail and isinstance(error, SourceError):
                problem = error
                continue
            for source in opened:
                source.close()
            raise
    if not opened and problem is not None:
        raise problem
    return opened
