"""Compiles the stub driver."""

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).with_name("driver")
LIBRARY = "libnvidia-ml.so.1"
LEVELS = (390, 470, 580, 615)
NEWEST = LEVELS[-1]

# Contraction would let a compiler fuse a multiplication and an addition and round once instead of
# twice; the values would then differ from truth.py in the last bit, and some floor() with them.
FLAGS = (
    "-shared",
    "-fPIC",
    "-pthread",
    "-O2",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    "-ffp-contract=off",
)


class CompilerMissing(RuntimeError):
    """There is no C compiler here."""


class CompilerFailed(RuntimeError):
    """The C compiler refused the sources."""


def build(level: int = NEWEST, *, into: Path) -> Path:
    """The directory, below `into`, of a stub that imitates driver branch `level`.

    Built once per state of the sources; safe when several processes build at the same time.
    """
    if level not in LEVELS:
        raise ValueError(f"driver level {level}: expected one of {LEVELS}")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise CompilerMissing(f"the stub NVML driver needs a C compiler, and {compiler[0]!r} is not on PATH")
    directory = into / f"nvml-{level}-{_digest(compiler)}"
    if not (directory / LIBRARY).exists():
        _compile(compiler, level, directory)
    return directory


def _digest(compiler: list[str]) -> str:
    digest = hashlib.sha256(repr((compiler, FLAGS)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:12]


def _compile(compiler: list[str], level: int, directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        library = Path(scratch, LIBRARY)
        sources = sorted(map(str, SOURCES.glob("*.c")))
        options = [f"-DDRIVER={level}", f"-Wl,-soname,{LIBRARY}", "-o", str(library)]
        done = subprocess.run([*compiler, *FLAGS, *options, *sources, "-lm"], capture_output=True, text=True)
        if done.returncode != 0:
            raise CompilerFailed(f"{shlex.join(compiler)} failed on the stub NVML driver:\n{done.stderr}")
        directory.mkdir(exist_ok=True)
        library.replace(directory / LIBRARY)  # in one step: a reader sees all of it or none
