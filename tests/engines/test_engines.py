"""The engines themselves: what they scrape they tell, so that a failure elsewhere speaks of the exporter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.programs import prometheus, victoria_metrics
from tests.engines.served import served, text

pytestmark = pytest.mark.engine
PAGE = "# TYPE a_ratio gauge\na_ratio 0.5\n# TYPE b_total counter\nb_total 7\n"


def test_both_engines_scrape_a_page_and_tell_what_is_on_it(tmp_path: Path) -> None:
    with (
        served(text(PAGE)) as target,
        prometheus(tmp_path / "p", [target.scrape()]) as one,
        victoria_metrics(tmp_path / "v", [target.scrape()]) as other,
    ):
        for engine in (one, other):
            ((labels, value),) = engine.soon("a_ratio")
            assert value == 0.5
            assert (labels["job"], labels["instance"]) == ("gpumon", target.address)
            engine.comes_to("b_total + 1", 8.0)
            engine.comes_to("up", 1.0)


def test_an_engine_says_what_is_wrong_with_an_expression(tmp_path: Path) -> None:
    with prometheus(tmp_path) as engine, pytest.raises(AssertionError, match="parse error"):
        engine.ask("sum by (")
