"""Names of nodes where a column has not room for all of them."""

from __future__ import annotations

import re

import pytest

from gpumon.common.text import text_width
from gpumon.reports.cluster_text import NodeNames

PORTS = [f"gpu-node-{number:02}:9400" for number in (3, 17, 18)]
DOMAINS = [f"gpu{number}.cluster.example.org" for number in (1, 11, 12)]
RACKS = [f"dgx-r{rack:02}-n{slot:02}.lab" for rack in (1, 2) for slot in (1, 2)]


@pytest.mark.parametrize(
    ("names", "width", "shortened"),
    [
        (PORTS, 16, PORTS), (PORTS, 10, ["gpu-no…03…", "gpu-no…17…", "gpu-no…18…"]),
        (DOMAINS, 10, ["gpu1.clus…", "gpu11.clu…", "gpu12.clu…"]),
        (["login", "gpu-node-17", "gpu-node-18"], 8, ["login", "gpu-n…17", "gpu-n…18"]),
        (["only-this-node-has-a-name"], 9, ["only…name"]),
    ],
)  # fmt: skip
def test_a_short_name_has_the_number_that_tells_it_from_others(
    names: list[str], width: int, shortened: list[str]
) -> None:
    short = [NodeNames(names).short(name, width) for name in names]
    assert [one.rstrip("…") for one in short] == [one.rstrip("…") for one in shortened]


@pytest.mark.parametrize("names", [PORTS, DOMAINS, RACKS, ["節点-東-01", "節点-東-02"]])
def test_short_names_differ_and_fit(names: list[str]) -> None:
    for width in range(12, 34):
        short = [NodeNames(names).short(name, width) for name in names]
        assert len(set(short)) == len(names)
        assert max(map(text_width, short)) <= width


@pytest.mark.parametrize("width", range(5, 15))
def test_names_of_the_same_place_in_two_racks_keep_the_number_of_the_rack(width: int) -> None:
    names = [f"dgx-r{rack:02}-n{slot:02}.lab" for rack in range(1, 9) for slot in range(1, 6)]
    short = [NodeNames(names).short(name, width) for name in names]
    assert len(set(short)) == len(names)
    assert all(re.search(f"{name[5:7]}.*{name[9:11]}", one) for name, one in zip(names, short, strict=True))


def test_a_name_that_only_its_own_number_tells_apart_keeps_its_begin() -> None:
    names = NodeNames([*PORTS, "dgx-r01-n02.lab", "dgx-r02-n02.lab"])
    assert names.short("gpu-node-17:9400", 10) == "gpu-no…17…"


def test_a_cell_names_fewer_nodes_rather_than_a_part_of_one() -> None:
    names = NodeNames(PORTS)
    cell = names.cell(PORTS)
    assert cell == ", ".join(PORTS)
    assert names.shorten(cell, 40) == "gpu-node-03:9400 and 2 more"
    assert names.shorten(cell, 14) == "gpu-nod…03… +2"


def test_a_cell_of_many_nodes_counts_those_that_it_does_not_name() -> None:
    many = [f"gn{number:02}" for number in range(1, 41)]
    names = NodeNames(many)
    cell = names.cell(many)
    assert cell == "gn01, gn02, gn03, gn04 and 36 more"
    assert names.shorten(cell, 20) == "gn01 and 39 more"
    assert names.shorten(cell, 10) == "gn01 +39"


def test_what_is_no_cell_of_nodes_is_cut_at_its_end() -> None:
    assert NodeNames(PORTS).shorten("gpu-node-17:9400", 6) == "gpu-n…"
