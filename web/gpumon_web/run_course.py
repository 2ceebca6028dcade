"""The course of a run on its page: its chart, where finer points of it come from, and buttons for its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from gpumon_web.page import Cells
from gpumon_web.run_gpus import EACH, MEAN


def course(document: Cells) -> Cells | None:
    """The chart; None where nothing can be drawn.

    It says where a part of it comes from with finer points (`finer`), where the document names the run and the GPUs.
    """
    chart: Cells | None = document.get("chart")
    if chart is None:
        return None
    if not document.get("id") or not document.get("device"):
        return chart
    return {**chart, "finer": "api/run/zoom?" + urlencode({"id": document["id"], "gpu": document["device"]})}


def choices(devices: Sequence[Cells], shown: str | None) -> list[Cells]:
    """The buttons for the GPUs of a run: all together, each, and one for each of them; none where there is one."""
    if len(devices) < 2:
        return []
    return [
        _button(MEAN, f"Mean of {len(devices)} GPUs", "The mean of all GPUs of this run", shown),
        _button(EACH, "Each", "A line for each GPU", shown),
        *(_button(one["uuid"], f"GPU {one['index']}", one["name"], shown) for one in devices),
    ]


def _button(value: str, words: str, title: str, shown: str | None) -> Cells:
    return {"arg": "gpu", "value": value, "text": words, "title": title, "is_pressed": value == shown}
