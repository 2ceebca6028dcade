"""Answers as they are sent: JSON or text, compressed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from typing import Any

from gpumon_web.answers import Packed


def packed(value: Any, version: Any = None) -> Packed:
    """`value` as JSON, compressed."""
    return Packed(
        gzip.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), 5, mtime=0), version
    )


def compressed(parts: Iterable[bytes]) -> bytes:
    """All parts together compressed, without ever having them all in memory as they are."""
    from zlib import compressobj

    packer = compressobj(5, wbits=31)
    return b"".join((*(packer.compress(part) for part in parts), packer.flush()))
