"""The table of sources: names, help, detection, metrics and capabilities derive from `KINDS`.

To add one: a package in this folder with `METRICS`, `detect` and `make`, and a row here. Its module is imported when
it is asked, so that a machine needs the drivers' bindings only of what it has.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from gpumon.errors import UsageError
from gpumon.origin import HARDWARE, RECORDED, SIMULATED, Capability

if TYPE_CHECKING:
    from gpumon.sources.base import Request, Source

AUTO = "auto"


class SourceModule(Protocol):
    """What the package of a source has."""

    METRICS: frozenset[str]
    """GPU metrics that it can give, on hardware or in logs that have them."""

    def detect(self) -> bool:
        """Whether what it reads is on this machine. Cheap: asks no driver, and never waits."""

    def make(self, request: Request) -> Source:
        """Open it. Raises UsageError for an argument that makes no sense, SourceError where it cannot be read."""


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
    SourceKind("replay", ":FILE", "a log of nvidia-smi --query-gpu or dmon, optionally gzipped", RECORDED),
    SourceKind("sim", "[:SCENARIO]", "a simulation", SIMULATED),
)
BY_NAME = {kind.name: kind for kind in KINDS}
_HARDWARE = tuple(kind for kind in KINDS if Capability.LIVE in kind.capabilities)
USAGE = f"{', '.join((AUTO, *(kind.usage for kind in KINDS[:-1])))} or {KINDS[-1].usage}"


def named(spec: str) -> tuple[SourceKind, str]:
    """The kind that `--source` names, and its argument. Raises UsageError."""
    name, _, argument = spec.partition(":")
    kind = BY_NAME.get(name)
    if kind is None or not kind.takes(argument):
        raise UsageError(f"unknown source '{spec}': it is one of {USAGE}")
    return kind, argument


def capabilities(spec: str) -> Capability:
    """What the source that `--source` names is able to give, without opening it. Raises UsageError."""
    return HARDWARE if spec == AUTO else named(spec)[0].capabilities


def expected(spec: str) -> str:
    """The name of the source that `--source` names, as far as it is known before that answers. Raises UsageError."""
    return _HARDWARE[0].name if spec == AUTO else named(spec)[0].name


def detected() -> list[SourceKind]:
    """The hardware that is on this machine; where none is, the first kind, which then says what is missing."""
    return [kind for kind in _HARDWARE if kind.module.detect()] or [_HARDWARE[0]]


def open_source(spec: str, request: Request) -> Source:
    """The source that `--source` names, opened; `request` without its argument.

    Raises UsageError for an unknown name, SourceError when the source cannot be read.
    """
    kind, argument = (detected()[0], "") if spec == AUTO else named(spec)
    return kind.module.make(request._replace(argument=argument))
