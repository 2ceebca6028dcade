"""The file that says who may scrape: the format of `--web.config.file` of Prometheus' own programs (exporter-toolkit).

What of it this server cannot do is refused by name, never left out: a setting of safety that is silently without
effect is worse than none. https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import os
import re
import ssl
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpumon.common.errors import GpumonError, MissingPackage
from gpumon.common.paths import read_regular, require_readable

_SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users")
_TLS = (
    "cert_file", "key_file", "client_ca_file", "client_auth_type", "client_allowed_sans", "min_version", "max_version",
    "prefer_server_cipher_suites",
)  # fmt: skip
_HTTP = ("http2", "headers")
_HEADERS = (
    "Strict-Transport-Security", "X-Content-Type-Options", "X-Frame-Options", "X-XSS-Protection",
    "Content-Security-Policy",
)  # fmt: skip
_VERSIONS = {
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENTS: Mapping[str, ssl.VerifyMode] = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_COSTS = range(4, 16)
"""Of bcrypt, which takes 2 s at 15 and doubles with each: one check at a time, so a dearer one keeps all out."""
_LARGEST = 1 << 20


class TlsConfig(NamedTuple):
    """Certificates of the server, and those that it asks clients for. Files are read when the context is made."""

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    clients: ssl.VerifyMode = ssl.CERT_NONE
    allowed_names: tuple[str, ...] = ()
    """Subject alternative names, of which a client's certificate must have one; none: any will do."""
    lowest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3

    def context(self) -> ssl.SSLContext:
        """Return the context of the server. Raises GpumonError with the file that is wrong."""
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.minimum_version, found.maximum_version = self.lowest, self.highest
        try:
            require_readable(self.cert_file)
            require_readable(self.key_file)
            found.load_cert_chain(self.cert_file, self.key_file, self._no_passphrase)
        except (OSError, ssl.SSLError) as error:
            raise GpumonError(
                f"cannot use the certificate {self.cert_file} with the key {self.key_file}: {_why(error)}"
            ) from error
        found.verify_mode = self.clients
        if self.client_ca_file:
            try:
                require_readable(self.client_ca_file)
                found.load_verify_locations(self.client_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise GpumonError(f"cannot use the CA file {self.client_ca_file}: {_why(error)}") from error
        return found

    def _no_passphrase(self) -> str:
        """Called for a key that is encrypted: without it, OpenSSL would wait for a passphrase at the terminal."""
        raise GpumonError(f"the key {self.key_file} is encrypted with a passphrase: pass one that is not")


class WebConfig(NamedTuple):
    """Settings of the file."""

    tls: TlsConfig | None = None
    users: Mapping[str, str] = {}
    """Hashes of bcrypt, by name."""
    headers: Mapping[str, str] = {}
    """That go with every answer."""


def read_web_config(file: str) -> WebConfig:
    """Return what a file says. Raises GpumonError, in one line, for anything that is wrong with it."""
    try:
        import yaml
    except ImportError as error:
        raise MissingPackage("--web-config", "pyyaml") from error
    try:
        text = read_regular(file, _LARGEST, follow=True)
        found = yaml.safe_load(text)
        _refuse_twice(file, yaml.compose(text, yaml.SafeLoader))
    except OSError as error:
        raise GpumonError(f"cannot read {file}: {error.strerror or error}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise GpumonError(f"{file} is not YAML: {' '.join(str(error).split())[:200]}") from error
    if not found:
        raise GpumonError(f"{file} is empty: write into it who may scrape, or omit --web-config")
    sections = _mapping(file, "", found, _SECTIONS)
    for name in ("tls_server_config", "basic_auth_users"):
        if name in sections and not sections[name]:
            raise GpumonError(f"{file}: there is nothing in {name}: fill it in, or remove it")
    tls = _mapping(file, "tls_server_config", sections.get("tls_server_config") or {}, _TLS)
    http = _mapping(file, "http_server_config", sections.get("http_server_config") or {}, _HTTP)
    headers = _mapping(file, "headers", http.get("headers") or {}, _HEADERS)
    return WebConfig(_tls(file, tls), _users(file, sections.get("basic_auth_users") or {}), _texts(file, headers))


def _tls(file: str, told: Mapping[str, Any]) -> TlsConfig | None:
    if not told:
        return None
    clients = _word(file, told, "client_auth_type")
    if clients not in _CLIENTS:
        raise GpumonError(f"{file}: client_auth_type is one of {', '.join(filter(None, _CLIENTS))}, not '{clients}'")
    files = [_path(file, told, name) for name in ("cert_file", "key_file", "client_ca_file")]
    if not (files[0] and files[1]):
        raise GpumonError(f"{file}: tls_server_config requires cert_file and key_file")
    if _CLIENTS[clients] is not ssl.CERT_NONE and not files[2]:
        raise GpumonError(f"{file}: client_auth_type {clients} requires client_ca_file")
    if files[2] and _CLIENTS[clients] is ssl.CERT_NONE:
        raise GpumonError(f"{file}: client_ca_file requires client_auth_type, such as RequireAndVerifyClientCert")
    names = told.get("client_allowed_sans") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise GpumonError(f"{file}: client_allowed_sans must be a list of names")
    if names and _CLIENTS[clients] is not ssl.CERT_REQUIRED:
        raise GpumonError(f"{file}: client_allowed_sans requires client_auth_type RequireAndVerifyClientCert")
    lowest, highest = (_version(file, told, name, usual)
                       for name, usual in (("min_version", "TLS12"), ("max_version", "TLS13")))  # fmt: skip
    if lowest > highest:
        raise GpumonError(f"{file}: min_version is above max_version: nobody could connect")
    return TlsConfig(files[0], files[1], files[2], _CLIENTS[clients], tuple(names), lowest, highest)


def _version(file: str, told: Mapping[str, Any], name: str, usual: str) -> ssl.TLSVersion:
    version = _word(file, told, name) or usual
    if version not in _VERSIONS:
        raise GpumonError(f"{file}: {name} is {' or '.join(_VERSIONS)}, not '{version}'")
    return _VERSIONS[version]


def _path(file: str, told: Mapping[str, Any], name: str) -> str:
    """A path of the file, which counts from where it lies."""
    path = _word(file, told, name, "a path")
    return os.path.join(os.path.dirname(os.path.abspath(file)), path) if path else ""


def _word(file: str, told: Mapping[str, Any], name: str, what: str = "one word") -> str:
    word = told.get(name) or ""
    if not isinstance(word, str) or not word.isprintable():
        raise GpumonError(f"{file}: {name} must be {what}")
    return word


def _users(file: str, told: Any) -> dict[str, str]:
    users = _texts(file, _mapping(file, "basic_auth_users", told))
    for user, hashed in users.items():
        found = _BCRYPT.fullmatch(hashed)
        if not found:
            raise GpumonError(f"{file}: the password of '{user}' must be a hash of bcrypt: 'htpasswd -nBC 10 \"\"'")
        if int(found[1]) not in _COSTS:
            raise GpumonError(f"{file}: the hash of '{user}' has cost {found[1]}: make one with 4 to {_COSTS[-1]}")
    return users


def _refuse_twice(file: str, node: Any) -> None:
    """Refuse a key that a mapping has twice: YAML takes the last, and whoever wrote the first believes in it."""
    waiting: list[Any] = [node]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen or isinstance(one.value, str):
            continue
        seen.add(id(one))  # an alias is the same node again
        if one.id == "mapping":
            keys = Counter(key.value for key, _ in one.value if isinstance(key.value, str))
            for key, count in keys.items():
                if count > 1:
                    raise GpumonError(f"{file}: '{key}' is there twice: remove one")
        waiting += [part for pair in one.value for part in (pair if isinstance(pair, tuple) else (pair,))]


def _mapping(file: str, where: str, told: Any, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """`told` as a mapping with no other keys than `known`, where there are any."""
    if not isinstance(told, dict) or not all(isinstance(key, str) for key in told):
        raise GpumonError(f"{file}: {where or 'the file'} must be a mapping")
    for key in told:
        if known and key not in known:
            raise GpumonError(f"{file}: gpumon does not know '{key}'{f' of {where}' if where else ''}: remove it")
    return told


def _texts(file: str, told: Mapping[str, Any]) -> dict[str, str]:
    for key, value in told.items():
        if not isinstance(value, str) or not value.isprintable():
            raise GpumonError(f"{file}: '{key}' must be a text of one line")
    return dict(told)


def _why(error: OSError) -> str:
    return error.strerror or str(error)
