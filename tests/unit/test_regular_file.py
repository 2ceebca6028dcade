"""What lies in the place of a file that gpumon reads is never waited for, and never followed where it must not be."""

from __future__ import annotations

import os
import signal
import socket
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.cli.options import resolve_options
from gpumon.cluster.client import read_access
from gpumon.common.config import read_settings
from gpumon.common.errors import GpumonError
from gpumon.common.net import token_from
from gpumon.common.paths import open_regular
from gpumon.export.server import tls_context
from gpumon.live import connect
from gpumon.ring.lock import holder_of
from gpumon.sources.replay.log_replay import read_end_ns
from gpumon.sources.replay.nvidia_smi_csv import QueryFormat
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.open import read_devices
from gpumon.storage.history.read import reading
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.ledger.change import LedgerChange
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.sqlite.state_file import StateFile
from gpumon.tracking.git import _read as read_git
from gpumon_tui.preferences import Preferences
from gpumon_web.auth.api_tokens import read_tokens
from tests.runs import Book, training

KINDS = ("fifo", "socket", "directory", "link", "device")


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    def over(*_: object) -> None:
        raise AssertionError("waited for something that is no file")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def place(kind: str, path: Path) -> None:
    """Put something that is no regular file at a path."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with closing(socket.socket(socket.AF_UNIX)) as opened:
            opened.bind(str(path))
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path.parent)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("follow", [False, True])
def test_only_a_regular_file_is_opened(tmp_path: Path, kind: str, follow: bool) -> None:
    place(kind, tmp_path / "file")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=str(tmp_path)):
        open_regular(str(tmp_path / "file"), follow=follow)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_to_a_file_is_opened_only_where_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to("file")
    with os.fdopen(open_regular(str(tmp_path / "link"), follow=True)) as opened:
        assert opened.read() == "content"
    with pytest.raises(OSError, match="symbolic link"):
        open_regular(str(tmp_path / "link"))


READERS: dict[str, Callable[[str], object]] = {
    "ledger": Ledger, "ledger change": lambda path: LedgerChange(path, os.getuid()), "settings": read_settings,
    "history": lambda path: HistoryFile(path).subjects(0.0, 1e9), "devices": read_devices, "lock": holder_of,
    "git": read_git, "end of a log": lambda path: read_end_ns(path, QueryFormat(("timestamp",), ())),
    "ring": lambda path: connect(os.path.dirname(path)).latest(),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_what_is_no_file(tmp_path: Path, kind: str, reader: str) -> None:
    path = tmp_path / ("ring" if reader == "ring" else "file")
    place(kind, path)
    with suppress(GpumonError, OSError):
        READERS[reader](str(path))


def test_a_loop_of_links_is_no_lack_of_permission(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(GpumonError, match="symbolic link"), reading(str(tmp_path / "loop" / "history.sqlite")):
        pass


def read_preferences(path: str) -> None:
    if problem := Preferences(path).pop_problem():
        raise GpumonError(problem)


USER_FILES: dict[str, Callable[[str], object]] = {
    "config.toml": lambda path: resolve_options(Namespace(), {"XDG_CONFIG_HOME": str(Path(path).parents[1])}),
    "cluster.toml": read_access, "web-tokens": read_tokens, "tui.json": read_preferences,
    "token": lambda path: token_from(path, make=False),
    "tls.pem": lambda path: tls_context(path, path),
}  # fmt: skip
CREATES_ITS_FILE = "tui.json"


@pytest.mark.parametrize("kind", [*KINDS, "loop", "broken link", "closed", "large", "not UTF-8"])
@pytest.mark.parametrize("name", USER_FILES)
def test_a_file_of_the_user_that_cannot_be_read_is_one_line_that_names_it(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / "gpumon" / name
    if kind == "closed" and os.getuid() == 0:
        pytest.skip("root reads every file")
    if kind == "broken link" and name == CREATES_ITS_FILE:
        pytest.skip("the view creates the file that a link names")
    if kind in KINDS:
        place(kind, path)
    else:
        path.parent.mkdir(mode=0o700)
        if kind in ("loop", "broken link"):
            path.symlink_to(name if kind == "loop" else "nowhere")
        else:
            path.write_bytes(b"#" + (b"a1b2 " * 2**19 if kind == "large" else b"\xff\xfe"))
            path.chmod(0 if kind == "closed" else 0o600)
    with pytest.raises(GpumonError) as raised:
        USER_FILES[name](str(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


HISTORY = ["history"], ["history", "events"], ["history", "processes"], ["history", "totals"], ["history", "accounts"]
PLACES = [
    *(("fifo", "", words) for words in (*HISTORY, ["runs"], ["runs", "rename", "last", "x"])),
    *(("link", "", words) for words in (*HISTORY, ["runs"], ["runs", "rename", "last", "x"])),
    *((kind, "", words) for kind in ("socket", "directory", "device") for words in (["history"], ["runs"])),
    *(("fifo", suffix, words) for suffix in ("-wal", "-shm", "-journal") for words in (["history"], ["runs"])),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "suffix", "words"), PLACES)
def test_a_command_says_in_a_line_what_lies_in_the_place_of_its_file(
    tmp_path: Path, kind: str, suffix: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = "history.sqlite" if words[0] == "history" else "ledger.sqlite"
    if suffix:
        with Book(tmp_path) as book:
            training(book, epochs=1)
        (tmp_path / "ledger.sqlite").rename(tmp_path / name)
        for left in tmp_path.glob("*-*"):
            left.unlink()
    place(kind, tmp_path / f"{name}{suffix}")
    assert main([*words, "--state-dir", str(tmp_path), "--dir", str(tmp_path / "live")]) in (0, 1)
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert name in line
    assert not any(word in line for word in ("internal error", "Errno", "disk I/O", "SQLite"))


@pytest.mark.parametrize(
    ("kind", "suffix"), [*((kind, "") for kind in KINDS), ("fifo", "-wal"), ("fifo", "-shm"), ("fifo", "-journal")]
)
def test_a_daemon_goes_on_without_a_file_whose_place_is_taken(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / "state" / "history.sqlite"
    place(kind, Path(f"{path}{suffix}"))
    said: list[str] = []
    file = StateFile(str(path), HISTORY_FILE, os.getuid(), said.append)
    with pytest.raises(OSError, match=str(path)) as caught:
        file.connect()
    assert not file.handle_error(caught.value)
    (line,) = said
    assert str(path) in line
