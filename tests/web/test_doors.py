"""Doors that were open once: hostile requests, greedy and slow visitors, and cookies that went too far."""

from __future__ import annotations

import http.client
import os
import re
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.errors import GpumonError
from gpumon.common.net import token_from
from gpumon_web import connections
from gpumon_web.auth import gate
from gpumon_web.auth.api_tokens import NamedTokens
from gpumon_web.auth.http_errors import KEEPS_PLACE, SIGN_IN, SIGN_OUT
from gpumon_web.auth.rate_limit import Buckets, peer_of
from gpumon_web.auth.session_file import ALL, LASTS, LONGEST, SessionEvent, append, open_sessions, read, shorten
from gpumon_web.http.error_log import ErrorLog, capture_logger
from gpumon_web.jobs import Inline
from tests.builders import tick
from tests.programs import PATIENCE, environment, gpumon, until
from tests.web.served import TOKEN, Served, on_server


@pytest.fixture(scope="module")
def served() -> Served:
    return Served([tick(1), tick(2)])


# Requests


@pytest.mark.parametrize("origin", ["http://[::1", "http://[", "//[x"])
def test_an_origin_that_is_no_address_is_refused_without_an_error(
    served: Served, origin: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for token in (True, False):
        assert served.client(token=token).get("/", headers={"Origin": origin}).status_code == 403
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", ["1e308", "-1e308", "1e400", "inf", "-inf", "nan", "NaN", "1e12", "x", "--1"])
@pytest.mark.parametrize("query", ["from=0&to={}", "from={}&to=1", "window={}"])
def test_a_number_that_nobody_means_is_the_askers_error(served: Served, query: str, number: str) -> None:
    answer = served.client().get(f"/api/gpu?gpu=0&{query.format(number)}")
    assert answer.status_code == 400
    assert answer.mimetype == "application/json"


def test_an_error_of_ours_is_written_down_once_however_often_it_is_caused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    served = Served([tick(1)])
    monkeypatch.setattr(served.feed, "head", lambda *_: 1 / 0)
    for _ in range(5):
        assert served.client().get("/api/delta").status_code == 500
    assert capfd.readouterr().err.count("ZeroDivisionError") == 1


@pytest.mark.parametrize(
    "path", ["/https:evil.example", "/a/https:evil.example", "/javascript:x", "/%2f%2fevil.example"]
)
def test_a_link_with_the_token_leads_nowhere_else(served: Served, path: str) -> None:
    answer = served.client(token=False).get(f"{path}?token={TOKEN}")
    assert answer.status_code == 303
    place = answer.headers["Location"]
    assert place.startswith("./")
    assert ":" not in place
    assert "//" not in place


@pytest.mark.parametrize(
    "path",
    ["/api/typo", "/api/runs;x", "/api/runs%00", "/api/", "/api/run/x", "/assets/", "/assets/x.js", "/api/run.csv/"],
)  # fmt: skip
def test_what_does_not_exist_is_not_found(served: Served, path: str) -> None:
    answer = served.client().get(path)
    assert answer.status_code == 404
    assert b"<script" not in answer.data
    assert path.startswith("/assets") or answer.mimetype == "application/json"


def test_health_is_no_way_in(served: Served) -> None:
    answer = served.client(token=False).get(f"/healthz?token={TOKEN}")
    assert answer.status_code == 200
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        b"X-Folded: a\r\n b\r\n",
        b"X-Folded: a\r\n\tTransfer-Encoding: chunked\r\n",
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused_and_the_connection_closed(
    served: Served, header: bytes
) -> None:
    with on_server(served) as port, socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
        smuggled = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + header + b"\r\n0\r\n\r\n" + smuggled)
        found = b""
        while part := one.recv(65536):
            found += part
    assert found[8:13] == b" 400 "
    assert found.count(b"HTTP/1.") == 1


def test_a_library_that_complains_again_and_again_is_heard_once(capfd: pytest.CaptureFixture[str]) -> None:
    capture_logger("some.library", ErrorLog())
    for _ in range(5):
        try:
            os.close(-1)
        except OSError:
            getLogger("some.library").exception("that failed, with somebody's data")
        getLogger("some.library").warning("no news")
    assert capfd.readouterr().err == "gpumon web: some.library: OSError\n"


# Connections


def ask(port: int, path: str = "/api/delta", token: str = TOKEN) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


def is_closed(one: socket.socket) -> bool:
    """Whether the other end has gone; sends nothing."""
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\n", b"\r\n\r\n"])
def test_a_request_that_drips_is_closed_when_its_time_is_up(
    served: Served, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 1.0)
    with on_server(served) as port, socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
        if first:
            one.sendall(first)

        def drip() -> bool:
            try:
                one.sendall(b"\r\n\r\n" if first == b"\r\n\r\n" else b"X: y\r\n" if first else b"")
            except OSError:
                return True
            return is_closed(one)

        until(drip)
        monkeypatch.undo()  # a busy machine takes its time for this one
        assert ask(port) == 200


def test_a_connection_that_is_used_stays_open_longer_than_a_request_may_take(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_server(served) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        for _ in range(3):
            connection.request("GET", "/healthz")
            assert connection.getresponse().read() is not None
            used = connection.sock
            assert used is not None
            monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.0)  # not before it has asked
            time.sleep(1.2)  # the server looks once a second
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        assert connection.sock is used
        connection.close()


def test_a_crowd_at_the_door_keeps_out_neither_new_visitors_nor_those_within(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 40)
    with on_server(served) as port:
        viewer = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        viewer.request("GET", "/api/delta", headers={"Authorization": f"Bearer {TOKEN}"})
        assert viewer.getresponse().read()
        within = viewer.sock
        idle = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(200)]
        until(lambda: sum(map(is_closed, idle)) >= 160)
        assert ask(port) == 200, "a new visitor"
        viewer.request("GET", "/api/delta", headers={"Authorization": f"Bearer {TOKEN}"})
        assert viewer.getresponse().status == 200
        assert viewer.sock is within, "who has shown a token is not sent away for those who have not"
        for one in (viewer, *idle):
            one.close()


def test_who_has_most_of_the_connections_gives_way_though_he_has_the_token(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 40)
    question = f"GET /api/delta HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with on_server(served) as port, ExitStack() as stack:

        def connect(source: str) -> socket.socket:
            return stack.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(source, 0))
            )

        greedy = []
        for number in range(100):
            if number == 30:
                stranger = connect("127.0.0.3")
            greedy.append(connect("127.0.0.2"))
            greedy[-1].sendall(question)
            assert greedy[-1].recv(16)
        assert ask(port) == 200
        assert not is_closed(stranger)


def test_a_local_user_without_the_token_takes_the_form_to_sign_in_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes from the same address signs in beside idle connections, requests and wrong tokens without end."""
    monkeypatch.setattr(connections, "CONNECTIONS", 40)
    over = threading.Event()
    with on_server(Served([tick(1)], buckets=Buckets(20, 1.0))) as port, ThreadPoolExecutor(4) as flood:

        def ask_on() -> None:
            idle = []
            while not over.is_set():
                with suppress(OSError, http.client.HTTPException):
                    idle.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                    ask(port, "/", token="wrong")
            for one in idle:
                one.close()

        attacks = [flood.submit(ask_on) for _ in range(4)]
        try:
            until(lambda: ask_again(port, "wrong") == 429)
            assert until(partial(sign_in, port)) == 303
            assert not any(attack.done() for attack in attacks)
        finally:
            over.set()


def ask_again(port: int, token: str) -> int:
    """As `ask`; 0 where the connection was closed for newer ones."""
    try:
        return ask(port, "/", token=token)
    except (OSError, http.client.HTTPException):
        return 0


def sign_in(port: int) -> int:
    """Ask for the form, and send the token in it: the status, or 0 where the connection was closed for newer ones."""
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.status in (401, 429)
        assert b'<form method="post" action="./sign-in"' in answer.read()
        connection.request("POST", "/sign-in", body=f"token={TOKEN}", headers=form)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def test_a_wrong_token_waits_for_a_slow_disk_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_CHECK_TIMEOUT", PATIENCE)
    check: Future[Any] = Future()

    class Stuck(Inline):
        def ask(self, *_: object) -> Future[Any]:
            return check

    named = NamedTokens(str(tmp_path / "tokens"), work=Stuck())
    with on_server(Served([tick(1)], named=named)) as port, ThreadPoolExecutor(5) as crowd:
        wrong = [crowd.submit(ask, port, "/api/delta", f"wrong{number}") for number in range(5)]
        assert [ask(port) for _ in range(5)] == [200] * 5
        assert not any(one.done() for one in wrong)
        check.set_result(None)
        assert {one.result(PATIENCE) for one in wrong} == {401}


def test_fewer_connections_are_kept_where_fewer_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = connections.OTHER_FILES + 40
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (limit, limit))
    assert connections.max_connections() == 40


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("", ""),
    ],
)
def test_a_peer_is_an_address_or_its_network_and_never_a_port(address: str, peer: str) -> None:
    with socket.socket() as one:
        assert {peer_of(one, (address, port)) for port in (1, 2)} == {peer}


def test_a_peer_on_a_unix_socket_is_its_user() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours, "") == f"user {os.getuid()}"


def test_who_reads_no_answer_holds_no_thread() -> None:
    """More visitors than threads, each with twenty megabytes that he asked for and does not read."""
    served = Served([tick(1)])
    file = "/_dash-component-suites/dash/dash-renderer/build/dash_renderer.min.js"
    question = f"GET {file} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with on_server(served) as port:
        greedy = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(8)]
        for one in greedy:
            one.sendall(question * 80)
        for _ in range(5):
            assert ask(port) == 200
        for one in greedy:
            one.close()


# Limits


def test_a_cookie_that_we_never_gave_makes_nobody_another_visitor() -> None:
    served = Served([tick(1)], buckets=Buckets(30, 0.0))
    answers = [
        served.client(token=False, cookie=f"gpumon-8050={i}.{i:x}~x.{'0' * 64}").get("/").status_code for i in range(40)
    ]
    assert answers[:30] == [401] * 30
    assert answers[30:] == [429] * 10


def test_a_new_connection_makes_nobody_another_visitor() -> None:
    served = Served([tick(1)], buckets=Buckets(30, 0.0))
    answers = []
    for port in range(40):
        client = served.client(token=False)
        client.environ_base["REMOTE_PORT"] = str(50000 + port)
        answers.append(client.get("/").status_code)
    assert answers.count(429) == 10


def test_wrong_tokens_are_soon_too_many_and_the_right_one_never_is() -> None:
    served = Served([tick(1)], buckets=Buckets(60, 0.0))
    wrong = [served.client(token=False).get(f"/?token={i}").status_code for i in range(15)]
    wrong += [
        served.client(token=False).get("/", headers={"Authorization": f"Bearer {i}"}).status_code for i in range(5)
    ]
    assert wrong == [401] * 10 + [429] * 10
    assert served.client(token=False).get(f"/?token={TOKEN}").status_code == 303
    assert served.client().get("/api/delta").status_code == 200


def test_the_passwords_of_a_proxy_are_no_guesses() -> None:
    served = Served([tick(1)], buckets=Buckets(60, 0.0))
    client = served.client(token=False)
    client.get(f"/?token={TOKEN}")
    for _ in range(30):
        assert client.get("/api/delta", headers={"Authorization": "Basic eDp5"}).status_code == 200


def test_without_a_token_a_cookie_tells_visitors_apart() -> None:
    served = Served([tick(1)], token=None, buckets=Buckets(20, 0.0))
    greedy, modest = served.client(token=False), served.client(token=False)
    for client in (greedy, modest):
        assert client.get("/").status_code == 200
    answers = [greedy.get("/api/delta").status_code for _ in range(25)]
    assert answers[-1] == 429
    assert modest.get("/api/delta").status_code == 200


def test_what_is_kept_of_a_visitor_does_not_grow_with_what_he_sends() -> None:
    buckets = Buckets(1e9, 1e9)
    served = Served([tick(1)], buckets=buckets)
    for i in range(5):
        served.client(token=False, cookie=f"gpumon-8050={i}{'x' * 15000}").get("/")
    assert all(len(str(key)) < 100 for key in buckets._left)


@pytest.mark.parametrize(
    "token", ["a" * 16, "abcdabcdabcdabcd", "passwordpassword", "0123456789" * 2, "aaaabbbbccccdddd"]
)
def test_a_token_that_is_easy_to_guess_is_refused(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    with pytest.raises(GpumonError, match="easy to guess"):
        token_from(str(file), make=False)


def test_a_token_file_that_is_a_link_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "token")
    with pytest.raises(GpumonError, match="is a symbolic link: pass the file that it points to"):
        token_from(str(tmp_path / "link"), make=False)


def test_a_token_that_cannot_be_kept_names_the_option_for_another_place(tmp_path: Path) -> None:
    with pytest.raises(GpumonError, match="No such file or directory; pass another --state-dir"):
        token_from(str(tmp_path / "absent" / "web-token"), make=True)
    (tmp_path / "link").symlink_to(tmp_path)
    done = gpumon("web", "--port", "0", "--state-dir", tmp_path / "link", env=environment(tmp_path))
    assert done.returncode == 1
    said = f"cannot store the token in {tmp_path}/link: is not a directory; pass another --state-dir"
    assert done.stderr == f"gpumon: {said}\n"


# Sessions


def test_a_cookie_is_for_the_path_below_which_we_are(served: Served) -> None:
    for prefix, path in (("", "/"), ("/gpus", "/gpus/"), ("/user/ada/proxy/8050/", "/user/ada/proxy/8050/")):
        answer = served.client(token=False).get(
            f"/?token={TOKEN}", headers={"X-Forwarded-Prefix": prefix} if prefix else {}
        )
        assert f"Path={path}" in answer.headers["Set-Cookie"].split("; ")
        assert f"Max-Age={LASTS}" in answer.headers["Set-Cookie"]


def test_a_session_that_is_used_goes_on_for_a_week_and_no_longer() -> None:
    served = Served([tick(1)])
    client = served.client(token=False)
    client.get(f"/?token={TOKEN}")
    began = served.now
    while served.now + LASTS / 2 < began + LONGEST:
        served.now += LASTS / 2
        client.get("/api/delta")
        assert client.get("/api/delta").status_code == 200
    served.now = began + LONGEST + 1
    assert client.get("/api/delta").status_code == 401


def signed_in(served: Served) -> str:
    answer = served.client(token=False).get(f"/?token={TOKEN}")
    return answer.headers["Set-Cookie"].partition(";")[0]


def test_who_signs_out_has_ended_that_session_everywhere_and_no_other(tmp_path: Path) -> None:
    file = str(tmp_path / "sessions")
    served = Served([tick(1)], sessions=file)
    mine, other = signed_in(served), signed_in(served)
    out = served.client(token=False, cookie=mine).post(SIGN_OUT, headers={"Sec-Fetch-Site": "same-origin"})
    assert out.status_code == 303
    assert out.headers["Location"] == "./"
    assert "Max-Age=0" in out.headers["Set-Cookie"]
    again = Served([tick(1)], sessions=file)
    for one in (served, again):
        assert one.client(token=False, cookie=mine).get("/").status_code == 401
        assert one.client(token=False, cookie=other).get("/").status_code == 200


@pytest.mark.parametrize("everybody", [True, False])
def test_sessions_can_be_listed_and_ended_from_the_shell_while_it_serves(tmp_path: Path, everybody: bool) -> None:
    env = environment(tmp_path)
    state = Path(env["GPUMON_STATE_DIR"])
    state.mkdir(mode=0o700)
    served = Served([tick(1)], sessions=str(state / "web-sessions"))
    served.now = time.time()
    mine, other = signed_in(served), signed_in(served)
    known = gpumon("web", "--sessions", env=env).stdout.splitlines()
    assert len(known) == 2
    assert all("from 127.0.0.1" in line for line in known)
    ended = gpumon("web", "--end-session", "all" if everybody else known[0].split()[0], env=env)
    assert ended.returncode == 0, ended.stderr
    until(lambda: served.client(token=False, cookie=mine).get("/").status_code == 401)
    assert served.client(token=False, cookie=other).get("/").status_code == (401 if everybody else 200)
    assert len(open_sessions(read(str(state / "web-sessions")), time.time())) == (0 if everybody else 1)
    assert "no such session: 'nope'" in gpumon("web", "--end-session", "nope", env=env).stderr


def test_the_file_of_sessions_is_private_and_forgets_what_is_over(tmp_path: Path) -> None:
    file = str(tmp_path / "sessions")
    append(file, SessionEvent(False, "old", 1000, "127.0.0.1"))
    append(file, SessionEvent(False, "new", 1000 + LONGEST, "127.0.0.1\x1b[31m"))
    append(file, SessionEvent(True, ALL, 999, ""))
    with Path(file).open("a") as opened:
        opened.write("garbage\nbegun\nbegun x notanumber\n\x00\xff\n")
    assert Path(file).stat().st_mode & 0o777 == 0o600
    shorten(file, 1001.0 + LONGEST)
    assert [line.id for line in read(file)] == ["new"]
    assert "\x1b" not in read(file)[0].peer


# The form


def form(served: Served, token: str, path: str = SIGN_IN, **headers: str) -> tuple[int, str | None]:
    answer = served.client(token=False).post(
        path, data={"token": token}, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    return answer.status_code, answer.headers.get("Set-Cookie")


def test_the_page_that_asks_for_a_token_takes_it_in_a_form(served: Served) -> None:
    for prefix in ("", "/gpus"):
        page = served.client(token=False).get("/", headers={"X-Forwarded-Prefix": prefix} if prefix else {})
        assert page.status_code == 401
        assert f'<form method="post" action="{prefix or "."}{SIGN_IN}"' in page.text
        assert re.findall("<script.*?</script>", page.text, re.DOTALL) == [f"<script>{KEEPS_PLACE}</script>"]
    status, cookie = form(served, TOKEN, Sec_Fetch_Site="same-origin")
    assert status == 303
    assert cookie
    assert served.client(token=False, cookie=cookie.partition(";")[0]).get("/").status_code == 200


def test_a_wrong_token_in_the_form_opens_nothing(served: Served) -> None:
    for token in ("", "x", TOKEN[:-1], TOKEN + "x", "\x00", "é"):
        assert form(served, token, Sec_Fetch_Site="same-origin") == (401, None)
    client = served.client(token=False)
    for body in (f"token={TOKEN}&token=x", "&" * 500, f'{{"token": "{TOKEN}"}}'):
        kind = "application/json" if body.startswith("{") else "application/x-www-form-urlencoded"
        assert client.post(SIGN_IN, data=body, content_type=kind).status_code == 401


@pytest.mark.parametrize("path", [SIGN_IN, SIGN_OUT])
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://[::1"},
    ],
)
def test_a_form_of_another_page_is_refused(served: Served, path: str, headers: dict[str, str]) -> None:
    mine = signed_in(served)
    client = served.client(token=False, cookie=mine)
    assert client.post(path, data={"token": TOKEN}, headers=headers).status_code == 403
    assert client.get("/").status_code == 200, "still signed in"


@pytest.mark.parametrize("origin", ["null", "http://localhost", None])
def test_a_form_of_ours_is_taken_from_a_browser_that_does_not_say_where_it_was(
    served: Served, origin: str | None
) -> None:
    assert form(served, TOKEN, **({"Origin": origin} if origin else {}))[0] == 303


@pytest.mark.parametrize("path", ["/", "/api/delta", "/healthz", "/sign-in/", "/sign-inx", "/api/kept"])
def test_nothing_else_takes_a_form(served: Served, path: str) -> None:
    for client in (served.client(), served.client(token=False)):
        assert client.post(path, data={"token": TOKEN}).status_code == 405
    for method in ("PUT", "DELETE", "PATCH"):
        assert served.client(token=False).open(SIGN_IN, method=method).status_code == 405


@pytest.mark.parametrize("path", [SIGN_IN, SIGN_OUT])
def test_a_form_is_taken_under_our_names_only(served: Served, path: str) -> None:
    answer = served.client(token=False).post(path, data={"token": TOKEN}, headers={"Host": "evil.example"})
    assert answer.status_code == 421
