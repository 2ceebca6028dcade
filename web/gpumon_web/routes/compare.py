"""The Dash callbacks of the compare page."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Input, Output, State, ctx, no_update
from starlette.concurrency import run_in_threadpool

from gpumon.reports.csv import BYTE_ORDER_MARK, csv_line
from gpumon_web.components.compare_rows import course_rows, difference_csv_rows
from gpumon_web.http.error_log import ErrorLog
from gpumon_web.jobs import BusyError, Packed, WorkError
from gpumon_web.pages.compare import ADDRESS, BUSY_INTERVAL, FACTS, FIGURE, Choice, outputs, shown_panels
from gpumon_web.routes.pages import Sources
from gpumon_web.routes.requests import MAX_WAIT

if TYPE_CHECKING:
    from dash import Dash

OUTPUTS = {
    "title": Output("compare-title", "children"), "how": Output("compare-how", "children"),
    "runs": Output("compare-runs", "children"), "without": Output("compare-without", "children"),
    "is_without": Output("compare-without", "hidden"), "is_with": Output("compare-body", "hidden"),
    "best": Output("compare-best", "children"), "axes": Output("compare-axes", "children"),
    "scales": Output("compare-scales", "children"), "panels": Output("compare-panels", "children"),
    "count": Output("compare-count", "children"), "weight": Output("compare-weight", "children"),
    "smoothing": Output("compare-smoothing", "children"),
    "ends": Output("compare-ends", "children"), "figure": Output(FIGURE, "data"),
    "values": Output("compare-values", "children"), "intervals": Output("compare-intervals", "children"),
    "numbers": Output("compare-numbers", "children"), "notes": Output("compare-notes", "children"),
    "differs": Output("compare-differs", "children"), "config_notes": Output("compare-config-notes", "children"),
    "facts": Output(FACTS, "data"),
}  # fmt: skip
"""What a comparison fills, by the names of `pages.compare.outputs`."""
FILES = {"compare-csv-courses": "courses", "compare-csv-numbers": "numbers", "compare-csv-differs": "what-differs"}
"""Names of the files of the buttons."""


def add_comparison(app: Dash, sources: Sources, error_log: ErrorLog) -> None:
    """Register the callbacks; failures to read runs are written to `error_log`."""

    def start(choice: Choice) -> Future[Packed]:
        return sources.ask_runs(choice.position, lambda runs: runs.compared(choice.runs, choice.by))

    async def read(choice: Choice) -> dict[str, Any] | None:
        """Return the comparison; None if it cannot be made now."""
        try:
            job = await run_in_threadpool(start, choice)
            answer = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(job)), MAX_WAIT)
        except (WorkError, OSError, EOFError) as error:
            if not isinstance(error, BusyError):
                kind = f"cannot compare runs: {type(error).__name__}"
                error_log.log(kind, f"gpumon web: {kind}: {error}")
            return None
        return await run_in_threadpool(_unpack, answer)

    async def update(address: Any, is_without_hidden: Any) -> dict[str, Any]:
        choice = Choice.from_address(address)
        document = await read(choice)
        if document is None:
            return unchanged("These runs cannot be read now.")
        # What was read before stays if the ledger cannot be read now.
        if document["problem"] and is_without_hidden is True:
            return unchanged(f"These runs cannot be read now: {document['problem']}. What is shown was read before.")
        return await run_in_threadpool(outputs, document, choice)

    async def save(_courses: Any, _numbers: Any, _differs: Any, address: Any) -> Any:
        document = await read(Choice.from_address(address))
        button = ctx.triggered_id
        if document is None or not document["runs"] or button not in FILES:
            return no_update
        text = await run_in_threadpool(csv_text, document, Choice.from_address(address), FILES[button])
        return {"content": text, "filename": f"compare-{FILES[button]}.csv", "type": "text/csv", "base64": False}

    app.callback(
        output=OUTPUTS,
        inputs=[Input(ADDRESS, "data"), State("compare-without", "hidden")],
        prevent_initial_call=True,
    )(update)
    app.callback(
        Output("compare-file", "data"),
        *(Input(button, "n_clicks") for button in FILES),
        State(ADDRESS, "data"),
        prevent_initial_call=True,
    )(save)
    _add_scripts(app)


def _add_scripts(app: Dash) -> None:
    """Register the callbacks that run in the browser (assets/compare.js)."""

    def add(name: str, *arguments: Any) -> None:
        function = ClientsideFunction("gpumon", name)
        app.clientside_callback(function, *arguments, prevent_initial_call=True)  # type: ignore[no-untyped-call]

    add("painted", Output("compare-graph", "figure"), Output("compare-graph", "style"), Input(FIGURE, "data"))
    add("note_facts", Input(FACTS, "data"))
    add("zoomed", Input("compare-graph", "relayoutData"))
    add("picture", Input("compare-png", "n_clicks"), Input("compare-svg", "n_clicks"))


def unchanged(how: str) -> dict[str, Any]:
    """Return outputs that keep what is shown, and say why in `how`."""
    return {**dict.fromkeys(OUTPUTS, no_update), "how": how, "facts": {"again": BUSY_INTERVAL}}


def csv_text(document: Mapping[str, Any], choice: Choice, name: str) -> str:
    """Return a CSV file of a comparison: its courses, its numbers or what differs."""
    rows: list[list[Any]]
    if name == "numbers":
        rows = [list(document["saved"][0]), *(list(row.values()) for row in document["saved"])]
    elif name == "courses":
        chart = document["chart"]
        rows = course_rows(chart, shown_panels(chart, choice.panels)) if chart else []
    else:
        rows = difference_csv_rows(document["names"], document["differs"])
    return BYTE_ORDER_MARK + "".join(map(csv_line, rows))


def _unpack(answer: Packed) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(answer.body))
    return document
