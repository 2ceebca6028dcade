"""The data routes of the pages. All are read-only and return JSON, except for the CSV downloads.

A tick is answered at once. All other answers are made by workers, where they do not delay ticks.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from flask import Flask, Response, request

from gpumon.storage.history.query import MAX_POINTS
from gpumon_web.auth.http_errors import BadNumber, error_response
from gpumon_web.charts.gpu_chart import USUAL, GpuChartWindow, gpu_chart
from gpumon_web.components.page import Page, StoredSubject
from gpumon_web.components.person_colors import PersonColors
from gpumon_web.feed import Feed
from gpumon_web.http.error_log import ErrorLog
from gpumon_web.jobs import AnswerCache, Inline, Packed, Work
from gpumon_web.live.accounts import Accounts
from gpumon_web.live.positions import RecordedPosition, Recording
from gpumon_web.live.runs import Runs
from gpumon_web.live.values import PageFeed, PageViews
from gpumon_web.pages import PAGES
from gpumon_web.routes.responses import MAX_WAIT, Sender
from gpumon_web.routes.ticks import PACKED, choose_body, takes_gzip

MAX_TEXT = 200
"""Longest argument in characters; a longer one cannot name anything that exists."""
MAX_LIST = 1000
"""Longest argument that is a list of names, in characters."""
MAX_TIME = 1e11
"""Largest time accepted as an argument (s since 1970): calendars do not go further."""
MAX_FIGURE_BYTES = 4 * 2**20
"""Size in bytes of the cache of GPU charts, each of which is valid for one tick."""
PREFIX = "api_"
"""Prefix of the Flask endpoint names of these routes."""


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


def add_page_routes(server: Flask, views: PageViews, pages: Mapping[str, Page]) -> None:
    """Register the routes of pages that only have live values: ticks and layouts."""
    for name, view in (("delta", lambda: _tick(views)), ("layout", _layouts(pages))):
        server.add_url_rule(f"/api/{name}", f"{PREFIX}{name}", view)


def add_routes(server: Flask, sources: Sources, views: PageFeed, error_log: ErrorLog) -> None:
    """Register all page routes below `/api/`; failures are written to `error_log`."""
    feed, runs, answers, send = sources.feed, sources.runs, AnswerCache(limit=MAX_FIGURE_BYTES), Sender(error_log)
    layout = _layouts(PAGES)

    @server.after_request
    def _(response: Response) -> Response:
        """Start the worker process while the browser loads the page, as both take about as long."""
        if request.path == "/" and response.status_code == 200:
            runs.start_reading()
        return response

    def position_opener() -> Callable[[], RecordedPosition] | None:
        """Return a function that opens the requested position in the recording; None for the common position."""
        position, boot = _number("at"), _text("boot")
        recording = sources.recording
        if position is None or recording is None:
            return None
        return partial(recording.at, position, boot)

    def delta() -> Response:
        open_position = position_opener()
        if open_position is not None:
            page, arguments, boot, since = _text("page"), request.args.to_dict(), _text("boot"), _whole("since")
            return send(
                lambda: sources.figures.ask(
                    lambda: Packed(open_position().views.answer(page, arguments, boot, since).packed), tuple
                ),
                "this position",
            )
        return _tick(views)

    def kept() -> Response:
        page, whole = PAGES.get(_text("page")), bool(_text("rest"))
        if page is None or (page.rest if whole else page.kept) is None:
            return error_response(request, 404, "No such page", "No page of this name shows what is kept.")
        longest = MAX_LIST if page.kept_of is StoredSubject.COMPARED else MAX_TEXT
        args = {name: _text(name, longest) for name in (*page.args, *page.kept_args)}
        what = page.kept_of.value
        if page.kept_of in (StoredSubject.ACCOUNTS, StoredSubject.EVENTS, StoredSubject.DAY):
            return send(partial(sources.accounts.kept, page, args), what)
        open_position = position_opener()
        if open_position is not None:

            def make() -> Packed:
                position_runs = open_position().runs
                answer = position_runs.rest(page, args) if whole else position_runs.kept(page, args)
                return answer.result(MAX_WAIT)

            return send(lambda: sources.figures.ask(make, tuple), what)
        return send(partial(runs.rest if whole else runs.kept, page, args), what)

    def gpu() -> Response:
        gpu_id, begin, end, length = _text("gpu"), _number("from"), _number("to"), _number("window")
        points, panels = max(2, min(_whole("points") or MAX_POINTS, MAX_POINTS)), _list("panels") or USUAL

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
                document = {"uuid": uuid, "begin": first, "end": last, "known": extent, "chart": chart}
                problem = feed.history.problem
                return _packed({**document, "problem": problem} if problem else document)

            return make

        open_position = position_opener()
        if open_position is not None:
            return send(lambda: sources.figures.ask(lambda: figure_of(open_position().feed)(), tuple), "this GPU")
        with feed.lock:
            feed.refresh()
            key = (feed.boot, feed.newest, gpu_id, begin, end, length, points, panels)
        return send(
            partial(answers.get, key, math.inf, lambda _: sources.figures.ask(figure_of(feed), tuple)), "this GPU"
        )

    def all_runs() -> Response:
        return send(runs.all, "the list of runs")

    def one_run() -> Response:
        return send(partial(runs.run, _text("id"), _text("gpu")), "this run")

    def zoom() -> Response:
        run, device, begin, end = _text("id"), _text("gpu"), _number("from"), _number("to")
        open_position = position_opener()
        if open_position is not None:
            return send(
                lambda: sources.figures.ask(
                    lambda: open_position().runs.zoomed(run, device, begin, end).result(MAX_WAIT), tuple
                ),
                "this run on this GPU",
            )
        return send(partial(runs.zoomed, run, device, begin, end), "this run on this GPU")

    def epochs() -> Response:
        return send(partial(runs.epochs, _text("id")), "this run")

    def table() -> Response:
        answer = send(partial(runs.table, _text("id")), "this run", "text/csv")
        if answer.status_code == 200:
            name = "".join(
                letter for letter in _text("id") if letter.isascii() and (letter.isalnum() or letter in "-_")
            )
            answer.headers["Content-Disposition"] = f'attachment; filename="epochs-{name[:80]}.csv"'
        return answer

    def accounts() -> Response:
        args = {name: _text(name) for name in PAGES["users"].kept_args}
        answer = send(partial(sources.accounts.table, args), "this window", "text/csv")
        if answer.status_code == 200:
            window = sources.accounts.window(args).file_name
            subject = "user" if _text("user") else "users"
            answer.headers["Content-Disposition"] = f'attachment; filename="{subject}-by-day-{window}.csv"'
        return answer

    def news() -> Response:
        since = _number("since")
        return send(lambda: sources.accounts.news(since), "the events")

    for path, view in (
        ("delta", delta), ("layout", layout), ("kept", kept), ("gpu", gpu), ("runs", all_runs), ("run", one_run),
        ("run/zoom", zoom), ("run/epochs", epochs), ("run.csv", table),
        ("users.csv", accounts), ("news", news),
    ):  # fmt: skip
        server.add_url_rule(f"/api/{path}", f"{PREFIX}{path.replace('.', '_')}", view, methods=["GET"])


def layout_json(page: Page) -> str:
    """Return a page's name and layout as JSON, in Dash's format of components."""
    document = {"page": page.name, "layout": page.layout()}
    return json.dumps(document, default=lambda component: component.to_plotly_json(), separators=(",", ":"))


def _packed(value: Any) -> Packed:
    if value is None:
        return Packed(b"")
    return Packed(gzip.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), 4, mtime=0))


def _tick(views: PageViews) -> Response:
    """Answer a tick: the values that changed for the viewer."""
    answer = views.answer(_text("page"), request.args, _text("boot"), _whole("since"))
    is_packed, body = choose_body(answer, takes_gzip(request))
    return Response(body, mimetype="application/json", headers=PACKED if is_packed else None)


def _layouts(pages: Mapping[str, Page]) -> Callable[[], Response]:
    """Return the view of page layouts, each encoded once."""
    layouts = {name: layout_json(page) for name, page in pages.items()}
    first = next(iter(layouts.values()))
    # As for values, an unknown page is answered with the first one.
    return lambda: Response(layouts.get(_text("page"), first), mimetype="application/json")


def _matches(device: Any, text: str) -> bool:
    return bool(text) and text in (device.uuid, device.label)


def _text(name: str, max_length: int = MAX_TEXT) -> str:
    value = request.args.get(name, "")
    return value if len(value) <= max_length else ""


def _list(name: str) -> tuple[str, ...]:
    """Parse a comma-separated list."""
    value = request.args.get(name, "")
    return tuple(value.split(",")) if value and len(value) <= MAX_LIST else ()


def _whole(name: str) -> int:
    value = request.args.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else 0


def _number(name: str) -> float | None:
    """Parse a number of seconds; None if it is not given. Raises BadNumber if it is invalid or out of range."""
    value = _text(name).strip()
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        raise BadNumber(name) from None
    if not abs(number) <= MAX_TIME:
        raise BadNumber(name)
    return number
