"""The data routes of the pages. All are read-only and return JSON, except for the CSV downloads.

A tick is answered at once. All other answers are made by background work, where they do not delay ticks.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, cast

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
from gpumon_web.jobs import NOTHING, AnswerCache, Inline, Packed, Work, packed
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
    routes = _PageRoutes(sources, views, error_log)
    for path, view in routes.views.items():
        _add(server, path, view)


class ChartRequest(NamedTuple):
    """The chart of a GPU that a page asks for."""

    gpu: str
    begin: float | None
    """Seconds since 1970, like `end`."""
    end: float | None
    length: float | None
    """Seconds up to now, unless there are `begin` and `end`; None for all that is known."""
    points: int
    panels: tuple[str, ...]
    is_figure: bool
    """Whether it is wanted as a figure of Plotly."""


def chart_job(feed: Feed, wanted: ChartRequest) -> Callable[[], Packed]:
    """Copy what the chart of a GPU needs out of a feed, and return the function that makes the chart."""
    with feed.lock:
        feed.refresh()
        frame = feed.frame
        samples = frame.samples if frame else ()
        matches = (sample for sample in samples if wanted.gpu in (sample.device.uuid, sample.device.label))
        sample = next(matches, None) if wanted.gpu else None
        if frame is None or sample is None:
            return lambda: NOTHING
        newest, uuid, extent = frame.time, sample.device.uuid, feed.known()
        first, last = wanted.begin, wanted.end
        if first is None or last is None or not first < last:
            oldest = extent["begin"]
            first, last = (max(oldest, newest - wanted.length) if wanted.length else oldest), newest
        history, epochs = feed.history.whole(uuid), feed.epochs.copy_for(uuid)
        processes = [process for process in frame.processes if process.uuid == uuid]
        # Do not let each part of the chart wait again for a file that cannot be read now.
        interval, log = frame.interval, "" if feed.history.problem else feed.live.history_file()

    def make() -> Packed:
        window = GpuChartWindow(first, last, wanted.points, wanted.panels)
        chart = gpu_chart(history, epochs, sample, processes, interval, log, window)
        if wanted.is_figure:
            return packed({"figure": plotly_figure(chart)})
        document = {"uuid": uuid, "begin": first, "end": last, "known": extent, "chart": chart}
        problem = feed.history.problem
        return packed({**document, "problem": problem} if problem else document)

    return make


class _PageRoutes:
    """The routes that pages request, by their path below `/api/`."""

    def __init__(self, sources: Sources, views: PageFeed, error_log: ErrorLog) -> None:
        self._sources = sources
        self._answers = AnswerCache(limit=MAX_FIGURE_BYTES)
        self._send = Sender(error_log)
        self._ticks = Ticks(views)
        self.views: Mapping[str, View] = {
            "delta": self._delta, "kept": self._kept, "gpu": self._gpu, "run/zoom": self._zoom,
            "run.csv": self._table, "users.csv": self._accounts, "news": self._news,
        }  # fmt: skip

    def _position_opener(self, request: Request) -> Callable[[], RecordedPosition] | None:
        """Return a function that opens the requested position in the recording; None for the common position."""
        position, recording = read_number(request, "at"), self._sources.recording
        if position is None or recording is None:
            return None
        return partial(recording.at, position, read_text(request, "boot"))

    async def _send_runs(self, request: Request, start: Callable[[Runs], Future[Packed]], what: str) -> Response:
        """Answer with the job that `start` begins for the runs at the requested position, or for the present ones."""
        position, boot = read_number(request, "at"), read_text(request, "boot")
        return await self._send(request, lambda: self._sources.ask_runs(position, start, boot), what)

    async def _delta(self, request: Request) -> Response:
        open_position = self._position_opener(request)
        if open_position is None:
            return await self._ticks.answer(request)
        page, boot, since = read_text(request, "page"), read_text(request, "boot"), read_whole(request, "since")
        arguments = dict(request.query_params)

        def make() -> Packed:
            return Packed(open_position().views.answer(page, arguments, boot, since).packed)

        return await self._send(request, lambda: self._sources.figures.ask(make, tuple), "this position")

    async def _kept(self, request: Request) -> Response:
        page, whole = PAGES.get(read_text(request, "page")), bool(read_text(request, "rest"))
        if page is None or (page.rest if whole else page.kept) is None:
            return error_response(request, 404, "No such page", "No page of this name shows what is kept.")
        args = {name: read_text(request, name) for name in (*page.args, *page.kept_args)}
        what = page.kept_of.value
        if page.kept_of in (StoredSubject.ACCOUNTS, StoredSubject.EVENTS, StoredSubject.DAY):
            return await self._send(request, partial(self._sources.accounts.kept, page, args), what)
        return await self._send_runs(request, lambda runs: (runs.rest if whole else runs.kept)(page, args), what)

    async def _gpu(self, request: Request) -> Response:
        wanted = ChartRequest(
            read_text(request, "gpu"), read_number(request, "from"), read_number(request, "to"),
            read_number(request, "window"), max(2, min(read_whole(request, "points") or MAX_POINTS, MAX_POINTS)),
            read_list(request, "panels") or USUAL, _is_figure(request),
        )  # fmt: skip
        feed, figures, open_position = self._sources.feed, self._sources.figures, self._position_opener(request)

        def start() -> Future[Packed]:
            if open_position is not None:
                return figures.ask(lambda: chart_job(open_position().feed, wanted)(), tuple)
            with feed.lock:
                feed.refresh()
                key = (feed.boot, feed.newest, *wanted)
            return self._answers.get(key, math.inf, lambda _: figures.ask(chart_job(feed, wanted), tuple))

        return await self._send(request, start, "this GPU")

    async def _zoom(self, request: Request) -> Response:
        run, device = read_text(request, "id"), read_text(request, "gpu")
        begin, end = read_number(request, "from"), read_number(request, "to")
        figure_of = read_list(request, "panels") if _is_figure(request) else None
        return await self._send_runs(
            request, lambda runs: runs.zoomed(run, device, begin, end, figure_of), "this run on this GPU"
        )

    async def _table(self, request: Request) -> Response:
        run = read_text(request, "id")
        name = "".join(letter for letter in run if letter.isascii() and (letter.isalnum() or letter in "-_"))
        answer = await self._send(request, partial(self._sources.runs.table, run), "this run", "text/csv")
        return _as_file(answer, f"epochs-{name[:80]}.csv")

    async def _accounts(self, request: Request) -> Response:
        accounts = self._sources.accounts
        args = {name: read_text(request, name) for name in PAGES["users"].kept_args}
        answer = await self._send(request, partial(accounts.table, args), "this window", "text/csv")
        return _as_file(answer, f"{'user' if args['user'] else 'users'}-by-day-{accounts.window(args).file_name}.csv")

    async def _news(self, request: Request) -> Response:
        since = read_number(request, "since")
        return await self._send(request, lambda: self._sources.accounts.news(since), "the events")


def _add(server: FastAPI, path: str, view: View) -> None:
    server.add_route(f"/api/{path}", view, methods=["GET"], name=f"{PREFIX}{path.replace('.', '_')}")


def _as_file(answer: Response, name: str) -> Response:
    """Let a browser save an answer under this name, unless it is an error."""
    if answer.status_code == 200:
        answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _is_figure(request: Request) -> bool:
    """Whether a chart is requested as a figure of Plotly."""
    return read_text(request, "as") == "figure"


def add_metrics(server: FastAPI, feed: Feed) -> None:
    """Register the route of the node's metrics for Prometheus, as from `gpumon export`."""
    # A server's feed always reads a `Live`; only feeds of positions in a recording do not.
    exporter = Exporter(cast(LiveData, feed.live), lock=feed.lock)

    def metrics(_: Request) -> Response:
        """Answer a scrape, in a thread of the server."""
        return Response(exporter.scrape(), headers={"Content-Type": CONTENT_TYPE})

    server.add_route(METRICS, metrics, methods=["GET"])
