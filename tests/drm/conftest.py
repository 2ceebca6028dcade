"""What the tests of AMD and Intel GPUs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpumon.sources.drm import files


@pytest.fixture(autouse=True)
def closed_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the files that readers keep open. The tests make hundreds of readers, which live as long as a daemon."""
    opened: list[files.KernelFile] = []
    begin = files.KernelFile.__init__

    def record(file: files.KernelFile, *words: Any, **more: Any) -> None:
        begin(file, *words, **more)
        opened.append(file)

    monkeypatch.setattr(files.KernelFile, "__init__", record)
    yield
    for file in opened:
        file.close()
