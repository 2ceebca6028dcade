"""An alert from an exporter to whoever is to act: Prometheus, Alertmanager, and what a webhook is sent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.engines.programs import alertmanager, program, prometheus, ran
from tests.engines.served import served, text, webhook
from tests.programs import until

pytestmark = pytest.mark.engine
FOLDER = ROOT / "deploy" / "prometheus"
PAGE = """\
# TYPE gpumon_gpu_user_info gauge
gpumon_gpu_user_info{gpu="3",uuid="a",user="bob"} 1
gpumon_gpu_user_info{gpu="4",uuid="b",user="ada"} 1
# TYPE gpumon_gpu_idle_seconds gauge
gpumon_gpu_idle_seconds{gpu="3",uuid="a"} 4000
gpumon_gpu_idle_seconds{gpu="4",uuid="b"} 9000
# TYPE gpumon_gpu_user_idle_seconds gauge
gpumon_gpu_user_idle_seconds{gpu="3",uuid="a",user="bob"} 4000
gpumon_gpu_user_idle_seconds{gpu="4",uuid="b",user="ada"} 3000
"""

CAP = "GpumonHoursUsedUp"


def test_whoever_holds_a_gpu_for_nothing_is_told_once_by_name_and_place(tmp_path: Path) -> None:
    with (
        served(text(PAGE)) as target,
        webhook() as (url, taken),
        alertmanager(tmp_path / "a", url) as told,
        prometheus(
            tmp_path / "p", [target.scrape()], rules=[FOLDER / "rules.yml", FOLDER / "alerts.yml"],
            alertmanager=told.url,
        ) as engine,
    ):  # fmt: skip
        sent: list[dict[str, Any]] = until(lambda: [alert for one in taken for alert in one["alerts"]])
        assert [(alert["labels"]["alertname"], alert["labels"]["user"], alert["status"]) for alert in sent] == [
            ("GpumonHeldIdle", "bob", "firing")
        ]
        summary = f"bob holds GPU 3 of {target.address} and has not used it for an hour"
        assert sent[0]["annotations"]["summary"] == summary
        listed = ran(program("amtool"), f"--alertmanager.url={told.url}", "alert", "query", "alertname=GpumonHeldIdle")
        assert "bob" in listed.stdout, listed.stderr
        engine.comes_to('count(ALERTS{alertstate="firing"})', 1)
        assert len(taken) == 1


def test_whoever_uses_up_hours_is_told_once_where_the_cap_is_switched_on(tmp_path: Path) -> None:
    """The commented rule, without its comment signs."""
    shipped = (FOLDER / "alerts.yml").read_text().splitlines()
    begin = next(place for place, line in enumerate(shipped) if CAP in line)
    rule = [line.replace("# ", "", 1) for line in shipped[begin : begin + 2]]
    rules = tmp_path / "caps.yml"
    rules.write_text("\n".join(["groups:", "  - name: caps", "    rules:", *rule, ""]))
    held = count(1)

    def page(headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """Hours of ada grow by 100 on each of two GPUs at each scrape, those of bob by few."""
        hours = next(held)
        lines = ["# TYPE gpumon_user_held_seconds_total counter"]
        for uuid, user, seconds in (("a", "ada", 360_000), ("b", "ada", 360_000), ("c", "bob", 1)):
            lines.append(f'gpumon_user_held_seconds_total{{uuid="{uuid}",user="{user}"}} {hours * seconds}')
        return "\n".join([*lines, ""]).encode(), {"Content-Type": "text/plain; version=0.0.4"}

    with (
        served(page) as target,
        webhook() as (url, taken),
        alertmanager(tmp_path / "a", url) as told,
        prometheus(tmp_path / "p", [target.scrape()], rules=[rules], alertmanager=told.url) as engine,
    ):
        sent: list[dict[str, Any]] = until(lambda: [alert for one in taken for alert in one["alerts"]])
        assert [(alert["labels"]["alertname"], alert["labels"]["user"]) for alert in sent] == [(CAP, "ada")]
        scraped = len(target.asked)
        until(lambda: len(target.asked) > scraped + 3)
        engine.comes_to('count(ALERTS{alertstate="firing"})', 1)
        assert len(taken) == 1
