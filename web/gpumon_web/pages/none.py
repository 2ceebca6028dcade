"""The page of a machine without a GPU: the reason, what to do, values of the host, and its runs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.model.vendors import VENDORS
from gpumon_web.components import levels
from gpumon_web.components.machine import Now
from gpumon_web.components.page import Args, Cells, Page, StoredValues
from gpumon_web.components.tokens import origin_tag, run_address, run_name
from gpumon_web.pages.gpu import used_of_total

if TYPE_CHECKING:
    from dash.development.base_component import Component

COMMAND = "gpumon web --source sim --port 0"
MAX_RUNS = 8
_VENDORS = [vendor for vendor in VENDORS if vendor.looked_for]
_VENDOR_NAMES = " and ".join(vendor.name for vendor in _VENDORS)
_CONTAINER = "; ".join(vendor.for_container for vendor in VENDORS if vendor.for_container)
_LIST_COMMANDS = " or ".join(vendor.listing.partition(" ")[0] for vendor in _VENDORS)


def layout() -> Component:
    """Create the layout: the reason and what to do, four headlines of the host, and the newest runs."""
    from dash import html

    from gpumon_web.components.layout import aria, bound, card, headline, headlines

    remedy: list[Any] = [
        bound("remedy", "text"), "; GPUs appear here as soon as ", html.Code(_LIST_COMMANDS), " lists them.",
    ]  # fmt: skip
    simulated: list[Any] = [
        "To see gpumon with eight simulated GPUs, run ", html.Code(COMMAND), " and open the link that it prints.",
    ]  # fmt: skip
    prose = [bound("why", "text", html.P, role="alert"), html.P(remedy), html.P(simulated)]
    return html.Div(
        [
            html.Div(html.H1("No GPU"), className="head"),
            html.Section(prose, className="card prose", **aria(label="Why there is no GPU")),
            html.H2("This machine", className="part"),
            headlines(
                headline("CPU", "cpu", "percent"),
                headline("Memory", "memory", "text", "memory_share"),
                headline("Load", "load", "text", "load_is"),
                headline("Swap", "swap", "text"),
                css="four",
            ),
            card("Runs", bound("newest", "notes", html.Ul, className="look")),
        ]
    )


def live(now: Now, args: Args) -> Cells:
    """Compute the sentences on what is wrong and what to do, and the values of the host."""
    del args
    host = now.host
    used, total = host.get("memory_used"), host.get("memory_total")
    load = host.get("load")
    lists_none = f"the {_VENDOR_NAMES} driver {now.driver} answers but lists no GPU: check that a GPU is installed"
    problem, _, remedy = (now.problem or (lists_none if now.driver else f"no {_VENDOR_NAMES} GPU was found")).partition(
        ": "
    )
    return {
        "why": f"{_capital(problem)}.",
        "remedy": _capital(remedy or (_CONTAINER if now.lacks_card else f"install or load the {_VENDOR_NAMES} driver")),
        "cpu": host.get("cpu_utilization"),
        "memory": used_of_total(used, total),
        "memory_share": f"{units.number(used / total, Unit.RATIO)} in use" if used is not None and total else "",
        "load": units.MISSING if load is None else units.load(load),
        "load_is": "running or waiting tasks, mean of a minute",
        "swap": "none" if host.get("swap_total") == 0 else used_of_total(host.get("swap_used"), host.get("swap_total")),
    }


def _capital(clause: str) -> str:
    return clause[:1].upper() + clause[1:]


def kept(document: Cells) -> StoredValues:
    """Compute the list of the newest runs, with a link to all."""
    runs, problem = document["runs"], document["problem"]
    labels = {document.get("label", ""), *(run.get("label", "") for run in runs)}
    notes = [
        {
            "level": levels.RUN_LEVELS.get(run["state"], ""), "about": run["state"] or units.MISSING,
            "text": ", ".join((run_name(run), run["user"] or "unknown", *_origin(run, labels))),
            "time": run["started"], "link": run_address(run["id"]),
        }
        for run in runs[:MAX_RUNS]
    ]  # fmt: skip
    if runs:
        return StoredValues({"newest": [*notes, {"level": "", "about": "", "text": "All runs", "link": "#/runs"}]})
    unread = f"Past runs cannot be listed: {problem}." if problem else ""
    return StoredValues({"newest": [{"text": unread or document.get("none") or "No runs yet."}]}, unread=unread)


def _origin(run: Cells, labels: Collection[str]) -> list[str]:
    """Return the origin of a run as text if the runs have different origins."""
    label = origin_tag(run.get("label", ""), labels)
    return [label["tag"]] if label else []


PAGE = Page("none", "No GPU", layout, live, kept, is_tab=False, tab="fleet")
