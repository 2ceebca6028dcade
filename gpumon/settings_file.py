"""Small files of a user's own settings: where they lie, and how they are read."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from gpumon.regular_file import read_regular

MOST_BYTES = 64 * 1024
"""Of a file; a larger one is none of ours."""


def settings_path(env: Mapping[str, str], name: str) -> str:
    """Return the path of the file of that name, `~/.config/gpumon/...`; empty where there is no home."""
    base = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    return f"{base}/gpumon/{name}" if base else ""


def read_settings(path: str) -> bytes:
    """Read the file, without waiting for what is no file. Raises OSError, also where it is too large."""
    content = read_regular(path, MOST_BYTES + 1, follow=True)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, "too large for a settings file", path)
    return content


def read_toml(path: str) -> dict[str, Any]:
    """Read and parse the file. Raises OSError where it cannot be read, ValueError for what is no TOML."""
    import tomllib

    try:
        return tomllib.loads(read_settings(path).decode())
    except UnicodeDecodeError:
        raise ValueError("not a text in UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
