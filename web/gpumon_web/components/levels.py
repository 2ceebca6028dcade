"""Levels of states and findings, which are the CSS classes of tags."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.analysis.gpu_state import GpuState
from gpumon.diagnosis.finding import Severity
from gpumon.model.frame import RunState

OF_SEVERITY: Mapping[Severity | None, str] = {
    None: "",
    Severity.INFO: "",  # information, neither good nor bad
    Severity.WARNING: "warn",
    Severity.CRITICAL: "bad",
}
OF_GPU: Mapping[GpuState, str] = {
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
_OF_RUN: Mapping[RunState, str] = {
    RunState.RUNNING: "ok",
    RunState.FINISHED: "",
    RunState.INTERRUPTED: "",
    RunState.STOPPED: "",
    RunState.FAILED: "bad",
    RunState.DIED: "bad",
}
OF_RUN: Mapping[str, str] = {state.name.lower(): level for state, level in _OF_RUN.items()}
"""Levels by the lower-case name of a run's state."""
