"""The tick that a page requests once a second: the values that changed.

It is answered on the event loop, from what all viewers of a page share. What takes longer is answered in a thread: the
first answer of a page, and one for which many frames have to be read.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request
from starlette.responses import Response

from gpumon_web.feed import JsonBody
from gpumon_web.live.values import PageViews
from gpumon_web.routes.arguments import read_text, read_whole
from gpumon_web.routes.responses import PACKED, takes_gzip

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
