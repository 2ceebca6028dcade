"""The same frame gives the same answers in every view, and nothing is judged in JavaScript."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ASSETS = sorted((Path(__file__).parents[2] / "web/gpumon_web/assets").glob("[0-9a-z]*.js"))
FRACTION = re.compile(r"[<>]=?\s*0?\.\d")
NAMED = re.compile(r"const ([A-Z_]+) = (?:0?\.\d+|[0-9]+(?:\.\d+)?)\b")


@pytest.mark.parametrize("script", [path for path in ASSETS if "plotly" not in path.name], ids=lambda path: path.name)
def test_no_script_compares_a_share_with_a_threshold_of_its_own(script: Path) -> None:
    code = re.sub(r"//.*", "", script.read_text(encoding="utf-8"))
    assert not FRACTION.search(code), "judge it in gpumon/diagnosis, and send the finding"
    assert not re.search(r"INPUT_BOUND|THROTTLED|_share\s*[<>]", code)
    for name in NAMED.findall(code):
        assert not re.search(rf"\.(?:\w*share|temperature\w*|utilization\w*)\)?\s*[<>]=?\s*{name}\b", code)
