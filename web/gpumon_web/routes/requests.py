"""Requests of pages: their arguments, the answers of jobs, and the tick that a page requests once a second."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from gpumon.common.errors import SourceError
from gpumon_web.auth.http_errors import BadNumber, error_response
from gpumon_web.feed import JsonBody
from gpumon_web.http.error_log import ErrorLog
from gpumon_web.jobs import BusyError, Packed, WorkError
from gpumon_web.live.values import PageViews

MAX_TEXT = 200
"""Longest argument in characters."""
MAX_LIST = 1000
"""Longest argument that is a list of names, in characters."""
MAX_TIME = 1e11
"""Largest time accepted as an argument (s since 1970): calendars do not go further."""


def read_text(request: Request, name: str, max_length: int = MAX_TEXT) -> str:
    """Return the value of an argument as a string; empty if it is missing."""
    value = request.query_params.get(name, "")
    return value if len(value) <= max_length else ""


def read_list(request: Request, name: str) -> tuple[str, ...]:
    """Return a comma-separated list."""
    value = read_text(request, name, MAX_LIST)
    return tuple(value.split(",")) if value else ()


def read_whole(request: Request, name: str) -> int:
    """Return a whole number; 0 if it is missing or none."""
    value = request.query_params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else 0


def read_number(request: Request, name: str) -> float | None:
    """Return a number of seconds; None if it is missing. Raises BadNumber if it is invalid or out of range."""
    value = read_text(request, name).strip()
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        raise BadNumber(name) from None
    if not abs(number) <= MAX_TIME:
        raise BadNumber(name)
    return number


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


MIN_PACKED_BYTES = 1024
"""Size in bytes from which answers are sent compressed."""
_THREADS = 2


class Ticks:
    """Answers ticks of all viewers."""

    def __init__(self, views: PageViews) -> None:
        self._views = views
        self._threads = ThreadPoolExecutor(_THREADS, "ticks")

    async def answer(self, request: Request) -> Response:
        """Return the values that changed for the viewer."""
        page, boot, since = read_text(request, "page"), read_text(request, "boot"), read_whole(request, "since")
        arguments = dict(request.query_params)
        if self._views.is_quick(boot, since):
            body = self._views.answer(page, arguments, boot, since)
        else:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(self._threads, self._views.answer, page, arguments, boot, since)
        return tick_response(request, body)


def tick_response(request: Request, answer: JsonBody) -> Response:
    """Return the response with an answer, compressed if it is long and the client accepts that."""
    is_packed = takes_gzip(request) and len(answer.plain) >= MIN_PACKED_BYTES
    body = answer.packed if is_packed else answer.plain
    return Response(body, headers=PACKED if is_packed else None, media_type="application/json")
