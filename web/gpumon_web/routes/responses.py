"""Turns jobs into HTTP responses."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from concurrent.futures import Future

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from gpumon.common.errors import SourceError
from gpumon_web.auth.http_errors import error_response
from gpumon_web.http.error_log import ErrorLog
from gpumon_web.jobs import BusyError, Packed, WorkError

MAX_WAIT = 120.0
"""Seconds to wait for a job: the longest that one may take, after another that takes as long."""
PACKED = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}


class Sender:
    """Sends the answers of jobs; failures are written to `error_log`."""

    def __init__(self, error_log: ErrorLog) -> None:
        self._error_log = error_log

    async def __call__(
        self, request: Request, start: Callable[[], Future[Packed]], what: str, media_type: str = "application/json"
    ) -> Response:
        """Return the answer of the job that `start` begins, or an error response; `what` names it in errors.

        `start` is called in a thread, as it may wait for the lock of a feed.
        """
        try:
            job = await run_in_threadpool(start)
            # Others may wait for the same job, which is not canceled if this one gives up.
            answer = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(job)), MAX_WAIT)
        except SourceError as error:
            return error_response(request, 404, "Not found", f"{error}.")
        except (WorkError, OSError, EOFError) as error:
            if not isinstance(error, BusyError):
                kind = f"cannot create {what}: {type(error).__name__}"
                self._error_log.log(kind, f"gpumon web: {kind}: {error}")
            return error_response(request, 503, "Busy", "Wait a moment and try again.", {"Retry-After": "2"})
        if answer.unread:
            text = f"{what[0].upper()}{what[1:]} cannot be read now: {answer.unread}."
            return error_response(request, 503, "Not readable now", text, {"Retry-After": "2"})
        if not answer.body:
            why = f": {answer.missing}" if answer.missing else ""
            return error_response(request, 404, "Not found", f"There is no record of {what}{why}.")
        if takes_gzip(request):
            return Response(answer.body, headers=PACKED, media_type=media_type)
        body = await run_in_threadpool(gzip.decompress, answer.body)
        return Response(body, headers={"Vary": "Accept-Encoding"}, media_type=media_type)


def takes_gzip(request: Request) -> bool:
    """Whether the client accepts gzip."""
    return "gzip" in request.headers.get("Accept-Encoding", "").lower()
