"""Reads the file of `--web-config`, in the format of `--web.config.file` in Prometheus' programs (exporter-toolkit).

A setting that this server does not support is an error, because a security setting must not be ignored silently.
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import os
import re
import ssl
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpumon.common.config import read_settings
from gpumon.common.errors import GpumonError, MissingPackage
from gpumon.common.paths import require_readable

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
_VERIFY_MODES: Mapping[str, ssl.VerifyMode] = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_COSTS = range(4, 16)
"""Allowed cost parameters of bcrypt. A check takes 2 s at cost 15, and each further step doubles the time. Checks run
one at a time, so slow ones would block all scrapers."""
_MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Certificate of the server, and its requirements for client certificates. `context` reads the files."""

    cert_file: str
    key_file: str
    client_ca_file: str = ""
    verify_mode: ssl.VerifyMode = ssl.CERT_NONE
    allowed_names: tuple[str, ...] = ()
    """A client's certificate must have one of these subject alternative names. Empty allows any."""
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    max_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3

    def context(self) -> ssl.SSLContext:
        """Return the server's TLS context. Raises GpumonError, whose message names the invalid file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version, context.maximum_version = self.min_version, self.max_version
        try:
            require_readable(self.cert_file)
            require_readable(self.key_file)
            context.load_cert_chain(self.cert_file, self.key_file, self._no_passphrase)
        except (OSError, ssl.SSLError) as error:
            raise GpumonError(
                f"cannot use the certificate {self.cert_file} with the key {self.key_file}: {_reason(error)}"
            ) from error
        context.verify_mode = self.verify_mode
        if self.client_ca_file:
            try:
                require_readable(self.client_ca_file)
                context.load_verify_locations(self.client_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise GpumonError(f"cannot use the CA file {self.client_ca_file}: {_reason(error)}") from error
        return context

    def _no_passphrase(self) -> str:
        """Called for an encrypted key. Without this function, OpenSSL would wait for a passphrase at the terminal."""
        raise GpumonError(f"the key {self.key_file} is encrypted with a passphrase: use an unencrypted key")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The settings in the file."""

    tls: TlsConfig | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    """Bcrypt hashes of passwords, by user name."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that are added to every response."""


def read_web_config(file: str) -> WebConfig:
    """Read and check the file. Raises GpumonError, whose message is one line about the first problem."""
    try:
        import yaml
    except ImportError as error:
        raise MissingPackage("--web-config", "pyyaml") from error
    try:
        text = read_settings(file, _MAX_SIZE)
        document = yaml.safe_load(text)
        _reject_duplicate_keys(file, yaml.compose(text, yaml.SafeLoader))
    except OSError as error:
        raise GpumonError(f"cannot read {file}: {error.strerror or error}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise GpumonError(f"{file} is not YAML: {' '.join(str(error).split())[:200]}") from error
    if not document:
        raise GpumonError(f"{file} is empty: configure who may scrape, or omit --web-config")
    sections = _parse_mapping(file, "", document, _SECTIONS)
    for name in ("tls_server_config", "basic_auth_users"):
        if name in sections and not sections[name]:
            raise GpumonError(f"{file}: nothing in {name}: fill it in, or remove it")
    tls = _parse_mapping(file, "tls_server_config", sections.get("tls_server_config") or {}, _TLS)
    http = _parse_mapping(file, "http_server_config", sections.get("http_server_config") or {}, _HTTP)
    headers = _parse_mapping(file, "headers", http.get("headers") or {}, _HEADERS)
    return WebConfig(
        _parse_tls(file, tls), _parse_users(file, sections.get("basic_auth_users") or {}), _parse_strings(file, headers)
    )


def _parse_tls(file: str, settings: Mapping[str, Any]) -> TlsConfig | None:
    if not settings:
        return None
    auth_type = _parse_word(file, settings, "client_auth_type")
    if auth_type not in _VERIFY_MODES:
        types = ", ".join(filter(None, _VERIFY_MODES))
        raise GpumonError(f"{file}: client_auth_type must be one of {types}, not '{auth_type}'")
    files = [_parse_path(file, settings, name) for name in ("cert_file", "key_file", "client_ca_file")]
    if not (files[0] and files[1]):
        raise GpumonError(f"{file}: tls_server_config requires cert_file and key_file")
    if _VERIFY_MODES[auth_type] is not ssl.CERT_NONE and not files[2]:
        raise GpumonError(f"{file}: client_auth_type {auth_type} requires client_ca_file")
    if files[2] and _VERIFY_MODES[auth_type] is ssl.CERT_NONE:
        raise GpumonError(f"{file}: client_ca_file requires client_auth_type, such as RequireAndVerifyClientCert")
    names = settings.get("client_allowed_sans") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise GpumonError(f"{file}: client_allowed_sans must be a list of names")
    if names and _VERIFY_MODES[auth_type] is not ssl.CERT_REQUIRED:
        raise GpumonError(f"{file}: client_allowed_sans requires client_auth_type RequireAndVerifyClientCert")
    min_version = _parse_version(file, settings, "min_version", "TLS12")
    max_version = _parse_version(file, settings, "max_version", "TLS13")
    if min_version > max_version:
        raise GpumonError(f"{file}: min_version is above max_version, so no client could connect")
    return TlsConfig(files[0], files[1], files[2], _VERIFY_MODES[auth_type], tuple(names), min_version, max_version)


def _parse_version(file: str, settings: Mapping[str, Any], name: str, default: str) -> ssl.TLSVersion:
    version = _parse_word(file, settings, name) or default
    if version not in _VERSIONS:
        raise GpumonError(f"{file}: {name} is {' or '.join(_VERSIONS)}, not '{version}'")
    return _VERSIONS[version]


def _parse_path(file: str, settings: Mapping[str, Any], name: str) -> str:
    """Return the path in a setting. A relative path starts at the folder of `file`."""
    path = _parse_word(file, settings, name, "a path")
    return os.path.join(os.path.dirname(os.path.abspath(file)), path) if path else ""


def _parse_word(file: str, settings: Mapping[str, Any], name: str, kind: str = "one word") -> str:
    word = settings.get(name) or ""
    if not isinstance(word, str) or not word.isprintable():
        raise GpumonError(f"{file}: {name} must be {kind}")
    return word


def _parse_users(file: str, value: Any) -> dict[str, str]:
    users = _parse_strings(file, _parse_mapping(file, "basic_auth_users", value))
    for user, hashed in users.items():
        match = _BCRYPT.fullmatch(hashed)
        if not match:
            raise GpumonError(f"{file}: the password of '{user}' must be a bcrypt hash: 'htpasswd -nBC 10 \"\"'")
        if int(match[1]) not in _COSTS:
            raise GpumonError(f"{file}: the hash of '{user}' has cost {match[1]}: make one with 4 to {_COSTS[-1]}")
    return users


def _reject_duplicate_keys(file: str, node: Any) -> None:
    """Raise GpumonError if a mapping has a key twice, because YAML would silently use the last value."""
    stack: list[Any] = [node]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if current is None or id(current) in seen or isinstance(current.value, str):
            continue
        seen.add(id(current))  # an alias refers to a node that was already visited
        if current.id == "mapping":
            keys = Counter(key.value for key, _ in current.value if isinstance(key.value, str))
            for key, count in keys.items():
                if count > 1:
                    raise GpumonError(f"{file}: '{key}' appears twice: remove one")
        stack += [part for pair in current.value for part in (pair if isinstance(pair, tuple) else (pair,))]


def _parse_mapping(file: str, section: str, value: Any, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a value that must be a mapping. `known`: the allowed keys; empty allows any."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise GpumonError(f"{file}: {section or 'the top level'} must be a mapping")
    for key in value:
        if known and key not in known:
            raise GpumonError(f"{file}: unsupported key '{key}'{f' in {section}' if section else ''}: remove it")
    return value


def _parse_strings(file: str, mapping: Mapping[str, Any]) -> dict[str, str]:
    for key, value in mapping.items():
        if not isinstance(value, str) or not value.isprintable():
            raise GpumonError(f"{file}: '{key}' must be a string of one line")
    return dict(mapping)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
