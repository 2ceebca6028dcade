"""Firefox by its own remote protocol, Marionette: a socket on loopback, without a driver program.

A message is its length, a colon, and JSON: [0, id, command, parameters] and [1, id, error, result].
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 120.0
"""Seconds for Firefox to start, and for an answer."""
PREFERENCES: Mapping[str, Any] = {
    "app.normandy.enabled": False, "app.update.enabled": False, "browser.safebrowsing.downloads.remote.enabled": False,
    "browser.safebrowsing.malware.enabled": False, "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
    "browser.startup.homepage_override.mstone": "ignore", "toolkit.telemetry.enabled": False,
}  # fmt: skip
_LOOK = """
const [width, height, zone, theme] = arguments;
const browser = Services.wm.getMostRecentWindow("navigator:browser").gBrowser.selectedBrowser;
Object.assign(browser.style, { width: `${width}px`, height: `${height}px`, minWidth: "0", flex: "none" });
browser.browsingContext.timezoneOverride = zone;
Services.prefs.setIntPref("layout.css.prefers-color-scheme.content-override", theme === "dark" ? 0 : 1);
"""
"""Sets how a page is seen: no window is narrower than 450 px, but a page in it may be, as in responsive mode."""
_COMPLAINTS = """
return Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError && !(one.flags & 1)
  && (one.sourceName || "").startsWith("http")).map((one) => one.errorMessage);
"""


def found() -> str:
    """The program of Firefox; empty where there is none."""
    return shutil.which("firefox-esr") or shutil.which("firefox") or ""


class Look(NamedTuple):
    """How a page is seen."""

    width: int
    height: int
    zone: str = "UTC"
    theme: str = "dark"


class Firefox:
    """A browser that does one thing after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._file = self._socket.makefile("rb")
        self._ids = count(1)
        self._read()  # its greeting
        self.ask("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {}}})

    def ask(self, command: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """The result of a command."""
        text = json.dumps([0, next(self._ids), command, parameters or {}]).encode()
        self._socket.sendall(b"%d:%b" % (len(text), text))
        _, _, error, result = self._read()
        assert error is None, error
        return result

    def open(self, address: str, look: Look) -> None:
        """Load an address anew, seen like this."""
        self.ask("WebDriver:Navigate", {"url": "about:blank"})
        self._within(_LOOK, *look)
        self.ask("WebDriver:Navigate", {"url": address})

    def value(self, expression: str) -> Any:
        """The value of an expression on the page."""
        return self.ask("WebDriver:ExecuteScript", {"script": f"return {expression}", "args": []})["value"]

    def until(self, expression: str) -> Any:
        """The same, once it is true."""
        deadline = time.monotonic() + PATIENCE
        while not (value := self.value(expression)):
            assert time.monotonic() < deadline, f"{expression} stays {value!r}"
            time.sleep(0.1)
        return value

    def complaints(self) -> list[str]:
        """Errors of scripts and refusals of the policy of pages since it was started, from its own console."""
        told: list[str] = self._within(_COMPLAINTS)
        return told

    def close(self) -> None:
        """Leave it alone."""
        self._file.close()
        self._socket.close()

    def _within(self, script: str, *given: object) -> Any:
        """Run a script in Firefox itself, outside of the page."""
        self.ask("Marionette:SetContext", {"value": "chrome"})
        try:
            return self.ask("WebDriver:ExecuteScript", {"script": script, "args": given})["value"]
        finally:
            self.ask("Marionette:SetContext", {"value": "content"})

    def _read(self) -> Any:
        length = b""
        while (letter := self._file.read(1)) != b":":
            assert letter, "Firefox is gone"
            length += letter
        return json.loads(self._file.read(int(length)))


@contextmanager
def firefox(directory: Path) -> Iterator[Firefox]:
    """Firefox without a window, with a profile of its own in `directory`."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    given = {**PREFERENCES, "marionette.port": port}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in given.items()]
    (directory / "user.js").write_text("".join(lines))
    command = [
        found(), "--headless", "--width=1600", "--height=1200", "--no-remote", "--marionette",
        "--remote-allow-system-access", "--profile",
    ]  # fmt: skip
    with subprocess.Popen([*command, str(directory)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        try:
            joined = _joined(port, program)
            yield joined
            joined.close()
        finally:
            program.terminate()


def _joined(port: int, program: subprocess.Popen[bytes]) -> Firefox:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return Firefox(port)
        except ConnectionRefusedError:
            assert program.poll() is None, "Firefox ended"
            assert time.monotonic() < deadline, "Firefox did not start"
            time.sleep(0.2)
