"""Access to an engine: credentials, certificates and headers, from a file that only its owner can read."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpumon.common.config import read_toml
from gpumon.common.errors import UsageError, quoted

_TEXTS = ("token", "username", "password", "ca", "certificate", "key", "node-page")
_NAMES = (*_TEXTS, "headers")
_SHORTEST = 4
"""Letters from which on a text of the file is looked for in what an engine says: shorter ones are in every sentence."""
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class EngineAccess(NamedTuple):
    """Proof of who asks; never in a log, an error or a page."""

    token: str = ""
    """Of `Authorization: Bearer`."""
    username: str = ""
    password: str = ""
    ca: str = ""
    """File of the authority that signed the engine's certificate; empty for those of the machine."""
    certificate: str = ""
    """File of our own certificate."""
    key: str = ""
    """File of its key, where that is another one."""
    headers: Mapping[str, str] = {}
    """Further headers, such as `X-Scope-OrgID` of a tenant."""

    node_page: str = ""
    """Address of the pages of a node, with `{host}` for its name, such as `https://{host}/gpus/`; no secret."""

    def __repr__(self) -> str:
        return "EngineAccess(...)"

    def masked(self, text: str) -> str:
        """Return what somebody else says without what we showed them."""
        pair = b64encode(f"{self.username}:{self.password}".encode()).decode()
        shown = [self.token, self.password, pair, *self.headers.values()]
        for secret in sorted({one for one in shown if len(one) >= _SHORTEST}, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text


NO_ACCESS = EngineAccess()


def read_access(path: str) -> EngineAccess:
    """Read the TOML file of `--prometheus-config`. Raises UsageError, which never repeats what stands in it."""
    try:
        mode = os.stat(path).st_mode
        found = read_toml(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        raise UsageError(f'{path} is no TOML file: write lines such as token = "..."') from None
    if mode & _OF_OTHERS:
        raise UsageError(f"{path} can be read by others: chmod 600 {quoted(path)}")
    return _checked(path, found)


def _checked(path: str, found: Mapping[str, Any]) -> EngineAccess:
    unknown = sorted(set(found) - set(_NAMES))
    if unknown:
        raise UsageError(f"unknown name '{unknown[0]}' in {path}. Names: {', '.join(_NAMES)}")
    for name in _TEXTS:
        if not _is_line(found.get(name, "")):
            raise UsageError(f"{name} in {path} must be a string of one line")
    headers = found.get("headers", {})
    if not isinstance(headers, dict) or not all(_is_line(name) and _is_line(value) for name, value in headers.items()):
        raise UsageError(f"headers in {path} must be a table of strings of one line")
    if found.get("token") and found.get("username"):
        raise UsageError(f"{path} has a token and a username: an engine takes one of them")
    if found.get("key") and not found.get("certificate"):
        raise UsageError(f"{path} has a key without its certificate")
    page = found.get("node-page", "")
    if page and not page.startswith(("http://", "https://")):
        raise UsageError(f"node-page in {path} must be a URL, such as https://{{host}}/gpus/")
    return EngineAccess(**{name.replace("-", "_"): value for name, value in found.items()})


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and (value.isprintable() or not value)
