"""The values of each page at each tick: computed once for all viewers, and sent only if they changed.

A viewer sends the number of the newest frame it has. Every value, cell and row order stores the number of the frame
that last changed it, so an answer has exactly what changed after the viewer's frame.
"""

from __future__ import annotations

import gzip
import json
import math
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Protocol

from gpumon.analysis.gpu_state import GpuState
from gpumon_web.components.machine import Now
from gpumon_web.components.page import Args, Cells, Page, Rows
from gpumon_web.components.person_colors import PersonColors
from gpumon_web.components.tokens import gpu_address, run_address, run_name
from gpumon_web.feed import FIRST_WINDOW, SPARK, Feed, JsonBody, host_row
from gpumon_web.pages import PAGES

_USED = (GpuState.BUSY, GpuState.ALLOCATED, GpuState.HELD)


def notification_state(now: Now) -> Cells:
    """Return what notifications watch: free GPUs, used GPUs, and each run as [id, name, user, state, is stalled].

    `places` has the prefixes of the addresses of a GPU and of a run.
    """
    states = [(gpu.label, gpu.state) for gpu in now.gpus]
    return {
        "places": [gpu_address(""), run_address("")],
        "free": [label for label, state in states if state is GpuState.FREE],
        "used": [label for label, state in states if state in _USED],
        "runs": [[run["id"], run_name(run), run["user"], run["state"], run["stalled"]] for run in now.runs.values()],
    }


AWAKE = 2.0
"""Seconds after an answer within which few frames are new."""
MAX_CACHED = 64
"""Number of pages with arguments, and of answers per page, that are cached."""
MEAN_EVERY = 5.0
"""Seconds after which the means over the first window are recomputed."""
MAX_TEXT = 200
"""Characters to which arguments in an address are cut."""
_MISSING = object()


class Versions:
    """Values by name, each with the number of the frame that last changed it."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[Any, int]] = {}

    def update(self, number: int, values: Cells) -> None:
        """Store the values at frame `number`; a value that has disappeared becomes None."""
        for name in (*values, *(name for name in self._values if name not in values)):
            value = values.get(name)
            if self._values.get(name, (_MISSING, 0))[0] != value:
                self._values[name] = value, number

    def since(self, number: int) -> Cells:
        """Return the values that changed after frame `number`."""
        return {name: value for name, (value, changed) in self._values.items() if changed > number}


class TableVersions:
    """Rows of a table, with the frame that last changed each cell and their order."""

    def __init__(self) -> None:
        self._rows: dict[str, Versions] = {}
        self._order: list[str] = []
        self._ordered = 0

    def update(self, number: int, rows: Rows) -> None:
        """Store the rows at frame `number`."""
        order = [row["key"] for row in rows]
        if order != self._order or not self._ordered:
            self._order, self._ordered = order, number
            self._rows = {key: self._rows.get(key, Versions()) for key in order}
        for row in rows:
            self._rows[row["key"]].update(number, row)

    def since(self, number: int) -> Cells:
        """Return the changes after frame `number`: cells, and the order if it changed; empty if none."""
        cells = {key: changes for key, row in self._rows.items() if (changes := row.since(number))}
        order = {"order": self._order} if self._ordered > number else {}
        return {**order, "cells": cells} if cells or order else {}


class PageVersions:
    """Values of one page with its arguments, as of the last tick at which a viewer requested it."""

    def __init__(self) -> None:
        self.number = self._first = 0
        self._values, self._server = Versions(), Versions()
        self._tables: dict[str, TableVersions] = {}
        self.answers: dict[tuple[Any, ...], JsonBody] = {}

    def update(self, number: int, values: Cells, server: Cells) -> None:
        """Store the page's values and tables at frame `number`, and the values of the server common to all pages."""
        if not self._first:
            self._first = number
        self.number = number
        for name, value in values.items():
            if isinstance(value, Rows):
                self._tables.setdefault(name, TableVersions()).update(number, value)
        self._values.update(number, {name: value for name, value in values.items() if not isinstance(value, Rows)})
        self._server.update(number, server)
        self.answers.clear()

    def since(self, number: int) -> Cells:
        """Return what changed after frame `number`; everything, with `reset`, if that frame is unknown."""
        is_whole = not self._first <= number <= self.number
        number = -1 if is_whole else number
        tables = {name: changes for name, table in self._tables.items() if (changes := table.since(number))}
        changed = {"values": self._values.since(number), "server": self._server.since(number), "tables": tables}
        return {**changed, "reset": True} if is_whole else changed


class PagedFeed(Protocol):
    """A feed that pages can be computed from."""

    lock: Lock

    @property
    def boot(self) -> str:
        """Changes when the numbering of ticks restarts."""

    @property
    def newest(self) -> int:
        """The number of the newest tick."""

    def refresh(self) -> None:
        """Read new data. The caller holds `lock`."""

    def head(self) -> dict[str, Any]:
        """Return the state shown at the top of every page. The caller holds `lock`."""

    def lines(self, named: Mapping[str, tuple[str, str]], since: int, has_past: bool) -> dict[str, Any]:
        """Return the points of chart lines, by name. The caller holds `lock`."""


class PageViews(ABC):
    """All pages of one feed. Thread-safe."""

    def __init__(self, paged: PagedFeed, pages: Mapping[str, Page], colors: PersonColors | None = None) -> None:
        self._paged = paged
        self.colors = colors or PersonColors()
        self._pages = pages
        self._first = next(iter(pages.values()))
        self._views: OrderedDict[tuple[Any, ...], PageVersions] = OrderedDict()
        self._answered = -math.inf
        """When a viewer was last answered, seconds of the monotonic clock."""

    @abstractmethod
    def now(self) -> Now:
        """Return the live data of the newest tick. The caller holds the feed's lock."""

    @abstractmethod
    def server(self, now: Now) -> Cells:
        """Return the values common to all pages: for their head and for navigation."""

    def is_quick(self, boot: str, since: int) -> bool:
        """Whether `answer` takes a few milliseconds for a viewer.

        `since`: number of the last frame that the viewer has seen. `boot`: the numbering of frames that it belongs to.

        It takes longer for the first answer of a page, after a pause without viewers, and while frames are being read.
        """
        is_awake = time.monotonic() - self._answered < AWAKE
        return is_awake and since > 0 and boot == self._paged.boot and not self._paged.lock.locked()

    def answer(self, page: str, arguments: Mapping[str, str], boot: str, since: int) -> JsonBody:
        """Return the changes for a viewer of `page`, or of the first page if it is unknown."""
        definition = self._pages.get(page, self._first)
        args = {name: arguments.get(name, "")[:MAX_TEXT] or default for name, default in definition.args.items()}
        answer = self.delta(definition, args, boot, since)
        self._answered = time.monotonic()
        return answer

    def delta(self, page: Page, args: Args, boot: str, since: int) -> JsonBody:
        """Return what changed for a viewer of `page`. See `is_quick` for the other arguments."""
        feed = self._paged
        with feed.lock:
            feed.refresh()
            now = self.now()
            view = self._view(page, args)
            head = feed.head()
            if view.number != feed.newest:
                view.update(feed.newest, page.live(now, args), self.server(now))
            since = since if boot == feed.boot and since <= feed.newest else 0
            key = (since, json.dumps(head))
            answer = view.answers.get(key)
            if answer is None:
                if len(view.answers) >= MAX_CACHED:
                    view.answers.clear()
                series = feed.lines(page.series(now, args), since, page.has_past)
                answer = view.answers[key] = packed(
                    {**head, "page": page.name, "now": round(now.time, 3), **view.since(since), "series": series}
                )
            return answer

    def _view(self, page: Page, args: Args) -> PageVersions:
        key = (page.name, self._paged.boot, *sorted(args.items()))
        view = self._views.setdefault(key, PageVersions())
        self._views.move_to_end(key)
        if len(self._views) > MAX_CACHED:
            self._views.popitem(last=False)
        return view


class PageFeed(PageViews):
    """All pages of one machine."""

    def __init__(self, feed: Feed, colors: PersonColors | None = None) -> None:
        super().__init__(feed, PAGES, colors)
        self._feed = feed
        self._now = Now()
        self._boot = ""
        self._seen = -1
        self._means: dict[str, tuple[float, float] | None] = {}
        self._means_at = -MEAN_EVERY

    def now(self) -> Now:
        """Return the live data of the newest tick. The caller holds the feed's lock."""
        feed = self._feed
        if (self._boot, self._seen) == (feed.boot, feed.newest) or feed.frame is None:
            return self._now
        self._boot, self._seen = feed.boot, feed.newest
        newest, about, origin = feed.frame.time, feed.about, feed.live.origin()
        if not 0 <= newest - self._means_at < MEAN_EVERY:
            self._means_at = newest
            self._means = {gpu.uuid: feed.mean(gpu.uuid, SPARK, FIRST_WINDOW) for gpu in about.gpus}
        gpus = []
        for gpu in about.gpus:
            counted = feed.values(gpu.uuid)
            values = gpu.last_known() or counted
            gpus.append(replace(gpu, values=values, counted=counted, mean=self._means.get(gpu.uuid)))
        self._now = replace(
            about, time=newest, gpus=gpus, host={**host_row(feed.frame), **feed.host_rates()}, problem=origin.problem,
            lacks_card=origin.lacks_card, notice=origin.notice,
        )  # fmt: skip
        return self._now

    def server(self, now: Now) -> Cells:
        """Return the values common to all pages: for their head and for navigation."""
        users = {run["user"] for run in now.runs.values()}
        users |= {holder.user or "" for gpu in now.gpus for holder in gpu.holders}
        labels = [gpu.label for gpu in now.gpus]
        return {
            "hostname": now.hostname,
            "users": sorted(users - {""}),
            "places": self.colors.styles(users),
            "nameless": self._feed.hides_names,
            "home": gpu_address(labels[0]) if len(labels) == 1 else "",
            "has_gpus": bool(labels),
            "runs": [[run["id"], run["state"], run["epoch"], run["phase"]] for run in now.runs.values()],
            "watched": notification_state(now),
        }


def packed(body: Cells) -> JsonBody:
    """Encode `body` as JSON, plain and compressed."""
    plain = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    return JsonBody(plain, gzip.compress(plain, 5, mtime=0))
