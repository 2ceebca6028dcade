"""The host and its processes, from a /proc of our own."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from math import isnan
from pathlib import Path

import pytest

from gpumon.model.metrics import HOST_INDEX, HOST_METRICS
from gpumon.sources.base import ProcessInfo
from gpumon.sources.cgroup import CgroupInfo
from gpumon.sources.host import HostSource
from gpumon.sources.processes import ProcessTable
from tests.fakes import FakeClock
from tests.programs import Child, until

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
BOOTED = 1_789_000_000

MEMINFO = """\
MemTotal:       65536000 kB
MemFree:         1024000 kB
MemAvailable:   45536000 kB
Buffers:          204800 kB
SwapTotal:       8192000 kB
SwapFree:        6144000 kB
HugePages_Total:       0
"""
# A disk with two partitions, an NVMe with one, a loop, a RAM disk, a mapped volume: each with 1000 and more sectors.
DISKSTATS = """\
   8       0 sda 10 0 2000 5 20 0 3000 5 0 10 10 0 0 0 0 0 0
   8       1 sda1 10 0 1999 5 20 0 2999 5 0 10 10 0 0 0 0 0 0
   8       2 sda2 1 0 1 5 2 0 1 5 0 10 10 0 0 0 0 0 0
 259       0 nvme0n1 7 0 500 5 8 0 700 5 0 10 10 0 0 0 0 0 0
 259       1 nvme0n1p1 7 0 500 5 8 0 700 5 0 10 10 0 0 0 0 0 0
   7       0 loop0 7 0 90000 5 8 0 0 5 0 10 10 0 0 0 0 0 0
   1       0 ram0 7 0 90000 5 8 0 0 5 0 10 10
 253       0 dm-0 7 0 90000 5 8 0 0 5 0 10 10 0 0 0 0 0 0
"""
NETWORK = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9999999    1000    0    0    0     0          0         0  9999999    1000    0    0    0     0       0          0
  eth0: 1000       10      0    0    0     0          0         0  200        2      0    0    0     0       0          0
   ib0:30000       10      0    0    0     0          0         0  4000       2      0    0    0     0       0          0
"""  # noqa: E501


class Proc:
    """A captured /proc under a temporary directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir()
        for disk in ("sda", "nvme0n1", "loop0", "ram0", "dm-0"):
            (root / "sys_block" / disk).mkdir(parents=True)
        self.cpu(user=1000, system=500, idle=8000, iowait=500)
        self.write("meminfo", MEMINFO)
        self.write("diskstats", DISKSTATS)
        self.write("net/dev", NETWORK)
        self.write("loadavg", "3.25 2.00 1.00 4/512 12345\n")

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def cpu(
        self, user: int = 0, nice: int = 0, system: int = 0, idle: int = 0, iowait: int = 0, steal: int = 0
    ) -> None:
        times = f"cpu  {user} {nice} {system} {idle} {iowait} 0 0 {steal} 0 0\n"
        self.write("stat", f"{times}cpu0 1 1 1 1 1 1 1 1 0 0\nintr 5 1 2\nctxt 7\nbtime {BOOTED}\nprocesses 9\n")

    def process(self, pid: int, name: str = "python", cpu: int = 0, started: int = 500, pages: int = 100) -> Path:
        """The stat file of a process; an old one of this pid ends, as its descriptors then tell."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        stat = folder / "stat"
        if stat.exists():
            self.end(pid)
        stat.write_text(line(pid, name, cpu, started, pages))
        return stat

    def end(self, pid: int) -> None:
        stat = self.root / str(pid) / "stat"
        os.truncate(stat, 0)  # the kernel answers ESRCH; nothing to read is what a file can do
        stat.unlink()


def line(pid: int, name: str, cpu: int = 0, started: int = 500, pages: int = 100) -> str:
    before = f"{pid} ({name}) S 1 {pid} {pid} 0 -1 4194304 100 0 0 0"
    return f"{before} {cpu} 0 0 0 20 0 4 0 {started} 1000000 {pages} 18446744073709551615 1 1 0 0 0 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def value(read: list[float], name: str) -> float:
    return read[HOST_INDEX[f"host.{name}"]]


def test_a_read_has_every_metric_of_the_table(proc: Proc, clock: FakeClock) -> None:
    host = HostSource(clock, str(proc.root), lambda: "node1\n")
    proc.cpu(user=1100, system=500, idle=8000, iowait=500)
    read = host.read()
    assert len(read) == len(HOST_METRICS)
    assert not any(isnan(found) for found in read)
    assert host.hostname == "node1\\x0a"


def test_the_cpu_share_is_that_between_two_reads(proc: Proc, clock: FakeClock) -> None:
    host = HostSource(clock, str(proc.root))
    assert isnan(value(host.read(), "cpu_utilization")), "nothing has gone by yet"
    proc.cpu(user=1060, nice=10, system=520, idle=8100, iowait=510, steal=0)
    assert value(host.read(), "cpu_utilization") == pytest.approx(90 / 200)
    proc.cpu(user=1060, nice=10, system=520, idle=8200, iowait=610, steal=0)
    assert value(host.read(), "cpu_utilization") == 0.0


def test_waiting_for_a_disk_is_not_busy_and_a_stolen_cpu_is(proc: Proc, clock: FakeClock) -> None:
    proc.cpu(idle=100)
    host = HostSource(clock, str(proc.root))
    proc.cpu(idle=100, iowait=75, steal=25)
    assert value(host.read(), "cpu_utilization") == 0.25


def test_over_a_few_clock_ticks_the_last_cpu_share_holds(proc: Proc, clock: FakeClock) -> None:
    proc.cpu(idle=100)
    host = HostSource(clock, str(proc.root))
    proc.cpu(user=50, idle=150)
    assert value(host.read(), "cpu_utilization") == 0.5
    proc.cpu(user=59, idle=150)
    assert value(host.read(), "cpu_utilization") == 0.5
    proc.cpu(user=60, idle=150)
    assert value(host.read(), "cpu_utilization") == 1.0


def test_counters_that_step_back_give_no_share_outside_0_and_1(proc: Proc, clock: FakeClock) -> None:
    proc.cpu(user=1000, idle=1000, iowait=500)
    host = HostSource(clock, str(proc.root))
    proc.cpu(user=900, idle=1200, iowait=450)  # iowait is known to step back: proc(5)
    assert value(host.read(), "cpu_utilization") == 0.0


def test_used_memory_is_what_programs_cannot_have(proc: Proc, clock: FakeClock) -> None:
    read = HostSource(clock, str(proc.root)).read()
    assert value(read, "memory_total") == 65536000 * 1024
    assert value(read, "memory_used") == 20000000 * 1024
    assert (value(read, "swap_total"), value(read, "swap_used")) == (8192000 * 1024, 2048000 * 1024)


def test_a_disk_counts_once_and_its_partitions_and_volumes_not_again(proc: Proc, clock: FakeClock) -> None:
    read = HostSource(clock, str(proc.root)).read()
    assert value(read, "disk_read") == (2000 + 500) * 512
    assert value(read, "disk_written") == (3000 + 700) * 512


def test_a_machine_without_a_disk_of_its_own_has_no_disk_counters(proc: Proc, clock: FakeClock) -> None:
    proc.write("diskstats", "   7       0 loop0 7 0 90000 5 8 0 0 5 0 10 10 0 0 0 0 0 0\n")
    read = HostSource(clock, str(proc.root)).read()
    assert isnan(value(read, "disk_read"))
    assert isnan(value(read, "disk_written"))


def test_the_network_is_all_interfaces_but_loopback(proc: Proc, clock: FakeClock) -> None:
    read = HostSource(clock, str(proc.root)).read()
    assert (value(read, "network_received"), value(read, "network_sent")) == (31000, 4200)


def test_what_a_file_says_no_more_is_not_known_any_more(proc: Proc, clock: FakeClock) -> None:
    source = HostSource(clock, str(proc.root), lambda: "node")
    names = ("memory_total", "memory_used", "swap_total", "swap_used", "load", "disk_read", "disk_written",
             "network_received", "network_sent")  # fmt: skip
    assert not any(isnan(value(source.read(), name)) for name in names)
    for file in ("meminfo", "loadavg", "diskstats", "net/dev"):
        proc.write(file, "")
    assert all(isnan(value(source.read(), name)) for name in names)


def test_the_load_is_the_mean_of_a_minute(proc: Proc, clock: FakeClock) -> None:
    assert value(HostSource(clock, str(proc.root)).read(), "load") == 3.25


def test_without_a_proc_everything_is_missing_and_nothing_raises(clock: FakeClock, tmp_path: Path) -> None:
    host = HostSource(clock, str(tmp_path / "none"))
    assert all(isnan(found) for found in host.read())
    assert host.processes.describe(1)[:2] == ("", "")


def test_the_real_proc_of_this_machine_can_be_read(clock: FakeClock) -> None:
    read = HostSource(clock).read()
    assert 0 < value(read, "memory_used") < value(read, "memory_total")
    assert value(read, "load") >= 0


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("python", "python"),
        ("a) S 1 (b", "a) S 1 (b"),
        (") (", ") ("),
        ("Web Content x y", "Web Content x y"),
        ("", ""),
        ("evil\x1b[2J", "evil\\x1b[2J"),
        ("two\nlines 9 9 9", "two\\x0alines 9 9 9"),
    ],
)
def test_a_process_may_be_called_anything(proc: Proc, clock: FakeClock, name: str, shown: str) -> None:
    proc.process(4711, name, started=500, pages=300)
    table = ProcessTable(clock, str(proc.root))
    found, user, started, share, resident, _ = table.describe(4711)
    assert found == shown
    assert user == pwd.getpwuid(os.getuid()).pw_name
    assert started == BOOTED + 500 / TICKS
    assert isnan(share), "the first time nobody knows"
    assert resident == 300 * PAGE
    table.close()


def test_a_name_that_is_no_text_is_shown_all_the_same(proc: Proc, clock: FakeClock) -> None:
    proc.process(4711).write_bytes(line(4711, "x").encode().replace(b"(x)", b"(\xff\xfe)"))
    assert ProcessTable(clock, str(proc.root)).describe(4711)[0] == "\ufffd\ufffd"


def test_a_cpu_share_is_cores_since_the_last_time(proc: Proc, clock: FakeClock) -> None:
    stat = proc.process(4711, cpu=100)
    table = ProcessTable(clock, str(proc.root))
    table.describe(4711)
    clock.advance(2)
    stat.write_text(line(4711, "python", cpu=100 + 5 * TICKS))
    assert table.describe(4711)[3] == pytest.approx(2.5)
    assert table.describe(4711)[3] == pytest.approx(2.5), "asked twice at one moment, as for two GPUs"
    clock.advance(1)
    assert table.describe(4711)[3] == 0.0


def test_a_process_on_two_gpus_has_one_cpu_share_on_both(proc: Proc, clock: FakeClock) -> None:
    stat = proc.process(4711, cpu=100)
    table = ProcessTable(clock, str(proc.root))

    def both() -> list[float]:
        first = table.describe(4711)[3]
        clock.advance(0.0001)  # as the source comes from one GPU to the next
        stat.write_text(line(4711, "python", cpu=table_cpu() + 1))
        return [first, table.describe(4711)[3]]

    def table_cpu() -> int:
        return int(stat.read_text().split(") ")[1].split()[11])

    assert all(isnan(share) for share in both()), "nothing has gone by yet"
    for _ in range(3):
        clock.advance(0.9999)
        stat.write_text(line(4711, "python", cpu=table_cpu() + 2 * TICKS - 1))
        assert both() == pytest.approx([2.0, 2.0], rel=0.02)


def test_a_process_costs_one_descriptor_and_none_once_it_has_ended(proc: Proc, clock: FakeClock) -> None:
    host = HostSource(clock, str(proc.root))
    host.read()

    def tick(pids: range) -> int:
        for pid in pids:
            host.processes.describe(pid)
        host.read()
        clock.advance(1)
        return len(os.listdir("/proc/self/fd"))

    before = tick(range(0))
    for pid in range(100, 400):
        proc.process(pid)
    assert {tick(range(100, 400)) for _ in range(30)} == {before + 300}
    for pid in range(100, 390):
        proc.end(pid)
    assert [tick(range(390, 400)) for _ in range(20)][-1] == before + 10
    for pid in range(390, 400):
        proc.end(pid)
    assert [tick(range(0)) for _ in range(20)][-1] == before, "also where no other process comes"


def test_a_process_that_is_seldom_asked_for_stays_open(proc: Proc, clock: FakeClock) -> None:
    host, stat = HostSource(clock, str(proc.root)), proc.process(4711)
    for second in range(4):  # as with --idle-interval
        stat.write_text(line(4711, "python", cpu=120 * TICKS * second))
        share = host.processes.describe(4711).cpu_utilization
        host.read()
        clock.advance(60)
    assert share == 2.0


def test_a_process_that_has_gone_is_nobody(proc: Proc, clock: FakeClock) -> None:
    proc.process(4711)
    table = ProcessTable(clock, str(proc.root))
    table.describe(4711)
    proc.end(4711)
    assert table.describe(4711)[:2] == ("", "")
    assert all(isnan(found) for found in table.describe(4711)[2:5])


def test_a_process_that_has_not_run_is_read_again_only_in_case_its_pages_were_moved(
    proc: Proc, clock: FakeClock
) -> None:
    stat, ran_ns = proc.process(4711, cpu=100, pages=300), 5_000_000
    table = ProcessTable(clock, str(proc.root), run_time=lambda _: ran_ns)
    clock.advance(1)
    assert isnan(table.describe(4711).cpu_utilization)
    stat.write_text(line(4711, "other", cpu=100, pages=200))
    clock.advance(1)
    found = table.describe(4711)
    assert (found.name, found.host_memory, found.cpu_utilization) == ("python", 300 * PAGE, 0.0)
    clock.advance(30)
    assert table.describe(4711).host_memory == 200 * PAGE
    stat.write_text(line(4711, "python", cpu=100 + 2 * TICKS, pages=500))
    ran_ns += 1
    clock.advance(2)
    found = table.describe(4711)
    assert (found.host_memory, found.cpu_utilization) == (500 * PAGE, 1.0)
    proc.end(4711)
    ran_ns = -1
    assert repr(table.describe(4711)) == repr(ProcessInfo())


def test_a_process_that_slept_for_long_has_the_cpu_share_since_it_was_last_asked_for(
    proc: Proc, clock: FakeClock
) -> None:
    stat, ran_ns = proc.process(4711, cpu=100), 5_000_000
    table = ProcessTable(clock, str(proc.root), run_time=lambda _: ran_ns)
    table.describe(4711)
    asleep = []
    for _ in range(5):
        clock.advance(1)
        asleep.append(table.describe(4711))
    assert {found.cpu_utilization for found in asleep} == {0.0}
    assert asleep[1] is asleep[-1], "nothing of it has changed"
    stat.write_text(line(4711, "python", cpu=100 + 2 * TICKS))
    ran_ns += 2 * 10**9
    clock.advance(4)
    assert table.describe(4711).cpu_utilization == 0.5
    clock.advance(1)
    assert table.describe(4711).cpu_utilization == 0.0


def test_a_pid_that_is_used_again_is_another_process(proc: Proc, clock: FakeClock) -> None:
    proc.process(4711, "old", cpu=900 * TICKS)
    table = ProcessTable(clock, str(proc.root))
    table.describe(4711)
    clock.advance(1)
    proc.process(4711, "new", cpu=1, started=900)
    name, _, started, share, *_ = table.describe(4711)
    assert (name, started) == ("new", BOOTED + 900 / TICKS)
    assert isnan(share), "its CPU time has nothing to do with that of the one before"


def cgroup(proc: Proc, pid: int, text: str) -> None:
    (proc.root / str(pid) / "cgroup").write_text(text)


def test_a_process_is_in_its_container_and_its_job(proc: Proc, clock: FakeClock) -> None:
    proc.process(4711)
    cgroup(proc, 4711, f"0::/system.slice/docker-{'3f2a9c1b04de' + '0' * 52}.scope\n9:x:/slurm/uid_1/job_42/step_0\n")
    found = ProcessTable(clock, str(proc.root)).describe(4711)
    assert found.cgroup == CgroupInfo("docker 3f2a9c1b04de", job="42")


def test_where_a_process_is_confined_is_read_once(proc: Proc, clock: FakeClock) -> None:
    proc.process(4711)
    cgroup(proc, 4711, "0::/lxc.payload.web\n")
    table = ProcessTable(clock, str(proc.root))
    assert table.describe(4711).cgroup.container == "lxc web"
    (proc.root / "4711" / "cgroup").unlink()
    assert table.describe(4711).cgroup.container == "lxc web"


def test_a_pid_that_is_used_again_is_in_another_container(proc: Proc, clock: FakeClock) -> None:
    proc.process(4711)
    cgroup(proc, 4711, "0::/lxc.payload.web\n")
    table = ProcessTable(clock, str(proc.root))
    table.describe(4711)
    proc.process(4711, started=900)
    cgroup(proc, 4711, "0::/lxc.payload.db\n")
    assert table.describe(4711).cgroup.container == "lxc db"


def test_a_cgroup_that_cannot_be_read_costs_a_process_only_its_container(proc: Proc, clock: FakeClock) -> None:
    proc.process(4711)
    (proc.root / "4711" / "cgroup").mkdir()
    found = ProcessTable(clock, str(proc.root)).describe(4711)
    assert (found.name, found.cgroup) == ("python", CgroupInfo())


def test_a_real_process_is_known_until_it_ends(clock: FakeClock) -> None:
    table = ProcessTable(clock)
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        # Until it has become sleep and has pages of its own.
        until(lambda: table.close() or (table.describe(sleeping.pid)[0] == "sleep" and table.describe(sleeping.pid)[4]))
    finally:
        sleeping.kill()
        sleeping.wait()
    assert repr(table.describe(sleeping.pid)) == repr(ProcessInfo())


# A program that gives itself another user, as a server does that begins as root, and may then not be dumped.
OF_ANOTHER_USER = """
import ctypes, os, sys, time
if os.geteuid() == 0:
    os.setuid(65534)
ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
print(os.getuid(), flush=True)
time.sleep(3600)
"""


def test_the_user_of_a_process_is_its_own_also_where_its_files_are_roots(clock: FakeClock) -> None:
    table = ProcessTable(clock)
    with Child([sys.executable, "-c", OF_ANOTHER_USER], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            uid = int(process.stdout.readline())
            assert os.stat(f"/proc/{process.pid}/stat").st_uid != uid, "the kernel gives them to root"
            assert table.describe(process.pid)[1] == pwd.getpwuid(uid).pw_name
        finally:
            process.kill()


def test_a_process_that_changes_its_user_is_that_users_from_then_on(proc: Proc, clock: FakeClock) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a directory away")
    proc.process(4711)
    table = ProcessTable(clock, str(proc.root))
    assert table.describe(4711)[1] == pwd.getpwuid(0).pw_name
    os.chown(proc.root / "4711", 65534, 65534)
    assert table.describe(4711)[1] == pwd.getpwuid(65534).pw_name


def test_a_process_that_ends_between_open_and_read_is_nobody(proc: Proc, clock: FakeClock) -> None:
    (proc.root / "4711" / "stat").mkdir(parents=True)  # opens, and cannot be read
    assert ProcessTable(clock, str(proc.root)).describe(4711)[:2] == ("", "")


@pytest.mark.parametrize(("opened", "is_it"), [("/dev/nvidia0", True), ("/dev/null", False), (None, False)])
def test_where_pids_are_not_those_of_the_machine_only_who_has_a_gpu_open_is_meant(
    proc: Proc, clock: FakeClock, opened: str | None, is_it: bool
) -> None:
    """None: whether it has cannot be seen."""
    proc.process(4711)
    if opened is not None:
        (proc.root / "4711" / "fd").mkdir()
        (proc.root / "4711" / "fd" / "0").symlink_to("/dev/null")
        (proc.root / "4711" / "fd" / "7").symlink_to(opened)
    before = len(os.listdir("/proc/self/fd"))
    table = ProcessTable(clock, str(proc.root), has_own_pids=True)
    assert table.describe(4711)[0] == ("python" if is_it else "")
    assert table.describe(4711)[0] == ("python" if is_it else ""), "and again"
    table.close()
    assert len(os.listdir("/proc/self/fd")) == before
