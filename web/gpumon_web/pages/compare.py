"""The compare page: two to eight runs in one figure by epochs, steps or time, and what differs between them.

A Dash page: its layout has empty components, which the callbacks in `routes.compare` fill from a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from gpumon.model.units import counted
from gpumon.reports.figures.plotly_figure import Look, count_not_positive, plotly_figure
from gpumon_web.charts.compare_chart import EPOCHS, STEPS, TIME
from gpumon_web.components.compare_rows import PICK_ARG, comparison_address, parse_ids
from gpumon_web.components.page import Page

if TYPE_CHECKING:
    from dash.development.base_component import Component

SMOOTHING = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Weights of smoothing that a viewer can choose; an address may have others."""
AXIS_TITLES = {EPOCHS: "Epoch", STEPS: "Step", TIME: "Time"}
RUNNING_INTERVAL, FINISHED_INTERVAL, BUSY_INTERVAL = 10, 600, 3
"""Seconds between requests while one of the runs is running, when all are over, and after a failure."""
ADDRESS, FIGURE, FACTS = "compare-address", "compare-figure", "compare-facts"
"""Ids of the stores: arguments of the address, the figure in theme colors, and facts for the scripts."""
_MAX_TEXT, _MAX_IDS = 200, 1000
_MAX_SMOOTHING = 0.99
_TEXTS = ("how", "ends", "count", "weight", "intervals")
_LISTS = (
    "runs", "best", "axes", "scales", "smoothing", "panels", "values", "numbers", "notes", "differs", "config_notes",
)  # fmt: skip
"""Outputs that are empty without a comparison."""
_NO_COURSE = "There is no course of these runs."
_NO_NUMBERS = "No value of these runs was measured."


@dataclass(frozen=True, slots=True)
class Choice:
    """What a viewer wants to see: the arguments of the address, which a browser sends and may be anything."""

    runs: str = ""
    by: str = ""
    panels: tuple[str, ...] = ()
    is_log: bool = False
    smoothing: float = 0.0
    position: float | None = None
    """Position in a recording (s since 1970)."""

    @classmethod
    def from_address(cls, address: Any) -> Self:
        """Read arguments; those that are invalid count as missing."""
        values = address if isinstance(address, Mapping) else {}

        def text(name: str, longest: int = _MAX_TEXT) -> str:
            value = values.get(name)
            return value if isinstance(value, str) and len(value) <= longest else ""

        return cls(
            runs=text("runs", _MAX_IDS),
            by=text("by"),
            panels=tuple(text("panels", _MAX_IDS).split(",")) if text("panels", _MAX_IDS) else (),
            is_log=text("log") == "1",
            smoothing=min(max(_number(text("smooth")) or 0.0, 0.0), _MAX_SMOOTHING),
            position=_number(text("at")),
        )

    def address(self, ids: Sequence[str] | None = None, **changes: str) -> str:
        """Return the address of this choice with other runs or with changed arguments."""
        arguments = {
            "by": self.by, "panels": ",".join(self.panels), "log": "1" if self.is_log else "",
            "smooth": f"{self.smoothing:g}" if self.smoothing else "",
        }  # fmt: skip
        return comparison_address(parse_ids(self.runs) if ids is None else ids, {**arguments, **changes})


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < 1e11 else None


def layout() -> Component:
    """Create the layout: runs, best values, figure, table of measures, and differences."""
    from dash import dcc, html

    from gpumon_web.components.layout import aria

    def tools(head: str, *children: Component) -> Component:
        return html.Div([html.H2(head), *children], className="cardhead")

    def csv(name: str, what: str) -> Component:
        return html.Button(
            "CSV", id=f"compare-csv-{name}", type="button", className="button", **aria(label=f"{what} as CSV")
        )

    def table(name: str) -> Component:
        return html.Div(html.Div(id=f"compare-{name}", className="tablebox"))

    def notes(name: str) -> Component:
        return html.Ul(id=f"compare-{name}", className="look")

    files = [
        *(html.Button(kind, id=f"compare-{kind.lower()}", type="button") for kind in ("PNG", "SVG")),
        html.Button("CSV", id="compare-csv-courses", type="button"),
    ]
    graph = dcc.Graph(
        id="compare-graph", className="plotly", config={"displayModeBar": False, "doubleClick": "autosize"}
    )
    courses = html.Section(
        [
            tools(
                "Courses",
                html.Span(id="compare-ends", className="mut note long"),
                html.Div(id="compare-axes", className="seg", role="group", **aria(label="Axis")),
                html.Span(id="compare-zoom"),
                html.Div(id="compare-scales", className="seg", role="group", **aria(label="Axis of logged values")),
                _menu(html.Span(id="compare-weight"), html.Div(id="compare-smoothing"), css="smoothing"),
                _menu(html.Span(id="compare-count"), html.Div(id="compare-panels"), css="panels"),
                _menu("Download", *files, css="files"),
            ),
            html.Div(graph, id="compare-course", role="group", **aria(label="Courses of these runs")),
            html.Details(
                [html.Summary("Last, lowest and highest values"), html.Div(id="compare-values", className="tablebox")],
                className="values-table",
            ),
        ],
        className="card", **aria(label="Courses"),
    )  # fmt: skip
    return html.Div(
        [
            *(dcc.Store(id=name) for name in (ADDRESS, FIGURE, FACTS)),
            dcc.Download(id="compare-file"),
            html.Div([html.H1("Compare runs", id="compare-title"), html.Span(id="compare-how", className="mut")],
                     className="head"),
            html.Div(id="compare-runs", className="chosen"),
            html.Div("Loading these runs …", id="compare-without", className="empty"),
            html.Div(
                [
                    html.Div(id="compare-best", className="headlines three"),
                    courses,
                    html.Section(
                        [tools("Numbers", html.Span(id="compare-intervals", className="mut note long"),
                               csv("numbers", "Numbers")),
                         table("numbers"), notes("notes")],
                        className="card", **aria(label="Numbers"),
                    ),
                    html.Section(
                        [tools("What differs", csv("differs", "What differs")), table("differs"),
                         notes("config-notes")],
                        className="card", **aria(label="What differs"),
                    ),
                ],
                id="compare-body", hidden=True,
            ),
        ],
        id="compare",
    )  # fmt: skip


def _menu(words: str | Component, *children: Component, css: str) -> Component:
    from dash import html

    from gpumon_web.components.layout import aria

    head = html.Summary([words, html.Span(" ▾", **aria(hidden="true"))], className="button")
    return html.Details([head, html.Div(list(children), className="menu")], className=f"opens {css}")


def outputs(document: Mapping[str, Any], choice: Choice) -> dict[str, Any]:
    """Return the properties of the components, by the names of `routes.compare.OUTPUTS`."""
    from gpumon_web.components import comparison

    gone = [f"No run here has the id {run}." for run in document["gone"]]
    unread = f"These runs cannot be read now: {document['problem']}." if document["problem"] else ""
    if not document["runs"]:
        return _no_comparison(document, gone, unread)
    runs, axis, chart = document["runs"], document["axis"], document["chart"]
    keys = shown_panels(chart, choice.panels)
    all_panels = chart["all"] if chart else []
    look = Look(keys, choice.is_log, choice.smoothing)
    again = BUSY_INTERVAL if unread else RUNNING_INTERVAL if document["is_running"] else FINISHED_INTERVAL
    names = document["names"]
    return {
        "title": f"{len(runs)} runs compared",
        "how": " ".join([unread, document["missing"], *gone]).strip(),
        "runs": comparison.run_lines(runs, choice.address),
        "without": [],
        "is_without": True,
        "is_with": False,
        "best": [comparison.headline(best) for best in document["best"]],
        "axes": [
            comparison.choice(AXIS_TITLES[name], choice.address(by=name if place else ""), is_on=name == axis)
            for place, name in enumerate(document["axes"])
        ],
        "scales": [
            comparison.choice("Linear", choice.address(log=""), is_on=not choice.is_log),
            comparison.choice("Log", choice.address(log="1"), is_on=choice.is_log),
        ],
        "weight": f"Smoothing {choice.smoothing:g}" if choice.smoothing else "Smoothing",
        "smoothing": [
            comparison.choice("None", choice.address(smooth=""), is_on=not choice.smoothing),
            *(comparison.choice(f"{weight:g}", choice.address(smooth=f"{weight:g}"), is_on=weight == choice.smoothing)
              for weight in sorted({*SMOOTHING, choice.smoothing} - {0.0})),
        ],
        "panels": comparison.panel_choices(all_panels, keys, choice.address),
        "count": f"{len(keys)} of {len(all_panels)} panels",
        "ends": "; ".join(filter(None, (document["ends"], *(_left_out(chart, look) if chart else [_NO_COURSE])))),
        "figure": plotly_figure(chart, look) if chart else None,
        "values": comparison.values_table(chart, keys) if chart else [],
        "intervals": "whole runs: of one value each there is no interval" if not document["by_epochs"]
        else "medians over epochs, in parentheses the 95 % interval of the difference from A"
        if document["shows_intervals"] else "medians over epochs",
        "numbers": comparison.table("Numbers", "Measure", names, document["numbers"], _NO_NUMBERS),
        "notes": [*comparison.notes(document["notes"]), *comparison.notes(document["cautions"], "Caution")],
        "differs": comparison.table("What differs", "Key", names, document["differs"], document["alike"]),
        "config_notes": comparison.notes(document["config_notes"]),
        "facts": {"tab": f"{', '.join(run['name'] for run in runs)} compared", "again": again},
    }  # fmt: skip


def _left_out(chart: Mapping[str, Any], look: Look) -> Iterator[str]:
    """Yield what the figure leaves out."""
    if chart.get("cut"):
        yield chart["cut"]
    if count := count_not_positive(chart, look):
        yield f"{counted(count, 'value')} at or below 0 cannot be shown on a logarithmic axis"


def _no_comparison(document: Mapping[str, Any], gone: Sequence[str], unread: str) -> dict[str, Any]:
    from dash import html

    texts = [unread or document["missing"], *gone, "A comparison is of two to eight runs."]
    choose = html.A("Choose runs", href=comparison_address(document["ids"], page="runs", arg=PICK_ARG))
    return {
        **dict.fromkeys(_TEXTS, ""),
        **{name: [] for name in _LISTS},
        "title": "Compare runs", "figure": None,
        "without": [*(html.Div(text) for text in texts if text), html.Div(choose)],
        "is_without": False, "is_with": True,
        "facts": {"tab": "Compare runs", "again": BUSY_INTERVAL if unread else FINISHED_INTERVAL},
    }  # fmt: skip


def shown_panels(chart: Mapping[str, Any] | None, wanted: Sequence[str]) -> list[str]:
    """Return the keys of the panels that are drawn: those wanted that exist, else the usual ones."""
    panels = chart["all"] if chart else []
    chosen = [panel["key"] for panel in panels if panel["key"] in wanted]
    return chosen or [panel["key"] for panel in panels if panel["usual"]]


PAGE = Page("compare", "Compare", layout, tab="runs", is_tab=False, is_dash=True)
