"""A file that opens but cannot be read, such as on a damaged disk, is not called an error of the output."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gpumon.cli import main, streams
from gpumon.common.errors import SourceError
from gpumon.common.paths import read_regular
from gpumon.recording.reader import RecordingReader
from gpumon.sources.replay.log import LogFile
from tests.recorded import read, simulated, write

UNREADABLE = "/proc/self/mem"
"""A regular file whose first bytes no process can read."""


@pytest.mark.parametrize("kind", [LogFile, RecordingReader])
def test_unreadable_source_is_named(kind: type[LogFile | RecordingReader]) -> None:
    with pytest.raises(SourceError, match=UNREADABLE):
        kind(UNREADABLE)


def test_error_of_reading_has_the_name_of_the_file() -> None:
    with pytest.raises(OSError, match="error") as raised:
        read_regular(UNREADABLE, 100)
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, UNREADABLE)
    assert not streams.is_output(raised.value)


def test_unreadable_source_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--source", f"replay:{UNREADABLE}"]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert UNREADABLE in lines[0]


def test_recording_plays_up_to_an_unreadable_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "recording"
    size = len(write(path, simulated(200)))
    pread = os.pread

    def fail(fd: int, length: int, offset: int) -> bytes:
        if offset > size // 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, length, offset)

    monkeypatch.setattr(os, "pread", fail)
    frames, problem = read(path)
    assert 0 < len(frames) < 200
    assert os.strerror(errno.EIO) in problem
