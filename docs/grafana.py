"""Shapes of a Grafana dashboard: from rows of a table to the JSON that Grafana imports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

WIDTH = 24
"""Columns of a dashboard."""
SCHEMA = 36
"""Version of the model, which Grafana 9.1 and all later ones read."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Asked(NamedTuple):
    """A query."""

    expression: str
    legend: str = ""
    instant: bool = False


class Chart(NamedTuple):
    """A panel."""

    title: str
    help: str
    asked: Sequence[Asked]
    unit: str = "short"
    """Of Grafana."""
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    top: float | None = None
    """Of the axis; None for that of the data."""
    stacked: bool = False
    columns: Sequence[tuple[str, str, str]] = ()
    """Of a table: label or letter of a query, heading, unit."""


class Choice(NamedTuple):
    """A variable of which the viewer takes one value, several, or all."""

    name: str
    label: str
    query: str


class Row(NamedTuple):
    """A heading with the panels below it."""

    title: str
    charts: Sequence[Chart]


class Board(NamedTuple):
    """A dashboard."""

    uid: str
    title: str
    help: str
    choices: Sequence[Choice]
    rows: Sequence[Row]
    marks: Sequence[tuple[str, str, str]] = ()
    """Annotations: name, expression, text."""


def text_of(board: Board) -> str:
    """Return the file of a dashboard."""
    return json.dumps(_dashboard(board), indent=1, ensure_ascii=False) + "\n"


def _dashboard(board: Board) -> dict[str, Any]:
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.help,
        "tags": ["gpumon"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "links": [{"title": "gpumon", "type": "dashboards", "tags": ["gpumon"], "keepTime": True, "includeVars": True}],
        "annotations": {"list": [_mark(*one) for one in board.marks]},
        "templating": {"list": [_source(), *map(_choice, board.choices)]},
        "panels": list(_panels(board.rows)),
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "name": choice.name, "label": choice.label, "type": "query", "datasource": SOURCE,
        "query": {"query": choice.query, "refId": choice.name}, "definition": choice.query,
        "refresh": 2, "sort": 3, "multi": True, "includeAll": True, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _mark(name: str, expression: str, text: str) -> dict[str, Any]:
    return {
        "name": name, "datasource": SOURCE, "enable": True, "expr": expression, "titleFormat": text, "step": "1m",
        "iconColor": "purple",
    }  # fmt: skip


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
        }  # fmt: skip
        top += 1
        left = height = 0
        for chart in row.charts:
            if left + chart.width > WIDTH:
                left, top, height = 0, top + height, 0
            number += 1
            place = {"x": left, "y": top, "w": chart.width, "h": chart.height}
            yield {"id": number, "gridPos": place, **_panel(chart)}
            left, height = left + chart.width, max(height, chart.height)
        top += height


def _panel(chart: Chart) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": chart.unit, "min": 0} if chart.kind != "table" else {}
    if chart.top is not None:
        defaults["max"] = chart.top
    if chart.kind == "timeseries":
        stacking = {"mode": "normal" if chart.stacked else "none"}
        fill = 30 if chart.stacked else 5
        defaults["custom"] = {"fillOpacity": fill, "stacking": stacking, "showPoints": "never", "spanNulls": False}
    panel = {
        "type": chart.kind,
        "title": chart.title,
        "description": chart.help,
        "datasource": SOURCE,
        "targets": [_target(chr(ord("A") + place), one, chart) for place, one in enumerate(chart.asked)],
        "fieldConfig": {"defaults": defaults, "overrides": _overrides(chart)},
        "options": _options(chart.kind),
    }
    if chart.kind == "table":
        panel["transformations"] = _transformations(chart)
    return panel


def _target(letter: str, asked: Asked, chart: Chart) -> dict[str, Any]:
    is_instant = asked.instant or chart.kind in ("table", "stat")
    return {
        "refId": letter, "datasource": SOURCE, "expr": asked.expression, "legendFormat": asked.legend or "__auto",
        "instant": is_instant, "range": not is_instant, "format": "table" if chart.kind == "table" else "time_series",
    }  # fmt: skip


def _options(kind: str) -> dict[str, Any]:
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "graphMode": "none"}
    return {"showHeader": True, "cellHeight": "sm"}


def _names(chart: Chart) -> Iterator[tuple[str, str, str]]:
    """Columns as Grafana calls them: `Value` of the only query, else `Value #A`."""
    for name, heading, unit in chart.columns:
        is_letter = len(name) == 1
        yield (f"Value #{name}" if len(chart.asked) > 1 else "Value") if is_letter else name, heading, unit


def _transformations(chart: Chart) -> list[dict[str, Any]]:
    """Columns of their own alone, before queries are joined by those that they share."""
    names = [name for name, _, _ in _names(chart)]
    joined: list[dict[str, Any]] = [{"id": "merge", "options": {}}] if len(chart.asked) > 1 else []
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
        *joined,
        {"id": "organize", "options": {
            "indexByName": {name: place for place, name in enumerate(names)},
            "renameByName": {name: heading for name, heading, _ in _names(chart)},
        }},
    ]  # fmt: skip


def _overrides(chart: Chart) -> list[dict[str, Any]]:
    return [
        {"matcher": {"id": "byName", "options": heading}, "properties": [{"id": "unit", "value": unit}]}
        for _, heading, unit in _names(chart)
        if unit
    ]
