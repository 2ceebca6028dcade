"""Container, pod and Slurm job of a process, from its `/proc/<pid>/cgroup`.

The text is a path for each hierarchy: `0::/path` of cgroup v2, `4:memory:/path` of v1. Its parts are names that
runtimes give, and that a user may give too: below `user.slice` everybody makes cgroups of their own, so a job or a
pod is believed only outside of it, and all of it is hostile text. Patterns are compiled when the first process is
looked at: not every command looks at one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from gpumon.common.clock import SECOND, Clock
from gpumon.common.paths import ROOT, is_trusted
from gpumon.common.text import clean

LONGEST = 16384
"""Bytes that are read; a line that does not end within them is left out."""
_DEEPEST = 64
_NAMED = 64
_SHORT = 12
"""Digits of a container's ID, as `docker ps` shows them."""
_NESTED = 3
"""Containers in each other that are told of."""
_ID = "(?P<id>[0-9a-f]{64})"


class Confinement(NamedTuple):
    """Where a process runs; each is empty where it is in none, or that cannot be seen."""

    container: str = ""
    """Runtime, and the name or the short ID that it shows: `docker 3f2a9c1b04de`, `lxc web`."""
    pod: str = ""
    """UID of the Kubernetes pod, and its name behind it, as in `Process`; here there is none."""
    job: str = ""
    """Number of the Slurm job, or its SLUID."""


class _Pattern(NamedTuple):
    """A name that a runtime gives to a part of the path."""

    runtime: str
    pattern: str
    """Matches the whole part; has a group `id`, or `name` where people gave it."""
    below: str = ".*"
    """Matches the part above it."""


CONTAINERS: tuple[_Pattern, ...] = (
    _Pattern("docker", rf"docker-{_ID}\.scope"),
    _Pattern("docker", _ID, below="docker"),
    _Pattern("containerd", rf"(?:.*:)?cri-containerd[-:]{_ID}(?:\.scope)?"),
    _Pattern("containerd", rf"nerdctl-{_ID}\.scope"),
    _Pattern("cri-o", rf"crio-{_ID}(?:\.scope)?"),
    _Pattern("podman", rf"libpod-{_ID}(?:\.scope)?"),
    _Pattern("lxc", r"lxc\.payload\.(?P<name>.+)"),
    _Pattern("lxc", "(?P<name>.+)", below="lxc"),
    _Pattern("nspawn", r"systemd-nspawn@(?P<name>.+)\.service"),
    _Pattern("machine", r"machine-(?P<name>.+)\.scope", below=r"machine\.slice"),
    _Pattern("container", rf"(?:.*[:-])?{_ID}(?:\.scope)?"),
)
"""Names of the cgroups of containers; the first that fits counts. The last row: its runtime is not in its name."""
_POD = r"(?:.*-)?pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?(?::.*)?"
_KUBE = r"(?:.*-)?kubepods(?:-.*)?(?:\.slice)?"
_JOB = r"job_([0-9]{1,20})|(s[0-9A-Z]{13})"
_SLURM = r"slurm(?:_.*)?|(?:.*_)?slurmstepd\.scope"
_ESCAPED = r"\\x([0-9a-f]{2})"
_OF_USERS = "user.slice"
_DELETED = " (deleted)"
"""The kernel writes it behind the path of a cgroup v2 that was removed."""


def confinement(raw: bytes) -> Confinement:
    """Return what a `/proc/<pid>/cgroup` tells; of several hierarchies, the first that knows."""
    found = Confinement()
    for line in raw[:LONGEST].split(b"\n")[: -1 if len(raw) >= LONGEST else None]:
        path = line.split(b":", 2)[-1].decode("utf-8", "replace").removesuffix(_DELETED)
        if "/" not in path or path == "/":
            continue
        seen = _of_path(path.split("/")[1 : _DEEPEST + 1])
        found = Confinement(*(known or new for known, new in zip(found, seen, strict=True)))
    return found


def _of_path(parts: list[str]) -> Confinement:
    containers: list[str] = []
    pod = job = above = ""
    in_kube = in_slurm = False
    of_users = _OF_USERS in parts
    for part in parts:
        container = _container(part, above)
        if container and container not in containers:
            containers.append(container)
        if not of_users:
            in_kube = in_kube or re.fullmatch(_KUBE, part) is not None
            in_slurm = in_slurm or re.fullmatch(_SLURM, part) is not None
            if in_kube and (match := re.fullmatch(_POD, part)):
                pod = match[1].replace("_", "-")
            elif in_slurm and not job and (match := re.fullmatch(_JOB, part)):
                job = match[1] or match[2]
        above = part
    return Confinement(" in ".join(containers[::-1][-_NESTED:]), pod, job)


def _container(part: str, above: str) -> str:
    for runtime, pattern, below in CONTAINERS:
        if (match := re.fullmatch(pattern, part)) and re.fullmatch(below, above):
            known = match.groupdict()
            name = known["id"][:_SHORT] if known.get("id") else clean(_unescaped(known["name"]), _NAMED)
            return f"{runtime} {name}"
    return ""


def _unescaped(name: str) -> str:
    r"""The name of a unit of systemd, which is ASCII and writes `-` as `\x2d`, and others byte by byte."""
    if not name.isascii():
        return name
    return re.sub(_ESCAPED, lambda escaped: chr(int(escaped[1], 16)), name).encode("latin-1").decode("utf-8", "replace")


POD_LOGS, CONTAINER_LOGS = "/var/log/pods", "/var/log/containers"
_MOST = 8192
"""Entries that are read; a node has some hundred pods."""
_LONGEST = 128
_AGAIN = 10 * SECOND
"""ns after which a pod that was not found is looked for again."""
"""Digits of a container's ID that a process is known to have."""
_OF_POD = re.compile(r"([^_]+)_([^_]+)_([0-9a-fA-F-]{32,36})")
_OF_CONTAINER = re.compile(r"([^_]+)_([^_]+)_.+-([0-9a-f]{64})\.log")


class PodNames:
    """Finds the names of pods; a directory is listed only when a pod is new, at most once in 10 s."""

    def __init__(
        self, clock: Clock, pods: str = POD_LOGS, containers: str = CONTAINER_LOGS,
        trusts: Callable[[str], bool] = lambda path: is_trusted(path, ROOT),
    ) -> None:  # fmt: skip
        self._clock = clock
        self._directories = pods, containers
        self._trusts = trusts
        self._names: dict[str, str] = {}
        """By UID without dashes, and by the short ID of a container."""
        self._due = 0

    def name(self, uid: str, container: str) -> str:
        """Return `namespace/name` of the pod `uid`, a container of which has the short ID `container`; else empty."""
        keys = uid.replace("-", "").lower(), container
        if not any(key in self._names for key in keys) and self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + _AGAIN
            self._names = self._look()
        return next((self._names[key] for key in keys if key in self._names), "")

    def _look(self) -> dict[str, str]:
        pods, containers = map(self._listed, self._directories)
        found: dict[str, str] = {}
        for match in filter(None, map(_OF_CONTAINER.fullmatch, containers)):
            found[match[3][:_SHORT]] = clean(f"{match[2]}/{match[1]}", _LONGEST)
        for match in filter(None, map(_OF_POD.fullmatch, pods)):
            found[match[3].replace("-", "").lower()] = clean(f"{match[1]}/{match[2]}", _LONGEST)
        return found

    def _listed(self, directory: str) -> list[str]:
        """Names in it; none where it is not there, may not be listed, or others than root write it."""
        if not self._trusts(directory):
            return []
        try:
            with os.scandir(directory) as entries:
                return [entry.name for entry in islice(entries, _MOST)]
        except OSError:
            return []
