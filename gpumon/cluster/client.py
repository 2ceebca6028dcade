"""Access to an engine: credentials, certificates and headers, from a file that only its owner can read."""

from __future__ import annotations

import json
import math
import os
import re
import ssl
import stat
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2s
from time import monotonic
from time import time as wall_clock
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx

from gpumon.common.config import read_toml
from gpumon.common.errors import GpumonError, UsageError, quoted
from gpumon.common.numbers import NAN
from gpumon.common.paths import require_readable
from gpumon.common.text import clean

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


CLOSED = "refuses connections"
BROKE_OFF = "ends connections before it has answered"
REFUSED = "refuses us"
LATE = "has not answered within"
TOO_LONG = "answered with more than"
ELSEWHERE = "sends us elsewhere"
TOO_MANY = "HTTP 429"
FAILED = "an error came in the place of an answer"
NO_ENGINE = "no Prometheus answers there"
SAYS = "the engine says"
NO_SERIES = "no series of gpumon"

_RUNS = "Look whether Prometheus runs at {engine}, and whether this server reaches it."
_LOG = "The log of Prometheus at {engine}, or of the proxy before it, says more."
_URL = "Look whether {engine} is the URL of Prometheus itself, and start 'gpumon web' with the right one."
_SCRAPES = "Look whether Prometheus at {engine} scrapes 'gpumon export' on the nodes, and whether these targets are up."
_STEPS = (
    (REFUSED, "Correct the credentials for {engine} in the file of --prometheus-config, and start 'gpumon web' anew."),
    (CLOSED, _RUNS),
    (LATE, "Prometheus at {engine} may have too much to do: look at its load, and whether gpumon's rules are loaded."),
    (TOO_MANY, "Prometheus at {engine}, or the proxy before it, takes no more questions for now: raise its limit."),
    (ELSEWHERE, "Start 'gpumon web' with the URL to which {engine} sends, or with credentials where that is a login."),
    (TOO_LONG, _URL),
    (NO_ENGINE, _URL),
    (FAILED, _LOG),
    (BROKE_OFF, _LOG),
    (SAYS, _LOG),
    (NO_SERIES, _SCRAPES),
)
"""Words of an error, and what to do about it; the first that fits."""


def what_to_do(problem: str, engine: str) -> str:
    """Return a sentence on what helps where an engine does not answer; `engine`: its URL for people."""
    step = next((step for words, step in _STEPS if words in problem), _RUNS)
    return step.format(engine=engine)


MOST_BYTES = 8 * 2**20
"""Of an answer; a larger one is refused before it is read to its end."""
PATIENCE = 4.0
"""Seconds for an answer; the engine is told to give up a second before."""
_LONGEST_SAID = 160
"""Letters of an engine's error that are repeated."""
_LONGEST_LABEL = 200
_HEAD, _TAIL, _MARK = 8, 8, 3
"""Letters of a longer name from its two ends, and bytes of the mark that tells it from others with the same ends: as
much as the narrowest cell shows."""
_FAILED, _TOO_MANY = 500, 429
"""HTTP statuses of what could not answer just now: from the first one on, and of too many requests."""
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
"""The number of an error of the system, before its words."""
_CLOSED_BY_SYSTEM = "connection refused"
_NOTHING_SENT = "without sending"
"""In the client's words on a connection that ended before all of an answer came."""
_MOST_APART = 10 * 366 * 86400.0
"""Seconds between two clocks; what is further away is no time."""


class EngineError(GpumonError):
    """The engine did not answer a question; the text says why, without credentials."""


class EngineLateError(EngineError):
    """The engine did not answer in time."""


_AS_SHOWN: Mapping[str, str] = MappingProxyType({})


class EngineSeries(NamedTuple):
    """A series of an answer."""

    labels: Mapping[str, str]
    """As people may see them."""
    value: float
    told: Mapping[str, str] = _AS_SHOWN
    """Those that the engine has otherwise, such as longer ones: to ask for them."""


class EngineAnswer(NamedTuple):
    """An answer to a question at one moment."""

    rows: Sequence[EngineSeries]
    warning: str = ""
    """Word of the engine about it, such as that a part of its data was not there; empty for nothing."""


class Engine:
    """Asks one engine; to be used by one thread at a time for each question."""

    def __init__(
        self, url: str, access: EngineAccess = NO_ACCESS, transport: httpx.BaseTransport | None = None,
        patience: float = PATIENCE, now: Callable[[], float] = wall_clock,
    ) -> None:  # fmt: skip
        """`transport`: of tests. Raises UsageError for what is no URL of a server, or a certificate that is none."""
        self._patience = patience
        self._now = now
        self._access = access
        base = _checked_url(url)
        self._query = base.join("api/v1/query")
        self.name = _without_user(base)
        """The URL as people may see it."""
        self._called = f"the engine at {self.name}"
        # To compress an answer of 1,000 nodes takes an engine as long as to find it, and a network near it less.
        headers = {"Accept-Encoding": "identity", **access.headers}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        credentials = (access.username, access.password) if access.username else None
        self._client = httpx.Client(
            auth=credentials, headers=headers, timeout=patience, transport=transport, trust_env=False,
            follow_redirects=False, verify=_trusted(access),
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=8),
        )  # fmt: skip

    def close(self) -> None:
        """Let go of its connections."""
        self._client.close()

    def ask(self, expression: str, at: float) -> EngineAnswer:
        """Evaluate an expression at a moment (s since 1970). Raises EngineError."""
        return _vector(self._asked(expression, time=f"{at:.3f}"), self._shown)

    def ahead(self) -> float:
        """Return the seconds by which its clock is ahead of ours. Raises EngineError.

        It evaluates what comes without a time at its own; the header `Date` may be that of a proxy before it.
        """
        begun = self._now()
        found = self._asked("vector(1)")
        ours = (begun + self._now()) / 2
        try:
            apart = float(found["data"]["result"][0]["value"][0]) - ours
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError):
            apart = math.nan
        if not abs(apart) < _MOST_APART:
            raise EngineError("the engine does not tell its time")
        return apart

    def _asked(self, expression: str, **more: str) -> Mapping[str, Any]:
        form = {"query": expression, "timeout": f"{max(1.0, self._patience - 1):g}s", **more}
        return self._post(form)

    def _post(self, form: Mapping[str, str]) -> Mapping[str, Any]:
        deadline = monotonic() + self._patience
        try:
            with self._client.stream("POST", self._query, data=form) as response:
                if response.is_redirect:
                    elsewhere = self._shown(_elsewhere(response))
                    instead = "give --prometheus that URL, or credentials where it is a login"
                    raise EngineError(f"{self._called} {ELSEWHERE} ({elsewhere}): {instead}")
                return _document(response.status_code, self._read(response, deadline), self._shown)
        except httpx.TimeoutException as error:
            raise EngineLateError(f"{self._called} {LATE} {self._patience:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            why = _ERRNO.sub("", self._shown(error)).rstrip(".")
            if why.lower() == _CLOSED_BY_SYSTEM:
                raise EngineError(f"{self._called} {CLOSED}") from None
            if isinstance(error, httpx.RemoteProtocolError) and _NOTHING_SENT in why:
                raise EngineError(f"{self._called} {BROKE_OFF}") from None
            raise EngineError(f"cannot ask {self.name}: {why or 'no answer'}") from None

    def _shown(self, text: object) -> str:
        """Words of the engine, or of a proxy before it, as people may see them: either may repeat what we showed it."""
        return self._access.masked(clean(str(text)))[:_LONGEST_SAID]

    def _read(self, response: httpx.Response, deadline: float) -> bytes:
        parts, size = [], 0
        for part in response.iter_bytes():
            size += len(part)
            if monotonic() > deadline:  # a drip: no single read is late
                raise EngineLateError(f"{self._called} {LATE} {self._patience:g} s")
            if size > MOST_BYTES:
                raise EngineError(f"{self._called} {TOO_LONG} {MOST_BYTES // 2**20} MiB, which is not read")
            parts.append(part)
        return b"".join(parts)


def _checked_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise UsageError("--prometheus takes a URL, such as http://prometheus:9090") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError("--prometheus takes a URL, such as http://prometheus:9090")
    if parsed.userinfo:
        raise UsageError("--prometheus takes no password: write it into the file of --prometheus-config")
    return parsed.copy_with(path=parsed.path.rstrip("/") + "/", query=None, fragment=None)


def _without_user(url: httpx.URL) -> str:
    return str(url.copy_with(userinfo=b"")).rstrip("/")


def _trusted(access: EngineAccess) -> ssl.SSLContext | bool:
    if not (access.ca or access.certificate):
        return True
    try:
        for file in filter(None, (access.ca, access.certificate, access.key)):
            require_readable(file)
        context = ssl.create_default_context(cafile=access.ca or None)
        if access.certificate:
            context.load_cert_chain(access.certificate, access.key or None, _no_passphrase)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or "no certificate in PEM"
        raise UsageError(f"cannot use the certificates of --prometheus-config: {why}") from None
    return context


def _no_passphrase() -> str:
    """Called for a key that is encrypted: without it, OpenSSL would wait for a passphrase at the terminal."""
    raise UsageError("the key of --prometheus-config is encrypted with a passphrase: pass one that is not")


def _elsewhere(response: httpx.Response) -> str:
    try:
        return _without_user(httpx.URL(response.headers.get("Location", "")).copy_with(query=None, fragment=None))
    except httpx.InvalidURL:
        return "to no URL"


def _document(status: int, body: bytes, shown: Callable[[object], str]) -> Mapping[str, Any]:
    """The data of an answer. Raises EngineError where it is an error, or none of this API."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if status in (401, 403):
        raise EngineError(f"the engine {REFUSED} ({status}): see --prometheus-config")
    if isinstance(found, dict) and found.get("status") == "error":
        raise EngineError(f"{SAYS}: {shown(found.get('error', ''))} ({status})")
    if status >= _FAILED or status == _TOO_MANY:  # of an engine that is there, or of a proxy before it
        raise EngineError(f"{FAILED}: HTTP {status}")
    if status != 200 or not isinstance(found, dict) or not isinstance(found.get("data"), dict):
        raise EngineError(f"{NO_ENGINE}: HTTP {status}")
    return found


def _vector(found: Mapping[str, Any], shown: Callable[[object], str]) -> EngineAnswer:
    """The series of an instant query. Raises EngineError."""
    data = found["data"]
    result = data.get("result")
    if data.get("resultType") != "vector" or not isinstance(result, list):
        raise EngineError("the engine's answer is no list of series")
    try:
        rows = [_row(one) for one in result]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError):
        raise EngineError("the engine's answer cannot be read: a series in it is none") from None
    return EngineAnswer([row for row in rows if math.isfinite(row.value)], _warning(found, shown))


@lru_cache(maxsize=65536)
def _label(text: object) -> str:
    """A name or value of a label as people may see it: the same few thousand come again and again."""
    whole = str(text)
    shown = clean(whole, _LONGEST_LABEL + 1)
    if len(shown) <= _LONGEST_LABEL:
        return shown
    mark = blake2s(whole.encode(errors="surrogatepass"), digest_size=_MARK).hexdigest()
    return f"{clean(whole[:_HEAD])}…{clean(whole[-_TAIL:])}~{mark}"


def _row(one: Any) -> EngineSeries:
    """A series, whose number may be NaN. Raises what its missing or odd parts raise."""
    labels = {_label(name): _label(value) for name, value in one["metric"].items()}
    told = {name: str(text) for name, text in one["metric"].items() if labels.get(name) != str(text)}
    return EngineSeries(labels, float(one["value"][1]), told or _AS_SHOWN)


def _warning(found: Mapping[str, Any], shown: Callable[[object], str]) -> str:
    """Warnings of Prometheus and Thanos, and VictoriaMetrics' word for an answer that lacks a part."""
    warnings = found.get("warnings")
    if isinstance(warnings, list) and warnings:
        return shown(warnings[0])
    return "a part of its data did not answer" if found.get("isPartial") is True else ""


Answers = Mapping[str, Sequence[EngineSeries]]
"""Rows by question; a question that was never answered is not in it."""


def single(answers: Answers, name: str) -> float:
    """Return the value of an answer of one row; NaN without one."""
    rows = answers.get(name, ())
    return rows[0].value if len(rows) == 1 else NAN


def node_of(row: EngineSeries) -> str:
    """Return the node that a row is of."""
    return row.labels.get("instance", "")
