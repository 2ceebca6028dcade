"""The page that people write first: a `dcc.Interval`, and a callback that makes all figures anew each second.

A peer for `web`, on the same ring: python -m benchmarks.plain_dash PORT
"""

from __future__ import annotations

import sys

import plotly.graph_objects as go
import uvicorn
from dash import Dash, Input, Output, dcc, html

from gpumon import connect

METRICS = ("gpu.utilization", "gpu.memory_used", "gpu.power", "gpu.temperature")
WINDOW = 600.0


def main() -> None:
    app, live = Dash(__name__, backend="fastapi"), connect()
    app.layout = html.Div([dcc.Interval(id="tick", interval=1000), *(dcc.Graph(id=name[4:]) for name in METRICS)])

    @app.callback([Output(name[4:], "figure") for name in METRICS], Input("tick", "n_intervals"))
    def figures(_: int) -> list[go.Figure]:
        window = live.window(WINDOW)
        made = []
        for name in METRICS:
            figure = go.Figure()
            for place, device in enumerate(window.devices):
                figure.add_scatter(x=window.time, y=window[name][:, place], name=device.name)
            made.append(figure)
        return made

    uvicorn.run(app.server, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
