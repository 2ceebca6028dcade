"""Names of Kubernetes pods, from the names of directories in which a node keeps the logs of its pods.

The kubelet makes `/var/log/pods/NAMESPACE_NAME_UID` before a pod begins, and links
`/var/log/containers/NAME_NAMESPACE_CONTAINER-ID.log` for each container; newer ones let others than root list only the
second. Nothing is asked over a network. The names are those that users gave, so hostile text; the directories are
believed only where nobody but root writes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import islice

from gpumon.common.clock import SECOND, Clock
from gpumon.common.paths import ROOT, is_trusted
from gpumon.common.text import clean

POD_LOGS, CONTAINER_LOGS = "/var/log/pods", "/var/log/containers"
_MOST = 8192
"""Entries that are read; a node has some hundred pods."""
_LONGEST = 128
_AGAIN = 10 * SECOND
"""ns after which a pod that was not found is looked for again."""
_SHORT = 12
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
