"""An installation without extras: what works in it, what it says of the rest, and how large it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from gpumon.common.errors import pip_install_extra
from tests.conftest import ROOT
from tests.programs import PATIENCE, environment, until

MAX_BYTES = 30e6
"""Largest size of the packages that gpumon requires, without byte code."""
SOURCES = os.pathsep.join(map(str, (ROOT, ROOT / "tui", ROOT / "web")))


def requirements(name: str, known: set[str]) -> set[str]:
    """Add the distributions that `name` requires without an extra, directly or indirectly, and return all of them."""
    for line in metadata.requires(name) or ():
        requirement, _, marker = line.partition(";")
        found = re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0]
        if "extra ==" not in marker and "python_version" not in marker and found not in known:
            known.add(found)
            requirements(found, known)
    return known


def installed_files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a distribution in site-packages, without byte code: first part of the path, and the path."""
    distribution = metadata.distribution(name)
    for file in distribution.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield file.parts[0], Path(str(distribution.locate_file(file)))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has only the packages that gpumon requires."""
    root = tmp_path_factory.mktemp("base")
    venv.create(root, symlinks=True)
    target = Path(sysconfig.get_path("purelib", "venv", {"base": str(root)}))
    for name in requirements("gpumon-ml", set()):
        folder = Path(str(metadata.distribution(name).locate_file("")))
        for entry in {first for first, _ in installed_files(name)}:
            (target / entry).symlink_to(folder / entry)
    return root / "bin" / "python"


def run(python: Path, *words: object, live_dir: Path) -> subprocess.CompletedProcess[str]:
    env = {**environment(live_dir), "PYTHONPATH": SOURCES}
    return subprocess.run(
        [python, "-m", "gpumon", *map(str, words)], env=env, cwd=live_dir, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip


def test_size() -> None:
    names = requirements("gpumon-ml", set())
    assert {"textual", "psutil", "nvidia-ml-py"} <= names
    sizes = {name: sum(path.stat().st_size for _, path in installed_files(name)) for name in names}
    assert sum(sizes.values()) < MAX_BYTES, sizes


def test_commands_work(base: Path, live_dir: Path) -> None:
    status = run(base, "status", "--source", "sim", "--json", live_dir=live_dir)
    assert status.returncode == 0, status.stderr
    assert len(json.loads(status.stdout)["gpus"]) == 8
    for words in (["runs"], ["export", "--once"], ["doctor", "--json"], ["run", "--", "true"], ["history", "events"]):
        done = run(base, *words, live_dir=live_dir)
        assert "Traceback" not in done.stderr, (words, done.stderr)
        assert "pip install" not in done.stderr, (words, done.stderr)


@pytest.mark.parametrize("words", [("tui", "--demo"), ()])
def test_the_terminal_view_opens(base: Path, live_dir: Path, words: tuple[str, ...]) -> None:
    env = {**environment(live_dir), "PYTHONPATH": SOURCES, "TERM": "xterm-256color", "GPUMON_SOURCE": "sim"}
    main, terminal = os.openpty()
    process = subprocess.Popen(
        [base, "-m", "gpumon", *words], env=env, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    try:
        seen = b""

        def is_open() -> bool:
            nonlocal seen
            seen += os.read(main, 65536)
            return b"SIMULATED" in seen

        until(is_open)
        os.write(main, b"q")
        while process.poll() is None:
            try:
                os.read(main, 65536)
            except OSError:  # the terminal view has closed its side
                break
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)


def test_the_browser_view_names_the_command_that_installs_it(base: Path, live_dir: Path) -> None:
    done = run(base, "web", "--source", "sim", live_dir=live_dir)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "-m pip install" in done.stderr


def test_the_command_names_the_packages_of_the_extra() -> None:
    command = pip_install_extra("web")
    assert re.search(r"-m pip install .*dash.* .*plotly.* .*uvicorn", command), command
    assert "httpx" not in command
    assert "pytest" not in command
