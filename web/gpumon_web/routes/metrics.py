"""The node's metrics for Prometheus, as from `gpumon export`, with the access control of all other routes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from gpumon.common.errors import MissingPackage
from gpumon.export.negotiation import TIMEOUT_HEADER, parse_timeout
from gpumon_web.auth.http_errors import error_response
from gpumon_web.feed import Feed

if TYPE_CHECKING:
    from gpumon.export.scrape import Exporter
    from gpumon.export.snapshot import LiveData

METRICS = "/metrics"


def add_metrics(server: FastAPI, feed: Feed) -> None:
    """Register the route. The exporter is only imported at the first scrape, as most servers are never scraped."""

    @cache
    def exporter() -> Exporter:
        from gpumon.export.scrape import Exporter

        # A server's feed always reads a `Live`; only feeds of positions in a recording do not.
        return Exporter(cast("LiveData", feed.live), lock=feed.lock)

    def metrics(request: Request) -> Response:
        """Answer a scrape, in a thread of the server."""
        try:
            snapshot = exporter().scrape(
                request.headers.get("Accept", ""),
                request.headers.get("Accept-Encoding", ""),
                parse_timeout(request.headers.get(TIMEOUT_HEADER, "")),
            )
        except MissingPackage as error:
            return error_response(request, 501, "Not installed", f"On the server, {str(error).partition(': ')[0]}.")
        except TimeoutError:
            return error_response(request, 503, "Too late", "Others are being answered.")
        response = Response(snapshot.body, headers={"Vary": "Accept, Accept-Encoding"})
        response.headers["Content-Type"] = snapshot.content_type
        if snapshot.encoding:
            response.headers["Content-Encoding"] = snapshot.encoding
        return response

    server.add_route(METRICS, metrics, methods=["GET"])
