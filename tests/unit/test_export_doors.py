"""Who may scrape: TLS, client certificates, passwords and tokens by the file that node_exporter reads, and by ours."""

from __future__ import annotations

import base64
import http.client
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from types import MappingProxyType

import bcrypt
import pytest

from gpumon.common.errors import GpumonError
from gpumon.common.net import Address, listen, token_from
from gpumon.export import auth as doors_module
from gpumon.export.auth import Authenticator, Credentials, TooManyChecks
from gpumon.export.server import ScrapeServer, machine_names
from gpumon.export.web_config import WebConfig, read_web_config
from tests.builders import tick
from tests.certificates import Authority
from tests.conftest import ROOT
from tests.exported import Node

# The salt is fixed: names of tests have the hash, and each worker must find the same names.
PASSWORD = bcrypt.hashpw(b"swordfish", b"$2b$04$saltOfTheseTestsAlwayu").decode()
TOKEN = "0123456789abcdef-token"
NONE: MappingProxyType[str, str] = MappingProxyType({})


class Served:
    """A server of an exporter in a thread."""

    def __init__(self, doors: Authenticator, names: frozenset[str] | None = None) -> None:
        self.node = Node()
        self.node.add([tick(1)])
        opened = listen(Address(port=0))
        self.port = opened.getsockname()[1]
        self.server = ScrapeServer(self.node.exporter(), opened, doors, names)
        self._thread = Thread(target=self.server.run)
        self._thread.start()

    def ask(
        self, headers: MappingProxyType[str, str] | dict[str, str] = NONE, context: ssl.SSLContext | None = None,
        path: str = "/metrics", method: str = "GET",
    ) -> tuple[int, bytes]:  # fmt: skip
        where = "127.0.0.1", self.port
        connection = (
            http.client.HTTPSConnection(*where, context=context, timeout=30)
            if context
            else http.client.HTTPConnection(*where, timeout=30)
        )
        try:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def close(self) -> None:
        self.server.close()
        self._thread.join()
        self.node.close()


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started = []

    def start(doors: Authenticator, names: frozenset[str] | None = None) -> Served:
        started.append(Served(doors, names))
        return started[-1]

    yield start
    for one in started:
        one.close()


def configured(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def client(authority: Authority, certificate: object = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate is not None:
        context.load_cert_chain(*map(str, certificate))  # type: ignore[call-overload]
    return context


def test_without_a_file_anybody_who_connects_may_scrape(serve: Serve) -> None:
    served = serve(Authenticator())
    assert served.ask()[0] == 200
    assert b"gpumon_up 1.0" in served.ask()[1]
    assert served.ask(path="/nothing")[0] == 404
    assert served.ask(method="POST")[0] == 501
    assert served.ask(method="HEAD") == (200, b"")


def test_a_password_lets_in_and_nothing_else(serve: Serve, tmp_path: Path) -> None:
    served = serve(Authenticator(configured(tmp_path / "web.yml", f"basic_auth_users:\n  prom: {PASSWORD}\n")))
    assert served.ask()[0] == 401
    for user, password in (("prom", "wrong"), ("nobody", "swordfish"), ("", ""), ("prom", "x" * 100)):
        assert served.ask(basic(user, password))[0] == 401, (user, password)
    for value in (
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        "Bearer swordfish",
        "Digest x",
    ):
        assert served.ask({"Authorization": value})[0] == 401, value
    for _ in range(2):  # the second time it is remembered
        assert served.ask(basic("prom", "swordfish"))[0] == 200
    assert served.ask(basic("prom", "swordfisch"))[0] == 401
    assert served.ask(path="/-/healthy")[0] == 200, "a probe has no password, and learns nothing"


def test_a_token_lets_in_and_nothing_else(serve: Serve) -> None:
    served = serve(Authenticator(token=TOKEN))
    assert served.ask()[0] == 401
    assert served.ask({"Authorization": f"Bearer {TOKEN}x"})[0] == 401
    assert served.ask(basic("prom", TOKEN))[0] == 401
    assert served.ask({"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert served.ask({"Authorization": f"bearer  {TOKEN}"})[0] == 200


def test_tls_encrypts_and_speaks_to_nobody_in_clear(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("node")
    told = "tls_server_config:\n  cert_file: node.pem\n  key_file: node.key\n"
    served = serve(Authenticator(configured(tmp_path / "web.yml", told)))
    assert served.ask(context=client(authority))[0] == 200
    with pytest.raises((OSError, http.client.HTTPException)):
        served.ask()
    old = client(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert served.ask(context=old)[0] == 200
    with pytest.raises(ssl.SSLError):
        served.ask(context=ssl.create_default_context())


def test_client_certificates_are_checked_by_their_authority_and_name(serve: Serve, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "stranger")
    authority.sign("node")
    told = (
        "tls_server_config:\n  cert_file: node.pem\n  key_file: node.key\n  client_ca_file: authority.pem\n"
        "  client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: [prometheus]\n"
    )
    doors = Authenticator(configured(tmp_path / "web.yml", told))
    assert not doors.is_open
    served = serve(doors)
    assert served.ask(context=client(authority, authority.sign("prometheus")))[0] == 200
    for wrong in (None, other.sign("mallory"), authority.sign("grafana")):
        with pytest.raises((OSError, http.client.HTTPException)):
            served.ask(context=client(authority, wrong))


def test_a_certificate_that_is_renewed_counts_at_once(serve: Serve, tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    first.sign("node")
    told = "tls_server_config:\n  cert_file: node.pem\n  key_file: node.key\n"
    served = serve(Authenticator(configured(tmp_path / "web.yml", told)))
    assert served.ask(context=client(first))[0] == 200
    second.sign("node")
    assert served.ask(context=client(second))[0] == 200
    with pytest.raises(ssl.SSLError):
        served.ask(context=client(first))


def test_a_file_that_becomes_wrong_shuts_the_doors_until_it_is_right(serve: Serve, tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "web.yml"
    right = f"basic_auth_users:\n  prom: {PASSWORD}\n"
    served = serve(Authenticator(configured(file, right), log=said.append))
    assert served.ask(basic("prom", "swordfish"))[0] == 200
    file.write_text("basic_auth_users:\n  prom: swordfish\n")
    assert served.ask(basic("prom", "swordfish"))[0] == 500
    assert served.ask(basic("prom", "swordfish"))[0] == 500
    assert len(said) == 1
    assert "must be a bcrypt hash" in said[0]
    assert "swordfish" not in said[0]
    file.write_text(right)
    assert served.ask(basic("prom", "swordfish"))[0] == 200
    file.unlink()
    assert served.ask(basic("prom", "swordfish"))[0] == 500


def test_what_ends_the_reading_of_a_file_leaves_nothing_of_before_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> WebConfig:
        raise TypeError

    file = tmp_path / "web.yml"
    doors = Authenticator(configured(file, PASSWORDS))
    file.write_text(PASSWORDS.replace("prom", "grafana"))
    with monkeypatch.context() as patched:
        patched.setattr(doors_module, "read_web_config", broken)
        with pytest.raises(TypeError):
            doors.current()
        assert doors.current() is None
    file.write_text(PASSWORDS)
    assert doors.current() is not None


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_token_may_come_from_whoever_hands_out_secrets(tmp_path: Path, mode: int) -> None:
    """Credentials of systemd have mode 0440, and files in a secret of Kubernetes are links to links."""
    (tmp_path / "..data").mkdir()
    file = tmp_path / "..data" / "token"
    file.write_text(TOKEN)
    file.chmod(mode)
    link = tmp_path / "token"
    link.symlink_to("..data/token")
    for path in (file, link):
        assert token_from(str(path), make=False, is_mounted=True) == TOKEN
    if mode & 0o040:
        with pytest.raises(GpumonError, match="other users can read"):
            token_from(str(file), make=False)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o601])
def test_a_token_that_anybody_can_read_is_refused_wherever_it_comes_from(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(mode)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(GpumonError, match="other users can read"):
        token_from(str(tmp_path / "link"), make=False, is_mounted=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_token_of_another_user_is_refused_also_behind_a_link(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    os.chown(file, 12345, 12345)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(GpumonError, match="belongs to another user"):
        token_from(str(tmp_path / "link"), make=False, is_mounted=True)


def test_a_link_to_what_is_no_file_is_no_token(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises(GpumonError, match="not a regular file"):
        token_from(str(tmp_path / "link"), make=False, is_mounted=True)


PASSWORDS = f"basic_auth_users:\n  prom: {PASSWORD}\n"
TLS = "tls_server_config:\n  cert_file: node.pem\n  key_file: node.key\n"
CLIENTS = TLS + "  client_ca_file: authority.pem\n  client_auth_type: RequireAndVerifyClientCert\n"
NAMED = CLIENTS + "  client_allowed_sans: [prometheus]\n"
HEADERS = "http_server_config: {headers: {X-Frame-Options: deny}}\n"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (PASSWORDS, "", "is empty"),
        (PASSWORDS, "basic_auth_users:\n", "nothing in basic_auth_users"),
        (PASSWORDS, HEADERS, "no longer requires passwords"),
        (TLS + PASSWORDS, PASSWORDS, "no longer requires TLS"),
        (TLS + PASSWORDS, TLS, "no longer requires passwords"),
        (TLS, "", "is empty"),
        (CLIENTS, TLS, "no longer requires client certificates"),
        (CLIENTS, CLIENTS.replace("RequireAndVerify", "NoClientCert #"), "requires client_auth_type"),
        (CLIENTS, CLIENTS.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"), "client certificates"),
        (NAMED, CLIENTS, "no longer requires names in client certificates"),
    ],
)
def test_a_file_that_asks_for_less_lets_nobody_in(tmp_path: Path, before: str, after: str, why: str) -> None:
    Authority(tmp_path).sign("node")
    said: list[str] = []
    file = tmp_path / "web.yml"
    doors = Authenticator(configured(file, before), log=said.append)
    had_tls = doors.uses_tls
    assert doors.current() is not None
    file.write_text(after)
    assert doors.current() is None
    assert doors.current() is None
    assert doors.uses_tls is had_tls, "nobody is spoken to in clear who was not before"
    assert len(said) == 1
    assert why in said[0]
    file.write_text(before)
    assert doors.current() is not None


def test_a_file_may_ask_for_more_and_for_other_passwords(tmp_path: Path) -> None:
    Authority(tmp_path).sign("node")
    file = tmp_path / "web.yml"
    doors = Authenticator(configured(file, HEADERS))
    assert doors.is_open
    for text in (PASSWORDS, PASSWORDS.replace("prom", "grafana") + HEADERS, PASSWORDS + TLS, PASSWORDS + NAMED):
        file.write_text(text)
        assert doors.current() is not None
        assert not doors.is_open
    file.write_text(PASSWORDS)
    assert doors.current() is None


@pytest.mark.parametrize("after", [TLS, CLIENTS], ids=["tls", "client certificates"])
@pytest.mark.parametrize("before", [HEADERS, TLS], ids=["clear", "tls"])
def test_a_connection_of_before_does_not_outlive_what_is_asked_for_now(
    serve: Serve, tmp_path: Path, before: str, after: str
) -> None:
    authority = Authority(tmp_path)
    authority.sign("node")
    file = tmp_path / "web.yml"
    served = serve(Authenticator(configured(file, before)))
    where = "127.0.0.1", served.port
    kept = (
        http.client.HTTPConnection(*where, timeout=30)
        if before == HEADERS
        else http.client.HTTPSConnection(*where, context=client(authority), timeout=30)
    )
    for _ in range(2):
        kept.request("GET", "/metrics")
        assert kept.getresponse().read()
    file.write_text(after + "# from now on\n")
    kept.request("GET", "/metrics")
    with pytest.raises((OSError, http.client.HTTPException)):
        kept.getresponse()
    kept.close()
    assert served.ask(context=client(authority, authority.sign("prometheus")))[0] == 200


def test_a_body_is_not_the_next_request(serve: Serve) -> None:
    served = serve(Authenticator())
    for told in (b"Content-Length: 37", b"Transfer-Encoding: chunked"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
            connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n" + told + b"\r\n\r\n"
                               b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n")  # fmt: skip
            answer = b""
            with suppress(ConnectionError):
                while more := connection.recv(65536):
                    answer += more
        assert answer.count(b"HTTP/1.1 ") == 1, answer
        assert b"Connection: close" in answer


def test_a_server_whose_file_is_emptied_answers_nobody(serve: Serve, tmp_path: Path) -> None:
    Authority(tmp_path).sign("node")
    file = tmp_path / "web.yml"
    served = serve(Authenticator(configured(file, TLS)))
    file.write_text("")
    with pytest.raises((OSError, http.client.HTTPException)):
        served.ask()
    file = tmp_path / "other.yml"
    served = serve(Authenticator(configured(file, PASSWORDS)))
    file.write_text("")
    assert served.ask()[0] == 500
    assert served.ask(basic("prom", "swordfish"))[0] == 500


def test_certificates_that_need_not_be_given_leave_the_doors_open(tmp_path: Path) -> None:
    Authority(tmp_path).sign("node")
    told = CLIENTS.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
    assert Authenticator(configured(tmp_path / "web.yml", told)).is_open


def status_of(served: Served, raw: bytes) -> int:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
        connection.sendall(raw)
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def test_a_page_of_another_site_cannot_read_what_is_open_to_this_machine(serve: Serve) -> None:
    served = serve(Authenticator(), machine_names())
    for host in ("localhost", "127.0.0.1:9401", "[::1]:9401", "10.1.2.3"):
        assert served.ask({"Host": host})[0] == 200, host
    for host in (
        "evil.example", "localhost.evil.example", "", "[::1", "127.0.0.1.evil.example", "evil.example@127.0.0.1",
        "[::1]evil.example", "127.0.0.1:evil.example",
    ):  # fmt: skip
        assert served.ask({"Host": host})[0] == 403, host
    assert served.ask({"Host": "localhost", "Origin": "http://evil.example"})[0] == 403
    assert status_of(served, b"GET /metrics HTTP/1.0\r\n\r\n") == 200, "no browser asks like this"
    assert status_of(served, b"GET /metrics HTTP/1.0\r\nOrigin: http://evil.example\r\n\r\n") == 403
    assert status_of(served, b"GET /metrics HTTP/1.0\r\nHost: evil.example\r\n\r\n") == 403
    assert (
        serve(Authenticator(token=TOKEN), machine_names()).ask({"Host": "x", "Authorization": f"Bearer {TOKEN}"})[0]
        == 200
    )


GOOD = "tls_server_config: {cert_file: node.pem, key_file: node.key"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "is not YAML"),
        ("", "is empty: configure who may scrape"),
        ("# nobody yet\n", "is empty"),
        ("{}", "is empty"),
        ("basic_auth_users:\n", "nothing in basic_auth_users"),
        ("basic_auth_users: {}\n", "nothing in basic_auth_users"),
        ("tls_server_config:\n", "nothing in tls_server_config"),
        ("- a", "the top level must be a mapping"),
        ("tls: {}", "unsupported key 'tls': remove it"),
        ("tls_server_config: 1", "tls_server_config must be a mapping"),
        ("tls_server_config: {cert_file: a}", "requires cert_file and key_file"),
        ("tls_server_config: {cert_file: [1], key_file: b}", "cert_file must be a path"),
        ("tls_server_config: {cert_file: no.pem, key_file: no.key}", "No such file"),
        (GOOD + ", cipher_suites: [x]}", "unsupported key 'cipher_suites' in tls_server_config"),
        (GOOD + ", client_auth_type: RequestClientCert}", "client_auth_type must be one of"),
        (GOOD + ", client_auth_type: RequireAndVerifyClientCert}", "requires client_ca_file"),
        (GOOD + ", client_ca_file: node.pem}", "requires client_auth_type"),
        (GOOD + ", client_ca_file: no.pem, client_auth_type: VerifyClientCertIfGiven}", "cannot use the CA file"),
        (GOOD + ", client_allowed_sans: [a]}", "requires client_auth_type"),
        (GOOD + ", client_allowed_sans: a}", "must be a list of names"),
        (GOOD + ", min_version: TLS10}", "min_version is TLS12 or TLS13"),
        (GOOD + ", min_version: [TLS12]}", "min_version must be one word"),
        (GOOD + ", client_auth_type: [RequireAndVerifyClientCert]}", "client_auth_type must be one word"),
        (GOOD + ", client_auth_type: {a: b}}", "client_auth_type must be one word"),
        ('tls_server_config: {cert_file: "a\\0b", key_file: node.key}', "cert_file must be a path"),
        ("basic_auth_users: {prom: plain}", "must be a bcrypt hash"),
        ("basic_auth_users: {prom: $2b$10$short}", "must be a bcrypt hash"),
        (f"basic_auth_users: {{prom: {PASSWORD}x}}", "must be a bcrypt hash"),
        (f"basic_auth_users: {{prom: {PASSWORD.replace('$04$', '$31$')}}}", "the hash of 'prom' has cost 31"),
        (f"basic_auth_users:\n  prom: {PASSWORD}\n  prom: {PASSWORD}", "'prom' appears twice"),
        (GOOD + ", cert_file: other.pem}", "'cert_file' appears twice"),
        (GOOD + ", min_version: TLS13, max_version: TLS12}", "min_version is above max_version"),
        ("basic_auth_users: {prom: 5}", "must be a string of one line"),
        ("basic_auth_users: [prom]", "must be a mapping"),
        ('http_server_config: {headers: {X-Frame-Options: "a\\nb"}}', "must be a string of one line"),
        ("http_server_config: {headers: {Set-Cookie: a}}", "unsupported key 'Set-Cookie' in headers"),
        ("rate_limit: {burst: 1}", "unsupported key 'rate_limit'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    Authority(tmp_path).sign("node")
    with pytest.raises(GpumonError) as raised:
        Authenticator(configured(tmp_path / "web.yml", text))
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["node.pem", "node.key", "authority.pem"])
def test_a_fifo_in_the_place_of_a_certificate_is_not_waited_for(tmp_path: Path, name: str) -> None:
    Authority(tmp_path).sign("node")
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    text = GOOD + ", client_ca_file: authority.pem, client_auth_type: RequireAndVerifyClientCert}"
    with pytest.raises(GpumonError, match="not a regular file"):
        Authenticator(configured(tmp_path / "web.yml", text))


def test_no_passphrase_of_a_key_is_asked_for_at_the_terminal(tmp_path: Path) -> None:
    Authority(tmp_path).sign("node").encrypt()
    with pytest.raises(GpumonError, match=r"node\.key is encrypted"):
        Authenticator(configured(tmp_path / "web.yml", GOOD + "}"))


@pytest.mark.parametrize(
    "told",
    [
        "rate_limit: {x: 1}", GOOD + ", cert: x}", GOOD + ", key: x}", GOOD + ", client_ca: x}",
        GOOD + ", cipher_suites: [x]}", GOOD + ", curve_preferences: [X25519]}",
        GOOD + ", client_auth_type: RequestClientCert}", GOOD + ", client_auth_type: RequireAnyClientCert}",
        GOOD + ", min_version: TLS11}", GOOD + ", max_version: TLS10}",
    ],
)  # fmt: skip
def test_what_of_the_format_is_not_known_is_refused_and_stands_in_the_guide(tmp_path: Path, told: str) -> None:
    Authority(tmp_path).sign("node")
    key, value = re.findall(r"(\w+): [\[{]?(\w+)", told)[-1]
    with pytest.raises(GpumonError, match=f"'{key}'|not '{value}'"):
        read_web_config(configured(tmp_path / "web.yml", told))
    guide = (ROOT / "docs" / "prometheus.md").read_text(encoding="utf-8")
    listed = guide.partition("Of the format of that file gpumon does not know")[2].partition("It refuses a file")[0]
    assert {f"`{key}`", f"`{value}`", "below 1.2" if key.endswith("version") else ""} & set(
        re.findall(r"`\w+`|below 1\.2", listed)
    )


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(GpumonError, match="No such file"):
        Authenticator(str(tmp_path / "none.yml"))


def test_the_headers_of_the_file_go_with_every_answer(tmp_path: Path) -> None:
    told = "http_server_config: {http2: true, headers: {X-Frame-Options: deny}}"
    assert read_web_config(configured(tmp_path / "web.yml", told)).headers == {"X-Frame-Options": "deny"}


def test_a_check_that_waits_for_too_many_others_is_refused() -> None:
    found = Credentials(users={"prom": PASSWORD})
    given = basic("prom", "swordfish")["Authorization"]
    with found._queued("guesser"), found._queued("guesser"):
        with pytest.raises(TooManyChecks):
            found.accepts(given, "guesser")
        assert found.accepts(given, "prometheus"), "another address is none of theirs"
        assert found.accepts(given, "guesser"), "what was right before needs no check"
    other = Credentials(users={"prom": PASSWORD})
    with ExitStack() as many:
        for number in range(16):
            many.enter_context(other._queued(f"{number}"))
        with pytest.raises(TooManyChecks):
            other.accepts(given, "prometheus")
    assert other.accepts(given, "guesser")


def test_a_password_that_was_right_needs_no_check_while_its_hash_is_in_force(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    doors = Authenticator(configured(file, PASSWORDS))
    given = basic("prom", "swordfish")["Authorization"]

    def is_let_in() -> bool:
        opened = doors.current()
        assert opened is not None
        with opened.credentials._queued(""), opened.credentials._queued(""):
            return opened.credentials.accepts(given)

    opened = doors.current()
    assert opened is not None
    assert opened.credentials.accepts(given)
    file.write_text(PASSWORDS + HEADERS)
    assert is_let_in()
    file.write_text(PASSWORDS.replace(PASSWORD, bcrypt.hashpw(b"trout", bcrypt.gensalt(4)).decode()))
    with pytest.raises(TooManyChecks):
        is_let_in()
    file.write_text(PASSWORDS.replace("prom", "grafana"))
    with pytest.raises(TooManyChecks):
        is_let_in()


def test_paths_count_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    Authority(tmp_path / "etc").sign("node")
    told = "tls_server_config: {cert_file: node.pem, key_file: node.key}"
    configured(tmp_path / "etc" / "web.yml", told)
    monkeypatch.chdir(tmp_path)
    config = read_web_config("etc/web.yml")
    assert config.tls is not None
    assert config.tls.cert_file == os.path.join(os.getcwd(), "etc", "node.pem")
