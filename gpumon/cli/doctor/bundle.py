"""A file for bug reports: the doctor's report, packages and environment, without names, addresses and identifiers."""

from __future__ import annotations

import json
import os
import platform
import pwd
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

from gpumon.cli.doctor.machine import Machine
from gpumon.common.errors import UsageError, quoted

_ENVIRONMENT = re.compile(
    r"(?:CUDA|NCCL|NVIDIA|GPUMON|JAX|XLA|TF|PYTORCH|TORCH|KERAS|SLURM_GPUS|OMP)_\w+|LD_LIBRARY_PATH"
)
"""Variables that are included; others may contain secrets."""
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|NOTIFY|URL", re.IGNORECASE)
"""Names of variables whose values are never included."""
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")


def write_bundle(path: str, report: Mapping[str, object], machine: Machine) -> None:
    """Write a bundle that only this user may read. Raises UsageError if the file exists or cannot be written.

    `report`: the document that `gpumon doctor --json` prints.
    """
    environment = {
        name: "(removed)" if _SECRET.search(name) else value
        for name, value in sorted(machine.environ.items())
        if _ENVIRONMENT.fullmatch(name)
    }
    details = {**report, "kernel": platform.release(), "python": platform.python_version(), "environment": environment}
    document = Scrubber(os.uname().nodename, _own_names(machine.environ)).scrub(details)
    packages = {f"{found.metadata['Name']} {found.version}" for found in metadata.distributions()}
    text = json.dumps({**document, "packages": sorted(packages, key=str.lower)}, indent=1)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError:
        raise UsageError(f"{quoted(path)} exists already: pass another path") from None
    except OSError as error:
        raise UsageError(f"{quoted(path)} cannot be written: {error.strerror}") from error


def _own_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of this user and its home directory, longest first."""
    names = {environ.get("USER", ""), environ.get("LOGNAME", ""), environ.get("SUDO_USER", "")}
    with suppress(KeyError):  # in a container, the user may have no entry
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    names |= {os.path.basename(environ.get("HOME", "").rstrip("/"))}
    return sorted(names - {"", "root"}, key=len, reverse=True)


class Scrubber:
    """Replaces this machine's name, users, network addresses and UUIDs in texts. Equal UUIDs stay equal.

    Names are replaced as whole words only, so a user called `cuda` does not change `libcudart`.
    """

    def __init__(self, host: str, users: Sequence[str]) -> None:
        self._uuids: dict[str, int] = {}
        self._names = [
            (re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), replacement)
            for name, replacement in ((host, "HOST"), *((user, "USER") for user in users))
            if name
        ]

    def scrub(self, value: Any) -> Any:
        """Return a JSON value with all its texts replaced; keys of objects stay as they are."""
        if isinstance(value, dict):
            return {key: self.scrub(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.scrub(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = _UUID.sub(lambda match: f"{match[1]}-{self._uuids.setdefault(match[0], len(self._uuids) + 1)}", text)
        text = _ADDRESS.sub("ADDRESS", text)
        for pattern, replacement in self._names:
            text = pattern.sub(replacement, text)
        return text
