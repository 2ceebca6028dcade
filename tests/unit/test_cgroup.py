"""Container, pod and job of a process, from the texts that kernels and runtimes really write, and from hostile ones."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.text import clean
from gpumon.sources.cgroup import LONGEST, CgroupInfo, parse_cgroup

ID = "3f2a9c1b04de" + "5" * 52
OTHER = "aaaabbbbcccc" + "6" * 52
UID = "0a1b2c3d-1111-2222-3333-444455556666"
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # Nothing of it.
        ("0::/\n", CgroupInfo()),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", CgroupInfo()),
        ("0::/system.slice/sshd.service\n", CgroupInfo()),
        ("", CgroupInfo()),
        # Containers of version 2 and 1.
        (f"0::/system.slice/docker-{ID}.scope\n", CgroupInfo("docker 3f2a9c1b04de")),
        (f"12:memory:/docker/{ID}\n11:cpuset:/docker/{ID}\n0::/\n", CgroupInfo("docker 3f2a9c1b04de")),
        (f"0::/system.slice/docker-{ID}.scope/system.slice/x.service\n", CgroupInfo("docker 3f2a9c1b04de")),
        (f"0::/user.slice/user-7.slice/user@7.service/docker-{ID}.scope\n", CgroupInfo("docker 3f2a9c1b04de")),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", CgroupInfo("podman 3f2a9c1b04de")),
        (f"0::/libpod_parent/libpod-{ID}\n", CgroupInfo("podman 3f2a9c1b04de")),
        (f"0::/system.slice/nerdctl-{ID}.scope\n", CgroupInfo("containerd 3f2a9c1b04de")),
        (f"5:devices:/ecs/0123/{ID}\n", CgroupInfo("container 3f2a9c1b04de")),
        (f"0::/docker/{ID}/docker/{OTHER}\n", CgroupInfo("docker aaaabbbbcccc in docker 3f2a9c1b04de")),
        (f"0::/lxc.payload.web/system.slice/docker-{ID}.scope\n", CgroupInfo("docker 3f2a9c1b04de in lxc web")),
        ("0::/lxc.payload.web\n", CgroupInfo("lxc web")),
        ("3:cpu:/lxc/101/ns/user.slice\n", CgroupInfo("lxc 101")),
        (r"0::/machine.slice/systemd-nspawn@de\x2dbian.service/payload" + "\n", CgroupInfo("nspawn de-bian")),
        (r"0::/machine.slice/machine-caf\xc3\xa9.scope" + "\n", CgroupInfo("machine café")),
        (f"0::/system.slice/docker-{ID}.scope (deleted)\n", CgroupInfo("docker 3f2a9c1b04de")),
        # A container's own view, of who is outside of it.
        (f"0::/../docker-{ID}.scope\n", CgroupInfo("docker 3f2a9c1b04de")),
        # Pods.
        (f"0::/kubepods.slice/{SLICE}/cri-containerd-{ID}.scope\n", CgroupInfo("containerd 3f2a9c1b04de", UID)),
        (f"0::/kubepods.slice/{SLICE}/crio-{ID}.scope\n", CgroupInfo("cri-o 3f2a9c1b04de", UID)),
        (f"4:pids:/kubepods/burstable/pod{UID}/{ID}\n", CgroupInfo("container 3f2a9c1b04de", UID)),
        (f"0::/x.service/{SLICE}:cri-containerd:{ID}\n", CgroupInfo("containerd 3f2a9c1b04de", UID)),
        (
            f"0::/docker/{OTHER}/kubelet.slice/kubelet-kubepods.slice/kubelet-{SLICE}/cri-containerd-{ID}.scope\n",
            CgroupInfo("containerd 3f2a9c1b04de in docker aaaabbbbcccc", UID),
        ),
        # Jobs.
        ("0::/system.slice/slurmstepd.scope/job_211/step_batch/user/task_0\n", CgroupInfo(job="211")),
        ("0::/system.slice/node7_slurmstepd.scope/job_9/step_0/user/task_1\n", CgroupInfo(job="9")),
        ("0::/system.slice/slurmstepd.scope/s0A1B2C3D4E5F6/step_0\n", CgroupInfo(job="s0A1B2C3D4E5F6")),
        ("9:memory:/slurm/uid_1000/job_4242/step_0/task_0\n1:name=systemd:/\n", CgroupInfo(job="4242")),
        ("9:memory:/slurm_node7/uid_1000/job_4242/step_extern\n", CgroupInfo(job="4242")),
        (
            f"9:memory:/slurm/uid_1/job_7/step_0\n0::/system.slice/docker-{ID}.scope\n",
            CgroupInfo("docker 3f2a9c1b04de", job="7"),
        ),
    ],
)  # fmt: skip
def test_what_runtimes_write_is_understood(text: str, found: CgroupInfo) -> None:
    assert parse_cgroup(text.encode()) == found


@pytest.mark.parametrize(
    "path",
    [
        "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1/step_0",
        f"/user.slice/user-1000.slice/user@1000.service/kubepods.slice/{SLICE}",
        "/system.slice/job_1",
        "/system.slice/slurmstepd.scope/job_",
        "/system.slice/slurmstepd.scope/job_" + "9" * 21,
        "/system.slice/slurmstepd.scope/job_1x",
        f"/mypod{UID}",
        "/kubepods/pod1234",
    ],
)
def test_no_job_and_no_pod_is_believed_of_a_cgroup_that_a_user_may_make_or_that_only_looks_like_one(path: str) -> None:
    assert parse_cgroup(f"0::{path}\n".encode()) == CgroupInfo()


def test_a_name_that_would_move_the_cursor_is_spelled_out() -> None:
    raw = b"0::/lxc.payload.\x1b[2J\xff\n1:x:/lxc.payload.\\x1b[2J\n"
    assert parse_cgroup(raw).container == "lxc \\x1b[2J\ufffd"
    assert parse_cgroup(raw.split(b"\n")[1]).container == "lxc \\x1b[2J"


def test_of_a_text_without_an_end_whole_lines_are_read() -> None:
    line = f"0::/system.slice/docker-{ID}.scope".encode()
    long = b"1:x:/" + b"a" * LONGEST
    assert parse_cgroup(line + b"\n" + long) == CgroupInfo("docker 3f2a9c1b04de")
    assert parse_cgroup(long) == CgroupInfo()
    assert parse_cgroup(b"x" * (LONGEST - len(line)) + line) == CgroupInfo()


@given(
    st.binary(max_size=400)
    | st.text(max_size=400).map(lambda text: f"0::/lxc.payload.{text}".encode("utf-8", "replace"))
)
def test_whatever_it_holds_the_answer_is_short_clean_text(raw: bytes) -> None:
    for text in parse_cgroup(raw):
        assert clean(text, 300) == text
        assert len(text) <= 300


def test_no_name_takes_long() -> None:
    """Names are written by users: patterns must not try all ways to read them."""
    begun = time.process_time()
    for name in ("-" * 255, "kubepods-" * 28, ":cri-containerd-" * 15, "pod" * 85, "a-" * 127):
        parse_cgroup(f"0::/kubepods/slurm/{'/'.join([name] * 60)}\n".encode())
    assert time.process_time() - begun < 2
