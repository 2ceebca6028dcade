"""Nothing but health answers without a token, on any route that there is or will be."""

from __future__ import annotations

import re

import pytest

from gpumon.common.errors import UsageError
from gpumon_web.auth.gate import CALLBACK, LASTS
from gpumon_web.http.prefix import parse_prefix, put_below
from tests.builders import tick
from tests.web.asked import HOST
from tests.web.served import TOKEN, Served


@pytest.fixture(scope="module")
def served() -> Served:
    return Served([tick(1), tick(2)])


def test_the_routes_are_found_by_asking_the_app(served: Served) -> None:
    paths = served.paths()
    assert {"/", "/healthz", "/api/delta", "/api/run.csv", "/_dash-layout", "/_dash-update-component"} <= set(paths)
    assert len(paths) > 12
    assert not any("<" in path for path in paths), "a route whose path this test cannot make"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_without_a_token_nothing_but_health_answers(served: Served, method: str) -> None:
    client = served.client(token=False)
    for path in [
        *served.paths(),
        "/nothing",
        "/assets/gpumon.css",
        "/_dash-component-suites/dash/x.js",
        "//",
        "/%2e%2e/",
    ]:
        answer = client.open(path, method=method)
        if path == "/healthz" and method in ("GET", "HEAD"):
            assert answer.status_code == 200
        else:
            assert answer.status_code in (401, 405), path
        assert b"gpumon:" in answer.data or b"about:blank" in answer.data or method == "HEAD" or path == "/healthz"


def test_only_reading_is_possible_even_with_the_token(served: Served) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        for path in served.paths():
            answer = served.client().open(path, method=method, json={"output": "x", "inputs": [], "changedPropIds": []})
            if method == "POST" and path == CALLBACK:  # of which each body must be one of our pages
                assert answer.status_code == 400
                continue
            assert answer.status_code == 405, (method, path)
            assert answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]", "127.0.0.1@evil",
     "evil.example@127.0.0.1", "127.0.0.1/x", "[", "[::1]evil.example", "evil.example[::1]", "[::1]evil.example:8050",
     "127.0.0.1:evil.example", "127.0.0.1:80:evil.example", "127.0.0.1:-1"]
)  # fmt: skip
def test_a_name_that_is_not_ours_is_refused_on_every_route(served: Served, host: str) -> None:
    for path in served.paths():
        answer = served.client().get(path, headers={"Host": host})
        assert answer.status_code == 421, path


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1", "LOCALHOST", "[::1]:8050", "localhost."])
def test_names_of_this_machine_are_ours_whatever_port_a_tunnel_has(served: Served, host: str) -> None:
    assert served.client().get("/api/delta", headers={"Host": host}).status_code == 200


def test_names_that_were_allowed_are_ours() -> None:
    served = Served([tick(1)], hosts=["GPU.example.org"])
    assert served.client().get("/", headers={"Host": "gpu.example.org"}).status_code == 200
    assert served.client().get("/", headers={"Host": "other.example.org"}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"},
    ],
)
def test_what_another_site_asks_is_refused_on_every_route(served: Served, headers: dict[str, str]) -> None:
    for path in served.paths():
        assert served.client().get(path, headers=headers).status_code == 403, path


def test_a_link_on_another_site_may_lead_here_but_shows_nothing_without_the_token(served: Served) -> None:
    led = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert served.client().get("/", headers=led).status_code == 200
    assert served.client(token=False).get("/", headers=led).status_code == 401


def test_our_own_page_may_ask(served: Served) -> None:
    ours = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert served.client().get("/api/delta", headers=ours).status_code == 200


def test_the_link_with_the_token_gives_a_cookie_and_an_address_without_it(served: Served) -> None:
    client = served.client(token=False)
    answer = client.get(f"/?token={TOKEN}&a=1")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "./?a=1"
    cookie = answer.headers["Set-Cookie"]
    assert TOKEN not in cookie
    assert cookie.startswith("gpumon-8050=")
    for flag in ("HttpOnly", "SameSite=Lax", "Path=/"):
        assert flag in cookie
    assert "Secure" not in cookie
    assert client.get("/").status_code == 200
    assert client.get("/api/delta").status_code == 200


def test_behind_https_the_cookie_is_for_https_only(served: Served) -> None:
    answer = served.client(token=False).get(f"/?token={TOKEN}", headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("given", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 20, "\0"])
def test_a_wrong_token_opens_nothing(served: Served, given: str) -> None:
    client = served.client(token=False)
    answer = client.get("/", query_string={"token": given})
    assert answer.status_code == 401
    assert "Set-Cookie" not in answer.headers
    if given.isascii() and "\0" not in given:
        assert client.get("/", headers={"Authorization": f"Bearer {given}"}).status_code == 401
    assert client.get("/", headers={"Authorization": TOKEN}).status_code == 401
    assert client.get("/", headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401


def _cookie(served: Served) -> str:
    set_cookie = served.client(token=False).get(f"/?token={TOKEN}").headers["Set-Cookie"]
    found = re.match(r"gpumon-8050=([^;]+)", set_cookie)
    assert found
    return found[1]


def test_a_forged_cookie_opens_nothing(served: Served) -> None:
    good = _cookie(served)
    when, nonce, signature = good.split(".")
    forged = [
        "", "x", "..", good[:-1], good + "0", f"{int(when) + 1}.{nonce}.{signature}", f"{when}.{nonce}x.{signature}",
        f"{when}.{nonce}.{'0' * 64}", f"{when}.{nonce}.", TOKEN, "9" * 40 + f".{nonce}.{signature}", "é.é.é",
    ]  # fmt: skip
    for value in forged:
        answer = served.client(token=False, cookie=f"gpumon-8050={value}").get("/api/delta")
        assert answer.status_code == 401, value
    assert served.client(token=False, cookie=f"gpumon-8051={good}").get("/api/delta").status_code == 401
    assert served.client(token=False, cookie=f"gpumon-8050={good}").get("/api/delta").status_code == 200


def test_a_cookie_of_another_token_opens_nothing(served: Served) -> None:
    other = Served(token="another-token-0123456789")
    good = other.client(token=False).get("/?token=another-token-0123456789").headers["Set-Cookie"].partition(";")[0]
    assert served.client(token=False, cookie=good).get("/").status_code == 401
    assert other.client(token=False, cookie=good).get("/").status_code == 200


def test_a_cookie_ends(served: Served) -> None:
    visitor = served.client(token=False, cookie=f"gpumon-8050={_cookie(served)}")
    began = served.now
    served.now = began + LASTS - 1
    assert visitor.get("/").status_code == 200
    served.now = began + LASTS + 1
    assert visitor.get("/").status_code == 401
    served.now = began - 3600
    assert visitor.get("/").status_code == 401
    served.now = began


def test_without_any_token_the_names_still_count() -> None:
    served = Served([tick(1)], token=None)
    assert served.client(token=False).get("/api/delta").status_code == 200
    assert served.client(token=False).get("/api/delta", headers={"Host": "evil.example"}).status_code == 421


def test_every_answer_has_the_headers_that_bind_a_browser(served: Served) -> None:
    for client in (served.client(), served.client(token=False)):
        for path in [*served.paths(), "/nothing", "/assets/gpumon.css"]:
            headers = client.get(path, buffered=True).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe-eval" not in policy
            assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
            assert "frame-ancestors 'none'" in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert "Server" not in headers
            assert "Access-Control-Allow-Origin" not in headers
            if path.startswith("/api/") or path == "/":
                assert headers["Cache-Control"] == "no-store"


def test_an_unknown_path_says_so_and_does_not_show_the_page(served: Served) -> None:
    answer = served.client().get("/gpu/0")
    assert answer.status_code == 404
    assert b"script" not in answer.data
    assert "There is no page at /gpu/0." in answer.text
    assert '<a href="./../#/gpu/0">Open /#/gpu/0</a>' in answer.text, "where people who typed it wanted to be"


@pytest.mark.parametrize("path", ["/nowhere", "/%3Cscript%3Ealert(1)%3C/script%3E", "/gpu%0A%1B[31m", "/" + "a" * 3000])
def test_an_unknown_path_leads_to_the_first_page_behind_any_prefix(served: Served, path: str) -> None:
    answer = served.client().get(path, headers={"X-Forwarded-Prefix": "/gpus"})
    assert answer.status_code == 404
    assert '<a href="/gpus/">Open gpumon</a>' in answer.text
    assert "<script" not in answer.text
    assert "\x1b" not in answer.text
    assert "a" * 100 not in answer.text


@pytest.mark.parametrize("prefix", ["", "/gpus", "/user/ada/proxy/8050/", "/a.b-c~d%20e"])
def test_the_page_lies_below_whatever_path_a_proxy_names(served: Served, prefix: str) -> None:
    page = served.client().get("/", headers={"X-Forwarded-Prefix": prefix} if prefix else {}).get_data(as_text=True)
    wanted = (prefix.rstrip("/") + "/") if prefix else "./"
    assert "__gpumon_prefix__" not in page
    assert f'src="{wanted}_dash-component-suites/' in page
    escaped = wanted.replace("/", "\\u002f")
    assert f'"requests_pathname_prefix":"{escaped}"' in page


@pytest.mark.parametrize("asked", ["/", "/gpus/"])
@pytest.mark.parametrize(("header", "wanted"), [("", "/gpus/"), ("/lab", "/lab/")])
def test_the_page_lies_below_the_path_that_is_set_where_no_header_names_one(
    asked: str, header: str, wanted: str
) -> None:
    served = Served()
    put_below(served.app, parse_prefix("/gpus/"))
    headers = {"X-Forwarded-Prefix": header} if header else {}
    stranger = served.client(token=False)
    form = stranger.get(asked, headers=headers)
    assert form.status_code == 401
    assert f'action="{wanted}sign-in"' in form.text
    entered = stranger.post(f"{asked}sign-in", data={"token": TOKEN}, headers=headers)
    assert entered.status_code == 303
    assert entered.headers["Location"] == wanted, "where the cookie is valid"
    assert f"Path={wanted};" in f"{entered.headers['Set-Cookie']};"
    linked = served.client(token=False).get(f"{asked}?token={TOKEN}", headers=headers)
    assert (linked.headers["Location"], linked.status_code) == (wanted, 303)
    assert f"Path={wanted};" in f"{linked.headers['Set-Cookie']};"
    page = served.client().get(asked, headers=headers).text.replace("\\u002f", "/")
    assert f'"requests_pathname_prefix":"{wanted}"' in page


@pytest.mark.parametrize("given", ["gpus", "//evil.example", "/a/../b", "/a b", "https://lab.example/gpus"])
def test_a_prefix_that_is_no_path_is_refused_at_the_start(given: str) -> None:
    with pytest.raises(UsageError, match="--prefix"):
        parse_prefix(given)


@pytest.mark.parametrize(
    "prefix", ['/"><script>', "//evil.example", "/a/../b", "javascript:x", "/a b", "/" + "a" * 5000, "/é"]
)
def test_a_prefix_that_is_no_path_is_not_believed(served: Served, prefix: str) -> None:
    answer = served.client().get("/", headers={"X-Forwarded-Prefix": prefix.encode().decode("latin-1")})
    page = answer.get_data(as_text=True)
    assert 'src="./_dash-component-suites/' in page
    assert "<script>alert" not in page
    assert "evil.example" not in page
