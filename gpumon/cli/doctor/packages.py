"""Checks of the Python environment: bindings of NVML, and builds of frameworks against driver and cards."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator

from gpumon.callbacks.frameworks import OLDEST, is_too_old
from gpumon.cli.doctor.machine import GpuFacts, Machine, Packages
from gpumon.common.check_result import Check, Condition
from gpumon.common.errors import pip

_FRAMEWORKS = ("torch", "tensorflow", "jax", "pytorch-ignite", "scikit-learn")
"""Distributions to report, in addition to those with a minimum version for their callback."""
_BINDINGS, _OTHER_BINDINGS = "nvidia-ml-py", "pynvml"
_OLD_PYNVML = ("11", "8")
"""Version prefixes of the package pynvml that contain a module of their own; later ones use nvidia-ml-py's."""
_TORCH_INDEX = "https://download.pytorch.org/whl/"
_CPU_BUILD, _ROCM_BUILD = "+cpu", "+rocm"
"""Parts of the version of a torch that was built without CUDA."""


def package_checks(machine: Machine, encoding: str = "utf-8") -> list[Check]:
    """Check the installed packages that gpumon works with. `encoding`: encoding of the output."""
    packages, gpus = machine.packages, machine.gpus
    python = Check("Python", Condition.OK, f"{platform.python_version()} in {sys.prefix}")
    return [
        python, *_terminal(encoding), *_bindings(packages), *_frameworks(packages, gpus),
        *_torch_build(packages, gpus), *_torch_companions(packages), *_tensorflow(machine), *_jax(packages, gpus),
        *_mixed_libraries(packages),
    ]  # fmt: skip


def _terminal(encoding: str) -> Iterator[Check]:
    if "utf" not in encoding.lower():
        text = f"the output encoding is {encoding or 'unknown'}: views use plain characters"
        yield Check("terminal", Condition.NOTE, text, "'export LANG=C.UTF-8' if the terminal supports UTF-8")


def _bindings(packages: Packages) -> Iterator[Check]:
    version, other = packages.version(_BINDINGS), packages.version(_OTHER_BINDINGS)
    if other.startswith(_OLD_PYNVML):
        text = f"the package {_OTHER_BINDINGS} {other} contains a module of the same name"
        remedy = (
            f"'{pip(f'uninstall {_OTHER_BINDINGS}')}', then '{pip(f'install --force-reinstall {_BINDINGS}')}', in this "
            "environment only"
        )
        yield Check(_BINDINGS, Condition.WARNING, text, remedy)
    else:
        yield Check(_BINDINGS, Condition.OK, version or "unknown version")


def _frameworks(packages: Packages, gpus: GpuFacts) -> Iterator[Check]:
    has_gpu = bool(gpus.names)
    names = (*_FRAMEWORKS, *(name.replace("_", "-") for name in OLDEST))
    versions = {name: version for name in names if (version := packages.version(name))}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield Check("frameworks", Condition.OK if text else Condition.NOTE, text or "none in this environment")
    for name, version in versions.items():
        module = name.replace("-", "_")
        if is_too_old(module, version):
            text = f"{version} is too old for gpumon's callback"
            yield Check(name, Condition.WARNING, text, f"use {OLDEST[module]}.0 or newer, or gpumon.run() in any loop")
    torch = versions.get("torch", "")
    if torch.endswith(_CPU_BUILD) or (has_gpu and _ROCM_BUILD in torch):
        remedy = f"'{pip(f'install --force-reinstall torch --index-url {_TORCH_INDEX}cu126')}'" if has_gpu else ""
        text = f"{torch} uses no GPU" if torch.endswith(_CPU_BUILD) else f"{torch} uses only AMD GPUs"
        yield Check("torch", Condition.WARNING if has_gpu else Condition.NOTE, text, remedy)
    elif torch and gpus.has_amd and not has_gpu and _ROCM_BUILD not in torch:
        remedy = f"'{pip(f'install --force-reinstall torch --index-url {_TORCH_INDEX}rocm6.4')}'"
        yield Check("torch", Condition.WARNING, f"{torch} uses no AMD GPU", remedy)


_CUDA_BUILDS = ((11, 8), (12, 6), (12, 8), (13, 0))
"""CUDA versions for which PyTorch offers builds."""
_BLACKWELL = re.compile(r"\bRTX 50\d0|\bRTX PRO \d+|\bG?B[1-3]\d0\b|\bBlackwell\b")
_BLACKWELL_CUDA = (12, 8)
"""First CUDA version with code for Blackwell: CUDA 12.8 Release Notes."""
_VOLTA = re.compile(
    r"\b(?:V100|TITAN V|GV100|P100|P40|P4|P6|TITAN X|GTX 10\d0|GTX 9\d0|M40|M60|Quadro [MP]\d+|Quadro GV100)\b"
)
_NO_VOLTA_CUDA = (13, 0)
"""First CUDA version without code for Maxwell, Pascal and Volta: CUDA 13.0 Release Notes."""


def _torch_build(packages: Packages, gpus: GpuFacts) -> Iterator[Check]:
    """Yield a warning if torch was built for a CUDA version that does not fit the driver or a card."""
    version = packages.version("torch")
    match = re.search(r"^cuda\b[^=\n]*=\s*'(\d+)\.(\d+)", packages.read("torch", "torch/version.py"), re.MULTILINE)
    if match is None:
        return
    cuda, driver = (int(match[1]), int(match[2])), _cuda_version(gpus.cuda)
    # A driver runs programs of any minor version of its CUDA major version: CUDA Compatibility, "Minor Version".
    if driver and cuda[0] > driver[0]:
        text = f"torch {version} is built for CUDA {cuda[0]}.{cuda[1]}, but the driver supports CUDA up to {gpus.cuda}"
        yield Check("torch", Condition.WARNING, text, f"update the driver, or '{_torch_for(driver)}'")
    for name in dict.fromkeys(gpus.names):
        if _BLACKWELL.search(name) and cuda < _BLACKWELL_CUDA:
            needed = _BLACKWELL_CUDA
        elif _VOLTA.search(name) and cuda >= _NO_VOLTA_CUDA:
            needed = (12, 6)
        else:
            continue
        text = f"torch {version} is built for CUDA {cuda[0]}.{cuda[1]}, which has no code for the {name}"
        yield Check("torch", Condition.WARNING, text, f"'{_torch_for(needed)}'")


def _cuda_version(text: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _torch_for(cuda: tuple[int, int]) -> str:
    """Return the command that installs torch for a driver or card with this CUDA version."""
    fitting = [build for build in _CUDA_BUILDS if build[0] == cuda[0] and build <= cuda]
    first = next((build for build in _CUDA_BUILDS if build[0] == cuda[0]), _CUDA_BUILDS[0])
    major, minor = fitting[-1] if fitting else first
    return pip(f"install --force-reinstall torch --index-url {_TORCH_INDEX}cu{major}{minor}")


def _torch_companions(packages: Packages) -> Iterator[Check]:
    """Yield a warning if torchvision or torchaudio was built for another torch, or torch for another NumPy."""
    torch = packages.version("torch").partition("+")[0]
    if not torch:
        return
    for name in ("torchvision", "torchaudio"):
        pins = (re.match(r"torch\s*\(?==\s*([\d.]+)", requirement) for requirement in packages.requires(name))
        wanted = next((pin[1] for pin in pins if pin), torch)
        if wanted != torch:
            text = f"{name} {packages.version(name)} is built for torch {wanted}, but torch {torch} is installed"
            remedy = f"'{pip(f'install --upgrade torch=={wanted} {name}')}', or the {name} of this torch"
            yield Check(name, Condition.WARNING, text, remedy)
    numpy = packages.version("numpy")
    if _major_minor(torch) < (2, 3) and _major_minor(numpy) >= (2, 0):
        text = f"torch {torch} does not work with NumPy {numpy}: it was built for NumPy 1"
        yield Check("numpy", Condition.WARNING, text, f"'{pip(_NUMPY_1)}'")


def _major_minor(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _tensorflow(machine: Machine) -> Iterator[Check]:
    """Yield a warning if TensorFlow cannot use GPUs because of its build, or name the libraries of CUDA that it misses.

    Its CUDA libraries are the packages of its extra `and-cuda`, or libraries of the system.
    """
    packages = machine.packages
    version = packages.version("tensorflow")
    if not machine.gpus.names:
        return
    if not version:
        if cpu := packages.version("tensorflow-cpu"):
            remedy = f"'{pip('uninstall tensorflow-cpu')}', then '{pip(_install_tensorflow())}'"
            yield Check("tensorflow", Condition.WARNING, f"tensorflow-cpu {cpu} uses no GPU", remedy)
        return
    needed = [
        match[1]
        for requirement in packages.requires("tensorflow")
        if "and-cuda" in requirement and (match := re.match(r"(nvidia-[a-z0-9-]+)", requirement))
    ]
    missing = [name for name in needed if not packages.version(name)]
    if not missing or (len(missing) == len(needed) and _system_has_cuda(machine)):
        return
    text = f"tensorflow {version} uses no GPU, because it misses {', '.join(missing)}"
    yield Check("tensorflow", Condition.WARNING, text, f"'{pip(_install_tensorflow(version))}'")


def _install_tensorflow(version: str = "") -> str:
    pin = f"=={version}" if version else ""
    return f'install "tensorflow[and-cuda]{pin}"'


def _system_has_cuda(machine: Machine) -> bool:
    """Return whether the CUDA runtime and cuDNN are in the loader's cache or in LD_LIBRARY_PATH."""
    cache = machine.text("/etc/ld.so.cache")
    folders = filter(None, machine.environ.get("LD_LIBRARY_PATH", "").split(":"))
    names = [name for folder in folders for name in machine.names(folder)]
    return all(
        library in cache or any(library in name for name in names) for library in ("libcudart.so", "libcudnn.so")
    )


_NUMPY_1 = 'install "numpy<2"'
_UPGRADE_JAX = 'install --upgrade "jax[{}]"'


def _jax(packages: Packages, gpus: GpuFacts) -> Iterator[Check]:
    """Yield a warning if JAX has no plugin for CUDA, or one of another version."""
    version = packages.version("jax")
    if not version or not gpus.names:
        return
    plugins = {name: packages.version(name) for name in ("jax-cuda12-plugin", "jax-cuda13-plugin")}
    installed = {name: plugin for name, plugin in plugins.items() if plugin}
    driver = _cuda_version(gpus.cuda)
    extra = "cuda13" if driver and driver[0] >= 13 else "cuda12"
    install = f"'{pip(_UPGRADE_JAX.format(extra))}'"
    if not installed:
        yield Check("jax", Condition.WARNING, f"jax {version} uses no GPU, because its CUDA plugin is missing", install)
    for name, plugin in installed.items():
        if plugin != (library := packages.version("jaxlib")):
            text = f"{name} is version {plugin}, but jaxlib is version {library}: JAX uses no GPU"
            yield Check("jax", Condition.WARNING, text, install)


def _mixed_libraries(packages: Packages) -> Iterator[Check]:
    """Yield a warning for libraries of two CUDA versions, whose packages overwrite each other's files."""
    for library in ("cudnn", "nccl", "nvshmem", "cusparselt"):
        both = [name for major in (12, 13) if packages.version(name := f"nvidia-{library}-cu{major}")]
        if len(both) > 1:
            text = f"{' and '.join(both)} are installed in the same folder, so one of them has the other's files"
            remedy = (
                f"'{pip('uninstall ' + ' '.join(both))}', then install the framework again, best in its own environment"
            )
            yield Check(both[0], Condition.WARNING, text, remedy)
