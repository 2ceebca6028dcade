"""The dialects of dcgm-exporter and of jobstats: values by their formulas, labels as their dashboards ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from math import inf, nan

import pytest

from gpumon.cli.export import PORTS
from gpumon.common.clock import SECOND
from gpumon.export.dcgm import ROWS as DCGM
from gpumon.export.dcgm import XID
from gpumon.export.jobstats import LABELS
from gpumon.export.jobstats import ROWS as JOBSTATS
from gpumon.export.scrape import DIALECTS
from gpumon.export.snapshot import UserNames, parse_terms
from gpumon.model.device import Device
from gpumon.model.frame import Sample, XidEvent
from gpumon.model.metrics import BY_NAME, PROCESSES, Availability
from gpumon.model.origin import Driver
from gpumon.ring.layout import STOPPED
from tests.builders import TIME, device, process, sample, tick
from tests.exported import Node, scraped

TABLES = {
    "dcgm": DCGM,
    "jobstats": JOBSTATS,
}
MIB, GIB = 2.0**20, 2.0**30

VALUES = {
    "utilization": 0.87, "memory_utilization": 0.29, "encoder_utilization": 0.07, "decoder_utilization": 0.58,
    "clock_sm": 1.98e9, "clock_memory": 2.619e9, "temperature": 63.0, "temperature_memory": 71.0, "power": 512.25,
    "energy": 1234.567, "pcie_replays": 4.0, "memory_total": 81559 * MIB, "memory_used": 70044.6 * MIB,
    "memory_reserved": 551.0 * MIB, "nvlink_sent_rate": 3e9, "nvlink_received_rate": 1e9,
    "rows_remapped_corrected": 2.0,
    "rows_remapped_uncorrected": 1.0, "remapping_failed": 0.0, "graphics_activity": 0.97, "tensor_activity": 0.51,
    "dram_activity": 0.53, "pcie_sent_rate": 1.5e9, "pcie_received_rate": 2.5e9, "throttled_sw_power": 1.5,
    "fan": 0.3, "performance_state": 0.0,
}  # fmt: skip
OF_DCGM = {
    "DCGM_FI_DEV_SM_CLOCK": 1980, "DCGM_FI_DEV_MEM_CLOCK": 2619, "DCGM_FI_DEV_MEMORY_TEMP": 71,
    "DCGM_FI_DEV_GPU_TEMP": 63, "DCGM_FI_DEV_POWER_USAGE": 512.25, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1234567,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 4, "DCGM_FI_DEV_GPU_UTIL": 87, "DCGM_FI_DEV_MEM_COPY_UTIL": 29,
    "DCGM_FI_DEV_ENC_UTIL": 7, "DCGM_FI_DEV_DEC_UTIL": 58, "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_FB_FREE": 10963, "DCGM_FI_DEV_FB_USED": 70044, "DCGM_FI_DEV_FB_RESERVED": 551,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 3906, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 1,
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 2, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.97, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.51, "DCGM_FI_PROF_DRAM_ACTIVE": 0.53,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 1.5e9, "DCGM_FI_PROF_PCIE_RX_BYTES": 2.5e9, "DCGM_FI_DEV_POWER_VIOLATION": 1.5e9,
}  # fmt: skip
"""By the formulas of DCGM: MHz, °C, W, mJ, %, MiB rounded down, KiB a millisecond, ns."""
OF_JOBSTATS = {
    "nvidia_gpu_memory_used_bytes": 70044.6 * MIB // 1, "nvidia_gpu_memory_total_bytes": 81559 * MIB,
    "nvidia_gpu_duty_cycle": 87, "nvidia_gpu_power_usage_milliwatts": 512250, "nvidia_gpu_temperature_celsius": 63,
    "nvidia_gpu_fanspeed_percent": 30, "nvidia_gpu_graphics_util_percent": 0.97,
    "nvidia_gpu_any_tensor_util_percent": 0.51, "nvidia_gpu_pcie_tx_per_sec": 1.5e9,
}  # fmt: skip


@pytest.fixture
def node() -> Iterator[Node]:
    found = Node()
    yield found
    found.close()


def placed(index: int = 0, job: str = "", **fields: object) -> Device:
    return device(index, address="00000000:07:00.0", minor=index + 4, job=job, **fields)


def gpu(index: int = 0, job: str = "", **values: float) -> Sample:
    return sample(index, **(values or VALUES))._replace(device=placed(index, job))


def test_values_of_dcgm_are_those_of_its_formulas(node: Node) -> None:
    node.add([tick(1, [gpu()]), tick(2, [gpu()], driver=Driver("580.65.06"))])
    page = scraped(node, "dcgm", hostname="gn1")
    for name, value in OF_DCGM.items():
        assert page.value(name) == pytest.approx(value), name
        assert page.labels(name) == [
            {
                "gpu": "0", "UUID": device().uuid, "pci_bus_id": "00000000:07:00.0", "device": "nvidia0",
                "modelName": "NVIDIA H100", "Hostname": "gn1", "DCGM_FI_DRIVER_VERSION": "580.65.06",
            }
        ]  # fmt: skip


def test_values_of_jobstats_are_those_of_its_exporter(node: Node) -> None:
    node.add([tick(n, [gpu(job="4242 1000")]) for n in (1, 2)])
    page = scraped(node, "jobstats")
    for name, value in OF_JOBSTATS.items():
        assert page.value(name) == pytest.approx(value), name
        assert page.labels(name) == [
            {"minor_number": "4", "ordinal": "0", "uuid": device().uuid, "name": "NVIDIA H100", "jobid": "4242",
             "userid": "1000"}
        ]  # fmt: skip
    assert page.value("nvidia_gpu_num_devices") == 1
    assert page.value("nvidia_gpu_jobId") == 4242
    assert page.value("nvidia_gpu_jobUid") == 1000


def test_a_dialect_has_a_port_and_a_table() -> None:
    assert set(DIALECTS) == set(PORTS) == {"native", *TABLES}
    assert len(set(PORTS.values())) == len(PORTS)


def test_a_row_names_metrics_of_the_table_and_tells_nothing_of_what_is_missing(node: Node) -> None:
    numbers = count(1)
    for dialect, rows in TABLES.items():
        for row, value in product(rows, (nan, inf)):
            metrics = parse_terms(row.metric)
            assert metrics.keys() <= BY_NAME.keys()
            keys = {name.removeprefix("gpu."): 1e9 for name in metrics}
            node.add([tick(next(numbers), [gpu(**{**keys, next(iter(keys)): value})])])
            assert scraped(node, dialect).values(row.name) == [], row.name


@pytest.mark.parametrize("dialect", TABLES)
def test_names_are_there_once_and_have_no_labels_of_a_scrape(node: Node, dialect: str) -> None:
    rows = TABLES[dialect]
    assert len({row.name for row in rows}) == len(rows)
    node.add([tick(1, [gpu(), gpu(1)])])
    page = scraped(node, dialect)
    told = {label for name in page.samples for labels in page.labels(name) for label in labels}
    assert not told & {"job", "instance"}


@pytest.mark.parametrize("dialect", TABLES)
def test_a_silent_node_has_no_values_of_before(node: Node, dialect: str) -> None:
    node.add([tick(1, [gpu()])])
    assert [name for name in scraped(node, dialect).samples if not name.startswith("gpumon_")]
    node.ring.heartbeat(STOPPED)
    page = scraped(node, dialect)
    assert page.value("gpumon_up") == 0
    assert not [name for name in page.samples if not name.startswith("gpumon_")]


@pytest.mark.parametrize(
    ("label", "told"), [(None, {"Hostname": "node1"}), ("hostname", {"hostname": "node1"}), ("", {})]
)
def test_the_label_of_the_host_is_as_the_version_had_it(node: Node, label: str | None, told: dict[str, str]) -> None:
    node.add([tick(1, [gpu()])])
    page = scraped(node, "dcgm", **({} if label is None else {"host_label": label}))
    (labels,) = page.labels("DCGM_FI_DEV_GPU_TEMP")
    assert {name: text for name, text in labels.items() if name.lower() == "hostname"} == told


def test_the_last_xid_error_is_told_and_none_is_0(node: Node) -> None:
    events = [XidEvent(device().uuid, code, SECOND, TIME + at * SECOND) for code, at in ((79, 5), (31, 9), (48, 7))]
    node.add([tick(1, [gpu(), gpu(1)], xids=events), tick(2, [gpu(), gpu(1)])])
    page = scraped(node, "dcgm")
    assert (page.value("DCGM_FI_DEV_XID_ERRORS", gpu="0"), page.value("DCGM_FI_DEV_XID_ERRORS", gpu="1")) == (31, 0)


def test_no_xid_error_is_claimed_where_the_driver_does_not_tell_of_any(node: Node) -> None:
    deaf = gpu(1)._replace(device=placed(1, missing={XID: Availability.NOT_SUPPORTED}))
    node.add([tick(n, [gpu(), deaf]) for n in (1, 2)])
    assert [labels["gpu"] for labels in scraped(node, "dcgm").labels("DCGM_FI_DEV_XID_ERRORS")] == ["0"]


def test_free_memory_is_known_where_the_driver_does_not_tell_its_own(node: Node) -> None:
    node.add([tick(1, [gpu(memory_total=80 * GIB, memory_used=30 * GIB)])])
    assert scraped(node, "dcgm").value("DCGM_FI_DEV_FB_FREE") == 50 * 1024


def test_an_instance_of_mig_is_its_gpu_with_a_profile_and_no_value_twice(node: Node) -> None:
    whole = placed(missing={PROCESSES: Availability.OF_INSTANCES, "gpu.utilization": Availability.IN_MIG_MODE})
    part = Device("MIG-1", 0, "NVIDIA H100 MIG 1g.10gb", parent=whole.uuid, instance=3)
    node.add([tick(1, [sample(0, power=300.0)._replace(device=whole),
                       sample(0, memory_used=GIB)._replace(device=part)])])  # fmt: skip
    page = scraped(node, "dcgm")
    assert page.values("DCGM_FI_DEV_GPU_UTIL") == []
    assert len(page.values("DCGM_FI_DEV_POWER_USAGE")) == 1
    (labels,) = page.labels("DCGM_FI_DEV_FB_USED")
    assert (labels["UUID"], labels["GPU_I_PROFILE"], labels["GPU_I_ID"]) == (whole.uuid, "1g.10gb", "3")
    (labels,) = scraped(node, "jobstats").labels("nvidia_gpu_memory_used_bytes")
    assert (labels["uuid"], labels["GPU_I_ID"]) == ("MIG-1", "3")


def test_a_job_and_a_pod_are_labels_where_there_is_one(node: Node) -> None:
    pod = "0123abcd-0000-4000-8000-000000000000 ml/train-0"
    node.add([tick(1, [gpu(job="4242 1000"), gpu(1)], [process(1, pod=pod), process(2, index=1, pod=pod),
                                                       process(3, index=1, pod="1123abcd x/other")])])  # fmt: skip
    page = scraped(node, "dcgm")
    first, second = sorted(page.labels("DCGM_FI_DEV_GPU_TEMP"), key=lambda labels: labels["gpu"])
    assert (first["hpc_job"], first["pod"], first["namespace"]) == ("4242", "train-0", "ml")
    assert not second.keys() & {"hpc_job", "pod", "namespace"}


@pytest.mark.parametrize("policy", [UserNames.UID, UserNames.HASH, UserNames.OFF])
def test_a_pod_that_has_the_name_of_its_user_does_not_tell_it(node: Node, policy: UserNames) -> None:
    pod = "0123abcd-0000-4000-8000-000000000000 team-ada/notebook-ada-of-bob"
    node.add([tick(1, [gpu()], [process(1, pod=pod, user="ada"), process(2, pod=pod, user="bob")])])
    page = scraped(node, "dcgm", policy)
    (labels,) = page.labels("DCGM_FI_DEV_GPU_TEMP")
    assert (labels["pod"], labels["namespace"]) == ("hidden", "hidden")


def test_the_job_of_processes_counts_where_the_scheduler_says_nothing(node: Node) -> None:
    node.add([tick(1, [gpu(), gpu(1), gpu(2)], [process(1, job="7", user="root"), process(2, index=1, job="8"),
                                                process(3, index=1, job="9")])])  # fmt: skip
    page = scraped(node, "jobstats")
    told = {
        labels["ordinal"]: (labels.get("jobid"), labels.get("userid")) for labels in page.labels("nvidia_gpu_jobId")
    }
    assert told == {"0": ("7", "0")}, "several jobs, or processes that nobody lists, are not none"
    native = scraped(node)
    (job,) = native.labels("gpumon_gpu_job_info")
    assert (job["gpu"], job["slurm_job"], job["user"], job["by"]) == ("0", "7", "root", "process")
    hidden = scraped(node, "jobstats", users=UserNames.OFF)
    assert not {label for labels in hidden.labels("nvidia_gpu_jobId") for label in labels} & {"userid"}
    assert hidden.values("nvidia_gpu_jobUid") == []
    assert set(LABELS) >= {"minor_number", "jobid"}


def test_no_job_is_claimed_where_it_is_not_known_whether_one_has_the_gpu(node: Node) -> None:
    unread = gpu(1)._replace(device=placed(1, missing={PROCESSES: Availability.NO_PERMISSION}))
    unlisted, free = gpu(2), gpu(3, memory_used=0.0, memory_total=80 * GIB, utilization=0.0)
    node.add([tick(1, [gpu(0, job="42_7 1000"), unread, unlisted, free])])
    assert [labels["ordinal"] for labels in scraped(node, "jobstats").labels("nvidia_gpu_jobId")] == ["3"]
    node.add([tick(2, [gpu()._replace(state=Availability.STALE)])])
    assert scraped(node, "jobstats").values("nvidia_gpu_num_devices") == []


def test_an_allocation_without_a_process_is_told(node: Node) -> None:
    node.add([tick(1, [gpu(job="4242 1000")])])
    (job,) = scraped(node).labels("gpumon_gpu_job_info")
    assert (job["slurm_job"], job["by"], "user" in job) == ("4242", "allocation", False)


def test_a_gpu_without_a_number_of_its_own_claims_none(node: Node) -> None:
    node.add([tick(1, [sample(0, **VALUES)])])
    (labels,) = scraped(node, "jobstats").labels("nvidia_gpu_duty_cycle")
    assert "minor_number" not in labels
    (labels,) = scraped(node, "dcgm").labels("DCGM_FI_DEV_GPU_TEMP")
    assert "pci_bus_id" not in labels
