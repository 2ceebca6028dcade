"""What tests share: the stub driver, and programs that run on it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.common.paths import Places
from gpumon.tracking import warn
from gpumon.tracking.tag_reader import Poll, TagReader
from tests import fuzzing
from tests.nvml import CompilerMissing, Stub, build

ROOT = Path(__file__).parent.parent
IN_CI = os.environ.get("CI", "") not in ("", "0", "false")


def cannot(reason: str) -> None:
    """Skip, and say why; in CI, where everything must be there, fail."""
    if IN_CI:
        pytest.fail(f"{reason} (in CI this must run)")
    pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    fuzzing.choose(config.option.markexpr)
    _isolate(config)
    # Messages name commands as a shell finds them: as with an activated environment.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    # A shell lets what it starts in the background ignore Ctrl-C, and nohup a hang-up. Programs of tests inherit that.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    gc.disable()  # until all tests are loaded: looking at them again and again is a fifth of that


def _isolate(config: pytest.Config) -> None:
    """Keep tests, and the programs that inherit their environment, off the directories and settings of the user."""
    own = tempfile.mkdtemp(prefix="gpumon-tests-")
    config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))
    for variable in ("GPUMON_DIR", "GPUMON_STATE_DIR", "XDG_CONFIG_HOME"):
        os.environ[variable] = f"{own}/{variable.lower()}"
        os.mkdir(os.environ[variable], 0o700)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(0))


def pytest_collection_finish() -> None:
    """Let the garbage collector never look again at what was loaded for all tests: a tenth of a second each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def driver_library() -> Path:
    """The stub driver, compiled."""
    try:
        return build(into=ROOT / ".cache")
    except CompilerMissing as error:
        cannot(str(error))
        raise


@pytest.fixture
def stub(driver_library: Path) -> Iterator[Stub]:
    """A stub driver with two GPUs."""
    with Stub(driver_library) as running:
        yield running


@pytest.fixture
def live_dir(tmp_path: Path) -> Path:
    """An empty directory for a daemon, as its user would have made it."""
    directory = tmp_path / "live"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[TagReader]:
    """Reads the boards below `tmp_path`, as a daemon does."""
    reading = TagReader(Places(explicit=str(tmp_path), uid=os.getuid()))
    yield reading
    reading.close()


@pytest.fixture
def look(reader: TagReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Poll]:
    """Reads the runs of this process, whose boards are below `tmp_path`."""
    monkeypatch.setenv("GPUMON_DIR", str(tmp_path))
    return reader.poll


@pytest.fixture
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process give each warning to authors of trainings again."""
    monkeypatch.setattr(warn, "_warned", set())


@pytest.fixture
def recordings() -> Path:
    """Real logs of real trainings, which lie beside the project and are not part of it."""
    directory = ROOT.parent / "shared" / "recordings"
    if not directory.is_dir():
        pytest.skip(f"the recordings of real trainings are not beside the checkout ({directory})")
    return directory


@pytest.fixture(scope="session")
def tmux() -> str:
    """The real terminal that tests of the terminal view use."""
    found = shutil.which("tmux")
    if found is None:
        cannot("tmux is not installed")
    return found or ""
