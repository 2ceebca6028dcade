"""Checks of the host around the GPUs: device files of CUDA, fabric manager, PCIe, container, memory and processes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from gpumon.cli.doctor.machine import Machine
from gpumon.common.check_result import Check, Condition
from gpumon.model.units import bytes_binary, counted
from gpumon.sources.nvml.sysfs import DRIVER, NVIDIA, PCI_DEVICES, kernel_driver, list_gpus

_UVM = "/dev/nvidia-uvm"
_UVM_DEAD = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV})
_SWITCH = "0x0680"
"""First digits of the PCI class of an NVSwitch, "other bridge": linux/pci_ids.h."""
_SMALL_SHM = 64 << 20
"""Size in bytes of /dev/shm in a container by default: docker run, --shm-size."""
_CPUS_PER_GPU = 2
_PROFILERS = frozenset({"ncu", "nv-nsight-cu-cl", "nsys", "nsys-launcher"})
"""Names of profilers, which reserve the GPUs' performance counters while they run."""
_CONTAINER_ENGINES = ("dockerd", "containerd", "podman")
_ONE_PROCESS = "only one process at a time: another CUDA program fails with 'devices are busy or unavailable'"
_LIMITED = {
    "Exclusive_Process": _ONE_PROCESS,
    "Exclusive_Thread": _ONE_PROCESS,
    "Prohibited": "no CUDA program",
}
"""What a GPU runs in each compute mode but the default, by the names of nvidia-smi."""
_UNBROKEN_WAIT = 2.0
"""Seconds without a break after which a process in state D counts as stuck. Waits for a disk are shorter."""
_KERNEL_THREADS = 2
"""Pid of kthreadd, the parent of all kernel threads."""


def host_checks(machine: Machine) -> Iterator[Check]:
    """Check the host. Without an NVIDIA GPU on this machine, only memory and processes are checked."""
    addresses = list_gpus(machine.path(PCI_DEVICES))
    bound = [address for address in addresses if kernel_driver(machine.path(f"{PCI_DEVICES}/{address}")) == DRIVER]
    if machine.line("/sys/module/nvidia/version"):
        yield from _uvm(machine)
        yield from _fabric_manager(machine)
        yield from _links(machine, bound)
        yield from _iommu(machine, bound)
        yield from _device_links(machine)
        yield from _profilers(machine)
        if machine.gpus.names:  # the driver answers, so nvidia-smi does not hang either
            yield from mode_checks(machine.driver_modes())
    yield from _shared_memory(machine)
    yield from _cpus(machine)
    yield from _memory_limit(machine)
    yield from _stuck_processes(machine)


def _warning(name: str, text: str, remedy: str) -> Check:
    return Check(name, Condition.WARNING, text, remedy)


def mode_checks(modes: str) -> Iterator[Check]:
    """Yield checks of modes that an administrator has set in the driver. `modes`: result of `query_modes`."""
    rows = [[cell.strip() for cell in line.split(",")] for line in modes.splitlines()]
    rows = [row for row in rows if len(row) == 3 and row[0].isdecimal()]
    for mode, allowed in _LIMITED.items():
        if indexes := [index for index, compute, _ in rows if compute == mode]:
            text = f"compute mode {mode} lets GPU {', '.join(indexes)} run {allowed}"
            yield Check("compute mode", Condition.WARNING, text, f"'sudo nvidia-smi -i {','.join(indexes)} -c DEFAULT'")
    if indexes := [index for index, _, persistence in rows if persistence == "Disabled"]:
        text = f"persistence mode is off on GPU {', '.join(indexes)}: the first program on an unused GPU waits for it"
        remedy = f"'sudo nvidia-smi -i {','.join(indexes)} -pm 1' keeps these GPUs started"
        yield Check("persistence", Condition.NOTE, text, remedy)


def _uvm(machine: Machine) -> Iterator[Check]:
    """Yield a warning if CUDA cannot use /dev/nvidia-uvm. NVML does not need it, so GPUs can be read all the same."""
    name = "nvidia-uvm"
    error = machine.open_error(machine.path(_UVM))
    if error == errno.ENOENT:
        if machine.is_container:
            remedy = "start the container with '--gpus all', or pass this device with '--device /dev/nvidia-uvm'"
        else:
            remedy = "'sudo nvidia-modprobe -u -c=0' loads the module and creates the file"
        yield _warning(name, f"{_UVM} is missing: GPUs can be read, but no CUDA program can use them", remedy)
    elif error in _UVM_DEAD:
        text = f"{_UVM} does not answer ({os.strerror(error)}), as may happen after suspend: CUDA fails with error 999"
        remedy = "end all programs on the GPUs, then 'sudo rmmod nvidia_uvm' and 'sudo modprobe nvidia_uvm'"
        yield _warning(name, text, remedy)
    elif error in (errno.EACCES, errno.EPERM):
        text = f"this user may not open {_UVM}: no CUDA program of this user can use a GPU"
        remedy = f"'ls -l {_UVM}' shows who may; in a container or job, ask for the device"
        yield _warning(name, text, remedy)


def _fabric_manager(machine: Machine) -> Iterator[Check]:
    """Yield a warning if the machine has NVSwitches but no fabric manager (Fabric Manager User Guide, error 802)."""
    folder = machine.path(PCI_DEVICES)
    switches = [
        address
        for address in machine.names(PCI_DEVICES)
        if machine.line(f"{PCI_DEVICES}/{address}/vendor") == NVIDIA
        and machine.line(f"{PCI_DEVICES}/{address}/class").startswith(_SWITCH)
    ]
    if not switches or not os.path.isdir(folder) or not machine.sees_all_processes or machine.is_container:
        return
    if not machine.runs("nv-fabricmanager"[:15]):
        text = (
            f"the machine has {len(switches)} NVSwitch{'es' if len(switches) > 1 else ''}, but the fabric manager is "
            "not running: CUDA fails with error 802"
        )
        remedy = "'sudo systemctl enable --now nvidia-fabricmanager', in the version of the driver"
        yield _warning("fabric manager", text, remedy)


def _links(machine: Machine, addresses: list[str]) -> Iterator[Check]:
    """Yield a warning for each GPU with fewer PCIe lanes than both the GPU and its slot have."""
    for address in addresses:
        folder = f"{PCI_DEVICES}/{address}"
        width, most = machine.line(f"{folder}/current_link_width"), machine.line(f"{folder}/max_link_width")
        slot = _number(machine.line(f"{folder}/../max_link_width")) or _number(most)
        possible = min(_number(most), slot)
        if 0 < _number(width) < possible:
            text = f"the GPU at PCI address {address} uses {width} of {possible} PCIe lanes"
            remedy = "turn the machine off and reseat the card or its riser; check the slot's setting in the firmware"
            yield _warning("PCIe link", text, remedy)


def _iommu(machine: Machine, addresses: list[str]) -> Iterator[Check]:
    """Yield a warning if the IOMMU translates the addresses of several GPUs on a machine that is not virtual.

    Peer-to-peer transfers then go through the CPU, and may hang (NCCL User Guide, "PCI Access Control Services").
    """
    if len(addresses) < 2 or "hypervisor" in machine.text("/proc/cpuinfo")[:4096].split():
        return
    kinds = [machine.line(f"{PCI_DEVICES}/{address}/iommu_group/type") for address in addresses]
    translated = sum(kind.startswith("DMA") for kind in kinds)
    if translated >= 2:
        text = (
            f"the IOMMU translates the addresses of {counted(translated, 'GPU')}: copies between GPUs go through the "
            "CPU, and NCCL may hang"
        )
        yield _warning("IOMMU", text, "start the kernel with 'iommu=pt', and turn ACS off in the firmware")


def _device_links(machine: Machine) -> Iterator[Check]:
    """Yield a warning if containers of this machine lose their GPUs when systemd reloads its units.

    systemd then writes the containers' device rules again, and finds only devices that are linked in /dev/char (NVIDIA
    Container Toolkit, "Troubleshooting": containers losing access to GPUs with error "Failed to initialize NVML").
    """
    if machine.is_container or not machine.exists("/dev/nvidiactl") or not machine.exists("/run/systemd/system"):
        return
    has_toolkit = machine.exists("/usr/bin/nvidia-container-runtime") or machine.exists("/usr/bin/nvidia-ctk")
    if has_toolkit and machine.runs(*_CONTAINER_ENGINES) and not machine.exists("/dev/char/195:255"):
        text = "/dev/char has no links to the GPUs: containers lose their GPUs at the next 'systemctl daemon-reload'"
        remedy = "'sudo nvidia-ctk system create-dev-char-symlinks --create-all'"
        yield _warning("containers", text, remedy)


def _profilers(machine: Machine) -> Iterator[Check]:
    running = sorted(process for process in machine.processes if process.name in _PROFILERS)
    if running:
        pid, name = running[0].pid, running[0].name
        text = f"the profiler {name} (pid {pid}) is running: it holds performance counters and slows programs down"
        yield _warning("profiler", text, f"'kill -TERM {pid}' if it is not needed any more")


def _shared_memory(machine: Machine) -> Iterator[Check]:
    path = "/dev/shm"
    if not machine.exists(path):
        return
    try:
        size = machine.filesystem_size(machine.path(path))
    except OSError:
        return
    if 0 < size <= _SMALL_SHM:
        text = f"{path} has only {bytes_binary(size)}: DataLoader workers and NCCL may die with a bus error"
        remedy = "start the container with '--ipc=host' or '--shm-size=8g'"
        if not machine.is_container:
            remedy = f"'sudo mount -o remount,size=50% {path}'"
        yield _warning(path, text, remedy)


def _cpus(machine: Machine) -> Iterator[Check]:
    gpus = len(machine.gpus.names)
    if not gpus:
        return
    cpus, limit = float(machine.usable_cpus()), "this process may use"
    quota, _, period = machine.line("/sys/fs/cgroup/cpu.max").partition(" ")
    if _number(quota) and _number(period) and _number(quota) / _number(period) < cpus:
        cpus, limit = _number(quota) / _number(period), "the container's limit is"
    if cpus < _CPUS_PER_GPU * gpus:
        text = f"{limit} {cpus:.3g} CPUs for {counted(gpus, 'GPU')}: DataLoader workers may be too slow for them"
        remedy = "ask for more CPUs: '--cpus' of a container, '--cpus-per-task' of a Slurm job, 'taskset'"
        yield _warning("CPUs", text, remedy)


def _memory_limit(machine: Machine) -> Iterator[Check]:
    """Yield a warning if the kernel ended processes of this container or job because of its memory limit."""
    path = next(
        (line[3:] for line in machine.text("/proc/self/cgroup").splitlines() if line.startswith("0::")),
        "",
    )
    kills = 0
    for folder in dict.fromkeys(("/sys/fs/cgroup", f"/sys/fs/cgroup{path.rstrip('/')}")):
        for line in machine.text(f"{folder}/memory.events").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                kills = max(kills, int(_number(value)))
    if kills:
        text = f"the kernel ended {counted(kills, 'process')} of this container or job at its memory limit"
        remedy = "ask for more memory ('--memory', '--mem'), or use fewer DataLoader workers"
        yield _warning("memory limit", text, remedy)


def _stuck_processes(machine: Machine) -> Iterator[Check]:
    """Yield a warning for processes that wait in the kernel without a break, and cannot even be killed."""
    waiting = {
        process: machine.text(f"/proc/{process.pid}/status")
        for process in machine.processes
        if process.state == "D" and process.parent != _KERNEL_THREADS
    }
    if not waiting:
        return
    machine.sleep(_UNBROKEN_WAIT)
    # The status has the process's state and counts its context switches, so that an equal one means the same wait.
    still = [
        process
        for process, status in waiting.items()
        if "ctxt_switches" in status and _wait(machine.text(f"/proc/{process.pid}/status")) == _wait(status)
    ]
    if still:
        pid, name = still[0].pid, still[0].name
        waits_in = machine.line(f"/proc/{pid}/wchan") or "the kernel"
        others = f", and {counted(len(still) - 1, 'other')}" if len(still) > 1 else ""
        text = f"{name} (pid {pid}){others} is stuck in {waits_in}: it waits for a driver or a file system"
        remedy = "check the network file systems and 'dmesg'; if all else fails, restart the machine"
        yield _warning("stuck process", text, remedy)


def _wait(status: str) -> list[str]:
    """Return the lines of a process's status that change when it stops waiting."""
    return [line for line in status.splitlines() if line.startswith(("State:", "Pid:")) or "ctxt_switches" in line]


def _number(text: str) -> float:
    """Return a whole number in a file of sysfs; 0 if there is none."""
    return float(text) if text.isascii() and text.isdecimal() else 0.0
