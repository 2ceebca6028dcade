"""The course of a run on its page: the figure with its shades, and a button for each device."""

from __future__ import annotations

from urllib.parse import urlencode

from gpumon_web.page import Cells


def course(document: Cells) -> Cells | None:
    """The figure, with phases other than training shaded as far as it reaches; None where nothing can be drawn.

    It says where a part of it comes from with finer points (`finer`), where the document names the run and the device.
    """
    figure: Cells | None = document.get("figure")
    if not figure or not figure["data"]:
        return None
    _, end = figure["layout"]["xaxis"].get("range") or (None, None)
    shades = [
        {
            "type": "rect", "xref": "x", "yref": "paper", "x0": begin * 1000,
            "x1": end if last is None else last * 1000, "y0": 0, "y1": 1,
            "fillcolor": "@warn/0.1", "line": {"width": 0}, "layer": "below",
        }
        for begin, last, _ in document.get("phases") or ()
        if last is not None or (end is not None and begin * 1000 < end)
    ]  # fmt: skip
    layout = figure["layout"]
    found = {**figure, "layout": {**layout, "shapes": [*(layout.get("shapes") or ()), *shades]}}
    if document.get("id") and document.get("device"):
        found["finer"] = "api/run/zoom?" + urlencode({"id": document["id"], "gpu": document["device"]})
    return found


def choice(device: Cells, shown: str | None) -> Cells:
    """A button for one of the devices."""
    return {
        "arg": "gpu", "value": device["uuid"], "text": f"GPU {device['index']}", "title": device["name"],
        "is_pressed": device["uuid"] == shown,
    }  # fmt: skip
