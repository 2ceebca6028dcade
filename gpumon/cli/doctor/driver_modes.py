"""Checks of modes that an administrator has set in the driver: compute mode and persistence mode.

They are read with nvidia-smi, because gpumon does not sample them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from shutil import which

from gpumon.common.check_result import Check, Condition

_QUERY = ("--query-gpu=index,compute_mode,persistence_mode", "--format=csv,noheader")
_TIMEOUT = 10.0
_ONE_PROCESS = "only one process at a time: another CUDA program fails with 'devices are busy or unavailable'"
_LIMITED = {
    "Exclusive_Process": _ONE_PROCESS,
    "Exclusive_Thread": _ONE_PROCESS,
    "Prohibited": "no CUDA program",
}
"""What a GPU runs in each compute mode but the default, by the names of nvidia-smi."""


def query_modes() -> str:
    """Return a line for each GPU: index, compute mode and persistence mode. Empty if they cannot be read."""
    program = which("nvidia-smi")
    if program is None:
        return ""
    process = subprocess.Popen(
        [program, *_QUERY], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        errors="replace", env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # a process that waits for the driver cannot be killed
            process.communicate(timeout=1.0)
        return ""
    return output if process.returncode == 0 else ""


def mode_checks(modes: str) -> Iterator[Check]:
    """Yield checks of the modes. `modes`: result of `query_modes`."""
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
