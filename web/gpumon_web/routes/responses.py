"""Turns jobs into HTTP responses, without blocking a thread while they run."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from concurrent.futures import Future

from flask import Response, request

from gpumon.common.errors import SourceError
from gpumon_web.auth.http_errors import error_response
from gpumon_web.http.error_log import ErrorLog
from gpumon_web.http.prefix import JOB
from gpumon_web.jobs import BusyError, Deferred, Packed, WorkError
from gpumon_web.routes.ticks import PACKED, takes_gzip

MAX_WAIT = 60.0
"""Seconds to wait for a job on a server that cannot rerun requests."""


class Sender:
    """Sends the answers of jobs; failures are written to `error_log`."""

    def __init__(self, error_log: ErrorLog) -> None:
        self._error_log = error_log

    def __call__(self, start: Callable[[], Future[Packed]], what: str, mimetype: str = "application/json") -> Response:
        """Return the answer of the job that `start` begins, or an error response; `what` names it in errors.

        Raises Deferred while the job is running.
        """
        try:
            return _respond(start, what, mimetype)
        except SourceError as error:
            return error_response(request, 404, "Not found", f"{error}.")
        except (WorkError, OSError, EOFError) as error:
            if not isinstance(error, BusyError):
                kind = f"cannot create {what}: {type(error).__name__}"
                self._error_log.log(kind, f"gpumon web: {kind}: {error}")
            return error_response(request, 503, "Busy", "Wait a moment and try again.", {"Retry-After": "2"})


def _respond(start: Callable[[], Future[Packed]], what: str, mimetype: str) -> Response:
    job: Future[Packed] | None = request.environ.get(JOB)
    if job is None:
        job = start()
        if not job.done() and JOB in request.environ:
            raise Deferred(job)
    answer = job.result(MAX_WAIT)
    if answer.unread:
        text = f"{what[0].upper()}{what[1:]} cannot be read now: {answer.unread}."
        return error_response(request, 503, "Not readable now", text, {"Retry-After": "2"})
    if not answer.body:
        why = f": {answer.missing}" if answer.missing else ""
        return error_response(request, 404, "Not found", f"There is no record of {what}{why}.")
    if takes_gzip(request):
        return Response(answer.body, mimetype=mimetype, headers=PACKED)
    return Response(gzip.decompress(answer.body), mimetype=mimetype, headers={"Vary": "Accept-Encoding"})
