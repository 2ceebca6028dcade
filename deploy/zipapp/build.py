"""Build `gpumon.pyz`: one file with the commands that need no package but nvidia-ml-py, for any Linux with Python.

    python deploy/zipapp/build.py dist/gpumon.pyz

The file has no terminal view and no browser view, whose packages are too large or not pure Python. The same sources
give the same bytes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_MAIN = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("gpumon needs Python 3.11 or newer")

from gpumon.__main__ import entry

sys.exit(entry())
"""
_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of every file in the archive: the earliest that the format can store."""


def sources() -> dict[str, bytes]:
    """Return the content of each file by its name in the archive."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        sys.exit("nvidia-ml-py is not installed: pip install nvidia-ml-py")
    package = _ROOT / "gpumon"
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    content = {str(path.relative_to(_ROOT)): path.read_bytes() for path in files}
    return {
        **content,
        "__main__.py": _MAIN.encode(),
        "LICENSE": (_ROOT / "LICENSE").read_bytes(),
        "pynvml.py": Path(spec.origin).read_bytes(),  # its license is at its top
    }


def build(target: Path) -> None:
    """Write the archive, executable and complete, or leave `target` as it was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in sorted(sources().items()):
                entry = zipfile.ZipInfo(name, _TIME)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    temporary.chmod(0o755)
    temporary.replace(target)


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "gpumon.pyz"))
