"""The exporter's text format and its HTTP server: connections, TLS, client certificates, and requests of web pages."""

from __future__ import annotations

import gzip
import http.client
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf, nan
from pathlib import Path
from threading import Thread

import pytest

from gpumon.common.errors import GpumonError
from gpumon.common.net import Address, listen
from gpumon.export import server as server_module
from gpumon.export.exposition import accepts_gzip, render
from gpumon.export.family import counter, gauge, info
from gpumon.export.server import ScrapeServer, machine_names, tls_context
from gpumon.model.origin import Origin
from gpumon.ring.layout import STOPPED
from tests.builders import process, sample, tick
from tests.certificates import Authority, Pair
from tests.exported import Node, Page
from tests.programs import until


class TestTextFormat:
    """What prometheus-client's parser reads from the text that `render` writes."""

    @pytest.mark.parametrize("value", ['qu"ote', "back\\slash", "new\nline", "\\n", "a,b={}# HELP", "模型", "plain"])
    def test_label_values_are_escaped(self, value: str) -> None:
        page = Page(render([info("gpumon_x_info", "Help.", ("a", "b"), [(value, "2")])]))
        assert page.labels("gpumon_x_info") == [{"a": value, "b": "2"}]

    @pytest.mark.parametrize("value", [0.0, -1.5, 1e-9, 2.0**53, 1.7e308, 0.1 + 0.2])
    def test_values_are_exact(self, value: float) -> None:
        assert Page(render([gauge("gpumon_x", "Help.", (), [((), value)])])).value("gpumon_x") == value

    @pytest.mark.parametrize("value", [nan, inf, -inf])
    def test_unknown_values_are_left_out(self, value: float) -> None:
        assert Page(render([gauge("gpumon_x", "Help.", (), [((), value)])])).values("gpumon_x") == []

    def test_labels_without_a_value_are_left_out(self) -> None:
        page = Page(render([gauge("gpumon_x", "Help.", ("a", "b"), [(("", "2"), 1.0)])]))
        assert page.labels("gpumon_x") == [{"b": "2"}]

    def test_types(self) -> None:
        families = [
            gauge("a", "A \\ b\nc.", (), [((), 1.0)]),
            counter("b_total", "B.", (), [((), 1.0)]),
            counter("DCGM_FI_C", "C.", (), [((), 1.0)]),
        ]
        page = Page(render(families))
        assert {name: family.type for name, family in page.families.items()} == {
            "a": "gauge", "b": "counter", "DCGM_FI_C": "unknown",
        }  # fmt: skip
        assert page.families["a"].documentation == "A \\ b\nc."


@pytest.mark.parametrize(
    ("header", "expected"),
    [("gzip", True), ("deflate, gzip;q=0.5", True), ("*", True), ("", False), ("identity", False), ("gzip;q=0", False),
     ("gzip; q=0.0, br", False), (",;=,;;,=", False)],
)  # fmt: skip
def test_compression_is_negotiated(header: str, expected: bool) -> None:
    assert accepts_gzip(header) is expected


class Served:
    """The server of an exporter in a thread, on a port of this machine."""

    def __init__(self, context: ssl.SSLContext | None = None, names: frozenset[str] | None = None) -> None:
        self.node = Node()
        self.node.add(tick(n, [sample(0, utilization=0.9, energy=10.0 * n)], [process()]) for n in (1, 2, 3))
        listener = listen(Address(port=0))
        self.port = listener.getsockname()[1]
        self.exporter = self.node.exporter()
        self.server = ScrapeServer(self.exporter, listener, context, names)
        self._thread = Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def get(
        self, path: str = "/metrics", headers: dict[str, str] | None = None, context: ssl.SSLContext | None = None,
        method: str = "GET",
    ) -> tuple[int, bytes]:  # fmt: skip
        """Return status and body of the response."""
        connection = (
            http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=30)
            if context
            else http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        )
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def send(self, raw: bytes) -> bytes:
        """Send bytes, and return what the server sends until it closes the connection."""
        received = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection, suppress(ConnectionError):
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65536):
                received += data
        return received

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()
        self.node.close()


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[Served] = []

    def start(context: ssl.SSLContext | None = None, names: frozenset[str] | None = None) -> Served:
        started.append(Served(context, names))
        return started[-1]

    yield start
    for served in started:
        served.close()


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve()


class TestRequests:
    def test_paths_and_methods(self, served: Served) -> None:
        status, body = served.get()
        assert status == 200
        assert Page(body).value("gpumon_gpu_energy_joules_total") == 30.0
        assert served.get("/metrics?x=1")[0] == 200
        assert served.get("/")[0] == 200
        assert served.get("/nothing")[0] == 404
        assert served.get(method="HEAD") == (200, b"")
        assert served.get(method="POST")[0] == 501

    def test_compressed(self, served: Served) -> None:
        status, body = served.get(headers={"Accept-Encoding": "gzip"})
        assert status == 200
        assert Page(gzip.decompress(body)).value("gpumon_up") == 1.0

    def test_scrapes_show_the_newest_frame(self, served: Served) -> None:
        served.node.add([tick(4, [sample(0, utilization=0.25), sample(1, utilization=0.5)])])
        page = Page(served.get()[1])
        assert sorted(page.values("gpumon_gpu_utilization_ratio")) == [0.25, 0.5]
        assert page.values("gpumon_gpu_energy_joules_total") == []
        served.node.ring.heartbeat(STOPPED)
        assert Page(served.get()[1]).values("gpumon_gpu_utilization_ratio") == []

    def test_ready_while_a_daemon_samples(self, served: Served) -> None:
        assert served.get("/-/ready")[0] == 200
        served.node.ring.heartbeat(STOPPED)
        assert served.get("/-/ready")[0] == 503
        assert served.get("/-/healthy")[0] == 200
        assert Page(served.get()[1]).value("gpumon_up") == 0.0

    def test_not_ready_while_no_gpu_can_be_read(self, served: Served) -> None:
        served.node.add([tick(9, [], origin=Origin("nvml", problem="no driver"))])
        assert served.get("/-/ready")[0] == 503
        page = Page(served.get()[1])
        assert page.labels("gpumon_problem_info") == [{"problem": "no driver"}]
        assert page.value("gpumon_up") == 1.0

    def test_a_body_is_not_the_next_request(self, served: Served) -> None:
        inner = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        outer = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(inner)
        assert served.send(outer + inner).count(b"HTTP/1.") == 1

    @pytest.mark.parametrize(
        "raw", [b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET\r\n\r\n", b"\xff" * 70_000, b"GET / HTTP/9.9\r\n\r\n", b""]
    )  # fmt: skip
    def test_invalid_requests_end_only_their_connection(self, served: Served, raw: bytes) -> None:
        served.send(raw)
        assert served.get()[0] == 200

    def test_idle_connections_block_nobody(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 4)
        idle = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(12)]
        assert served.get()[0] == 200
        for connection in idle[:8]:  # the oldest ones are closed
            connection.settimeout(30)
            assert connection.recv(1) == b""
        for connection in idle:
            connection.close()
        until(lambda: not served.server._open)

    def test_slow_clients_are_disconnected(self, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_module, "_TIMEOUT", 0.1)
        with socket.create_connection(("127.0.0.1", serve().port), timeout=30) as connection:
            connection.sendall(b"GET /metrics HT")
            assert connection.recv(1) == b""


class TestForeignPages:
    """A web page of another site, opened in a browser on this machine, cannot read the metrics."""

    def test_host_names(self, serve: Serve) -> None:
        served = serve(names=machine_names())
        for host in ("localhost", "127.0.0.1:9401", "[::1]:9401", "10.1.2.3"):
            assert served.get(headers={"Host": host})[0] == 200, host
        for host in (
            "evil.example", "localhost.evil.example", "", "[::1", "127.0.0.1.evil.example", "evil.example@127.0.0.1",
            "[::1]evil.example", "127.0.0.1:evil.example",
        ):  # fmt: skip
            assert served.get(headers={"Host": host})[0] == 403, host

    def test_origin(self, serve: Serve) -> None:
        served = serve(names=machine_names())
        assert served.get(headers={"Host": "localhost", "Origin": "http://evil.example"})[0] == 403
        assert b" 403 " in served.send(b"GET /metrics HTTP/1.0\r\nOrigin: http://evil.example\r\n\r\n")
        assert b" 200 " in served.send(b"GET /metrics HTTP/1.0\r\n\r\n"), "no browser sends this"


def client(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    """TLS context of a client that trusts `authority` and presents the certificate `pair`."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if pair is not None:
        context.load_cert_chain(*map(str, pair))
    return context


class TestTls:
    def test_connections_are_encrypted(self, serve: Serve, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        served = serve(tls_context(*map(str, authority.sign("node"))))
        assert served.get(context=client(authority))[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            served.get()
        with pytest.raises(ssl.SSLError):
            served.get(context=ssl.create_default_context())
        assert served.get(context=client(authority))[0] == 200

    def test_client_certificates(self, serve: Serve, tmp_path: Path) -> None:
        authority, other = Authority(tmp_path), Authority(tmp_path, "stranger")
        served = serve(tls_context(*map(str, authority.sign("node")), str(authority.certificate)))
        assert served.get(context=client(authority, authority.sign("prometheus")))[0] == 200
        for wrong in (None, other.sign("mallory")):
            with pytest.raises((OSError, http.client.HTTPException)):
                served.get(context=client(authority, wrong))

    def test_a_client_without_a_handshake_blocks_nobody(self, serve: Serve, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        served = serve(tls_context(*map(str, authority.sign("node"))))
        with socket.create_connection(("127.0.0.1", served.port)):
            assert served.get(context=client(authority))[0] == 200

    @pytest.mark.parametrize("name", ["node.pem", "node.key", "authority.pem"])
    @pytest.mark.parametrize("kind", ["missing", "fifo", "directory", "garbage"])
    def test_invalid_files_are_named(self, tmp_path: Path, name: str, kind: str) -> None:
        Authority(tmp_path).sign("node")
        (tmp_path / name).unlink()
        if kind == "fifo":
            os.mkfifo(tmp_path / name)
        elif kind == "directory":
            (tmp_path / name).mkdir()
        elif kind == "garbage":
            (tmp_path / name).write_bytes(b"\x00garbage")
        with pytest.raises(GpumonError) as raised:
            tls_context(*(str(tmp_path / file) for file in ("node.pem", "node.key", "authority.pem")))
        assert name in str(raised.value)
        assert "\n" not in str(raised.value)

    def test_no_passphrase_is_asked_for(self, tmp_path: Path) -> None:
        pair = Authority(tmp_path).sign("node")
        pair.encrypt()
        with pytest.raises(GpumonError, match="encrypted"):
            tls_context(*map(str, pair))
