"""Tokens by name: added, used and ended one by one, while the server runs; and the log of those that were wrong."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.common.errors import GpumonError
from gpumon_web.auth import failed_login_log
from gpumon_web.auth.api_tokens import (
    MOST,
    PREFIX,
    TOKENS,
    USES,
    NamedTokens,
    TokenUse,
    add_token,
    hash_of,
    read_tokens,
    read_uses,
    revoke_token,
    write_uses,
)
from gpumon_web.auth.failed_login_log import FailedLoginLog
from gpumon_web.auth.http_errors import SIGN_IN
from gpumon_web.auth.rate_limit import Buckets
from tests.builders import tick
from tests.fakes import FakeClock
from tests.fuzzing import examples
from tests.programs import environment, gpumon, until
from tests.web.served import TOKEN, Served, on_server
from tests.web.test_doors import ask as ask_port
from tests.web.test_serve import ask, web

NOW = 1_790_000_000.0


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / TOKENS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def seconds(clock: FakeClock) -> float:
    return clock.monotonic() / 1e9


def served_with(file: str, clock: FakeClock, **more: object) -> Served:
    uses = str(Path(file).with_name(USES))
    return Served([tick(1)], named=NamedTokens(file, uses, clock=lambda: seconds(clock)), **more)  # type: ignore[arg-type]


def status(served: Served, token: str, path: str = "/api/v1/status") -> int:
    return served.client(token=False).get(path, headers={"Authorization": f"Bearer {token}"}).status_code


# The file


def test_a_token_is_kept_as_its_hash_in_a_file_of_its_user(file: str) -> None:
    token = add_token(file, "grafana", NOW)
    assert token.startswith(PREFIX)
    assert len(token) > 40
    assert token not in Path(file).read_text()
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    (kept,) = read_tokens(file)
    assert (kept.name, kept.hash, kept.created) == ("grafana", hash_of(token), int(NOW))
    assert sorted(path.name for path in Path(file).parent.iterdir()) == [TOKENS, f"{TOKENS}.lock"]


@pytest.mark.parametrize("name", ["", " ", "-x", ".x", "a b", "a/b", "é", "a" * 41, "x\n", "\x1b[31m", "--help"])
def test_a_name_is_one_plain_word(file: str, name: str) -> None:
    with pytest.raises(GpumonError, match="a token cannot be named") as found:
        add_token(file, name, NOW)
    assert "\x1b" not in str(found.value)
    assert read_tokens(file) == []


def test_no_two_tokens_have_one_name_and_there_are_not_too_many(file: str) -> None:
    add_token(file, "a", NOW)
    with pytest.raises(GpumonError, match="revoke it first, or choose another name"):
        add_token(file, "a", NOW)
    for number in range(MOST - 1):
        add_token(file, f"b{number}", NOW)
    with pytest.raises(GpumonError, match=f"there are {MOST} tokens"):
        add_token(file, "c", NOW)


def test_one_is_revoked_and_the_others_stay(file: str) -> None:
    for name in ("a", "b", "c"):
        add_token(file, name, NOW)
    revoke_token(file, "b")
    assert [one.name for one in read_tokens(file)] == ["a", "c"]
    with pytest.raises(GpumonError, match=r"no such token: 'b'\. Tokens: a, c"):
        revoke_token(file, "b")


def test_commands_at_the_same_time_lose_no_token(file: str) -> None:
    def add(number: int) -> None:
        for part in range(5):
            add_token(file, f"t{number}.{part}", NOW)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_tokens(file)) == 30


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"version": 2, "tokens": []}', '{"version": 1}', '{"version": 1, "tokens": [{}]}',
        '{"version": 1, "tokens": [{"name": "a b", "hash": "x", "created": 1}]}', "[" * 100_000,
        '{"version": 1, "tokens": [{"name": "a", "hash": "", "created": 1}]}', '{"version": 1, "tokens": {"a": 1}}',
    ],
)  # fmt: skip
def test_a_damaged_file_opens_nothing_and_says_what_to_do(file: str, text: str, clock: FakeClock) -> None:
    Path(file).write_text(text)
    os.chmod(file, 0o600)
    with pytest.raises(GpumonError, match="damaged"):
        read_tokens(file)
    served = served_with(file, clock)
    assert status(served, "") == 401
    assert status(served, TOKEN) == 200


@given(st.binary(max_size=300))
@settings(max_examples=examples(100), deadline=None)
def test_no_bytes_in_the_files_are_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "bytes"
    folder.mkdir(exist_ok=True)
    for name in (TOKENS, USES):
        (folder / name).write_bytes(data)
        os.chmod(folder / name, 0o600)
    assert read_uses(str(folder / USES)) == {}
    with pytest.raises(GpumonError):
        read_tokens(str(folder / TOKENS))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o666])
def test_a_file_that_others_may_read_or_write_opens_nothing(
    file: str, mode: int, clock: FakeClock, capfd: pytest.CaptureFixture[str]
) -> None:
    token = add_token(file, "a", NOW)
    os.chmod(file, mode)
    assert status(served_with(file, clock), token) == 401
    assert "must be a regular file that only you can read and write" in capfd.readouterr().err


def test_a_link_in_place_of_the_file_opens_nothing(file: str, tmp_path: Path, clock: FakeClock) -> None:
    token = add_token(str(tmp_path / "elsewhere"), "a", NOW)
    os.symlink(tmp_path / "elsewhere", file)
    assert status(served_with(file, clock), token) == 401


# The server


def test_a_named_token_opens_what_the_first_one_opens(file: str, clock: FakeClock) -> None:
    token = add_token(file, "grafana", NOW)
    served = served_with(file, clock)
    for path in ("/api/v1/status", "/api/v1/openapi.json", "/api/kept?page=runs", "/"):
        assert status(served, token, path) == 200
        assert status(served, token[:-1], path) == 401
        assert status(served, token.upper(), path) == 401
    assert status(served, hash_of(token)) == 401, "the hash opens nothing"
    assert status(served, TOKEN) == 200
    link = served.client(token=False).get(f"/?token={token}")
    assert link.status_code == 303
    form = served.client(token=False).post(SIGN_IN, data={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    for answer in (link, form):
        cookie = answer.headers["Set-Cookie"]
        assert token not in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert served.client(token=False, cookie=cookie.partition(";")[0]).get("/").status_code == 200


def test_without_authentication_no_token_is_asked_for(file: str, clock: FakeClock) -> None:
    add_token(file, "a", NOW)
    assert served_with(file, clock, token=None).client(token=False).get("/api/v1/status").status_code == 200


def test_a_running_server_follows_what_is_added_and_revoked(file: str, clock: FakeClock) -> None:
    served = served_with(file, clock)
    clock.advance(1)
    first = add_token(file, "a", NOW)
    assert status(served, first) == 200, "at once: an unknown token is looked for"
    clock.advance(1)
    second = add_token(file, "b", NOW)
    assert status(served, second) == 200
    revoke_token(file, "a")
    clock.advance(3)
    assert [status(served, one) for one in (first, second, TOKEN)] == [401, 200, 200]
    clock.advance(3)
    again = add_token(file, "a", NOW)
    assert [status(served, one) for one in (first, again)] == [401, 200]


def test_a_session_ends_with_the_token_that_began_it_and_no_other_does(file: str, clock: FakeClock) -> None:
    served = served_with(file, clock)
    clock.advance(1)
    cookies = {}
    for name in ("a", "b", ""):
        token = add_token(file, name, NOW) if name else TOKEN
        clock.advance(1)
        answer = served.client(token=False).get(f"/?token={token}")
        cookies[name] = answer.headers["Set-Cookie"].partition(";")[0]
    revoke_token(file, "a")
    clock.advance(3)
    visitors = {name: served.client(token=False, cookie=cookie) for name, cookie in cookies.items()}
    found = {name: visitor.get("/api/delta").status_code for name, visitor in visitors.items()}
    assert found == {"a": 401, "b": 200, "": 200}
    add_token(file, "a", NOW)
    clock.advance(3)
    assert served.client(token=False, cookie=cookies["a"]).get("/").status_code == 401, "another token of that name"


def test_the_quick_way_of_a_tick_ends_with_the_token(file: str) -> None:
    token = add_token(file, "a", NOW)
    served = Served([tick(1)], named=NamedTokens(file))
    with on_server(served) as port:
        assert ask_port(port, token=token) == 200
        revoke_token(file, "a")
        until(lambda: ask_port(port, token=token) == 401)


def test_the_last_use_is_noted_once_a_minute_with_where_it_came_from(file: str, clock: FakeClock) -> None:
    token, uses = add_token(file, "a", NOW), str(Path(file).with_name(USES))
    (kept,) = read_tokens(file)
    served = served_with(file, clock)
    assert read_uses(uses) == {}
    status(served, token)
    assert read_uses(uses) == {kept.tag: TokenUse(int(served.now), "127.0.0.1")}
    first = served.now
    served.now += 30
    clock.advance(30)
    status(served, token)
    assert read_uses(uses)[kept.tag].time == int(first)
    served.now += 40
    clock.advance(40)
    status(served, token)
    assert read_uses(uses)[kept.tag].time == int(first + 70)
    assert stat.S_IMODE(os.stat(uses).st_mode) == 0o600
    write_uses(uses, {kept.tag: TokenUse(1, "older")})
    assert read_uses(uses)[kept.tag].time == int(first + 70)
    assert token not in Path(uses).read_text()


def test_programs_with_names_of_their_own_have_limits_of_their_own(file: str, clock: FakeClock) -> None:
    tokens = [add_token(file, name, NOW) for name in ("a", "b")]
    served = served_with(file, clock, buckets=Buckets(1, 0.0))
    assert [status(served, tokens[0]) for _ in range(21)] == [200] * 20 + [429]
    assert status(served, tokens[1]) == 200
    assert status(served, TOKEN) == 200


def test_guesses_of_strangers_ask_the_disk_seldom(file: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    served, looks = served_with(file, clock, buckets=Buckets(1e9, 1e9)), list[str]()
    stat_of = os.stat
    monkeypatch.setattr(
        "gpumon_web.auth.api_tokens.os.stat", lambda path, **more: (looks.append(path), stat_of(path, **more))[1]
    )
    for number in range(100):
        assert status(served, f"guess{number}") == 401
    assert looks.count(file) <= 1


Visitors = dict[str, tuple[dict[str, str], dict[str, str]]]
"""Headers and parameters of a request, by who sends it."""


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, Visitors]:
    """A server, and all who must not enter."""
    file, clock = str(tmp_path_factory.mktemp("matrix") / TOKENS), FakeClock()
    served = served_with(file, clock)
    revoked = add_token(file, "revoked", NOW)
    clock.advance(3)

    def session_of(token: str) -> str:
        return served.client(token=False).get(f"/?token={token}").headers["Set-Cookie"].partition(";")[0]

    of_revoked, old, ended = session_of(revoked), session_of(TOKEN), session_of(TOKEN)
    served.client(token=False, cookie=ended).post("/sign-out", headers={"Sec-Fetch-Site": "same-origin"})
    revoke_token(file, "revoked")
    clock.advance(3)
    name, _, value = old.partition("=")
    return served, {
        "nobody": ({}, {}),
        "wrong bearer": ({"Authorization": "Bearer x"}, {}),
        "revoked bearer": ({"Authorization": f"Bearer {revoked}"}, {}),
        "bearer of bytes": ({"Authorization": "Bearer \xff\xfe\x01"}, {}),
        "long bearer": ({"Authorization": f"Bearer {'x' * 5000}"}, {}),
        "another scheme": ({"Authorization": f"Basic {TOKEN}"}, {}),
        "wrong link": ({}, {"token": "x"}),
        "revoked link": ({}, {"token": revoked}),
        "session of a revoked token": ({"Cookie": of_revoked}, {}),
        "session that was ended": ({"Cookie": ended}, {}),
        "session of another tag": ({"Cookie": f"{name}={value.replace('~', '@abc~')}"}, {}),
        "forged session": ({"Cookie": f"{old[:-4]}0000"}, {}),
        "token as a cookie": ({"Cookie": f"{name}={TOKEN}"}, {}),
    }


def test_who_must_not_enter_does_so_on_no_route(strangers: tuple[Served, Visitors]) -> None:
    served, visitors = strangers
    assert served.client().get("/api/v1/status").status_code == 200
    for who, (headers, query) in visitors.items():
        for path in served.paths():
            cookie = headers.get("Cookie", "")
            rest = {name: value for name, value in headers.items() if name != "Cookie"}
            answer = served.client(token=False, cookie=cookie).get(path, headers=rest, query_string=query)
            assert answer.status_code == (200 if path == "/healthz" else 401), (who, path)
            assert "Set-Cookie" not in answer.headers
            assert TOKEN.encode() not in answer.data


def test_a_program_without_a_token_is_told_how_it_gets_one() -> None:
    answer = Served([tick(1)]).client(token=False).get("/api/v1/status")
    assert "gpumon web token add NAME" in answer.get_json(force=True)["detail"]


# The command


def test_tokens_are_added_listed_and_revoked_from_the_shell_while_it_serves(live_dir: Path) -> None:
    env = environment(live_dir)
    with web(env, "--source", "sim:one", "--port", 0) as (_, link):
        added = gpumon("web", "token", "add", "grafana", env=env)
        token = added.stdout.strip()
        assert added.returncode == 0
        assert "cannot be shown again" in added.stderr
        assert token not in added.stderr
        mine = link.partition("?")[0] + f"?token={token}"
        assert ask(mine, "/api/v1/status")[0] == 200

        def used() -> str | None:
            found = gpumon("web", "token", "list", env=env).stdout
            return found if "127.0.0.1" in found else None

        listed = until(used)
        assert listed.splitlines()[0].split() == ["NAME", "CREATED", "LAST", "USED", "FROM"]
        assert listed.splitlines()[1].startswith("grafana  ")
        assert token not in listed
        revoked = gpumon("web", "token", "revoke", "grafana", env=env)
        assert revoked.stdout == "revoked the token 'grafana'\n"
        until(lambda: ask(mine, "/api/v1/status")[0] == 401)
        assert ask(link, "/api/v1/status")[0] == 200
        log = Path(env["GPUMON_STATE_DIR"]) / failed_login_log.FILE
        until(log.exists)
        assert "401 header from 127.0.0.1 at /api/v1/status" in log.read_text()
        assert token not in log.read_text()
    assert gpumon("web", "token", "list", env=env).stdout == "no tokens; 'gpumon web token add NAME' adds one\n"
    for wrong in (("revoke", "x"), ("add", "a b"), (), ("add",)):
        done = gpumon("web", "token", *wrong, env=env)
        assert done.returncode in (1, 2)
        assert "Traceback" not in done.stderr


def test_sessions_say_which_token_began_them(live_dir: Path) -> None:
    env = environment(live_dir)
    state = Path(env["GPUMON_STATE_DIR"])
    state.mkdir(mode=0o700)
    token = add_token(str(state / TOKENS), "phone", NOW)
    served = Served([tick(1)], sessions=str(state / "web-sessions"), named=NamedTokens(str(state / TOKENS)))
    served.now = time.time()
    for one in (token, TOKEN):
        served.client(token=False).get(f"/?token={one}")
    lines = gpumon("web", "--sessions", env=env).stdout.splitlines()
    assert [line.partition("from 127.0.0.1")[2] for line in lines] == ["  token phone", ""]
    assert gpumon("web", "--end-session", lines[0].split()[0], env=env).returncode == 0
    assert len(gpumon("web", "--sessions", env=env).stdout.splitlines()) == 1


# The log


def test_each_refused_try_is_a_line_without_the_token(tmp_path: Path) -> None:
    log = tmp_path / failed_login_log.FILE
    served = Served([tick(1)], refused=str(log), buckets=Buckets(18, 0.0))
    client = served.client(token=False)
    client.get("/?token=wrong-secret-1")
    client.get("/api/v1/status", headers={"Authorization": "Bearer wrong-secret-2"})
    client.post(SIGN_IN, data={"token": "wrong-secret-3"}, headers={"Sec-Fetch-Site": "same-origin"})
    client.get("/?token=wrong-secret-4")
    client.get("/")
    served.client().get("/")
    lines = log.read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "401 link from 127.0.0.1 at /", "401 header from 127.0.0.1 at /api/v1/status",
        "401 form from 127.0.0.1 at /sign-in", "429 link from 127.0.0.1 at /",
    ]  # fmt: skip
    assert {line.split()[0] for line in lines} == {time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(served.now))}
    assert "secret" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@given(st.text(max_size=100))
@settings(max_examples=examples(50), deadline=None)
def test_no_path_makes_a_line_of_its_own(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    log = tmp_path_factory.getbasetemp() / "hostile.log"
    log.unlink(missing_ok=True)
    FailedLoginLog(str(log)).log(peer=path, source="link", path=path, status=401, now=NOW)
    text = log.read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert text.isascii()
    assert text[:-1].isprintable()
    assert len(text.split()) == 7


def test_the_log_stays_small_however_many_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_login_log, "LARGEST", 2000)
    log, clock = tmp_path / "log", FakeClock()
    tries = FailedLoginLog(str(log), clock=lambda: seconds(clock))
    for _ in range(1000):
        tries.log(peer="10.0.0.1", source="form", path="/sign-in", status=429, now=NOW)
    clock.advance(1)
    tries.log(peer="10.0.0.1", source="form", path="/sign-in", status=429, now=NOW)
    assert log.read_text().splitlines()[-1].endswith(" omitted=900")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4000
    assert {path.name for path in tmp_path.iterdir()} == {"log", "log.1"}


def test_the_console_says_it_once_a_minute(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    served = Served([tick(1)], refused=str(tmp_path / "log"))
    for number in range(5):
        served.client(token=False).get(f"/?token={number}")
    told = capfd.readouterr().err
    assert told == f"gpumon web: wrong token from 127.0.0.1; {tmp_path}/log has each try\n"


def test_a_disk_that_is_full_keeps_nobody_out(tmp_path: Path) -> None:
    served = Served([tick(1)], refused=str(tmp_path / "nowhere" / "log"))
    assert served.client(token=False).get("/?token=x").status_code == 401
    assert served.client().get("/").status_code == 200


def test_the_file_of_uses_has_no_more_than_it_needs(tmp_path: Path) -> None:
    uses = str(tmp_path / USES)
    for number in range(3):
        write_uses(uses, {f"{number}{n}": TokenUse(number, "x") for n in range(MOST)})
    assert len(json.loads(Path(uses).read_text())) == 2 * MOST
