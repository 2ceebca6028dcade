"""Answers of an exporter: in the format that a scraper asks for, compressed, in its time, and from many at once."""

from __future__ import annotations

import gzip
import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gpumon.common.errors import GpumonError
from gpumon.common.net import Address, listen
from gpumon.export import server as server_module
from gpumon.export.auth import Authenticator
from gpumon.export.negotiation import OPENMETRICS, PLAIN, accepts_gzip, choose_format
from gpumon.export.scrape import ScrapeResult
from gpumon.export.server import ScrapeServer, parse_timeout
from gpumon.export.textfile import maintain_textfile, write_textfile
from gpumon.model.origin import Origin
from gpumon.ring.layout import STOPPED
from tests.builders import process, sample, tick
from tests.exported import Node, Page
from tests.programs import until

PROMETHEUS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
PROMETHEUS += "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
VMAGENT = "text/plain;version=0.0.4;q=1,*/*;q=0.1"


@pytest.fixture
def node() -> Iterator[Node]:
    found = Node()
    found.add(tick(n, [sample(0, utilization=0.9, energy=10.0 * n)], [process()]) for n in (1, 2, 3))
    yield found
    found.close()


@pytest.mark.parametrize(
    ("accept", "told"),
    [
        (PROMETHEUS, OPENMETRICS),
        (VMAGENT, PLAIN),
        ("", PLAIN),
        ("*/*", PLAIN),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0", PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=0", PLAIN),
        ("text/plain;q=0.5,application/openmetrics-text;version=1.0.0;q=0.6", OPENMETRICS),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", PLAIN),
        ("application/openmetrics-text;version=9" + "9" * 5000, PLAIN),
        ("application/openmetrics-text;q=x", PLAIN),
        (",;=,;;,=", PLAIN),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(node: Node, accept: str, told: str) -> None:
    assert choose_format(accept) == told
    found = node.exporter().scrape(accept)
    assert found.content_type.startswith(told)
    assert found.body.endswith(b"# EOF\n") is (told == OPENMETRICS)


@pytest.mark.parametrize(
    ("encoding", "told"),
    [("gzip", True), ("deflate, gzip;q=0.5", True), ("*", True), ("", False), ("identity", False), ("gzip;q=0", False)],
)
def test_an_answer_is_compressed_where_that_is_accepted(node: Node, encoding: str, told: bool) -> None:
    assert accepts_gzip(encoding) is told
    found = node.exporter().scrape(accept_encoding=encoding)
    assert found.encoding == ("gzip" if told else "")
    page = Page(gzip.decompress(found.body) if told else found.body)
    assert page.value("gpumon_gpu_energy_joules_total") == 30.0


def test_openmetrics_is_what_its_own_parser_reads_and_says_the_same(node: Node) -> None:
    exporter = node.exporter()
    plain = Page(exporter.scrape(PLAIN).body)
    text = exporter.scrape(OPENMETRICS).body.decode()
    found = {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in parse_openmetrics(text)
        for one in family.samples
    }
    assert found == {
        (name, tuple(sorted(labels))): value
        for name, series in plain.samples.items()
        for labels, value in series.items()
    }


def test_one_scrape_after_another_says_what_is_now(node: Node) -> None:
    """Lines are kept from scrape to scrape; their values, and what has come and gone, are not."""
    exporter = node.exporter()
    assert Page(exporter.scrape().body).value("gpumon_gpu_utilization_ratio") == 0.9
    node.add([tick(4, [sample(0, utilization=0.25), sample(1, utilization=0.5)])])
    page = Page(exporter.scrape().body)
    assert sorted(page.values("gpumon_gpu_utilization_ratio")) == [0.25, 0.5]
    assert page.values("gpumon_gpu_energy_joules_total") == []
    node.add([tick(5, [sample(1, utilization=0.75)])])
    page = Page(exporter.scrape().body)
    assert page.values("gpumon_gpu_utilization_ratio") == [0.75]
    node.ring.heartbeat(STOPPED)
    assert Page(exporter.scrape().body).values("gpumon_gpu_utilization_ratio") == []


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("10", 9.5), ("1", 0.5), ("0.1", 0.1), ("-5", 0.1), ("", 10), ("x", 10), ("nan", 10),
                             ("1e9", 10)]
)  # fmt: skip
def test_a_scraper_says_how_long_it_waits(timeout: str, seconds: float) -> None:
    assert parse_timeout(timeout) == seconds


class Served:
    """An exporter on a port of this machine."""

    def __init__(self, node: Node) -> None:
        self.exporter = node.exporter()
        opened = listen(Address(port=0))
        self.port = opened.getsockname()[1]
        self.server = ScrapeServer(self.exporter, opened, Authenticator())
        self._thread = Thread(target=self.server.run)
        self._thread.start()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def close(self) -> None:
        self.server.close()
        self._thread.join()


@pytest.fixture
def served(node: Node) -> Iterator[Served]:
    found = Served(node)
    yield found
    found.close()


def get(connection: http.client.HTTPConnection, path: str = "/metrics", **headers: str) -> http.client.HTTPResponse:
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse()


def test_a_connection_is_kept_for_the_next_scrape(served: Served) -> None:
    connection = served.connect()
    for _ in range(3):
        answer = get(connection, Accept=PROMETHEUS, Accept_Encoding="gzip")
        assert answer.status == 200
        assert (answer.getheader("Content-Encoding"), answer.getheader("Vary")) == ("gzip", "Accept, Accept-Encoding")
        assert b"gpumon_up 1.0" in gzip.decompress(answer.read())
    connection.close()


def test_a_scrape_that_would_be_late_is_answered_in_time(served: Served) -> None:
    connection = served.connect()
    with served.exporter._lock:  # others are at it
        answer = get(connection, X_Prometheus_Scrape_Timeout_Seconds="0.6")
        assert answer.status == 503
        assert answer.read() == b"No answer within 0.1 s: other scrapes are being answered.\n"
    assert get(connection).status == 200
    connection.close()


def test_a_node_is_ready_while_a_daemon_samples_it(served: Served, node: Node) -> None:
    connection = served.connect()
    answer = get(connection, "/-/ready")
    assert (answer.status, answer.read()) == (200, b"ready\n")
    node.ring.heartbeat(STOPPED)
    answer = get(connection, "/-/ready")
    assert (answer.status, answer.read()) == (503, b"no daemon samples the GPUs now\n")
    answer = get(connection, "/-/healthy")
    assert (answer.status, answer.read()) == (200, b"healthy\n")
    assert b"gpumon_up 0.0" in get(connection).read(), "a scrape is answered in any case"
    connection.close()


def test_a_node_whose_gpus_cannot_be_read_is_not_ready_and_says_why(served: Served, node: Node) -> None:
    node.add([tick(9, [], origin=Origin("nvml", problem="no driver"))])
    connection = served.connect()
    answer = get(connection, "/-/ready")
    assert answer.status == 503
    answer.read()
    page = get(connection).read()
    assert b'gpumon_problem_info{problem="no driver"} 1' in page
    assert b"gpumon_up 1.0" in page, "a daemon runs"
    connection.close()


def test_who_opens_connections_and_says_nothing_keeps_nobody_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 4)
    silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(12)]
    connection = served.connect()
    assert get(connection).status == 200
    until(lambda: len(served.server._last_used) <= 4)
    for one in (*silent, connection):
        one.close()


def test_a_scrape_of_too_many_is_refused_and_those_before_it_are_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_ANSWERS", 4)
    connections = [served.connect() for _ in range(5)]
    with served.exporter._lock:  # they wait for each other
        for one in connections[:4]:
            one.request("GET", "/metrics")
        until(lambda: len(served.server._answering) == 4)
        answer = get(connections[4])
        assert (answer.status, answer.read()) == (503, b"Too many scrapes at once: try again later.\n")
    for one in connections[:4]:
        first = one.getresponse()
        assert first.status == 200
        first.read()
    until(lambda: not served.server._answering)
    assert get(connections[4]).status == 200
    for one in connections:
        one.close()


def test_a_connection_that_is_being_answered_is_not_closed_for_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 4)
    first = served.connect()
    with served.exporter._lock:
        first.request("GET", "/metrics")
        until(lambda: served.server._answering)
        silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(12)]
        for one in silent[:8]:  # the first ones, which have been silent longest
            one.settimeout(30)
            assert one.recv(1) == b""
    answer = first.getresponse()
    assert answer.status == 200
    answer.read()
    for one in silent:
        one.close()
    first.close()


@pytest.mark.parametrize(
    "raw", [b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET\r\n\r\n", b"\xff" * 70_000, b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_request_ends_its_connection_and_nothing_else(served: Served, raw: bytes) -> None:
    # It may be closed while we speak.
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as one, suppress(ConnectionError):
        one.sendall(raw)
        one.shutdown(socket.SHUT_WR)
        while one.recv(65536):
            continue
    connection = served.connect()
    assert get(connection).status == 200
    connection.close()


def test_a_text_file_is_replaced_as_a_whole_and_goes_with_whoever_writes_it(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    exporter = node.exporter()
    stop = Event()
    writer = Thread(target=maintain_textfile, args=(exporter, str(file), stop, 0.001))
    writer.start()
    until(file.exists)
    read = [file.read_bytes() for _ in range(200)]
    assert all(text.endswith(b"\n") for text in read)
    assert {Page(text).value("gpumon_up") for text in read} == {1.0}
    assert os.stat(file).st_mode & 0o777 == 0o644
    stop.set()
    writer.join()
    assert list(tmp_path.iterdir()) == []


def test_a_text_file_that_cannot_be_written_is_said_and_leaves_nothing(node: Node, tmp_path: Path) -> None:
    with pytest.raises(GpumonError, match=r"cannot write .*: No such file or directory"):
        write_textfile(node.exporter(), str(tmp_path / "none" / "gpumon.prom"))
    (tmp_path / "gpumon.prom").mkdir()
    with pytest.raises(GpumonError, match=r"Is a directory"):
        write_textfile(node.exporter(), str(tmp_path / "gpumon.prom"))
    assert [one.name for one in tmp_path.iterdir()] == ["gpumon.prom"]


class Keeper:
    """An exporter that keeps a file, in a thread."""

    def __init__(self, node: Node, file: Path) -> None:
        self.said: list[str] = []
        self.exporter = node.exporter()
        self._stop = Event()
        what = (self.exporter, str(file), self._stop, 0.001, self.said.append)
        self._thread = Thread(target=maintain_textfile, args=what)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def test_a_write_that_fails_is_said_once_and_tried_again(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gpumon.prom"
    keeper = Keeper(node, file)
    until(file.exists)
    tries, scrape = [], keeper.exporter.scrape

    def full(*_: object) -> ScrapeResult:
        tries.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeper.exporter, "scrape", full)
    until(lambda: len(tries) > 3)
    assert keeper.said == [f"cannot write {file}: No space left on device"]
    assert not file.exists(), "what was is not told as now"
    monkeypatch.setattr(keeper.exporter, "scrape", scrape)
    until(file.exists)
    until(lambda: len(keeper.said) == 2)
    assert keeper.said[1] == f"can write {file} again"
    keeper.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_second_exporter_does_not_write_the_file_of_the_first(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    file.write_text("left by one that was killed\n")
    keeper = Keeper(node, file)
    until(lambda: b"gpumon_up" in file.read_bytes())
    for _ in range(20):
        with pytest.raises(GpumonError, match="another gpumon export writes"):
            maintain_textfile(node.exporter(), str(file), Event())
        with pytest.raises(GpumonError, match="another gpumon export writes"):
            write_textfile(node.exporter(), str(file))
    assert keeper.said == []
    assert b"gpumon_up" in file.read_bytes()
    keeper.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_text_file_that_another_program_has_put_there_is_not_removed(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    stop = Event()
    other = tmp_path / "other"
    other.write_text("of another program\n")
    writer = Thread(target=maintain_textfile, args=(node.exporter(), str(file), stop, 60.0))
    writer.start()
    until(file.exists)
    os.replace(other, file)
    stop.set()
    writer.join()
    assert file.read_text() == "of another program\n"


def test_a_text_file_can_be_read_by_others_whatever_the_umask_is(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    before = os.umask(0o077)
    try:
        write_textfile(node.exporter(), str(file))
    finally:
        os.umask(before)
    assert os.stat(file).st_mode & 0o777 == 0o644
