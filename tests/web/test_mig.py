"""The pages of a machine whose GPU MIG divides: an instance is a row, and nothing is counted twice."""

from __future__ import annotations

import pytest

from tests.builders import tick
from tests.unit.test_mig import FIRST, GIB, SECOND_PART, WHOLE, gpu, on
from tests.web.served import Served


@pytest.fixture(scope="module")
def served() -> Served:
    divided = gpu(power=300.0, temperature=60.0)
    return Served(
        [tick(number, [divided, FIRST, SECOND_PART, WHOLE], [on(FIRST)]) for number in range(1, 4)], devices=4
    )


def test_a_free_instance_is_what_somebody_can_have(served: Served) -> None:
    told = served.told()["values"]
    assert told["free"] == "1 of 3"
    assert [chip["text"] for chip in told["chips"]] == ["GPU 0:1"]
    assert "#/gpu/0:1" in told["chips"][0].values()


def test_memory_and_power_are_added_up_once(served: Served) -> None:
    told = served.told()["values"]
    used = (gpu().value("gpu.memory_used") + WHOLE.value("gpu.memory_used")) / GIB
    [memory] = [one for line in told["host"] for one in line["line"] if one.get("fact") == "GPU memory"]
    assert memory["text"].startswith(f"{used:.1f} / 160 GiB")
    assert told["power"].startswith("300 W")


def test_an_instance_has_a_page_by_its_label(served: Served) -> None:
    assert served.told("gpu", id="0:1")["values"]["uuid"] == SECOND_PART.device.uuid
    assert served.told("gpu", id="0")["values"]["no_processes"] == "Its processes are on its instances."
