"""Client for a Prometheus-compatible server: handles credentials and TLS, sends queries and parses answers.

Credentials come from a file that only its owner can read. They never appear in a log, an error message or a page.
"""

from __future__ import annotations

import json
import math
import os
import re
import ssl
import stat
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2s
from time import monotonic
from time import time as wall_clock
from types import MappingProxyType
from typing import Any

import httpx

from gpumon.common.config import read_toml
from gpumon.common.errors import GpumonError, UsageError, quoted
from gpumon.common.numbers import NAN
from gpumon.common.paths import require_readable
from gpumon.common.text import clean

_STRINGS = ("token", "username", "password", "ca", "certificate", "key", "node-page")
_KEYS = (*_STRINGS, "headers")
_MIN_SECRET = 4
"""Minimum length of a secret that is masked in messages from Prometheus. A shorter secret may also be an ordinary
word."""
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class PrometheusAccess:
    """Credentials for a Prometheus server. They must never appear in a log, an error message or a page."""

    token: str = ""
    """Token for the header `Authorization: Bearer`."""
    username: str = ""
    password: str = ""
    ca: str = ""
    """File of the certificate authority that signed Prometheus's certificate. If empty, the machine's own authorities
    are used."""
    certificate: str = ""
    """File of the client certificate."""
    key: str = ""
    """File of the client certificate's key, if the key is in a separate file."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Additional request headers, such as `X-Scope-OrgID` for a tenant."""

    node_page: str = ""
    """URL of a node's own pages, such as `https://{host}/gpus/`. `{host}` stands for the node's name. Not a secret."""

    def __repr__(self) -> str:
        return "PrometheusAccess(...)"

    def mask(self, text: str) -> str:
        """Return a message from Prometheus with all secrets masked that were sent to Prometheus."""
        pair = b64encode(f"{self.username}:{self.password}".encode()).decode()
        secrets = {self.token, self.password, pair, *self.headers.values()}
        for secret in sorted((secret for secret in secrets if len(secret) >= _MIN_SECRET), key=len, reverse=True):
            text = text.replace(secret, "…")
        return text


NO_ACCESS = PrometheusAccess()


def read_access(path: str) -> PrometheusAccess:
    """Read the TOML file given by `--prometheus-config`.

    Raises UsageError, whose message never contains text from the file.
    """
    try:
        mode = os.stat(path).st_mode
        settings = read_toml(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        raise UsageError(f'{path} is not a TOML file: write lines such as token = "..."') from None
    if mode & _GROUP_AND_OTHERS:
        raise UsageError(f"other users can read {path}: run 'chmod 600 {quoted(path)}'")
    return _validate(path, settings)


def _validate(path: str, settings: Mapping[str, Any]) -> PrometheusAccess:
    unknown = sorted(set(settings) - set(_KEYS))
    if unknown:
        raise UsageError(f"unknown name '{unknown[0]}' in {path}. Names: {', '.join(_KEYS)}")
    for name in _STRINGS:
        if not _is_line(settings.get(name, "")):
            raise UsageError(f"{name} in {path} must be a single-line string")
    headers = settings.get("headers", {})
    if not isinstance(headers, dict) or not all(_is_line(name) and _is_line(value) for name, value in headers.items()):
        raise UsageError(f"headers in {path} must be a table of single-line strings")
    if settings.get("token") and settings.get("username"):
        raise UsageError(f"{path} has a token and a username: keep one of them")
    if settings.get("key") and not settings.get("certificate"):
        raise UsageError(f"{path} has a key but no certificate: add certificate, or remove key")
    page = settings.get("node-page", "")
    if page and not page.startswith(("http://", "https://")):
        raise UsageError(f"node-page in {path} must be a URL, such as https://{{host}}/gpus/")
    return PrometheusAccess(**{name.replace("-", "_"): value for name, value in settings.items()})


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and (value.isprintable() or not value)


REFUSED = "refuses connections"
DISCONNECTED = "closed the connection before answering"
DENIED = "denied access"
LATE = "did not answer within"
TOO_LONG = "answered with more than"
REDIRECTS = "redirects to"
TOO_MANY = "HTTP 429"
SERVER_ERROR = "the server failed"
NOT_PROMETHEUS = "no Prometheus API there"
UNREADABLE = "Prometheus returned series that gpumon cannot read"
REPORTS = "Prometheus says"
NO_SERIES = "no series of gpumon"

_CHECK_RUNNING = "Check whether Prometheus runs at {url}, and whether this server can reach it."
_CHECK_LOG = "See the log of Prometheus at {url}, or of the proxy in front of it."
_CHECK_URL = "Check whether {url} is the URL of Prometheus itself, and restart 'gpumon web' with the right one."
_CHECK_SCRAPES = (
    "Check whether Prometheus at {url} scrapes 'gpumon export' on the nodes, and whether these targets are up."
)
_ADVICE = (
    (DENIED, "Correct the credentials for {url} in the file given by --prometheus-config, and restart 'gpumon web'."),
    (REFUSED, _CHECK_RUNNING),
    (LATE, "Prometheus at {url} may be overloaded: look at its load, and check whether gpumon's rules are loaded."),
    (TOO_MANY, "Prometheus at {url}, or the proxy in front of it, limits the number of queries: raise its limit."),
    (REDIRECTS, "Restart 'gpumon web' with the URL that {url} redirects to, or with credentials if it is a login."),
    (TOO_LONG, _CHECK_URL),
    (NOT_PROMETHEUS, _CHECK_URL),
    (UNREADABLE, _CHECK_URL),
    (SERVER_ERROR, _CHECK_LOG),
    (DISCONNECTED, _CHECK_LOG),
    (REPORTS, _CHECK_LOG),
    (NO_SERIES, _CHECK_SCRAPES),
)
"""Fragments of error messages, each with advice on what to do. The first match is used."""


def advice(problem: str, url: str) -> str:
    """Return a sentence that says what to do about an error.

    `problem`: the error message. `url`: URL of the server, without credentials.
    """
    text = next((text for words, text in _ADVICE if words in problem), _CHECK_RUNNING)
    return text.format(url=url)


MAX_BYTES = 8 * 2**20
"""Maximum size of an answer in bytes. Reading stops at this size."""
TIMEOUT = 4.0
"""Maximum seconds for an answer. Queries ask Prometheus to give up one second earlier."""
_MAX_ERROR = 160
"""Maximum length of an error message from a Prometheus server that is shown."""
_MAX_LABEL = 200
"""Maximum length of a label's name or value."""
_HEAD, _TAIL, _DIGEST = 8, 8, 3
"""A longer label is shortened to this many letters at each end, and a digest of this many bytes that distinguishes
shortened labels. The result fits into the narrowest cell."""
_FAILED, _TOO_MANY = 500, 429
"""The lowest HTTP status of a server error, and the HTTP status "too many requests"."""
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
"""Matches the prefix of the message of a system error, such as `[Errno 111] `."""
_CONNECTION_REFUSED = "connection refused"
"""Message of the operating system for a refused connection, in lower case."""
_NOTHING_SENT = "without sending"
"""Part of the HTTP client's message if a connection ended before the whole answer arrived."""
_MAX_OFFSET = 10 * 366 * 86400.0
"""Largest plausible difference between two clocks, in seconds."""


class PrometheusError(GpumonError):
    """Raised if a query failed. The message says why, without credentials."""


class PrometheusTimeoutError(PrometheusError):
    """Raised if Prometheus did not answer in time."""


_NO_RAW: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PrometheusSeries:
    """A series in an answer: its labels and its value."""

    labels: Mapping[str, str]
    """Label names and values, sanitized and shortened for display."""
    value: float
    raw: Mapping[str, str] = field(default_factory=dict)
    """Original values of the labels that were changed, for use in later queries."""

    @property
    def node(self) -> str:
        """The node to which the series belongs, from its label `instance`."""
        return self.labels.get("instance", "")


@dataclass(frozen=True, slots=True)
class PrometheusAnswer:
    """The result of an instant query."""

    rows: Sequence[PrometheusSeries]
    warning: str = ""
    """Warning from Prometheus, such as that part of its data was unavailable. Empty if there is none."""


class PrometheusClient:
    """Sends queries to one Prometheus server. Can be used from several threads."""

    def __init__(
        self, url: str, access: PrometheusAccess = NO_ACCESS, transport: httpx.BaseTransport | None = None,
        timeout: float = TIMEOUT, now: Callable[[], float] = wall_clock,
    ) -> None:  # fmt: skip
        """`url`: URL of the server. `timeout`: maximum seconds for an answer. `transport`: for tests.

        Raises UsageError for an invalid URL or certificate.
        """
        self._timeout = timeout
        self._now = now
        self._access = access
        base = _validate_url(url)
        self._url = base.join("api/v1/query")
        self.name = _public_url(base)
        """The URL without credentials, for display."""
        self._label = f"Prometheus at {self.name}"
        # Answers are not compressed: for 1,000 nodes, compression takes Prometheus as long as the query, and a local
        # network is fast.
        headers = {"Accept-Encoding": "identity", **access.headers}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        credentials = (access.username, access.password) if access.username else None
        self._client = httpx.Client(
            auth=credentials, headers=headers, timeout=timeout, transport=transport, trust_env=False,
            follow_redirects=False, verify=_ssl_context(access),
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=8),
        )  # fmt: skip

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        """Return the value of a PromQL expression at a time (s since 1970). Raises PrometheusError."""
        return _parse_vector(self._evaluate(expression, time=f"{at:.3f}"), self._sanitize)

    def clock_offset(self) -> float:
        """Return how many seconds Prometheus's clock is ahead of this machine's clock. Raises PrometheusError.

        The offset is read with a query that contains no time. Prometheus evaluates it for its own current time. The
        header `Date` is not used because it may come from a proxy.
        """
        begun = self._now()
        document = self._evaluate("vector(1)")
        ours = (begun + self._now()) / 2
        try:
            offset = float(document["data"]["result"][0]["value"][0]) - ours
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError):
            offset = math.nan
        if not abs(offset) < _MAX_OFFSET:
            raise PrometheusError("Prometheus did not report its time: check the URL of --prometheus")
        return offset

    def _evaluate(self, expression: str, **more: str) -> Mapping[str, Any]:
        form = {"query": expression, "timeout": f"{max(1.0, self._timeout - 1):g}s", **more}
        deadline = monotonic() + self._timeout
        try:
            with self._client.stream("POST", self._url, data=form) as response:
                if response.is_redirect:
                    target = self._sanitize(_redirect_target(response))
                    hint = "pass that URL to --prometheus, or credentials if it is a login"
                    raise PrometheusError(f"{self._label} {REDIRECTS} {target}: {hint}")
                return _parse_document(response.status_code, self._read(response, deadline), self._sanitize)
        except httpx.TimeoutException as error:
            raise PrometheusTimeoutError(f"{self._label} {LATE} {self._timeout:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            reason = _ERRNO.sub("", self._sanitize(error)).rstrip(".")
            if reason.lower() == _CONNECTION_REFUSED:
                raise PrometheusError(f"{self._label} {REFUSED}") from None
            if isinstance(error, httpx.RemoteProtocolError) and _NOTHING_SENT in reason:
                raise PrometheusError(f"{self._label} {DISCONNECTED}") from None
            raise PrometheusError(f"cannot query Prometheus at {self.name}: {reason or 'no answer'}") from None

    def _sanitize(self, text: object) -> str:
        """Return a message from Prometheus or a proxy for display.

        Secrets are masked, because the message may repeat the credentials that were sent.
        """
        return self._access.mask(clean(str(text)))[:_MAX_ERROR]

    def _read(self, response: httpx.Response, deadline: float) -> bytes:
        parts, size = [], 0
        for part in response.iter_bytes():
            size += len(part)
            if monotonic() > deadline:  # an answer may arrive so slowly that no single read times out
                raise PrometheusTimeoutError(f"{self._label} {LATE} {self._timeout:g} s")
            if size > MAX_BYTES:
                raise PrometheusError(f"{self._label} {TOO_LONG} {MAX_BYTES // 2**20} MiB")
            parts.append(part)
        return b"".join(parts)


def _validate_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise UsageError("--prometheus takes a URL, such as http://prometheus:9090") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError("--prometheus takes a URL, such as http://prometheus:9090")
    if parsed.userinfo:
        raise UsageError("--prometheus takes no password: write it to the file given by --prometheus-config")
    return parsed.copy_with(path=parsed.path.rstrip("/") + "/", query=None, fragment=None)


def _public_url(url: httpx.URL) -> str:
    return str(url.copy_with(userinfo=b"")).rstrip("/")


def _ssl_context(access: PrometheusAccess) -> ssl.SSLContext | bool:
    if not (access.ca or access.certificate):
        return True
    for name, file in (("ca", access.ca), ("certificate", access.certificate), ("key", access.key)):
        try:
            if file:
                require_readable(file)
        except OSError as error:
            raise UsageError(f"cannot read the file {name} of --prometheus-config: {error.strerror or error}") from None
    try:
        context = ssl.create_default_context(cafile=access.ca or None)
        if access.certificate:
            context.load_cert_chain(access.certificate, access.key or None, _no_passphrase)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or "not a PEM certificate"
        raise UsageError(f"cannot use the certificates of --prometheus-config: {reason}") from None
    return context


def _no_passphrase() -> str:
    """Called for an encrypted key. Without this callback, OpenSSL would ask for a passphrase at the terminal."""
    raise UsageError("the key of --prometheus-config is encrypted with a passphrase: use an unencrypted key")


def _redirect_target(response: httpx.Response) -> str:
    try:
        return _public_url(httpx.URL(response.headers.get("Location", "")).copy_with(query=None, fragment=None))
    except httpx.InvalidURL:
        return "an invalid URL"


def _parse_document(status: int, body: bytes, sanitize: Callable[[object], str]) -> Mapping[str, Any]:
    """Return the JSON document of an answer.

    Raises PrometheusError if the answer is an error or does not come from the Prometheus API. `status`: HTTP status.
    `sanitize`: makes text from the answer safe to display.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if status in (401, 403):
        raise PrometheusError(f"Prometheus {DENIED} ({status}): see --prometheus-config")
    if isinstance(document, dict) and document.get("status") == "error":
        raise PrometheusError(f"{REPORTS}: {sanitize(document.get('error', ''))} ({status})")
    if status >= _FAILED or status == _TOO_MANY:  # Prometheus or a proxy in front of it
        raise PrometheusError(f"{SERVER_ERROR}: HTTP {status}")
    if status != 200 or not isinstance(document, dict) or not isinstance(document.get("data"), dict):
        raise PrometheusError(f"{NOT_PROMETHEUS}: HTTP {status}")
    return document


def _parse_vector(document: Mapping[str, Any], sanitize: Callable[[object], str]) -> PrometheusAnswer:
    """Return the series of an instant query. Raises PrometheusError."""
    data = document["data"]
    result = data.get("result")
    if data.get("resultType") != "vector" or not isinstance(result, list):
        raise PrometheusError(UNREADABLE)
    try:
        rows = [_parse_series(item) for item in result]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError):
        raise PrometheusError(UNREADABLE) from None
    return PrometheusAnswer([row for row in rows if math.isfinite(row.value)], _parse_warning(document, sanitize))


@lru_cache(maxsize=65536)
def _clean_label(text: object) -> str:
    """Return the name or value of a label for display.

    Results are cached, because the same few thousand labels recur.
    """
    whole = str(text)
    shown = clean(whole, _MAX_LABEL + 1)
    if len(shown) <= _MAX_LABEL:
        return shown
    digest = blake2s(whole.encode(errors="surrogatepass"), digest_size=_DIGEST).hexdigest()
    return f"{clean(whole[:_HEAD])}…{clean(whole[-_TAIL:])}~{digest}"


def _parse_series(item: Any) -> PrometheusSeries:
    """Parse a series, whose value may be NaN.

    Raises KeyError, TypeError, ValueError or a similar error if something is missing or malformed.
    """
    labels = {_clean_label(name): _clean_label(value) for name, value in item["metric"].items()}
    raw = {name: str(text) for name, text in item["metric"].items() if labels.get(name) != str(text)}
    return PrometheusSeries(labels, float(item["value"][1]), raw or _NO_RAW)


def _parse_warning(document: Mapping[str, Any], sanitize: Callable[[object], str]) -> str:
    """Return the first warning in an answer from Prometheus or Thanos.

    If VictoriaMetrics marks its answer as partial, return a text that says so.
    """
    warnings = document.get("warnings")
    if isinstance(warnings, list) and warnings:
        return sanitize(warnings[0])
    return "the answer lacks part of the data" if document.get("isPartial") is True else ""


Answers = Mapping[str, Sequence[PrometheusSeries]]
"""The rows of each answer, by the name of the query. A query that was never answered is missing."""


def single(answers: Answers, name: str) -> float:
    """Return the value of the only row in the answer to the query `name`, or NaN if there is no row."""
    rows = answers.get(name, ())
    return rows[0].value if len(rows) == 1 else NAN
