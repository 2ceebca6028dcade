"""Each fault that `gpumon doctor` knows: its fixture, the first line that names it, and its remedy applied."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpumon.cli.doctor import first_line, machine_sections
from gpumon.cli.doctor import packages as doctor_packages
from gpumon.cli.doctor.bundle import Scrubber, write_bundle
from gpumon.cli.doctor.gpus import GpuChecks, check_frame
from gpumon.cli.doctor.host import mode_checks
from gpumon.cli.doctor.kernel_log import KERNEL_LOG
from gpumon.cli.doctor.machine import Machine, Packages, query_modes
from gpumon.common.check_result import Check, Condition
from gpumon.common.errors import UsageError
from gpumon.model.device import Device
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.sources.nvml.installation import check_installation, find_installation
from tests.builders import device, frame_of, sample, tick

GIB = 1 << 30
VERSION = "550.54.14"
KERNEL = "6.8.0-45-generic"
GPUS = ("0000:01:00.0", "0000:02:00.0")
UPTIME = 10 * 86400.0
IDLE = {"utilization": 0.0, "memory_used": 0.0, "temperature": 40.0}


MODES = "0, Default, Enabled\n1, Default, Enabled\n"
"""What nvidia-smi prints of the modes of two GPUs."""


@dataclass
class Tree:
    """A healthy machine with two H100, as a tree of files; tests break one part of it."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    """Error numbers of opening device files."""
    shm: int = 32 * GIB
    cpus: int = 64
    cards: Sequence[str] = ("NVIDIA H100 80GB HBM3",) * 2
    cuda: str = "12.4"
    states: list[Availability] = field(default_factory=lambda: [Availability.OK] * 2)
    values: Mapping[str, float] = field(default_factory=dict)
    """Additional values of GPU 1."""
    missing: Mapping[str, Availability] = field(default_factory=dict)
    reads: bool = True
    """Whether the driver can be read."""
    modes: str = MODES
    library: Callable[[], str] | None = None
    while_asleep: Callable[[], None] = lambda: None

    def write(self, path: str, text: str = "") -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def remove(self, path: str) -> None:
        file = self.root / path.lstrip("/")
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink()

    def link(self, path: str, target: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.symlink_to(target)

    def pci(self, address: str, driver: str = "nvidia", lanes: int = 16, slot: int = 16) -> None:
        """A GPU below a bridge."""
        bridge = f"sys/devices/pci0000:00/0000:00:{address[5:7]}.0"
        self.write(f"{bridge}/max_link_width", str(slot))
        files = {
            "vendor": "0x10de", "class": "0x030200", "max_link_width": "16", "current_link_width": str(lanes),
            "iommu_group/type": "identity",
        }  # fmt: skip
        for name, text in files.items():
            self.write(f"{bridge}/{address}/{name}", f"{text}\n")
        if driver:
            self.link(f"{bridge}/{address}/driver", f"../../../../bus/pci/drivers/{driver}")
        self.link(f"sys/bus/pci/devices/{address}", f"../../../../{bridge}/{address}")

    def process(self, pid: int, name: str, state: str = "S", parent: int = 1, switches: int = 5) -> None:
        fields = f"{pid} ({name}) {state} {parent} {' '.join(['0'] * 17)} 100 0 7 0"
        self.write(f"proc/{pid}/stat", fields)
        self.write(f"proc/{pid}/status", f"State:\t{state}\nPid:\t{pid}\nvoluntary_ctxt_switches:\t{switches}\n")
        self.write(f"proc/{pid}/wchan", "nfs_wait_bit_killable")

    def package(self, name: str, version: str, requires: Sequence[str] = ()) -> None:
        folder = f"site/{name.replace('-', '_')}-{version}.dist-info"
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *map("Requires-Dist: {}".format, requires)]
        self.write(f"{folder}/METADATA", "\n".join(lines) + "\n")

    def drop_package(self, name: str) -> None:
        for folder in (self.root / "site").glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(folder)

    def torch(self, version: str, cuda: str | None) -> None:
        self.drop_package("torch")
        self.package("torch", version)
        self.write("site/torch/version.py", f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n")

    def log(self, text: str, age: float = 60.0) -> None:
        """A message of the kernel, `age` seconds ago."""
        file = self.root / "dev/kmsg"
        file.write_text(f"{file.read_text()}6,1,{round((UPTIME - age) * 1e6)},-;{text}\n SUBSYSTEM=pci\n")

    def set_driver_library(self, version: str) -> None:
        file = self.root / f"lib/libnvidia-ml.so.{version}"
        self.write(f"lib/libnvidia-ml.so.{version}")
        self.library = lambda: str(file)

    def _gpus(self) -> GpuChecks:
        if not self.reads:
            return GpuChecks([Check("GPUs", Condition.FAULT, "the driver cannot be read")])
        devices = [device(number)._replace(name=name, missing=self.missing) for number, name in enumerate(self.cards)]
        samples = [
            sample(number, state, **IDLE, **(self.values if number else {}))._replace(device=devices[number])
            for number, state in enumerate(self.states)
        ]
        frame = frame_of(tick(samples=samples))
        return check_frame(frame, Origin("nvml"), Driver(VERSION, f"CUDA {self.cuda}"), "the daemon")

    def checks(self) -> list[Check]:
        gpus = self._gpus()
        machine = Machine(
            str(self.root), self.environ, Packages([str(self.root / "site")]), gpus.facts,
            open_error=self._open_error,
            filesystem_size=lambda path: self.shm, usable_cpus=lambda: self.cpus,
            driver_modes=lambda: self.modes, sleep=lambda seconds: self.while_asleep(), uptime=lambda: UPTIME,
        )  # fmt: skip
        installation = find_installation(
            str(self.root), self.library, lambda path: not self.errors.get(path.removeprefix(str(self.root))), KERNEL
        )
        sections = machine_sections(machine)
        return [
            *check_installation(installation, gpus.readable), *gpus.checks,
            *(check for section in sections for check in section.checks),
        ]  # fmt: skip

    def _open_error(self, path: str) -> int:
        missing = 0 if os.path.exists(path) else errno.ENOENT
        return self.errors.get(path.removeprefix(str(self.root)), missing)

    def first_line(self) -> str:
        return first_line(self.checks(), can_read=self.reads and not _faults(self.checks()))


def _faults(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if check.condition is Condition.FAULT]


def bad(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if check.condition >= Condition.WARNING]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    for address in GPUS:
        tree.pci(address)
    tree.write("sys/module/nvidia/version", VERSION)
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm", "shm/file", "char/195:255"):
        tree.write(f"dev/{name}")
    tree.write("dev/kmsg", "6,1,100,-;Linux version 6.8.0\n")
    tree.log("NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=python, MMU Fault")
    tree.set_driver_library(VERSION)
    tree.write(f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko.zst")
    tree.process(1, "systemd")
    tree.process(90, "kworker/0:1", "D", parent=2)
    tree.process(800, "dockerd")
    tree.link("proc/self/ns/pid", "pid:[4026531836]")
    tree.write("proc/self/cgroup", "0::/user.slice/user-1000.slice\n")
    tree.write("proc/cpuinfo", "flags\t\t: fpu vme de\n")
    for folder in ("", "/user.slice/user-1000.slice"):
        tree.write(f"sys/fs/cgroup{folder}/memory.events", "oom 0\noom_kill 0\n")
    tree.write("sys/fs/cgroup/cpu.max", "max 100000\n")
    tree.write("run/systemd/system/README")
    tree.write("usr/bin/nvidia-ctk")
    tree.package("nvidia-ml-py", "13.615.71")
    tree.package("numpy", "2.1.0")
    tree.torch("2.9.0+cu126", "12.6")
    tree.package("torchvision", "0.24.0", ["torch (==2.9.0)"])
    tree.package("jax", "0.10.2")
    tree.package("jaxlib", "0.10.2")
    tree.package("jax-cuda12-plugin", "0.10.2")
    tree.package("tensorflow", "2.21.0", [
        "numpy (>=1.26)", "nvidia-cublas-cu12 (>=12.5) ; extra == 'and-cuda'", "nvidia-cudnn-cu12 ; extra == 'and-cuda'"
    ])  # fmt: skip
    tree.package("nvidia-cublas-cu12", "12.6")
    tree.package("nvidia-cudnn-cu12", "9.5")
    return tree


@dataclass(frozen=True)
class Fault:
    """A fault, the check that finds it, and its remedy."""

    name: str
    check: str
    brk: Callable[[Tree], object]
    remedy: str = ""
    """Part of the printed remedy."""
    mend: Callable[[Tree], object] | None = None
    """What the remedy does on this machine; None if no command mends it."""


def modes(printed: str) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        tree.modes = printed

    return change


def no_gpu(tree: Tree) -> None:
    for name in ("sys/bus/pci/devices", "sys/module"):
        shutil.rmtree(tree.root / name)
        (tree.root / name).mkdir()
    tree.reads, tree.library = False, lambda: ""


def other_driver(driver: str) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        for address in GPUS:
            tree.pci(address, driver)
        tree.remove("sys/module/nvidia")
        tree.reads = False

    return change


def nvidia_driver(tree: Tree) -> None:
    for address in GPUS:
        tree.pci(address)
    tree.write("sys/module/nvidia/version", VERSION)
    tree.reads = True


def unbound(tree: Tree) -> None:
    for address in GPUS:
        (tree.root / f"sys/bus/pci/devices/{address}/driver").unlink()
    tree.reads = False


def not_loaded(tree: Tree) -> None:
    unbound(tree)
    tree.remove("sys/module/nvidia")


def other_kernel(tree: Tree) -> None:
    not_loaded(tree)
    shutil.move(tree.root / f"lib/modules/{KERNEL}", tree.root / "lib/modules/6.8.0-40-generic")


def mend_kernel(tree: Tree) -> None:
    tree.write(f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko.zst")
    nvidia_driver(tree)


def broken_library() -> str:
    raise OSError("libnvidia-ml.so.1: file too short")


def unreadable(change: Callable[[Tree], object]) -> Callable[[Tree], None]:
    def apply(tree: Tree) -> None:
        change(tree)
        tree.reads = False

    return apply


def readable(change: Callable[[Tree], object]) -> Callable[[Tree], None]:
    def apply(tree: Tree) -> None:
        change(tree)
        tree.reads = True

    return apply


def no_nodes(tree: Tree) -> None:
    for name in ("nvidia0", "nvidia1"):
        tree.remove(f"dev/{name}")


def closed(path: str, error: int) -> Callable[[Tree], None]:
    return lambda tree: tree.errors.update({path: error})


def opened(path: str) -> Callable[[Tree], object]:
    return lambda tree: tree.errors.pop(path)


def wsl(tree: Tree) -> None:
    no_gpu(tree)
    tree.reads = True
    tree.write("dev/dxg")
    tree.set_driver_library(VERSION)


def in_wsl_library(tree: Tree) -> None:
    tree.library = lambda: f"/usr/lib/wsl/lib/libnvidia-ml.so.{VERSION}"


def switch(tree: Tree) -> None:
    tree.write("sys/bus/pci/devices/0000:05:00.0/vendor", "0x10de\n")
    tree.write("sys/bus/pci/devices/0000:05:00.0/class", "0x068000\n")


def iommu(kind: str) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        for address in GPUS:
            tree.write(f"sys/bus/pci/devices/{address}/iommu_group/type", kind)

    return change


def killed(number: int) -> Callable[[Tree], None]:
    path = "sys/fs/cgroup/user.slice/user-1000.slice/memory.events"
    return lambda tree: tree.write(path, f"oom {number}\noom_kill {number}\n")


def logged(text: str) -> Callable[[Tree], None]:
    return lambda tree: tree.log(text)


def env(name: str, value: str) -> Callable[[Tree], None]:
    return lambda tree: tree.environ.update({name: value})


def unset(name: str) -> Callable[[Tree], object]:
    return lambda tree: tree.environ.pop(name)


def compat(tree: Tree) -> None:
    tree.write("usr/local/cuda/compat/libcuda.so.570.10.01")
    tree.environ["LD_LIBRARY_PATH"] = "/opt/lib:/usr/local/cuda/compat"


def container(tree: Tree) -> None:
    tree.write(".dockerenv")
    tree.environ["NVIDIA_VISIBLE_DEVICES"] = "void"


def blackwell(tree: Tree) -> None:
    tree.cards, tree.cuda = ["NVIDIA GeForce RTX 5090"] * 2, "13.0"


def volta(tree: Tree) -> None:
    tree.cards, tree.cuda = ["Tesla V100-SXM2-32GB"] * 2, "13.0"
    tree.torch("2.9.0+cu130", "13.0")


def tensorflow_cpu(tree: Tree) -> None:
    tree.drop_package("tensorflow")
    tree.package("tensorflow-cpu", "2.21.0")


def tensorflow_gpu(tree: Tree) -> None:
    tree.drop_package("tensorflow-cpu")
    tree.package("tensorflow", "2.21.0")


def lost(tree: Tree) -> None:
    tree.states[1] = Availability.LOST


FAULTS = (
    Fault("no GPU", "PCI bus", no_gpu),
    Fault("nouveau", "PCI bus", other_driver("nouveau"), "install NVIDIA's driver", nvidia_driver),
    Fault("virtual machine", "PCI bus", other_driver("vfio-pci"), "run gpumon in that machine"),
    Fault("GPU hidden", "PCI bus", lambda tree: tree.pci("0000:03:00.0"), "dmesg"),
    Fault("module not loaded", "kernel module", not_loaded, "modprobe nvidia", nvidia_driver),
    Fault("module drives nothing", "kernel module", unbound, "dmesg"),
    Fault(
        "module for another kernel", "kernel module", other_kernel, f"dkms autoinstall -k {KERNEL}", mend_kernel,
    ),
    Fault(
        "driver updated", "kernel module", unreadable(lambda tree: tree.set_driver_library("570.10.01")), "restart",
        readable(lambda tree: tree.write("sys/module/nvidia/version", "570.10.01")),
    ),
    Fault(
        "library older", "kernel module", unreadable(lambda tree: tree.set_driver_library("535.10")), "LD_LIBRARY_PATH",
        readable(lambda tree: tree.set_driver_library(VERSION)),
    ),
    Fault(
        "no library", "driver library", unreadable(lambda tree: setattr(tree, "library", lambda: "")), "--gpus all",
        readable(lambda tree: tree.set_driver_library(VERSION)),
    ),
    Fault(
        "damaged library", "driver library", unreadable(lambda tree: setattr(tree, "library", broken_library)),
        "reinstall", readable(lambda tree: tree.set_driver_library(VERSION)),
    ),
    Fault("WSL", "driver library", wsl, "remove the Linux driver", in_wsl_library),
    Fault(
        "no device files", "device files", unreadable(no_nodes), "sudo nvidia-smi",
        readable(lambda tree: [tree.write(f"dev/nvidia{number}") for number in (0, 1)]),
    ),
    Fault(
        "device files closed", "device files", unreadable(closed("/dev/nvidia0", errno.EACCES)), "ls -l /dev/nvidia0",
        readable(opened("/dev/nvidia0")),
    ),
    Fault(
        "no nvidia-uvm", "nvidia-uvm", lambda tree: tree.remove("dev/nvidia-uvm"), "nvidia-modprobe -u -c=0",
        lambda tree: tree.write("dev/nvidia-uvm"),
    ),
    Fault(
        "nvidia-uvm after suspend", "nvidia-uvm", closed("/dev/nvidia-uvm", errno.EIO), "rmmod nvidia_uvm",
        opened("/dev/nvidia-uvm"),
    ),
    Fault("nvidia-uvm closed", "nvidia-uvm", closed("/dev/nvidia-uvm", errno.EPERM), "ls -l /dev/nvidia-uvm"),
    Fault(
        "fabric manager", "fabric manager", switch, "enable --now nvidia-fabricmanager",
        lambda tree: tree.process(900, "nv-fabricmanage"),
    ),
    Fault(
        "narrow link", "PCIe link", lambda tree: tree.pci(GPUS[1], lanes=4), "reseat", lambda tree: tree.pci(GPUS[1])
    ),
    Fault("IOMMU", "IOMMU", iommu("DMA-FQ"), "iommu=pt", iommu("identity")),
    Fault(
        "daemon-reload", "containers", lambda tree: tree.remove("dev/char/195:255"), "create-dev-char-symlinks",
        lambda tree: tree.write("dev/char/195:255"),
    ),
    Fault(
        "profiler", "profiler", lambda tree: tree.process(4711, "ncu"), "kill -TERM 4711",
        lambda tree: tree.remove("proc/4711"),
    ),
    Fault(
        "small /dev/shm", "/dev/shm", lambda tree: setattr(tree, "shm", 64 << 20), "remount,size=50%",
        lambda tree: setattr(tree, "shm", 32 * GIB),
    ),
    Fault("few CPUs", "CPUs", lambda tree: setattr(tree, "cpus", 2), "taskset", lambda tree: setattr(tree, "cpus", 64)),
    Fault(
        "CPU limit", "CPUs", lambda tree: tree.write("sys/fs/cgroup/cpu.max", "150000 100000\n"), "--cpus",
        lambda tree: tree.write("sys/fs/cgroup/cpu.max", "max 100000\n"),
    ),
    Fault("memory limit", "memory limit", killed(3), "--memory"),
    Fault("state D", "stuck process", lambda tree: tree.process(5000, "python", "D"), "network file systems"),
    Fault("XID", "XID", logged("NVRM: Xid (PCI:0000:02:00): 48, pid=1, DBE"), "--gpu-reset"),
    Fault("Secure Boot", "Secure Boot", logged("Loading of unsigned module is rejected"), "mokutil --import"),
    Fault(
        "old card", "driver branch",
        logged(
            "NVRM: The NVIDIA GeForce GT 730 GPU installed in this system is supported through the NVIDIA 470.xx Legacy"
        ),
        "branch 470.xx",
    ),
    Fault(
        "API mismatch", "API mismatch", logged("NVRM: API mismatch: the client has the version 535.10, but"), "restart"
    ),
    Fault("PCI memory", "PCI memory", logged("NVRM: BAR1 is 0M @ 0x0 (PCI:0000:02:00.0)"), "Above 4G Decoding"),
    Fault(
        "GPU start", "GPU start", logged("NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x26:0xffff:1290)"), "power"
    ),
    Fault(
        "soft lockup", "soft lockup",
        logged("watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [nvidia-modeset/:512]"), "update the driver",
    ),
    Fault("OOM kill", "OOM kill", logged("Out of memory: Killed process 4711 (python) total-vm:1kB"), "DataLoader"),
    Fault(
        "GPUs hidden", "CUDA_VISIBLE_DEVICES", env("CUDA_VISIBLE_DEVICES", ""), "unset CUDA_VISIBLE_DEVICES",
        unset("CUDA_VISIBLE_DEVICES"),
    ),
    Fault(
        "GPU of another machine", "CUDA_VISIBLE_DEVICES", env("CUDA_VISIBLE_DEVICES", "0,7"),
        "unset CUDA_VISIBLE_DEVICES", unset("CUDA_VISIBLE_DEVICES"),
    ),
    Fault(
        "GPU named twice", "CUDA_VISIBLE_DEVICES", env("CUDA_VISIBLE_DEVICES", "1,1"), "unset CUDA_VISIBLE_DEVICES",
        unset("CUDA_VISIBLE_DEVICES"),
    ),
    Fault(
        "ambiguous UUID", "CUDA_VISIBLE_DEVICES", env("CUDA_VISIBLE_DEVICES", "GPU-"), "unset CUDA_VISIBLE_DEVICES",
        unset("CUDA_VISIBLE_DEVICES"),
    ),
    Fault("container without GPUs", "NVIDIA_VISIBLE_DEVICES", container, "--gpus all", unset("NVIDIA_VISIBLE_DEVICES")),
    *(
        Fault(name, name, env(name, "1"), f"unset {name}", unset(name))
        for name in ("CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")
    ),
    Fault(
        "JAX on the CPU", "JAX_PLATFORMS", env("JAX_PLATFORMS", "cpu"), "unset JAX_PLATFORMS", unset("JAX_PLATFORMS")
    ),
    Fault(
        "compat library", "LD_LIBRARY_PATH", compat, "remove /usr/local/cuda/compat",
        env("LD_LIBRARY_PATH", "/opt/lib"),
    ),
    Fault(
        "MPS gone", "CUDA_MPS_PIPE_DIRECTORY", env("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"), "nvidia-cuda-mps-control -d",
        lambda tree: tree.write("tmp/mps/control"),
    ),
    Fault(
        "torch without CUDA", "torch", lambda tree: tree.torch("2.9.0+cpu", None), "whl/cu126",
        lambda tree: tree.torch("2.9.0+cu126", "12.6"),
    ),
    Fault(
        "torch for AMD", "torch", lambda tree: tree.torch("2.9.0+rocm6.4", None), "whl/cu126",
        lambda tree: tree.torch("2.9.0+cu126", "12.6"),
    ),
    Fault(
        "torch newer than driver", "torch", lambda tree: tree.torch("2.9.0", "13.0"), "whl/cu126",
        lambda tree: tree.torch("2.9.0+cu126", "12.6"),
    ),
    Fault("torch without Blackwell", "torch", blackwell, "whl/cu128", lambda tree: tree.torch("2.9.0+cu128", "12.8")),
    Fault("torch without Volta", "torch", volta, "whl/cu126", lambda tree: tree.torch("2.9.0+cu126", "12.6")),
    Fault(
        "torchvision", "torchvision", lambda tree: tree.torch("2.8.0+cu126", "12.6"), "torch==2.9.0",
        lambda tree: tree.torch("2.9.0+cu126", "12.6"),
    ),
    Fault(
        "NumPy 2", "numpy",
        lambda tree: (tree.torch("2.2.0+cu121", "12.1"), tree.drop_package("torchvision")), "numpy<2",
        lambda tree: (tree.drop_package("numpy"), tree.package("numpy", "1.26.4")),
    ),
    Fault("TensorFlow for CPUs", "tensorflow", tensorflow_cpu, "uninstall tensorflow-cpu", tensorflow_gpu),
    Fault(
        "TensorFlow without cuDNN", "tensorflow", lambda tree: tree.drop_package("nvidia-cudnn-cu12"), "[and-cuda]",
        lambda tree: tree.package("nvidia-cudnn-cu12", "9.5"),
    ),
    Fault(
        "JAX without plugin", "jax", lambda tree: tree.drop_package("jax-cuda12-plugin"), "jax[cuda12]",
        lambda tree: tree.package("jax-cuda12-plugin", "0.10.2"),
    ),
    Fault(
        "JAX plugin of another version", "jax",
        lambda tree: (tree.drop_package("jax-cuda12-plugin"), tree.package("jax-cuda12-plugin", "0.9.0")),
        "jax[cuda12]",
        lambda tree: (tree.drop_package("jax-cuda12-plugin"), tree.package("jax-cuda12-plugin", "0.10.2")),
    ),
    Fault(
        "two cuDNN", "nvidia-cudnn-cu12", lambda tree: tree.package("nvidia-cudnn-cu13", "9.12"), "uninstall",
        lambda tree: tree.drop_package("nvidia-cudnn-cu13"),
    ),
    Fault(
        "two pynvml", "nvidia-ml-py", lambda tree: tree.package("pynvml", "11.5.3"), "uninstall pynvml",
        lambda tree: tree.drop_package("pynvml"),
    ),
    Fault(
        "framework too old", "keras", lambda tree: tree.package("keras", "2.15.0"), "newer",
        lambda tree: (tree.drop_package("keras"), tree.package("keras", "3.15.0")),
    ),
    Fault("GPU lost", "GPU 1", lost),
    *(
        Fault(mode, "compute mode", modes(f"{MODES[:20]}1, {mode}, Enabled\n"), "-i 1 -c DEFAULT", modes(MODES))
        for mode in ("Exclusive_Process", "Prohibited")
    ),
    Fault(
        "GPU needs a reset", "GPU 1", lambda tree: tree.states.__setitem__(1, Availability.RESET_REQUIRED),
        "--gpu-reset",
        lambda tree: tree.states.__setitem__(1, Availability.OK),
    ),
    Fault("GPU with a fault", "GPU 1", lambda tree: setattr(tree, "values", {"xid": 48.0}), "--gpu-reset"),
    Fault("process lists", "processes", lambda tree: setattr(tree, "missing", {PROCESSES: Availability.NO_PERMISSION})),
)  # fmt: skip


def test_a_healthy_machine_has_no_warning(tree: Tree) -> None:
    assert not bad(tree.checks())
    assert tree.first_line().startswith("all is well")


def test_there_are_forty_faults() -> None:
    assert len({fault.name for fault in FAULTS}) >= 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_first_line_names_the_fault_and_its_remedy_mends_it(tree: Tree, fault: Fault) -> None:
    fault.brk(tree)
    checks = tree.checks()
    causes = [check for check in bad(checks) if check.name == fault.check]
    assert causes
    assert any(cause.text in tree.first_line() for cause in causes)
    assert any(fault.remedy in cause.remedy for cause in causes)
    if tree.reads:
        assert {check.name for check in bad(checks)} == {fault.check}, "exactly this fault"
    if fault.mend is not None:
        fault.mend(tree)
        assert not bad(tree.checks())


class TestNoFalseAlarm:
    def test_old_messages_are_notes(self, tree: Tree) -> None:
        tree.log("Out of memory: Killed process 4711 (python) total-vm:1kB", age=2 * 86400)
        tree.log("NVRM: Xid (PCI:0000:02:00): 48, pid=1, DBE", age=2 * 86400)
        assert not bad(tree.checks())
        assert {"OOM kill", "XID"} <= {check.name for check in tree.checks() if check.condition is Condition.NOTE}

    def test_a_process_that_waits_again_and_again_is_not_stuck(self, tree: Tree) -> None:
        tree.process(5000, "python", "D")
        tree.while_asleep = lambda: tree.process(5000, "python", "D", switches=6)
        assert not bad(tree.checks())

    def test_a_slot_with_fewer_lanes_than_the_card_is_full(self, tree: Tree) -> None:
        tree.pci(GPUS[1], lanes=8, slot=8)
        assert not bad(tree.checks())

    def test_a_virtual_machine_has_no_iommu_to_change(self, tree: Tree) -> None:
        iommu("DMA")(tree)
        tree.write("proc/cpuinfo", "flags\t\t: fpu hypervisor vme\n")
        assert not bad(tree.checks())

    @pytest.mark.parametrize("value", ["0,1", "0,1,", "1", "GPU-0000", "MIG-1234"])
    def test_valid_devices_hide_nothing_by_mistake(self, tree: Tree, value: str) -> None:
        tree.environ["CUDA_VISIBLE_DEVICES"] = device(0).uuid if value == "GPU-0000" else value
        assert not bad(tree.checks())

    @pytest.mark.parametrize("value", ["", "7", "1,1"])
    def test_hidden_gpus_are_graver_than_few_cpus(self, tree: Tree, value: str) -> None:
        tree.environ["CUDA_VISIBLE_DEVICES"] = value
        assert [check.name for check in tree.checks() if check.condition is Condition.FAULT] == ["CUDA_VISIBLE_DEVICES"]

    def test_cuda_of_the_system_serves_tensorflow(self, tree: Tree) -> None:
        tree.drop_package("nvidia-cudnn-cu12")
        tree.drop_package("nvidia-cublas-cu12")
        tree.write("etc/ld.so.cache", "libcudart.so.12 libcudnn.so.9")
        assert not bad(tree.checks())

    def test_a_driver_runs_a_newer_minor_version(self, tree: Tree) -> None:
        tree.torch("2.10.0+cu129", "12.9")
        tree.drop_package("torchvision")
        assert not bad(tree.checks())

    def test_containers_without_an_engine_need_no_links(self, tree: Tree) -> None:
        tree.remove("dev/char/195:255")
        tree.remove("proc/800")
        assert not bad(tree.checks())


class TestDriverModes:
    def test_persistence_is_a_note(self, tree: Tree) -> None:
        tree.modes = "0, Default, Disabled\n1, Default, Enabled\n"
        assert bad(tree.checks()) == []
        (check,) = [check for check in tree.checks() if check.name == "persistence"]
        assert (check.condition, "GPU 0:" in check.text) == (Condition.NOTE, True)

    @pytest.mark.parametrize(
        "printed", ["", "No devices were found\n", "0, [N/A], [N/A]\n", "x, Prohibited, Enabled\n"]
    )
    def test_other_output_is_ignored(self, printed: str) -> None:
        assert list(mode_checks(printed)) == []

    def test_are_read_with_nvidia_smi(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert query_modes() == ""
        program = tmp_path / "nvidia-smi"
        for script, printed in (("echo 0, Default, Enabled", "0, Default, Enabled\n"), ("echo failed; exit 9", "")):
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            assert query_modes() == printed

    def test_a_driver_that_hangs_is_not_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpumon.cli.doctor.machine._TIMEOUT", 0.2)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        assert query_modes() == ""


def test_a_kernel_log_that_may_not_be_read_is_a_note(tree: Tree) -> None:
    tree.remove("dev/kmsg")
    (check,) = [check for check in tree.checks() if check.name == KERNEL_LOG]
    assert check.condition is Condition.NOTE


def test_names_of_processes_are_harmless(tree: Tree) -> None:
    tree.process(5000, "\x1b[31mred", "D")
    (check,) = bad(tree.checks())
    assert check.name == "stuck process"


def test_xids_name_the_gpu_that_they_reset(tree: Tree) -> None:
    tree.log("NVRM: Xid (PCI:0000:02:00): 48, pid=1, DBE")
    (check,) = bad(tree.checks())
    assert Device("", -1, "NVIDIA GPU", address="0000:02:00").address in check.remedy


def test_remedies_for_pip_are_safe_to_paste() -> None:
    texts = [text for path in Path(doctor_packages.__file__).parent.glob("*.py") for text in [path.read_text()]]
    assert not [match for text in texts for match in re.findall(r"install [^\"'{]*[<>\[]", text)]


class TestBundle:
    def test_what_may_be_private_is_left_out_or_replaced(self, tmp_path: Path) -> None:
        private = {
            "TF_VAR_db_pass": "leak1", "TF_CREDENTIALS": "leak2", "GPUMON_PROMETHEUS": "http://adm:leak3@prom.corp",
            "TORCH_AUTH": "leak4", "LD_LIBRARY_PATH": "/home/bobby/lib:/data/alice_ws", "CUDA_HOME": "/x/alice/cuda",
        }  # fmt: skip
        report = {
            "checks": [{"text": "see http://adm:leak5@host, carol@corp.example, fe80::1234:5678, GPU-6770756d-6f6e"}]
        }
        write_bundle(str(tmp_path / "b"), report, Machine(environ={"USER": "alice", **private}))
        text = (tmp_path / "b").read_text()
        found = [word for word in ("leak", "bobby", "alice", "carol", "fe80", "6770756d") if word in text]
        assert not found
        assert "0000:65:00.0" in Scrubber("", []).scrub("0000:65:00.0"), "a PCI address stays"

    def test_a_bundle_names_neither_user_nor_host_nor_gpu(self, tmp_path: Path) -> None:
        uuid = "GPU-12345678-abcd-4321-9876-1234567890ab"
        report = {"checks": [{"text": f"{uuid}, {uuid} of alice at 10.1.2.3 in /home/alice/x"}], "n": 1}
        secrets = {"WANDB_API_KEY": "hidden-1", "GPUMON_TOKEN": "hidden-2", "CUDA_HOME": "/home/alice/cuda"}
        path = tmp_path / "bundle.json"
        write_bundle(str(path), report, Machine(environ={"USER": "alice", **secrets}))
        text = path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600
        assert not [word for word in ("alice", uuid, "10.1.2.3", "hidden", os.uname().nodename) if f'"{word}' in text]
        document = json.loads(text)
        assert document["checks"][0]["text"] == "GPU-1, GPU-1 of USER at ADDRESS in /home/USER/x"
        assert document["environment"]["CUDA_HOME"] == "/home/USER/cuda"
        assert "alice" not in text
        assert "hidden" not in text

    def test_a_file_that_exists_is_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
        for name in ("file", "link"):
            with pytest.raises(UsageError):
                write_bundle(str(tmp_path / name), {}, Machine(environ={}))
        assert (tmp_path / "file").read_text() == "mine"
        assert not (tmp_path / "elsewhere").exists()
