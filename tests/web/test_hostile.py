"""Ten thousand random and hostile requests: none is an error of ours, memory does not grow, others get their ticks."""

from __future__ import annotations

import random
import socket
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gpumon_web.pages import PAGES
from tests.builders import process, sample, tick
from tests.programs import PATIENCE, environment, until
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served
from tests.web.test_serve import ask, web

REQUESTS = 10_000
MOST_GROWTH = 15.0
"""MB."""
NASTY = (
    "../../etc/passwd", "%2e%2e%2f", "<script>alert(1)</script>", "'; DROP TABLE run; --", "\x00", "é" * 50, "9" * 400,
    "-1", "NaN", "Infinity", "1e999", "{}", "[]", "GPU-" + "x" * 5000, "%", "%zz", "${jndi:ldap://x}", "{{7*7}}",
    "\r\nX: y",
)  # fmt: skip
KEYS = (
    "boot",
    "since",
    "about",
    "gpu",
    "id",
    "window",
    "from",
    "to",
    "points",
    "token",
    "m",
    "at",
    "page",
    "speed",
    "x" * 500,
)


def request(chance: random.Random, paths: list[str], token: str) -> bytes:
    """A request that is sometimes whole, sometimes not HTTP at all."""
    if chance.random() < 0.1:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(1, 400))) + b"\r\n\r\n"
    method = chance.choice(("GET",) * 8 + ("POST", "HEAD", "PUT", "BREW", "OPTIONS", "get"))
    path = chance.choice(paths) if chance.random() < 0.8 else "/" + chance.choice(NASTY)
    query = "&".join(f"{chance.choice(KEYS)}={_value(chance)}" for _ in range(chance.randrange(0, 5)))
    headers = [f"Host: {chance.choice(('127.0.0.1', '127.0.0.1', '127.0.0.1', 'evil.example', ''))}"]
    if chance.random() < 0.7:
        headers.append(f"Authorization: Bearer {token}")
    for _ in range(chance.randrange(0, 4)):
        name = chance.choice(
            ("Cookie", "Accept-Encoding", "Range", "If-None-Match", "Origin", "X-Forwarded-Prefix", "Sec-Fetch-Site",
             "Content-Type", "Transfer-Encoding", "Content-Length", "X-Forwarded-Proto", "Expect")
        )  # fmt: skip
        headers.append(f"{name}: {_value(chance)}")
    text = f"{method} {path}{'?' + query if query else ''} HTTP/1.1\r\n" + "\r\n".join(headers) + "\r\n\r\n"
    return text.encode("utf-8", "replace")


def _value(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(NASTY)
    return "".join(chance.choice(string.printable.strip()) for _ in range(chance.randrange(0, 30)))


def resident(pid: int) -> float:
    """MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1000
    raise AssertionError("no such line")


def bombard(link: str, count: int, seed: int, paths: list[str]) -> list[bytes]:
    """Status lines of what came back."""
    chance, found = random.Random(seed), []
    port, token = int(link.split(":")[2].partition("/")[0]), link.partition("token=")[2]
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
            one.sendall(request(chance, paths, token))
            one.shutdown(socket.SHUT_WR)
            try:
                found.append(one.recv(64))
            except ConnectionResetError:
                found.append(b"")
    return found


def ask_all(link: str, paths: list[str]) -> None:
    """Ask each route, and for the values of each page."""
    for path in (*paths, "/api/gpu?gpu=0", *(f"/api/kept?page={page}" for page in PAGES)):
        ask(link, path)


def grown_by(pid: int, work: Callable[[], object]) -> float:
    """By how many MB a process has grown meanwhile."""
    before = resident(pid)
    work()
    return resident(pid) - before


def check(live_dir: Path, count: int) -> None:
    paths = Served([tick(1)]).paths()
    with web(environment(live_dir), "--source", "sim:one", "--port", 0) as (server, link):
        # Caches fill, and what only some routes need is imported; a busy machine is late with the simulated past.
        until(lambda: grown_by(server.pid, lambda: ask_all(link, paths)) < 1.0)
        bombard(link, count // 5, 1, paths)

        def once(seed: int) -> None:
            for part in range(8):
                answers = bombard(link, count // 10, seed + part, paths)
                assert [answer for answer in answers if answer[9:10] == b"5"] == []
                status, _ = ask(link, "/api/delta")
                assert status == 200, "a viewer beside them gets his ticks"

        # What is kept of requests grows with all of them. A cache that a busy machine fills late does so only once.
        grown = [grown_by(server.pid, lambda: once(2))]
        while grown[-1] >= MOST_GROWTH and len(grown) < 3:
            grown.append(grown_by(server.pid, lambda: once(2 + 8 * len(grown))))
        assert grown[-1] < MOST_GROWTH, f"it grew by {grown} MB"
        assert server.poll() is None


def test_a_name_from_right_to_left_moves_no_other_word(browser: Browser) -> None:
    name = "אליס"
    gpus = [sample(gpu, utilization=0.5) for gpu in range(2)]
    served = Served([tick(1, gpus, [process(1, 0, user=name, name="12")])])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        who = visitor.open("#/").locator("#page-fleet tbody tr").first.get_by_text(name, exact=True)
        expect(who).to_be_visible()
        assert who.evaluate("(one) => getComputedStyle(one).unicodeBidi") == "isolate"
        left = who.bounding_box()
        program = visitor.page.locator("#page-fleet tbody tr").first.get_by_text("12", exact=True).bounding_box()
        assert left is not None
        assert program is not None
        assert left["x"] < program["x"], "who, and then what"


def test_random_and_hostile_requests_meet_no_error_of_ours(live_dir: Path) -> None:
    check(live_dir, 600)


@pytest.mark.slow
def test_ten_thousand_of_them_neither(live_dir: Path) -> None:
    check(live_dir, REQUESTS)
