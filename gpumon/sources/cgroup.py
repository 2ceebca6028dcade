"""Container, pod and Slurm job of a process, from `/proc/<pid>/cgroup`, and the names of pods.

The file has one path for each hierarchy: `0::/path` for cgroup v2, `4:memory:/path` for v1. Runtimes or users choose
the components of a path, so the whole text is untrusted. Users can create cgroups below `user.slice`, so a job or a pod
is accepted only if its cgroup is elsewhere. Patterns are compiled on first use, because not every command needs them.
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
"""Maximum number of bytes to read from a cgroup file. A line that does not end within these bytes is ignored."""
_MAX_PARTS = 64
_LONGEST_NAME = 64
_SHORT_ID = 12
"""Digits of a container ID, as in `docker ps`."""
_MAX_NESTED = 3
"""Maximum number of nested containers that are listed."""
_ID = "(?P<id>[0-9a-f]{64})"


class CgroupInfo(NamedTuple):
    """Container, pod and job of a process. Each is empty if there is none, or if it is not visible."""

    container: str = ""
    """Runtime, and the name or short ID of the container, such as `docker 3f2a9c1b04de` or `lxc web`."""
    pod: str = ""
    """UID of the Kubernetes pod. Its name may follow, as in `Process.pod`."""
    job: str = ""
    """Slurm job id, or its SLUID."""


class _Pattern(NamedTuple):
    """Pattern of the cgroup path components of a container runtime."""

    runtime: str
    pattern: str
    """Matches the whole component. Its group is named `id`, or `name` if a person chose the name of the container."""
    parent: str = ".*"
    """Pattern of the parent component."""


CONTAINERS: tuple[_Pattern, ...] = (
    _Pattern("docker", rf"docker-{_ID}\.scope"),
    _Pattern("docker", _ID, parent="docker"),
    _Pattern("containerd", rf"(?:.*:)?cri-containerd[-:]{_ID}(?:\.scope)?"),
    _Pattern("containerd", rf"nerdctl-{_ID}\.scope"),
    _Pattern("cri-o", rf"crio-{_ID}(?:\.scope)?"),
    _Pattern("podman", rf"libpod-{_ID}(?:\.scope)?"),
    _Pattern("lxc", r"lxc\.payload\.(?P<name>.+)"),
    _Pattern("lxc", "(?P<name>.+)", parent="lxc"),
    _Pattern("nspawn", r"systemd-nspawn@(?P<name>.+)\.service"),
    _Pattern("machine", r"machine-(?P<name>.+)\.scope", parent=r"machine\.slice"),
    _Pattern("container", rf"(?:.*[:-])?{_ID}(?:\.scope)?"),
)
"""Names of containers' cgroups. The first match is used. The last row matches runtimes whose name is not in the
path."""
_POD = r"(?:.*-)?pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?(?::.*)?"
_KUBE = r"(?:.*-)?kubepods(?:-.*)?(?:\.slice)?"
_JOB = r"job_([0-9]{1,20})|(s[0-9A-Z]{13})"
_SLURM = r"slurm(?:_.*)?|(?:.*_)?slurmstepd\.scope"
_ESCAPED = r"\\x([0-9a-f]{2})"
_USER_SLICE = "user.slice"
_DELETED = " (deleted)"
"""Suffix that the kernel appends to the path of a removed v2 cgroup."""


def parse_cgroup(raw: bytes) -> CgroupInfo:
    """Return container, pod and job from the content of `/proc/<pid>/cgroup`.

    If the file has several hierarchies, the first one with a container, pod or job is used.
    """
    result = CgroupInfo()
    for line in raw[:LONGEST].split(b"\n")[: -1 if len(raw) >= LONGEST else None]:
        path = line.split(b":", 2)[-1].decode("utf-8", "replace").removesuffix(_DELETED)
        if "/" not in path or path == "/":
            continue
        info = _parse_path(path.split("/")[1 : _MAX_PARTS + 1])
        result = CgroupInfo(*(known or new for known, new in zip(result, info, strict=True)))
    return result


def _parse_path(parts: list[str]) -> CgroupInfo:
    containers: list[str] = []
    pod = job = parent = ""
    in_kube = in_slurm = False
    is_of_user = _USER_SLICE in parts
    for part in parts:
        container = _container(part, parent)
        if container and container not in containers:
            containers.append(container)
        if not is_of_user:
            in_kube = in_kube or re.fullmatch(_KUBE, part) is not None
            in_slurm = in_slurm or re.fullmatch(_SLURM, part) is not None
            if in_kube and (match := re.fullmatch(_POD, part)):
                pod = match[1].replace("_", "-")
            elif in_slurm and not job and (match := re.fullmatch(_JOB, part)):
                job = match[1] or match[2]
        parent = part
    return CgroupInfo(" in ".join(containers[::-1][-_MAX_NESTED:]), pod, job)


def _container(part: str, parent: str) -> str:
    for runtime, pattern, parent_pattern in CONTAINERS:
        if (match := re.fullmatch(pattern, part)) and re.fullmatch(parent_pattern, parent):
            groups = match.groupdict()
            name = groups["id"][:_SHORT_ID] if groups.get("id") else clean(_unescape(groups["name"]), _LONGEST_NAME)
            return f"{runtime} {name}"
    return ""


def _unescape(name: str) -> str:
    r"""Decode the name of a systemd unit.

    In it, `-` is written as `\x2d`, and other characters are escaped byte by byte.
    """
    if not name.isascii():
        return name
    return re.sub(_ESCAPED, lambda escaped: chr(int(escaped[1], 16)), name).encode("latin-1").decode("utf-8", "replace")


POD_LOGS, CONTAINER_LOGS = "/var/log/pods", "/var/log/containers"
_MAX_ENTRIES = 8192
"""Maximum number of directory entries that are read. A node has a few hundred pods."""
_LONGEST_POD_NAME = 128
_RETRY_AFTER = 10 * SECOND
"""After a search for a pod that found nothing, the next search is made this many ns later."""
_POD_LOG = re.compile(r"([^_]+)_([^_]+)_([0-9a-fA-F-]{32,36})")
_CONTAINER_LOG = re.compile(r"([^_]+)_([^_]+)_.+-([0-9a-f]{64})\.log")


class PodNames:
    """Finds the names of pods. Directories are listed only for a new pod, and at most every 10 s."""

    def __init__(
        self, clock: Clock, pods: str = POD_LOGS, containers: str = CONTAINER_LOGS,
        trusts: Callable[[str], bool] = lambda path: is_trusted(path, ROOT),
    ) -> None:  # fmt: skip
        self._clock = clock
        self._directories = pods, containers
        self._trusts = trusts
        self._names: dict[str, str] = {}
        """Names of pods. The key is the UID without dashes, or the short ID of a container in the pod."""
        self._due = 0

    def name(self, uid: str, container: str) -> str:
        """Return `namespace/name` of a pod; empty if it was not found.

        `uid`: UID of the pod. `container`: short ID of a container in it.
        """
        keys = uid.replace("-", "").lower(), container
        if not any(key in self._names for key in keys) and self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + _RETRY_AFTER
            self._names = self._read_names()
        return next((self._names[key] for key in keys if key in self._names), "")

    def _read_names(self) -> dict[str, str]:
        pods, containers = map(self._list_directory, self._directories)
        names: dict[str, str] = {}
        for match in filter(None, map(_CONTAINER_LOG.fullmatch, containers)):
            names[match[3][:_SHORT_ID]] = clean(f"{match[2]}/{match[1]}", _LONGEST_POD_NAME)
        for match in filter(None, map(_POD_LOG.fullmatch, pods)):
            names[match[3].replace("-", "").lower()] = clean(f"{match[1]}/{match[2]}", _LONGEST_POD_NAME)
        return names

    def _list_directory(self, directory: str) -> list[str]:
        """Return the names in a directory. Empty if it cannot be read, or if users other than root can write to it."""
        if not self._trusts(directory):
            return []
        try:
            with os.scandir(directory) as entries:
                return [entry.name for entry in islice(entries, _MAX_ENTRIES)]
        except OSError:
            return []
