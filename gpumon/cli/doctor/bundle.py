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

_ENVIRONMENT = (
    "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_VISIBLE_DEVICES", "GPUMON_DIR", "GPUMON_INTERVAL", "GPUMON_SOURCE", "GPUMON_STATE_DIR", "JAX_PLATFORMS",
    "KERAS_BACKEND", "LD_LIBRARY_PATH", "NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE",
    "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING", "TF_ENABLE_ONEDNN_OPTS", "TF_FORCE_GPU_ALLOW_GROWTH",
    "XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE",
)  # fmt: skip
"""Variables that are included. Any other may contain a secret."""
_PACKAGES = re.compile(
    r"(?:nvidia|cuda|torch|tensorflow|jax|keras|lightning|pytorch|transformers|accelerate|xgboost|lightgbm|scikit-learn|"
    r"numpy|pynvml|gpumon|psutil|textual|rich|dash|plotly|fastapi|starlette|uvicorn|httptools|triton|deepspeed)(?:[-_].*)?",
    re.IGNORECASE,
)
"""Distributions that are included. Others may be private."""
_UUID = re.compile(r"\b(GPU|MIG|XCP-\d{1,2})-[0-9a-fA-F]{8,16}(?:-[0-9a-fA-F]{1,12})*")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b|(?<![\w:])(?=[0-9a-fA-F:]*::)[0-9a-fA-F:]{3,39}(?![\w:])")
"""An IPv4 address, or an IPv6 address with `::`, as link-local and most others have."""
_LOGIN = re.compile(r"(?<=://)[^\s/@]+@")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_HOME = re.compile(r"(?<=/home/)[^/\s:'\"]+")


def write_bundle(path: str, report: Mapping[str, object], machine: Machine) -> None:
    """Write a bundle that only this user may read. Raises UsageError if the file exists or cannot be written.

    `report`: the document that `gpumon doctor --json` prints.
    """
    environment = {name: machine.environ[name] for name in _ENVIRONMENT if name in machine.environ}
    details = {**report, "kernel": platform.release(), "python": platform.python_version(), "environment": environment}
    document = Scrubber(os.uname().nodename, _own_names(machine.environ)).scrub(details)
    packages = {
        f"{found.name} {found.version}" for found in metadata.distributions() if _PACKAGES.fullmatch(found.name or "")
    }
    text = json.dumps({**document, "packages": sorted(packages, key=str.lower)}, indent=1)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{quoted(path)} exists already: pass another path") from None
    except OSError as error:
        raise UsageError(f"{quoted(path)} cannot be written: {error.strerror}") from error
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        os.unlink(path)  # an incomplete file is useless, and the next attempt would fail because it exists
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
            (re.compile(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])"), replacement)
            for name, replacement in (
                (host, "HOST"),
                (host.partition(".")[0], "HOST"),
                *((user, "USER") for user in users),
            )
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
        for pattern, replacement in ((_LOGIN, ""), (_MAIL, "MAIL"), (_HOME, "USER"), (_ADDRESS, "ADDRESS")):
            text = pattern.sub(replacement, text)
        for pattern, replacement in self._names:
            text = pattern.sub(replacement, text)
        return text
