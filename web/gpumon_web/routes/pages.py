"""The data routes of the pages. All are read-only and return JSON, except for the CSV downloads.

A tick is answered at once. All other answers are made by background work, where they do not delay ticks.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, cast

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from gpumon.export.exposition import CONTENT_TYPE
from gpumon.export.scrape import Exporter
from gpumon.export.snapshot import LiveData
from gpumon.reports.figures.plotly_figure import plotly_figure
from gpumon.storage.history.query import MAX_POINTS
from gpumon_web.auth.http_errors import error_response
from gpumon_web.charts.gpu_chart import USUAL, GpuChartWindow, gpu_chart
from gpumon_web.components.page import StoredSubject
from gpumon_web.components.person_colors import PersonColors
from gpumon_web.feed import Feed
from gpumon_web.http.error_log import ErrorLog
from gpumon_web.jobs import AnswerCache, Inline, Packed, Work
from gpumon_web.live.accounts import Accounts
from gpumon_web.live.positions import RecordedPosition, Recording
from gpumon_web.live.runs import Runs
from gpumon_web.live.values import PageFeed, PageViews
from gpumon_web.pages import PAGES
from gpumon_web.routes.requests import Sender, Ticks, read_list, read_number, read_text, read_whole

MAX_WAIT = 60.0
"""Seconds to wait for a job within another one."""
MAX_FIGURE_BYTES = 4 * 2**20
"""Size in bytes of the cache of GPU charts, each of which is valid for one tick."""
METRICS = "/metrics"
"""Path of the metrics for Prometheus."""
PREFIX = "api_"
"""Prefix of the names of these routes."""
View = Callable[[Request], Response | Awaitable[Response]]


class Sources(NamedTuple):
    """The data behind the routes."""

    feed: Feed
    runs: Runs
    accounts: Accounts
    figures: Work = Inline()
    """Worker for charts of GPUs, and for pages at positions in a recording."""
    recording: Recording | None = None
    """The recording being played, if viewers may seek in it."""
    colors: PersonColors | None = None
    """Colors of users; None: colors that are not stored."""

    def ask_runs(
        self, position: float | None, start: Callable[[Runs], Future[Packed]], boot: str = ""
    ) -> Future[Packed]:  # fmt: skip
        """Start a job about the runs at a position in the recording (s since 1970), or about the present runs."""
        recording = self.recording
        if recording is None or position is None:
            return start(self.runs)
        return self.figures.ask(lambda: start(recording.at(position, boot).runs).result(MAX_WAIT), tuple)


def add_page_routes(server: FastAPI, views: PageViews) -> None:
    """Register the route of pages that only have live values: ticks."""
    _add(server, "delta", Ticks(views).answer)


def add_routes(server: FastAPI, sources: Sources, views: PageFeed, error_log: ErrorLog) -> None:
    """Register all page routes below `/api/`; failures are written to `error_log`."""
    feed, runs, answers, send = sources.feed, sources.runs, AnswerCache(limit=MAX_FIGURE_BYTES), Sender(error_log)
    ticks = Ticks(views)

    def position_opener(request: Request) -> Callable[[], RecordedPosition] | None:
        """Return a function that opens the requested position in the recording; None for the common position."""
        position, boot = read_number(request, "at"), read_text(request, "boot")
        recording = sources.recording
        if position is None or recording is None:
            return None
        return partial(recording.at, position, boot)

    async def send_runs(request: Request, start: Callable[[Runs], Future[Packed]], what: str) -> Response:
        """Answer with the job that `start` begins for the runs at the requested position, or for the present ones."""
        position, boot = read_number(request, "at"), read_text(request, "boot")
        return await send(request, lambda: sources.ask_runs(position, start, boot), what)

    async def delta(request: Request) -> Response:
        open_position = position_opener(request)
        if open_position is None:
            return await ticks.answer(request)
        page, boot, since = read_text(request, "page"), read_text(request, "boot"), read_whole(request, "since")
        arguments = dict(request.query_params)

        def make() -> Packed:
            return Packed(open_position().views.answer(page, arguments, boot, since).packed)

        return await send(request, lambda: sources.figures.ask(make, tuple), "this position")

    async def kept(request: Request) -> Response:
        page, whole = PAGES.get(read_text(request, "page")), bool(read_text(request, "rest"))
        if page is None or (page.rest if whole else page.kept) is None:
            return error_response(request, 404, "No such page", "No page of this name shows what is kept.")
        args = {name: read_text(request, name) for name in (*page.args, *page.kept_args)}
        what = page.kept_of.value
        if page.kept_of in (StoredSubject.ACCOUNTS, StoredSubject.EVENTS, StoredSubject.DAY):
            return await send(request, partial(sources.accounts.kept, page, args), what)
        return await send_runs(
            request, lambda position_runs: (position_runs.rest if whole else position_runs.kept)(page, args), what
        )

    async def gpu(request: Request) -> Response:
        gpu_id, length = read_text(request, "gpu"), read_number(request, "window")
        begin, end = read_number(request, "from"), read_number(request, "to")
        points = max(2, min(read_whole(request, "points") or MAX_POINTS, MAX_POINTS))
        panels = read_list(request, "panels") or USUAL
        is_figure = _is_figure(request)

        def figure_of(feed: Feed) -> Callable[[], Packed]:
            with feed.lock:
                feed.refresh()
                frame = feed.frame
                samples = frame.samples if frame else ()
                sample = next((sample for sample in samples if _matches(sample.device, gpu_id)), None)
                if frame is None or sample is None:
                    return lambda: _packed(None)
                newest, uuid = frame.time, sample.device.uuid
                first, last, extent = begin, end, feed.known()
                if first is None or last is None or not first < last:
                    oldest = extent["begin"]
                    first, last = (max(oldest, newest - length) if length else oldest), newest
                history, epochs = feed.history.whole(uuid), feed.epochs.copy_for(uuid)
                processes = [process for process in frame.processes if process.uuid == uuid]
                # Do not let each part of the chart wait again for a file that cannot be read now.
                interval, log = frame.interval, "" if feed.history.problem else feed.live.history_file()

            def make() -> Packed:
                window = GpuChartWindow(first, last, points, panels)
                chart = gpu_chart(history, epochs, sample, processes, interval, log, window)
                if is_figure:
                    return _packed({"figure": plotly_figure(chart)})
                document = {"uuid": uuid, "begin": first, "end": last, "known": extent, "chart": chart}
                problem = feed.history.problem
                return _packed({**document, "problem": problem} if problem else document)

            return make

        open_position = position_opener(request)
        if open_position is not None:
            return await send(
                request, lambda: sources.figures.ask(lambda: figure_of(open_position().feed)(), tuple), "this GPU"
            )

        def start() -> Future[Packed]:
            with feed.lock:
                feed.refresh()
                key = (feed.boot, feed.newest, gpu_id, begin, end, length, points, panels, is_figure)
            return answers.get(key, math.inf, lambda _: sources.figures.ask(figure_of(feed), tuple))

        return await send(request, start, "this GPU")

    async def zoom(request: Request) -> Response:
        run, device = read_text(request, "id"), read_text(request, "gpu")
        begin, end = read_number(request, "from"), read_number(request, "to")
        figure_of = read_list(request, "panels") if _is_figure(request) else None
        return await send_runs(
            request,
            lambda position_runs: position_runs.zoomed(run, device, begin, end, figure_of),
            "this run on this GPU",
        )

    async def table(request: Request) -> Response:
        run = read_text(request, "id")
        answer = await send(request, partial(runs.table, run), "this run", "text/csv")
        if answer.status_code == 200:
            name = "".join(letter for letter in run if letter.isascii() and (letter.isalnum() or letter in "-_"))
            answer.headers["Content-Disposition"] = f'attachment; filename="epochs-{name[:80]}.csv"'
        return answer

    async def accounts(request: Request) -> Response:
        args = {name: read_text(request, name) for name in PAGES["users"].kept_args}
        answer = await send(request, partial(sources.accounts.table, args), "this window", "text/csv")
        if answer.status_code == 200:
            window = sources.accounts.window(args).file_name
            subject = "user" if read_text(request, "user") else "users"
            answer.headers["Content-Disposition"] = f'attachment; filename="{subject}-by-day-{window}.csv"'
        return answer

    async def news(request: Request) -> Response:
        since = read_number(request, "since")
        return await send(request, lambda: sources.accounts.news(since), "the events")

    views_by_path: Mapping[str, View] = {
        "delta": delta, "kept": kept, "gpu": gpu, "run/zoom": zoom, "run.csv": table, "users.csv": accounts,
        "news": news,
    }  # fmt: skip
    for path, view in views_by_path.items():
        _add(server, path, view)


def _add(server: FastAPI, path: str, view: View) -> None:
    server.add_route(f"/api/{path}", view, methods=["GET"], name=f"{PREFIX}{path.replace('.', '_')}")


def _is_figure(request: Request) -> bool:
    """Whether a chart is requested as a figure of Plotly."""
    return read_text(request, "as") == "figure"


def _packed(value: Any) -> Packed:
    if value is None:
        return Packed(b"")
    return Packed(gzip.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), 4, mtime=0))


def _matches(device: Any, text: str) -> bool:
    return bool(text) and text in (device.uuid, device.label)


def add_metrics(server: FastAPI, feed: Feed) -> None:
    """Register the route of the node's metrics for Prometheus, as from `gpumon export`."""
    # A server's feed always reads a `Live`; only feeds of positions in a recording do not.
    exporter = Exporter(cast(LiveData, feed.live), lock=feed.lock)

    def metrics(_: Request) -> Response:
        """Answer a scrape, in a thread of the server."""
        return Response(exporter.scrape(), headers={"Content-Type": CONTENT_TYPE})

    server.add_route(METRICS, metrics, methods=["GET"])
