"""The nodes over HTTP: `/node/17/metrics` of each, and `/targets`, which Prometheus reads as `http_sd_configs`."""

from __future__ import annotations

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping, Sequence
from time import time as wall_clock

from benchmarks.nodes.node import at, is_down
from benchmarks.nodes.plan import SimulatedNode
from gpumon.export.exposition import CONTENT_TYPE, compress, render
from gpumon.export.family import counter
from gpumon.export.native import native_families
from gpumon.export.scrape import limit_series
from gpumon.export.snapshot import UserNames

_JSON = "application/json"


class Nodes:
    """Answers to GET requests."""

    def __init__(self, nodes: Sequence[SimulatedNode], now: Callable[[], float] = wall_clock) -> None:
        self._nodes = nodes
        self._now = now
        self._began = now()

    def answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of an answer; `headers` of the question have small letters."""
        if path == "/targets":
            return 200, {"Content-Type": _JSON}, json.dumps(self.targets(headers.get("host", ""))).encode()
        _, kind, number, what = (*path.split("/"), "", "", "", "")[:4]
        if kind != "node" or what != "metrics" or not number.isdigit() or not 0 < int(number) <= len(self._nodes):
            return 404, {}, b"no such node\n"
        now, node = self._now(), self._nodes[int(number) - 1]
        if is_down(node, now - self._began):
            return 503, {}, b"this node is down\n"
        families, dropped = limit_series(native_families(at(node, self._began, now), UserNames.NAME))
        told = "Series that scrapes left out, for being too many."
        families.append(counter("gpumon_exporter_dropped_series_total", told, (), [((), float(dropped))]))
        body = render(families)
        if "gzip" in headers.get("accept-encoding", ""):
            return 200, {"Content-Type": CONTENT_TYPE, "Content-Encoding": "gzip"}, compress(body)
        return 200, {"Content-Type": CONTENT_TYPE}, body

    def targets(self, host: str) -> list[dict[str, object]]:
        """Targets for `http_sd_configs`: all nodes are at one address, each with its path and its name."""
        return [
            {"targets": [host], "labels": {"__metrics_path__": f"/node/{node.number}/metrics", "instance": node.name}}
            for node in self._nodes
        ]


async def serve(nodes: Nodes, host: str, port: int, tell: Callable[[int], None]) -> None:
    """Serve until it is cancelled; `tell` is told the port once it listens."""

    async def connected(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                writer.write(_answered(nodes, head))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # it went away
        finally:
            writer.close()

    server = await asyncio.start_server(connected, host, port)
    async with server:
        tell(server.sockets[0].getsockname()[1])
        await server.serve_forever()


def _answered(nodes: Nodes, head: bytes) -> bytes:
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    method, path, *_ = (*first.split(" "), "", "")
    if method != "GET":
        return b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"
    status, named, body = nodes.answer(path.partition("?")[0], headers)
    told = "".join(f"{name}: {value}\r\n" for name, value in {**named, "Content-Length": len(body)}.items())
    return f"HTTP/1.1 {status} \r\n{told}\r\n".encode() + body
