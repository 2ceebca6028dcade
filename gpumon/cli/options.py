"""Options that several commands share: flags win over the environment, the environment over the file.

The file is `$XDG_CONFIG_HOME/gpumon/config.toml` (or `~/.config/...`) and holds the same names.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

from gpumon.errors import UsageError
from gpumon.paths import Places, places

_NAMES = ("dir", "state-dir", "source", "speed", "interval")


def add_places(parser: argparse.ArgumentParser) -> None:
    """`--dir` and `--state-dir`."""
    group = parser.add_argument_group("directories")
    group.add_argument(
        "--dir",
        metavar="DIR",
        help="live data (GPUMON_DIR); else /run/gpumon, $XDG_RUNTIME_DIR/gpumon, /dev/shm/gpumon-UID",
    )
    group.add_argument("--state-dir", metavar="DIR", help="what survives a reboot (GPUMON_STATE_DIR)")


def add_source(parser: argparse.ArgumentParser, default: str) -> None:
    """`--source`, `--speed` and `--interval`."""
    group = parser.add_argument_group("what is sampled")
    group.add_argument(
        "--source",
        metavar="SOURCE",
        help="nvml (the GPUs of this machine), replay:FILE (a log of nvidia-smi --query-gpu or dmon, also gzipped), "
        f"or sim (a simulation); {default}",
    )
    group.add_argument("--speed", type=float, metavar="N", help="how much faster a recording plays (1)")
    group.add_argument("--interval", type=float, metavar="SECONDS", help="between samples, 0.01 to 60 (1)")


def settle(arguments: argparse.Namespace, env: Mapping[str, str] | None = None) -> tuple[Places, argparse.Namespace]:
    """Fill in what no flag gave, and find the directories. Raises UsageError."""
    env = os.environ if env is None else env
    file = _read_file(env)
    for name in _NAMES:
        attribute = name.replace("-", "_")
        if getattr(arguments, attribute, None) is None:
            variable = f"GPUMON_{attribute.upper()}"
            setattr(arguments, attribute, env.get(variable) or file.get(name))
    arguments.speed = _number("speed", arguments.speed, 1.0)
    arguments.interval = _number("interval", arguments.interval, 1.0)
    return places(arguments.dir, arguments.state_dir, env), arguments


def _number(name: str, value: Any, default: float) -> float:
    if value is None:
        return default
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is a number, not '{value}'") from error


def _read_file(env: Mapping[str, str]) -> dict[str, Any]:
    base = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    path = f"{base}/gpumon/config.toml"
    if not base or not os.path.exists(path):
        return {}
    import tomllib

    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    unknown = sorted(set(found) - set(_NAMES))
    if unknown:
        raise UsageError(f"{path} has an unknown name '{unknown[0]}': it may hold {', '.join(_NAMES)}")
    return found
