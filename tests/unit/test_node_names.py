"""Node names in narrow table cells."""

from __future__ import annotations

import pytest

from gpumon.common.text import text_width
from gpumon.reports.cluster_text import NodeNames

PORTS = [f"gpu-node-{number:02}:9400" for number in (3, 17, 18)]
DOMAINS = [f"gpu{number}.cluster.example.org" for number in (1, 11, 12)]
RACKS = [f"dgx-r{rack:02}-n{slot:02}.lab" for rack in range(1, 9) for slot in range(1, 6)]


@pytest.mark.parametrize(
    ("names", "width", "shortened"),
    [
        (PORTS, 16, PORTS),
        (PORTS, 12, ["gpu-node-03", "gpu-node-17", "gpu-node-18"]),
        (PORTS, 10, ["gpu-…de-03", "gpu-…de-17", "gpu-…de-18"]),
        (DOMAINS, 10, ["gpu1", "gpu11", "gpu12"]),
        (["login", "gpu-node-17", "gpu-node-18"], 8, ["login", "gpu…e-17", "gpu…e-18"]),
        (["10.0.1.5:9400", "10.0.2.5:9400"], 10, ["10.0.1.5", "10.0.2.5"]),
        (["only-this-node-has-a-name"], 9, ["only-thi…"]),
    ],
)  # fmt: skip
def test_common_domain_and_port_are_omitted_first(names: list[str], width: int, shortened: list[str]) -> None:
    assert [NodeNames(names).short(name, width) for name in names] == shortened


@pytest.mark.parametrize("names", [PORTS, DOMAINS, RACKS, ["節点-東-01", "節点-東-02"]])
def test_short_names_differ_and_fit(names: list[str]) -> None:
    for width in range(8, 34):
        short = [NodeNames(names).short(name, width) for name in names]
        assert len(set(short)) == len(names)
        assert max(map(text_width, short)) <= width


def test_a_cell_drops_whole_names_first() -> None:
    names = NodeNames(PORTS)
    cell = names.cell(PORTS)
    assert cell == ", ".join(PORTS)
    assert names.shorten(cell, 40) == "gpu-node-03:9400 and 2 more"
    assert names.shorten(cell, 14) == "gpu-node-03 +2"


def test_a_cell_counts_the_nodes_that_it_does_not_name() -> None:
    many = [f"gn{number:02}" for number in range(1, 41)]
    names = NodeNames(many)
    cell = names.cell(many)
    assert cell == "gn01, gn02, gn03, gn04 and 36 more"
    assert names.shorten(cell, 20) == "gn01 and 39 more"
    assert names.shorten(cell, 10) == "gn01 +39"


def test_other_text_is_cut_at_its_end() -> None:
    assert NodeNames(PORTS).shorten("gpu-node-17:9400", 6) == "gpu-n…"
