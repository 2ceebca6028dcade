"""What the daemon can see of processes, by where it runs: on trees like those of /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.sources.processes import CONTAINER, HIDDEN, NO_PROC, WSL, Sandbox, detect_sandbox


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of the machine itself, all of which can be read."""
    root = tmp_path / "proc"
    for pid in ("1", "self"):
        (root / pid / "ns").mkdir(parents=True)
        (root / pid / "stat").touch()
    (root / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    return root


def namespace(proc: Path, name: str) -> None:
    (proc / "self" / "ns" / "pid").unlink()
    (proc / "self" / "ns" / "pid").symlink_to(name)


def look(proc: Path) -> Sandbox:
    return detect_sandbox(str(proc), str(proc.parent / "dxg"))


def test_on_the_machine_itself_nothing_is_hidden(proc: Path) -> None:
    assert look(proc) == Sandbox("", False)


def test_in_a_pid_namespace_of_its_own_pids_are_not_those_of_the_machine(proc: Path) -> None:
    namespace(proc, "pid:[4026532281]")
    assert look(proc) == Sandbox(CONTAINER, True)


def test_windows_tells_its_wsl_machines_of_no_process(proc: Path) -> None:
    (proc.parent / "dxg").touch()
    assert look(proc) == Sandbox(WSL, False)
    namespace(proc, "pid:[4026532281]")
    assert look(proc) == Sandbox(WSL, True), "each distribution has a namespace of its own"


def test_a_proc_that_hides_other_users_is_told_of(proc: Path) -> None:
    (proc / "1" / "stat").unlink()
    assert look(proc) == Sandbox(HIDDEN, False)


def test_a_proc_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    assert look(tmp_path / "none") == Sandbox(NO_PROC, False)


def test_a_kernel_without_namespaces_is_no_container(proc: Path) -> None:
    (proc / "self" / "ns" / "pid").unlink()
    assert look(proc) == Sandbox("", False)


def test_this_machine_can_be_looked_at() -> None:
    found = detect_sandbox()
    assert found.has_own_pids == (os.readlink("/proc/self/ns/pid") != "pid:[4026531836]")


@pytest.mark.parametrize("sentence", [WSL, NO_PROC, CONTAINER, HIDDEN])
def test_a_sentence_fits_on_a_line_and_is_one(sentence: str) -> None:
    assert len(sentence) <= 110
    assert "\n" not in sentence
    assert not sentence.endswith(".")
