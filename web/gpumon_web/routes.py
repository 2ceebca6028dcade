"""The routes that carry data: all of them read, all of them JSON but the table as CSV."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from threading import BoundedSemaphore
from typing import Any, NamedTuple

from flask import Flask, Response, request

from gpumon_web.feed import Feed
from gpumon_web.figures.gpu import gpu_figure
from gpumon_web.limits import PATIENCE, figure_turns
from gpumon_web.pages import plain
from gpumon_web.runs import Runs
from gpumon_web.series import MOST

LONGEST_TEXT = 200
"""Characters of an argument; a longer one names nothing that there is."""


class Sources(NamedTuple):
    """What the routes read."""

    feed: Feed
    runs: Runs


def add_routes(server: Flask, sources: Sources) -> None:
    """Register every route below `/api/`."""
    feed, runs, turns = sources.feed, sources.runs, figure_turns()

    def delta() -> Response:
        answer = feed.delta(_text("boot"), _whole("since"), _whole("about"))
        if "gzip" not in request.headers.get("Accept-Encoding", "").lower() or len(answer.plain) < 1024:
            return Response(answer.plain, mimetype="application/json")
        return Response(answer.packed, mimetype="application/json", headers=_PACKED)

    def gpu() -> Response:
        def make() -> Any:
            with feed.lock:
                feed.refresh()
                sample = next((one for one in feed.frame.samples if _is_named(one.device, _text("gpu"))), None) \
                    if feed.frame else None  # fmt: skip
                if sample is None:
                    return None
                begin, end = _window(feed)
                figure = gpu_figure(feed.history, feed.epochs, sample, begin, end, _points(), _text("run"))
                known = feed.known()
            return {"uuid": sample.device.uuid, "begin": begin, "end": end, "known": known, "figure": figure}

        return _figure(turns, make, "this GPU")

    def all_runs() -> Response:
        return _json(runs.all())

    def one_run() -> Response:
        return _figure(turns, lambda: runs.one(_text("id"), _text("gpu"), _points()), "this run")

    def table() -> Response:
        found = runs.table(_text("id"))
        if found is None:
            return _nothing("this run")
        name = "".join(letter for letter in _text("id") if letter.isalnum() or letter in "-_")[:80]
        headers = {"Content-Disposition": f'attachment; filename="epochs-{name}.csv"'}
        return Response(found, mimetype="text/csv", headers=headers)

    for path, view in (
        ("delta", delta), ("gpu", gpu), ("runs", all_runs), ("run", one_run), ("run.csv", table),
    ):  # fmt: skip
        server.add_url_rule(f"/api/{path}", f"api_{path}", view, methods=["GET"])


_PACKED = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}


def _figure(turns: BoundedSemaphore, make: Callable[[], Any], what: str) -> Response:
    if not turns.acquire(timeout=PATIENCE):
        return plain(503, "Too many figures at once", "Wait a moment.", {"Retry-After": "2"})
    try:
        found = make()
    finally:
        turns.release()
    return _nothing(what) if found is None else _json(found)


def _window(feed: Feed) -> tuple[float, float]:
    """The window that is asked for: `from` and `to`, or the last `window` seconds; all there is without either."""
    newest = feed.frame.time if feed.frame else 0.0
    begin, end = _number("from"), _number("to")
    if begin is not None and end is not None and begin < end:
        return begin, end
    length = _number("window")
    oldest = feed.history.begin if feed.history.times else newest
    return (max(oldest, newest - length) if length else oldest), newest


def _is_named(device: Any, text: str) -> bool:
    return bool(text) and text in (device.uuid, str(device.index))


def _json(value: Any) -> Response:
    return Response(json.dumps(value, separators=(",", ":"), allow_nan=False), mimetype="application/json")


def _nothing(what: str) -> Response:
    return plain(404, "Not found", f"There is no trace of {what}.")


def _text(name: str) -> str:
    given = request.args.get(name, "")
    return given if len(given) <= LONGEST_TEXT else ""


def _whole(name: str) -> int:
    given = request.args.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else 0


def _number(name: str) -> float | None:
    try:
        given = float(_text(name))
    except ValueError:
        return None
    return given if math.isfinite(given) else None


def _points() -> int:
    return max(2, min(_whole("points") or MOST, MOST))
