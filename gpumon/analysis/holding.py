"""The GPUs that each user holds now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.model.device import Device


def held_now(statuses: Iterable[GpuStatus]) -> Mapping[str, Sequence[Device]]:
    """Return the devices of each user, and as those of "" the ones that may have a holder who is not known."""
    found: dict[str, list[Device]] = {"": []}
    for status in statuses:
        users = {process.user for process in status.processes} | {one.first.user for one in status.runs}
        may_be_held = status.held is not False and status.state is not GpuState.DIVIDED
        unknown = {""} if status.is_unlisted or (may_be_held and not users) else set()
        for user in sorted(users | unknown):
            found.setdefault(user, []).append(status.sample.device)
    return found
