"""The compare page: two to eight runs in one chart by epochs, steps or time, and what differs between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon_web.charts.compare_chart import EPOCHS, STEPS, TIME
from gpumon_web.components.compare_rows import comparison_address, run_lines
from gpumon_web.components.page import Cells, Column, Page, Rows, StoredSubject, StoredValues
from gpumon_web.components.tokens import line, link, text

if TYPE_CHECKING:
    from dash.development.base_component import Component

MEASURE_COLUMNS = (
    Column("measure", "Measure", sorts_by="place", is_head=True, sort=False),
    Column("of", "", "rich", each_of="names", sort=False),
)
DIFFERENCE_COLUMNS = (
    Column("name", "Key", "mono", sorts_by="place", is_head=True, sort=False),
    Column("of", "", "rich", each_of="names", sort=False),
)
AXIS_TITLES = {EPOCHS: "Epoch", STEPS: "Step", TIME: "Time"}
RUNNING_INTERVAL, FINISHED_INTERVAL = 10.0, 600.0
"""Seconds between requests while one of the runs is running, and when all are over."""


def layout() -> Component:
    """Create the layout: runs, best values, chart, table of measures, and differences."""
    from dash import html

    from gpumon_web.components.layout import (
        aria,
        bound,
        card,
        download,
        headline,
        headlines,
        hidden_if,
        kept_figure,
        shown_if,
        table,
    )

    best = headlines(
        headline("Lowest loss", "loss", "text", "loss_below", chips="loss_of", titled="loss_is"),
        headline("Shortest epoch", "time", "text", "time_below", chips="time_of", titled="time_is"),
        headline("Least energy", "energy", "text", "energy_below", chips="energy_of", titled="energy_is"),
        css="three",
    )
    chart = kept_figure("courses", "Courses of these runs", loading="Loading these runs …",
                        empty="There is no course of these runs.", whole="Whole course")  # fmt: skip
    ends = bound("ends", "text", className="mut note long")
    axes = bound("axes", "choices", html.Div, className="seg", role="group", **aria(label="Axis"))
    numbers = table("numbers", "Numbers", MEASURE_COLUMNS, "measure", css="compared", loading="Loading these runs …",
                    empty="No value of these runs was measured.")  # fmt: skip
    differences = table("differs", "What differs", DIFFERENCE_COLUMNS, "name", css="compared",
                        loading="Loading these runs …", empty_from="alike")  # fmt: skip
    return html.Div(
        [
            html.Div([bound("title", "text", html.H1), bound("how", "text", className="mut")], className="head"),
            bound("runs", "rich", html.Div, className="chosen"),
            hidden_if("without", best),
            hidden_if("without", card("Courses", chart, tools=[ends, axes])),
            hidden_if("without", card("Numbers", numbers, bound("notes", "notes", html.Ul, className="look"),
                                      tools=[bound("intervals", "text", className="mut note long"),
                                             download("numbers", "Numbers", rows="saved")])),
            hidden_if("without", card("What differs", differences,
                                      bound("config_notes", "notes", html.Ul, className="look"),
                                      tools=[download("differs", "What differs")])),
            shown_if("without", bound("without", "rich", html.Div, className="empty")),
        ]
    )  # fmt: skip


def kept(document: Cells) -> StoredValues:
    """Compute the comparison, or why there is none."""
    gone = [f"No run here has the id {run}." for run in document["gone"]]
    unread = f"These runs cannot be read now: {document['problem']}." if document["problem"] else ""
    if not document["runs"]:
        return _no_comparison(document, gone, unread)
    by, runs = document["axis"], document["runs"]
    by_epochs = document["by_epochs"]
    tab = f"{', '.join(run['name'] for run in runs)} compared"
    values = {
        "title": f"{len(runs)} runs compared",
        "tab": {"text": tab, "old": tab},
        "how": " ".join([unread, document["missing"], *gone]).strip(),
        "runs": run_lines(runs, by if by != document["axes"][0] else ""),
        **document["best"],
        "loss_is": document["best"]["loss_is"] or "Lowest loss",
        "time_is": "Shortest epoch, median" if by_epochs else "Shortest run",
        "energy_is": "Least energy per epoch, median" if by_epochs else "Least energy of a run",
        "axes": [
            {"arg": "by", "value": axis, "text": AXIS_TITLES[axis], "title": f"By {AXIS_TITLES[axis].lower()}",
             "is_pressed": axis == by, "without": ["from", "to"]}
            for axis in document["axes"]
        ],
        "names": document["names"],
        "numbers": Rows(document["numbers"]),
        "saved": document["saved"],
        "intervals": "whole runs: of one value each there is no interval" if not by_epochs
        else "medians over epochs, in parentheses the 95 % interval of the difference from A"
        if document["shows_intervals"] else "medians over epochs",
        "notes": document["notes"],
        "differs": Rows(document["differs"]),
        "config_notes": document["config_notes"],
        "alike": document["alike"],
        "ends": document["ends"],
        "without": [],
    }  # fmt: skip
    again = RUNNING_INTERVAL if document["is_running"] else FINISHED_INTERVAL
    return StoredValues(values, {"courses": document["chart"]}, again=again, unread=unread)


def _no_comparison(document: Cells, gone: list[str], unread: str) -> StoredValues:
    texts = [unread or document["missing"], *gone]
    lines = [line(text(words)) for words in texts if words]
    lines.append(line(text("A comparison is of two to eight runs.")))
    lines.append(line(link("Choose runs", comparison_address(document["ids"], page="runs", arg="pick"), "")))
    values = {
        **dict.fromkeys(_VALUE_NAMES),
        "title": "Compare runs",
        "without": lines,
        "numbers": Rows(),
        "differs": Rows(),
    }
    return StoredValues(values, {"courses": None}, again=FINISHED_INTERVAL, unread=unread)


_VALUE_NAMES = (
    "tab", "how", "runs", "loss_is", "loss", "loss_below", "loss_of", "time_is", "time", "time_below", "time_of",
    "energy_is", "energy", "energy_below", "energy_of", "axes", "names", "saved", "intervals", "notes", "config_notes",
    "alike", "ends",
)  # fmt: skip
"""Values that are None without a comparison."""

PAGE = Page(
    "compare", "Compare", layout, kept=kept, kept_of=StoredSubject.COMPARED, kept_args={"runs": "", "by": ""},
    tab="runs", is_tab=False,
)  # fmt: skip
