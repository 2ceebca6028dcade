"""Notifies users that a command has ended, with a program that they choose or a request to a URL.

URLs of hosted chat services contain a secret. So a URL is read from a file that only its owner can read. It is never
taken from the command line, which every user of the machine can see.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import stat
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from time import monotonic, sleep
from typing import IO, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from gpumon.common.errors import GpumonError, UsageError, quoted
from gpumon.common.paths import open_regular

_FILE = "@"
"""First character of a target that names a file with a URL."""
_MAX_URL = 4096
_ATTEMPTS, _PAUSE = 3, 1.0
_TIMEOUT = 5.0
"""Maximum seconds for one request."""
_TOTAL_TIMEOUT = 12.0
"""Maximum seconds for a notification. The caller of the command waits for it."""
_JSON_KEYS: Mapping[str, str] = {"hooks.slack.com": "text", "discord.com": "content", "discordapp.com": "content"}
"""By host of a service: the key of the text in the JSON that the service expects. Other services, such as ntfy, get
plain text."""
_MAX_TEXT = 1900
"""Maximum number of characters of a notification. Discord rejects more than 2,000."""


@dataclass(frozen=True, slots=True)
class Notification:
    """The text and the facts of a notification."""

    title: str
    """One line: the name of the command, and how it ended."""
    body: str
    """The cost of the command, as `gpumon run` prints it."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for a program, such as GPUMON_EXIT_CODE."""


class Target(Protocol):
    """A destination of notifications."""

    def send(self, notification: Notification) -> None:
        """Deliver a notification. Raises GpumonError, whose message contains no secret."""


def parse_target(text: str, argument: str = "--notify") -> Target:
    """Return the target of `--notify`: a program, or `@FILE` with a URL. Raises UsageError, which names `argument`.

    The file must belong to this user or root, and others must not be able to read it.
    """
    if text.startswith(_FILE):
        return _web_target(_read_url(text.removeprefix(_FILE), argument))
    if "://" in text:
        raise UsageError(
            f"{argument}: every user can see a URL on the command line. Write the URL to a file of mode 0600, and pass "
            "@FILE"
        )
    program = shutil.which(text)
    if program is None:
        raise UsageError(f"{argument}: no such program: {text}. Pass a program, or @FILE for a file with a URL")
    return ProgramTarget(program)


@dataclass(frozen=True, slots=True)
class ProgramTarget:
    """A program that gets the notification on its standard input, and facts in its environment."""

    program: str

    def send(self, notification: Notification) -> None:
        try:
            process = subprocess.Popen(
                [self.program], text=True, errors="replace",
                env={**os.environ, "GPUMON_TITLE": notification.title, **notification.facts},
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise GpumonError(f"{self.program} failed: {error}") from None
        try:
            process.communicate(f"{notification.title}\n{notification.body}", timeout=_TOTAL_TIMEOUT)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started
            process.wait()
            raise GpumonError(f"{self.program} failed: it did not end in time") from None
        if process.returncode:
            raise GpumonError(f"{self.program} failed: exit code {process.returncode}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, so that a notification cannot be diverted to another server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


@dataclass(frozen=True, slots=True)
class WebTarget:
    """A URL that gets a POST request.

    Slack and Discord get JSON. Others, such as ntfy, get plain text with a header `Title`.
    """

    url: str = field(repr=False)
    """The URL without a login."""
    authorization: str = field(default="", repr=False)
    """Value of the Authorization header; empty if the URL has no login."""

    def send(self, notification: Notification) -> None:
        # In a thread, because timeouts count for each read: a server that sends a byte now and then would never end.
        failures: list[GpumonError] = []
        thread = threading.Thread(target=self._send, args=(notification, failures), daemon=True)
        thread.start()
        thread.join(_TOTAL_TIMEOUT)
        if thread.is_alive():
            raise GpumonError(f"{urlsplit(self.url).hostname} did not accept the notification: no answer")
        if failures:
            raise failures[0]

    def _send(self, notification: Notification, failures: list[GpumonError]) -> None:
        """Send a notification; if that fails, append the error to `failures`."""
        try:
            self._post(notification)
        except GpumonError as error:
            failures.append(error)

    def _post(self, notification: Notification) -> None:
        host = urlsplit(self.url).hostname or ""
        text = f"{notification.title}\n{notification.body}"[:_MAX_TEXT]
        key = _JSON_KEYS.get(host)
        if key is not None:
            data, headers = json.dumps({key: text}).encode(), {"Content-Type": "application/json"}
        else:
            data = notification.body[:_MAX_TEXT].encode()
            title = notification.title.encode("ascii", "replace").decode()  # a header can contain only ASCII
            headers = {"Content-Type": "text/plain; charset=utf-8", "Title": title}
        if self.authorization:
            headers["Authorization"] = self.authorization
        request = urllib.request.Request(self.url, data, headers, method="POST")
        opener = urllib.request.build_opener(_NoRedirect)
        deadline, problem = monotonic() + _TOTAL_TIMEOUT, ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                sleep(_PAUSE)
            remaining = deadline - monotonic()
            if remaining <= 0:
                break
            try:
                with opener.open(request, timeout=min(_TIMEOUT, remaining)):
                    return
            except urllib.error.HTTPError as error:
                problem = f"HTTP {error.code}"
                if error.code < 500 and error.code != 429:
                    break  # another attempt would fail in the same way
            except (OSError, HTTPException, ValueError) as error:
                problem = type(error).__name__ if not isinstance(error, OSError) else str(error.strerror or error)
        raise GpumonError(f"{host} did not accept the notification: {problem or 'no answer'}")


def _web_target(url: str) -> WebTarget:
    """Return the target of a URL. A login in it (`https://user:password@host`) is sent as Basic authentication."""
    parts = urlsplit(url)
    login, at, address = parts.netloc.rpartition("@")
    if not at:
        return WebTarget(url)
    basic = base64.b64encode(":".join(map(unquote, login.partition(":")[::2])).encode()).decode()
    return WebTarget(urlunsplit(parts._replace(netloc=address)), f"Basic {basic}")


def _read_url(path: str, argument: str) -> str:
    try:
        fd = open_regular(path, follow=True)
    except OSError as error:
        raise UsageError(f"{argument}: cannot read {path}: {error.strerror or error}") from error
    with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
        status, url = os.fstat(fd), file.read(_MAX_URL + 1).strip()
    if status.st_uid not in (os.getuid(), 0) or stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(f"{argument}: other users can read {path}: run 'chmod 600 {quoted(path)}'")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii() and url.isprintable()
        _ = parts.port  # raises ValueError if it is no number from 0 to 65535
    except ValueError:
        is_valid = False
    if not is_valid or len(url) > _MAX_URL or " " in url:
        raise UsageError(f"{argument}: {path} must contain one URL, such as https://ntfy.sh/TOPIC")
    return url
