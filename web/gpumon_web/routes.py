"""The routes that carry data: all of them read, all of them JSON but the table as CSV.

A tick is answered at once. Everything else is made where it delays no tick, and sent when it is there.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from flask import Flask, Response, request

from gpumon.errors import SourceError
from gpumon.figures.gpu import gpu_figure
from gpumon.history.query import MOST
from gpumon_web.answers import AnswerCache, Deferred, Packed
from gpumon_web.complaints import Complaints
from gpumon_web.environ import JOB
from gpumon_web.feed import Feed
from gpumon_web.live import PageFeed
from gpumon_web.page import Page
from gpumon_web.pages import PAGES
from gpumon_web.plain_page import BadNumber, failure
from gpumon_web.positions import RecordedPlace, Recording
from gpumon_web.repeats import PACKED, choose, takes_gzip
from gpumon_web.runs import Runs
from gpumon_web.work import BusyError, Inline, Work, WorkError

LONGEST_TEXT = 200
"""Characters of an argument; a longer one names nothing that there is."""
FURTHEST = 1e11
"""Seconds since 1970 that an argument may name: beyond them no calendar goes."""
FIGURES = 4 * 2**20
"""Bytes of figures of GPUs that are kept: each is good for one tick."""
PATIENCE = 60.0
"""Seconds to wait for an answer that is being made, where the server cannot answer others meanwhile."""
PREFIX = "api_"
"""Begins the endpoint of each of these routes."""


class Sources(NamedTuple):
    """The data that routes read."""

    feed: Feed
    runs: Runs
    figures: Work = Inline()
    """Makes figures of GPUs, and pages at positions of a recording."""
    recording: Recording | None = None
    """The recording that plays, if viewers may take it elsewhere."""


def add_routes(server: Flask, sources: Sources, views: PageFeed, complaints: Complaints) -> None:
    """Register every route below `/api/`; what cannot be made is complained of."""
    feed, runs, answers = sources.feed, sources.runs, AnswerCache(most=FIGURES)
    layouts = {name: layout_json(page) for name, page in PAGES.items()}

    def sent(start: Callable[[], Future[Packed]], what: str, mimetype: str = "application/json") -> Response:
        try:
            return _sent(start, what, mimetype)
        except SourceError as error:
            return failure(request, 404, "Not found", f"{error}.")
        except (WorkError, OSError, EOFError) as error:
            if not isinstance(error, BusyError):
                kind = f"cannot create {what}: {type(error).__name__}"
                complaints.say(kind, f"gpumon web: {kind}: {error}")
            return failure(request, 503, "Busy", "Wait a moment and try again.", {"Retry-After": "2"})

    def place() -> Callable[[], RecordedPlace] | None:
        """Of the position in the recording that is asked for; where none is, the place is that of everybody."""
        position, boot = _number("at"), _text("boot")
        recording = sources.recording
        if position is None or recording is None:
            return None
        return lambda: recording.at(position, boot)

    def delta() -> Response:
        found = place()
        if found is not None:
            page, given, boot, since = _text("page"), request.args.to_dict(), _text("boot"), _whole("since")
            return sent(
                lambda: sources.figures.ask(
                    lambda: Packed(found().views.answer(page, given, boot, since).packed), tuple
                ),
                "this position",
            )
        answer = views.answer(_text("page"), request.args, _text("boot"), _whole("since"))
        is_packed, body = choose(answer, takes_gzip(request))
        return Response(body, mimetype="application/json", headers=PACKED if is_packed else None)

    def layout() -> Response:
        # As for values, an address of no page is one of the first.
        return Response(layouts.get(_text("page"), next(iter(layouts.values()))), mimetype="application/json")

    def kept() -> Response:
        page, whole = PAGES.get(_text("page")), bool(_text("rest"))
        if page is None or (page.rest if whole else page.kept) is None:
            return failure(request, 404, "No such page", "No page of this name shows runs of the ledger.")
        args = {name: _text(name) for name in (*page.args, *page.kept_args)}
        what = "this run" if page.of_run else "the list of runs"
        found = place()
        if found is not None:

            def made() -> Packed:
                of = found().runs
                return (of.rest(page, args) if whole else of.kept(page, args)).result(PATIENCE)

            return sent(lambda: sources.figures.ask(made, tuple), what)
        return sent(partial(runs.rest if whole else runs.kept, page, args), what)

    def gpu() -> Response:
        wanted, begin, end, length = _text("gpu"), _number("from"), _number("to"), _number("window")
        points, run = max(2, min(_whole("points") or MOST, MOST)), _text("run")

        def figure_of(feed: Feed) -> Callable[[], Packed]:
            with feed.lock:
                feed.refresh()
                frame = feed.frame
                sample = next((one for one in frame.samples if _is_named(one.device, wanted)), None) if frame else None
                if frame is None or sample is None:
                    return lambda: _packed(None)
                newest, uuid = frame.time, sample.device.uuid
                first, last = begin, end
                if first is None or last is None or not first < last:
                    oldest = feed.history.begin
                    first, last = (max(oldest, newest - length) if length else oldest), newest
                history, epochs, known = feed.history.whole(uuid), feed.epochs.only(uuid), feed.known()

            def make() -> Packed:
                figure = gpu_figure(
                    history=history, epochs=epochs, sample=sample, begin=first, end=last, points=points, run=run
                )
                return _packed({"uuid": uuid, "begin": first, "end": last, "known": known, "figure": figure})

            return make

        found = place()
        if found is not None:
            return sent(lambda: sources.figures.ask(lambda: figure_of(found().feed)(), tuple), "this GPU")
        with feed.lock:
            feed.refresh()
            key = (feed.boot, feed.newest, wanted, begin, end, length, points, run)
        return sent(
            partial(answers.get, key, math.inf, lambda _: sources.figures.ask(figure_of(feed), tuple)), "this GPU"
        )

    def all_runs() -> Response:
        return sent(runs.all, "the list of runs")

    def one_run() -> Response:
        return sent(partial(runs.one, _text("id"), _text("gpu")), "this run")

    def zoom() -> Response:
        run, device, begin, end = _text("id"), _text("gpu"), _number("from"), _number("to")
        found = place()
        if found is not None:
            return sent(
                lambda: sources.figures.ask(
                    lambda: found().runs.zoomed(run, device, begin, end).result(PATIENCE), tuple
                ),
                "this run on this GPU",
            )
        return sent(partial(runs.zoomed, run, device, begin, end), "this run on this GPU")

    def epochs() -> Response:
        return sent(partial(runs.epochs, _text("id")), "this run")

    def table() -> Response:
        answer = sent(partial(runs.table, _text("id")), "this run", "text/csv")
        if answer.status_code == 200:
            name = "".join(
                letter for letter in _text("id") if letter.isascii() and (letter.isalnum() or letter in "-_")
            )
            answer.headers["Content-Disposition"] = f'attachment; filename="epochs-{name[:80]}.csv"'
        return answer

    for path, view in (
        ("delta", delta), ("layout", layout), ("kept", kept), ("gpu", gpu), ("runs", all_runs), ("run", one_run),
        ("run/zoom", zoom), ("run/epochs", epochs), ("run.csv", table),
    ):  # fmt: skip
        server.add_url_rule(f"/api/{path}", f"{PREFIX}{path.replace('.', '_')}", view, methods=["GET"])


def layout_json(page: Page) -> str:
    """A page's layout as React gets it, with the name of the page."""
    found = {"page": page.name, "layout": page.layout()}
    return json.dumps(found, default=lambda component: component.to_plotly_json(), separators=(",", ":"))


def _sent(start: Callable[[], Future[Packed]], what: str, mimetype: str = "application/json") -> Response:
    """The answer that `start` begins to make, or has.

    Raises Deferred while it is being made, and what work raises when it cannot be.
    """
    job: Future[Packed] | None = request.environ.get(JOB)
    if job is None:
        job = start()
        if not job.done() and JOB in request.environ:
            raise Deferred(job)
    answer = job.result(PATIENCE)
    if not answer.body:
        return failure(request, 404, "Not found", f"There is no record of {what}.")
    if takes_gzip(request):
        return Response(answer.body, mimetype=mimetype, headers=PACKED)
    return Response(gzip.decompress(answer.body), mimetype=mimetype, headers={"Vary": "Accept-Encoding"})


def _packed(value: Any) -> Packed:
    if value is None:
        return Packed(b"")
    return Packed(gzip.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), 4, mtime=0))


def _is_named(device: Any, text: str) -> bool:
    return bool(text) and text in (device.uuid, device.label)


def _text(name: str) -> str:
    given = request.args.get(name, "")
    return given if len(given) <= LONGEST_TEXT else ""


def _whole(name: str) -> int:
    given = request.args.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else 0


def _number(name: str) -> float | None:
    """A number of seconds; None where there is none. Raises BadNumber for one that nobody means."""
    given = _text(name).strip()
    if not given:
        return None
    try:
        number = float(given)
    except ValueError:
        raise BadNumber(name) from None
    if not abs(number) <= FURTHEST:
        raise BadNumber(name)
    return number
