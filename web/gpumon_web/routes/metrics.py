"""The node's metrics for Prometheus, as from `gpumon export`, with the access control of all other routes."""

from __future__ import annotations

from typing import cast

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from gpumon.export.exposition import CONTENT_TYPE
from gpumon.export.scrape import Exporter
from gpumon.export.snapshot import LiveData
from gpumon_web.feed import Feed

METRICS = "/metrics"


def add_metrics(server: FastAPI, feed: Feed) -> None:
    """Register the route."""
    # A server's feed always reads a `Live`; only feeds of positions in a recording do not.
    exporter = Exporter(cast(LiveData, feed.live), lock=feed.lock)

    def metrics(_: Request) -> Response:
        """Answer a scrape, in a thread of the server."""
        return Response(exporter.scrape(), headers={"Content-Type": CONTENT_TYPE})

    server.add_route(METRICS, metrics, methods=["GET"])
