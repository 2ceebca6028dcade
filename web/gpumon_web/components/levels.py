"""Levels of states and findings, which are the CSS classes of tags."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.analysis.gpu_state import GpuState
from gpumon.diagnosis.finding import Severity
from gpumon.model.frame import RunState

SEVERITY_LEVELS: Mapping[Severity | None, str] = {
    None: "",
    Severity.INFO: "",  # information, neither good nor bad
    Severity.WARNING: "warn",
    Severity.CRITICAL: "bad",
}
GPU_LEVELS: Mapping[GpuState, str] = {
    GpuState.BUSY: "ok",
    GpuState.FREE: "ok",
    GpuState.ALLOCATED: "",
    GpuState.IDLE: "",
    GpuState.ASLEEP: "",
    GpuState.UNKNOWN: "",
    GpuState.DIVIDED: "",
    GpuState.HELD: "warn",
    GpuState.STALE: "warn",
    GpuState.LOST: "bad",
    GpuState.UNREADABLE: "bad",
}
_RUN_STATE_LEVELS: Mapping[RunState, str] = {
    RunState.RUNNING: "ok",
    RunState.FINISHED: "",
    RunState.INTERRUPTED: "",
    RunState.STOPPED: "",
    RunState.FAILED: "bad",
    RunState.DIED: "bad",
}
RUN_LEVELS: Mapping[str, str] = {state.name.lower(): level for state, level in _RUN_STATE_LEVELS.items()}
"""Levels by the lower-case name of a run's state."""
