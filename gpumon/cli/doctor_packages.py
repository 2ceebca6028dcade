"""Python and the frameworks beside it, as `gpumon doctor` finds them: by their versions, and unimported."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from gpumon.callbacks.oldest import OLDEST, is_too_old
from gpumon.common.checkup import Check, Condition
from gpumon.common.errors import pip

_OTHERS = ("torch", "tensorflow", "jax", "pytorch-ignite", "scikit-learn")
"""Distributions beside those whose callback takes no version older than some."""
_BINDINGS, _OTHER_BINDINGS = "nvidia-ml-py", "pynvml"
_OWN_MODULE_BEFORE = ("11", "8")
"""Beginnings of the versions of the package pynvml that bring a module of their own: later ones take nvidia-ml-py's."""
_ONLY_CPU, _ROCM = "+cpu", "+rocm"
"""Part of the version of a torch that was built without CUDA."""


def installed(name: str) -> str:
    """Return the version of a distribution; empty where there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def package_checks(has_gpu: bool, version_of: Callable[[str], str] = installed, encoding: str = "utf-8") -> list[Check]:
    """Check the packages beside gpumon.

    `version_of` gives the version of a distribution, empty for none; `encoding` is that of the output.
    """
    python = Check("Python", Condition.OK, f"{platform.python_version()} in {sys.prefix}")
    return [python, *_terminal(encoding), *_bindings(version_of), *_frameworks(version_of, has_gpu)]


def _terminal(encoding: str) -> Iterator[Check]:
    if "utf" not in encoding.lower():
        text = f"the output is {encoding or 'of no known encoding'}: views draw in plain characters"
        yield Check("terminal", Condition.NOTE, text, "'export LANG=C.UTF-8' where the terminal can do more")


def _bindings(version_of: Callable[[str], str]) -> Iterator[Check]:
    version, other = version_of(_BINDINGS), version_of(_OTHER_BINDINGS)
    if other.startswith(_OWN_MODULE_BEFORE):
        text = f"the package {_OTHER_BINDINGS} {other} brings a module of the same name"
        remedy = (
            f"'{pip(f'uninstall {_OTHER_BINDINGS}')}', then '{pip(f'install --force-reinstall {_BINDINGS}')}', in this "
            "environment alone"
        )
        yield Check(_BINDINGS, Condition.WARNING, text, remedy)
    else:
        yield Check(_BINDINGS, Condition.OK, version or "of an unknown version")


def _frameworks(version_of: Callable[[str], str], has_gpu: bool) -> Iterator[Check]:
    names = (*_OTHERS, *(name.replace("_", "-") for name in OLDEST))
    found = {name: version for name in names if (version := version_of(name))}
    told = ", ".join(f"{name} {version}" for name, version in found.items())
    yield Check("frameworks", Condition.OK if told else Condition.NOTE, told or "none in this environment")
    for name, version in found.items():
        module = name.replace("-", "_")
        if is_too_old(module, version):
            text = f"{version} is older than gpumon's callback takes"
            yield Check(name, Condition.WARNING, text, f"{OLDEST[module]}.0 or newer; any loop has gpumon.run()")
    torch = found.get("torch", "")
    if torch.endswith(_ONLY_CPU) or (has_gpu and _ROCM in torch):
        remedy = "a build with CUDA trains on NVIDIA's GPUs" if has_gpu else ""
        text = f"{torch} uses no GPU" if torch.endswith(_ONLY_CPU) else f"{torch} uses AMD's GPUs alone"
        yield Check("torch", Condition.WARNING if has_gpu else Condition.NOTE, text, remedy)
