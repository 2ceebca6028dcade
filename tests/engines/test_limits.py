"""A node on which everything is long and much, scraped by Prometheus with the limits that we ship: it takes all."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
import yaml

from gpumon.common.net import Address, listen
from gpumon.export.family import MAX_BYTES
from gpumon.export.scrape import MAX_SERIES
from gpumon.export.server import ScrapeServer
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_METRICS, Availability
from tests.builders import process, run, tick
from tests.conftest import ROOT
from tests.engines.programs import prometheus
from tests.exported import Node
from tests.programs import until

pytestmark = pytest.mark.engine
LONG = "模型" * 50
DEVICES = 50


def test_a_node_of_long_names_and_many_series_is_taken_by_the_limits_that_are_shipped(tmp_path: Path) -> None:
    (shipped,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    limits = {name: value for name, value in shipped.items() if name.endswith("_limit")}
    assert set(limits) == {"sample_limit", "label_value_length_limit"}
    cards = [Device(f"GPU-{number:08d}", number, LONG) for number in range(DEVICES)]
    training = run(id=LONG, name=LONG, user=LONG, gpus=(cards[0].uuid,), epoch=3)
    rows = [Sample(card, Availability.OK, [1.0] * len(GPU_METRICS), training.key) for card in cards]
    on_it = [process(1, user=LONG, run=training.key)._replace(uuid=cards[0].uuid)]
    node = Node(DEVICES)
    node.add(tick(second, rows, on_it, [training]) for second in (1, 2))
    with listen(Address()) as opened:
        server = ScrapeServer(node.exporter(), opened)
        thread = Thread(target=server.serve_forever)
        thread.start()
        targets = [f"127.0.0.1:{opened.getsockname()[1]}"]
        try:
            job = {"job_name": "gpumon", "static_configs": [{"targets": targets}], **limits}
            with prometheus(tmp_path, [job]) as engine:

                def found() -> list[tuple[dict[str, str], float]]:
                    node.ring.heartbeat()  # the daemon of this node has no thread
                    return engine.ask("gpumon_run_info")

                def error() -> str:
                    node.ring.heartbeat()
                    (target,) = engine.get("api/v1/targets")["data"]["activeTargets"]
                    return str(target["lastError"])

                try:
                    ((labels, _), *_) = until(found)
                except AssertionError as failed:
                    raise AssertionError(error()) from failed
                until(lambda: error() == "")
                assert MAX_SERIES * 0.7 < engine.one("max_over_time(scrape_samples_scraped[1h])") <= MAX_SERIES + 1
                assert LONG.startswith(labels["name"])
                assert MAX_BYTES - 3 < len(labels["name"].encode()) <= MAX_BYTES
        finally:
            server.shutdown()
            thread.join()
            node.close()
