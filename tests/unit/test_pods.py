"""Names of pods, from the names of directories on a node: hostile ones too, listed seldom, and believed of root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.analysis.processes import job_or_container
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import pod_parts
from gpumon.reports.status_json import document
from gpumon.sources.cgroup import PodNames
from gpumon.sources.processes import ProcessTable
from tests.builders import frame_of, process, sample, tick
from tests.fakes import FakeClock

UID = "0a1b2c3d-1111-2222-3333-444455556666"
ID = "3f2a9c1b04de" + "5" * 52


class Node:
    """A node with directories of logs, which counts how often one is listed."""

    def __init__(self, root: Path, clock: FakeClock) -> None:
        self.pods, self.containers = root / "pods", root / "containers"
        for directory in (self.pods, self.containers):
            directory.mkdir()
        self.looks = 0
        self.is_roots = True
        self.names = PodNames(clock, str(self.pods), str(self.containers), self._trusts)

    def _trusts(self, path: str) -> bool:
        self.looks += 1
        return self.is_roots


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def node(tmp_path: Path, clock: FakeClock) -> Node:
    return Node(tmp_path, clock)


def test_a_pod_is_found_by_its_uid_or_by_its_container(node: Node) -> None:
    (node.pods / f"ml_train-0_{UID}").mkdir()
    (node.containers / f"eval-1_research_pytorch-{ID}.log").symlink_to("/nowhere")
    assert node.names.name(UID, "") == "ml/train-0"
    assert node.names.name("ffffffff-1111-2222-3333-444455556666", ID[:12]) == "research/eval-1"
    assert node.looks == 2, "one look at each"


def test_a_static_pod_has_a_hash_for_a_uid(node: Node) -> None:
    (node.pods / "kube-system_dcgm-node7_0a1b2c3d111122223333444455556666").mkdir()
    assert node.names.name(UID, "") == "kube-system/dcgm-node7"


def test_directories_are_listed_again_for_a_new_pod_alone_and_not_at_once(node: Node, clock: FakeClock) -> None:
    assert [node.names.name(UID, "") for _ in range(3)] == [""] * 3
    (node.pods / f"ml_train-0_{UID}").mkdir()
    clock.advance(9)
    assert node.names.name(UID, "") == ""
    clock.advance(2)
    assert [node.names.name(UID, "") for _ in range(3)] == ["ml/train-0"] * 3
    assert node.looks == 4, "two directories, twice"


def test_what_others_than_root_may_write_is_not_believed(node: Node) -> None:
    (node.pods / f"ml_train-0_{UID}").mkdir()
    node.is_roots = False
    assert node.names.name(UID, "") == ""


def test_names_that_are_none_of_a_pod_are_passed_over_and_hostile_ones_are_cleaned(node: Node) -> None:
    for name in ("x", f"_{UID}", f"a__{UID}", "a_b_c", f"a_b_{UID}.gz", "\x1b[2J"):
        (node.pods / name).mkdir()
    (Path(os.fsdecode(os.fsencode(node.pods) + b"/\xff_\x1b[31mx_" + UID.encode()))).mkdir()
    name = node.names.name(UID, "")
    assert name.isprintable()
    assert name.endswith("x")


def test_a_node_without_such_directories_has_no_names(tmp_path: Path, clock: FakeClock) -> None:
    missing = str(tmp_path / "none")
    assert PodNames(clock, missing, missing).name(UID, ID[:12]) == ""
    assert PodNames(clock, missing, missing, lambda path: True).name(UID, ID[:12]) == ""


def test_a_process_says_its_pod_by_name_and_programs_get_uid_and_name(
    node: Node, tmp_path: Path, clock: FakeClock
) -> None:
    (node.pods / f"ml_train-0_{UID}").mkdir()
    home = tmp_path / "proc" / "4711"
    home.mkdir(parents=True)
    (tmp_path / "proc" / "stat").write_text("btime 1\n")
    (home / "stat").write_text("4711 (python) S 17 4711 4711 0 -1 4194304 0 0 0 0 3 2 0 0 20 0 1 0 8800 1000 512 0")
    (home / "cgroup").write_text(f"0::/kubepods.slice/pod{UID}/cri-containerd-{ID}.scope\n")
    table = ProcessTable(clock, str(tmp_path / "proc"), pods=node.names)
    around = [table.describe(4711).cgroup for _ in range(3)][-1]
    table.close()
    assert (pod_parts(around.pod), node.looks) == ((UID, "ml/train-0"), 2)
    seen = process(container=around.container, pod=around.pod)
    assert job_or_container(seen) == "pod ml/train-0 · containerd 3f2a9c1b04de"
    told = document(frame_of(tick(1, [sample(0)], [seen])), Origin("nvml"), Driver(), "node1", None)
    (one,) = told["gpus"][0]["processes"]
    assert (one["pod"], one["pod_name"]) == (UID, "ml/train-0")


def test_a_pod_without_a_name_is_known_by_its_uid() -> None:
    assert job_or_container(process(pod=UID)) == "pod 0a1b2c3d"
    assert pod_parts(UID) == (UID, "")
    assert pod_parts("") == ("", "")
