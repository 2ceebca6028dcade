"""Prometheus fails in every way that servers do: one line says how, and no credential is in it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gpumon.cluster.client import PrometheusAccess, PrometheusClient, PrometheusError, read_access
from gpumon.common.errors import UsageError
from tests.certificates import Authority
from tests.programs import PATIENCE

SECRET = "s3cr3t-t0ken"


def engine(answer: Callable[[httpx.Request], httpx.Response], **access: str) -> PrometheusClient:
    return PrometheusClient("http://prom:9090/base", PrometheusAccess(**access), httpx.MockTransport(answer))


def vector(*series: tuple[dict[str, str], str]) -> dict[str, object]:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def refused(answer: Callable[[httpx.Request], httpx.Response], **access: str) -> str:
    """The line of a Prometheus server that answers so."""
    with pytest.raises(PrometheusError) as raised:
        engine(answer, **access).query("up", 1.0)
    return str(raised.value)


def test_an_answer_is_its_series_with_a_number() -> None:
    body = vector(({"instance": "gn1"}, "3"), ({"instance": "gn2"}, "NaN"), ({"instance": "gn3"}, "+Inf"))
    answer = engine(lambda _: httpx.Response(200, json=body)).query("x", 1.0)
    assert [(row.labels["instance"], row.value) for row in answer.rows] == [("gn1", 3.0)]


def test_a_question_is_posted_with_its_moment_and_credentials() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=vector())

    engine(answer, token=SECRET).query("up == 1", 12.5)
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", "http://prom:9090/base/api/v1/query")
    assert request.headers["Authorization"] == f"Bearer {SECRET}"
    form = httpx.QueryParams(request.content.decode())
    assert (form["query"], form["time"]) == ("up == 1", "12.500")


def test_text_of_an_engine_is_hostile() -> None:
    body = vector(({"user": "a\x1b[31m\n", "x" * 5000: "y" * 5000}, "1"))
    (row,) = engine(lambda _: httpx.Response(200, json=body)).query("x", 1.0).rows
    assert "\x1b" not in row.labels["user"]
    assert "\n" not in row.labels["user"]
    assert all(len(name) <= 256 and len(value) <= 256 for name, value in row.labels.items())


def test_long_names_that_differ_anywhere_are_told_apart() -> None:
    names = ["n" * 300 + end for end in ("", "1", "2")]
    names += ["n" * 100 + middle + "n" * 200 for middle in "ab"]
    rows = engine(lambda _: httpx.Response(200, json=vector(*(({"instance": name}, "1") for name in names)))).query(
        "x", 1
    )
    assert len({row.labels["instance"] for row in rows.rows}) == len(names)
    assert [row.raw["instance"] for row in rows.rows] == names, "to ask for them"
    assert all(len(row.labels["instance"]) <= 24 for row in rows.rows)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda _: httpx.Response(401, text=SECRET), "denied access (401)"),
        (lambda _: httpx.Response(403), "denied access (403)"),
        (lambda _: httpx.Response(404, text="<html>"), "no Prometheus API there: HTTP 404"),
        (lambda _: httpx.Response(500, text="<html>"), "the server failed: HTTP 500"),
        (lambda _: httpx.Response(429), "the server failed: HTTP 429"),
        (lambda _: httpx.Response(200, text="not json"), "no Prometheus API there: HTTP 200"),
        (lambda _: httpx.Response(200, text="[" * 100_000), "no Prometheus API there"),
        (lambda _: httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix"}}), "cannot read"),
        (lambda _: httpx.Response(422, json={"status": "error", "error": "too\nbig"}), "Prometheus says: too"),
        (lambda _: httpx.Response(503, json={"status": "error", "error": "timeout"}), "timeout (503)"),
        (lambda _: httpx.Response(302, headers={"Location": "http://u:pw@evil/x?token=1"}), "redirects to http://evil/x"),
    ],
)  # fmt: skip
def test_each_fault_is_one_line(answer: Callable[[httpx.Request], httpx.Response], said: str) -> None:
    line = refused(answer, token=SECRET)
    assert said in line
    assert "\n" not in line
    assert SECRET not in line
    assert "pw" not in line


def test_an_engine_that_is_down_is_named() -> None:
    def down(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("[Errno 111] Connection refused", request=request)

    assert refused(down) == "Prometheus at http://prom:9090/base refuses connections"


def test_an_engine_that_does_not_answer_is_left_after_its_time() -> None:
    def slow(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    assert refused(slow) == "Prometheus at http://prom:9090/base did not answer within 4 s"


def test_a_large_answer_is_not_read_to_its_end_even_where_it_was_small_on_the_way() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=bomb, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(PrometheusError, match="more than 8 MiB"):
        PrometheusClient("http://prom:9090", PrometheusAccess(), transport, timeout=PATIENCE).query("up", 1.0)


def test_an_answer_that_comes_in_drops_is_left_after_its_time() -> None:
    def drops() -> Iterator[bytes]:
        while True:
            yield b" "

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=drops()))
    late = PrometheusClient("http://prom:9090", PrometheusAccess(), transport, timeout=0.05)
    with pytest.raises(PrometheusError, match=r"did not answer within 0\.05 s|more than 8 MiB"):
        late.query("up", 1.0)


@pytest.mark.parametrize("lacking", [{"warnings": ["a store did not answer"]}, {"isPartial": True}])
def test_an_answer_that_lacks_a_part_has_a_warning(lacking: dict[str, object]) -> None:
    answer = engine(lambda _: httpx.Response(200, json={**vector(), **lacking})).query("x", 1.0)
    assert answer.warning


@pytest.mark.parametrize("url", ["", "prom:9090", "ftp://prom", "http://", "http://user:pw@prom:9090"])
def test_what_is_no_url_of_a_server_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match="--prometheus takes") as raised:
        PrometheusClient(url)
    assert "pw" not in str(raised.value)


def access_file(directory: Path, text: str, mode: int = 0o600) -> str:
    path = directory / "access.toml"
    path.write_text(text)
    os.chmod(path, mode)
    return str(path)


def test_a_file_of_access_is_read(tmp_path: Path) -> None:
    found = read_access(access_file(tmp_path, f'token = "{SECRET}"\n[headers]\nX-Scope-OrgID = "lab"\n'))
    assert (found.token, found.headers) == (SECRET, {"X-Scope-OrgID": "lab"})
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (f'token = "{SECRET}"', 0o644, "chmod 600"),
        (f"token = {SECRET}", 0o600, "not a TOML"),
        (f'tokens = "{SECRET}"', 0o600, "unknown name 'tokens'"),
        (f'token = ["{SECRET}"]', 0o600, "token in"),
        (f'token = "{SECRET}\\n"', 0o600, "single-line"),
        (f'token = "{SECRET}"\nusername = "ada"', 0o600, "one of them"),
        ('key = "k.pem"', 0o600, "has a key but no certificate"),
        (json.dumps({"headers": 1})[1:-1].replace(":", "="), 0o600, "headers in"),
    ],
)
def test_what_is_wrong_with_a_file_of_access_is_said_without_repeating_it(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    with pytest.raises(UsageError) as raised:
        read_access(access_file(tmp_path, text, mode))
    assert said in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_file_of_access_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*gone\.toml"):
        read_access(str(tmp_path / "gone.toml"))


def test_certificates_that_are_none_are_named_by_their_option(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(UsageError, match="certificates of --prometheus-config"):
        PrometheusClient("https://prom", PrometheusAccess(ca=str(tmp_path / "ca.pem")))


def test_a_fifo_in_the_place_of_a_certificate_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ca.pem")
    with pytest.raises(UsageError, match="not a regular file"):
        PrometheusClient("https://prom", PrometheusAccess(ca=str(tmp_path / "ca.pem")))


def test_no_passphrase_of_a_key_is_asked_for_at_the_terminal(tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign("node")
    pair.encrypt()
    with pytest.raises(UsageError, match="encrypted"):
        PrometheusClient("https://prom", PrometheusAccess(certificate=str(pair.certificate), key=str(pair.key)))
