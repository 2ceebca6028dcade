"""The frameworks that have a callback, and the oldest version of each that it takes."""

from __future__ import annotations

from collections.abc import Mapping

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
"""Major versions by the names of modules. Ignite of any version, and scikit-learn from 1.9 on, have one too."""


def require(framework: str, installed: str) -> None:
    """Raise FrameworkError where `framework` is `installed` in a version that is too old."""
    if is_too_old(framework, installed):
        least = OLDEST[framework]
        raise FrameworkError(f"gpumon's callback requires {framework} {least}.0 or newer; {installed} is installed")


def is_too_old(framework: str, installed: str) -> bool:
    """Whether this version of `framework` is older than its callback takes; an odd version is not."""
    major = installed.partition(".")[0]
    return major.isdecimal() and len(major) < _LONGEST and int(major) < OLDEST.get(framework, 0)


def missing(framework: str) -> FrameworkError:
    """Return the error to raise if `framework` is not installed."""
    return FrameworkError(
        f"{framework} is not installed: '{pip(f'install {framework}')}' ({OLDEST[framework]}.0 or newer)"
    )


_LONGEST = 6
"""Digits from which on it is no version: Python refuses to read a number of thousands."""
