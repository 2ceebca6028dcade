"""What tests with engines share: they skip with a sentence where a Prometheus server is not to be had."""

from __future__ import annotations

import pytest

from tests.conftest import cannot
from tests.engines.programs import program

PROGRAMS = ("prometheus", "promtool", "victoria-metrics", "vmalert", "prometheus-alertmanager", "amtool")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is marked `engine` where one of the programs is missing."""
    if item.get_closest_marker("engine") is None:
        return
    missing = [name for name in PROGRAMS if not program(name)]
    if missing:
        cannot(f"{missing[0]} is not to be had: tests/setup.sh unpacks it where apt has it")
