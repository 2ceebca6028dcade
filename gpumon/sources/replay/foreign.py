"""Files that are no log of rows by GPU: what they are, and the command that makes one that can be played."""

from __future__ import annotations

import re
from collections.abc import Sequence

COMMAND = (
    "nvidia-smi --query-gpu=timestamp,index,uuid,name,utilization.gpu,memory.used,memory.total,power.draw,"
    "temperature.gpu --format=csv -l 1 -f FILE"
)
_KINDS = (
    (r"<\?xml|<!DOCTYPE|<nvidia_smi_log", "XML, as of 'nvidia-smi -q -x'"),
    (r"=+NVSMI LOG=+", "the report of 'nvidia-smi -q'"),
    (r"Every [0-9.,]+s?: ", "the screen of 'watch'"),
    (r"#.*\bpid\b", "a log of processes, as of 'nvidia-smi pmon'"),
    (r"(?=.*,).*\bpid\b", "a list of processes, as of 'nvidia-smi --query-compute-apps'"),
    (r".*\| NVIDIA-SMI [0-9]|\+-{30,}", "the table of 'nvidia-smi'"),
    (r"GPU [0-9]+: .*UUID", "the list of 'nvidia-smi -L'"),
    (r"# ?(?:HELP|TYPE) ", "metrics for Prometheus"),
    (r"#\s*(?:Entity|ID)\b", "a log of 'dcgmi dmon'"),
    (r"[{\[]\s*(?:[\"{\[]|$)", "JSON"),
)
"""The beginning of a line, and what has such a line."""


def describe(lines: Sequence[str]) -> str:
    """What a file is that begins with these lines, as part of a sentence; empty where that is not known."""
    for pattern, what in _KINDS:
        if any(re.match(pattern, line) for line in lines):
            return what
    return ""
