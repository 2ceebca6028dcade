"""The file for node_exporter's textfile collector: replaced atomically, locked, and removed at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from gpumon.common.errors import GpumonError
from gpumon.export.textfile import maintain_textfile, write_textfile
from tests.builders import process, sample, tick
from tests.exported import Node, Page
from tests.programs import until


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    node.add(tick(n, [sample(0, utilization=0.9, energy=10.0 * n)], [process()]) for n in (1, 2, 3))
    yield node
    node.close()


def test_a_text_file_is_replaced_as_a_whole_and_goes_with_whoever_writes_it(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    exporter = node.exporter()
    stop = Event()
    writer = Thread(target=maintain_textfile, args=(exporter, str(file), stop, 0.001))
    writer.start()
    until(file.exists)
    read = [file.read_bytes() for _ in range(200)]
    assert all(text.endswith(b"\n") for text in read)
    assert {Page(text).value("gpumon_up") for text in read} == {1.0}
    assert os.stat(file).st_mode & 0o777 == 0o644
    stop.set()
    writer.join()
    assert list(tmp_path.iterdir()) == []


def test_a_text_file_that_cannot_be_written_is_said_and_leaves_nothing(node: Node, tmp_path: Path) -> None:
    with pytest.raises(GpumonError, match=r"cannot write .*: No such file or directory"):
        write_textfile(node.exporter(), str(tmp_path / "none" / "gpumon.prom"))
    (tmp_path / "gpumon.prom").mkdir()
    with pytest.raises(GpumonError, match=r"Is a directory"):
        write_textfile(node.exporter(), str(tmp_path / "gpumon.prom"))
    assert [one.name for one in tmp_path.iterdir()] == ["gpumon.prom"]


class Keeper:
    """An exporter that keeps a file, in a thread."""

    def __init__(self, node: Node, file: Path) -> None:
        self.said: list[str] = []
        self.exporter = node.exporter()
        self._stop = Event()
        what = (self.exporter, str(file), self._stop, 0.001, self.said.append)
        self._thread = Thread(target=maintain_textfile, args=what)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def test_a_write_that_fails_is_said_once_and_tried_again(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gpumon.prom"
    keeper = Keeper(node, file)
    until(file.exists)
    tries, scrape = [], keeper.exporter.scrape

    def full(*_: object) -> bytes:
        tries.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeper.exporter, "scrape", full)
    until(lambda: len(tries) > 3)
    assert keeper.said == [f"cannot write {file}: No space left on device"]
    assert not file.exists(), "what was is not told as now"
    monkeypatch.setattr(keeper.exporter, "scrape", scrape)
    until(file.exists)
    until(lambda: len(keeper.said) == 2)
    assert keeper.said[1] == f"can write {file} again"
    keeper.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_second_exporter_does_not_write_the_file_of_the_first(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    file.write_text("left by one that was killed\n")
    keeper = Keeper(node, file)
    until(lambda: b"gpumon_up" in file.read_bytes())
    for _ in range(20):
        with pytest.raises(GpumonError, match="another gpumon export writes"):
            maintain_textfile(node.exporter(), str(file), Event())
        with pytest.raises(GpumonError, match="another gpumon export writes"):
            write_textfile(node.exporter(), str(file))
    assert keeper.said == []
    assert b"gpumon_up" in file.read_bytes()
    keeper.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_text_file_that_another_program_has_put_there_is_not_removed(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    stop = Event()
    other = tmp_path / "other"
    other.write_text("of another program\n")
    writer = Thread(target=maintain_textfile, args=(node.exporter(), str(file), stop, 60.0))
    writer.start()
    until(file.exists)
    os.replace(other, file)
    stop.set()
    writer.join()
    assert file.read_text() == "of another program\n"


def test_a_text_file_can_be_read_by_others_whatever_the_umask_is(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    before = os.umask(0o077)
    try:
        write_textfile(node.exporter(), str(file))
    finally:
        os.umask(before)
    assert os.stat(file).st_mode & 0o777 == 0o644
