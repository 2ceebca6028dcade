"""The GPUs that ROCm lets a process use, and how a torch on ROCm names them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.launcher.free_gpus import visible_devices as variables_for
from gpumon.model.cuda_devices import device_by_uuid, named_devices
from gpumon.model.device import Device
from gpumon.model.process import Process
from gpumon.model.rocm_devices import ORDER, hip_uuid, named_address, rocm_visible_devices
from gpumon.tracking.context import find_devices, torch_uuid, uses_rocm
from gpumon.tracking.matching import Claim, match_devices, memory_entry
from gpumon.tracking.memory import FrameworkMemoryReader
from gpumon.tracking.wire_format import Memory, device_mark

SERIAL = "1f9de0957d137942"
AS_HIP = "31663964-6530-3935-3764-313337393432"
NO_SERIAL = "58580000-0000-0000-0000-000000000000"
A, B, C = (f"GPU-{number:016x}" for number in (0xA, 0xB, 0xC))
CARDS = [
    Device(f"GPU-{SERIAL}", 0, "AMD Radeon RX 7900 XTX", address="0000:03:00.0"),
    Device("AMD-0000:41:00.0", 1, "AMD Instinct MI100", address="0000:41:00.0"),
]


class Cuda:
    """A torch.cuda on ROCm with one device."""

    def __init__(self, uuid: str, bus: int = 0x41) -> None:
        self.properties = SimpleNamespace(uuid=uuid, pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def get_device_properties(self, index: int) -> Any:
        return self.properties

    def memory_stats_as_nested_dict(self, index: int) -> Any:
        return {
            "reserved_bytes": {"all": {"current": 4096}},
            "allocated_bytes": {"all": {"current": 1024, "peak": 2048}},
        }


def rocm(uuid: str) -> dict[str, Any]:
    return {"torch": SimpleNamespace(cuda=Cuda(uuid), version=SimpleNamespace(hip="6.4", cuda=None))}


@pytest.mark.parametrize(
    ("rocr", "hip", "cuda", "expected"),
    [
        ("", "", "", ""),
        ("0,2", "", "", "0,2"),
        ("", "1,3", "", "1,3"),
        ("", "", "3,1", "3,1"),
        ("4,5,6", "2,0", "", "6,4"),
        ("4,5,6", "", "1", "5"),
        ("4,5,6", "2", "0,1", "6"),  # HIP's own variable comes before the one of CUDA
        (f"{A},{B},{C}", "1", "", B),
        (f"{A},{B},{C}", f"{C},{A}", "", f"{C},{A}"),
        (f"{A},{B}", C, "", "-1"),
        ("4,5", "0,2,1", "", "4"),  # an invalid entry ends the list
        ("-1", "", "", "-1"),
        ("4,x,5", "", "", "4"),
        ("", "", "-1", "-1"),
    ],
)
def test_variables_are_read_one_after_the_other(rocr: str, hip: str, cuda: str, expected: str) -> None:
    env = {"ROCR_VISIBLE_DEVICES": rocr, "HIP_VISIBLE_DEVICES": hip, "CUDA_VISIBLE_DEVICES": cuda}
    assert rocm_visible_devices(env) == expected
    assert rocm_visible_devices({name: value for name, value in env.items() if value}) == expected


@pytest.mark.parametrize(
    ("uuid", "name"),
    [
        (AS_HIP, f"GPU-{SERIAL}"),
        (NO_SERIAL, ""),
        ("00000000-0000-0000-0000-000000000000", ""),
        ("30303030-3030-3030-3030-303030303030", ""),
        ("8932f937-d72c-4106-c12f-20bd9faed9f6", None),
        ("no uuid", None),
    ],
)
def test_a_uuid_of_hip_is_the_text_of_a_serial_number(uuid: str, name: str | None) -> None:
    assert hip_uuid(uuid) == name


@pytest.mark.parametrize(("uuid", "card"), [(AS_HIP, 0), (NO_SERIAL, 1)])
def test_a_run_of_torch_is_on_its_card(uuid: str, card: int) -> None:
    devices = find_devices(rocm(uuid), {})
    match = match_devices(Claim(pid=7, user="alice", devices=devices), CARDS, [])
    assert match.devices == (CARDS[card].uuid,)


@pytest.mark.parametrize(("uuid", "card"), [(AS_HIP, 0), (NO_SERIAL, 1)])
def test_memory_of_torch_is_on_its_card(uuid: str, card: int) -> None:
    (entry,) = FrameworkMemoryReader("", rocm(uuid)).read(1)
    device = CARDS[card]
    assert entry.device
    assert memory_entry(device.uuid, (device.uuid,), [entry], named_address(device.address)) == entry
    other = Memory(0, device_mark(A))
    assert memory_entry(device.uuid, (device.uuid,), [other], named_address(device.address)) is None


def test_an_address_of_two_devices_is_none() -> None:
    twice = [CARDS[1], CARDS[1]._replace(uuid="AMD-2")]
    assert device_by_uuid("PCI-0000:41:00.0", CARDS) == CARDS[1].uuid
    assert device_by_uuid("PCI-0000:41:00.0", twice) is None
    assert named_address("00000000:65:00.0") == "PCI-0000:65:00.0"


def test_numbers_are_those_of_rocm_on_a_mixed_machine() -> None:
    nvidia = [Device(f"GPU-0000000{n}-0000-0000-0000-000000000000", n, "NVIDIA H100") for n in range(2)]
    amd = [device._replace(uuid=uuid, index=2 + n) for n, (device, uuid) in enumerate(zip(CARDS, (A, B), strict=True))]
    machine = [*nvidia, *amd]
    claim = Claim(pid=7, user="alice", visible="1", order=ORDER)
    assert match_devices(claim, machine, []).devices == (B,)
    assert match_devices(claim._replace(order="PCI_BUS_ID"), machine, []).devices == (nvidia[1].uuid,)
    assert named_devices("2", machine) == [None], "no program of CUDA sees an AMD GPU"


def test_a_process_of_kfd_shows_the_card_of_a_run_that_names_none() -> None:
    listed = [Process(7, CARDS[1].uuid, "compute", "python", "alice")]
    assert match_devices(Claim(pid=7, user="alice"), CARDS, listed).devices == (CARDS[1].uuid,)


def test_rocm_is_known_by_torch_else_by_the_device_files(tmp_path: Any) -> None:
    cuda = {"torch": SimpleNamespace(version=SimpleNamespace(hip=None, cuda="12.8"))}
    (tmp_path / "kfd").touch()
    assert uses_rocm(rocm(AS_HIP), str(tmp_path / "none"))
    assert not uses_rocm(cuda, str(tmp_path))
    assert uses_rocm({}, str(tmp_path))
    (tmp_path / "nvidiactl").touch()
    assert not uses_rocm({}, str(tmp_path))


def test_a_torch_of_another_shape_has_no_address() -> None:
    cuda = SimpleNamespace(get_device_properties=lambda index: SimpleNamespace(uuid=NO_SERIAL, pci_bus_id="x"))
    assert torch_uuid(cuda, 0, ()) == ""


def test_free_cards_are_given_to_programs_by_their_identifier() -> None:
    assert variables_for(CARDS[:1]) == {"ROCR_VISIBLE_DEVICES": f"GPU-{SERIAL}"}
