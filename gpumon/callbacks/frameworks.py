"""The frameworks with a callback, and the oldest supported version of each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gpumon.common.errors import FrameworkError, pip

OLDEST: Mapping[str, int] = {
    "keras": 3,
    "lightning": 2,
    "pytorch_lightning": 2,
    "transformers": 5,
    "accelerate": 1,
    "xgboost": 2,
    "lightgbm": 4,
}
"""Oldest supported major version by module name. There are also callbacks for Ignite (any version) and scikit-learn
(from 1.9)."""
_MAX_DIGITS = 5
"""Maximum digits of a major version. Longer numbers are not versions, and Python refuses to parse very long numbers."""


def import_framework(name: str) -> Any:
    """Import a framework for its callback. Raises FrameworkError if it is not installed or too old."""
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise  # the framework is installed, but one of its own imports is missing
        raise missing(name) from None
    require(name, module.__version__)
    return module


def require(framework: str, installed: str) -> None:
    """Raise FrameworkError if the `installed` version of `framework` is too old."""
    if is_too_old(framework, installed):
        oldest = OLDEST[framework]
        raise FrameworkError(f"gpumon's callback requires {framework} {oldest}.0 or newer; {installed} is installed")


def is_too_old(framework: str, installed: str) -> bool:
    """Whether this version of `framework` is too old for its callback; False if the version cannot be parsed."""
    major = installed.partition(".")[0]
    return major.isdecimal() and len(major) <= _MAX_DIGITS and int(major) < OLDEST.get(framework, 0)


def missing(framework: str) -> FrameworkError:
    """Return the error to raise if `framework` is not installed."""
    return FrameworkError(
        f"{framework} is not installed: '{pip(f'install {framework}')}' ({OLDEST[framework]}.0 or newer)"
    )
